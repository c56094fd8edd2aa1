//! Attribution on records made by hand: known truth in, the same truth out.

use proptest::prelude::*;
use tracer_common::records::{Arrival, Edge, HEAD_BYTES, Lifecycle, RecordKind, Sleep, ThreadClock};

use super::*;
use crate::{
    probe::reader,
    recording::{Grade, Phase},
};

/// A thread that runs on and on, making calls; its clocks move with the time it is told of.
pub(super) struct Thread {
    tid: u32,
    pub(super) now_ns: u64,
    cpu_ns: u64,
    run_queue_ns: u64,
    syscall_cpu_ns: u64,
    sleep: Sleep,
}

impl Thread {
    pub(super) fn new(tid: u32) -> Self {
        Self {
            tid,
            now_ns: 1_000_000,
            cpu_ns: 0,
            run_queue_ns: 0,
            syscall_cpu_ns: 0,
            sleep: Sleep::default(),
        }
    }

    pub(super) fn runs(&mut self, ns: u64) -> &mut Self {
        self.now_ns += ns;
        self.cpu_ns += ns;
        self
    }

    pub(super) fn total_cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    pub(super) fn waits_for_cpu(&mut self, ns: u64) -> &mut Self {
        self.now_ns += ns;
        self.run_queue_ns += ns;
        self
    }

    pub(super) fn sleeps(&mut self, ns: u64) -> &mut Self {
        self.sleep = Sleep {
            blocked_at_ns: self.now_ns,
            waking_ns: self.now_ns + ns,
            runnable_ns: self.now_ns + ns,
            running_ns: self.now_ns + ns,
            cpu_ns: self.cpu_ns,
            call_plus_one: 233,
            waker_tid: 0,
        };
        self.now_ns += ns;
        self
    }

    pub(super) fn call(
        &mut self,
        kind: RecordKind,
        on: &mut Wire,
        cpu_ns: u64,
        result: i64,
        head: &[u8],
    ) -> Edge {
        on.sequence += 1;
        let mut bytes = [0; HEAD_BYTES];
        let head_len = head.len().min(HEAD_BYTES).min(result.max(0) as usize);
        bytes[..head_len].copy_from_slice(&head[..head_len]);
        let (enter_ns, enter_cpu_ns) = (self.now_ns, self.cpu_ns);
        let syscall_cpu_ns = self.syscall_cpu_ns;
        self.runs(cpu_ns);
        self.syscall_cpu_ns += cpu_ns;
        Edge {
            kind: kind as u8,
            flags: 0,
            call: if kind == RecordKind::Read { 0 } else { 1 },
            sequence: on.sequence,
            connection_id: on.id,
            tid: self.tid,
            tgid: 1,
            enter_ns,
            exit_ns: self.now_ns,
            result,
            iovecs: 1,
            local_port: 80,
            remote_port: on.id as u16,
            at_enter: ThreadClock {
                cpu_ns: enter_cpu_ns,
                run_queue_ns: self.run_queue_ns,
                syscall_cpu_ns,
                syscalls: 0,
            },
            exit_cpu_ns: self.cpu_ns,
            exit_run_queue_ns: self.run_queue_ns,
            sleep: self.sleep,
            arrival: on.arrival,
            previous_arrival: on.previous_arrival,
            last_ready_ns: on.arrival.ns,
            end_sequence: 0,
            unsent_bytes: 0,
            delivered_ns: 0,
            delivered_cpu_ns: 0,
            head_len: head_len as u32,
            reserved: 0,
            head: bytes,
        }
    }
}

/// The client's end of a connection.
pub(super) struct Wire {
    id: u64,
    sequence: u32,
    position: u32,
    arrival: Arrival,
    previous_arrival: Arrival,
}

impl Wire {
    pub(super) fn new(id: u64) -> Self {
        let none = Arrival::default();
        Self { id, sequence: 0, position: 1_000, arrival: none, previous_arrival: none }
    }

    pub(super) fn arrives(&mut self, at_ns: u64, bytes: u32) {
        self.previous_arrival = self.arrival;
        self.arrival = Arrival { ns: at_ns, sequence: self.position, reserved: 0 };
        self.position = self.position.wrapping_add(bytes);
    }
}

const GET: &[u8] = b"GET /users/42?x=1 HTTP/1.1\r\nhost: ab\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A record by itself, as if in its slot.
#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "a handful in each test")]
pub(super) enum Record {
    Edge(Edge),
    Lifecycle(Lifecycle),
}

impl Record {
    pub(super) fn in_slot(&self) -> reader::Record<'_> {
        match self {
            Self::Edge(edge) => reader::Record::Edge(edge),
            Self::Lifecycle(lifecycle) => reader::Record::Lifecycle(lifecycle),
        }
    }
}

pub(super) fn attribute(records: &[Record]) -> (Vec<Request>, Tally) {
    let mut attribution = Attribution::new(false).awaiting(Awaited { drain: true, ..Awaited::default() });
    let mut requests = Vec::new();
    for record in records {
        feed(&mut attribution, record, &mut requests);
    }
    attribution.finish(&mut |request| requests.push(request));
    (requests, attribution.tally)
}

pub(super) fn feed(attribution: &mut Attribution, record: &Record, requests: &mut Vec<Request>) {
    attribution.take(&record.in_slot(), &mut |request| requests.push(request));
}

/// A step in the connection's life, as its next record.
pub(super) fn lifecycle(kind: RecordKind, wire: &mut Wire, at_ns: u64) -> Record {
    wire.sequence += 1;
    Record::Lifecycle(Lifecycle {
        kind: kind as u8,
        reserved: 0,
        call: 288,
        sequence: wire.sequence,
        connection_id: wire.id,
        tid: 7,
        tgid: 1,
        established_ns: 999_000,
        enter_ns: at_ns,
        exit_ns: at_ns,
        local_port: 80,
        remote_port: 1,
        end_sequence: 0,
    })
}

pub(super) fn read(thread: &mut Thread, wire: &mut Wire, cpu_ns: u64, head: &[u8]) -> Record {
    Record::Edge(thread.call(RecordKind::Read, wire, cpu_ns, head.len() as i64, head))
}

pub(super) fn write(thread: &mut Thread, wire: &mut Wire, cpu_ns: u64, head: &[u8]) -> Record {
    Record::Edge(thread.call(RecordKind::Write, wire, cpu_ns, head.len() as i64, head))
}

#[test]
fn a_handler_that_spins_is_on_cpu_and_one_that_sleeps_is_blocked() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    wire.arrives(thread.now_ns, 40);
    thread.runs(500);
    let first = read(&mut thread, &mut wire, 2_000, GET);
    thread.runs(5_000_000);
    let answered = write(&mut thread, &mut wire, 9_000, OK);
    wire.arrives(thread.now_ns + 100, 40);
    thread.runs(500);
    let second = read(&mut thread, &mut wire, 2_000, GET);
    thread.runs(1_000).sleeps(5_000_000).runs(3_000);
    let late = write(&mut thread, &mut wire, 9_000, OK);

    let (requests, tally) = attribute(&[first, answered, second, late]);
    assert_eq!(requests.len(), 2);
    let (spun, slept) = (&requests[0], &requests[1]);
    assert_eq!(spun.states[Phase::App as usize].own_cpu_ns, 5_000_000);
    assert_eq!(spun.states[Phase::App as usize].blocked_ns, 0);
    assert_eq!(slept.states[Phase::App as usize].blocked_ns, 5_000_000);
    assert_eq!(slept.states[Phase::App as usize].own_cpu_ns, 4_000);
    assert_eq!(slept.blocked_call_plus_one, 233);
    assert_eq!(spun.path.as_ref(), "/users/42");
    assert_eq!(spun.status, 200);
    assert_eq!(spun.cpu.total_ns(), 2_000 + 5_000_000 + 9_000);
    assert_eq!(tally.charged_cpu_ns, spun.cpu.total_ns() + slept.cpu.total_ns());
    assert_eq!(tally.ledger.traced, 2);
}

#[test]
fn two_requests_ten_milliseconds_apart_do_not_overlap() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    let mut records = Vec::new();
    for _ in 0..2 {
        wire.arrives(thread.now_ns, 40);
        thread.runs(500);
        records.push(read(&mut thread, &mut wire, 2_000, GET));
        records.push(write(&mut thread, &mut wire, 9_000, OK));
        thread.sleeps(10_000_000);
    }
    let (requests, _) = attribute(&records);
    assert!(requests[0].end_ns < requests[1].first_byte_ns);
    assert_eq!(requests[0].wall_ns(), 11_500);
    assert_eq!(requests[1].wall_ns(), 11_500);
}

#[test]
fn delivery_ends_the_request_and_the_rest_of_the_write_is_its_tail() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    wire.arrives(thread.now_ns, 40);
    let first = read(&mut thread, &mut wire, 2_000, GET);
    let Record::Edge(mut edge) = write(&mut thread, &mut wire, 9_000, OK) else { unreachable!() };
    edge.delivered_ns = edge.enter_ns + 6_000;
    edge.delivered_cpu_ns = edge.at_enter.cpu_ns + 6_000;
    let (requests, _) = attribute(&[first, Record::Edge(edge)]);
    assert_eq!(requests[0].phase_ns(Phase::Write), 6_000);
    assert_eq!(requests[0].write_tail_ns, 3_000);
    assert_eq!((requests[0].cpu.write_ns, requests[0].cpu.write_tail_ns), (6_000, 3_000));
}

#[test]
fn a_lost_record_is_a_lost_request_and_never_a_wrong_one() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    let mut records = Vec::new();
    for _ in 0..3 {
        wire.arrives(thread.now_ns, 40);
        records.push(read(&mut thread, &mut wire, 2_000, GET));
        records.push(write(&mut thread, &mut wire, 9_000, OK));
    }
    records.remove(3); // the second response
    let (requests, tally) = attribute(&records);
    assert_eq!(requests.len(), 2);
    assert_eq!(tally.ledger.lost_ring_full, 1);
    assert!(requests.iter().all(|request| request.wall_ns() == 11_000));
}

#[test]
fn a_response_without_its_request_was_in_flight_at_attach_and_invents_none() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    let records = [write(&mut thread, &mut wire, 9_000, OK)];
    let (requests, tally) = attribute(&records);
    assert!(requests.is_empty());
    assert_eq!(tally.ledger.unmatched_edges, 1);
}

#[test]
fn a_body_in_later_reads_is_part_of_app() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    let head = b"POST /echo HTTP/1.1\r\ncontent-length: 5\r\n\r\n";
    wire.arrives(thread.now_ns, 40);
    let first = read(&mut thread, &mut wire, 2_000, head);
    thread.sleeps(1_000_000);
    wire.arrives(thread.now_ns, 5);
    let body = read(&mut thread, &mut wire, 1_500, b"hello");
    thread.runs(700);
    let answer = write(&mut thread, &mut wire, 9_000, OK);
    let (requests, _) = attribute(&[first, body, answer]);
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(request.phase_ns(Phase::App), 1_000_000 + 1_500 + 700);
    assert_eq!((request.body_wait_ns, request.body_read_ns), (1_000_000, 1_500));
    assert_eq!(request.reads, 2);
}

#[test]
fn an_early_response_followed_by_leftover_body_opens_no_request() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    let head = b"POST /echo HTTP/1.1\r\ncontent-length: 5\r\n\r\n";
    wire.arrives(thread.now_ns, 40);
    let records = [
        read(&mut thread, &mut wire, 2_000, head),
        write(&mut thread, &mut wire, 9_000, OK),
        read(&mut thread, &mut wire, 1_000, b"hello"),
    ];
    let (requests, tally) = attribute(&records);
    assert_eq!(requests.len(), 1);
    assert_eq!(tally.ledger.mid_flight, 0);
}

#[test]
fn waiting_for_the_accept_call_is_a_phase_of_the_first_request_only() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    wire.arrives(thread.now_ns, 40);
    thread.runs(4_000);
    wire.sequence += 1;
    let accept = Lifecycle {
        kind: RecordKind::Accept as u8,
        reserved: 0,
        call: 288,
        sequence: wire.sequence,
        connection_id: 1,
        tid: 7,
        tgid: 1,
        established_ns: 999_000,
        enter_ns: thread.now_ns - 1_000,
        exit_ns: thread.now_ns,
        local_port: 80,
        remote_port: 1,
        end_sequence: 0,
    };
    thread.runs(300);
    let mut records = vec![Record::Lifecycle(accept)];
    records.push(read(&mut thread, &mut wire, 2_000, GET));
    records.push(write(&mut thread, &mut wire, 9_000, OK));
    wire.arrives(thread.now_ns, 40);
    records.push(read(&mut thread, &mut wire, 2_000, GET));
    records.push(write(&mut thread, &mut wire, 9_000, OK));
    let (requests, tally) = attribute(&records);
    assert_eq!(requests[0].phase_ns(Phase::Accept), 4_000);
    assert_eq!(requests[0].phase_ns(Phase::Queue), 300);
    assert_eq!(requests[1].phase_ns(Phase::Accept), 0);
    assert_eq!((tally.accepted, tally.accept_wait_ns), (1, 5_000));
}

#[test]
fn run_queue_time_is_neither_cpu_nor_blocked() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    wire.arrives(thread.now_ns, 40);
    let first = read(&mut thread, &mut wire, 2_000, GET);
    thread.runs(1_000).waits_for_cpu(3_000_000).runs(1_000);
    let answer = write(&mut thread, &mut wire, 9_000, OK);
    let (requests, _) = attribute(&[first, answer]);
    let app = requests[0].states[Phase::App as usize];
    assert_eq!((app.own_cpu_ns, app.run_queue_ns, app.blocked_ns), (2_000, 3_000_000, 0));
}

proptest! {
    /// Any order of bytes, sleeps and calls: phases and states add up, and nothing is negative.
    #[test]
    fn closure_holds_for_whatever_happens(steps in proptest::collection::vec((0u8..6, 0usize..3, 1u64..2_000_000), 1..200)) {
        let mut threads = [Thread::new(7), Thread::new(8)];
        let mut wires = [Wire::new(1), Wire::new(2), Wire::new(3)];
        let mut records = Vec::new();
        let mut now_ns = 1_000_000;
        for (step, which, ns) in steps {
            let thread = &mut threads[which % 2];
            thread.now_ns = thread.now_ns.max(now_ns);
            let wire = &mut wires[which];
            match step {
                0 => wire.arrives(thread.now_ns, 40),
                1 => records.push(read(thread, wire, ns, GET)),
                2 => records.push(write(thread, wire, ns, OK)),
                3 => { thread.runs(ns); }
                4 => { thread.sleeps(ns); }
                _ => { thread.waits_for_cpu(ns); }
            }
            now_ns = now_ns.max(thread.now_ns);
        }
        let (requests, tally) = attribute(&records);
        prop_assert_eq!(tally.ledger.defects, 0, "{:?}", tally.ledger.defect_example);
        for request in requests {
            prop_assert_eq!(request.wall_ns(), request.end_ns - request.first_byte_ns);
            for phase in Phase::ALL {
                prop_assert_eq!(request.states[phase as usize].total_ns(), request.phase_ns(phase));
            }
            if request.grade == Grade::Measured {
                prop_assert!(request.cpu.total_ns() <= threads.iter().map(|t| t.cpu_ns).sum());
            }
        }
    }
}

#[test]
fn an_arrival_inside_the_read_may_be_of_later_bytes() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    wire.arrives(thread.now_ns, 40);
    thread.runs(500);
    let Record::Edge(mut first) = read(&mut thread, &mut wire, 2_000, GET) else { unreachable!() };
    // The body arrives while the call that took the head is on its way out.
    wire.arrives(first.enter_ns + 1_500, 5);
    (first.arrival, first.previous_arrival) = (wire.arrival, wire.previous_arrival);
    let answer = write(&mut thread, &mut wire, 9_000, OK);
    let (requests, _) = attribute(&[Record::Edge(first), answer]);
    assert_eq!(requests[0].phase_ns(Phase::Queue), 500);
}

#[test]
fn unsent_bytes_drain_until_the_device_has_them() {
    let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
    wire.arrives(thread.now_ns, 40);
    let first = read(&mut thread, &mut wire, 2_000, GET);
    let Record::Edge(mut edge) = write(&mut thread, &mut wire, 9_000, OK) else { unreachable!() };
    (edge.unsent_bytes, edge.end_sequence) = (10, 500);
    let (unseen, _) = attribute(&[first, Record::Edge(edge)]);
    assert_eq!((unseen[0].phase_ns(Phase::Drain), unseen[0].grade), (0, Grade::Inferred));
    let drained = Lifecycle {
        kind: RecordKind::Drained as u8,
        reserved: 0,
        call: 0,
        sequence: wire.sequence,
        connection_id: 1,
        tid: 0,
        tgid: 0,
        established_ns: 0,
        enter_ns: edge.exit_ns + 700,
        exit_ns: edge.exit_ns + 700,
        local_port: 80,
        remote_port: 1,
        end_sequence: 500,
    };
    let (seen, _) = attribute(&[first, Record::Edge(edge), Record::Lifecycle(drained)]);
    assert_eq!((seen[0].phase_ns(Phase::Drain), seen[0].grade), (700, Grade::Measured));
}
