//! What a suite found: a model that can be stored and printed again, and what follows from its figures. Pure.

mod claims;
mod leak;
mod parts;
mod rank;
mod row;
#[cfg(test)]
mod tests;
mod text;

use serde::{Deserialize, Serialize};

pub use claims::{ClaimSeen, Held};
pub use leak::{Leak, LeakCheck, LeakPhase};
pub use parts::{ColdStart, Memory, RouterGrowth};
pub use rank::{Rank, ranks};
pub use row::{Figures, Row};
pub use text::text;

use crate::equal_work::Difference;
use crate::recording::Environment;
use crate::scenario::{RowName, Suite};
use crate::stats::Spread;

/// Version of the stored form. Rises when a reader must know.
pub const SUITE_SCHEMA: u32 = 1;

/// Everything one run of a suite found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// [`SUITE_SCHEMA`].
    pub suite_schema: u32,
    /// Version of `tracer`.
    pub tracer_version: String,
    /// The suite.
    pub suite: String,
    /// When it began.
    pub started_unix_s: u64,
    /// What the order of the rows was drawn from.
    pub seed: u64,
    /// Only the rows that stand for the suite, once: nothing is ranked.
    pub quick: bool,
    /// Ended before all was measured: why.
    pub ended_early: String,
    /// The server that the others' CPU is told over.
    pub base: String,
    /// Machine and kernel.
    pub environment: Environment,
    /// The runtimes as they name themselves: name and version.
    pub runtimes: Vec<(String, String)>,
    /// Where servers do unequal work.
    pub differences: Vec<Difference>,
    /// Servers under workloads.
    pub rows: Vec<Row>,
    /// The row that was measured twice.
    pub control: Option<Control>,
    /// How routers grow.
    pub router: Vec<RouterGrowth>,
    /// The server whose router must be seen to grow.
    pub router_control: Option<String>,
    /// Cold starts.
    pub starts: Vec<ColdStart>,
    /// Resident memory, and heap per route.
    pub memory: Vec<Memory>,
    /// Whether memory grows with requests.
    pub leaks: Vec<LeakCheck>,
    /// What the write-up says, and what was seen.
    pub claims: Vec<ClaimSeen>,
    /// What was left out, in words.
    pub left_out: Vec<String>,
    /// Things the reader must know.
    pub notes: Vec<String>,
}

/// One row measured twice, as if it were two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// The row.
    pub name: String,
    /// Its second measurement over its first, as a share (0.01: one per cent more CPU), round by round.
    pub moved: Spread,
}

impl Control {
    /// Differences smaller than this share of CPU could not be told from nothing in this run.
    pub fn resolution(&self) -> f64 {
        self.moved.min.abs().max(self.moved.max.abs())
    }
}

impl Findings {
    /// The row of that server and workload.
    pub fn row(&self, server: &str, workload: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.server == server && row.workload == workload)
    }

    fn named(&self, name: &RowName) -> Option<&Row> {
        self.row(&name.server, &name.workload)
    }

    /// The workloads, in the order of the rows.
    pub fn workloads(&self) -> Vec<&str> {
        let mut workloads: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !workloads.contains(&row.workload.as_str()) {
                workloads.push(&row.workload);
            }
        }
        workloads
    }

    /// The servers do the same work under the workload, as far as it was asked.
    pub fn is_equal_work(&self, server: &str, workload: &str) -> bool {
        !self.differences.iter().any(|d| d.server == server && d.workload == workload)
    }

    /// Holds what was seen against what the suite says, once all rows are there; without rows nothing is claimed.
    pub fn judge(&mut self, suite: &Suite) {
        if self.rows.is_empty() {
            return;
        }
        self.claims = suite.claims.iter().map(|claim| claims::seen(claim, self)).collect();
    }

    /// Servers did unequal work, or a request failed.
    pub fn is_broken(&self) -> bool {
        !self.differences.is_empty()
            || self.rows.iter().any(|row| row.failed > 0)
            || self.router.iter().any(|row| row.failed > 0)
            || self.leaks.iter().any(|check| check.failed > 0)
            || self.memory.iter().any(|memory| memory.loaded_bytes.is_none())
    }

    /// A row cannot be relied on, or not all was measured.
    pub fn lacks_evidence(&self) -> bool {
        !self.ended_early.is_empty() || self.rows.iter().any(|row| !row.is_sound())
    }
}
