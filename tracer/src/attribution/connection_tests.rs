//! Connections told apart by their bytes: pipelining, bodies, interim responses, upgrades, and what is no HTTP.

use tracer_common::records::HEAD_BYTES;

use super::tests::{Record, Thread, Wire, feed, lifecycle};
use super::*;
use crate::recording::{Grade, Inference, Phase};

const GET: &[u8] = b"GET /a HTTP/1.1\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

/// One connection served by one thread; requests come out as they are over.
struct Conversation {
    thread: Thread,
    wire: Wire,
    attribution: Attribution,
    requests: Vec<Request>,
    /// Read and write calls that moved bytes.
    calls: (u32, u32),
}

impl Conversation {
    fn new() -> Self {
        let (mut thread, mut wire) = (Thread::new(7), Wire::new(1));
        let mut attribution = Attribution::new(false);
        let mut requests = Vec::new();
        thread.runs(10);
        let accepted = lifecycle(RecordKind::Accept, &mut wire, thread.now_ns);
        feed(&mut attribution, &accepted, &mut requests);
        Self { thread, wire, attribution, requests, calls: (0, 0) }
    }

    /// Attached in the middle: the accept call was not seen.
    fn attached_late() -> Self {
        Self {
            wire: Wire::new(1),
            thread: Thread::new(7),
            attribution: Attribution::new(false),
            ..Self::new()
        }
    }

    fn edge(&mut self, kind: RecordKind, cpu_ns: u64, moved_bytes: usize, kept: &[u8]) -> &mut Self {
        self.thread.runs(100);
        let mut edge = self.thread.call(kind, &mut self.wire, cpu_ns, moved_bytes as i64, kept);
        edge.last_ready_ns = edge.arrival.ns;
        feed(&mut self.attribution, &Record::Edge(edge), &mut self.requests);
        self
    }

    fn reads_first_of(&mut self, kept: &[u8], moved_bytes: usize) -> &mut Self {
        self.wire.arrives(self.thread.now_ns, moved_bytes as u32);
        self.calls.0 += 1;
        self.edge(RecordKind::Read, 2_000, moved_bytes, kept)
    }

    fn reads(&mut self, bytes: &[u8]) -> &mut Self {
        self.reads_first_of(bytes, bytes.len())
    }

    fn writes_first_of(&mut self, kept: &[u8], moved_bytes: usize) -> &mut Self {
        self.calls.1 += 1;
        self.edge(RecordKind::Write, 9_000, moved_bytes, kept)
    }

    fn writes(&mut self, bytes: &[u8]) -> &mut Self {
        self.writes_first_of(bytes, bytes.len())
    }

    fn destroyed(&mut self) -> &mut Self {
        let record = lifecycle(RecordKind::Destroy, &mut self.wire, self.thread.now_ns);
        feed(&mut self.attribution, &record, &mut self.requests);
        self
    }

    /// Everything that came out, after the checks that always hold.
    fn over(mut self) -> (Vec<Request>, Ledger) {
        self.attribution.finish(&mut |request| self.requests.push(request));
        let ledger = self.attribution.tally.ledger;
        assert_eq!(ledger.defects, 0, "{:?}", ledger.defect_example);
        let indices: Vec<u32> = self.requests.iter().map(|request| request.index).collect();
        assert!(indices.is_sorted(), "given out in order: {indices:?}");
        for request in &self.requests {
            assert_eq!(request.wall_ns(), request.end_ns - request.first_byte_ns);
            for phase in Phase::ALL {
                assert_eq!(request.states[phase as usize].total_ns(), request.phase_ns(phase), "{request:?}");
            }
            assert_eq!(request.grade == Grade::Inferred, request.inference.is_some());
        }
        (self.requests, ledger)
    }

    /// As [`Self::over`], when every call belongs to a request that was traced and measured.
    fn over_and_exact(self) -> Vec<Request> {
        let calls = self.calls;
        let (requests, ledger) = self.over();
        let sum = |count: fn(&Request) -> u32| requests.iter().map(count).sum::<u32>();
        assert_eq!((sum(|request| request.reads), sum(|request| request.writes)), calls);
        assert_eq!((ledger.inferred, ledger.unmatched_edges, ledger.mid_flight), (0, 0, 0), "{ledger:?}");
        requests
    }
}

fn bytes_of(requests: &[Request]) -> Vec<(u64, u64)> {
    requests.iter().map(|request| (request.bytes_in, request.bytes_out)).collect()
}

#[test]
fn a_request_is_given_out_when_its_last_byte_is_written() {
    let mut conversation = Conversation::new();
    conversation.reads(GET).writes(&OK[..OK.len() - 1]);
    assert!(conversation.requests.is_empty());
    conversation.writes(&OK[OK.len() - 1..]);
    assert_eq!(conversation.requests.len(), 1);
    assert_eq!(conversation.over_and_exact()[0].writes, 2);
}

#[test]
fn requests_in_one_read_answered_one_by_one_each_have_their_own_record() {
    let mut conversation = Conversation::new();
    conversation.reads(&GET.repeat(3)).writes(OK).writes(OK).writes(OK);
    let requests = conversation.over_and_exact();
    let length = (GET.len() as u64, OK.len() as u64);
    assert_eq!(bytes_of(&requests), [length; 3]);
    let reads: Vec<_> = requests.iter().map(|request| (request.reads, request.shared_reads)).collect();
    assert_eq!(reads, [(1, 1), (0, 1), (0, 1)]);
    for pair in requests.windows(2) {
        let behind_ns = pair[1].phase_ns(Phase::Behind);
        assert_eq!(behind_ns, pair[0].end_ns - pair[1].first_byte_ns, "behind until the one before it ended");
        assert_eq!((pair[1].phase_ns(Phase::Queue), pair[1].phase_ns(Phase::Read)), (0, 0));
        assert_eq!(pair[1].phase_ns(Phase::App), 100);
        assert_eq!(pair[1].writes, 1);
    }
}

#[test]
fn responses_in_one_write_each_have_their_own_record_and_the_call_counts_once() {
    let mut conversation = Conversation::new();
    let short: &[u8] = b"HTTP/1.1 204 X\r\n\r\n";
    conversation.reads(&GET.repeat(3)).writes(&short.repeat(3));
    let requests = conversation.over_and_exact();
    assert_eq!(bytes_of(&requests), [(GET.len() as u64, short.len() as u64); 3]);
    let writes: Vec<_> = requests.iter().map(|request| (request.writes, request.shared_writes)).collect();
    assert_eq!(writes, [(1, 1), (0, 1), (0, 1)]);
    // The call is each one's own wall time, and the CPU of one.
    let cpu: Vec<_> = requests.iter().map(|request| request.cpu.write_ns).collect();
    assert_eq!(cpu, [9_000, 0, 0]);
    assert!(requests.iter().all(|request| request.phase_ns(Phase::Write) == 9_000));
    assert_eq!(requests[1].kept_writes(), []);
}

#[test]
fn requests_that_straddle_reads_are_told_apart() {
    let mut conversation = Conversation::new();
    let three = GET.repeat(3);
    let cut = GET.len() * 5 / 2;
    conversation.reads(&three[..cut]).reads(&three[cut..]).writes(OK).writes(OK).writes(OK);
    let requests = conversation.over_and_exact();
    assert_eq!(bytes_of(&requests), [(GET.len() as u64, OK.len() as u64); 3]);
    let reads: Vec<_> = requests.iter().map(|request| (request.reads, request.shared_reads)).collect();
    assert_eq!(reads, [(1, 1), (0, 1), (1, 1)]);
}

#[test]
fn a_head_in_reads_of_one_byte_is_one_request() {
    let mut conversation = Conversation::new();
    for byte in GET {
        conversation.reads(&[*byte]);
    }
    let read_end_ns = conversation.thread.now_ns;
    let requests = {
        conversation.writes(OK);
        conversation.over_and_exact()
    };
    assert_eq!((&*requests[0].method, &*requests[0].path), ("GET", "/a"));
    assert_eq!(requests[0].reads, GET.len() as u32);
    let read = requests[0].first_byte_ns
        + [Phase::Queue, Phase::Read].map(|phase| requests[0].phase_ns(phase)).iter().sum::<u64>();
    assert_eq!(read, read_end_ns, "read until the head was whole");
}

#[test]
fn an_early_response_and_the_rest_of_the_body_are_one_request_and_the_next_is_another() {
    let mut conversation = Conversation::new();
    conversation.reads(b"POST / HTTP/1.1\r\ncontent-length: 30\r\n\r\nGET ").writes(OK);
    conversation.reads(b"GET /x HTTP/1.1\r\n\r\n1234567").reads(GET).writes(OK);
    let requests = conversation.over_and_exact();
    assert_eq!(requests.len(), 2);
    assert_eq!((&*requests[0].path, requests[0].reads), ("/", 2));
    assert_eq!((&*requests[1].path, requests[1].reads), ("/a", 1));
}

#[test]
fn a_body_whose_bytes_were_not_kept_is_still_delimited() {
    let mut conversation = Conversation::new();
    let head = format!("POST /up HTTP/1.1\r\ncontent-length: {}\r\n\r\n", 10 * HEAD_BYTES);
    conversation.reads_first_of(head.as_bytes(), head.len() + HEAD_BYTES);
    conversation.reads_first_of(&[b'x'; HEAD_BYTES], 9 * HEAD_BYTES);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 4 * HEAD_BYTES);
    conversation.writes(answer.as_bytes()).writes_first_of(&[], 4 * HEAD_BYTES);
    assert_eq!(conversation.requests.len(), 1);
    let requests = conversation.over_and_exact();
    assert_eq!((requests[0].reads, requests[0].writes), (2, 2));
}

#[test]
fn chunks_are_followed_while_their_sizes_are_kept() {
    let mut conversation = Conversation::new();
    let chunk = 3 * HEAD_BYTES;
    conversation.reads(GET).writes(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    let size = format!("{chunk:x}\r\n");
    conversation.writes_first_of(size.as_bytes(), size.len() + chunk + 2);
    conversation.writes(b"5\r\nhello\r\n").writes(b"0\r\n");
    assert!(conversation.requests.is_empty());
    conversation.writes(b"\r\n");
    assert_eq!(conversation.requests.len(), 1);
    assert_eq!(conversation.over_and_exact()[0].writes, 5);
}

#[test]
fn chunks_whose_sizes_were_not_kept_end_with_the_next_turn() {
    let mut conversation = Conversation::new();
    let head: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    conversation.reads(GET).writes_first_of(head, head.len() + 20).writes_first_of(b"", 50);
    assert!(conversation.requests.is_empty());
    conversation.reads(GET);
    assert_eq!(conversation.requests.len(), 1, "the client takes turns");
    conversation.writes(OK);
    let (requests, ledger) = conversation.over();
    assert_eq!(requests[0].inference, Some(Inference::ResponseChunksUnseen));
    assert_eq!((requests[0].writes, requests[0].status), (2, 200));
    assert_eq!(requests[1].inference, None);
    assert_eq!(ledger.inferred_by[&Inference::ResponseChunksUnseen], 1);
}

#[test]
fn an_interim_response_is_not_the_response() {
    let mut conversation = Conversation::new();
    conversation.reads(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
    conversation.writes(b"HTTP/1.1 100 Continue\r\n\r\n").reads(b"hi");
    assert!(conversation.requests.is_empty());
    conversation.writes(OK);
    let requests = conversation.over_and_exact();
    let request = &requests[0];
    assert_eq!((request.status, request.writes, request.reads), (200, 2, 2));
    assert_eq!(request.phase_ns(Phase::App), 100 + 9_000 + 100 + 2_000 + 100);
    assert_eq!(request.states[Phase::App as usize].own_cpu_ns, request.phase_ns(Phase::App));
    assert_eq!(request.cpu.app_syscall_ns, 9_000, "the interim write is work of the handler");
    assert_eq!(request.phase_ns(Phase::Write), 9_000);
}

#[test]
fn interim_and_final_response_in_one_write() {
    let mut conversation = Conversation::new();
    conversation.reads(GET).writes(&[b"HTTP/1.1 103 Early Hints\r\n\r\n", OK].concat());
    let requests = conversation.over_and_exact();
    assert_eq!((requests[0].status, requests[0].writes), (200, 1));
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let mut conversation = Conversation::new();
    conversation.reads(b"HEAD / HTTP/1.1\r\n\r\n").writes(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n");
    conversation.reads(GET).writes(b"HTTP/1.1 304 X\r\ncontent-length: 9\r\n\r\n");
    conversation.reads(GET).writes(b"HTTP/1.1 204 X\r\n\r\n");
    assert_eq!(conversation.requests.len(), 3);
    let statuses: Vec<_> = conversation.over_and_exact().iter().map(|request| request.status).collect();
    assert_eq!(statuses, [200, 304, 204]);
}

#[test]
fn a_response_without_a_length_ends_with_the_connection() {
    let mut conversation = Conversation::new();
    conversation.reads(GET).writes(b"HTTP/1.0 200 OK\r\n\r\n").writes(b"and so on");
    assert!(conversation.requests.is_empty());
    conversation.destroyed();
    assert_eq!(conversation.requests.len(), 1);
    assert_eq!(conversation.over_and_exact()[0].writes, 2);
}

#[test]
fn a_response_the_connection_cuts_is_inferred() {
    for cut in 1..OK.len() {
        let mut conversation = Conversation::new();
        conversation.reads(GET).writes(&OK[..cut]).destroyed();
        let (requests, _) = conversation.over();
        assert_eq!(requests[0].inference, Some(Inference::ResponseCut), "cut at {cut}");
    }
}

#[test]
fn a_request_the_connection_cuts_is_no_traced_request() {
    for cut in 1..GET.len() {
        let mut conversation = Conversation::new();
        conversation.reads(&GET[..cut]).destroyed();
        let (requests, ledger) = conversation.over();
        assert!(requests.is_empty());
        assert_eq!(ledger.mid_flight, 1, "cut at {cut}");
    }
}

#[test]
fn after_an_upgrade_nothing_is_http() {
    let mut conversation = Conversation::new();
    conversation.reads(b"GET /ws HTTP/1.1\r\nupgrade: websocket\r\n\r\n");
    conversation.writes(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n");
    assert_eq!(conversation.requests.len(), 1);
    conversation.reads(GET).writes(OK);
    let (requests, ledger) = conversation.over();
    assert_eq!((requests.len(), requests[0].status, ledger.upgraded_connections), (1, 101, 1));
    assert_eq!((ledger.unmatched_edges, ledger.inferred), (0, 0));
}

#[test]
fn the_preface_of_http_2_is_recognised_at_every_cut() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for cut in 0..preface.len() {
        let mut conversation = Conversation::new();
        if cut > 0 {
            conversation.reads(&preface[..cut]);
        }
        conversation.reads(&preface[cut..]).writes(b"\0\0\0\x04\0\0\0\0\0").reads(GET).writes(OK);
        let (requests, ledger) = conversation.over();
        assert!(requests.is_empty(), "cut at {cut}");
        assert_eq!((ledger.http2_connections, ledger.unmatched_edges), (1, 0), "cut at {cut}");
    }
}

#[test]
fn tls_takes_turns() {
    for mut conversation in [Conversation::new(), Conversation::attached_late()] {
        let data = b"\x17\x03\x03\x00\x20not to be read";
        conversation.reads(data).writes(data).writes(data).reads(data).reads(data).writes(data);
        let (requests, ledger) = conversation.over();
        let counts: Vec<_> = requests.iter().map(|request| (request.reads, request.writes)).collect();
        assert_eq!(counts, [(1, 2), (2, 1)]);
        assert!(requests.iter().all(|request| request.inference == Some(Inference::NotHttp)));
        assert_eq!((ledger.opaque_connections, ledger.malformed_requests), (1, 0));
    }
}

#[test]
fn noise_that_a_server_of_http_refuses_is_no_request() {
    for noise in [&b"\x16\x03\x01\x02\x00\x01"[..], b"GET\r\n\r\n", b"hello\r\n\r\n", &[0xff; HEAD_BYTES]] {
        let mut conversation = Conversation::new();
        conversation.reads(noise).writes(b"HTTP/1.1 400 Bad Request\r\n\r\n").destroyed();
        let (requests, ledger) = conversation.over();
        assert!(requests.is_empty(), "{noise:?}");
        assert_eq!((ledger.malformed_requests, ledger.opaque_connections), (1, 0), "{noise:?}");
        assert_eq!((ledger.mid_flight, ledger.unmatched_edges), (0, 0), "{noise:?}");
    }
}

#[test]
fn bytes_after_the_end_are_no_request() {
    let mut conversation = Conversation::new();
    conversation.reads(&[GET, b"\r\n\x01\x02"].concat()).writes(OK);
    conversation.writes(b"HTTP/1.1 400 Bad Request\r\n\r\n").reads(b"\x03");
    let (requests, ledger) = conversation.over();
    assert_eq!((requests.len(), requests[0].status), (1, 200));
    assert_eq!((ledger.malformed_requests, ledger.unmatched_edges, ledger.mid_flight), (1, 0, 0));
}

#[test]
fn a_response_that_goes_on_after_its_end_has_its_length_and_the_rest_is_counted() {
    let mut conversation = Conversation::new();
    conversation.reads(GET).writes(&[OK, b"more"].concat()).writes(b"and more").reads(GET).writes(OK);
    let (requests, ledger) = conversation.over();
    assert_eq!(bytes_of(&requests), [(GET.len() as u64, OK.len() as u64); 2]);
    assert_eq!(ledger.unmatched_edges, 2);
}

#[test]
fn a_request_with_a_wrong_field_is_a_request_and_inferred() {
    let mut conversation = Conversation::new();
    conversation
        .reads(b"GET /a HTTP/1.1\r\nno field\r\n\r\n")
        .writes(b"HTTP/1.1 400 X\r\ncontent-length: 0\r\n\r\n");
    let (requests, _) = conversation.over();
    assert_eq!((&*requests[0].path, requests[0].status), ("/a", 400));
    assert_eq!(requests[0].inference, Some(Inference::RequestMalformed));
}

/// A request head of about 64 KiB in reads of 16 KiB.
#[test]
fn a_head_longer_than_what_is_kept_ends_by_turn_taking() {
    let mut head = b"GET /long HTTP/1.1\r\nx: ".to_vec();
    head.resize(HEAD_BYTES, b'y');
    let mut conversation = Conversation::new();
    conversation.reads_first_of(&head, 16_384);
    for _ in 0..3 {
        conversation.reads_first_of(&[b'y'; HEAD_BYTES], 16_384);
    }
    conversation.writes(b"HTTP/1.1 431 X\r\ncontent-length: 0\r\n\r\n").reads(GET).writes(OK);
    let (requests, ledger) = conversation.over();
    let told: Vec<_> =
        requests.iter().map(|request| (&*request.path, request.reads, request.inference)).collect();
    assert_eq!(told, [("/long", 4, Some(Inference::HeadUnseen)), ("/a", 1, None)]);
    assert_eq!(requests[0].bytes_in, 65_536);
    assert_eq!((ledger.unmatched_edges, ledger.malformed_requests), (0, 0));
}

/// More pipelined requests than are kept of their read, answered one by one.
#[test]
fn pipelined_requests_nobody_saw_are_told_by_their_responses() {
    let count = HEAD_BYTES / GET.len() + 4;
    let all = GET.repeat(count);
    let mut conversation = Conversation::new();
    conversation.reads_first_of(&all[..HEAD_BYTES], all.len());
    for _ in 0..count {
        conversation.writes(OK);
    }
    conversation.reads(GET).writes(OK);
    let (requests, ledger) = conversation.over();
    assert_eq!(requests.len(), count + 1);
    assert!(requests.iter().all(|request| request.status == 200 && request.writes == 1));
    assert_eq!(requests[HEAD_BYTES / GET.len() - 1].inference, None);
    assert_eq!(requests[count - 1].inference, Some(Inference::RequestUnseen));
    assert_eq!(requests[count].inference, None);
    assert_eq!((ledger.unmatched_edges, ledger.mid_flight), (0, 0));
}

/// More responses than are kept of their write: those that were not seen are taken to be in it.
#[test]
fn a_batch_of_responses_longer_than_what_is_kept_answers_all_of_its_requests() {
    let count = HEAD_BYTES / OK.len() + 4;
    let mut conversation = Conversation::new();
    for _ in 0..count {
        conversation.reads(GET);
    }
    let all = OK.repeat(count);
    conversation.writes_first_of(&all[..HEAD_BYTES], all.len()).reads(GET).writes(OK);
    let (requests, ledger) = conversation.over();
    assert_eq!(requests.len(), count + 1);
    assert_eq!(requests[0].inference, None);
    assert_eq!(requests[count - 1].inference, Some(Inference::ResponseUnseen));
    assert_eq!(requests[count].inference, None);
    assert_eq!(requests.iter().map(|request| request.writes).sum::<u32>(), 2);
    assert_eq!((ledger.unmatched_edges, ledger.mid_flight), (0, 0));
}

#[test]
fn a_pipelined_byte_that_joined_waiting_ones_is_dated_by_the_last_of_them() {
    let mut conversation = Conversation::new();
    let first_ns = conversation.thread.now_ns;
    conversation.wire.arrives(first_ns, 2 * GET.len() as u32);
    conversation.thread.runs(500);
    let both = GET.repeat(2);
    let mut edge =
        conversation.thread.call(RecordKind::Read, &mut conversation.wire, 2_000, both.len() as i64, &both);
    edge.last_ready_ns = first_ns + 300;
    feed(&mut conversation.attribution, &Record::Edge(edge), &mut conversation.requests);
    conversation.writes(OK).writes(OK);
    let (requests, _) = conversation.over();
    let told: Vec<_> = requests.iter().map(|request| (request.first_byte_ns, request.inference)).collect();
    assert_eq!(told, [(first_ns, None), (first_ns + 300, Some(Inference::ArrivalShared))]);
}
