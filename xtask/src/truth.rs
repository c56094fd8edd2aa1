//! `cargo xtask truth`: what servers really did, by their own stamps and by strace, beside what tracer said of it.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{
    Verdict,
    command::{cargo, run, target_dir, workspace},
    setup,
    system::{ensure_installed, root_prefix},
};

/// Options of `truth`: those of the program that prints the table.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// --only NAME, --list, --full, --strict; --help explains them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    table: Vec<String>,
}

/// Sets up the servers and builds everything in release, as `test` does, and prints the table.
pub fn run_task(args: &Args) -> Result<Verdict> {
    let mut words = root_prefix()?;
    if !args.table.iter().any(|word| word == "--list" || word == "--help") {
        setup::run_task(&setup::Args::default())?;
        ensure_installed("strace", "strace")?;
        ensure_installed("ip", "iproute2")?;
    }
    run(cargo().args(["build", "--release", "--workspace", "--bins"]).current_dir(workspace()))?;
    words.push(target_dir().join("release/truth").display().to_string());
    let status =
        Command::new(&words[0]).args(&words[1..]).args(&args.table).current_dir(workspace()).status();
    match status.with_context(|| format!("cannot start `{}`", words[0]))?.code() {
        Some(0) => Ok(Verdict::Held),
        Some(1) => Ok(Verdict::Failed),
        _ => bail!("there is no table; why is said above"),
    }
}
