//! Builds `tracer-ebpf` into the one committed object that `tracer` embeds.
//!
//! The object is the same byte for byte wherever it is built: paths are remapped, each crate's hash is made from its
//! name and version (see `rustc-wrapper`), and DWARF is dropped once the BTF is made from it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    Verdict,
    command::{cargo, output, run, succeeds, target_dir, workspace},
};

mod tools;
use tools::Tools;

const TARGET: &str = "bpfel-unknown-none";
/// The committed object, from the repository's folder.
const COMMITTED: &str = "tracer/src/probe/tracer.bpf.o";
/// All that the object is made from, from the repository's folder.
const SOURCES: [&str; 5] =
    ["tracer-ebpf", "tracer-common", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];
/// Settings of the caller that would change the object.
const FOREIGN_SETTINGS: [&str; 7] = [
    "CARGO_BUILD_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "CARGO_UNSTABLE_",
    "RUSTC",
];

/// Options of `build-ebpf`.
#[derive(clap::Args)]
pub struct Args {
    /// Build a copy of the sources elsewhere and compare it with the committed object; exit 1 when they differ
    #[arg(long, conflicts_with_all = ["log", "out"])]
    check: bool,
    /// Let the BPF programs log, for development (not to be committed)
    #[arg(long)]
    log: bool,
    /// Write the object here instead of where `tracer` embeds it from
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Builds the object and puts it in place, or checks the one that is there.
pub fn run_task(args: &Args) -> Result<Verdict> {
    let tools = Tools::ensure()?;
    if args.check { check(&tools) } else { build_in_place(&tools, args) }
}

/// Runs clippy over the BPF crate; true when it has nothing to say.
pub fn clippy() -> Result<bool> {
    let crate_dir = workspace().join("tracer-ebpf");
    let mut clippy = Build {
        tools: &Tools::ensure()?,
        root: &workspace(),
        target_dir: &target_dir().join("ebpf"),
        lock: None,
    }
    .cargo("clippy")?;
    succeeds(clippy.current_dir(crate_dir).args(["--", "-D", "warnings"]))
}

fn build_in_place(tools: &Tools, args: &Args) -> Result<Verdict> {
    let root = workspace();
    let build = Build { tools, root: &root, target_dir: &target_dir().join("ebpf"), lock: None };
    let features: &[&str] = if args.log { &["--features", "log"] } else { &[] };
    let object = build.object(features)?;
    let out = args.out.clone().unwrap_or_else(|| root.join(COMMITTED));
    // An unchanged file keeps its time, so that cargo does not rebuild `tracer` for nothing.
    let changed = !fs::read(&out).is_ok_and(|old| old == object);
    if changed {
        fs::write(&out, &object).with_context(|| format!("cannot write {}", out.display()))?;
    }
    let state = if changed { "written" } else { "unchanged" };
    eprintln!("{}: {} bytes, {state}", out.display(), object.len());
    if args.log && args.out.is_none() {
        eprintln!("note: this object logs; run `cargo xtask build-ebpf` before you commit");
    }
    Ok(Verdict::Held)
}

fn check(tools: &Tools) -> Result<Verdict> {
    let elsewhere = tempfile::tempdir().context("cannot make a temporary folder for a clean build")?;
    let root = elsewhere.path().join("copy");
    fs::create_dir(&root).with_context(|| format!("cannot make {}", root.display()))?;
    run(Command::new("cp").arg("-R").args(SOURCES).arg(&root).current_dir(workspace()))?;
    let object =
        Build { tools, root: &root, target_dir: &elsewhere.path().join("target"), lock: Some("--locked") }
            .object(&[])?;
    let rebuilt = elsewhere.path().join("tracer.bpf.o");
    fs::write(&rebuilt, &object).with_context(|| format!("cannot write {}", rebuilt.display()))?;

    let committed = workspace().join(COMMITTED);
    let bytes = fs::read(&committed).with_context(|| {
        format!("no BPF object at {COMMITTED}: run `cargo xtask build-ebpf` and commit it")
    })?;
    if bytes == object {
        eprintln!("{COMMITTED}: {} bytes, the same as built from source elsewhere", bytes.len());
        return Ok(Verdict::Held);
    }
    eprintln!("{COMMITTED} is not what its source gives:");
    eprintln!("  committed {:>8} bytes  sha256 {}", bytes.len(), sha256(&committed)?);
    eprintln!("  rebuilt   {:>8} bytes  sha256 {}", object.len(), sha256(&rebuilt)?);
    eprintln!("Run `cargo xtask build-ebpf` and commit the object.");
    Ok(Verdict::Failed)
}

fn sha256(file: &Path) -> Result<String> {
    let line = output(Command::new("sha256sum").arg(file))?;
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}

/// One build of the BPF crate below `root`.
struct Build<'a> {
    tools: &'a Tools,
    root: &'a Path,
    target_dir: &'a Path,
    /// `--locked`, or nothing where a changed manifest may change the lock.
    lock: Option<&'static str>,
}

impl Build<'_> {
    /// Builds the object and returns it without DWARF.
    fn object(&self, options: &[&str]) -> Result<Vec<u8>> {
        run(self.cargo("build")?.args(options))?;
        let linked = self.target_dir.join(TARGET).join("release/tracer-ebpf");
        let stripped = linked.with_extension("stripped.o");
        run(self.tools.objcopy().arg("--strip-debug").args([&linked, &stripped]))?;
        let object = fs::read(&stripped).with_context(|| format!("cannot read {}", stripped.display()))?;
        for place in [self.root, self.tools.sysroot.as_path()] {
            let name = place.as_os_str().as_encoded_bytes();
            ensure!(
                !object.windows(name.len()).any(|window| window == name),
                "the object names {}, a folder of this machine, so it could not be built again elsewhere: \
                 look for the missing --remap-path-prefix in xtask",
                place.display()
            );
        }
        Ok(object)
    }

    /// Cargo on the BPF crate, with all that the object depends on set here and nothing taken from the caller.
    fn cargo(&self, subcommand: &str) -> Result<Command> {
        let crate_dir = self.root.join("tracer-ebpf");
        if !crate_dir.join("src/main.rs").is_file() {
            bail!("no BPF programs at {}: this needs a full checkout", crate_dir.display());
        }
        let mut command = cargo();
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name == "RUSTFLAGS" || FOREIGN_SETTINGS.iter().any(|foreign| name.starts_with(foreign)) {
                command.env_remove(name);
            }
        }
        command
            .args([subcommand, "--release", "--target", TARGET, "-Z", "build-std=core"])
            .current_dir(&crate_dir)
            .env("CARGO_TARGET_DIR", self.target_dir)
            .env("PATH", self.tools.path()?)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTC_WRAPPER", &self.tools.rustc_wrapper)
            .env("CARGO_ENCODED_RUSTFLAGS", self.rustflags(&crate_dir)?);
        Ok(command)
    }

    /// The flags, with folders of this machine given names that are the same on every other.
    fn rustflags(&self, crate_dir: &Path) -> Result<String> {
        // v3: 32-bit arithmetic and atomic additions that return a value (Linux 5.12).
        let mut flags = ["-Ctarget-cpu=v3", "-Cdebuginfo=2", "-Clink-arg=--btf"].map(str::to_owned).to_vec();
        let mut remap =
            |from: &Path, to: &str| flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        remap(self.root, "/tracer");
        remap(&self.tools.sysroot, "/rust");
        // A registry's folder is named after its address: fetch first, so that there is one to look at.
        run(cargo().arg("fetch").args(self.lock).current_dir(crate_dir))?;
        let registries = tools::cargo_home()?.join("registry/src");
        for registry in
            fs::read_dir(&registries).with_context(|| format!("cannot list {}", registries.display()))?
        {
            remap(&registry?.path(), "/registry");
        }
        Ok(flags.join("\x1f"))
    }
}
