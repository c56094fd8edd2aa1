//! The truth table: what a server did, by its own stamps, and what `tracer` said of it.

mod downstream;
mod identity;
mod load;
mod messages;
mod phases;
mod servers;
mod shapes;
mod stage;
mod states;
mod table;
mod writes;

pub use table::{Case, Checks, Table};

/// Every case, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        phases::CASES,
        states::CASES,
        downstream::CASES,
        writes::CASES,
        messages::CASES,
        identity::CASES,
        load::CASES,
        servers::CASES,
        shapes::CASES,
    ]
    .into_iter()
    .flatten()
}
