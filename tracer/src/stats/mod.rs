//! Sums over requests and rounds: online, bounded in memory, free of the kernel and of clocks.

mod distribution;
mod headline;
mod invariants;
pub mod paired;
mod summary;
mod writes;

pub use distribution::{Distribution, percentiles};
pub(crate) use headline::rounds;
pub use headline::{
    CpuPerRequest, Spread, answered_requests, cpu_per_request_ns, failed_responses, syscalls_per_request,
};
pub use invariants::Invariants;
pub(crate) use invariants::accounts_disagree;
pub use summary::{ClientTerm, OTHER_ROUTES, PhaseSummary, ROUTES_KEPT, Summary};
pub use writes::{CallTotals, MOST_WRITES_COUNTED, OneWrite, Writes};
