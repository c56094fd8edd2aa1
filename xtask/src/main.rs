//! Development tasks, run as `cargo xtask TASK`.
//!
//! Exit status: 0 done, 1 a check or a test failed, 2 the environment or the command line is at fault.

use std::process::ExitCode;

use clap::Parser;

mod build_ebpf;
mod command;

/// Development tasks of tracer.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Build the BPF object from source, or check that the committed one is what the source gives
    BuildEbpf(build_ebpf::Args),
}

/// How a task that could be carried out ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Held,
    Failed,
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::BuildEbpf(args) => build_ebpf::run_task(&args),
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
