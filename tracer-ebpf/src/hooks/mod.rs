//! One file per kind of kernel moment.

pub mod lifetime;
pub mod scheduler;
pub mod sockets;
pub mod syscalls;
