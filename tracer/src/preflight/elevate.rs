//! Root: whether it is needed, why, and how to get it.

use std::{env, ffi::OsString, io::IsTerminal, os::unix::process::CommandExt, process::Command};

use anyhow::{Result, bail};

/// Capabilities by number (`include/uapi/linux/capability.h`).
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// True when this process may load and attach tracing programs and look at other users' processes.
pub fn may_trace() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return false;
    };
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    may_trace_with(effective)
}

fn may_trace_with(capabilities: u64) -> bool {
    let has = |capability: u32| capabilities >> capability & 1 == 1;
    has(CAP_SYS_PTRACE) && (has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON))
}

/// Goes on when privileged; otherwise says why root is needed and runs the same command again through sudo, or, when
/// nobody is there to type a password, fails with the line to paste.
pub fn ensure() -> Result<()> {
    if may_trace() {
        return Ok(());
    }
    let why = "this needs root: loading BPF programs into the kernel is not permitted to other users";
    let command: Vec<OsString> =
        env::current_exe().map(OsString::from).into_iter().chain(env::args_os().skip(1)).collect();
    let line: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    if !std::io::stdin().is_terminal() {
        bail!("{why}; run: sudo {}", line.join(" "));
    }
    eprintln!("tracer: {why}; running it again through sudo");
    let error = Command::new("sudo").arg("--").args(&command).exec();
    bail!("{why}, and sudo could not be started ({error}); run as root: {}", line.join(" "))
}

/// A word as a shell takes it unchanged.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_capabilities_or_admin_are_needed() {
        let bits = |list: &[u32]| list.iter().fold(0u64, |set, bit| set | 1 << bit);
        assert!(may_trace_with(bits(&[CAP_SYS_PTRACE, CAP_BPF, CAP_PERFMON])));
        assert!(may_trace_with(bits(&[CAP_SYS_PTRACE, CAP_SYS_ADMIN])));
        assert!(!may_trace_with(bits(&[CAP_BPF, CAP_PERFMON])));
        assert!(!may_trace_with(bits(&[CAP_SYS_PTRACE, CAP_BPF])));
        assert!(!may_trace_with(0));
    }

    #[test]
    fn a_line_to_paste_survives_spaces_and_quotes() {
        assert_eq!(quoted("--url=http://127.0.0.1:80/"), "--url=http://127.0.0.1:80/");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
        assert_eq!(quoted(""), "''");
    }
}
