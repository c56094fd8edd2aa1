//! The seam between what needs the kernel and what is pure: everything one run saw.
//!
//! A [`Run`] (settings, environment, counters, ledger) and its [`Request`]s, in memory or on disk. All `_ns` marks
//! are `CLOCK_MONOTONIC` nanoseconds; all process and thread ids are those of the kernel's initial pid namespace.

mod column;
pub mod columns;
pub mod disk;
mod downstream;
mod inference;
mod ledger;
mod nameless;
mod phase;
mod request;
mod round;
mod run;
mod syscall;

pub use downstream::{DownstreamPeer, OTHER_PEERS};
pub use inference::Inference;
pub use ledger::{Conservation, Ledger};
pub use phase::{Phase, ThreadStates};
pub use request::{ClientTimes, Grade, Request, RequestCpu, WRITES_KEPT, WriteCall};
pub use round::{LoadTotals, Percentiles, Round};
pub use run::{
    Environment, HolderTotals, INTERRUPTED, Run, SCHEMA_VERSION, SyscallTotals, TARGET_EXITED, TracedProcess,
};
pub use syscall::{EAGAIN, syscall_name, syscall_number};
