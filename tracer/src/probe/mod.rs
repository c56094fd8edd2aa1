//! The kernel side, owned: the BPF object loaded, its programs attached, its maps read. Dropping it removes everything.

mod btf;
pub mod hooks;
#[cfg(feature = "bpf-log")]
mod log;
pub mod offsets;
pub mod reader;

use std::{collections::BTreeSet, io, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, PerCpuArray, PerCpuValues, Queue},
    programs::{BtfTracePoint, Program, ProgramError, tp_btf::BtfTracePointLinkId},
};
use tracer_common::{
    counters::{Counter, Holder, SyscallCounter},
    records::Slot,
    settings::{
        DEFAULT_MAX_CONNECTIONS, DEFAULT_RING_BYTES, LANE_RESERVE, MAX_THREADS, PROCESS_FILTER_SLOTS,
        SYSCALL_SLOTS,
    },
};

use crate::recording::{HolderTotals, SyscallTotals, syscall_name};
use hooks::{Detail, HOOKS, Hook, Need};
use offsets::KernelTypes;

/// The committed BPF object, built from `tracer-ebpf` by `cargo xtask build-ebpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("tracer.bpf.o");

/// What to load.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections followed at once.
    pub max_connections: u32,
    /// Memory of the records' lanes in bytes, shared out evenly to the CPUs.
    pub ring_bytes: u32,
    /// Detail asked for.
    pub details: BTreeSet<Detail>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: DEFAULT_MAX_CONNECTIONS,
            ring_bytes: default_ring_bytes(),
            details: BTreeSet::new(),
        }
    }
}

/// Run time of one program, from the kernel's statistics.
#[derive(Clone, Debug)]
pub struct ProgramRuns {
    /// Name of the program.
    pub name: String,
    /// Nanoseconds run.
    pub run_ns: u64,
    /// Times run.
    pub runs: u64,
}

/// The loaded programs.
pub struct Probes {
    bpf: Ebpf,
    hooks: Vec<&'static Hook>,
    lanes: Lanes,
    /// Of all maps: some are taken out later.
    map_bytes: u64,
    links: Vec<(&'static str, BtfTracePointLinkId)>,
    #[cfg(feature = "bpf-log")]
    log: aya_log::EbpfLogger<log::Stderr>,
}

impl Probes {
    /// Loads every program that is required or asked for. Nothing is attached yet.
    pub fn load(options: &Options) -> Result<Self> {
        let types = KernelTypes::of_running_kernel()?;
        let hooks = wanted_hooks(&types, &options.details)?;
        let btf = kernel_btf()?;
        let connections = options.max_connections;
        let lanes = Lanes::of(options.ring_bytes)?;
        let mut bpf = load_object(options, &lanes, &types, &btf)?;
        for hook in &hooks {
            program(&mut bpf, hook.name)?
                .load(hook.name, &btf)
                .map_err(|error| not_loaded(program_error(hook.name, &error)))?;
        }
        let map_bytes = bpf.maps().filter_map(|(_, map)| map_memory_bytes(map)).sum();
        let mut probes = Self {
            #[cfg(feature = "bpf-log")]
            log: log::of(&mut bpf)?,
            bpf,
            hooks,
            lanes,
            map_bytes,
            links: Vec::new(),
        };
        probes.fill_free_slots("FREE_CONNECTIONS", connections)?;
        probes.fill_free_slots("FREE_THREADS", MAX_THREADS)?;
        drop((types, btf));
        give_memory_back();
        Ok(probes)
    }

    /// Attaches every loaded program, then makes every CPU switch once, so that running target threads are known.
    pub fn attach(&mut self) -> Result<()> {
        for hook in self.hooks.clone() {
            let link = program(&mut self.bpf, hook.name)?
                .attach()
                .map_err(|error| program_error(hook.name, &error))?;
            self.links.push((hook.name, link));
        }
        switch_every_cpu()
    }

    /// Detaches every program: the syscall hooks first, the scheduler last.
    pub fn detach(&mut self) -> Result<()> {
        while let Some((name, link)) = self.links.pop() {
            program(&mut self.bpf, name)?.detach(link).map_err(|error| program_error(name, &error))?;
        }
        #[cfg(feature = "bpf-log")]
        self.log.flush();
        Ok(())
    }

    /// Adds a process to the target; children it forks later join by themselves.
    pub fn add_process(&mut self, process_id: u32) -> Result<()> {
        HashMap::<_, u32, u32>::try_from(self.map_mut("PROCESSES")?)?.insert(process_id, 1, 0)?;
        Array::<_, u8>::try_from(self.map_mut("MAY_BE_TARGET")?)?.set(
            process_id % PROCESS_FILTER_SLOTS,
            1,
            0,
        )?;
        Ok(())
    }

    /// Says that the target serves a port, so that connections to it are followed from their handshake.
    pub fn serve_port(&mut self, port: u16) -> Result<()> {
        Ok(Array::<_, u8>::try_from(self.map_mut("SERVED_PORTS")?)?.set(u32::from(port), 1, 0)?)
    }

    /// Takes the reading end of the lanes of records. Once only.
    pub fn take_reader(&mut self) -> Result<reader::Reader> {
        let mut take = |name| {
            self.bpf.take_map(name).ok_or_else(|| anyhow!("the records' lanes were taken already ({name})"))
        };
        reader::Reader::new(take("LANES")?, take("LANE_ENDS")?, self.lanes.count, self.lanes.slots)
    }

    /// Every counter, summed over CPUs, in the order of [`Counter::ALL`].
    pub fn counters(&self) -> Result<Vec<(Counter, u64)>> {
        let counts = PerCpuArray::<_, u64>::try_from(self.map("COUNTS")?)?;
        Counter::ALL
            .iter()
            .map(|&counter| Ok((counter, counts.get(&(counter as u32), 0)?.iter().sum())))
            .collect()
    }

    /// Every syscall that returned at least once, most frequent first.
    pub fn syscalls(&self) -> Result<Vec<SyscallTotals>> {
        let counters = PerCpuArray::<_, SyscallCounter>::try_from(self.map("SYSCALLS")?)?;
        let mut totals = Vec::new();
        for number in 0..SYSCALL_SLOTS {
            let sum = add_up(&counters.get(&number, 0)?);
            if sum.calls > 0 {
                totals.push(SyscallTotals {
                    name: syscall_name(number).into_owned(),
                    calls: sum.calls,
                    eagain: sum.eagain,
                    wall_ns: sum.wall_ns,
                    cpu_ns: sum.cpu_ns,
                });
            }
        }
        totals.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        Ok(totals)
    }

    /// Who held a CPU while the target waited, longest first.
    pub fn holders(&self) -> Result<Vec<HolderTotals>> {
        let own_process = std::process::id();
        let holders = HashMap::<_, u32, Holder>::try_from(self.map("HOLDERS")?)?;
        let mut totals = Vec::new();
        for entry in holders.iter() {
            let (tid, holder) = entry?;
            let name = String::from_utf8_lossy(&holder.comm).trim_end_matches('\0').to_owned();
            totals.push(HolderTotals {
                tid,
                process_id: holder.tgid,
                name,
                held_ns: holder.held_ns,
                is_tracer: holder.tgid == own_process,
            });
        }
        totals.sort_by_key(|holder| std::cmp::Reverse(holder.held_ns));
        Ok(totals)
    }

    /// Run time of each attached program so far; zero unless the kernel keeps run-time statistics.
    pub fn program_runs(&self) -> Result<Vec<ProgramRuns>> {
        self.hooks
            .iter()
            .map(|hook| {
                let program = self.bpf.program(hook.name).ok_or_else(|| missing_program(hook.name))?;
                let info = program.info()?;
                Ok(ProgramRuns {
                    name: hook.name.to_owned(),
                    run_ns: info.run_time().as_nanos() as u64,
                    runs: info.run_count(),
                })
            })
            .collect()
    }

    /// Run time of a program that does nothing, on the same event as the syscall hooks, for as long as `meanwhile`
    /// takes: what the kernel's statistics show of themselves. Zero unless the kernel keeps them.
    pub fn measure_empty(meanwhile: impl FnOnce()) -> Result<ProgramRuns> {
        const NAME: &str = "empty";
        let btf = kernel_btf()?;
        let options = Options { max_connections: 2, ..Options::default() };
        let lanes = Lanes::of(options.ring_bytes)?;
        let mut bpf = load_object(&options, &lanes, &KernelTypes::of_running_kernel()?, &btf)?;
        let empty = program(&mut bpf, NAME)?;
        empty.load("sys_enter", &btf).map_err(|error| not_loaded(program_error(NAME, &error)))?;
        empty.attach().map_err(|error| program_error(NAME, &error))?;
        meanwhile();
        let info = empty.info()?;
        Ok(ProgramRuns {
            name: NAME.to_owned(),
            run_ns: info.run_time().as_nanos() as u64,
            runs: info.run_count(),
        })
    }

    /// Bytes of kernel memory the maps take, as the kernel counts them (`memlock` in the map's fdinfo).
    pub fn map_bytes(&self) -> u64 {
        self.map_bytes
    }

    fn fill_free_slots(&mut self, name: &str, slots: u32) -> Result<()> {
        let mut free = Queue::<_, u32>::try_from(self.map_mut(name)?)?;
        // Slot 0 means "none" and is never handed out.
        for slot in 1..slots {
            free.push(slot, 0)?;
        }
        Ok(())
    }

    fn map(&self, name: &str) -> Result<&aya::maps::Map> {
        self.bpf.map(name).ok_or_else(|| anyhow!("the BPF object has no map {name}"))
    }

    fn map_mut(&mut self, name: &str) -> Result<&mut aya::maps::Map> {
        self.bpf.map_mut(name).ok_or_else(|| anyhow!("the BPF object has no map {name}"))
    }
}

/// Memory of all lanes together when none is asked for: 32 MiB, and more where that would leave a CPU less than 4.
pub fn default_ring_bytes() -> u32 {
    const LEAST_BYTES: u32 = 4 << 20;
    // Where the number of CPUs cannot be read, loading says so.
    let cpus = aya::util::nr_cpus().unwrap_or(1) as u32;
    DEFAULT_RING_BYTES.max(cpus.next_power_of_two().saturating_mul(LEAST_BYTES))
}

/// One lane of records for each CPU there may be.
#[derive(Clone, Copy)]
struct Lanes {
    count: usize,
    /// Slots of each, a power of two.
    slots: usize,
}

impl Lanes {
    fn of(bytes: u32) -> Result<Self> {
        /// Twice what a lane holds back.
        const LEAST_SLOTS: usize = 2 * LANE_RESERVE as usize;
        let count = aya::util::nr_cpus().map_err(|(path, error)| anyhow!("cannot read {path}: {error}"))?;
        let slots = (bytes as usize / count / size_of::<Slot>()).max(LEAST_SLOTS);
        Ok(Self { count, slots: 1 << slots.ilog2() })
    }
}

fn kernel_btf() -> Result<Btf> {
    Btf::from_sys_fs().context("cannot read the kernel's type information")
}

/// The object with its maps; no program is in the kernel yet.
fn load_object(options: &Options, lanes: &Lanes, types: &KernelTypes, btf: &Btf) -> Result<Ebpf> {
    let connections = options.max_connections;
    let lane_slots = lanes.slots as u32;
    let fd_slots = connections.saturating_mul(4).checked_next_power_of_two().unwrap_or(1 << 31);
    EbpfLoader::new()
        .btf(Some(btf))
        .override_global("OFFSETS", &types.offsets()?, true)
        .map_max_entries("CONNECTIONS", connections)
        .map_max_entries("FREE_CONNECTIONS", connections)
        .map_max_entries("SOCKETS", connections)
        .override_global("FD_SLOTS", &fd_slots, true)
        .map_max_entries("FDS", fd_slots)
        .override_global("LANE_SLOTS", &lane_slots, true)
        .override_global("AWAITS_ACKS", &u32::from(options.details.contains(&Detail::Acks)), true)
        .map_max_entries("LANES", lane_slots * lanes.count as u32)
        .map_max_entries("LANE_ENDS", lanes.count as u32)
        .load(OBJECT)
        .map_err(|error| not_loaded(error.into()))
}

/// The required hooks and those of the details asked for; a missing one is one clear sentence.
fn wanted_hooks(types: &KernelTypes, details: &BTreeSet<Detail>) -> Result<Vec<&'static Hook>> {
    let tracepoints = types.tracepoints();
    let wanted = HOOKS.iter().filter(|hook| match hook.need {
        Need::Required => true,
        Need::OnRequest(detail) => details.contains(&detail),
    });
    wanted
        .map(|hook| {
            if tracepoints.contains(hook.name) {
                return Ok(hook);
            }
            bail!(
                "this kernel ({}) has no tracepoint {}, which tracer needs ({}); run Linux 6.12 or later",
                rustix::system::uname().release().to_string_lossy(),
                hook.name,
                hook.lost_without
            )
        })
        .collect()
}

fn program<'a>(bpf: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint> {
    let program: &mut Program = bpf.program_mut(name).ok_or_else(|| missing_program(name))?;
    program.try_into().with_context(|| format!("the BPF program {name} is not a BTF tracepoint"))
}

fn missing_program(name: &str) -> anyhow::Error {
    anyhow!("the embedded BPF object has no program {name}; rebuild it with `cargo xtask build-ebpf`")
}

/// The verifier's last lines always; they say what it did not like.
fn program_error(name: &str, error: &ProgramError) -> anyhow::Error {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        let log = verifier_log.to_string();
        let last: Vec<&str> = log.lines().rev().take(12).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        return anyhow!("the kernel refused the BPF program {name}: {io_error}\n{}", last.join("\n"));
    }
    anyhow!("BPF program {name}: {error}")
}

fn not_loaded(error: anyhow::Error) -> anyhow::Error {
    let denied = error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied)
    });
    if denied {
        error.context("loading BPF programs is not permitted; run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE")
    } else {
        error.context("the BPF programs could not be loaded")
    }
}

fn add_up(values: &PerCpuValues<SyscallCounter>) -> SyscallCounter {
    values.iter().fold(SyscallCounter::default(), |sum, value| SyscallCounter {
        calls: sum.calls + value.calls,
        eagain: sum.eagain + value.eagain,
        wall_ns: sum.wall_ns + value.wall_ns,
        cpu_ns: sum.cpu_ns + value.cpu_ns,
    })
}

/// The kernel's types took some 25 MiB in small pieces, which the allocator would keep for good.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it gives back only what is not in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes every CPU switch to this process once and back: who ran there is known afterwards, and its time is counted.
///
/// CPUs this process may not use are left out; a target thread running there is known at its own next switch.
pub fn switch_every_cpu() -> Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let visit = || {
        for cpu in online_cpus() {
            let mut only = CpuSet::new();
            only.set(cpu);
            if sched_setaffinity(None, &only).is_ok() {
                // Asleep and back: the switch happens even when this thread was on that CPU already.
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    };
    std::thread::spawn(visit).join().map_err(|_| anyhow!("the thread that visits every CPU panicked"))
}

/// CPUs that are online, from /sys; all that a process could ever name when /sys is not to be read.
fn online_cpus() -> Vec<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut cpus = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last);
        }
    }
    if cpus.is_empty() { (0..rustix::thread::CpuSet::MAX_CPU).collect() } else { cpus }
}

fn map_memory_bytes(map: &aya::maps::Map) -> Option<u64> {
    let data: &MapData = map_data(map)?;
    use std::os::fd::{AsFd, AsRawFd};
    let info =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", data.fd().as_fd().as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
}

fn map_data(map: &aya::maps::Map) -> Option<&MapData> {
    use aya::maps::Map;
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::PerCpuArray(data)
        | Map::Queue(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}
