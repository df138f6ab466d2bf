//! The process and its threads: CPUs, the limit of descriptors, processor time, and how a panic
//! ends.
//!
//! Units: CPUs by the system's numbers, times as `Duration`. Errors: what an ordinary user may not
//! do is reported to the caller, who goes on without.

use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often the calling thread lost its CPU without having slept, so far.
pub(crate) fn lost_switches() -> u64 {
    // SAFETY: numbers are valid as zeros, and the call writes to nothing else.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_nivcsw).unwrap_or_default()
}

/// The CPUs that this process may use.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Keeps the calling thread on these CPUs.
pub(crate) fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        set.set(*cpu);
    }
    sched_setaffinity(None, &set)?;
    Ok(())
}

/// Lets the calling thread run ahead of all ordinary ones (SCHED_FIFO, the least of its priorities),
/// and with it what this thread starts. Needs CAP_SYS_NICE.
pub(crate) fn run_first() -> io::Result<()> {
    // What the kernel takes: its one field. Some C libraries have more, and no such function.
    let priority: libc::c_int = 1;
    // SAFETY: the parameter lives until the call returns, which writes to nothing.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Raises the soft limit of descriptors to the hard one.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Not enough descriptors shows later, as an accept that pauses.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Processor time of all threads of this process so far: shards, disk threads, and the kernel's
/// workers of its rings.
pub fn processor_time() -> Duration {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let nanos = tasks
        .flatten()
        .filter_map(|task| {
            // A thread may end between the listing and the look.
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum();
    Duration::from_nanos(nanos)
}

/// Ends the process when its thread panics: a shard that is gone would leave connections and disks
/// without an answer for ever. The panic hook has written the message before.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = std::thread::current();
            eprintln!("thread {} has panicked: aborting", thread.name().unwrap_or("?"));
            std::process::abort();
        }
    }
}

/// Takes a lock. One is poisoned only by a panic of its holder, which ends the process or comes
/// where nothing is half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work() {
        if !std::path::Path::new("/proc/self/schedstat").exists() {
            return;
        }
        let before = processor_time();
        let mut sum = 0u64;
        while processor_time() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(processor_time() > Duration::ZERO);
    }

    #[test]
    fn a_thread_can_be_kept_on_a_cpu_that_is_allowed() {
        let cpu = allowed_cpus()[0];
        std::thread::spawn(move || {
            pin(&[cpu]).unwrap();
            assert_eq!(allowed_cpus(), [cpu]);
        })
        .join()
        .unwrap();
        assert!(pin(&[usize::MAX]).is_err());
    }
}
