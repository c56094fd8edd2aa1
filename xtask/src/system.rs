//! What is asked of the machine itself: programs, packages, root.

use std::{
    env,
    io::{IsTerminal, stdin},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{output, run};

/// Whether `name` is a program on the path, or where only root's path leads.
pub fn is_installed(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let for_root = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(for_root).any(|dir| dir.join(name).is_file())
}

/// Installs a Debian package for the program `name` where it is missing; true when that was needed.
pub fn ensure_installed(name: &str, package: &str) -> Result<bool> {
    if is_installed(name) {
        return Ok(false);
    }
    ensure!(
        is_installed("apt-get"),
        "`{name}` is missing and this is not a Debian: install it, then try again"
    );
    let words = ["install", "--yes", "--no-install-recommends", package];
    let why =
        || format!("`{name}` is missing, and apt could not install {package}: install it, then try again");
    // A machine without package lists has to fetch them first. RUNLEVEL=1 keeps a package from starting its service.
    let install = ["RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    if output(as_root("env").with_context(why)?.args(install).args(words)).is_err() {
        run(as_root("apt-get")?.args(["--quiet", "update"])).with_context(why)?;
        run(as_root("env")?.args(install).args(words)).with_context(why)?;
    }
    Ok(true)
}

/// `program`, to be run as root: by itself, or through sudo where someone can answer it.
pub fn as_root(program: &str) -> Result<Command> {
    let mut words = root_prefix()?;
    words.push(program.to_owned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    Ok(command)
}

/// The words before a command that make it run as root; none when we are root.
pub fn root_prefix() -> Result<Vec<String>> {
    if output(Command::new("id").arg("-u"))? == "0" {
        return Ok(Vec::new());
    }
    let answered =
        stdin().is_terminal() || output(Command::new("sudo").args(["--non-interactive", "true"])).is_ok();
    if !is_installed("sudo") || !answered {
        let task = env::args().skip(1).collect::<Vec<_>>().join(" ");
        bail!(
            "this needs root, and sudo cannot be asked here; run: sudo env PATH=\"$PATH\" cargo xtask {task}"
        );
    }
    Ok(vec!["sudo".to_owned()])
}
