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
    /// `task_struct.sched_info.run_delay`
    pub task_run_delay: u32,
    /// `task_struct.se.sum_exec_runtime`
    pub task_exec: u32,
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
    /// `sock_common.skc_daddr`
    pub sock_daddr: u32,
    /// `sock_common.skc_v6_daddr`
    pub sock_v6_daddr: u32,
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
    /// `sk_buff.sk`
    pub skb_sk: u32,
    /// `sk_buff.head`
    pub skb_head: u32,
    /// `sk_buff.data`
    pub skb_data: u32,
    /// `sk_buff.len`
    pub skb_len: u32,
    /// `sk_buff.transport_header`
    pub skb_transport_header: u32,
}

impl Offsets {
    /// Placeholder until user space sets the real ones.
    pub const ZERO: Self = Self {
        task_tgid: 0,
        task_pid: 0,
        task_comm: 0,
        task_files: 0,
        task_run_delay: 0,
        task_exec: 0,
        task_signal: 0,
        signal_live: 0,
        files_fdt: 0,
        fdtable_max_fds: 0,
        fdtable_fd: 0,
        file_private_data: 0,
        socket_file: 0,
        socket_sk: 0,
        sock_family: 0,
        sock_state: 0,
        sock_num: 0,
        sock_dport: 0,
        sock_daddr: 0,
        sock_v6_daddr: 0,
        sock_protocol: 0,
        tcp_copied_seq: 0,
        tcp_rcv_nxt: 0,
        tcp_write_seq: 0,
        tcp_snd_nxt: 0,
        skb_sk: 0,
        skb_head: 0,
        skb_data: 0,
        skb_len: 0,
        skb_transport_header: 0,
    };
}

/// Threads followed at once.
pub const MAX_THREADS: u32 = 8_192;
/// Processes followed at once.
pub const MAX_PROCESSES: u32 = 4_096;
/// Connections followed at once, unless the user asks for more.
pub const DEFAULT_MAX_CONNECTIONS: u32 = 16_384;
/// Memory of all lanes of records together in bytes, unless the user asks for another.
pub const DEFAULT_RING_BYTES: u32 = 32 << 20;
/// Slots that a lane holds back: programs that interrupt each other on one CPU may each take one past the check.
pub const LANE_RESERVE: u64 = 16;
/// Syscall numbers counted; a larger one is counted as the last.
pub const SYSCALL_SLOTS: u32 = 512;
/// Bytes in the filter of target process ids.
pub const PROCESS_FILTER_SLOTS: u32 = 65_536;
