//! A recording on disk: a directory with `run.json` and `requests.parquet`. It appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::vec;

use anyhow::{Context, Result, anyhow, bail, ensure};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde::Deserialize;

use super::columns::Columns;
use super::nameless;
use super::{Request, Run, SCHEMA_VERSION};

const RUN_FILE: &str = "run.json";
const REQUESTS_FILE: &str = "requests.parquet";
const SCHEMA_VERSION_KEY: &str = "tracer.schema_version";

/// Requests held in memory before they are encoded, and decoded at once.
const BATCH_ROWS: usize = 4096;
/// Requests of one row group, which is held encoded until it is full.
const ROW_GROUP_ROWS: usize = 64 * 1024;

/// Writes a recording: its file has no name until it is whole.
///
/// Without [`Writer::finish`], dropped or killed, it leaves nothing behind.
pub struct Writer {
    path: PathBuf,
    columns: Columns,
    schema: SchemaRef,
    parquet: ArrowWriter<File>,
    pending: Vec<Request>,
}

impl Writer {
    /// Begins a recording that will stand at `path`, where nothing may be yet.
    pub fn create(path: &Path) -> Result<Self> {
        refuse_existing(path)?;
        let file = nameless::create(folder_of(path)).with_context(|| {
            format!("cannot write a recording at {}: choose another place with -o", path.display())
        })?;
        let columns = Columns::new();
        let schema = columns.schema();
        let parquet = ArrowWriter::try_new(file, schema.clone(), Some(properties()))?;
        let pending = Vec::with_capacity(BATCH_ROWS);
        Ok(Self { path: path.to_owned(), columns, schema, parquet, pending })
    }

    /// Adds one request.
    pub fn write(&mut self, request: Request) -> Result<()> {
        self.pending.push(request);
        if self.pending.len() < BATCH_ROWS { Ok(()) } else { self.encode_pending() }
    }

    /// Completes the recording and puts it into its place.
    pub fn finish(mut self, run: &Run) -> Result<()> {
        self.encode_pending()?;
        let Self { path, parquet, .. } = self;
        let placed = || -> Result<()> {
            let requests = parquet.into_inner()?;
            let json = nameless::create(folder_of(&path))?;
            write_json(&json, run)?;
            // Somebody may have put something there during the run. Renaming replaces an empty directory only.
            refuse_existing(&path)?;
            // From here on a few system calls: all that is left of the time in which a kill could leave a folder.
            let aside = nameless::folder_beside(&path)?;
            nameless::name(requests, &aside.path().join(REQUESTS_FILE))?;
            nameless::name(json, &aside.path().join(RUN_FILE))?;
            fs::rename(aside.path(), &path)?;
            let _moved_away = aside.keep();
            Ok(())
        };
        placed().with_context(|| cannot_write(&path))
    }

    fn encode_pending(&mut self) -> Result<()> {
        let batch = self.columns.batch(self.schema.clone(), &mut self.pending)?;
        self.pending.clear();
        self.parquet.write(&batch).with_context(|| cannot_write(&self.path))
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the recording {}: nothing of it was kept", path.display())
}

fn refuse_existing(path: &Path) -> Result<()> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(error).with_context(|| format!("cannot look at {shown}: choose another place with -o"))
        }
        Ok(_) if path.join(RUN_FILE).is_file() => {
            bail!("{shown} holds a recording already: remove it, or choose another place with -o")
        }
        Ok(_) => {
            bail!("{shown} exists and is not a recording, so it is left alone: choose another place with -o")
        }
    }
}

/// The folder in which `path` stands.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn properties() -> WriterProperties {
    let version = KeyValue::new(SCHEMA_VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string());
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        // Times hardly repeat: looking for repetition took a quarter of a recording's CPU time, on the driver's core, and
        // saved a quarter of its size.
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_created_by(concat!("tracer ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![version]))
        .build()
}

fn write_json(file: &File, run: &Run) -> Result<()> {
    let mut file = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut file, run)?;
    writeln!(file)?;
    Ok(file.flush()?)
}

/// A recording that was opened: the run, and its requests one after the other.
pub struct Recording {
    /// Everything but the requests.
    pub run: Run,
    /// The requests, read as they are asked for.
    pub requests: Requests,
}

/// Opens the recording at `path`; each way in which it may be none is one clear sentence.
pub fn open(path: &Path) -> Result<Recording> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| {
        anyhow!(
            "cannot open the recording {shown}: {error}; give the directory that `tracer record -o` wrote"
        )
    })?;
    ensure!(
        metadata.is_dir(),
        "{shown} is not a recording: it is not a directory; give the directory that `tracer record -o` wrote"
    );
    Ok(Recording { run: read_run(path)?, requests: Requests::open(path)? })
}

fn read_run(path: &Path) -> Result<Run> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }

    let shown = path.display();
    let json = match fs::read_to_string(path.join(RUN_FILE)) {
        Ok(json) => json,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "{shown} is not a recording: it has no {RUN_FILE}; give the directory that `tracer record -o` wrote"
        ),
        Err(error) => bail!("cannot read {RUN_FILE} of {shown}: {error}"),
    };
    let Version { schema_version } = serde_json::from_str(&json).map_err(|error| {
        anyhow!("{shown} is not a recording: its {RUN_FILE} was not written by tracer ({error})")
    })?;
    ensure!(
        schema_version == SCHEMA_VERSION,
        "{shown} has format version {schema_version}, this tracer reads version {SCHEMA_VERSION}: \
         read it with the tracer that wrote it, or record again"
    );
    serde_json::from_str(&json)
        .map_err(|error| anyhow!("{RUN_FILE} of {shown} is damaged ({error}): record again"))
}

/// The requests of a recording, in the order in which they were written. Holds one batch at a time.
pub struct Requests {
    path: PathBuf,
    columns: Columns,
    batches: ParquetRecordBatchReader,
    batch: vec::IntoIter<Request>,
}

impl Requests {
    fn open(path: &Path) -> Result<Self> {
        let columns = Columns::new();
        let file = match File::open(path.join(REQUESTS_FILE)) {
            Ok(file) => file,
            Err(error) => bail!(
                "{} is not a whole recording: cannot open its {REQUESTS_FILE} ({error}); record again",
                path.display()
            ),
        };
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(path, &error))?;
        columns.check(builder.schema()).map_err(|error| damaged(path, &error))?;
        let batches = builder.with_batch_size(BATCH_ROWS).build().map_err(|e| damaged(path, &e))?;
        Ok(Self { path: path.to_owned(), columns, batches, batch: Vec::new().into_iter() })
    }
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!("{REQUESTS_FILE} of {} is truncated or damaged ({error:#}): record again", path.display())
}

impl Iterator for Requests {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(request) = self.batch.next() {
                return Some(Ok(request));
            }
            let decoded = match self.batches.next()? {
                Ok(batch) => self.columns.requests(&batch),
                Err(error) => Err(error.into()),
            };
            match decoded {
                Ok(requests) => self.batch = requests.into_iter(),
                Err(error) => return Some(Err(damaged(&self.path, &error))),
            }
        }
    }
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
