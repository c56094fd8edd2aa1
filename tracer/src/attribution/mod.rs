//! From records to requests: online, in bounded memory, without kernel or clock.

mod connection;
mod exchange;
mod head;
pub mod join;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::HashMap;

use tracer_common::records::{Edge, Lifecycle, RecordKind};

use crate::{
    probe::reader::Record,
    recording::{Ledger, Request},
};
use connection::{Connection, Outcome};
use exchange::Exchange;
use head::HeadReader;
use thread::{Moment, Stretch, Threads};

/// Turns records, in ring order, into requests.
pub struct Attribution {
    connections: HashMap<u64, Connection>,
    threads: Threads,
    heads: HeadReader,
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
    /// Process ids that joined by fork.
    pub forked: Vec<u32>,
    /// Process ids that ended.
    pub exited: Vec<u32>,
}

impl Attribution {
    /// `keeps_query`: keep query strings in paths.
    pub fn new(keeps_query: bool) -> Self {
        Self {
            connections: HashMap::new(),
            threads: Threads::default(),
            heads: HeadReader::new(keeps_query),
            tally: Tally::default(),
        }
    }

    /// Takes one record; gives the requests it ended to `emit`.
    pub fn take(&mut self, record: &Record, emit: &mut impl FnMut(Request)) {
        match record {
            Record::Edge(edge) => self.edge(edge, emit),
            Record::Lifecycle(lifecycle) => self.lifecycle(lifecycle, emit),
        }
    }

    /// Ends every open request: answered ones are given to `emit`, the others are counted as in flight.
    pub fn finish(&mut self, emit: &mut impl FnMut(Request)) {
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            self.close(id, emit);
        }
    }

    fn edge(&mut self, edge: &Edge, emit: &mut impl FnMut(Request)) {
        let is_read = edge.kind == RecordKind::Read as u8;
        if let Some(stretch) = self.threads.stretch_before(edge) {
            self.charge(&stretch, edge, is_read);
        }
        let connection = self.connections.entry(edge.connection_id).or_insert_with(|| {
            self.tally.connections += 1;
            Connection::new(edge.local_port, edge.remote_port)
        });
        let outcome = if is_read {
            connection.read(edge, &mut self.heads, &self.threads)
        } else {
            connection.write(edge)
        };
        let ports = (connection.local_port, connection.remote_port);
        self.threads.ended(edge.tid, Moment::end_of(edge, is_read));
        self.settle(outcome, ports, emit);
    }

    /// Charges the CPU since the thread's last record by what began the stretch and what ends it.
    fn charge(&mut self, stretch: &Stretch, edge: &Edge, is_read: bool) {
        let began = stretch.after.connection_id;
        let same = began == edge.connection_id;
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
                    Connection::new(record.local_port, record.remote_port)
                });
                let ports = (connection.local_port, connection.remote_port);
                let outcome = connection.accepted(record);
                self.settle(outcome, ports, emit);
            }
            Some(RecordKind::Drained) => {
                if let Some(connection) = self.connections.get_mut(&record.connection_id) {
                    connection.drained(record);
                }
            }
            Some(RecordKind::Destroy) => self.close(record.connection_id, emit),
            Some(RecordKind::Fork) => self.tally.forked.push(record.tid),
            Some(RecordKind::Exit) => self.tally.exited.push(record.tgid),
            Some(RecordKind::Read | RecordKind::Write) | None => {}
        }
    }

    fn close(&mut self, id: u64, emit: &mut impl FnMut(Request)) {
        let Some(mut connection) = self.connections.remove(&id) else {
            return;
        };
        let (answered, unanswered) = connection.close();
        self.tally.ledger.mid_flight += unanswered;
        for exchange in answered {
            self.finished(exchange, (connection.local_port, connection.remote_port), emit);
        }
    }

    fn settle(&mut self, outcome: Outcome, ports: (u16, u16), emit: &mut impl FnMut(Request)) {
        self.tally.ledger.lost_ring_full += outcome.spoiled;
        self.tally.ledger.unmatched_edges += u64::from(outcome.unmatched);
        if let Some(exchange) = outcome.finished {
            self.finished(exchange, ports, emit);
        }
    }

    fn finished(
        &mut self,
        exchange: Exchange,
        (local_port, remote_port): (u16, u16),
        emit: &mut impl FnMut(Request),
    ) {
        match exchange.attribute(local_port, remote_port) {
            Ok(request) => {
                self.tally.ledger.traced += 1;
                self.tally.ledger.inferred += u64::from(request.grade == crate::recording::Grade::Inferred);
                self.tally.charged_cpu_ns += request.cpu.total_ns();
                emit(request);
            }
            Err(defect) => {
                self.tally.ledger.defects += 1;
                self.tally.ledger.defect_example.get_or_insert(defect);
            }
        }
    }
}
