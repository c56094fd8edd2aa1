//! From records to requests: online, in bounded memory, without kernel or clock.

mod arrivals;
mod call;
#[cfg(test)]
mod closure_tests;
mod connection;
#[cfg(test)]
mod connection_tests;
mod downstream;
mod exchange;
mod framing;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod head;
pub mod join;
mod marks;
mod states;
#[cfg(test)]
mod tests;
mod thread;

use ahash::HashMap;

use tracer_common::records::{self, Edge, Lifecycle, RecordKind};

use crate::{
    probe::reader::Record,
    recording::{Ledger, Request},
};
use connection::{Around, Connection, Ports};
use downstream::{Downstream, Known, Owner, State};
pub use exchange::Awaited;
use exchange::Exchange;
use head::HeadReader;
use thread::{Moment, Stretch, Threads};

/// Turns records, in the order of their times, into requests.
pub struct Attribution {
    connections: HashMap<u64, Connection>,
    threads: Threads,
    heads: HeadReader,
    awaited: Awaited,
    downstream: Downstream,
    /// Requests that are not given out yet.
    open: u64,
    /// The request begun last.
    newest: Option<Owner>,
    /// Counts so far; the session adds what only it knows.
    pub tally: Tally,
}

/// What attribution counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ledger of the requests.
    pub ledger: Ledger,
    /// CPU nanoseconds charged to requests.
    pub charged_cpu_ns: u64,
    /// Connections seen.
    pub connections: u64,
    /// Connections accepted whose handshake was seen.
    pub accepted: u64,
    /// Sum of their waits from ESTABLISHED to accept, nanoseconds.
    pub accept_wait_ns: u64,
    /// Requests in mid-flight that ended unanswered since the caller last took them away.
    pub unanswered: Vec<Unanswered>,
    /// Process ids that joined by fork.
    pub forked: Vec<u32>,
    /// Process ids that ended.
    pub exited: Vec<u32>,
}

/// A request that was never answered, as far as was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The connection: unique within the run.
    pub connection_id: u64,
    /// The client's port.
    pub remote_port: u16,
    /// When its first byte could be read.
    pub first_byte_ns: u64,
}

impl Tally {
    /// Adds the counts of another window.
    pub fn merge(&mut self, other: Self) {
        self.ledger.merge(&other.ledger);
        self.charged_cpu_ns += other.charged_cpu_ns;
        self.connections += other.connections;
        self.accepted += other.accepted;
        self.accept_wait_ns += other.accept_wait_ns;
        self.unanswered.extend(other.unanswered);
        self.forked.extend(other.forked);
        self.exited.extend(other.exited);
    }
}

impl Attribution {
    /// `keeps_query`: keep query strings in paths.
    pub fn new(keeps_query: bool) -> Self {
        Self {
            connections: HashMap::default(),
            threads: Threads::default(),
            heads: HeadReader::new(keeps_query),
            awaited: Awaited::default(),
            downstream: Downstream::default(),
            open: 0,
            newest: None,
            tally: Tally::default(),
        }
    }

    /// What records tell of after a request's last write: it is given out only with them.
    pub fn awaiting(self, awaited: Awaited) -> Self {
        Self { awaited, ..self }
    }

    /// Takes one record; gives the requests it ended to `emit`.
    pub fn take(&mut self, record: &Record, emit: &mut impl FnMut(Request)) {
        match record {
            Record::Edge(edge) => self.edge(edge, emit),
            Record::Lifecycle(lifecycle) => self.lifecycle(lifecycle, emit),
            Record::Downstream(call) => self.downstream(call),
        }
    }

    /// Ends every open request: answered ones are given to `emit`, the others are counted as in flight.
    pub fn finish(&mut self, emit: &mut impl FnMut(Request)) {
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            self.close(id, false, emit);
        }
    }

    fn edge(&mut self, edge: &Edge, emit: &mut impl FnMut(Request)) {
        let is_read = edge.kind == RecordKind::Read as u8;
        if let Some(stretch) = self.threads.stretch_before(edge) {
            self.charge(&stretch, edge, is_read);
        }
        let connection = self.connections.entry(edge.connection_id).or_insert_with(|| {
            self.tally.connections += 1;
            Connection::new(Ports { local: edge.local_port, remote: edge.remote_port })
        });
        let mut around =
            Around { heads: &mut self.heads, threads: &self.threads, ledger: &mut self.tally.ledger };
        let newest_before = connection.newest();
        if is_read {
            connection.read(edge, &mut around);
            if connection.newest() != newest_before {
                let owner = |index| Owner { connection_id: edge.connection_id, index };
                self.newest = connection.newest().map(owner);
                if let Some(newest) = self.newest {
                    self.downstream.begun(edge.tid, newest);
                }
            }
        } else {
            connection.write(edge, &mut around);
        }
        self.threads.ended(edge.tid, Moment::end_of(edge, is_read));
        give_out(connection, self.awaited, &mut self.open, &mut self.tally, emit);
    }

    /// A call on a connection the target opened belongs to the request its thread works on.
    fn downstream(&mut self, call: &records::Downstream) {
        let connections = &self.connections;
        let last_read = self.threads.last(call.tid).filter(|moment| moment.is_read).and_then(|moment| {
            let connection_id = moment.connection_id;
            let index = connections.get(&connection_id)?.newest()?;
            Some((moment.at_ns, Owner { connection_id, index }))
        });
        let known = Known { open: self.open, newest: self.newest, last_read };
        let state = |owner: Owner| {
            let request = connections.get(&owner.connection_id).and_then(|c| c.request(owner.index));
            request.map_or(State::Over, Exchange::downstream_state)
        };
        let used = self.downstream.take(call, known, state);
        let is_owned = used.is_some_and(|used| {
            let connection = self.connections.get_mut(&used.owner.connection_id);
            connection.is_some_and(|connection| connection.used_downstream(used))
        });
        self.tally.ledger.downstream_calls += 1;
        self.tally.ledger.downstream_unowned += u64::from(!is_owned);
    }

    /// Charges the CPU since the thread's last record by what began the stretch and what ends it.
    fn charge(&mut self, stretch: &Stretch, edge: &Edge, is_read: bool) {
        let began = stretch.after.connection_id;
        let same = began == edge.connection_id;
        let goes_on = same
            && !stretch.after.is_read
            && self.connections.get(&began).is_some_and(Connection::is_at_work);
        let mut charge = |id: u64, cpu| {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.charge(cpu);
            }
        };
        match (stretch.after.is_read, is_read) {
            // read A ... write A: parse and handler of A, asleep in between or not.
            (true, false) if same => {
                charge(began, stretch.before_sleep);
                charge(began, stretch.after_sleep);
            }
            // write A ... write A, read A ... read A: more of the same request.
            (false, false) | (true, true) if same => {
                charge(began, stretch.before_sleep);
                charge(began, stretch.after_sleep);
            }
            // read A ... anything of B: A until the thread slept, then B if it is answered now.
            (true, _) => {
                charge(began, stretch.before_sleep);
                if !is_read {
                    charge(edge.connection_id, stretch.after_sleep);
                }
            }
            // write A ... write B: B's answer; before a sleep, nobody's.
            (false, false) => {
                charge(
                    edge.connection_id,
                    if stretch.slept { stretch.after_sleep } else { stretch.before_sleep },
                );
            }
            // write A ... read A, A not over: its response or its body goes on.
            (false, true) if goes_on => {
                charge(began, stretch.before_sleep);
                charge(began, stretch.after_sleep);
            }
            // write A ... read: the event loop's own.
            (false, true) => {}
        }
    }

    fn lifecycle(&mut self, record: &Lifecycle, emit: &mut impl FnMut(Request)) {
        match RecordKind::from_byte(record.kind) {
            Some(RecordKind::Accept) => {
                if record.established_ns != 0 {
                    self.tally.accepted += 1;
                    self.tally.accept_wait_ns += record.exit_ns.saturating_sub(record.established_ns);
                }
                let connection = self.connections.entry(record.connection_id).or_insert_with(|| {
                    self.tally.connections += 1;
                    Connection::new(Ports { local: record.local_port, remote: record.remote_port })
                });
                connection.accepted(record, &mut self.tally.ledger);
                give_out(connection, self.awaited, &mut self.open, &mut self.tally, emit);
            }
            Some(RecordKind::Drained) => {
                if let Some(connection) = self.connections.get_mut(&record.connection_id) {
                    connection.drained(record);
                    give_out(connection, self.awaited, &mut self.open, &mut self.tally, emit);
                }
            }
            Some(RecordKind::Acked) => {
                if let Some(connection) = self.connections.get_mut(&record.connection_id) {
                    connection.acked(record);
                    give_out(connection, self.awaited, &mut self.open, &mut self.tally, emit);
                }
            }
            Some(RecordKind::Destroy) => self.close(record.connection_id, true, emit),
            Some(RecordKind::Fork) => self.tally.forked.push(record.tid),
            Some(RecordKind::Exit) => self.tally.exited.push(record.tgid),
            Some(RecordKind::Read | RecordKind::Write | RecordKind::Downstream) | None => {}
        }
    }

    fn close(&mut self, id: u64, destroyed: bool, emit: &mut impl FnMut(Request)) {
        let Some(mut connection) = self.connections.remove(&id) else {
            self.downstream.destroyed(id);
            return;
        };
        let closed = connection.close(destroyed, &mut self.tally.ledger);
        self.open = self.open.wrapping_add_signed(connection.newly_open());
        for exchange in closed.answered {
            attribute(&exchange, connection.ports, &mut self.tally, emit);
        }
        for exchange in closed.unanswered {
            self.tally.ledger.mid_flight += 1;
            self.tally.unanswered.push(Unanswered {
                connection_id: id,
                remote_port: connection.ports.remote,
                first_byte_ns: exchange.first_byte_ns(),
            });
        }
    }
}

/// Gives out the requests of a connection that are over, and counts in those that are newly open.
fn give_out(
    connection: &mut Connection,
    awaited: Awaited,
    open: &mut u64,
    tally: &mut Tally,
    emit: &mut impl FnMut(Request),
) {
    let ports = connection.ports;
    connection.give_out(awaited, |exchange| attribute(exchange, ports, tally, emit));
    *open = open.wrapping_add_signed(connection.newly_open());
}

fn attribute(exchange: &Exchange, ports: Ports, tally: &mut Tally, emit: &mut impl FnMut(Request)) {
    match exchange.attribute(ports) {
        Ok(request) => {
            tally.ledger.traced += 1;
            if let Some(inference) = request.inference {
                tally.ledger.inferred += 1;
                *tally.ledger.inferred_by.entry(inference).or_default() += 1;
            }
            tally.charged_cpu_ns += request.cpu.total_ns();
            emit(request);
        }
        Err(defect) => {
            tally.ledger.defects += 1;
            tally.ledger.defect_example.get_or_insert(defect);
        }
    }
}
