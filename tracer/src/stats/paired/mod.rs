//! Comparing two builds over paired launches: Hodges-Lehmann estimate, exact signed-rank interval, planned looks,
//! verdict. Pure.
//!
//! The unit is a launch: one value, usually ln(B/A), from one fresh start of both builds. Slices inside a launch share
//! its memory layout and its luck, so they are no units of their own.

mod holm;
mod looks;
mod signed_rank;
mod verdict;

pub use holm::holm;
pub use looks::{LOOKS, Look, next_look};
pub use signed_rank::{Interval, hodges_lehmann, median};
pub use verdict::{Rule, Verdict, judge, judge_at_looks};
