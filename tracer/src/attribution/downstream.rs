//! Whom a request waited for: the connections the target opened itself, to a database for example, by turn-taking.
//!
//! A write after an answer, or the first one, begins a round trip; the first bytes read after it end its wait. Whose it
//! is, is told by what its thread did last:
//!
//! - it read a request: that one's;
//! - it read an answer, so that a connection became free: the oldest request of this thread that has asked nobody yet
//!   (pools serve who came first), or when there is none, the request that was answered;
//! - neither: the only request that is open.
//!
//! Where several requests were open and the thread did not itself wait for the answer, these rules can be wrong: such
//! round trips are counted as inferred.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::sync::Arc;

use ahash::HashMap;

use tracer_common::records;

use crate::recording::DownstreamPeer;

/// Fresh requests kept of one thread; beyond that the oldest are forgotten.
const FRESH_KEPT: usize = 16_384;

/// A request: its connection, and its ordinal there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub connection_id: u64,
    pub index: u32,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has asked nobody downstream.
    Fresh,
    /// It has.
    Asked,
    /// Its response is out.
    Over,
}

/// What is known of requests when a call was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Requests that are open.
    pub open: u64,
    /// The one that was begun last.
    pub newest: Option<Owner>,
    /// The request whose bytes the thread's last record on a served connection read, and when.
    pub last_read: Option<(u64, Owner)>,
}

/// What one call adds to its request.
#[derive(Clone, Debug)]
pub struct Use {
    pub owner: Owner,
    pub adds: DownstreamPeer,
    /// When the call that sends was entered; zero: it receives.
    pub sent_ns: u64,
}

/// Every connection the target opened, and what its threads go on with.
#[derive(Default)]
pub struct Downstream {
    sockets: HashMap<u64, Socket>,
    /// The target has asked somebody.
    is_used: bool,
    /// By thread: the request whose answer it read last, and when.
    resumed: HashMap<u32, (u64, Owner)>,
    /// By thread that read them: requests that may not have asked anybody yet, oldest first.
    fresh: HashMap<u32, VecDeque<Owner>>,
}

struct Socket {
    peer: Arc<str>,
    /// Record number expected next.
    next_sequence: u32,
    turn: Option<Turn>,
}

/// A round trip under way, or answered.
#[derive(Clone, Copy)]
struct Turn {
    owner: Owner,
    tid: u32,
    /// End of its last write.
    sent_ns: u64,
    is_answered: bool,
    /// No other request was open when it began.
    is_alone: bool,
}

impl Downstream {
    /// A thread read the first bytes of a request.
    pub fn begun(&mut self, tid: u32, owner: Owner) {
        // Servers that ask nobody need no account of it.
        if self.is_used {
            let fresh = self.fresh.entry(tid).or_default();
            if fresh.len() == FRESH_KEPT {
                fresh.pop_front();
            }
            fresh.push_back(owner);
        }
    }

    /// The socket was destroyed.
    pub fn destroyed(&mut self, connection_id: u64) {
        self.sockets.remove(&connection_id);
    }

    /// Takes a call; `state` tells how far a request is. `None`: it belongs to no request.
    pub fn take(
        &mut self,
        record: &records::Downstream,
        known: Known,
        state: impl Fn(Owner) -> State,
    ) -> Option<Use> {
        self.is_used = true;
        let owner = if record.is_write == 1 { self.at_work(record.tid, known, state) } else { None };
        let socket = self.sockets.entry(record.connection_id).or_insert_with(|| Socket::of(record));
        if socket.next_sequence != record.sequence {
            socket.turn = None;
        }
        socket.next_sequence = record.sequence.wrapping_add(1);
        if record.is_write == 1 {
            return socket.written(record, owner, known.open == 1);
        }
        let used = socket.read(record)?;
        self.resumed.insert(record.tid, (record.exit_ns, used.owner));
        Some(used)
    }
}

impl Downstream {
    /// The request for which a thread sends something.
    fn at_work(&mut self, tid: u32, known: Known, state: impl Fn(Owner) -> State) -> Option<Owner> {
        let resumed = self.resumed.get(&tid).copied();
        let oldest_fresh = self.fresh.get_mut(&tid).and_then(|fresh| {
            while fresh.front().is_some_and(|owner| state(*owner) != State::Fresh) {
                fresh.pop_front();
            }
            fresh.front().copied()
        });
        let at_ns = |seen: Option<(u64, Owner)>| seen.map_or(0, |(at_ns, _)| at_ns);
        let just_read = known.last_read.filter(|_| at_ns(known.last_read) > at_ns(resumed));
        let owner = |seen: Option<(u64, Owner)>| seen.map(|(_, owner)| owner);
        let only = known.newest.filter(|_| known.open == 1);
        let candidates = [owner(just_read), oldest_fresh, owner(resumed), only];
        candidates.into_iter().flatten().find(|owner| state(*owner) != State::Over)
    }
}

impl Socket {
    fn of(record: &records::Downstream) -> Self {
        let address = Ipv6Addr::from(record.remote_address);
        let port = record.remote_port;
        let peer = match address.to_ipv4_mapped() {
            Some(address) => format!("{address}:{port}"),
            None => format!("[{address}]:{port}"),
        };
        Self { peer: peer.into(), next_sequence: record.sequence, turn: None }
    }

    fn written(&mut self, record: &records::Downstream, owner: Option<Owner>, is_alone: bool) -> Option<Use> {
        let begins = self.turn.is_none_or(|turn| turn.is_answered);
        if begins {
            let tid = record.tid;
            self.turn = owner.map(|owner| Turn { owner, tid, sent_ns: 0, is_answered: false, is_alone });
        }
        let turn = self.turn.as_mut()?;
        turn.sent_ns = record.exit_ns;
        let owner = turn.owner;
        let sent_ns = if record.enter_ns == 0 { record.exit_ns } else { record.enter_ns };
        let adds =
            DownstreamPeer { round_trips: u32::from(begins), bytes_out: record.bytes, ..self.nothing() };
        Some(Use { owner, adds, sent_ns })
    }

    fn read(&mut self, record: &records::Downstream) -> Option<Use> {
        let turn = self.turn.as_mut()?;
        let owner = turn.owner;
        if turn.is_answered {
            let adds = DownstreamPeer { bytes_in: record.bytes, ..self.nothing() };
            return Some(Use { owner, adds, sent_ns: 0 });
        }
        turn.is_answered = true;
        let arrived = (turn.sent_ns..=record.exit_ns).contains(&record.arrival_ns);
        let answered_ns = if arrived { record.arrival_ns } else { record.exit_ns };
        let waited_itself = record.tid == turn.tid && record.enter_ns != 0 && record.enter_ns < answered_ns;
        let is_sure = turn.is_alone || waited_itself;
        let wait_ns = answered_ns.saturating_sub(turn.sent_ns);
        let adds = DownstreamPeer {
            wait_ns,
            inferred: u32::from(!is_sure),
            bytes_in: record.bytes,
            ..self.nothing()
        };
        Some(Use { owner, adds, sent_ns: 0 })
    }

    fn nothing(&self) -> DownstreamPeer {
        DownstreamPeer { peer: Arc::clone(&self.peer), ..DownstreamPeer::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracer_common::records::RecordKind;

    const A: Owner = Owner { connection_id: 1, index: 0 };
    const B: Owner = Owner { connection_id: 2, index: 0 };

    #[derive(Default)]
    struct Calls {
        downstream: Downstream,
        sequence: u32,
        last_read: Option<Owner>,
        state: Option<State>,
    }

    impl Calls {
        fn after_a_read_of(owner: Owner) -> Self {
            Self { last_read: Some(owner), ..Self::default() }
        }

        fn call(&mut self, is_write: bool, times: [u64; 3], open: u64) -> Option<Use> {
            self.sequence += 1;
            let [enter_ns, arrival_ns, exit_ns] = times;
            let mut remote_address = [0; 16];
            remote_address[10..].copy_from_slice(&[0xFF, 0xFF, 127, 0, 0, 1]);
            let record = records::Downstream {
                kind: RecordKind::Downstream as u8,
                is_write: u8::from(is_write),
                remote_port: 5432,
                sequence: self.sequence,
                connection_id: 9,
                tid: 7,
                enter_ns,
                exit_ns,
                bytes: 10,
                arrival_ns,
                remote_address,
                reserved: 0,
            };
            let last_read = self.last_read.map(|owner| (1, owner));
            self.downstream.take(&record, Known { open, newest: Some(B), last_read }, |_| {
                self.state.unwrap_or(State::Asked)
            })
        }

        fn write(&mut self, exit_ns: u64, open: u64) -> Option<Use> {
            self.call(true, [exit_ns - 5, 0, exit_ns], open)
        }
    }

    #[test]
    fn a_round_trip_waits_from_its_write_to_the_arrival_of_its_answer() {
        let mut calls = Calls::after_a_read_of(A);
        let write = calls.write(100, 1).unwrap();
        assert_eq!((write.owner, &*write.adds.peer, write.adds.round_trips), (A, "127.0.0.1:5432", 1));
        assert_eq!((write.sent_ns, write.adds.bytes_out), (95, 10));
        let more = calls.write(110, 1).unwrap();
        assert_eq!((more.adds.round_trips, more.adds.bytes_out), (0, 10));
        let read = calls.call(false, [300, 250, 310], 1).unwrap();
        assert_eq!((read.adds.wait_ns, read.adds.inferred, read.adds.bytes_in), (140, 0, 10));
        let rest = calls.call(false, [320, 250, 330], 1).unwrap();
        assert_eq!((rest.adds.wait_ns, rest.adds.bytes_in), (0, 10));
        assert_eq!(calls.write(400, 1).unwrap().adds.round_trips, 1);
    }

    #[test]
    fn with_several_requests_open_only_a_thread_that_waits_itself_is_sure() {
        let mut calls = Calls::after_a_read_of(A);
        calls.write(100, 2);
        assert_eq!(calls.call(false, [300, 250, 310], 2).unwrap().adds.inferred, 1);
        calls.write(400, 2);
        assert_eq!(calls.call(false, [410, 450, 460], 2).unwrap().adds.inferred, 0);
    }

    #[test]
    fn a_connection_that_becomes_free_goes_to_who_waits_longest() {
        let mut calls = Calls::after_a_read_of(A);
        calls.write(100, 2);
        calls.downstream.begun(7, B);
        calls.state = Some(State::Fresh);
        assert_eq!(calls.call(false, [300, 250, 310], 2).unwrap().owner, A);
        assert_eq!(calls.write(400, 2).unwrap().owner, B);
        calls.state = Some(State::Asked);
        calls.call(false, [500, 450, 510], 2);
        calls.call(false, [500, 450, 510], 2);
        assert_eq!(calls.write(600, 2).unwrap().owner, B, "nobody waits: the one that was answered goes on");
    }

    #[test]
    fn a_thread_nothing_is_known_of_works_on_the_only_request_there_is() {
        let mut calls = Calls::default();
        assert!(calls.write(100, 2).is_none());
        assert!(calls.call(false, [300, 250, 310], 2).is_none());
        assert_eq!(calls.write(400, 1).unwrap().owner, B);
    }

    #[test]
    fn after_lost_records_a_read_ends_no_wait() {
        let mut calls = Calls::after_a_read_of(A);
        calls.write(100, 1);
        calls.sequence += 1;
        assert!(calls.call(false, [300, 250, 310], 1).is_none());
    }
}
