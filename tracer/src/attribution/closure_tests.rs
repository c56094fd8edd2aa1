//! Closure over generated traffic: pipelined and split messages of every kind, on many connections and threads, with
//! clocks that run, wait and sleep in between. What was sent is known, so that every request is accounted for.

use tracer_common::records::HEAD_BYTES;

use super::tests::{Record, Thread, Wire, feed, lifecycle};
use super::*;
use crate::recording::{Grade, Phase};

const CONNECTIONS: usize = 64;

/// A small generator of numbers (splitmix64): the same traffic every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_of<'a, T: ?Sized>(&mut self, among: &[&'a T]) -> &'a T {
        among[self.below(among.len() as u64) as usize]
    }
}

/// Requests short enough for three of them to be kept of one read.
const REQUESTS: [(&[u8], bool); 4] = [
    (b"GET / HTTP/1.1\r\n\r\n", false),
    (b"HEAD /h HTTP/1.1\r\n\r\n", true),
    (b"PUT / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", false),
    (b"GET /x?q HTTP/1.1\r\na: b\r\n\r\n", false),
];
const RESPONSES: [&[u8]; 3] = [
    b"HTTP/1.1 204 X\r\n\r\n",
    b"HTTP/1.1 200 X\r\ncontent-length: 3\r\n\r\nabc",
    b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 304 X\r\n\r\n",
];
const RESPONSES_TO_HEAD: [&[u8]; 1] = [b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n"];

struct Traffic {
    random: Random,
    threads: [Thread; 3],
    wires: Vec<Wire>,
    now_ns: u64,
    attribution: Attribution,
    out: Vec<Request>,
    sent: u64,
    records: u64,
    calls: [u64; 2],
    counted: [u64; 2],
    traced: u64,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            threads: [7, 8, 9].map(Thread::new),
            wires: (1..=CONNECTIONS as u64).map(Wire::new).collect(),
            now_ns: 2_000_000,
            attribution: Attribution::new(false),
            out: Vec::new(),
            sent: 0,
            records: 0,
            calls: [0; 2],
            counted: [0; 2],
            traced: 0,
        }
    }

    /// A client sends one to three requests at once and the server answers them.
    fn turn(&mut self) {
        let connection = self.random.below(CONNECTIONS as u64) as usize;
        let (mut requests, mut responses) = (Vec::new(), Vec::new());
        let count = if self.random.below(4) == 0 { 1 + self.random.below(3) } else { 1 };
        for _ in 0..count {
            let (request, is_head) = REQUESTS[self.random.below(4) as usize];
            requests.extend_from_slice(request);
            let among = if is_head { &RESPONSES_TO_HEAD[..] } else { &RESPONSES[..] };
            responses.push(self.random.one_of(among));
        }
        self.sent += count;
        let thread = self.random.below(3) as usize;
        let arrived_ns = self.now_ns - self.random.below(1_000);
        self.wires[connection].arrives(arrived_ns, requests.len() as u32);
        self.pieces(thread, connection, RecordKind::Read, &requests);
        // One time in eight another thread answers.
        let thread = if self.random.below(8) == 0 { self.random.below(3) as usize } else { thread };
        if self.random.below(2) == 0 {
            self.pieces(thread, connection, RecordKind::Write, &responses.concat());
        } else {
            for response in responses {
                self.pieces(thread, connection, RecordKind::Write, response);
            }
        }
    }

    fn pieces(&mut self, thread: usize, connection: usize, kind: RecordKind, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let all = rest.len().min(HEAD_BYTES) as u64;
            let size = if self.random.below(3) == 0 { 1 + self.random.below(all) } else { all };
            let (piece, after) = rest.split_at(size as usize);
            self.passes(thread);
            self.call(thread, connection, kind, piece);
            rest = after;
        }
    }

    /// Time goes by: on the CPU, waiting for it, asleep.
    fn passes(&mut self, thread: usize) {
        let (kind, ns) = (self.random.below(4), self.random.below(300_000));
        let behind_ns = self.now_ns.saturating_sub(self.threads[thread].now_ns);
        let thread = &mut self.threads[thread];
        if behind_ns > 0 {
            thread.sleeps(behind_ns);
        }
        match kind {
            0 => thread.runs(ns),
            1 => thread.waits_for_cpu(ns),
            2 => thread.sleeps(ns),
            _ => thread.runs(ns / 2).sleeps(ns / 3).runs(ns / 4),
        };
        self.now_ns = self.now_ns.max(thread.now_ns);
    }

    fn call(&mut self, thread: usize, connection: usize, kind: RecordKind, piece: &[u8]) {
        let cpu_ns = 200 + self.random.below(20_000);
        let wire = &mut self.wires[connection];
        let mut edge = self.threads[thread].call(kind, wire, cpu_ns, piece.len() as i64, piece);
        if kind == RecordKind::Write && self.random.below(2) == 0 {
            let after_ns = self.random.below(cpu_ns);
            edge.delivered_ns = edge.enter_ns + after_ns;
            edge.delivered_cpu_ns = edge.at_enter.cpu_ns + after_ns;
        }
        self.now_ns = self.now_ns.max(edge.exit_ns);
        self.calls[usize::from(kind == RecordKind::Write)] += 1;
        self.take(Record::Edge(edge));
    }

    fn take(&mut self, record: Record) {
        self.records += 1;
        feed(&mut self.attribution, &record, &mut self.out);
        for request in self.out.drain(..) {
            assert_eq!(request.wall_ns(), request.end_ns - request.first_byte_ns, "{request:?}");
            for phase in Phase::ALL {
                let states_ns = request.states[phase as usize].total_ns();
                assert_eq!(states_ns, request.phase_ns(phase), "{phase:?}: {request:?}");
            }
            assert!(request.wall_ns() < 1_000_000_000_000, "a wrapped duration: {request:?}");
            assert_eq!(request.grade, Grade::Measured, "{request:?}");
            self.counted[0] += u64::from(request.reads);
            self.counted[1] += u64::from(request.writes);
            self.traced += 1;
        }
    }

    /// Generates that many records, and checks that everything adds up.
    fn adds_up_over(mut self, records: u64) {
        for connection in 0..CONNECTIONS {
            let accepted = lifecycle(RecordKind::Accept, &mut self.wires[connection], 1_500_000);
            self.take(accepted);
        }
        while self.records < records {
            self.turn();
        }
        let ledger = &self.attribution.tally.ledger;
        assert_eq!((ledger.defects, ledger.inferred, ledger.unmatched_edges), (0, 0, 0), "{ledger:?}");
        assert_eq!((self.traced, ledger.traced), (self.sent, self.sent));
        assert_eq!(self.counted, self.calls, "calls counted once each");
        let cpu_ns: u64 = self.threads.iter().map(Thread::total_cpu_ns).sum();
        assert!(self.attribution.tally.charged_cpu_ns <= cpu_ns);
        println!(
            "{} records, {} requests: every one closes, {} defects",
            self.records, self.traced, ledger.defects
        );
    }
}

#[test]
fn ten_thousand_records_close() {
    Traffic::new(1).adds_up_over(10_000);
}

/// `cargo test -p tracer --lib ten_million -- --ignored --nocapture`: some minutes without optimisation.
#[test]
#[ignore = "takes minutes"]
fn ten_million_records_close() {
    Traffic::new(2).adds_up_over(10_000_000);
}
