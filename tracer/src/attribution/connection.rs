//! One connection's records in order, told apart into requests by their bytes, and by turn-taking where bytes do not
//! tell.
//!
//! Requests are begun and ended by [`Requests`], their responses by [`Responses`], first in, first out. Where a stream
//! is lost (see `framing.rs`) the two sides take turns: a read after a write begins the next request if it begins with
//! a request line, and whatever was answered by then is over. Such a request is graded `inferred`, with the cause.

mod opaque;
mod requests;
mod responses;

use std::collections::VecDeque;

use tracer_common::{
    heads,
    records::{Edge, Lifecycle, edge_flags},
};

use super::{
    arrivals::{Arrivals, Taken},
    call::{Call, Share},
    downstream::Use,
    exchange::{Acceptance, Awaited, Beginning, Exchange},
    framing::{Bytes, Lost, Requests, Responses, Step},
    head::{HeadReader, status},
    thread::{Cpu, Threads},
};
use crate::recording::{Inference, Ledger};

/// Ports of a connection, host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// The server's.
    pub local: u16,
    /// The client's.
    pub remote: u16,
}

/// A connection as its records show it.
pub struct Connection {
    /// Its ports.
    pub ports: Ports,
    /// Record number expected next.
    next_sequence: u32,
    arrivals: Arrivals,
    acceptance: Option<Acceptance>,
    /// Requests begun.
    begun: u32,
    protocol: Protocol,
    requests: Requests,
    responses: Responses,
    /// Requests not given out yet, oldest first. More than one only with pipelining.
    open: VecDeque<Exchange>,
    /// How many they were when that was asked last.
    open_told: usize,
    previous_end_ns: u64,
    /// The last bytes read began no request: what is written without one answers them.
    refused: bool,
    /// The read whose unseen bytes may hold requests that only their responses will tell of.
    hidden_in: Option<Box<Call>>,
    /// The response stream was lost in a write that held whole responses before: it may hold more after.
    batch_cut_short: bool,
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    /// Something that takes turns. `confirmed`: it was answered, and not in HTTP.
    Opaque {
        confirmed: bool,
    },
    /// Something that does not: HTTP/2, or whatever an upgrade led to. Nothing of it is traced.
    Foreign,
}

/// Requests that were open when their connection ended.
#[derive(Default)]
pub struct Closed {
    /// Answered in full, as far as can be told.
    pub answered: Vec<Exchange>,
    /// The others.
    pub unanswered: Vec<Exchange>,
}

/// What a connection needs of everything else.
pub struct Around<'a> {
    /// Reads request heads.
    pub heads: &'a mut HeadReader,
    /// Threads so far.
    pub threads: &'a Threads,
    /// Counts what is no request.
    pub ledger: &'a mut Ledger,
}

impl Connection {
    /// A connection whose first record is still to come.
    pub fn new(ports: Ports) -> Self {
        Self {
            ports,
            next_sequence: 1,
            arrivals: Arrivals::default(),
            acceptance: None,
            begun: 0,
            protocol: Protocol::Http1,
            requests: Requests::new(),
            responses: Responses::new(),
            open: VecDeque::new(),
            open_told: 0,
            previous_end_ns: 0,
            refused: false,
            hidden_in: None,
            batch_cut_short: false,
        }
    }

    /// The accept call returned it: the next byte is its first.
    pub fn accepted(&mut self, record: &Lifecycle, ledger: &mut Ledger) {
        self.acceptance = Some(Acceptance { exit_ns: record.exit_ns });
        self.check_sequence(record.sequence, ledger);
        if record.sequence == 1 {
            self.requests.restart();
        }
    }

    /// Unsent bytes reached the device.
    pub fn drained(&mut self, record: &Lifecycle) {
        for exchange in &mut self.open {
            exchange.drained(record.exit_ns, record.end_sequence);
        }
    }

    /// The client acknowledged response bytes.
    pub fn acked(&mut self, record: &Lifecycle) {
        for exchange in &mut self.open {
            exchange.acked(record.enter_ns, record.end_sequence);
        }
    }

    /// A read returned bytes.
    pub fn read(&mut self, edge: &Edge, around: &mut Around) {
        self.check_sequence(edge.sequence, around.ledger);
        if edge.flags & edge_flags::PEEK != 0 || edge.result <= 0 {
            return;
        }
        let taken = self.arrivals.take(edge);
        match self.protocol {
            Protocol::Foreign => {}
            Protocol::Opaque { .. } => self.read_opaque(edge, &taken, around),
            Protocol::Http1 => {
                if self.requests.is_lost() && !self.requests_resume(edge) {
                    self.read_on(edge, &taken, around);
                } else {
                    self.follow_requests(edge, &taken, around);
                }
            }
        }
    }

    /// A write returned.
    pub fn write(&mut self, edge: &Edge, around: &mut Around) {
        self.check_sequence(edge.sequence, around.ledger);
        match self.protocol {
            Protocol::Foreign => {}
            Protocol::Opaque { confirmed } => self.write_opaque(edge, confirmed, around.ledger),
            Protocol::Http1 => {
                let moved_nothing = edge.result <= 0;
                if moved_nothing || self.responses.is_lost() && !self.responses_resume(edge) {
                    self.write_on(edge, around.ledger);
                } else {
                    self.follow_responses(edge, around);
                }
            }
        }
    }

    /// CPU between two calls that belongs to the request being worked on; false when there is none.
    pub fn charge(&mut self, cpu: Cpu) -> bool {
        match self.answering() {
            Some(index) => {
                self.open[index].charge(cpu);
                true
            }
            None => false,
        }
    }

    /// How many more requests are not given out yet than when this was asked last.
    pub fn newly_open(&mut self) -> i64 {
        let told = std::mem::replace(&mut self.open_told, self.open.len());
        self.open.len() as i64 - told as i64
    }

    /// Ordinal of the request begun last.
    pub fn newest(&self) -> Option<u32> {
        self.begun.checked_sub(1)
    }

    /// The request of this ordinal, if it is not given out yet.
    pub fn request(&self, index: u32) -> Option<&Exchange> {
        self.open.iter().find(|exchange| exchange.index() == index)
    }

    /// A call on a connection the target opened belongs to the request of its owner's ordinal; false: it is over.
    pub fn used_downstream(&mut self, used: Use) -> bool {
        let exchange = self.open.iter_mut().find(|exchange| exchange.index() == used.owner.index);
        exchange.map(|exchange| exchange.used_downstream(used)).is_some()
    }

    /// Gives out the oldest requests, as long as nothing more is to come of them. In their places: they are large.
    pub fn give_out(&mut self, awaited: Awaited, mut give: impl FnMut(&Exchange)) {
        while let Some(front) = self.open.front_mut()
            && front.is_over(awaited)
        {
            front.comes_after(self.previous_end_ns);
            self.previous_end_ns = front.end_ns();
            give(front);
            self.open.drain(..1);
        }
    }

    /// Ends everything, and gives out the requests that were open. `destroyed`: the connection
    /// is gone, so that nothing of it goes on after the window.
    pub fn close(&mut self, destroyed: bool, ledger: &mut Ledger) -> Closed {
        let mut closed = Closed::default();
        while let Some(mut exchange) = self.open.pop_front() {
            if !exchange.response_over && exchange.answered() && self.follows_responses() {
                let ends_here = self.responses.ends_with_connection();
                if !(ends_here && destroyed) {
                    exchange.infer(Inference::ResponseCut);
                }
                exchange.response_over = ends_here || destroyed;
            } else if exchange.answered() {
                exchange.response_over = true;
            }
            if exchange.response_over {
                exchange.comes_after(self.previous_end_ns);
                self.previous_end_ns = exchange.end_ns();
                closed.answered.push(exchange);
            } else if self.protocol == (Protocol::Opaque { confirmed: false }) {
                ledger.malformed_requests += 1;
            } else {
                closed.unanswered.push(exchange);
            }
        }
        closed
    }

    /// Responses end by their bytes, and not by turn-taking.
    fn follows_responses(&self) -> bool {
        self.protocol == Protocol::Http1 && !self.responses.is_lost()
    }

    /// Its bytes say that a request is being worked on.
    pub fn is_at_work(&self) -> bool {
        self.follows_responses() && self.answering().is_some()
    }

    /// The oldest request whose response has not ended.
    fn answering(&self) -> Option<usize> {
        self.open.iter().position(|exchange| !exchange.response_over)
    }

    /// Counts what is spoiled by records lost before this one, and loses both streams.
    fn check_sequence(&mut self, sequence: u32, ledger: &mut Ledger) {
        let expected = std::mem::replace(&mut self.next_sequence, sequence.wrapping_add(1));
        if sequence == expected {
            return;
        }
        self.arrivals.lose();
        self.requests.lose();
        self.responses.lose();
        self.hidden_in = None;
        self.refused = false;
        let before = self.open.len();
        self.open.retain(|exchange| exchange.response_over);
        ledger.lost_ring_full += (before - self.open.len()) as u64;
        for exchange in &mut self.open {
            exchange.request_over = true;
        }
    }
}

/// The bytes kept of a call.
pub fn kept_head(edge: &Edge) -> &[u8] {
    &edge.head[..(edge.head_len as usize).min(edge.head.len())]
}

/// A TLS record (RFC 8446 section 5.1): handshake, alert, cipher change or data of version 3.x.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=23, 3, 0..=4, ..])
}
