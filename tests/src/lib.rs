//! Shared by the end-to-end tests: spawning `tracer` and servers, and reading what they print.

pub mod cli;
pub mod misbehaving;
pub mod truth;
