//! Every syscall of the target is counted and timed; those that touch a connection become records.

use aya_ebpf::programs::BtfTracePointContext;
use tracer_common::{
    calls::{Buffer, CallClass, MSG_PEEK, buffer_of, class_of},
    counters::Counter,
    heads,
    records::{RecordKind, edge_flags},
};

use crate::{
    connections::{self, Connection, Found},
    counters,
    emit::{self, Edge},
    kernel::{self, FoundSock, now_ns},
    threads::{self, Thread},
};

/// `-EAGAIN`
const EAGAIN: i64 = -11;
/// io_uring_enter
const IO_URING_ENTER: u64 = 426;

/// x86-64 `struct pt_regs` (uapi): byte offsets of the argument registers and of the syscall number.
mod registers {
    pub const FIRST: usize = 112;
    pub const SECOND: usize = 104;
    pub const THIRD: usize = 96;
    pub const FOURTH: usize = 56;
    pub const NUMBER: usize = 120;
}

#[inline(always)]
fn register(regs: *const u8, offset: usize) -> u64 {
    // SAFETY: a trusted `struct pt_regs`, whose layout is uapi.
    unsafe { regs.add(offset).cast::<u64>().read_volatile() }
}

/// `sys_enter(regs, id)`
#[inline(always)]
pub fn entered(ctx: &BtfTracePointContext) {
    let Some(thread) = threads::in_syscall() else { return };
    let number: u64 = ctx.arg(1);
    let regs: *const u8 = ctx.arg(0);
    let now = now_ns();
    thread.call.number_plus_one = number as u32 + 1;
    thread.call.not_entered = 0;
    thread.call.enter_ns = now;
    thread.call.enter_cpu_ns = thread.cpu_ns(now);
    thread.call.enter_run_queue_ns = thread.clock.run_queue_ns;
    match class_of(number) {
        CallClass::Other => {
            if number == IO_URING_ENTER && register(regs, registers::SECOND) != 0 {
                counters::count(Counter::IoUringSubmits);
            }
        }
        CallClass::Read => keep_arguments(thread, regs, registers::FIRST),
        CallClass::Write => {
            // splice(fd_in, off_in, fd_out, ...): the socket is the third argument.
            let fd = if number == 275 { registers::THIRD } else { registers::FIRST };
            keep_arguments(thread, regs, fd);
            thread.call.write.is_write = 1;
            thread.call.write.delivered_ns = 0;
        }
        CallClass::Accept => {}
        CallClass::Close => {
            // dup2 and dup3 replace their second argument.
            let fd = if number == 3 { registers::FIRST } else { registers::SECOND };
            connections::forget_fd(thread.tgid, register(regs, fd) as u32);
        }
        CallClass::CloseMany => connections::forget_all_fds(),
    }
}

#[inline(always)]
fn keep_arguments(thread: &mut Thread, regs: *const u8, fd: usize) {
    thread.call.fd = register(regs, fd) as u32;
    thread.call.buffer = register(regs, registers::SECOND);
    thread.call.length = register(regs, registers::THIRD);
    thread.call.flags = register(regs, registers::FOURTH);
}

/// `sys_exit(regs, ret)`
#[inline(always)]
pub fn returned(ctx: &BtfTracePointContext) {
    let Some(thread) = threads::in_syscall() else { return };
    let result: i64 = ctx.arg(1);
    let now = now_ns();
    let exit_cpu_ns = thread.cpu_ns(now);
    if thread.call.number_plus_one == 0 && !adopt(thread, ctx.arg(0), result, now, exit_cpu_ns) {
        return;
    }
    let number = thread.call.number_plus_one - 1;
    thread.call.number_plus_one = 0;
    let cpu_ns = exit_cpu_ns - thread.call.enter_cpu_ns;
    counters::syscall(number, now - thread.call.enter_ns, cpu_ns, result == EAGAIN);
    match class_of(u64::from(number)) {
        CallClass::Read => end_read(thread, number, result, now, exit_cpu_ns),
        CallClass::Write => end_write(thread, number, result, now, exit_cpu_ns),
        CallClass::Accept => end_accept(thread, number, result, now),
        _ => {}
    }
    thread.clock.syscall_cpu_ns += cpu_ns;
    thread.clock.syscalls += 1;
}

/// An exit whose entry was not seen: in flight at attach. The argument registers still hold the arguments, so that a
/// read or accept that waited since before attach is not lost. False: no call of its own, for a new thread returns
/// once from its parent's clone.
#[inline(always)]
fn adopt(thread: &mut Thread, regs: *const u8, result: i64, now: u64, exit_cpu_ns: u64) -> bool {
    let number = register(regs, registers::NUMBER);
    if result == 0 && matches!(number, 56..=58 | 435) {
        return false;
    }
    counters::count(Counter::UnmatchedExit);
    thread.call.number_plus_one = number as u32 + 1;
    thread.call.enter_ns = now;
    thread.call.enter_cpu_ns = exit_cpu_ns;
    thread.call.enter_run_queue_ns = thread.clock.run_queue_ns;
    thread.call.not_entered = 1;
    thread.call.write.is_write = 0;
    keep_arguments(thread, regs, registers::FIRST);
    true
}

#[inline(always)]
fn end_read(thread: &mut Thread, number: u32, result: i64, now: u64, exit_cpu_ns: u64) {
    if result <= 0 {
        return;
    }
    let (buffer, bytes, iovecs) = first_buffer(thread, number, result);
    let connection = match connections::of_fd(thread.tgid, thread.call.fd, || method_word(buffer)) {
        Found::Connection(connection) => connection,
        Found::Downstream(connection) => {
            let bytes = if peeks(thread, number) { 0 } else { result as u64 };
            return downstream(thread, connection, false, bytes, now);
        }
        Found::OtherTcp => {
            counters::count(Counter::OtherTcpCalls);
            return;
        }
        Found::NotTcp => return,
        Found::NoSlot => {
            lost_request(buffer, Counter::RequestsWithoutSlot);
            return;
        }
    };
    connection.sequence += 1;
    let Some(mut edge) = Edge::begin(RecordKind::Read, thread, number, now, exit_cpu_ns, result) else {
        lost_request(buffer, Counter::RequestsNotRecorded);
        return;
    };
    edge.connection(connection.id, connection.sequence, connection.local_port, connection.remote_port);
    edge.arrivals(connection);
    let closed = if connection.peer_closed == 1 { edge_flags::PEER_CLOSED } else { 0 };
    let no_enter = if thread.call.not_entered == 1 { edge_flags::NO_ENTER } else { 0 };
    edge.finish(
        closed | no_enter | if peeks(thread, number) { edge_flags::PEEK } else { 0 },
        iovecs,
        buffer,
        bytes,
    );
}

/// A call that moved bytes on a connection the target opened. A function of its own, so that servers without any do not
/// carry it in the programs they run.
#[inline(never)]
fn downstream(thread: &Thread, connection: &mut Connection, is_write: bool, bytes: u64, now: u64) {
    connection.sequence += 1;
    emit::downstream(connection, thread, is_write, bytes, now);
}

/// Counts a request that is lost with the read that began it.
#[inline(always)]
fn lost_request(buffer: u64, cause: Counter) {
    if heads::is_method_word(method_word(buffer)) {
        counters::count(cause);
    }
}

/// The read leaves its bytes in the queue.
#[inline(always)]
fn peeks(thread: &Thread, number: u32) -> bool {
    // recvfrom(fd, buf, len, flags), recvmsg(fd, msg, flags)
    let flags = match number {
        45 => thread.call.flags,
        47 => thread.call.length,
        _ => return false,
    };
    flags & MSG_PEEK != 0
}

#[inline(always)]
fn method_word(buffer: u64) -> u32 {
    u32::from_be(kernel::user::<u32>(buffer).unwrap_or(0))
}

#[inline(always)]
fn end_write(thread: &mut Thread, number: u32, result: i64, now: u64, exit_cpu_ns: u64) {
    // A write in flight at attach answers a request from before it.
    if thread.call.write.is_write == 0 {
        return;
    }
    thread.call.write.is_write = 0;
    let connection = match connections::of_fd(thread.tgid, thread.call.fd, || 0) {
        Found::Connection(connection) => connection,
        Found::Downstream(connection) if result > 0 => {
            return downstream(thread, connection, true, result as u64, now);
        }
        Found::OtherTcp => {
            counters::count(Counter::OtherTcpCalls);
            return;
        }
        Found::Downstream(_) | Found::NotTcp | Found::NoSlot => return,
    };
    let delivery = Delivery::of(thread, connection);
    connection.sequence += 1;
    let (write_sequence, unsent) = sequences_after(connection, &delivery, result);
    let whole = delivery.ns != 0 && delivery.sequence == write_sequence;
    connection.delivered_sequence = if whole { write_sequence } else { 0 };
    if unsent != 0 && result > 0 {
        connection.drain_sequence = write_sequence;
        connection.drains = 1;
    }
    let (buffer, bytes, iovecs) = first_buffer(thread, number, result);
    let Some(mut edge) = Edge::begin(RecordKind::Write, thread, number, now, exit_cpu_ns, result) else {
        return;
    };
    edge.connection(connection.id, connection.sequence, connection.local_port, connection.remote_port);
    edge.delivery(
        write_sequence,
        unsent,
        if whole { delivery.ns } else { 0 },
        if whole { delivery.cpu_ns } else { 0 },
    );
    edge.finish(if buffer == 0 { edge_flags::NO_BUFFER } else { 0 }, iovecs, buffer, bytes);
    if emit::awaits_acks() && result > 0 {
        await_ack(connection, write_sequence);
    }
}

/// The acknowledgement may have come inside the call.
#[inline(always)]
fn await_ack(connection: &mut Connection, write_sequence: u32) {
    connection.written_sequence = write_sequence;
    connection.awaits_ack = 1;
    emit::fetch_add_one(&raw mut connection.ack_turns);
    if connection.acked_ns != 0 && connection.acked_sequence == write_sequence {
        connection.awaits_ack = 0;
        emit::acked(connection, connection.acked_ns, write_sequence);
    }
}

/// The peer's data-ready event inside a write.
struct Delivery {
    /// Zero: none, or of another connection.
    ns: u64,
    cpu_ns: u64,
    sequence: u32,
}

impl Delivery {
    #[inline(always)]
    fn of(thread: &Thread, connection: &Connection) -> Self {
        let write = &thread.call.write;
        let ours = write.local_port == connection.local_port && write.remote_port == connection.remote_port;
        Self {
            ns: if ours { write.delivered_ns } else { 0 },
            cpu_ns: write.delivered_cpu_ns,
            sequence: write.delivered_sequence,
        }
    }
}

/// `(write_seq, unsent bytes)` after a write. When everything before it was delivered, and the peer has taken exactly
/// its bytes since, nothing can be unsent: then the socket is not read.
#[inline(always)]
fn sequences_after(connection: &Connection, delivery: &Delivery, result: i64) -> (u32, u32) {
    let expected = connection.delivered_sequence.wrapping_add(result as u32);
    if connection.delivered_sequence != 0 && result > 0 && delivery.ns != 0 && delivery.sequence == expected {
        return (expected, 0);
    }
    let (write_sequence, sent_sequence) = FoundSock(connection.sock as *const u8).send_sequences();
    (write_sequence, write_sequence.wrapping_sub(sent_sequence))
}

#[inline(always)]
fn end_accept(thread: &mut Thread, number: u32, result: i64, now: u64) {
    if result < 0 {
        return;
    }
    connections::forget_fd(thread.tgid, result as u32);
    let found = connections::of_fd(thread.tgid, result as u32, || 0);
    if let Found::Connection(connection) | Found::Downstream(connection) = found {
        if connection.downstream == 1 {
            connection.serves_after_all();
        }
        connection.sequence += 1;
        emit::accepted(connection, thread, number, now);
    }
}

/// `(address, bytes to copy at most, iovecs)` of the first user buffer of a read or write; address 0: none.
#[inline(always)]
fn first_buffer(thread: &Thread, number: u32, result: i64) -> (u64, u64, u32) {
    let moved = if result > 0 { result as u64 } else { 0 };
    let call = &thread.call;
    let (vector, iovecs) = match buffer_of(u64::from(number)) {
        Buffer::None => return (0, 0, 0),
        Buffer::Flat => return (call.buffer, moved, 1),
        Buffer::Vector => (call.buffer, call.length as u32),
        // struct user_msghdr (uapi): msg_iov at 16, msg_iovlen at 24.
        Buffer::Message => match kernel::user::<[u64; 2]>(call.buffer + 16) {
            Some([vector, iovecs]) => (vector, iovecs as u32),
            None => return (0, 0, 0),
        },
    };
    // struct iovec: base, length.
    match kernel::user::<[u64; 2]>(vector) {
        Some([base, length]) => (base, if length < moved { length } else { moved }, iovecs),
        None => (0, 0, iovecs),
    }
}
