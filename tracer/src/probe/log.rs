//! Development only: what the programs of an object built with `cargo xtask build-ebpf --log` say, on stderr, when
//! they are detached.

use anyhow::{Context, Result};
use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

/// Writes each message as a line.
pub struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _metadata: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        eprintln!("bpf {}: {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// The reading end of the programs' log.
pub fn of(bpf: &mut Ebpf) -> Result<EbpfLogger<Stderr>> {
    EbpfLogger::init_with_logger(bpf, Stderr)
        .context("the embedded BPF object does not log; build it with `cargo xtask build-ebpf --log`")
}
