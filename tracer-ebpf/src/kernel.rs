//! The only reads of kernel and user memory. Offsets come from the running kernel's BTF, set before load.
//!
//! Arguments of BTF tracepoints are trusted pointers: their members are loaded directly. A pointer kept in a map is
//! not, and is read with `bpf_probe_read_kernel`.

use core::mem::MaybeUninit;

use aya_ebpf::{
    Global,
    helpers::{bpf_probe_read_kernel, bpf_probe_read_user, generated},
};
use tracer_common::settings::Offsets;

#[unsafe(no_mangle)]
static OFFSETS: Global<Offsets> = Global::new(Offsets::ZERO);

/// One offset, as a load the verifier knows the value of (the section is frozen before load).
macro_rules! offset {
    ($field:ident) => {{
        let offsets = (&raw const OFFSETS).cast::<Offsets>();
        // SAFETY: `OFFSETS` is an initialised `Offsets`; volatile, for the loader overrides it.
        unsafe { (&raw const (*offsets).$field).read_volatile() as usize }
    }};
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline(always)]
pub fn now_ns() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { generated::bpf_ktime_get_ns() }
}

/// The CPU this runs on.
#[inline(always)]
pub fn cpu() -> u32 {
    // SAFETY: a helper without arguments.
    unsafe { generated::bpf_get_smp_processor_id() }
}

/// A `struct task_struct` given by a tracepoint or by `bpf_get_current_task_btf`.
#[derive(Clone, Copy)]
pub struct Task(pub *const u8);

impl Task {
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: a helper without arguments; the result is trusted.
        Self(unsafe { generated::bpf_get_current_task_btf() }.cast())
    }

    #[inline(always)]
    pub fn tgid(self) -> u32 {
        load(self.0, offset!(task_tgid))
    }

    #[inline(always)]
    pub fn tid(self) -> u32 {
        load(self.0, offset!(task_pid))
    }

    #[inline(always)]
    pub fn comm(self) -> [u8; 16] {
        let words: [u64; 2] = [load(self.0, offset!(task_comm)), load(self.0, offset!(task_comm) + 8)];
        // SAFETY: same size, any bytes.
        unsafe { core::mem::transmute(words) }
    }

    /// Nanoseconds waited on run queues up to the last arrival on a CPU (`sched_info.run_delay`).
    #[inline(always)]
    pub fn run_delay_ns(self) -> u64 {
        load(self.0, offset!(task_run_delay))
    }

    /// Nanoseconds on CPUs as the kernel counts them (`se.sum_exec_runtime`); exact while the task is off its CPU.
    #[inline(always)]
    pub fn exec_ns(self) -> u64 {
        load(self.0, offset!(task_exec))
    }

    /// Threads of the process that have not exited (`signal->live`); zero: the whole process is ending.
    #[inline(always)]
    pub fn live_threads(self) -> u32 {
        let signal: *const u8 = load(self.0, offset!(task_signal));
        load(signal, offset!(signal_live))
    }

    /// The socket behind an fd of this task, or null when the fd is none.
    ///
    /// task->files->fdt->fd[i]->private_data is a `struct socket` exactly when that socket's `file` points back.
    #[inline(always)]
    pub fn sock_of_fd(self, fd: u32) -> *const u8 {
        let files: *const u8 = load(self.0, offset!(task_files));
        let table: *const u8 = load(files, offset!(files_fdt));
        if fd >= load::<u32>(table, offset!(fdtable_max_fds)) {
            return core::ptr::null();
        }
        let array: *const *const u8 = load(table, offset!(fdtable_fd));
        let file = peek(array.cast::<u8>(), fd as usize * 8, core::ptr::null::<u8>());
        if file.is_null() {
            return core::ptr::null();
        }
        let socket = peek(file, offset!(file_private_data), core::ptr::null::<u8>());
        if socket.is_null() || peek(socket, offset!(socket_file), core::ptr::null::<u8>()) != file {
            return core::ptr::null();
        }
        peek(socket, offset!(socket_sk), core::ptr::null())
    }
}

/// `AF_INET`, `AF_INET6`, `IPPROTO_TCP` (uapi).
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IPPROTO_TCP: u16 = 6;
/// TCP states (`include/net/tcp_states.h`).
pub const TCP_ESTABLISHED: u8 = 1;
pub const TCP_SYN_RECV: u8 = 3;
pub const TCP_CLOSE_WAIT: u8 = 8;
pub const TCP_LISTEN: u8 = 10;

/// What identifies a socket without looking it up.
#[derive(Clone, Copy)]
pub struct Ports {
    pub local: u16,
    /// Host byte order.
    pub remote: u16,
}

/// A `struct sock` given by a tracepoint: trusted.
#[derive(Clone, Copy)]
pub struct Sock(pub *const u8);

impl Sock {
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    #[inline(always)]
    pub fn ports(self) -> Ports {
        Ports {
            local: load(self.0, offset!(sock_num)),
            remote: u16::from_be(load(self.0, offset!(sock_dport))),
        }
    }

    #[inline(always)]
    pub fn state(self) -> u8 {
        load(self.0, offset!(sock_state))
    }

    #[inline(always)]
    pub fn is_inet(self) -> bool {
        let family: u16 = load(self.0, offset!(sock_family));
        family == AF_INET || family == AF_INET6
    }

    /// `(copied_seq, rcv_nxt)`, or `None` when the socket is not TCP.
    #[inline(always)]
    pub fn receive_sequences(self) -> Option<(u32, u32)> {
        // SAFETY: a trusted sock; the helper answers null for what is not a full TCP socket.
        let tcp = unsafe { generated::bpf_skc_to_tcp_sock(self.0.cast_mut().cast()) }.cast::<u8>();
        if tcp.is_null() {
            return None;
        }
        Some((load(tcp, offset!(tcp_copied_seq)), load(tcp, offset!(tcp_rcv_nxt))))
    }
}

/// A `struct sock` found through an fd: not trusted, every read is a copy.
#[derive(Clone, Copy)]
pub struct FoundSock(pub *const u8);

impl FoundSock {
    #[inline(always)]
    pub fn is_tcp(self) -> bool {
        let family = peek(self.0, offset!(sock_family), 0u16);
        (family == AF_INET || family == AF_INET6) && peek(self.0, offset!(sock_protocol), 0u16) == IPPROTO_TCP
    }

    #[inline(always)]
    pub fn state(self) -> u8 {
        peek(self.0, offset!(sock_state), 0)
    }

    #[inline(always)]
    pub fn ports(self) -> Ports {
        Ports {
            local: peek(self.0, offset!(sock_num), 0),
            remote: u16::from_be(peek(self.0, offset!(sock_dport), 0)),
        }
    }

    /// The peer's address; IPv4 as an IPv4-mapped one (RFC 4291 section 2.5.5.2).
    #[inline(always)]
    pub fn remote_address(self) -> [u32; 4] {
        if peek(self.0, offset!(sock_family), 0u16) == AF_INET {
            [0, 0, u32::to_be(0xFFFF), peek(self.0, offset!(sock_daddr), 0)]
        } else {
            peek(self.0, offset!(sock_v6_daddr), [0; 4])
        }
    }

    /// `(write_seq, snd_nxt)`. The socket must be TCP.
    #[inline(always)]
    pub fn send_sequences(self) -> (u32, u32) {
        (peek(self.0, offset!(tcp_write_seq), 0), peek(self.0, offset!(tcp_snd_nxt), 0))
    }
}

/// What a segment that comes in acknowledges: the sequence number the peer expects next.
///
/// At `tcp_probe` (`tcp_rcv_established`, net/ipv4/tcp_input.c) the data begins with the TCP header; RFC 9293 section
/// 3.1: acknowledgement number at byte 8, the ACK bit in byte 13.
#[inline(always)]
pub fn acknowledged(skb: *const u8) -> Option<u32> {
    let header: *const u8 = load(skb, offset!(skb_data));
    const ACK: u8 = 0x10;
    (peek(header, 13, 0u8) & ACK != 0).then(|| u32::from_be(peek(header, 8, 0)))
}

/// A segment on its way to the device: `(the sock it belongs to, sequence just after its last byte)`.
#[inline(always)]
pub fn segment_end(skb: *const u8) -> Option<(u64, u32)> {
    let sock: *const u8 = load(skb, offset!(skb_sk));
    if sock.is_null() {
        return None;
    }
    // Copied, not loaded: the verifier allows no 32-bit arithmetic on what it knows for pointers.
    let head = peek(skb, offset!(skb_head), 0usize);
    let data = peek(skb, offset!(skb_data), 0usize);
    let transport: u16 = load(skb, offset!(skb_transport_header));
    let len: u32 = load(skb, offset!(skb_len));
    let tcp = head.wrapping_add(usize::from(transport)) as *const u8;
    // RFC 9293 section 3.1: sequence number at byte 4, data offset in the high half of byte 12.
    let sequence = u32::from_be(peek(tcp, 4, 0));
    let header_bytes = u32::from(peek(tcp, 12, 0u8) >> 4) * 4;
    let before_transport = (tcp as usize).wrapping_sub(data);
    let payload = len.wrapping_sub(before_transport as u32).wrapping_sub(header_bytes);
    Some((sock as u64, sequence.wrapping_add(payload)))
}

/// Copies a value word by word. A plain assignment becomes a call that copies byte by byte: nine instructions each.
#[inline(always)]
pub fn copy_words<T>(to: *mut T, from: *const T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
    for index in 0..size_of::<T>() / 8 {
        // SAFETY: both are values of `T`, whose size is a multiple of eight; volatile, for the reason above.
        unsafe { to.cast::<u64>().add(index).write_volatile(from.cast::<u64>().add(index).read_volatile()) };
    }
}

/// Loads a member through a trusted pointer.
#[inline(always)]
fn load<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: the verifier checks the access against the structure's BTF; the kernel handles faults.
    unsafe { base.add(offset).cast::<T>().read_volatile() }
}

/// Copies a member through an untrusted pointer; `otherwise` when the memory cannot be read.
#[inline(always)]
fn peek<T: Copy>(base: *const u8, offset: usize, otherwise: T) -> T {
    // SAFETY: the helper handles faults.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(offset).cast::<T>()) }.unwrap_or(otherwise)
}

/// Copies a value of the user's; `None` when the memory cannot be read.
#[inline(always)]
pub fn user<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper handles faults.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}

/// Copies up to `N` bytes of the user's into `into`; returns how many.
#[inline(always)]
pub fn user_bytes<const N: usize>(into: *mut MaybeUninit<[u8; N]>, address: u64, bytes: u64) -> Option<u32> {
    let len = if bytes > N as u64 { N as u32 } else { bytes as u32 };
    // SAFETY: `into` has room for N bytes and len <= N; the helper handles faults.
    let result = unsafe { generated::bpf_probe_read_user(into.cast(), len, address as *const _) };
    (result == 0).then_some(len)
}
