//! Development tasks, run as `cargo xtask TASK`.
//!
//! Exit status: 0 done, 1 a check or a test failed, 2 the environment or the command line is at fault.

use std::process::ExitCode;

use clap::Parser;

mod bench;
mod build_ebpf;
mod command;
mod lint;
mod setup;
mod system;
mod test;
mod truth;

/// Development tasks of tracer.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Measure what tracer itself costs, against its goals (as root)
    Bench(bench::Args),
    /// Build the BPF object from source, or check that the committed one is what the source gives
    BuildEbpf(build_ebpf::Args),
    /// Check formatting and run clippy over all crates, the BPF one too; any remark fails
    Lint,
    /// Install the runtimes and what the servers under scenarios need, and nginx
    Setup(setup::Args),
    /// Set everything up, build tracer in release and run all tests: unit, property and end-to-end (as root)
    Test(test::Args),
    /// Print what servers really did beside what tracer said of it (as root)
    Truth(truth::Args),
}

/// How a task that could be carried out ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Held,
    Failed,
}

impl Verdict {
    /// What it comes to when every one of `checks` must hold.
    fn of_all(checks: impl IntoIterator<Item = bool>) -> Self {
        if checks.into_iter().all(|held| held) { Self::Held } else { Self::Failed }
    }
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Bench(args) => bench::run_task(&args),
        Task::BuildEbpf(args) => build_ebpf::run_task(&args),
        Task::Lint => lint::run_task(),
        Task::Setup(args) => setup::run_task(&args),
        Task::Test(args) => test::run_task(&args),
        Task::Truth(args) => truth::run_task(&args),
    };
    match outcome {
        Ok(Verdict::Held) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
