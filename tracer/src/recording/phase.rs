//! The phases of a request, and what its thread did in each.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// The phases of a request, end to end in this order; their sum is the request's wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// First byte readable, until the accept call that returns the connection exits.
    Accept,
    /// Pipelining: waiting for the previous response on the connection.
    Behind,
    /// Readable, until the read that takes it is entered.
    Queue,
    /// That read, until the read that completes the head exits.
    Read,
    /// Parse and handler: until the first write is entered.
    App,
    /// First write entered, until the last byte is delivered or the last write exits.
    Write,
    /// Unsent bytes left after the last write, until they are handed to the device.
    Drain,
}

impl Phase {
    /// Every phase, in the order in which they lie.
    pub const ALL: [Self; 7] =
        [Self::Accept, Self::Behind, Self::Queue, Self::Read, Self::App, Self::Write, Self::Drain];

    /// The name in tables. `app` says what it holds, for the kernel cannot split it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Behind => "behind",
            Self::Queue => "queue",
            Self::Read => "read",
            Self::App => "app (parse+handler)",
            Self::Write => "write",
            Self::Drain => "drain",
        }
    }

    /// The name in columns and JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Behind => "behind",
            Self::Queue => "queue",
            Self::Read => "read",
            Self::App => "app",
            Self::Write => "write",
            Self::Drain => "drain",
        }
    }
}

/// What the request's thread did during one phase. The parts add up to the phase's wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStates {
    /// On a CPU for this request.
    pub own_cpu_ns: u64,
    /// On a CPU for something else: another request, the event loop.
    pub other_cpu_ns: u64,
    /// Runnable, waiting for a CPU.
    pub run_queue_ns: u64,
    /// Blocked in a syscall or asleep.
    pub blocked_ns: u64,
    /// Not known: the request moved between threads, or no thread has it.
    pub unknown_ns: u64,
}

impl ThreadStates {
    /// Wall nanoseconds of the phase.
    pub fn total_ns(&self) -> u64 {
        self.own_cpu_ns + self.other_cpu_ns + self.run_queue_ns + self.blocked_ns + self.unknown_ns
    }
}

impl AddAssign for ThreadStates {
    fn add_assign(&mut self, other: Self) {
        self.own_cpu_ns += other.own_cpu_ns;
        self.other_cpu_ns += other.other_cpu_ns;
        self.run_queue_ns += other.run_queue_ns;
        self.blocked_ns += other.blocked_ns;
        self.unknown_ns += other.unknown_ns;
    }
}
