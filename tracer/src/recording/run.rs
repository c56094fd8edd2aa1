//! Everything about a run but its requests: `run.json`.

use serde::{Deserialize, Serialize};

use super::{Conservation, Ledger, LoadTotals, Round};

/// Version of `run.json` and of the columns of `requests.parquet`. Rises when a reader must know.
pub const SCHEMA_VERSION: u32 = 3;

/// [`Run::ended_early`]: by Ctrl-C.
pub const INTERRUPTED: &str = "interrupted";
/// [`Run::ended_early`]: the target was gone before its time.
pub const TARGET_EXITED: &str = "the target exited";

/// Count and times of one syscall over the traced window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallTotals {
    /// Its name.
    pub name: String,
    /// Calls that returned.
    pub calls: u64,
    /// Calls that returned EAGAIN.
    pub eagain: u64,
    /// Wall nanoseconds inside.
    pub wall_ns: u64,
    /// On-CPU nanoseconds inside.
    pub cpu_ns: u64,
}

/// Who held a CPU while a target thread was runnable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderTotals {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub process_id: u32,
    /// Thread name.
    pub name: String,
    /// Nanoseconds held.
    pub held_ns: u64,
    /// It was a thread of `tracer` itself (driver or reader).
    pub is_tracer: bool,
}

/// The machine and kernel of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// `uname -r`.
    pub kernel: String,
    /// CPU model.
    pub cpu_model: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Scaling governor of CPU 0, or empty.
    pub governor: String,
    /// Default TCP congestion control.
    pub congestion_control: String,
    /// Clock source.
    pub clock_source: String,
}

impl Environment {
    /// What is unlike in `other` and changes what a request costs, each in a few words; empty: nothing.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let (cpus, other_cpus) = (self.cpus.to_string(), other.cpus.to_string());
        [
            ("kernel", &self.kernel, &other.kernel),
            ("CPU", &self.cpu_model, &other.cpu_model),
            ("CPUs", &cpus, &other_cpus),
            ("governor", &self.governor, &other.governor),
            ("congestion control", &self.congestion_control, &other.congestion_control),
            ("clock source", &self.clock_source, &other.clock_source),
        ]
        .into_iter()
        .filter(|(_, mine, others)| mine != others)
        .map(|(what, mine, others)| format!("{what} {mine:?} and {others:?}"))
        .collect()
    }
}

/// A process that was traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedProcess {
    /// Process id.
    pub process_id: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Its command line.
    pub command: Vec<String>,
}

/// Everything about a run but its requests: `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of `tracer`.
    pub tracer_version: String,
    /// What the run is called in tables: the server's name, or the command.
    pub name: String,
    /// What was asked of it ("GET /"), or empty for somebody else's traffic.
    pub workload: String,
    /// Seconds since the Unix epoch at the start.
    pub started_unix_s: u64,
    /// The command line of `tracer`.
    pub command: Vec<String>,
    /// Machine and kernel.
    pub environment: Environment,
    /// Traced processes.
    pub processes: Vec<TracedProcess>,
    /// Traced window, nanoseconds.
    pub window_ns: u64,
    /// The query string was kept in paths.
    pub keeps_query: bool,
    /// Connections the traced window saw.
    pub connections: u64,
    /// Connections accepted in the window, and their mean wait from ESTABLISHED to accept, nanoseconds.
    pub accepted: u64,
    /// Sum of their waits.
    pub accept_wait_ns: u64,
    /// Syscalls over the window, most frequent first.
    pub syscalls: Vec<SyscallTotals>,
    /// Who held the CPUs while the target waited, most first.
    pub holders: Vec<HolderTotals>,
    /// The ledger.
    pub ledger: Ledger,
    /// Outside accounts.
    pub conservation: Conservation,
    /// The traced window's load, when our driver made it.
    pub load: Option<LoadTotals>,
    /// Rounds, in the order they ran, traced and untraced.
    pub rounds: Vec<Round>,
    /// CPUs the server was pinned to; empty: not pinned.
    pub server_cpus: Vec<u32>,
    /// CPUs of driver and reader; empty: not pinned.
    pub client_cpus: Vec<u32>,
    /// Nanoseconds the target's cgroups were throttled meanwhile; `None`: not to be told.
    #[serde(default)]
    pub throttled_ns: Option<u64>,
    /// CPU nanoseconds of the thread that read the records.
    pub reader_cpu_ns: u64,
    /// Kernel memory of the BPF maps, bytes.
    pub map_bytes: u64,
    /// Why the run ended early ([`INTERRUPTED`], [`TARGET_EXITED`]), or empty.
    pub ended_early: String,
    /// Things the reader of the numbers must know, in words.
    pub notes: Vec<String>,
}

impl Run {
    /// The target was gone before its time.
    pub fn target_exited(&self) -> bool {
        self.ended_early == TARGET_EXITED
    }
}
