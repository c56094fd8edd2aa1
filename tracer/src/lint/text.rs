//! Answers in words and as JSON.

use super::{Answer, Report};
use crate::report::{Page, percent, us};

/// The report as text of at most 100 columns.
pub fn text(report: &Report) -> String {
    let mut page = Page::default();
    for finding in &report.findings {
        match &finding.answer {
            Answer::Found { evidence, share, cost_ns, examples } => {
                page.line(0, &format!("FOUND {}: {evidence}", finding.rule));
                let cost = cost_ns.map_or_else(
                    || "cost not to be told".to_owned(),
                    |cost_ns| format!("cost {} us per request, mean over all", us(cost_ns)),
                );
                page.line(4, &format!("{} of the requests · {cost}", percent(*share)));
                examples.iter().for_each(|example| page.line(4, example));
            }
            Answer::NotFound { evidence } => page.line(0, &format!("not found {}: {evidence}", finding.rule)),
            Answer::NotEnough { missing } => {
                page.line(0, &format!("not enough evidence {}: {missing}", finding.rule));
            }
        }
    }
    page.into_text()
}

/// The report as JSON, indented, with a line end.
pub fn json(report: &Report) -> String {
    let mut json = serde_json::to_string_pretty(report).expect("a lint report has only string keys");
    json.push('\n');
    json
}
