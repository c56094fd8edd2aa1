//! `tracer doctor`

use anyhow::Result;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets::NOTHING};

use super::{Format, Status, print};
use crate::preflight::{Answer, Check, checks};

/// Options of `doctor`.
#[derive(Args)]
pub struct Arguments {
    /// How results are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs `doctor`: every check with this machine's answer.
pub fn run(arguments: &Arguments) -> Result<Status> {
    let checks = checks();
    match arguments.format {
        Format::Json => print(&serde_json::to_string_pretty(&checks)?)?,
        Format::Text => print(&table(&checks))?,
    }
    Ok(if checks.iter().any(Check::is_fatal) { Status::Usage } else { Status::Held })
}

fn table(checks: &[Check]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(100);
    table.set_header(["check", "here", "needed", "what it is for", "without it"]);
    for check in checks {
        let needed = if check.required { "yes" } else { "on request" };
        table.add_row([
            check.what.as_str(),
            &check.answer.to_string(),
            needed,
            check.why.as_str(),
            check.lost_without.as_str(),
        ]);
    }
    let mut text = table.trim_fmt();
    for check in checks.iter().filter(|check| check.answer != Answer::Yes && !check.fix.is_empty()) {
        text.push_str(&format!("\n\n{}: {}", check.what, check.fix));
    }
    let fatal = checks.iter().filter(|check| check.is_fatal()).count();
    text.push_str(&match fatal {
        0 => "\n\neverything tracer needs works here".to_owned(),
        1 => "\n\n1 check that tracer needs failed".to_owned(),
        n => format!("\n\n{n} checks that tracer needs failed"),
    });
    text
}
