//! Any bytes as records of reads and writes: no panic, closure, no byte counted twice.
//!
//! `cargo +nightly fuzz run attribution`; without coverage: `cargo run --manifest-path fuzz/Cargo.toml -- -runs=100000`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tracer::attribution::fuzzing::attribute_anything;

fuzz_target!(|data: &[u8]| attribute_anything(data));
