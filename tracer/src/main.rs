//! The `tracer` binary.

fn main() {}
