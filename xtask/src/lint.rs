//! `cargo xtask lint`: rustfmt and clippy, for the host's crates and for the BPF crate, which has a target of its own.

use anyhow::Result;

use crate::{
    Verdict, build_ebpf,
    command::{cargo, succeeds, workspace},
};

/// Runs every check, so that all remarks are seen at once, and names those that failed last: their output may be long ago.
pub fn run_task() -> Result<Verdict> {
    let root = workspace();
    let format = |dir| succeeds(cargo().args(["fmt", "--check"]).current_dir(dir));
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    let checks = [
        ("rustfmt", format(root.clone())?),
        ("rustfmt in tracer-ebpf", format(root.join("tracer-ebpf"))?),
        ("clippy", succeeds(cargo().args(clippy).current_dir(&root))?),
        ("clippy in tracer-ebpf", build_ebpf::clippy()?),
    ];
    for (name, held) in &checks {
        if !held {
            eprintln!("lint: {name} failed");
        }
    }
    Ok(Verdict::of_all(checks.map(|(_, held)| held)))
}
