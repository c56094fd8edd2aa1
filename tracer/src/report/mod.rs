//! What a run says: one model, then one file per format. Pure: no kernel, no clock.

mod build;
#[cfg(test)]
pub(crate) mod fixture;
mod format;
mod json;
mod limit;
mod model;
mod page;
mod text;

pub use build::row;
pub use json::json;
pub use limit::{BUSY, Limit, LimitedBy};
pub use model::*;
pub use text::text;

pub(crate) use format::{counted, decimals, percent, thousands, us};
pub(crate) use page::Page;
pub(crate) use text::environment;
