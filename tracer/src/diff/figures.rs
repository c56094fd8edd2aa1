//! From traced requests to the lines of both ledgers, per request.

use std::collections::{BTreeMap, HashMap};

use tracer_common::calls::{CallClass, class_of};

use super::{Figures, WriteStep};
use crate::{
    recording::{Phase, Request, RequestCpu, Run, ThreadStates, WRITES_KEPT, syscall_name, syscall_number},
    stats::answered_requests,
};

/// The slowest hundredth is told apart.
const SLOWEST_SHARE: usize = 100;

/// What the requests of a run came to.
pub fn figures(run: &Run, requests: &[Request]) -> Figures {
    let mut walls: Vec<u64> = requests.iter().map(Request::wall_ns).collect();
    walls.sort_unstable_by(|a, b| b.cmp(a));
    let slowest = (walls.len() / SLOWEST_SHARE).saturating_sub(1);
    let mut gathering = Gathering::new(walls.get(slowest).copied().unwrap_or(0));
    requests.iter().for_each(|request| gathering.add(request));
    gathering.finish(run)
}

/// Sums over requests, in bounded memory.
pub struct Gathering {
    slowest_from_ns: u64,
    requests: u64,
    cpu: RequestCpu,
    states: [ThreadStates; Phase::ALL.len()],
    slowest: u64,
    slowest_states: [ThreadStates; Phase::ALL.len()],
    reads: u64,
    writes: u64,
    writes_eagain: u64,
    bytes_in: u64,
    bytes_out: u64,
    round_trips: u64,
    /// Responses by the sequence of their write calls, and the bytes each of them moved.
    sequences: HashMap<Vec<u16>, (u64, [u64; WRITES_KEPT])>,
}

impl Gathering {
    /// Nothing yet. Requests that take `slowest_from_ns` or more are the slowest.
    pub fn new(slowest_from_ns: u64) -> Self {
        Self {
            slowest_from_ns,
            requests: 0,
            cpu: RequestCpu::default(),
            states: Default::default(),
            slowest: 0,
            slowest_states: Default::default(),
            reads: 0,
            writes: 0,
            writes_eagain: 0,
            bytes_in: 0,
            bytes_out: 0,
            round_trips: 0,
            sequences: HashMap::new(),
        }
    }

    /// Adds one request.
    pub fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.cpu += request.cpu;
        add_states(&mut self.states, request);
        if request.wall_ns() >= self.slowest_from_ns {
            self.slowest += 1;
            add_states(&mut self.slowest_states, request);
        }
        self.reads += u64::from(request.reads);
        self.writes += u64::from(request.writes);
        self.writes_eagain += u64::from(request.writes_eagain);
        self.bytes_in += request.bytes_in;
        self.bytes_out += request.bytes_out;
        self.round_trips += request.downstream.iter().map(|peer| u64::from(peer.round_trips)).sum::<u64>();
        let calls = request.writes_that_moved_bytes().map(|write| write.call).collect();
        let (count, bytes) = self.sequences.entry(calls).or_default();
        *count += 1;
        for (sum, write) in bytes.iter_mut().zip(request.writes_that_moved_bytes()) {
            *sum += write.bytes().unwrap_or(0);
        }
    }

    /// The figures, with what only the run knows.
    pub fn finish(self, run: &Run) -> Figures {
        let (writes, writes_share) = self.write_steps();
        Figures {
            requests: self.requests,
            cpu_ns: self.cpu_lines(run, &writes),
            latency_ns: latency_lines(&self.states, self.requests),
            slowest_ns: latency_lines(&self.slowest_states, self.slowest),
            counts: self.counts(run),
            writes,
            writes_share,
            loss_share: run.ledger.loss_share(),
            left_out: Vec::new(),
        }
    }

    /// Server CPU. A request's own reads, writes and user time are known from its marks, every syscall's total from the
    /// kernel's counters. What those hold beyond the requests' own is `elsewhere`: in `app`, or between requests.
    fn cpu_lines(&self, run: &Run, writes: &[WriteStep]) -> BTreeMap<String, f64> {
        let mut lines = Lines::default();
        let is_read = |name: &str| class_by_name(name) == CallClass::Read;
        let is_write = |name: &str| writes.iter().any(|step| step.call == name);
        lines.add_calls("read", run, self.cpu.read_ns, is_read);
        lines.add_calls("write", run, self.cpu.write_ns + self.cpu.write_tail_ns, is_write);
        for call in run.syscalls.iter().filter(|call| !is_read(&call.name) && !is_write(&call.name)) {
            lines.add(format!("elsewhere: {}", call.name), call.cpu_ns as f64);
        }
        lines.add("app: user".to_owned(), self.cpu.app_user_ns as f64);
        let rest_ns = run.conservation.traced_cpu_ns as f64 - lines.0.values().sum::<f64>();
        lines.add("between requests: user".to_owned(), rest_ns);
        lines.per_request(self.requests)
    }

    fn counts(&self, run: &Run) -> BTreeMap<String, f64> {
        let mut of_requests = Lines::default();
        for (name, sum) in [
            ("reads", self.reads),
            ("writes", self.writes),
            ("writes with EAGAIN", self.writes_eagain),
            ("request bytes", self.bytes_in),
            ("response bytes", self.bytes_out),
            ("downstream round trips", self.round_trips),
        ] {
            of_requests.add(name.to_owned(), sum as f64);
        }
        let mut counts = of_requests.per_request(self.requests);
        let answered = answered_requests(run).max(1) as f64;
        let mut add = |name: String, count: u64| counts.insert(name, count as f64 / answered);
        add("syscalls".to_owned(), run.syscalls.iter().map(|call| call.calls).sum());
        for call in &run.syscalls {
            add(format!("calls of {}", call.name), call.calls);
            if call.eagain > 0 {
                add(format!("{} with EAGAIN", call.name), call.eagain);
            }
        }
        for (counter, name) in
            [("switches_blocked", "switches, blocked"), ("switches_preempted", "switches, preempted")]
        {
            let count = run.ledger.kernel_counters.iter().find(|(known, _)| known == counter);
            if let Some((_, count)) = count.filter(|(_, count)| *count > 0) {
                add(name.to_owned(), *count);
            }
        }
        counts
    }

    /// The most frequent sequence of write calls, with the mean bytes of each, and its share.
    fn write_steps(&self) -> (Vec<WriteStep>, f64) {
        let most = self.sequences.iter().max_by(|a, b| a.1.0.cmp(&b.1.0).then_with(|| b.0.cmp(a.0)));
        let Some((calls, (count, bytes))) = most else { return (Vec::new(), 0.0) };
        let steps = calls.iter().zip(bytes).map(|(call, sum)| WriteStep {
            call: syscall_name((*call).into()).into_owned(),
            bytes: *sum as f64 / *count as f64,
        });
        (steps.collect(), *count as f64 / self.requests as f64)
    }
}

/// Named sums.
#[derive(Default)]
struct Lines(BTreeMap<String, f64>);

impl Lines {
    fn add(&mut self, name: String, value: f64) {
        *self.0.entry(name).or_insert(0.0) += value;
    }

    /// The CPU that requests spent in a phase whose calls these are. Of more than the calls took, the rest was spent
    /// between them, in user space; of less, the calls did something else too.
    fn add_calls(&mut self, phase: &str, run: &Run, own_ns: u64, is_one: impl Fn(&str) -> bool) {
        let calls = || run.syscalls.iter().filter(|call| is_one(&call.name));
        let all_ns: u64 = calls().map(|call| call.cpu_ns).sum();
        let names: Vec<&str> = calls().map(|call| call.name.as_str()).collect();
        let names = names.join("+");
        self.add(format!("{phase}: {names}"), own_ns.min(all_ns) as f64);
        self.add(format!("{phase}: user, between its calls"), own_ns.saturating_sub(all_ns) as f64);
        self.add(format!("elsewhere: {names}"), all_ns.saturating_sub(own_ns) as f64);
    }

    fn per_request(mut self, requests: u64) -> BTreeMap<String, f64> {
        self.0.values_mut().for_each(|sum| *sum /= requests.max(1) as f64);
        self.0.retain(|_, value| *value != 0.0);
        self.0
    }
}

fn class_by_name(name: &str) -> CallClass {
    syscall_number(name).map_or(CallClass::Other, |number| class_of(number.into()))
}

fn add_states(sums: &mut [ThreadStates; Phase::ALL.len()], request: &Request) {
    for (sum, states) in sums.iter_mut().zip(request.states) {
        *sum += states;
    }
}

/// Wall time per request, by phase and thread state.
fn latency_lines(sums: &[ThreadStates; Phase::ALL.len()], requests: u64) -> BTreeMap<String, f64> {
    let mut lines = Lines::default();
    for (phase, states) in Phase::ALL.into_iter().zip(sums) {
        for (state, ns) in [
            ("own CPU", states.own_cpu_ns),
            ("other CPU", states.other_cpu_ns),
            ("run queue", states.run_queue_ns),
            ("blocked", states.blocked_ns),
            ("unknown", states.unknown_ns),
        ] {
            lines.add(format!("{}: {state}", phase.key()), ns as f64);
        }
    }
    lines.per_request(requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Conservation, Ledger, RequestCpu, SyscallTotals, WriteCall};

    fn request(wall_ns: u64, writes: &[(u16, i64)]) -> Request {
        let mut request = Request {
            writes: writes.len() as u32,
            write_calls_len: writes.len() as u8,
            reads: 1,
            cpu: RequestCpu {
                read_ns: 100,
                app_user_ns: 300,
                write_ns: 500,
                write_tail_ns: 50,
                ..RequestCpu::default()
            },
            ..Request::default()
        };
        request.phases_ns[Phase::App as usize] = wall_ns;
        request.states[Phase::App as usize].blocked_ns = wall_ns;
        for (slot, &(call, result)) in request.write_calls.iter_mut().zip(writes) {
            *slot = WriteCall { call, result, iovecs: 1 };
        }
        request
    }

    fn call(name: &str, calls: u64, cpu_ns: u64) -> SyscallTotals {
        SyscallTotals { name: name.to_owned(), calls, eagain: 0, wall_ns: cpu_ns, cpu_ns }
    }

    fn run() -> Run {
        Run {
            syscalls: vec![
                call("recvfrom", 4, 260),
                call("writev", 2, 1100),
                call("write", 2, 40),
                call("epoll_wait", 1, 200),
            ],
            conservation: Conservation { traced_cpu_ns: 3000, ..Conservation::default() },
            ledger: Ledger { traced: 2, ..Ledger::default() },
            ..Run::default()
        }
    }

    #[test]
    fn both_ledgers_add_up() {
        let requests = [request(1000, &[(20, 173)]), request(3000, &[(20, 173)])];
        let figures = figures(&run(), &requests);
        assert_eq!(figures.cpu_ns.values().sum::<f64>(), 1500.0);
        assert_eq!(figures.cpu_ns["write: writev"], 550.0);
        assert_eq!(figures.cpu_ns["read: recvfrom"], 100.0);
        // Reads that brought nothing, and a write to something else.
        assert_eq!(figures.cpu_ns["elsewhere: recvfrom"], 30.0);
        assert_eq!(figures.cpu_ns["elsewhere: write"], 20.0);
        assert_eq!(figures.cpu_ns["between requests: user"], 400.0);
        assert_eq!(figures.latency_ns.values().sum::<f64>(), 2000.0);
        assert_eq!(figures.slowest_ns["app: blocked"], 3000.0);
        assert_eq!(figures.counts["calls of recvfrom"], 2.0);
        assert_eq!(figures.counts["syscalls"], 4.5);
    }

    #[test]
    fn user_time_between_two_writes_is_told_apart() {
        let mut run = run();
        run.syscalls.retain(|call| call.name != "write");
        run.syscalls[1].cpu_ns = 1000;
        let figures = figures(&run, &[request(1, &[(20, 1)]), request(1, &[(20, 1)])]);
        assert_eq!(figures.cpu_ns["write: writev"], 500.0);
        assert_eq!(figures.cpu_ns["write: user, between its calls"], 50.0);
        assert_eq!(figures.cpu_ns.get("elsewhere: writev"), None);
        assert_eq!(figures.cpu_ns.values().sum::<f64>(), 1500.0);
    }

    #[test]
    fn the_most_frequent_way_to_write_is_told() {
        let two = [(1, 154), (1, 19)];
        let requests = [request(1, &two), request(1, &[(20, 173)]), request(1, &two)];
        let figures = figures(&run(), &requests);
        let step = |bytes| WriteStep { call: "write".to_owned(), bytes };
        assert_eq!(figures.writes, [step(154.0), step(19.0)]);
        assert!((figures.writes_share - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_gives_nothing() {
        let figures = figures(&Run::default(), &[]);
        assert_eq!((figures.requests, figures.cpu_ns.len(), figures.writes.len()), (0, 0, 0));
    }
}
