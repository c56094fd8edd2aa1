//! The metronome: a server that does exactly what each request commands, and writes down when it did it.
//!
//! It uses blocking threads or one bare epoll loop and no library for HTTP or events, so that nothing happens that was
//! not commanded. What it did goes to a log, on the clock and in the accounts the kernel keeps of each thread; a test
//! holds `tracer`'s numbers against that.

pub mod client;
pub mod clock;
mod connection;
mod event_loop;
mod input;
pub mod log;
mod output;
pub mod script;
mod serve;
mod work;

pub use serve::{Mode, Options, serve};
