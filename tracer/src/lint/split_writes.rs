//! Head and body in separate writes. Each costs a syscall and, over loopback, the receiver's work; with Nagle's algorithm
//! on, the second may wait for the acknowledgement of the first, which the receiver delays by up to 40 ms.

use super::{Answer, Rule, called};
use crate::{
    recording::{Inference, Phase, Request, Run},
    report::{percent, us},
};

/// A response stalls from here on: a delayed acknowledgement takes 40 ms, less what ran before the timer.
const STALL_NS: u64 = 35_000_000;
/// Examples kept.
const EXAMPLES: usize = 3;

/// Responses that leave in several writes although nothing was full.
#[derive(Default)]
pub struct SplitWrites {
    split: u64,
    stalled: u64,
    /// Writes beyond the first.
    extra_writes: u64,
    /// Writes and CPU of all responses: what one costs.
    writes: u64,
    write_cpu_ns: u64,
    examples: Vec<String>,
}

/// How long bytes waited unsent after the last write: its drain, or where that was not dated, until the client had
/// them. A gap between the writes is the server's own doing, or that of whoever took its core.
fn stalled_ns(request: &Request) -> u64 {
    let unseen = request.inference == Some(Inference::DrainUnseen);
    let client = request.client.filter(|_| unseen);
    let until_client_ns = client.map_or(0, |client| client.done_ns.saturating_sub(request.end_ns));
    request.phase_ns(Phase::Drain).max(until_client_ns)
}

impl Rule for SplitWrites {
    fn name(&self) -> &'static str {
        "head-and-body-apart"
    }

    fn observe(&mut self, request: &Request) {
        self.writes += u64::from(request.writes);
        self.write_cpu_ns += request.cpu.write_ns + request.cpu.write_tail_ns;
        // After EAGAIN the rest has to go in another write; eight and more are a stream.
        let kept = request.kept_writes();
        let is_split = (2..=kept.len()).contains(&(request.writes as usize)) && request.writes_eagain == 0;
        if !is_split {
            return;
        }
        self.split += 1;
        self.extra_writes += u64::from(request.writes) - 1;
        self.stalled += u64::from(stalled_ns(request) >= STALL_NS);
        if self.examples.len() < EXAMPLES {
            let bytes: Vec<String> = kept.iter().map(|write| write.result.to_string()).collect();
            self.examples.push(format!("{}: writes of {} bytes", called(request), bytes.join(", ")));
        }
    }

    fn answer(&self, _: &Run, requests: u64) -> Answer {
        if self.split == 0 {
            let evidence = "every response left in one write, unless the socket was full".to_owned();
            return Answer::NotFound { evidence };
        }
        let share = self.split as f64 / requests as f64;
        let each_ns = self.write_cpu_ns as f64 / self.writes.max(1) as f64;
        let stalls = match self.stalled {
            0 => "none of them was followed by a delayed-ACK stall of 40 ms".to_owned(),
            stalled => format!("{stalled} of them stalled for about 40 ms: a delayed ACK; set TCP_NODELAY"),
        };
        Answer::Found {
            evidence: format!(
                "{} of the responses leave in several writes, a write costs {} us of CPU; {stalls}",
                percent(share),
                us(each_ns)
            ),
            share,
            cost_ns: Some(each_ns * self.extra_writes as f64 / requests as f64),
            examples: self.examples.clone(),
        }
    }
}
