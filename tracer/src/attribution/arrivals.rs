//! When the bytes of a read came: from the arrivals on an empty queue that the kernel side noted.

use tracer_common::records::{Arrival, Edge};

use crate::recording::Inference;

/// Where reading of one connection stands.
#[derive(Default)]
pub struct Arrivals {
    /// Stream position of the next byte to be read, once known.
    position: Option<u32>,
}

/// What is known of when a read's bytes came.
pub struct Taken {
    /// Of the first one; zero when not seen.
    arrival: Arrival,
    /// Position of the first one.
    position: u32,
    /// When the last one came, if it came by then.
    last_ns: u64,
}

impl Taken {
    /// When the byte so far into the read came, and why that is not sure.
    pub fn first_byte(&self, at: u64) -> (u64, Option<Inference>) {
        let began_there = at == 0 && self.position == self.arrival.sequence;
        if self.arrival.ns == 0 || began_there || self.last_ns == self.arrival.ns {
            (self.arrival.ns, None)
        } else {
            (self.last_ns.max(self.arrival.ns), Some(Inference::ArrivalShared))
        }
    }
}

impl Arrivals {
    /// Records are missing: where reading stands is not known.
    pub fn lose(&mut self) {
        self.position = None;
    }

    /// When the bytes of this read arrived. Moves the stream position on.
    ///
    /// An arrival on an empty queue before the call was entered says where reading stands, whatever was counted so
    /// far; one inside the call may already be of bytes that came after this read took its own.
    pub fn take(&mut self, edge: &Edge) -> Taken {
        let newest = &edge.arrival;
        let begins_here_or_before = |arrival: &Arrival, position: u32| {
            arrival.ns != 0 && position.wrapping_sub(arrival.sequence) as i32 >= 0
        };
        let counted =
            self.position.unwrap_or(if newest.ns <= edge.enter_ns || edge.previous_arrival.ns == 0 {
                newest.sequence
            } else {
                edge.previous_arrival.sequence
            });
        let is_behind =
            newest.ns != 0 && newest.ns < edge.enter_ns && !begins_here_or_before(newest, counted);
        let position = if is_behind { newest.sequence } else { counted };
        self.position = Some(position.wrapping_add(edge.result as u32));
        let arrival = if begins_here_or_before(newest, position) && newest.ns <= edge.exit_ns {
            *newest
        } else if begins_here_or_before(&edge.previous_arrival, position) {
            edge.previous_arrival
        } else {
            Arrival::default()
        };
        Taken { arrival, position, last_ns: edge.last_ready_ns.min(edge.exit_ns) }
    }
}
