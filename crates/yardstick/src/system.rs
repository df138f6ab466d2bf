//! The thread's CPU, its time, its signals, and what `/proc` tells of the process that is measured.
//!
//! Units: nanoseconds. The CPU of a target is the sum of its threads' run time
//! (`/proc/PID/task/*/schedstat`, first field) and of `ksoftirqd` on its CPUs; without
//! CONFIG_IRQ_TIME_ACCOUNTING the kernel leaves the softirq that interrupts a thread inside that
//! thread's run time, with it the softirq column of `/proc/stat` has to be added. What no thread's
//! time has is the softirq of a CPU whose threads sleep: where frames are steered to the target's
//! CPU (RPS) that is a good part of the work. Then [`Counted::Core`] takes everything that the CPU
//! was not idle: the idle column is exact, since the kernel takes interrupts out of it, but every
//! neighbour on that CPU counts too.

use std::fs;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Pins the calling thread to one CPU, if one is asked for.
pub(crate) fn pin(cpu: Option<usize>) -> Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot pin to CPU {cpu}"))
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Now, on the clock that all processes share.
pub(crate) fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Raises the soft limit of descriptors to the hard one.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Not enough descriptors shows later, as an accept or a connect that fails and says so.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Blocks SIGTERM, SIGINT and SIGUSR1 and returns the descriptor on which they arrive.
pub(crate) fn block_signals() -> Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use; the calls touch only it, and the
    // descriptor is new and ours.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    anyhow::ensure!(fd >= 0, "signalfd: {}", std::io::Error::last_os_error());
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One look at a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Run time of its threads.
    pub(crate) threads_ns: u64,
    /// Run time of `ksoftirqd` on its CPUs.
    pub(crate) ksoftirqd_ns: u64,
    /// Softirq column of its CPUs, in ticks turned to time.
    pub(crate) softirq_ns: u64,
    /// Time that its CPUs were idle.
    pub(crate) idle_ns: u64,
    /// Voluntary context switches of its threads.
    pub(crate) switches: u64,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
}

/// What counts as the target's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Its threads and `ksoftirqd`.
    Threads,
    /// All that its CPUs did.
    Core,
}

/// Which process is looked at, and on which CPUs it runs.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pid: u32,
    cpus: Vec<usize>,
    ksoftirqd: Vec<u32>,
    /// Whether the softirq column has to be added to the threads' time.
    pub(crate) accounts_irq: bool,
    pub(crate) counted: Counted,
}

impl Target {
    /// Finds what belongs to the process's CPUs.
    pub(crate) fn new(pid: u32, cpus: &[usize]) -> Self {
        let names: Vec<String> = cpus.iter().map(|cpu| format!("ksoftirqd/{cpu}")).collect();
        let ksoftirqd = numbered("/proc")
            .into_iter()
            .filter(|pid| {
                let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                names.iter().any(|name| name == comm.trim())
            })
            .collect();
        Self {
            pid,
            cpus: cpus.to_vec(),
            ksoftirqd,
            accounts_irq: kernel_accounts_irq(),
            counted: Counted::Threads,
        }
    }

    /// Looks once. A process that has gone counts as zero.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        let tasks = format!("/proc/{}/task", self.pid);
        for tid in numbered(&tasks) {
            usage.threads_ns += run_time(&format!("{tasks}/{tid}/schedstat"));
            usage.switches += field(&format!("{tasks}/{tid}/status"), "voluntary_ctxt_switches:");
        }
        for pid in &self.ksoftirqd {
            usage.ksoftirqd_ns += run_time(&format!("/proc/{pid}/schedstat"));
        }
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        for cpu in &self.cpus {
            let columns = columns(&stat, *cpu);
            usage.softirq_ns += columns.softirq_ns;
            usage.idle_ns += columns.idle_ns;
        }
        usage.resident = field(&format!("/proc/{}/status", self.pid), "VmRSS:") * 1024;
        usage
    }

    /// CPU time spent for the target between two looks that were `window` apart.
    pub(crate) fn spent(&self, from: Usage, to: Usage, window: Duration) -> Duration {
        match self.counted {
            Counted::Threads => self.threads(from, to),
            Counted::Core => self.core(from, to, window),
        }
    }

    /// Run time of its threads and of `ksoftirqd`.
    pub(crate) fn threads(&self, from: Usage, to: Usage) -> Duration {
        let mut ns = to.threads_ns.saturating_sub(from.threads_ns)
            + to.ksoftirqd_ns.saturating_sub(from.ksoftirqd_ns);
        if self.accounts_irq {
            ns += to.softirq_ns.saturating_sub(from.softirq_ns);
        }
        Duration::from_nanos(ns)
    }

    /// Time that the CPUs were not idle.
    pub(crate) fn core(&self, from: Usage, to: Usage, window: Duration) -> Duration {
        let idle = Duration::from_nanos(to.idle_ns.saturating_sub(from.idle_ns));
        (window * self.cpus.len() as u32).saturating_sub(idle)
    }
}

/// The entries of a directory whose names are numbers.
fn numbered(path: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn run_time(path: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

/// What is read of a CPU's line in `/proc/stat`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Columns {
    softirq_ns: u64,
    idle_ns: u64,
}

/// The line of a CPU; `/proc/stat` counts in hundredths of a second. Waiting for a disk is idle,
/// too.
fn columns(stat: &str, cpu: usize) -> Columns {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
    let column = |at: usize| ticks.get(at).copied().unwrap_or(0) * 10_000_000;
    Columns { softirq_ns: column(6), idle_ns: column(3) + column(4) }
}

/// Whether the kernel takes interrupt time out of the threads' run time. Kernels that hide their
/// configuration are taken not to: then the figures of both sides carry the same error.
fn kernel_accounts_irq() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let plain = fs::read_to_string(format!("/boot/config-{}", release.trim())).ok();
    let text = plain.or_else(|| {
        let output = std::process::Command::new("zcat")
            .arg("/proc/config.gz")
            .stderr(std::process::Stdio::null())
            .output()
            .ok()?;
        String::from_utf8(output.stdout).ok()
    });
    text.is_some_and(|text| text.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_cpu_are_found_by_its_number() {
        let stat = "cpu  9 9 9 9 9 9 9\ncpu1 1 2 3 400 5 6 7 8 9 10\ncpu10 1 1 1 1 1 1 1\n";
        let wanted = Columns { softirq_ns: 70_000_000, idle_ns: 4_050_000_000 };
        assert_eq!(columns(stat, 1), wanted);
        assert_eq!(columns(stat, 2), Columns::default());
    }

    #[test]
    fn a_core_counts_what_it_was_not_idle_and_threads_what_they_ran() {
        let threads = Target::new(0, &[0, 1]);
        let core = Target { counted: Counted::Core, ..threads.clone() };
        let from = Usage::default();
        let to = Usage { idle_ns: 1_500_000_000, threads_ns: 200_000_000, ..from };
        let window = Duration::from_secs(1);
        assert_eq!(core.spent(from, to, window), Duration::from_millis(500));
        assert_eq!(threads.spent(from, to, window), Duration::from_millis(200));
    }
}
