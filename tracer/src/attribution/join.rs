//! Joins each traced request with the driver's own times of it: by its connection, in order.
//!
//! The driver tells the port of a connection before the connection carries a request. The first traced connection that
//! shows up on that port later is the driver's; what comes over any other is a request of another client.

use std::collections::VecDeque;

use ahash::HashMap;

use super::Unanswered;
use crate::{
    load::{ClientRecord, Sample},
    recording::{ClientTimes, Request},
};

/// Pairs requests and samples of one connection in the order in which both came.
#[derive(Default)]
pub struct Joiner {
    /// By the client's port.
    ports: HashMap<u16, Port>,
    /// What became of them.
    pub counts: Counts,
}

/// What became of requests and samples.
#[derive(Default)]
pub struct Counts {
    /// Requests joined with a sample.
    pub joined: u64,
    /// Requests, answered or not, of connections that the driver never opened.
    pub other_clients: u64,
    /// Pairs whose times do not contain each other: the driver's send must come before the first byte, the end of
    /// the response before the driver's last read. Each is a defect.
    pub contradictions: u64,
    /// One of them, in words.
    pub contradiction_example: Option<String>,
}

/// The driver's connections from one port: one after the other.
#[derive(Default)]
struct Port {
    /// When those were opened of which nothing was traced yet.
    opened_ns: VecDeque<u64>,
    /// The newest of all that were opened.
    last_opened_ns: u64,
    /// The newest of which something was traced; zero: none.
    connection_id: u64,
    requests: VecDeque<Request>,
    samples: VecDeque<Sample>,
}

impl Joiner {
    /// Takes what the driver tells.
    pub fn client(&mut self, record: ClientRecord, emit: &mut impl FnMut(Request)) {
        match record {
            ClientRecord::Opened { remote_port, at_ns } => {
                self.ports.entry(remote_port).or_default().opened(at_ns)
            }
            ClientRecord::Answered(samples) => {
                for sample in samples {
                    let port = self.ports.entry(sample.remote_port).or_default();
                    port.samples.push_back(sample);
                    port.pair(&mut self.counts, emit);
                }
            }
        }
    }

    /// Takes a traced request.
    pub fn request(&mut self, request: Request, emit: &mut impl FnMut(Request)) {
        let Self { ports, counts } = self;
        match the_drivers(ports, request.connection_id, request.remote_port, request.first_byte_ns) {
            Some(port) => {
                port.requests.push_back(request);
                port.pair(counts, emit);
            }
            None => {
                counts.other_clients += 1;
                emit(request);
            }
        }
    }

    /// Takes a request in mid-flight.
    pub fn unanswered(&mut self, request: Unanswered) {
        let Unanswered { connection_id, remote_port, first_byte_ns } = request;
        let port = the_drivers(&mut self.ports, connection_id, remote_port, first_byte_ns);
        self.counts.other_clients += u64::from(port.is_none());
    }

    /// Gives out what found no partner.
    pub fn finish(&mut self, emit: &mut impl FnMut(Request)) {
        self.ports.drain().flat_map(|(_, port)| port.requests).for_each(emit);
    }
}

/// The port, when this connection is the driver's.
fn the_drivers(
    ports: &mut HashMap<u16, Port>,
    connection_id: u64,
    remote_port: u16,
    first_byte_ns: u64,
) -> Option<&mut Port> {
    let port = ports.get_mut(&remote_port)?;
    port.is_of(connection_id, first_byte_ns).then_some(port)
}

impl Port {
    fn pair(&mut self, counts: &mut Counts, emit: &mut impl FnMut(Request)) {
        while let (Some(request), Some(sample)) = (self.requests.front(), self.samples.front()) {
            // A sample from before the traced window, or of a request that was lost.
            if sample.done_ns < request.first_byte_ns {
                self.samples.pop_front();
                continue;
            }
            let client = ClientTimes {
                send_ns: sample.send_ns,
                first_byte_ns: sample.first_byte_ns,
                done_ns: sample.done_ns,
            };
            // The driver gave up on it: the sample is that of a later one.
            let is_given_up = request.end_by_client_ns(&client) < client.send_ns;
            let contained = client.send_ns <= request.first_byte_ns
                && request.end_by_client_ns(&client) <= client.done_ns;
            if !contained && !is_given_up {
                counts.contradictions += 1;
                counts.contradiction_example.get_or_insert_with(|| {
                    format!(
                        "request {} on client port {}: driver {}..{} ns, kernel {}..{} ns",
                        request.index,
                        request.remote_port,
                        sample.send_ns,
                        sample.done_ns,
                        request.first_byte_ns,
                        request.end_ns
                    )
                });
            }
            let Some(mut request) = self.requests.pop_front() else { return };
            if !is_given_up {
                self.samples.pop_front();
                request.client = Some(client);
                counts.joined += 1;
            }
            emit(request);
        }
    }

    /// The driver opened a connection; each run tells of those that are still open again.
    fn opened(&mut self, at_ns: u64) {
        if at_ns > self.last_opened_ns {
            self.last_opened_ns = at_ns;
            self.opened_ns.push_back(at_ns);
        }
    }

    /// Whether a traced connection from this port is the driver's. A port has one connection at a time: of those opened
    /// before, it is the newest.
    fn is_of(&mut self, connection_id: u64, first_byte_ns: u64) -> bool {
        if self.connection_id == connection_id {
            return true;
        }
        let before = self.opened_ns.partition_point(|&opened_ns| opened_ns <= first_byte_ns);
        if before > 0 {
            self.opened_ns.drain(..before);
            self.connection_id = connection_id;
        }
        before > 0
    }
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
