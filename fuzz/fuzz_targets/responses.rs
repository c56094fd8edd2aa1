//! Any bytes as the responses the driver reads: no panic, and the same however they are cut.
//!
//! `cargo +nightly fuzz run responses`; without coverage:
//! `cargo run --manifest-path fuzz/Cargo.toml --bin responses -- -runs=100000`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tracer::load::fuzzing::frame_anything;

fuzz_target!(|data: &[u8]| frame_anything(data));
