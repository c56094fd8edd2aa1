//! One connection's records in order, told apart into requests by their bytes, and by turn-taking where bytes do not
//! tell.
//!
//! Requests are begun and ended by [`Requests`], their responses by [`Responses`], first in, first out. Where a stream
//! is lost (see `framing.rs`) the two sides take turns: a read after a write begins the next request if it begins with
//! a request line, and whatever was answered by then is over. Such a request is graded `inferred`, with the cause.

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

/// Requests.
impl Connection {
    /// Turn-taking: whether a read of a lost stream begins a request.
    fn requests_resume(&mut self, edge: &Edge) -> bool {
        let resumes = heads::begins_request(kept_head(edge))
            && self.open.back().is_none_or(|last| last.answered() || last.awaits_no_body());
        if resumes {
            self.requests.restart();
        }
        resumes
    }

    /// A read of a lost stream that begins no request belongs to the last one.
    fn read_on(&mut self, edge: &Edge, taken: &Taken, around: &mut Around) {
        let call = Call::from(edge);
        match self.open.back_mut() {
            Some(last) => last.read(&call, Share::whole(&call), false),
            None if is_tls(kept_head(edge)) => {
                self.protocol = Protocol::Opaque { confirmed: false };
                self.read_opaque(edge, taken, around);
            }
            None if self.refused || self.hidden_in.is_some() => {}
            None => around.ledger.unmatched_edges += 1,
        }
    }

    fn follow_requests(&mut self, edge: &Edge, taken: &Taken, around: &mut Around) {
        let call = Call::from(edge);
        let mut bytes = Bytes::new(edge.result as u64, kept_head(edge));
        let (mut from, mut completes_head, mut carried) = (0, false, 0);
        loop {
            match self.requests.step(&mut bytes, around.heads) {
                Some(Step::Begins) => {
                    from = bytes.at();
                    completes_head = false;
                    self.begin(&call, taken.first_byte(from), around.threads);
                }
                Some(Step::Head(())) => {
                    completes_head = true;
                    self.name_last();
                }
                Some(Step::Ends) => {
                    self.take_share(&call, bytes.at() - from, completes_head, &mut carried);
                    from = bytes.at();
                    self.last_is_read();
                }
                Some(Step::Lost(Lost::BeginningUnseen)) => {
                    around.ledger.reads_cut_short += 1;
                    self.hidden_in = Some(Box::new(call));
                    return;
                }
                Some(Step::Lost(lost)) => {
                    self.requests_lost(lost, &call, around.ledger);
                    self.take_share(&call, bytes.at() - from, true, &mut carried);
                    self.last_is_read();
                    return;
                }
                None => {
                    self.take_share(&call, bytes.at() - from, completes_head, &mut carried);
                    return;
                }
            }
        }
    }

    /// The last request has so many bytes in this call, which carried others before it.
    fn take_share(&mut self, call: &Call, bytes: u64, completes_head: bool, carried: &mut u32) {
        let count = self.open.len();
        let Some(last) = self.open.back_mut().filter(|last| bytes > 0 && !last.request_over) else { return };
        last.read(call, Share { bytes, counts: *carried == 0 }, completes_head);
        *carried += 1;
        if *carried > 1 {
            last.shares_read();
            if *carried == 2 && count > 1 {
                self.open[count - 2].shares_read();
            }
        }
    }

    fn name_last(&mut self) {
        if let Some(last) = self.open.back_mut() {
            last.name(self.requests.head());
        }
    }

    /// The stream was lost in the last request, or what seemed to begin one does not.
    fn requests_lost(&mut self, lost: Lost, call: &Call, ledger: &mut Ledger) {
        let is_first = self.begun == 1 && self.acceptance.is_some();
        match lost {
            Lost::Http2 => {
                self.forget_last();
                self.protocol = Protocol::Foreign;
                ledger.http2_connections += 1;
            }
            Lost::NotHttp if is_first => {
                self.protocol = Protocol::Opaque { confirmed: false };
                self.infer_last(Inference::NotHttp);
            }
            Lost::NotHttp => {
                self.forget_last();
                self.refused = true;
                ledger.malformed_requests += 1;
            }
            Lost::HeadUnseen | Lost::BeginningUnseen => {
                self.name_last();
                self.infer_last(Inference::HeadUnseen);
                self.hidden_in = Some(Box::new(*call));
            }
            Lost::ChunkUnseen => {
                self.infer_last(Inference::BodyUnseen);
                self.hidden_in = Some(Box::new(*call));
            }
            Lost::Malformed => {
                self.name_last();
                self.infer_last(Inference::RequestMalformed);
            }
        }
    }

    fn last_is_read(&mut self) {
        if let Some(last) = self.open.back_mut() {
            last.request_over = true;
        }
    }

    fn infer_last(&mut self, inference: Inference) {
        if let Some(last) = self.open.back_mut() {
            last.infer(inference);
        }
    }

    fn forget_last(&mut self) {
        self.open.pop_back();
        self.begun -= 1;
    }

    fn begin(&mut self, call: &Call, first_byte: (u64, Option<Inference>), threads: &Threads) {
        if self.responses.is_lost() {
            self.end_by_turn();
        }
        self.refused = false;
        self.hidden_in = None;
        let previous = self.open.back().filter(|previous| previous.response_over);
        let (first_byte_ns, inference) = first_byte;
        let beginning = Beginning {
            index: self.begun,
            first_byte_ns,
            acceptance: if self.begun == 0 { self.acceptance } else { None },
            previous_end_ns: previous.map_or(self.previous_end_ns, Exchange::end_ns),
            inference,
        };
        self.begun += 1;
        self.open.push_back(Exchange::begin(&beginning, call, threads));
    }

    /// Turn-taking: a new request begins, so that what was answered is over.
    fn end_by_turn(&mut self) {
        let mut batch: Option<Call> = None;
        for exchange in self.open.iter_mut().filter(|exchange| !exchange.response_over) {
            if exchange.answered() {
                batch = exchange.last_write().filter(|_| self.batch_cut_short);
            } else if let Some(write) = batch.filter(|write| exchange.was_read_before(write)) {
                exchange.write(&write, Share { bytes: 0, counts: false });
                exchange.shares_write();
                exchange.infer(Inference::ResponseUnseen);
            } else {
                break;
            }
            exchange.response_over = true;
        }
        self.batch_cut_short = false;
        self.responses.restart();
    }
}

/// Responses.
impl Connection {
    /// Turn-taking: whether a write of a lost stream begins a response.
    fn responses_resume(&mut self, edge: &Edge) -> bool {
        if status(kept_head(edge)) == 0 {
            return false;
        }
        let resumes = match self.answering() {
            None => self.hidden_in.is_some(),
            Some(index) if !self.open[index].answered() => true,
            Some(index) if self.open[index].has_final_status() && index + 1 < self.open.len() => {
                self.open[index].response_over = true;
                true
            }
            Some(_) => false,
        };
        if resumes {
            self.responses.restart();
        }
        resumes
    }

    /// A write of a lost stream, or one that moved nothing, belongs to the response under way.
    fn write_on(&mut self, edge: &Edge, ledger: &mut Ledger) {
        let call = Call::from(edge);
        match self.answering() {
            Some(index) => self.open[index].write(&call, Share::whole(&call)),
            None if edge.result > 0 && !self.refused => ledger.unmatched_edges += 1,
            None => {}
        }
    }

    fn follow_responses(&mut self, edge: &Edge, around: &mut Around) {
        let call = Call::from(edge);
        let kept = kept_head(edge);
        let mut bytes = Bytes::new(edge.result as u64, kept);
        let (mut from, mut interim_end, mut switches, mut carried) = (0, None, false, 0);
        while let Some(index) = self.answering().or_else(|| self.uncover(bytes.seen(), around.threads)) {
            let step = self.responses.step(&mut bytes, self.open[index].method());
            let moved_bytes = bytes.at() - from;
            match step {
                Some(Step::Begins) => {}
                Some(Step::Head(head)) => {
                    self.open[index].has_status(head.status);
                    interim_end = head.is_interim.then(|| bytes.at());
                    switches = head.switches;
                }
                Some(Step::Ends) => {
                    self.give_share(index, &call, moved_bytes, &mut carried);
                    from = bytes.at();
                    self.open[index].response_over = true;
                    if switches {
                        self.open[index].request_over = true;
                        self.protocol = Protocol::Foreign;
                        around.ledger.upgraded_connections += 1;
                        return;
                    }
                }
                Some(Step::Lost(lost)) => {
                    let head = kept.get(from as usize..).unwrap_or_default();
                    self.responses_lost(index, lost, head, carried > 0);
                    self.give_share(index, &call, moved_bytes, &mut carried);
                    return;
                }
                None => {
                    self.give_share(index, &call, moved_bytes, &mut carried);
                    if interim_end == Some(bytes.at()) {
                        self.open[index].was_interim();
                    }
                    return;
                }
            }
        }
        if bytes.left() > 0 && !self.refused {
            around.ledger.unmatched_edges += 1;
        }
    }

    /// A response so many of whose bytes are in this call, which carried others before it.
    fn give_share(&mut self, index: usize, call: &Call, bytes: u64, carried: &mut u32) {
        if bytes == 0 {
            return;
        }
        self.open[index].write(call, Share { bytes, counts: *carried == 0 });
        *carried += 1;
        if *carried > 1 {
            self.open[index].shares_write();
            if *carried == 2 && index > 0 {
                self.open[index - 1].shares_write();
            }
        }
    }

    fn responses_lost(&mut self, index: usize, lost: Lost, head: &[u8], in_batch: bool) {
        let exchange = &mut self.open[index];
        if exchange.method().is_empty() || !exchange.has_final_status() {
            exchange.has_status(status(head));
        }
        exchange.infer(match lost {
            Lost::HeadUnseen => Inference::ResponseHeadUnseen,
            Lost::ChunkUnseen => Inference::ResponseChunksUnseen,
            Lost::BeginningUnseen => Inference::ResponseUnseen,
            Lost::Malformed | Lost::NotHttp | Lost::Http2 => Inference::ResponseMalformed,
        });
        self.batch_cut_short = in_batch;
    }

    /// A response without a request, after a read that may hold requests nobody saw: it tells of one of them.
    fn uncover(&mut self, response: &[u8], threads: &Threads) -> Option<usize> {
        // 408 is what a server says without being asked.
        if matches!(status(response), 0 | 408) {
            return None;
        }
        let read = self.hidden_in.take()?;
        self.begin(&read, (read.exit_ns, None), threads);
        self.infer_last(Inference::RequestUnseen);
        self.last_is_read();
        self.hidden_in = Some(read);
        self.open.len().checked_sub(1)
    }
}

/// Connections that do not speak HTTP/1, as far as can be seen.
impl Connection {
    fn read_opaque(&mut self, edge: &Edge, taken: &Taken, around: &mut Around) {
        let call = Call::from(edge);
        if self.open.back().is_none_or(Exchange::answered) {
            for exchange in &mut self.open {
                exchange.response_over = true;
            }
            self.begin(&call, taken.first_byte(0), around.threads);
            self.infer_last(Inference::NotHttp);
        }
        if let Some(last) = self.open.back_mut() {
            last.read(&call, Share::whole(&call), true);
            last.request_over = true;
        }
    }

    fn write_opaque(&mut self, edge: &Edge, confirmed: bool, ledger: &mut Ledger) {
        if !confirmed && status(kept_head(edge)) != 0 {
            // A server of HTTP refuses what it was sent: that was no request, and nothing opaque.
            self.open.clear();
            self.begun = 0;
            self.protocol = Protocol::Http1;
            self.refused = true;
            ledger.malformed_requests += 1;
            return;
        }
        if !confirmed && edge.result > 0 {
            self.protocol = Protocol::Opaque { confirmed: true };
            ledger.opaque_connections += 1;
        }
        self.write_on(edge, ledger);
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
