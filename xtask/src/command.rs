//! Running other programs, with errors that say which one failed and how; and where things are.

use std::{
    env,
    ffi::OsStr,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The repository's folder.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace").to_path_buf()
}

/// The folder of what is built and fetched.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), |dir| workspace().join(dir))
}

/// Cargo itself, the one that started this task.
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `command` with its output shown; what it prints on stdout goes to stderr, as progress.
pub fn run(command: &mut Command) -> Result<()> {
    if !succeeds(command)? {
        bail!("`{}` failed; its messages are above", shown(command));
    }
    Ok(())
}

/// As [`run`], but failure is an answer.
pub fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.stdout(std::io::stderr()).status().map_err(|error| not_started(command, error))?;
    Ok(status.success())
}

/// Runs `command` and returns what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| not_started(command, error))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", shown(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    let text =
        String::from_utf8(output.stdout).with_context(|| format!("`{}` printed no text", shown(command)))?;
    Ok(text.trim_end().to_owned())
}

fn not_started(command: &Command, error: std::io::Error) -> anyhow::Error {
    let program = command.get_program().display();
    match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!("`{program}` is not installed or not on the path"),
        _ => anyhow::Error::new(error).context(format!("cannot start `{program}`")),
    }
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
