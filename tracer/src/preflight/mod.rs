//! What this kernel and this user can do: each check says what, why it matters, and how to mend it.

pub mod elevate;

use std::fmt;

use serde::Serialize;

use crate::probe::{
    Options, Probes,
    hooks::{Detail, HOOKS, Need},
    offsets::KernelTypes,
};

/// Answer of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It works here.
    Yes,
    /// The kernel or the machine does not have it.
    Unsupported,
    /// It is there, but this user may not.
    NotPermitted,
    /// Not tried, because something before it failed.
    Unknown,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::Unsupported => "unsupported",
            Self::NotPermitted => "not permitted",
            Self::Unknown => "not tried",
        })
    }
}

/// One check and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was checked.
    pub what: String,
    /// What it is for.
    pub why: String,
    /// Nothing works without it.
    pub required: bool,
    /// What is lost without it.
    pub lost_without: String,
    /// The answer here.
    pub answer: Answer,
    /// How to mend it, or a detail of the answer; may be empty.
    pub fix: String,
}

impl Check {
    /// True when nothing can work because of it.
    pub fn is_fatal(&self) -> bool {
        self.required && self.answer != Answer::Yes
    }
}

/// Every check of this machine, in the order in which they build on each other.
pub fn checks() -> Vec<Check> {
    let mut checks = vec![privilege(), type_information()];
    let types = KernelTypes::of_running_kernel().ok();
    checks.push(layout(types.as_ref()));
    let tracepoints = types.as_ref().map(KernelTypes::tracepoints);
    checks.extend(HOOKS.iter().map(|hook| Check {
        what: format!("hook {}", hook.name),
        why: hook.purpose.to_owned(),
        required: hook.need == Need::Required,
        lost_without: hook.lost_without.to_owned(),
        answer: match &tracepoints {
            None => Answer::Unknown,
            Some(tracepoints) if tracepoints.contains(hook.name) => Answer::Yes,
            Some(_) => Answer::Unsupported,
        },
        fix: String::new(),
    }));
    let before = checks.iter().all(|check| !check.is_fatal());
    checks.push(loading(before));
    checks
}

/// The first reason why nothing can work here, in one sentence with its fix; `None` when everything required is there.
pub fn fatal_reason() -> Option<String> {
    let checks = [privilege(), type_information()];
    checks
        .iter()
        .find(|check| check.is_fatal())
        .map(|check| format!("{}: {}; {}", check.what, check.answer, check.fix))
}

fn privilege() -> Check {
    let permitted = elevate::may_trace();
    Check {
        what: "privilege to load BPF programs".into(),
        why: "everything tracer measures comes from BPF programs".into(),
        required: true,
        lost_without: "nothing can be measured".into(),
        answer: if permitted { Answer::Yes } else { Answer::NotPermitted },
        fix: if permitted {
            String::new()
        } else {
            "run as root (sudo), or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE".into()
        },
    }
}

fn type_information() -> Check {
    let (answer, fix) = match KernelTypes::of_running_kernel() {
        Ok(_) => (Answer::Yes, String::new()),
        Err(error) => (Answer::Unsupported, format!("{error:#}")),
    };
    Check {
        what: "kernel type information (BTF)".into(),
        why: "structure offsets of the running kernel".into(),
        required: true,
        lost_without: "no offset is certain".into(),
        answer,
        fix,
    }
}

fn layout(types: Option<&KernelTypes>) -> Check {
    let (answer, fix) = match types.map(KernelTypes::offsets) {
        None => (Answer::Unknown, String::new()),
        Some(Ok(_)) => (Answer::Yes, String::new()),
        Some(Err(error)) => (Answer::Unsupported, format!("{error:#}")),
    };
    Check {
        what: "kernel structures".into(),
        why: "members tracer reads: socket, fd table, task".into(),
        required: true,
        lost_without: "sockets cannot be told apart".into(),
        answer,
        fix,
    }
}

fn loading(before: bool) -> Check {
    let details = [Detail::Drain, Detail::Acks].into();
    let (answer, fix) = if before {
        match Probes::load(&Options { max_connections: 64, ring_bytes: 1 << 16, details }) {
            Ok(_) => (Answer::Yes, String::new()),
            Err(error) => (Answer::Unsupported, format!("{error:#}")),
        }
    } else {
        (Answer::Unknown, String::new())
    };
    Check {
        what: "loading the programs".into(),
        why: "the kernel's verifier must accept each".into(),
        required: true,
        lost_without: "nothing can be measured".into(),
        answer,
        fix,
    }
}
