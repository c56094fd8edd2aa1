//! Comparing two builds: what was measured ([`Comparison`]), what it says ([`Judgement`]), and its words. Pure.

mod disk;
mod figures;
#[cfg(test)]
mod fixture;
mod judge;
mod judgement;
mod metrics;
mod model;
mod recordings;
#[cfg(test)]
mod tests;
mod words;

pub use disk::{COMPARISON_FILE, load, save};
pub use figures::{Gathering, figures};
pub use judge::judge;
pub use judgement::*;
pub use metrics::Metric;
pub use model::*;
pub use recordings::{Recorded, of_recordings};
pub use words::{json, launches_words, markdown, text};
