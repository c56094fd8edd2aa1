//! Prints the truth table: `cargo xtask truth`.

use std::process::ExitCode;

use clap::Parser;
use tracer_tests::{
    cases::{self, Table},
    truth::alone,
};

/// Hold tracer's numbers against what a server really did.
#[derive(Parser)]
#[command(name = "cargo xtask truth", bin_name = "cargo xtask truth")]
struct Options {
    /// Only cases whose name contains one of these
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// List the cases and do nothing
    #[arg(long)]
    list: bool,
    /// Run those as well that take minutes or install servers
    #[arg(long)]
    full: bool,
    /// Count as failed what is known not to hold yet
    #[arg(long)]
    strict: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let named = |name: &str| options.only.iter().any(|part| name.contains(part.as_str()));
    let wanted = |case: &&cases::Case| {
        if options.only.is_empty() { options.full || options.list || !case.full } else { named(case.name) }
    };
    let cases: Vec<_> = cases::all().filter(wanted).collect();
    if options.list {
        cases.iter().for_each(|case| println!("{}{}", case.name, if case.full { " (full)" } else { "" }));
        return ExitCode::SUCCESS;
    }
    if cases.is_empty() {
        eprintln!("error: no case has such a name; --list shows them");
        return ExitCode::from(2);
    }
    // One line is enough: the row says it too.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let _alone = alone();
    let mut table = Table::default();
    for case in cases {
        eprintln!("{}", case.name);
        table.run(case);
    }
    println!("{table}");
    ExitCode::from(u8::from(table.failed(options.strict) > 0))
}
