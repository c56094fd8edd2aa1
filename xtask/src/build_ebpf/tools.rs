//! What building BPF needs beyond stable Rust: the standard library's source and bpf-linker, both fetched on first use.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    command::{cargo, output, run, target_dir, workspace},
    system::is_installed,
};

/// The compiler, of rust-toolchain.toml; the linker below is linked against its LLVM.
const RUST: &str = "1.95.0";
const LLVM: &str = "libLLVM.so.22.1-rust-1.95.0-stable";
const BPF_LINKER: &str = "0.13.0";
const BPF_LINKER_LLVM: &str = "llvm-22";
/// The Debian suite that has the source of this Rust.
const DEBIAN_SUITE: &str = "trixie-backports";

/// The tools, ready for use.
pub struct Tools {
    pub sysroot: PathBuf,
    pub rustc_wrapper: PathBuf,
    bin: PathBuf,
}

impl Tools {
    /// Checks that every tool is there in the right version and fetches those that are not.
    pub fn ensure() -> Result<Self> {
        let version = output(rustc().arg("--version"))?;
        ensure!(
            version.split_whitespace().nth(1) == Some(RUST),
            "the BPF object is built with Rust {RUST} exactly, and this is {version}: \
             install rustup, which takes the version from rust-toolchain.toml"
        );
        let sysroot = PathBuf::from(output(rustc().args(["--print", "sysroot"]))?);
        let home = target_dir().join("ebpf-tools");
        fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        ensure_rust_src(&sysroot, &home)?;
        ensure_bpf_linker(&sysroot, &home)?;
        let rustc_wrapper = workspace().join("xtask/src/build_ebpf/rustc-wrapper");
        Ok(Self { sysroot, rustc_wrapper, bin: home.join("bin") })
    }

    /// The search path with bpf-linker on it.
    pub fn path(&self) -> Result<OsString> {
        let path = env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(self.bin.clone()).chain(env::split_paths(&path));
        env::join_paths(dirs).context("the folder of the tools cannot be put on the path")
    }

    /// The objcopy that comes with rustc.
    pub fn objcopy(&self) -> Command {
        let host = format!("lib/rustlib/{}-unknown-linux-gnu/bin/rust-objcopy", env::consts::ARCH);
        let mut command = Command::new(self.sysroot.join(host));
        command.env("LD_LIBRARY_PATH", self.sysroot.join("lib"));
        command
    }
}

/// Cargo's own folder.
pub fn cargo_home() -> Result<PathBuf> {
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("no home folder: set CARGO_HOME")
}

fn rustc() -> Command {
    let mut command = Command::new("rustc");
    command.current_dir(workspace());
    command
}

fn ensure_rust_src(sysroot: &Path, home: &Path) -> Result<()> {
    let place = sysroot.join("lib/rustlib/src/rust");
    if place.join("library/Cargo.lock").is_file() {
        return Ok(());
    }
    eprintln!("fetching the source of Rust's standard library (rust-src {RUST})");
    // The link of an earlier run whose target folder is gone.
    if place.is_symlink() {
        fs::remove_file(&place)
            .with_context(|| format!("cannot remove the stale link {}", place.display()))?;
    }
    let Err(rustup) =
        output(Command::new("rustup").args(["component", "add", "rust-src"]).current_dir(workspace()))
    else {
        return Ok(());
    };
    let source = debian_rust_src(home).with_context(|| {
        format!(
            "rust-src {RUST} is missing: rustup could not fetch it ({}), nor could apt from Debian; \
             run `rustup component add rust-src` where there is a network",
            rustup.to_string().lines().next().unwrap_or_default()
        )
    })?;
    fs::create_dir_all(sysroot.join("lib/rustlib/src"))
        .and_then(|()| symlink(&source, &place))
        .with_context(|| format!("cannot link rust-src to {}", place.display()))
}

/// Unpacks Debian's package of the same source below `home`, without touching the machine's own apt state.
fn debian_rust_src(home: &Path) -> Result<PathBuf> {
    let source = home.join(format!("rust-src/usr/src/rustc-{RUST}"));
    if source.join("library/Cargo.lock").is_file() {
        return Ok(source);
    }
    ensure!(is_installed("apt-get"), "this is not a Debian");
    let apt = home.join("apt");
    for dir in ["lists/partial", "cache/archives/partial", "parts"] {
        fs::create_dir_all(apt.join(dir)).with_context(|| format!("cannot make {}", apt.display()))?;
    }
    let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let config = format!(
        "Dir::Etc::sourcelist \"{apt}/sources.list\";\n\
         Dir::Etc::sourceparts \"{apt}/parts\";\n\
         Dir::State::lists \"{apt}/lists\";\n\
         Dir::Cache \"{apt}/cache\";\n\
         Acquire::Languages \"none\";\n\
         APT::Sandbox::User \"root\";\n",
        apt = apt.display()
    );
    let sources = format!("deb [signed-by={keyring}] {} {DEBIAN_SUITE} main\n", debian_mirror()?);
    fs::write(apt.join("apt.conf"), config)?;
    fs::write(apt.join("sources.list"), sources)?;
    let private = |program: &str| {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", apt.join("apt.conf")).current_dir(&apt);
        command
    };
    output(private("apt-get").args(["--quiet", "update"]))?;
    let versions = output(private("apt-cache").args(["madison", "rust-src"]))?;
    let version = versions
        .lines()
        .filter_map(|line| line.split('|').nth(1).map(str::trim))
        .find(|version| version.starts_with(&format!("{RUST}+")))
        .with_context(|| format!("{DEBIAN_SUITE} has no rust-src {RUST}"))?;
    output(private("apt-get").args(["--quiet", "download", &format!("rust-src={version}")]))?;
    let package = fs::read_dir(&apt)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")?;
    output(Command::new("dpkg").arg("-x").arg(&package).arg(home.join("rust-src")))?;
    if !source.join("library/Cargo.lock").is_file() {
        bail!("the package rust-src {version} has no {}", source.display());
    }
    fs::remove_dir_all(&apt).with_context(|| format!("cannot remove {}", apt.display()))?;
    Ok(source)
}

/// The mirror that apt is set up to take this release of Debian from.
fn debian_mirror() -> Result<String> {
    let os_release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let codename = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release has no VERSION_CODENAME")?;
    let targets = output(Command::new("apt-get").args([
        "indextargets",
        "--no-release-info",
        "--format",
        "$(RELEASE) $(SITE)",
    ]))?;
    targets
        .lines()
        .find_map(|line| line.strip_prefix(codename)?.strip_prefix(' '))
        .map(str::to_owned)
        .with_context(|| format!("apt has no source for {codename}"))
}

/// Installs bpf-linker linked against the LLVM inside rustc, so that both always speak the same bitcode.
fn ensure_bpf_linker(sysroot: &Path, home: &Path) -> Result<()> {
    let installed = output(Command::new(home.join("bin/bpf-linker")).arg("--version"));
    if installed.is_ok_and(|version| version == format!("bpf-linker {BPF_LINKER}")) {
        return Ok(());
    }
    eprintln!("installing bpf-linker {BPF_LINKER} below {}", home.display());
    let lib = sysroot.join("lib");
    ensure!(
        lib.join(LLVM).is_file(),
        "rustc's own LLVM is not at {}: the build needs Rust {RUST} as rustup installs it",
        lib.join(LLVM).display()
    );
    let llvm = home.join("llvm");
    let link = llvm.join("lib/libLLVM.so");
    fs::create_dir_all(llvm.join("lib")).with_context(|| format!("cannot make {}", llvm.display()))?;
    if link.is_symlink() {
        fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
    }
    symlink(lib.join(LLVM), &link).with_context(|| format!("cannot make {}", link.display()))?;
    let rpath = format!("-Clink-arg=-Wl,-rpath,{}", lib.display());
    run(cargo()
        .args(["install", "bpf-linker", "--version", BPF_LINKER, "--locked", "--force"])
        .args(["--no-default-features", "--features", BPF_LINKER_LLVM, "--root"])
        .arg(home)
        .current_dir(workspace())
        .env("LLVM_PREFIX", &llvm)
        .env("CARGO_TARGET_DIR", home.join("build"))
        .env("CARGO_ENCODED_RUSTFLAGS", format!("-L\x1fnative={}\x1f{rpath}", llvm.join("lib").display())))
    .context("bpf-linker could not be installed")?;
    fs::remove_dir_all(home.join("build")).context("cannot remove what bpf-linker was built from")
}
