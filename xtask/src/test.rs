//! `cargo xtask test`: all tests, from a bare checkout.
//!
//! Everything is built in one profile, release: the end-to-end tests need `tracer` as users run it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result};

use crate::{
    Verdict,
    command::{cargo, output, run, succeeds, target_dir, workspace},
    setup,
    system::{ensure_installed, root_prefix},
};

/// They read in the tests, as a user's analysis would: Parquet, and histogram logs.
const READERS: [&str; 2] = ["duckdb==2.0.1", "hdrhistogram==0.10.8"];

/// Options of `test`.
#[derive(clap::Args)]
pub struct Args {
    /// Only unit and property tests, which need neither root nor servers
    #[arg(long)]
    unit: bool,
    /// For the test programs: a part of a name, --nocapture
    #[arg(last = true, value_name = "ARGS")]
    harness: Vec<String>,
}

/// Runs the tests.
pub fn run_task(args: &Args) -> Result<Verdict> {
    if args.unit {
        return Ok(Verdict::of_all([unit(args)?]));
    }
    // Before the minutes of building: what may be missing.
    let as_root = root_prefix()?;
    let tools = timed("set-up", set_up)?;
    let unit = timed("unit and property tests", || unit(args))?;
    timed("tracer, release", || {
        run(cargo().args(["build", "--release", "--workspace", "--bins"]).current_dir(workspace()))
    })?;
    let end_to_end = timed("end-to-end tests", || end_to_end(args, &tools, as_root))?;
    Ok(Verdict::of_all([unit, end_to_end]))
}

fn unit(args: &Args) -> Result<bool> {
    let mut command = tests();
    succeeds(command.args(["--workspace", "--lib", "--bins", "--"]).args(&args.harness))
}

/// One test at a time: each measures, and would disturb another.
fn end_to_end(args: &Args, tools: &Path, mut runner: Vec<String>) -> Result<bool> {
    let mut command = tests();
    command.env("TRACER_TEST_TOOLS", tools);
    if !runner.is_empty() {
        let path = env::var("PATH").context("PATH is not text")?;
        let settings = [format!("PATH={path}"), format!("TRACER_TEST_TOOLS={}", tools.display())];
        runner.extend(["--preserve-env".to_owned(), "env".to_owned()].into_iter().chain(settings));
        command
            .arg("--config")
            .arg(format!("target.'cfg(all())'.runner={}", serde_json::to_string(&runner)?));
    }
    // Everywhere the whole workspace: another selection of packages has other features, and is built anew.
    succeeds(command.args(["--workspace", "--test", "*", "--", "--test-threads=1"]).args(&args.harness))
}

fn tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--release", "--no-fail-fast"]).current_dir(workspace());
    command
}

/// Installs the servers and the tests' own tools; returns the tools' folder.
fn set_up() -> Result<PathBuf> {
    setup::run_task(&setup::Args::default())?;
    setup::install_from_lock(&workspace().join("tests/servers/pg"))?;
    let programs =
        [("strace", "strace"), ("sudo", "sudo"), ("ip", "iproute2"), ("pg_ctlcluster", "postgresql")];
    for (program, package) in programs {
        ensure_installed(program, package)?;
    }
    let tools = target_dir().join("test-tools");
    let python = tools.join("bin/python");
    if output(Command::new(&python).args(["-c", "import duckdb, hdrh"])).is_err() {
        ensure_installed("python3", "python3-venv")?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&tools)).context(
            "cannot make a Python environment for the tests: install python3-venv, then try again",
        )?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(READERS))?;
    }
    Ok(tools)
}

fn timed<T>(step: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("==> {step}");
    let start = Instant::now();
    let done = work()?;
    eprintln!("==> {step}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(done)
}
