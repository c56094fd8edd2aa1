//! Joins each traced request with the driver's own times of it: by the client's port, in order.

use std::collections::VecDeque;

use ahash::HashMap;

use crate::{
    load::Sample,
    recording::{ClientTimes, Request},
};

/// Pairs requests and samples of one connection in the order in which both came.
#[derive(Default)]
pub struct Joiner {
    connections: HashMap<u16, Side>,
    /// Pairs whose times do not contain each other: the driver's send must come before the first byte, the end of
    /// the response before the driver's last read. Each is a defect.
    pub contradictions: u64,
    /// One of them, in words.
    pub contradiction_example: Option<String>,
}

#[derive(Default)]
struct Side {
    requests: VecDeque<Request>,
    samples: VecDeque<Sample>,
}

impl Joiner {
    /// Takes a sample of the driver's.
    pub fn sample(&mut self, sample: Sample, emit: &mut impl FnMut(Request)) {
        self.connections.entry(sample.remote_port).or_default().samples.push_back(sample);
        self.pair(sample.remote_port, emit);
    }

    /// Takes a traced request.
    pub fn request(&mut self, request: Request, emit: &mut impl FnMut(Request)) {
        let port = request.remote_port;
        self.connections.entry(port).or_default().requests.push_back(request);
        self.pair(port, emit);
    }

    /// Gives out what found no partner; returns how many requests that were.
    pub fn finish(&mut self, emit: &mut impl FnMut(Request)) -> u64 {
        let mut alone = 0;
        for (_, side) in self.connections.drain() {
            for request in side.requests {
                alone += 1;
                emit(request);
            }
        }
        alone
    }

    fn pair(&mut self, port: u16, emit: &mut impl FnMut(Request)) {
        let Some(side) = self.connections.get_mut(&port) else {
            return;
        };
        while let (Some(request), Some(sample)) = (side.requests.front(), side.samples.front()) {
            // A sample from before the traced window, or a request that is not the driver's.
            if sample.done_ns < request.first_byte_ns {
                side.samples.pop_front();
                continue;
            }
            let client = ClientTimes { send_ns: sample.send_ns, done_ns: sample.done_ns };
            let contained = client.send_ns <= request.first_byte_ns
                && request.end_by_client_ns(&client) <= client.done_ns;
            if !contained {
                self.contradictions += 1;
                self.contradiction_example.get_or_insert_with(|| {
                    format!(
                        "request {} on client port {port}: driver {}..{} ns, kernel {}..{} ns",
                        request.index, sample.send_ns, sample.done_ns, request.first_byte_ns, request.end_ns
                    )
                });
            }
            side.samples.pop_front();
            if let Some(mut request) = side.requests.pop_front() {
                request.client = Some(client);
                emit(request);
            }
        }
    }
}
