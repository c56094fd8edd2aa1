//! The model as JSON.

use super::Report;

/// The report as JSON, indented, with a line end.
pub fn json(report: &Report) -> String {
    let mut json = serde_json::to_string_pretty(report).expect("a report has only string keys");
    json.push('\n');
    json
}
