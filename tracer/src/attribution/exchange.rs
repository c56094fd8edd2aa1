//! One request and its response as records come in, and its attribution when it is over.

use super::{
    call::{Call, Share},
    connection::Ports,
    downstream::{State, Use},
    head::RequestHead,
    marks::{FirstRead, FirstWrite, HeadRead},
    states::{fitted, lay, queue_states, split_unknown},
    thread::{Cpu, Threads},
};
use crate::recording::{
    DownstreamPeer, Grade, Inference, Phase, Request, RequestCpu, ThreadStates, WRITES_KEPT, WriteCall,
};

/// Acceptance of the connection, for its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// When the accept call returned.
    pub exit_ns: u64,
}

/// A request whose first byte has been read.
#[derive(Clone, Debug)]
pub struct Exchange {
    head: RequestHead,
    index: u32,
    first_byte_ns: u64,
    accept_exit_ns: u64,
    behind_end_ns: u64,
    inference: Option<Inference>,
    first_read: FirstRead,
    /// The read that completed the head.
    head_read: HeadRead,
    head_read_cpu_ns: u64,
    head_is_whole: bool,
    reads: u32,
    shared_reads: u32,
    bytes_in: u64,
    body_read_ns: u64,
    body_wait_ns: u64,
    /// End of the last call before the next of the body's.
    body_from_ns: u64,
    queue_states: ThreadStates,
    wakeup_ns: u64,
    app_cpu: Cpu,
    read_cpu_ns: u64,
    status: u16,
    writes: u32,
    shared_writes: u32,
    writes_eagain: u32,
    write_calls: [WriteCall; WRITES_KEPT],
    write_calls_len: u8,
    bytes_out: u64,
    downstream: Vec<DownstreamPeer>,
    /// When it first sent something downstream; zero: never.
    sent_downstream_ns: u64,
    /// The final response, once it has begun.
    response: Option<Response>,
    /// No more bytes of the request are to come, as far as can be told.
    pub request_over: bool,
    /// The final response has ended.
    pub response_over: bool,
}

/// The final response's own calls.
#[derive(Clone, Debug)]
struct Response {
    first: FirstWrite,
    last: Call,
    gap_ns: u64,
    cpu_ns: u64,
    drained_ns: u64,
    acked_ns: u64,
}

/// What a request waits for after its last write before it is given out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awaited {
    /// Unsent bytes that reach the device.
    pub drain: bool,
    /// The client's acknowledgement.
    pub ack: bool,
}

/// What began a request, gathered by the connection.
pub struct Beginning {
    /// Ordinal on the connection.
    pub index: u32,
    /// When its first byte became readable; zero: not seen.
    pub first_byte_ns: u64,
    /// Acceptance, when this is the connection's first request.
    pub acceptance: Option<Acceptance>,
    /// End of the response before it, as far as it is known.
    pub previous_end_ns: u64,
    /// Why its beginning is not sure.
    pub inference: Option<Inference>,
}

impl Exchange {
    /// Opens with the read that took the first byte.
    pub fn begin(beginning: &Beginning, read: &Call, threads: &Threads) -> Self {
        let seen = beginning.first_byte_ns != 0;
        let first_byte_ns = match (seen, read.was_entered) {
            (true, _) => beginning.first_byte_ns.min(read.exit_ns),
            (false, false) => read.exit_ns,
            (false, true) => read.enter_ns,
        };
        let accept_exit_ns = beginning.acceptance.map_or(0, |acceptance| acceptance.exit_ns);
        let queue_from_ns = first_byte_ns.max(accept_exit_ns).max(beginning.previous_end_ns);
        let (queue_states, wakeup_ns) = queue_states(queue_from_ns, read, threads);
        Self {
            head: RequestHead::unknown(),
            index: beginning.index,
            first_byte_ns,
            accept_exit_ns,
            behind_end_ns: 0,
            inference: beginning.inference.or((!seen).then_some(Inference::FirstByteUnseen)),
            first_read: read.into(),
            head_read: read.into(),
            head_read_cpu_ns: 0,
            head_is_whole: false,
            reads: 0,
            shared_reads: 0,
            bytes_in: 0,
            body_read_ns: 0,
            body_wait_ns: 0,
            body_from_ns: read.exit_ns,
            queue_states,
            wakeup_ns,
            app_cpu: Cpu::default(),
            read_cpu_ns: 0,
            status: 0,
            writes: 0,
            shared_writes: 0,
            writes_eagain: 0,
            write_calls: [WriteCall::default(); WRITES_KEPT],
            write_calls_len: 0,
            bytes_out: 0,
            downstream: Vec::new(),
            sent_downstream_ns: 0,
            response: None,
            request_over: false,
            response_over: false,
        }
    }

    /// Ordinal on its connection.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// How far it is, as far as asking others goes.
    pub fn downstream_state(&self) -> State {
        match self.sent_downstream_ns {
            _ if self.response_over => State::Over,
            0 => State::Fresh,
            _ => State::Asked,
        }
    }

    /// A call of it on a connection that the target opened.
    pub fn used_downstream(&mut self, used: Use) {
        if self.sent_downstream_ns == 0 {
            self.sent_downstream_ns = used.sent_ns;
        }
        used.adds.add_to(&mut self.downstream);
    }

    /// An edge of it is inferred. The first reason stands.
    pub fn infer(&mut self, inference: Inference) {
        self.inference.get_or_insert(inference);
    }

    /// Its method and path.
    pub fn name(&mut self, head: &RequestHead) {
        self.head = head.clone();
    }

    /// Its method, as far as it is known.
    pub fn method(&self) -> &str {
        &self.head.method
    }

    /// A read took bytes of it; `completes_head`: the last of its head among them.
    pub fn read(&mut self, read: &Call, share: Share, completes_head: bool) {
        self.bytes_in += share.bytes;
        if share.counts {
            self.reads += 1;
            self.read_cpu_ns += read.cpu_ns();
        }
        if self.response.is_some() {
            return; // late body: outside the sum
        }
        if self.head_is_whole {
            self.body_read_ns += read.exit_ns.saturating_sub(read.enter_ns.max(self.body_from_ns));
            self.body_wait_ns += read.enter_ns.saturating_sub(self.body_from_ns);
        } else {
            self.head_read = read.into();
            self.head_read_cpu_ns = self.read_cpu_ns;
            self.head_is_whole = completes_head;
        }
        self.body_from_ns = self.body_from_ns.max(read.exit_ns);
    }

    /// A read of it has bytes of another request too.
    pub fn shares_read(&mut self) {
        self.shared_reads += 1;
    }

    /// A write moved bytes of its response, or failed.
    pub fn write(&mut self, write: &Call, share: Share) {
        self.bytes_out += share.bytes;
        if share.counts {
            self.count_write(write);
        }
        let response = self.response.get_or_insert(Response {
            first: write.into(),
            last: *write,
            gap_ns: 0,
            cpu_ns: 0,
            drained_ns: 0,
            acked_ns: 0,
        });
        response.gap_ns += write.enter_ns.saturating_sub(response.last.exit_ns);
        response.cpu_ns += if share.counts { write.cpu_ns() } else { 0 };
        response.last = *write;
        response.drained_ns = 0;
        response.acked_ns = 0;
    }

    fn count_write(&mut self, write: &Call) {
        if let Some(kept) = self.write_calls.get_mut(usize::from(self.write_calls_len)) {
            *kept = WriteCall { call: write.number, result: write.result, iovecs: write.iovecs };
            self.write_calls_len += 1;
        }
        self.writes += u32::from(write.result > 0);
        self.writes_eagain += u32::from(write.result == -i64::from(libc::EAGAIN));
    }

    /// A write of its response has bytes of another response too.
    pub fn shares_write(&mut self) {
        self.shared_writes += 1;
    }

    /// What was written so far was an interim response (1xx): the handler goes on.
    pub fn was_interim(&mut self) {
        if let Some(interim) = self.response.take() {
            self.app_cpu.syscall_ns += interim.cpu_ns;
            self.body_from_ns = self.body_from_ns.max(interim.last.exit_ns);
        }
    }

    /// A response head has this status; a later one replaces it.
    pub fn has_status(&mut self, status: u16) {
        self.status = status;
    }

    /// The last write of the response, in case it has bytes of later responses too.
    pub fn last_write(&self) -> Option<Call> {
        self.response.as_ref().map(|response| response.last)
    }

    /// It was read before this call was entered.
    pub fn was_read_before(&self, call: &Call) -> bool {
        self.first_read.exit_ns <= call.enter_ns
    }

    /// The response before it ended then. Only a first byte that came before that waited, and only until its own
    /// response was written, which may be by the same call.
    pub fn comes_after(&mut self, previous_end_ns: u64) {
        if self.first_byte_ns < previous_end_ns {
            let own_ns = self.response.as_ref().map_or(previous_end_ns, |response| response.first.enter_ns);
            self.behind_end_ns = previous_end_ns.min(own_ns);
        }
    }

    /// Unsent bytes up to `end_sequence` reached the device.
    pub fn drained(&mut self, at_ns: u64, end_sequence: u32) {
        if let Some(response) = &mut self.response
            && end_sequence.wrapping_sub(response.last.end_sequence) as i32 >= 0
        {
            response.drained_ns = at_ns;
        }
    }

    /// The client acknowledged bytes up to `end_sequence`. The first time counts.
    pub fn acked(&mut self, at_ns: u64, end_sequence: u32) {
        if let Some(response) = &mut self.response
            && response.acked_ns == 0
            && end_sequence.wrapping_sub(response.last.end_sequence) as i32 >= 0
        {
            response.acked_ns = at_ns;
        }
    }

    /// CPU of a stretch between calls that belongs to this request.
    pub fn charge(&mut self, cpu: Cpu) {
        match &mut self.response {
            Some(response) => response.cpu_ns += cpu.total_ns(),
            None => {
                self.app_cpu.user_ns += cpu.user_ns;
                self.app_cpu.syscall_ns += cpu.syscall_ns;
            }
        }
    }

    /// Something of the final response was written.
    pub fn answered(&self) -> bool {
        self.response.is_some() && self.writes + self.shared_writes > 0
    }

    /// A final (not 1xx) status was written.
    pub fn has_final_status(&self) -> bool {
        self.status >= 200 || self.status == 101
    }

    /// The request has no body by its method, and its head is whole: what is read next is the next request.
    pub fn awaits_no_body(&self) -> bool {
        self.head_is_whole && matches!(&*self.head.method, "GET" | "HEAD" | "DELETE" | "OPTIONS" | "TRACE")
    }

    /// Bytes of its response are still to reach the device.
    pub fn is_unsent(&self) -> bool {
        self.response
            .as_ref()
            .is_some_and(|response| response.last.unsent_bytes > 0 && response.drained_ns == 0)
    }

    /// Nothing more is to come of it, what is awaited after the last write included.
    pub fn is_over(&self, awaited: Awaited) -> bool {
        let unacked = self.response.as_ref().is_some_and(|response| response.acked_ns == 0);
        let awaits = awaited.drain && self.is_unsent() || awaited.ack && unacked;
        self.request_over && self.response_over && !awaits
    }

    /// When its first byte could be read, or the nearest that is known.
    pub fn first_byte_ns(&self) -> u64 {
        self.first_byte_ns
    }

    /// End of the response as known so far.
    pub fn end_ns(&self) -> u64 {
        self.response.as_ref().map_or(0, |response| response.end_ns())
    }

    /// Lays the phases end to end. `Err` names a difference that came out negative: a defect.
    pub fn attribute(&self, ports: Ports) -> Result<Request, String> {
        let Some(response) = &self.response else {
            return Err("a request without a response".into());
        };
        let (first, last) = (&response.first, &response.last);
        let cuts = self.cuts(response);
        let mut phases_ns = [0; 7];
        for (index, phase) in phases_ns.iter_mut().enumerate() {
            *phase = cuts[index + 1].checked_sub(cuts[index]).ok_or_else(|| {
                format!(
                    "phase {} of {} {} on connection {} ends {} ns before it begins",
                    Phase::ALL[index].key(),
                    self.head.method,
                    self.head.path,
                    first.connection_id,
                    cuts[index] - cuts[index + 1]
                )
            })?;
        }
        let inference = self.inference(response);
        let (write_cpu_ns, tail_cpu_ns) = response.cpu_split();
        let cpu = RequestCpu {
            read_ns: self.read_cpu_ns,
            app_user_ns: self.app_cpu.user_ns,
            app_syscall_ns: self.app_cpu.syscall_ns,
            write_ns: write_cpu_ns,
            write_tail_ns: tail_cpu_ns,
        };
        Ok(Request {
            connection_id: first.connection_id,
            index: self.index,
            local_port: ports.local,
            remote_port: ports.remote,
            process_id: self.first_read.tgid,
            read_thread_id: self.first_read.tid,
            write_thread_id: first.tid,
            method: self.head.method.clone(),
            path: self.head.path.clone(),
            status: self.status,
            grade: if inference.is_some() { Grade::Inferred } else { Grade::Measured },
            inference,
            first_byte_ns: self.first_byte_ns,
            end_ns: cuts[7],
            acked_ns: response.acked_ns,
            phases_ns,
            states: self.states(response, &phases_ns),
            body_read_ns: self.body_read_ns,
            body_wait_ns: self.body_wait_ns,
            write_gap_ns: response.gap_ns.min(phases_ns[Phase::Write as usize]),
            write_tail_ns: last.exit_ns.saturating_sub(last.end_of_write_ns()),
            wakeup_ns: self.wakeup_ns.min(phases_ns[Phase::Queue as usize]),
            cpu,
            blocked_call_plus_one: self.blocked_call(first),
            reads: self.reads,
            shared_reads: self.shared_reads,
            writes: self.writes,
            shared_writes: self.shared_writes,
            writes_eagain: self.writes_eagain,
            write_calls: self.write_calls,
            write_calls_len: self.write_calls_len,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            downstream: self.downstream.clone(),
            before_downstream_ns: self.sent_downstream_ns.saturating_sub(self.head_read.exit_ns),
            client: None,
        })
    }

    /// The eight cut points of the seven phases.
    fn cuts(&self, response: &Response) -> [u64; 8] {
        let accepted = self.first_byte_ns.max(self.accept_exit_ns);
        let ahead = accepted.max(self.behind_end_ns);
        let read_from = ahead.max(self.first_read.enter_ns);
        let read_to = self.head_read.exit_ns.max(read_from);
        let write_from = response.first.enter_ns.max(read_to);
        let write_to = response.last.end_of_write_ns().max(write_from);
        [
            self.first_byte_ns,
            accepted,
            ahead,
            read_from,
            read_to,
            write_from,
            write_to,
            response.end_ns().max(write_to),
        ]
    }

    /// The first rule that stands in for an edge nobody saw.
    fn inference(&self, response: &Response) -> Option<Inference> {
        let answered_early = response.first.enter_ns < self.head_read.exit_ns;
        self.inference
            .or(answered_early.then_some(Inference::AnsweredEarly))
            .or(self.is_unsent().then_some(Inference::DrainUnseen))
    }

    fn states(&self, response: &Response, phases_ns: &[u64; 7]) -> [ThreadStates; 7] {
        let mut states = [ThreadStates::default(); 7];
        for phase in [Phase::Accept, Phase::Behind, Phase::Drain] {
            states[phase as usize].unknown_ns = phases_ns[phase as usize];
        }
        states[Phase::Queue as usize] = fitted(self.queue_states, phases_ns[Phase::Queue as usize]);
        states[Phase::Read as usize] = self.read_states(phases_ns[Phase::Read as usize]);
        states[Phase::App as usize] = self.app_states(&response.first, phases_ns[Phase::App as usize]);
        states[Phase::Write as usize] = response.states(phases_ns[Phase::Write as usize]);
        states
    }

    fn read_states(&self, wall_ns: u64) -> ThreadStates {
        let (first, last) = (&self.first_read, &self.head_read);
        if first.tid != last.tid {
            return split_unknown(wall_ns, self.head_read_cpu_ns);
        }
        // A read entered before the bytes came slept until then: only the CPU from that sleep on is in this phase.
        let slept_inside = last.slept_at_ns >= first.enter_ns && self.first_byte_ns > first.enter_ns;
        let cpu_from_ns = if slept_inside { last.slept_at_cpu_ns } else { first.enter_cpu_ns };
        let cpu_ns = last.exit_cpu_ns.saturating_sub(cpu_from_ns);
        let run_queue_ns = last.exit_run_queue_ns.saturating_sub(first.enter_run_queue_ns);
        lay(wall_ns, cpu_ns, self.head_read_cpu_ns.min(cpu_ns), run_queue_ns)
    }

    fn app_states(&self, write: &FirstWrite, wall_ns: u64) -> ThreadStates {
        let own_ns = self.app_cpu.total_ns();
        let read = &self.head_read;
        if read.tid != write.tid {
            return split_unknown(wall_ns, own_ns);
        }
        let cpu_ns = write.enter_cpu_ns.saturating_sub(read.exit_cpu_ns);
        let run_queue_ns = write.enter_run_queue_ns.saturating_sub(read.exit_run_queue_ns);
        let body_cpu_ns = self.read_cpu_ns - self.head_read_cpu_ns;
        lay(wall_ns, cpu_ns, (own_ns + body_cpu_ns).min(cpu_ns), run_queue_ns)
    }

    fn blocked_call(&self, write: &FirstWrite) -> u32 {
        let slept = write.tid == self.head_read.tid
            && write.slept_at_ns >= self.head_read.exit_ns
            && write.slept_at_ns < write.enter_ns;
        if slept { write.slept_in_plus_one } else { 0 }
    }
}

impl Response {
    fn end_ns(&self) -> u64 {
        self.last.end_of_write_ns().max(self.drained_ns)
    }

    /// `(until delivery, after it)`
    fn cpu_split(&self) -> (u64, u64) {
        if self.last.delivered_ns == 0 {
            return (self.cpu_ns, 0);
        }
        let tail_ns = self.last.exit_cpu_ns.saturating_sub(self.last.delivered_cpu_ns).min(self.cpu_ns);
        (self.cpu_ns - tail_ns, tail_ns)
    }

    fn states(&self, wall_ns: u64) -> ThreadStates {
        let (own_ns, _) = self.cpu_split();
        if self.first.tid != self.last.tid {
            return split_unknown(wall_ns, own_ns);
        }
        let until_ns =
            if self.last.delivered_ns != 0 { self.last.delivered_cpu_ns } else { self.last.exit_cpu_ns };
        let cpu_ns = until_ns.saturating_sub(self.first.enter_cpu_ns);
        let run_queue_ns = self.last.exit_run_queue_ns.saturating_sub(self.first.enter_run_queue_ns);
        lay(wall_ns, cpu_ns, own_ns.min(cpu_ns), run_queue_ns)
    }
}
