//! Settings: what user space tells the programs before they load, and the sizes of the maps.

/// Offsets in bytes of kernel structure members, resolved from the running kernel's BTF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Offsets {
    /// `task_struct.tgid`
    pub task_tgid: u32,
    /// `task_struct.pid`
    pub task_pid: u32,
    /// `task_struct.comm`
    pub task_comm: u32,
    /// `task_struct.files`
    pub task_files: u32,
    /// `task_struct.signal`
    pub task_signal: u32,
    /// `signal_struct.live`
    pub signal_live: u32,
    /// `files_struct.fdt`
    pub files_fdt: u32,
    /// `fdtable.max_fds`
    pub fdtable_max_fds: u32,
    /// `fdtable.fd`
    pub fdtable_fd: u32,
    /// `file.private_data`
    pub file_private_data: u32,
    /// `socket.file`
    pub socket_file: u32,
    /// `socket.sk`
    pub socket_sk: u32,
    /// `sock_common.skc_family`
    pub sock_family: u32,
    /// `sock_common.skc_state`
    pub sock_state: u32,
    /// `sock_common.skc_num`
    pub sock_num: u32,
    /// `sock_common.skc_dport`
    pub sock_dport: u32,
    /// `sock.sk_protocol`
    pub sock_protocol: u32,
    /// `tcp_sock.copied_seq`
    pub tcp_copied_seq: u32,
    /// `tcp_sock.rcv_nxt`
    pub tcp_rcv_nxt: u32,
    /// `tcp_sock.write_seq`
    pub tcp_write_seq: u32,
    /// `tcp_sock.snd_nxt`
    pub tcp_snd_nxt: u32,
}

/// Threads followed at once.
pub const MAX_THREADS: u32 = 8_192;
/// Processes followed at once.
pub const MAX_PROCESSES: u32 = 4_096;
/// Connections followed at once, unless the user asks for more.
pub const DEFAULT_MAX_CONNECTIONS: u32 = 16_384;
/// Size of the ring buffer in bytes, unless the user asks for another; a power of two and of pages.
pub const DEFAULT_RING_BYTES: u32 = 32 << 20;
/// Syscall numbers counted; a larger one is counted as the last.
pub const SYSCALL_SLOTS: u32 = 512;
/// Words in the bitmap of target process ids (a filter: a set bit says "perhaps").
pub const PROCESS_BITMAP_WORDS: u32 = 1_024;
