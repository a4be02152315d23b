//! What processes and disks have spent, from the kernel's tables. What is not here: which processes count (`server`).

use std::fs;
use std::time::Duration;

/// Clock ticks of `/proc` in a second; the kernel's interface has 100 whatever its own tick.
const TICKS: u64 = 100;

/// CPU time of a process, its threads and the children it has waited for.
pub(crate) fn spent(pid: u32) -> Duration {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Duration::ZERO };
    // The name in brackets may hold anything; user, system, and the same of waited-for children are fields 14 to 17.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return Duration::ZERO };
    let ticks: u64 = fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS)
}

/// The children of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// Resident memory of a process in MiB.
pub(crate) fn resident_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or_default() / 1_024.0
}

/// Flushes that all disks have done; 0 where the kernel does not count them.
pub(crate) fn flushes() -> u64 {
    let disks = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    disks.lines().filter_map(|line| line.split_whitespace().nth(18)).filter_map(|n| n.parse::<u64>().ok()).sum()
}
