//! Syscall numbers and names (x86-64).

use std::borrow::Cow;
use std::str::FromStr;

use syscalls::Sysno;

/// The errno of a call on a full send buffer (`include/uapi/asm-generic/errno-base.h`).
pub const EAGAIN: i64 = 11;

const UNNAMED_PREFIX: &str = "syscall_";

/// Name of a syscall; `syscall_N` for a number without one.
pub fn syscall_name(number: u32) -> Cow<'static, str> {
    match Sysno::new(number as usize) {
        Some(syscall) => syscall.name().into(),
        None => format!("{UNNAMED_PREFIX}{number}").into(),
    }
}

/// Number of a syscall by its name, `syscall_N` included.
pub fn syscall_number(name: &str) -> Option<u32> {
    match Sysno::from_str(name) {
        Ok(syscall) => Some(syscall.id() as u32),
        Err(_) => name.strip_prefix(UNNAMED_PREFIX)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_its_name() {
        for number in 0..1000 {
            assert_eq!(syscall_number(&syscall_name(number)), Some(number));
        }
        assert_eq!(syscall_name(20), "writev");
        assert_eq!(syscall_number("no such call"), None);
    }
}
