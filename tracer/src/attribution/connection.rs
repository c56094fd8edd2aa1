//! One connection's records in order, told apart into requests by turn-taking.
//!
//! A read that begins with a request line begins a request; later reads before the response belong to it, and so does
//! a read after the response that begins no request (late body). Bytes that never began a request (TLS, say) take
//! turns: a read after a write begins the next one, graded `inferred`.

use std::collections::VecDeque;

use tracer_common::{
    heads,
    records::{Arrival, Edge, Lifecycle, edge_flags},
};

use super::{
    exchange::{Acceptance, Beginning, Exchange, kept_head, unknown_head},
    head::{HeadReader, status},
    thread::{Cpu, Threads},
};
use crate::recording::Grade;

/// A connection as its records show it.
pub struct Connection {
    /// The server's port.
    pub local_port: u16,
    /// The client's port.
    pub remote_port: u16,
    /// Record number expected next.
    next_sequence: u32,
    /// Stream position of the next byte to be read, once known.
    position: Option<u32>,
    acceptance: Option<Acceptance>,
    requests: u32,
    /// Requests not over, oldest first. More than one only with pipelining.
    open: VecDeque<Exchange>,
    previous_end_ns: u64,
    /// Its bytes are not HTTP/1 as far as can be seen.
    opaque: bool,
}

/// What one record did.
#[derive(Default)]
pub struct Outcome {
    /// A request that is over now.
    pub finished: Option<Exchange>,
    /// Requests given up because records before this one were lost.
    pub spoiled: u64,
    /// The record fits no request.
    pub unmatched: bool,
}

impl Connection {
    /// A connection whose first record is still to come.
    pub fn new(local_port: u16, remote_port: u16) -> Self {
        Self {
            local_port,
            remote_port,
            next_sequence: 1,
            position: None,
            acceptance: None,
            requests: 0,
            open: VecDeque::new(),
            previous_end_ns: 0,
            opaque: false,
        }
    }

    /// The accept call returned it.
    pub fn accepted(&mut self, record: &Lifecycle) -> Outcome {
        self.acceptance = Some(Acceptance { exit_ns: record.exit_ns });
        Outcome { spoiled: self.check_sequence(record.sequence), ..Outcome::default() }
    }

    /// Unsent bytes reached the device.
    pub fn drained(&mut self, record: &Lifecycle) {
        if let Some(exchange) = self.open.front_mut() {
            exchange.drained(record.exit_ns, record.end_sequence);
        }
    }

    /// A read returned bytes.
    pub fn read(&mut self, edge: &Edge, heads: &mut HeadReader, threads: &Threads) -> Outcome {
        let mut outcome = Outcome { spoiled: self.check_sequence(edge.sequence), ..Outcome::default() };
        if edge.flags & edge_flags::PEEK != 0 {
            return outcome;
        }
        let arrival = self.take_bytes(edge);
        let head = kept_head(edge);
        let is_request = heads::begins_request(head);
        if self.requests == 0 && self.open.is_empty() && !is_request && self.acceptance.is_some() {
            self.opaque = true;
        }
        let answered = self.open.front().is_some_and(Exchange::answered);
        let begins = match self.open.back() {
            None => is_request || self.opaque,
            Some(last) => {
                is_request && (last.answered() || last.awaits_no_body()) || self.opaque && last.answered()
            }
        };
        if !begins {
            match self.open.back_mut() {
                Some(exchange) => exchange.read_on(edge),
                None => outcome.unmatched = true,
            }
            return outcome;
        }
        let mut behind_end_ns = 0;
        if answered && let Some(finished) = self.open.pop_front() {
            self.previous_end_ns = finished.end_ns();
            // Only a first byte that came before the previous response ended waited behind it.
            if arrival.ns != 0 && arrival.ns < self.previous_end_ns {
                behind_end_ns = self.previous_end_ns;
            }
            outcome.finished = Some(finished);
        }
        let beginning = Beginning {
            request: if is_request { heads.request(head) } else { unknown_head() },
            index: self.requests,
            first_byte_ns: arrival.ns,
            acceptance: if self.requests == 0 { self.acceptance } else { None },
            behind_end_ns,
            grade: if is_request { Grade::Measured } else { Grade::Inferred },
        };
        self.requests += 1;
        self.open.push_back(Exchange::begin(beginning, edge, threads));
        outcome
    }

    /// A write returned.
    pub fn write(&mut self, edge: &Edge) -> Outcome {
        let mut outcome = Outcome { spoiled: self.check_sequence(edge.sequence), ..Outcome::default() };
        // Pipelining: a second status line begins the next response.
        if self.open.len() > 1
            && status(kept_head(edge)) != 0
            && self.open.front().is_some_and(Exchange::has_final_status)
            && let Some(finished) = self.open.pop_front()
        {
            self.previous_end_ns = finished.end_ns();
            outcome.finished = Some(finished);
        }
        match self.open.front_mut() {
            Some(exchange) => exchange.write(edge),
            None => outcome.unmatched = edge.result > 0,
        }
        outcome
    }

    /// CPU between two calls that belongs to the request being worked on; false when there is none.
    pub fn charge(&mut self, cpu: Cpu) -> bool {
        match self.open.front_mut() {
            Some(exchange) => {
                exchange.charge(cpu);
                true
            }
            None => false,
        }
    }

    /// Ends everything: requests answered, and the number of those that were not.
    pub fn close(&mut self) -> (Vec<Exchange>, u64) {
        let (answered, rest): (Vec<_>, Vec<_>) = self.open.drain(..).partition(Exchange::answered);
        (answered, rest.len() as u64)
    }

    /// Requests spoiled by records lost before this one.
    fn check_sequence(&mut self, sequence: u32) -> u64 {
        let expected = std::mem::replace(&mut self.next_sequence, sequence.wrapping_add(1));
        if sequence == expected {
            return 0;
        }
        self.position = None;
        let spoiled = self.open.len() as u64;
        self.open.clear();
        spoiled
    }

    /// When the first byte of this read arrived. Moves the stream position on.
    ///
    /// An arrival on an empty queue before the call was entered says where reading stands, whatever was counted so
    /// far; one inside the call may already be of bytes that came after this read took its own.
    fn take_bytes(&mut self, edge: &Edge) -> Arrival {
        let newest = &edge.arrival;
        let begins_here_or_before = |arrival: &Arrival, position: u32| {
            arrival.ns != 0 && position.wrapping_sub(arrival.sequence) as i32 >= 0
        };
        let counted = self.position.unwrap_or(if newest.ns <= edge.enter_ns || edge.previous_arrival.ns == 0 {
            newest.sequence
        } else {
            edge.previous_arrival.sequence
        });
        let is_behind = newest.ns != 0 && newest.ns < edge.enter_ns && !begins_here_or_before(newest, counted);
        let position = if is_behind { newest.sequence } else { counted };
        self.position = Some(position.wrapping_add(edge.result as u32));
        if begins_here_or_before(newest, position) && newest.ns <= edge.exit_ns {
            *newest
        } else if begins_here_or_before(&edge.previous_arrival, position) {
            edge.previous_arrival
        } else {
            Arrival::default()
        }
    }
}
