//! What makes a scenario a suite: what is measured beside the load of its workloads, and which rows stand for it.

use std::time::Duration;

/// Beside its workloads: what a suite measures and how it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// The server whose CPU the others' is told over.
    pub base: String,
    /// The row that is measured twice: what it moves by, no other difference may be smaller than.
    pub control: RowName,
    /// The rows of a quick run.
    pub quick: Vec<RowName>,
    /// How routers grow with their tables.
    pub router: Option<Router>,
    /// Memory idle, loaded and per route.
    pub memory: Option<Memory>,
    /// From exec to the first answer.
    pub start: Option<Start>,
    /// Whether memory grows with requests.
    pub leak: Option<Leak>,
    /// What the write-up says of its mechanisms, to be held against what is seen.
    pub claims: Vec<Claim>,
}

/// A server under a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowName {
    /// The server.
    pub server: String,
    /// The workload.
    pub workload: String,
}

impl RowName {
    /// It is this one.
    pub fn is(&self, server: &str, workload: &str) -> bool {
        self.server == server && self.workload == workload
    }
}

impl std::fmt::Display for RowName {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} {}", self.server, self.workload)
    }
}

/// How routers grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    /// Routes of the tables.
    pub sizes: Vec<u32>,
    /// The server whose last route must be seen to cost more than its first.
    pub control: String,
    /// Fresh starts per table.
    pub launches: u32,
}

/// Resident memory as the write-ups define it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Requests before it is read.
    pub requests: u64,
    /// Connections they come over.
    pub connections: u32,
    /// Fresh starts per server.
    pub launches: u32,
}

/// Cold starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Fresh starts per server.
    pub launches: u32,
}

/// The leak check: four phases of load, each followed by a forced garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Length of one phase.
    pub phase: Duration,
}

/// A statement about rows, which holds or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The statement, in words.
    pub says: String,
    /// What it means in figures.
    pub means: ClaimMeaning,
}

/// What a claim means in figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimMeaning {
    /// The first row takes more CPU per request than the second.
    CostsMore(RowName, RowName),
    /// Under the second workload, compared with the first, no server's CPU per request grows more than this one's.
    GrowsMost {
        /// The server.
        server: String,
        /// The workload that costs more.
        workload: String,
        /// The workload it is told over.
        over: String,
    },
    /// Every response of the row leaves in one write.
    OneWrite(RowName),
}
