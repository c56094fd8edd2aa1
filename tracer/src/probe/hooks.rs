//! The attach table: every hook, what it is for, and what is lost without it. To add a hook, add a row.

/// One hook of the kernel, the program of the same name, and why it is there.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Name of the program and of the kernel tracepoint (`btf_trace_NAME` in the kernel's BTF).
    pub name: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// What is lost without it; for a required hook, why nothing is true without it.
    pub lost_without: &'static str,
    /// When it is attached.
    pub need: Need,
}

/// How much a hook is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing starts without it.
    Required,
    /// Attached when its detail is asked for.
    OnRequest(Detail),
}

/// Detail that costs extra and must be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// When unsent bytes reach the device.
    Drain,
    /// When the client acknowledged response bytes.
    Acks,
}

/// Every hook, in the order of attaching: the scheduler first, so that the running thread is known when the syscall
/// hooks begin to ask for it.
pub const HOOKS: [Hook; 14] = [
    Hook {
        name: "sched_switch",
        purpose: "on-CPU, run-queue and blocked time of every target thread",
        lost_without: "no CPU time, and no way to know the running thread",
        need: Need::Required,
    },
    Hook {
        name: "sched_waking",
        purpose: "when, and by whom, a sleeping thread was woken",
        lost_without: "no wake-up latency",
        need: Need::Required,
    },
    Hook {
        name: "sched_wakeup",
        purpose: "when a woken thread began to wait for a CPU",
        lost_without: "run-queue time would count as blocked",
        need: Need::Required,
    },
    Hook {
        name: "sched_wakeup_new",
        purpose: "the same for a new thread",
        lost_without: "a new thread's first wait would be missing",
        need: Need::Required,
    },
    Hook {
        name: "sched_process_fork",
        purpose: "children join the target",
        lost_without: "workers forked later would be invisible",
        need: Need::Required,
    },
    Hook {
        name: "sched_process_exec",
        purpose: "close-on-exec fds are forgotten",
        lost_without: "a reused fd could be taken for the old one",
        need: Need::Required,
    },
    Hook {
        name: "sched_process_exit",
        purpose: "ended processes leave the target",
        lost_without: "a reused process id could be taken for the old one",
        need: Need::Required,
    },
    Hook {
        name: "inet_sock_set_state",
        purpose: "new listening ports, and when a handshake ended",
        lost_without: "no accept wait",
        need: Need::Required,
    },
    Hook {
        name: "tcp_destroy_sock",
        purpose: "the end of a connection",
        lost_without: "a reused socket could be taken for the old one",
        need: Need::Required,
    },
    Hook {
        name: "sk_data_ready",
        purpose: "when a request's first byte was readable, and when a response reached its reader",
        lost_without: "no queue phase and no delivery: a request could not be dated",
        need: Need::Required,
    },
    Hook {
        name: "sys_exit",
        purpose: "results and times of every syscall; reads, writes and accepts become records",
        lost_without: "no syscalls, no requests",
        need: Need::Required,
    },
    Hook {
        name: "sys_enter",
        purpose: "when every syscall was entered",
        lost_without: "no syscall durations",
        need: Need::Required,
    },
    Hook {
        name: "net_dev_queue",
        purpose: "when unsent response bytes reached the device (--detail drain)",
        lost_without: "a response with unsent bytes ends at its last write, graded inferred",
        need: Need::OnRequest(Detail::Drain),
    },
    Hook {
        name: "tcp_probe",
        purpose: "when the client acknowledged a response's last byte (--detail acks)",
        lost_without: "no mark for the acknowledgement; no phase depends on it",
        need: Need::OnRequest(Detail::Acks),
    },
];
