//! Shared by the end-to-end tests: spawning `tracer` and servers, and reading what they print.

pub mod cases;
pub mod cli;
pub mod metronome;
pub mod misbehaving;
pub mod postgres;
pub mod running;
pub mod truth;
