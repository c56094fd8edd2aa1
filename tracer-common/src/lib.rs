//! What the BPF programs and user space agree on: records, settings, counters and the pure rules both apply.
//!
//! Everything here is plain integers with a fixed layout (`repr(C)`), compiled for both sides. No kernel access.
#![no_std]

pub mod calls;
pub mod counters;
pub mod heads;
pub mod records;
pub mod settings;

#[cfg(feature = "user")]
mod pod {
    use crate::{
        counters::{Holder, SyscallCounter},
        settings::Offsets,
    };

    // SAFETY: `repr(C)`, plain integers, no padding that is read.
    unsafe impl aya::Pod for Holder {}
    // SAFETY: as above.
    unsafe impl aya::Pod for SyscallCounter {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Offsets {}
}
