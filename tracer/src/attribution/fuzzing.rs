//! Attribution of whatever bytes there are: the body of the fuzz target under `fuzz/`, and of a property test.

use tracer_common::records::{Arrival, Edge, HEAD_BYTES, Lifecycle, RecordKind, Sleep, ThreadClock};

use super::Attribution;
use crate::{
    probe::reader::Record,
    recording::{Phase, Request},
};

/// What the bytes say of one record.
struct Said<'a> {
    kind: RecordKind,
    is_lost: bool,
    connection: usize,
    thread: usize,
    passes_ns: u64,
    unseen_bytes: u64,
    payload: &'a [u8],
}

impl<'a> Said<'a> {
    /// Four bytes and a payload off the front of `data`.
    fn next(data: &mut &'a [u8]) -> Option<Self> {
        let (&[what, who, time, length], rest) = data.split_first_chunk()?;
        let (payload, rest) = rest.split_at(usize::from(length).min(rest.len()));
        *data = rest;
        let kind = match what % 8 {
            0..=2 => RecordKind::Read,
            3..=5 => RecordKind::Write,
            6 => RecordKind::Accept,
            _ => RecordKind::Destroy,
        };
        Some(Self {
            kind,
            is_lost: what >= 248,
            connection: usize::from(who & 1),
            thread: usize::from(who >> 1 & 1),
            passes_ns: u64::from(time) * 1_000,
            unseen_bytes: if who & 0x80 != 0 { u64::from(who) } else { 0 },
            payload,
        })
    }
}

/// Reads `data` as the records of two connections and two threads, and checks what must hold whatever they say.
///
/// # Panics
/// When attribution is not sound: that is what this is for.
pub fn attribute_anything(mut data: &[u8]) {
    let mut attribution = Attribution::new(false);
    let (mut now_ns, mut cpu_ns, mut sequences) = (1_000, [0; 2], [0; 2]);
    let mut moved_bytes = [0, 0];
    let mut told_bytes = [0, 0];
    let mut check = |request: Request| {
        assert_eq!(request.wall_ns(), request.end_ns - request.first_byte_ns, "{request:?}");
        for phase in Phase::ALL {
            assert_eq!(request.states[phase as usize].total_ns(), request.phase_ns(phase), "{request:?}");
        }
        assert_eq!(
            request.reads.min(1) + request.shared_reads.min(1) > 0,
            request.bytes_in > 0,
            "{request:?}"
        );
        told_bytes[0] += request.bytes_in;
        told_bytes[1] += request.bytes_out;
    };
    while let Some(said) = Said::next(&mut data) {
        let sequence = &mut sequences[said.connection];
        *sequence += 1 + u32::from(said.is_lost);
        let enter_ns = now_ns + said.passes_ns;
        now_ns = enter_ns + 100;
        let cpu = &mut cpu_ns[said.thread];
        let connection_id = said.connection as u64 + 1;
        match said.kind {
            RecordKind::Read | RecordKind::Write => {
                let edge = edge(&said, connection_id, *sequence, enter_ns, *cpu);
                *cpu += 100;
                // Reads that return nothing are not recorded.
                moved_bytes[usize::from(said.kind == RecordKind::Write)] += edge.result as u64;
                attribution.take(&Record::Edge(&edge), &mut check);
            }
            kind => {
                let record = lifecycle(kind, connection_id, *sequence, enter_ns);
                attribution.take(&Record::Lifecycle(&record), &mut check);
                if kind == RecordKind::Destroy {
                    *sequence = 0;
                }
            }
        }
    }
    attribution.finish(&mut check);
    let ledger = &attribution.tally.ledger;
    assert_eq!(ledger.defects, 0, "{:?}", ledger.defect_example);
    assert!(told_bytes[0] <= moved_bytes[0] && told_bytes[1] <= moved_bytes[1], "bytes are counted once");
}

fn edge(said: &Said, connection_id: u64, sequence: u32, enter_ns: u64, cpu_ns: u64) -> Edge {
    let kept = &said.payload[..said.payload.len().min(HEAD_BYTES)];
    let mut head = [0; HEAD_BYTES];
    head[..kept.len()].copy_from_slice(kept);
    Edge {
        kind: said.kind as u8,
        flags: 0,
        call: 0,
        sequence,
        connection_id,
        tid: said.thread as u32,
        tgid: 1,
        enter_ns,
        exit_ns: enter_ns + 100,
        result: (said.payload.len() as u64 + said.unseen_bytes) as i64,
        iovecs: 1,
        local_port: 80,
        remote_port: connection_id as u16,
        at_enter: ThreadClock { cpu_ns, ..ThreadClock::default() },
        exit_cpu_ns: cpu_ns + 100,
        exit_run_queue_ns: 0,
        sleep: Sleep::default(),
        arrival: Arrival::default(),
        previous_arrival: Arrival::default(),
        last_ready_ns: 0,
        end_sequence: 0,
        unsent_bytes: 0,
        delivered_ns: 0,
        delivered_cpu_ns: 0,
        head_len: kept.len() as u32,
        reserved: 0,
        head,
    }
}

fn lifecycle(kind: RecordKind, connection_id: u64, sequence: u32, at_ns: u64) -> Lifecycle {
    Lifecycle {
        kind: kind as u8,
        reserved: 0,
        call: 0,
        sequence,
        connection_id,
        tid: 1,
        tgid: 1,
        established_ns: 0,
        enter_ns: at_ns,
        exit_ns: at_ns,
        local_port: 80,
        remote_port: connection_id as u16,
        end_sequence: 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    const PAYLOADS: [&[u8]; 14] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 20\r\n\r\nGET ",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01",
        b"HTTP/1.1 200 X\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 X\r\n\r\n",
        b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 100 X\r\n\r\n",
        b"HTTP/1.1 101 X\r\n\r\n",
        b"0\r\n\r\n",
        b"",
    ];

    /// A record whose payload means something, most of the time.
    fn record() -> impl Strategy<Value = Vec<u8>> {
        let payload = prop_oneof![
            4 => select(&PAYLOADS).prop_map(<[u8]>::to_vec),
            1 => vec(any::<u8>(), 0..40),
        ];
        (any::<[u8; 3]>(), payload, any::<prop::sample::Index>(), any::<bool>()).prop_map(
            |([what, who, time], mut payload, cut, is_cut)| {
                if is_cut && !payload.is_empty() {
                    payload.truncate(cut.index(payload.len()) + 1);
                }
                let mut record = vec![what, who, time, payload.len() as u8];
                record.extend(payload);
                record
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn attribution_is_sound_whatever_the_bytes(records in vec(record(), 0..40)) {
            attribute_anything(&records.concat());
        }
    }
}
