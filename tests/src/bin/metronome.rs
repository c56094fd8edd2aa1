//! The metronome: see `tracer_tests::metronome`.

use clap::Parser;
use tracer_tests::metronome::{Options, serve};

fn main() -> anyhow::Result<()> {
    serve(&Options::parse())
}
