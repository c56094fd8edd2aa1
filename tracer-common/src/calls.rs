//! Which syscalls matter and how: one table, x86-64 numbers.

/// How a syscall touches a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallClass {
    /// Counted and timed, nothing else.
    Other = 0,
    /// Takes bytes from a socket.
    Read = 1,
    /// Gives bytes to a socket.
    Write = 2,
    /// Returns a new connection.
    Accept = 3,
    /// Ends an fd (close), or replaces one (dup2, dup3: the second argument).
    Close = 4,
    /// Ends many fds at once (close_range), so that every cached fd must be looked up again.
    CloseMany = 5,
}

/// Where the user buffer of a read or write stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Buffer {
    /// No user buffer (sendfile, splice).
    None = 0,
    /// Second argument is the buffer.
    Flat = 1,
    /// Second argument is an iovec array, third its length.
    Vector = 2,
    /// Second argument is a `struct msghdr`.
    Message = 3,
}

/// Class of a syscall number (x86-64, `arch/x86/entry/syscalls/syscall_64.tbl`).
#[inline(always)]
pub const fn class_of(call: u64) -> CallClass {
    match call {
        // read pread64 readv recvfrom recvmsg preadv preadv2
        0 | 17 | 19 | 45 | 47 | 295 | 327 => CallClass::Read,
        // write pwrite64 writev sendfile sendto sendmsg splice pwritev pwritev2
        1 | 18 | 20 | 40 | 44 | 46 | 275 | 296 | 328 => CallClass::Write,
        // accept accept4
        43 | 288 => CallClass::Accept,
        // close dup2 dup3
        3 | 33 | 292 => CallClass::Close,
        // close_range
        436 => CallClass::CloseMany,
        _ => CallClass::Other,
    }
}

/// Where the buffer of a read or write is.
#[inline(always)]
pub const fn buffer_of(call: u64) -> Buffer {
    match call {
        19 | 20 | 295 | 296 | 327 | 328 => Buffer::Vector,
        46 | 47 => Buffer::Message,
        40 | 275 => Buffer::None,
        _ => Buffer::Flat,
    }
}

/// `MSG_PEEK` of recvfrom and recvmsg (`include/linux/socket.h`).
pub const MSG_PEEK: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_class_call_of_the_design_is_a_write() {
        for call in [1, 20, 44, 46, 40, 275] {
            assert_eq!(class_of(call), CallClass::Write, "{call}");
        }
        for call in [0, 19, 45, 47] {
            assert_eq!(class_of(call), CallClass::Read, "{call}");
        }
    }

    #[test]
    fn calls_without_a_user_buffer_are_sendfile_and_splice() {
        let without = (0..500).filter(|&c| buffer_of(c) == Buffer::None);
        assert!(without.eq([40, 275]));
    }
}
