//! What the target printed: kept in a file, shown by its last lines.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How far from its end a log is read.
const TAIL_BYTES: i64 = 4096;
/// Lines shown.
const TAIL_LINES: usize = 12;

/// The last lines of a log, indented, under a heading; empty when nothing was printed.
pub fn tail(path: &Path) -> String {
    let text = read_end(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let Some(last) = lines.len().checked_sub(1) else { return "\n  (it printed nothing)".to_owned() };
    let shown = &lines[(last + 1).saturating_sub(TAIL_LINES)..];
    format!("\n  its last words:\n    {}", shown.join("\n    "))
}

fn read_end(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length_bytes = file.metadata()?.len() as i64;
    file.seek(SeekFrom::End(-TAIL_BYTES.min(length_bytes)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::tail;

    #[test]
    fn only_the_end_of_a_long_log_is_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines: Vec<String> = (0..10_000).map(|line| format!("line {line}")).collect();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let shown = tail(file.path());
        assert_eq!(shown.matches("line ").count(), super::TAIL_LINES);
        assert!(shown.ends_with("line 9999"));
    }

    #[test]
    fn silence_is_said() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(tail(file.path()), "\n  (it printed nothing)");
    }
}
