//! The `tracer` binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tracer::cli::run()
}
