//! `cargo xtask lint`: rustfmt and clippy, for the host's crates and for the BPF crate, which has a target of its own.

use anyhow::Result;

use crate::{
    Verdict, build_ebpf,
    command::{cargo, succeeds, workspace},
};

/// Runs every check, so that all remarks are seen at once.
pub fn run_task() -> Result<Verdict> {
    let root = workspace();
    let format = |dir| succeeds(cargo().args(["fmt", "--check"]).current_dir(dir));
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    let checks = [
        format(root.clone())?,
        format(root.join("tracer-ebpf"))?,
        succeeds(cargo().args(clippy).current_dir(&root))?,
        build_ebpf::clippy()?,
    ];
    Ok(Verdict::of_all(checks))
}
