//! The memory that this process may still allocate.
//!
//! Never allocates to find out, and never relies on a single figure: the minimum of the machine's free memory, the
//! limits of the process's control groups and of its address space counts.

use std::path::{Path, PathBuf};

/// Bytes that may be taken: as many as the user allows, else what is free.
pub fn limit(allowed: Option<u64>) -> u64 {
    allowed.unwrap_or_else(available)
}

/// Bytes that can be allocated; `u64::MAX` where the system does not tell.
pub fn available() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let of_machine = kib(&read("/proc/meminfo"), "MemAvailable:");
    let limit = address_space(&read("/proc/self/limits"));
    let of_process = limit.map(|l| l.saturating_sub(kib(&status, "VmSize:").unwrap_or(0)));
    let groups = groups(&read("/proc/self/cgroup"));
    let of_groups = groups.iter().filter_map(|g| free_in(g)).min();
    [of_machine, of_process, of_groups].into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// Gives memory that was freed back to the system, where the C library keeps it for the next allocations: after an optimisation it is tens of
/// megabytes that runs do not need.
pub fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: only memory is given back that nobody has.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A figure of a table of kibibytes, in bytes.
fn kib(table: &str, key: &str) -> Option<u64> {
    let line = table.lines().find_map(|l| l.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The limit of the address space, if there is one.
fn address_space(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|l| l.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The folders of the control groups that the process is in, and of all around them.
fn groups(table: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for line in table.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let root = match controllers.split(',').find(|c| matches!(*c, "" | "memory")) {
            Some("") => Path::new("/sys/fs/cgroup"),
            Some(_) => Path::new("/sys/fs/cgroup/memory"),
            None => continue,
        };
        let own = root.join(path.trim_start_matches('/'));
        out.extend(own.ancestors().take_while(|p| p.starts_with(root)).map(Path::to_path_buf));
    }
    out
}

/// What a group's limit leaves; files that are only cached make room.
fn free_in(group: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let table = read("memory.stat").unwrap_or_default();
    let cached = table.lines().find_map(|l| l.strip_prefix("inactive_file "));
    let cached = cached.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_systems_tables() {
        let meminfo = "MemTotal:       24100000 kB\nMemAvailable:   13000000 kB\n";
        assert_eq!(kib(meminfo, "MemAvailable:"), Some(13_000_000 * 1024));
        assert_eq!(kib("MemAvailable: x kB", "MemAvailable:"), None);
        let limits = "Max stack size     8388608   unlimited   bytes\n\
                      Max address space  4294967296 unlimited bytes\n";
        assert_eq!(address_space(limits), Some(1 << 32));
        assert_eq!(address_space("Max address space  unlimited unlimited bytes"), None);
    }

    #[test]
    fn every_group_around_the_process_counts() {
        let paths = |table: &str| -> Vec<String> {
            groups(table).iter().map(|p| p.display().to_string()).collect()
        };
        let root = "/sys/fs/cgroup";
        assert_eq!(
            paths("0::/a/b\n"),
            [format!("{root}/a/b"), format!("{root}/a"), root.to_string()]
        );
        assert_eq!(
            paths("4:cpu,memory:/a\n3:pids:/\n"),
            [format!("{root}/memory/a"), format!("{root}/memory")]
        );
        assert!(available() > 0);
    }
}
