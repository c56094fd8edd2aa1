//! `tracer`: where each request of an unmodified HTTP server spends its time, measured in the kernel.
//!
//! One direction: kernel hooks → records → [`attribution`] → [`recording`] → [`report`]. Everything right of the
//! recording is pure: no root, no kernel, no clock.

pub mod attribution;
pub mod builtin_server;
pub mod check;
pub mod cli;
pub mod diff;
pub mod equal_work;
mod http1;
#[cfg(test)]
mod hyper_client;
pub mod lint;
pub mod load;
pub mod preflight;
pub mod probe;
pub mod recording;
pub mod report;
pub mod scenario;
pub mod session;
pub mod stats;
pub mod suite;
pub mod target;
pub mod window;
