//! Offsets of kernel structure members from the running kernel's BTF.

use std::{collections::HashSet, fs, path::Path};

use anyhow::{Context, Result, anyhow, bail};
use tracer_common::settings::Offsets;

use super::btf::Btf;

/// The running kernel's type information.
pub struct KernelTypes(Btf);

/// Where the kernel publishes its types.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

impl KernelTypes {
    /// Reads the running kernel's BTF.
    pub fn of_running_kernel() -> Result<Self> {
        if !Path::new(KERNEL_BTF).exists() {
            bail!(
                "this kernel publishes no type information ({KERNEL_BTF} is missing), and without it no structure \
                 offset is certain; run a kernel built with CONFIG_DEBUG_INFO_BTF=y (Debian's, Fedora's and Ubuntu's are)"
            );
        }
        let bytes = fs::read(KERNEL_BTF).with_context(|| format!("cannot read {KERNEL_BTF}"))?;
        Ok(Self(Btf::parse(bytes).with_context(|| format!("cannot understand {KERNEL_BTF}"))?))
    }

    /// Names of the tracepoints that BTF programs can attach to.
    pub fn tracepoints(&self) -> HashSet<&str> {
        self.0.typedefs().into_iter().filter_map(|name| name.strip_prefix("btf_trace_")).collect()
    }

    /// Every offset the programs need; an error names the first member that is missing.
    pub fn offsets(&self) -> Result<Offsets> {
        Ok(Offsets {
            task_tgid: self.offset("task_struct", "tgid")?,
            task_pid: self.offset("task_struct", "pid")?,
            task_comm: self.offset("task_struct", "comm")?,
            task_files: self.offset("task_struct", "files")?,
            task_run_delay: self.offset("task_struct", "sched_info")?
                + self.offset("sched_info", "run_delay")?,
            task_exec: self.offset("task_struct", "se")? + self.offset("sched_entity", "sum_exec_runtime")?,
            task_signal: self.offset("task_struct", "signal")?,
            signal_live: self.offset("signal_struct", "live")?,
            files_fdt: self.offset("files_struct", "fdt")?,
            fdtable_max_fds: self.offset("fdtable", "max_fds")?,
            fdtable_fd: self.offset("fdtable", "fd")?,
            file_private_data: self.offset("file", "private_data")?,
            socket_file: self.offset("socket", "file")?,
            socket_sk: self.offset("socket", "sk")?,
            sock_family: self.offset("sock_common", "skc_family")?,
            sock_state: self.offset("sock_common", "skc_state")?,
            sock_num: self.offset("sock_common", "skc_num")?,
            sock_dport: self.offset("sock_common", "skc_dport")?,
            sock_daddr: self.offset("sock_common", "skc_daddr")?,
            sock_v6_daddr: self.offset("sock_common", "skc_v6_daddr")?,
            sock_protocol: self.offset("sock", "sk_protocol")?,
            tcp_copied_seq: self.offset("tcp_sock", "copied_seq")?,
            tcp_rcv_nxt: self.offset("tcp_sock", "rcv_nxt")?,
            tcp_write_seq: self.offset("tcp_sock", "write_seq")?,
            tcp_snd_nxt: self.offset("tcp_sock", "snd_nxt")?,
            skb_sk: self.offset("sk_buff", "sk")?,
            skb_head: self.offset("sk_buff", "head")?,
            skb_data: self.offset("sk_buff", "data")?,
            skb_len: self.offset("sk_buff", "len")?,
            skb_transport_header: self.offset("sk_buff", "transport_header")?,
        })
    }

    fn offset(&self, structure: &str, member: &str) -> Result<u32> {
        self.0.member_offset(structure, member).ok_or_else(|| {
            anyhow!(
                "this kernel has no member `{member}` in `struct {structure}`: its layout is not one this version of \
                 tracer knows; please report the output of `uname -r`"
            )
        })
    }
}
