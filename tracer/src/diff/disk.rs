//! A comparison on disk: a folder with `comparison.json`, replaced as a whole.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tempfile::NamedTempFile;

use super::{COMPARISON_SCHEMA, Comparison};

/// The file in the folder.
pub const COMPARISON_FILE: &str = "comparison.json";

/// Writes the comparison into `folder`, which is made when it is not there. A comparison that is there already is
/// replaced once the new one is whole.
pub fn save(comparison: &Comparison, folder: &Path) -> Result<()> {
    let cannot =
        || format!("cannot write the comparison to {}: choose another place with -o", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    let mut file = NamedTempFile::new_in(folder).with_context(cannot)?;
    let mut writer = BufWriter::new(file.as_file_mut());
    serde_json::to_writer(&mut writer, comparison).with_context(cannot)?;
    writeln!(writer).and_then(|()| writer.flush()).with_context(cannot)?;
    drop(writer);
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).with_context(cannot)?;
    file.persist(folder.join(COMPARISON_FILE)).map_err(|error| error.error).with_context(cannot)?;
    Ok(())
}

/// Reads the comparison in `folder`; each way in which it may be none is one clear sentence.
pub fn load(folder: &Path) -> Result<Comparison> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let path = folder.join(COMPARISON_FILE);
    let shown = path.display();
    let json = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {shown}; give the folder that `tracer diff -o` wrote"))?;
    let version: Version = match serde_json::from_str(&json) {
        Ok(version) => version,
        Err(error) => bail!("{shown} was not written by tracer ({error})"),
    };
    ensure!(
        version.schema_version == COMPARISON_SCHEMA,
        "{shown} has format version {}, this tracer reads version {COMPARISON_SCHEMA}: read it with the tracer that \
         wrote it, or compare again",
        version.schema_version
    );
    serde_json::from_str(&json).with_context(|| format!("{shown} is damaged: compare again"))
}
