//! How long the cgroups of a process were throttled: a wait for a CPU that nobody holds.

use std::fs;
use std::path::{Path, PathBuf};

/// Nanoseconds the process's cgroup and those above it were throttled since they were made, where the kernel says so
/// (cgroup v2, and the cpu controller of v1). `None`: it cannot be told.
pub fn throttled_ns(pid: u32) -> Option<u64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let told: Vec<u64> =
        groups.lines().filter_map(folders).flatten().filter_map(|path| throttled_in(&path)).collect();
    (!told.is_empty()).then(|| told.iter().sum())
}

/// The folder of a line of /proc/PID/cgroup, and those above it.
fn folders(line: &str) -> Option<Vec<PathBuf>> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    let root = match controllers {
        "" if Path::new("/sys/fs/cgroup/unified").is_dir() => "/sys/fs/cgroup/unified",
        "" => "/sys/fs/cgroup",
        named if named.split(',').any(|controller| controller == "cpu") => "/sys/fs/cgroup/cpu",
        _ => return None,
    };
    let group = Path::new(group.trim_start_matches('/'));
    Some(group.ancestors().map(|above| Path::new(root).join(above)).collect())
}

fn throttled_in(folder: &Path) -> Option<u64> {
    of_stat(&fs::read_to_string(folder.join("cpu.stat")).ok()?)
}

/// `throttled_usec` of cgroup v2, `throttled_time` (nanoseconds) of v1.
fn of_stat(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        match name {
            "throttled_usec" => Some(value.parse::<u64>().ok()? * 1000),
            "throttled_time" => value.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_file_are_read() {
        assert_eq!(of_stat("usage_usec 5\nnr_throttled 2\nthrottled_usec 7\n"), Some(7000));
        assert_eq!(of_stat("nr_periods 5\nnr_throttled 2\nthrottled_time 7\n"), Some(7));
        assert_eq!(of_stat("usage_usec 5\n"), None);
    }

    #[test]
    fn the_folders_are_those_of_the_cpu_controller() {
        assert_eq!(folders("4:memory:/x"), None);
        let cpu = folders("2:cpu,cpuacct:/a/b").unwrap();
        assert_eq!(cpu[0], Path::new("/sys/fs/cgroup/cpu/a/b"));
        assert_eq!(cpu.len(), 3);
    }
}
