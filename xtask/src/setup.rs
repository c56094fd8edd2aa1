//! `cargo xtask setup`: the servers of the scenarios and the runtimes they run on, in the versions their lock files name.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    Verdict,
    command::{run, workspace},
    system::{ensure_installed, is_installed},
};

/// Options of `setup`.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Only these: names of folders under scenarios/servers and scenarios/runtimes
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
}

/// Sets up what was asked for and says what it did for each.
pub fn run_task(args: &Args) -> Result<Verdict> {
    let mut known = folders("scenarios/runtimes")?;
    known.append(&mut folders("scenarios/servers")?);
    if let Some(unknown) = args.only.iter().find(|name| !known.contains_key(*name)) {
        let known = known.into_keys().collect::<Vec<_>>().join(", ");
        bail!("there is no server or runtime `{unknown}` to set up; there are {known}");
    }
    let wanted = |name: &String| args.only.is_empty() || args.only.contains(name);
    for (name, dir) in known.iter().filter(|(name, _)| wanted(name)) {
        let done = set_up(name, dir).with_context(|| format!("cannot set up {name}"))?;
        eprintln!("{name:12} {done}");
    }
    Ok(Verdict::Held)
}

fn set_up(name: &str, dir: &Path) -> Result<&'static str> {
    let installed = if name == "nginx" {
        ensure_installed("nginx", "nginx-light")?
    } else if dir.join("package-lock.json").is_file() {
        install_from_lock(dir)?
    } else {
        return Ok("needs nothing installed");
    };
    Ok(if installed { "installed" } else { "already installed" })
}

/// The folders in a folder of the repository, by name.
fn folders(parent: &str) -> Result<BTreeMap<String, PathBuf>> {
    let parent = workspace().join(parent);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&parent).with_context(|| format!("cannot list {}", parent.display()))? {
        let entry = entry?;
        if entry.path().is_dir() {
            found.insert(entry.file_name().to_string_lossy().into_owned(), entry.path());
        }
    }
    Ok(found)
}

/// Runs `npm ci`, unless what it would install is there; true when it ran.
pub fn install_from_lock(dir: &Path) -> Result<bool> {
    let modified = |file: &str| fs::metadata(dir.join(file)).and_then(|data| data.modified()).ok();
    // npm leaves its own copy of the lock behind when an installation is complete.
    if modified("node_modules/.package-lock.json") >= modified("package-lock.json") {
        return Ok(false);
    }
    ensure!(is_installed("npm"), "npm is missing: install Node.js 20 or later with npm, then try again");
    run(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(dir))?;
    Ok(true)
}
