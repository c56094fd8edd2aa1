//! The machine and kernel, as a recording remembers them.

use procfs::{CpuInfo, Current, Meminfo};

use crate::recording::Environment;

/// What this machine is. A part that cannot be read stays empty or zero: none of them decides anything.
pub fn fingerprint() -> Environment {
    let cpus = CpuInfo::current().ok();
    Environment {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpu_model: cpus.as_ref().and_then(|cpus| cpus.model_name(0)).unwrap_or_default().to_owned(),
        cpus: cpus.map_or(0, |cpus| cpus.num_cores() as u32),
        memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }
}

fn line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_machine_is_described() {
        let environment = super::fingerprint();
        assert!(environment.kernel.starts_with(|c: char| c.is_ascii_digit()));
        assert!(environment.cpus > 0 && environment.memory_bytes > 1 << 20);
        assert!(!environment.congestion_control.is_empty());
    }
}
