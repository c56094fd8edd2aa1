//! What a load writes down each second: a histogram log (HdrHistogram's interval log, V2), and rows of CSV.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use super::report::Latency;
use super::result::Second;

/// Where to.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The histogram log.
    pub hdr: Option<PathBuf>,
    /// Rows of CSV.
    pub csv: Option<PathBuf>,
}

impl Files {
    /// Writes the seconds as they come, until there are no more. Existing files are not overwritten.
    pub fn write(&self, seconds: Receiver<Second>) -> Result<()> {
        let mut hdr = self.hdr.as_ref().map(create).transpose()?;
        let mut csv = self.csv.as_ref().map(create).transpose()?;
        let mut serializer = V2DeflateSerializer::new();
        let now = SystemTime::now();
        let mut builder = IntervalLogWriterBuilder::new();
        builder.add_comment("nanoseconds; one histogram per second; written by tracer");
        builder.with_start_time(now).with_base_time(now);
        let mut log = match &mut hdr {
            Some(file) => Some(
                builder.begin_log_with(file, &mut serializer).context("cannot write the histogram log")?,
            ),
            None => None,
        };
        if let Some(file) = &mut csv {
            writeln!(file, "{HEADER}").context("cannot write the CSV")?;
        }
        let mut start_s = 0;
        for second in seconds {
            let length = Duration::from_secs(second.second - start_s);
            if let Some(log) = &mut log {
                log.write_histogram(&second.latency, Duration::from_secs(start_s), length, None)
                    .map_err(|error| anyhow!("cannot write the histogram log: {error:?}"))?;
            }
            if let Some(file) = &mut csv {
                writeln!(file, "{}", row(&second)).context("cannot write the CSV")?;
            }
            start_s = second.second;
        }
        drop(log);
        for file in [&mut hdr, &mut csv].into_iter().flatten() {
            file.flush().context("cannot write the last seconds")?;
        }
        Ok(())
    }

    /// Anything is to be written.
    pub fn is_wanted(&self) -> bool {
        self.hdr.is_some() || self.csv.is_some()
    }

    /// Refuses what exists already.
    pub fn check(&self) -> Result<()> {
        match [&self.hdr, &self.csv].into_iter().flatten().find(|path| path.exists()) {
            Some(path) => Err(anyhow!("{} exists already: name another file, or remove it", path.display())),
            None => Ok(()),
        }
    }
}

fn create(path: &PathBuf) -> Result<BufWriter<File>> {
    let file = File::create_new(path);
    Ok(BufWriter::new(file.with_context(|| format!("cannot write {}: choose another file", path.display()))?))
}

const HEADER: &str = "second,requests,errors,bytes_out,bytes_in,mean_ns,p50_ns,p90_ns,p99_ns,max_ns";

/// Empty where too few samples lie beyond a percentile.
fn row(second: &Second) -> String {
    let latency = Latency::of(&second.latency);
    let told = |ns: Option<u64>| ns.map(|ns| ns.to_string()).unwrap_or_default();
    let counts = &second.counts;
    format!(
        "{},{},{},{},{},{:.0},{},{},{},{}",
        second.second,
        counts.requests,
        counts.errors,
        counts.bytes_out,
        counts.bytes_in,
        latency.mean_ns,
        told(latency.p50_ns),
        told(latency.p90_ns),
        told(latency.p99_ns),
        latency.max_ns
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::super::result::{Counts, histogram};
    use super::*;

    fn second(number: u64, samples: u64) -> Second {
        let mut latency = histogram();
        (1..=samples).for_each(|n| latency.record(n).unwrap());
        let counts = Counts { requests: samples, errors: 1, bytes_out: 2, bytes_in: 3 };
        Second { second: number, counts, total: counts, latency }
    }

    #[test]
    fn seconds_are_written_as_others_read_them() {
        let folder = tempfile::tempdir().unwrap();
        let files =
            Files { hdr: Some(folder.path().join("it.hlog")), csv: Some(folder.path().join("it.csv")) };
        files.check().unwrap();
        let (sender, seconds) = mpsc::channel();
        sender.send(second(1, 100)).unwrap();
        sender.send(second(2, 5)).unwrap();
        drop(sender);
        files.write(seconds).unwrap();
        assert!(files.check().unwrap_err().to_string().contains("exists already"));

        let csv = std::fs::read_to_string(files.csv.unwrap()).unwrap();
        let rows: Vec<_> = csv.lines().collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0].split(',').count(), rows[1].split(',').count());
        assert!(rows[1].starts_with("1,100,1,2,3,5") && rows[1].ends_with(",50,90,,100"), "{}", rows[1]);
        assert_eq!(rows[2], "2,5,1,2,3,3,,,,5");

        let log = std::fs::read(files.hdr.unwrap()).unwrap();
        let entries = IntervalLogIterator::new(&log).map(Result::unwrap);
        let intervals: Vec<_> = entries
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(intervals.len(), 2);
        assert_eq!((intervals[1].start_timestamp().as_secs(), intervals[1].duration().as_secs()), (1, 1));
        use base64_of_the_log::decode;
        let bytes = decode(intervals[0].encoded_histogram());
        let read: hdrhistogram::Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!((read.len(), read.max()), (100, 100));
    }

    /// The log's alphabet is that of every base64; a decoder of four lines keeps a dependency away.
    mod base64_of_the_log {
        pub fn decode(text: &str) -> Vec<u8> {
            let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let digits = text.bytes().filter_map(|byte| alphabet.iter().position(|&digit| digit == byte));
            let bits: Vec<u8> =
                digits.flat_map(|digit| (0..6).rev().map(move |bit| (digit >> bit) as u8 & 1)).collect();
            bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |value, bit| value << 1 | bit)).collect()
        }
    }
}
