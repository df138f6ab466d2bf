//! Who used how much of a CPU: the machine's CPUs by `/proc/stat`, processes and tasks by
//! `/proc/PID/task/*/schedstat`.
//!
//! Two looks and their difference: [`CpuLook::until`] says of a window how busy a CPU was, what its
//! host took of it, and which tasks ran there. What interrupts did beside tasks, and what tasks did
//! that ended before the second look, is in `busy` and in no task ([`CpuUse::without_tasks`]); so is
//! what this process is not shown, as in a container. A task is said to have run on the CPU on which
//! it ran last; so it did if it was pinned. Units: shares of
//! a CPU, from 0 to 1; nanoseconds. A CPU was busy when it was neither idle nor taken away, as far as the two can be
//! told apart ([`CpuUse::busy`]): the kernel sees
//! to the nanosecond when a CPU goes idle, and what ran only by looking at each of its ticks, which a load
//! that comes by the clock always misses or always meets. `/proc/stat` tells in hundredths of a second, so
//! a window of a second is good for one in a hundred. Errors: no such CPU, or no time between the looks; a
//! process that ended has used nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// In nanoseconds, what `/proc/stat` counts (USER_HZ is 100 everywhere).
const TICK_NS: u64 = 10_000_000;

/// Run time of all threads of a process, in nanoseconds; 0 if there is none.
pub fn run_time(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    threads.flatten().filter_map(|thread| task_run_time(&thread.path())).sum()
}

/// How long each CPU was idle so far, in nanoseconds, by its number.
pub fn idle_ns() -> Vec<u64> {
    let cpus = cpu_times(&fs::read_to_string("/proc/stat").unwrap_or_default());
    let count = cpus.keys().next_back().map_or(0, |last| last + 1);
    (0..count).map(|cpu| cpus.get(&cpu).map_or(0, |times| times.idle * TICK_NS)).collect()
}

/// Whether any CPUs of this machine share a core.
pub fn share_cores() -> bool {
    let entries = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let mut lists = entries.filter_map(|entry| {
        fs::read_to_string(entry.path().join("topology/thread_siblings_list")).ok()
    });
    lists.any(|list| is_of_several(&list))
}

/// Whether a list of CPUs, as the kernel writes it, has more than one.
fn is_of_several(list: &str) -> bool {
    list.contains([',', '-'])
}

/// What a machine's host took of some CPUs, by two looks at `/proc/stat` alone.
#[derive(Clone, Debug)]
pub struct Steal {
    at: Instant,
    cpus: BTreeMap<usize, CpuTimes>,
}

impl Steal {
    pub fn now() -> Result<Self> {
        let system = |source| Error::System { doing: "read /proc/stat".into(), source };
        let cpus = cpu_times(&fs::read_to_string("/proc/stat").map_err(system)?);
        Ok(Self { at: Instant::now(), cpus })
    }

    /// The largest share that was taken of one of these CPUs until a later look, for certain.
    pub fn until(&self, later: &Self, cpus: &[usize]) -> f64 {
        let window = later.at.saturating_duration_since(self.at);
        let share = |cpu: &usize| {
            let (before, after) = (self.cpus.get(cpu)?, later.cpus.get(cpu)?);
            let steal = after.steal.saturating_sub(before.steal);
            (!window.is_zero()).then(|| in_window(certain(steal), window))
        };
        cpus.iter().filter_map(share).fold(0.0, f64::max)
    }
}

/// What all CPUs and all tasks have done so far.
#[derive(Clone, Debug)]
pub struct CpuLook {
    at: Instant,
    cpus: BTreeMap<usize, CpuTimes>,
    tasks: BTreeMap<TaskId, Task>,
    /// Of each process, whose child it is and in which network it is.
    processes: BTreeMap<u32, Process>,
}

#[derive(Clone, Copy, Debug)]
struct Process {
    parent: u32,
    /// The number of its network namespace; `None` of what this process is not shown.
    network: Option<u64>,
}

/// What became of a CPU in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// The share of the window in which something ran: tasks and interrupts. Where the host took some of it, this may be
    /// wrong by half of that, either way.
    pub busy: f64,
    /// The share in which something was to run, and the machine's host ran something else: for certain, which is
    /// a hundredth of a second less than the kernel's count has grown by.
    pub steal: f64,
    /// The share of interrupts, as far as the kernel counts them apart from the tasks that they meet.
    pub interrupts: f64,
    /// Who ran, most first.
    pub by_task: Vec<TaskUse>,
}

/// What a task did in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskUse {
    pub pid: u32,
    /// The thread's own number; the first thread has its process's.
    pub task: u32,
    /// The thread's name, as it was at last.
    pub name: String,
    /// The share of the window in which it ran.
    pub share: f64,
}

impl CpuLook {
    /// Looks at all that there is. What a task is doing at present may be missing by a tick of the
    /// kernel's.
    pub fn now() -> Result<Self> {
        let system = |source| Error::System { doing: "read /proc".into(), source };
        let cpus = cpu_times(&fs::read_to_string("/proc/stat").map_err(system)?);
        let at = Instant::now();
        let numbers = |folder: &Path| -> Vec<u32> {
            // A process may end meanwhile: then it has no threads any more.
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        };
        let (mut tasks, mut processes) = (BTreeMap::new(), BTreeMap::new());
        for pid in numbers(Path::new("/proc")) {
            let home = Path::new("/proc").join(pid.to_string());
            let network = namespace_number(&home.join("ns/net"));
            let folder = home.join("task");
            for task in numbers(&folder) {
                let at = folder.join(task.to_string());
                let stat = fs::read_to_string(at.join("stat")).unwrap_or_default();
                let Some((stat, ran)) = TaskStat::parse(&stat).zip(task_run_time(&at)) else {
                    continue;
                };
                // Of each of its tasks it is the same.
                processes.insert(pid, Process { parent: stat.parent, network });
                let id = TaskId { pid, task, started: stat.started };
                tasks.insert(id, Task { name: stat.name.to_owned(), cpu: stat.cpu, ran });
            }
        }
        Ok(Self { at, cpus, tasks, processes })
    }

    /// The processes that descend from one, but for those that have ended and are not waited for.
    pub fn descendants(&self, of: u32) -> Vec<u32> {
        let descends = |pid: &u32| {
            let mut at = *pid;
            for _ in 0..=self.processes.len() {
                match self.processes.get(&at) {
                    Some(process) if process.parent == of => return true,
                    Some(process) => at = process.parent,
                    None => return false,
                }
            }
            false
        };
        self.processes.keys().copied().filter(descends).collect()
    }

    /// Whether a process is this one, descends from it, is in one of these networks (by their numbers,
    /// [`namespace_number`]), or is the kernel's: whatever else runs belongs to others. What ended
    /// before the look is nobody's.
    pub fn is_ours(&self, pid: u32, networks: &[u64]) -> bool {
        /// The kernel's first thread, whose children all others of its threads are.
        const KTHREADD: u32 = 2;
        let own = std::process::id();
        let mut at = pid;
        // A chain of parents is no longer than there are processes.
        for _ in 0..=self.processes.len() {
            if at == own || at == KTHREADD {
                return true;
            }
            let Some(process) = self.processes.get(&at) else { return at == pid };
            if process.network.is_some_and(|network| networks.contains(&network)) {
                return true;
            }
            at = process.parent;
        }
        false
    }

    /// What became of a CPU between this look and a later one.
    pub fn until(&self, later: &Self, cpu: usize) -> Result<CpuUse> {
        let unexpected = |expected, seen: String| Error::Unexpected {
            what: "the use of a CPU".into(),
            expected,
            seen,
        };
        let times = |look: &Self| look.cpus.get(&cpu).copied();
        let (before, after) = times(self)
            .zip(times(later))
            .ok_or_else(|| unexpected("a CPU of this machine", cpu.to_string()))?;
        let window = later.at.saturating_duration_since(self.at);
        if window.as_nanos() < TICK_NS.into() {
            return Err(unexpected("some hundredths of a second", format!("{window:?}")));
        }
        let share =
            |of: fn(&CpuTimes) -> u64| in_window(of(&after).saturating_sub(of(&before)), window);
        let (idle, taken) = (share(|times| times.idle), share(|times| times.steal));
        let steal = in_window(certain(after.steal.saturating_sub(before.steal)), window);
        let by_task = self.tasks_until(later, cpu, window);
        let busy = busy(idle, taken, by_task.iter().map(|task| task.share).sum());
        let interrupts = share(|times| times.interrupts);
        Ok(CpuUse { busy, steal, interrupts, by_task })
    }

    fn tasks_until(&self, later: &Self, cpu: usize, window: Duration) -> Vec<TaskUse> {
        let mut seen: Vec<TaskUse> = Vec::new();
        for (id, task) in later.tasks.iter().filter(|(_, task)| task.cpu == cpu) {
            // One that was not there before has done all of it since.
            let before = self.tasks.get(id).map_or(0, |task| task.ran);
            let ran = task.ran.saturating_sub(before);
            if ran > 0 {
                let share = ran as f64 / window.as_nanos() as f64;
                let name = task.name.clone();
                seen.push(TaskUse { pid: id.pid, task: id.task, name, share });
            }
        }
        seen.sort_by(|a, b| b.share.total_cmp(&a.share));
        seen
    }
}

impl CpuUse {
    /// The share that no task ran: interrupts, and tasks that ended within the window.
    pub fn without_tasks(&self) -> f64 {
        let tasks: f64 = self.by_task.iter().map(|task| task.share).sum();
        (self.busy - tasks).max(0.0)
    }

    /// The share of tasks that ended within the window, or that this process is not shown.
    pub fn ended(&self) -> f64 {
        (self.without_tasks() - self.interrupts).max(0.0)
    }

    /// The share that the threads of a process ran.
    pub fn of_process(&self, pid: u32) -> f64 {
        self.by_task.iter().filter(|task| task.pid == pid).map(|task| task.share).sum()
    }
}

/// How busy a CPU was that was idle for so much of a window, of which so much was taken, and on which tasks ran for so
/// much. What is taken before a CPU that was woken runs again, the kernel counts as both idle and taken: a task that sleeps
/// often would seem to do nothing on a host with much to do. So it was busy for what was not idle at most, and for that
/// less what was taken, or what its tasks ran, at least; it is said to have been in the middle.
fn busy(idle: f64, taken: f64, tasks: f64) -> f64 {
    let most = (1.0 - idle).max(0.0);
    let least = (most - taken).max(tasks.min(most));
    (least + most) / 2.0
}

/// What was stolen for certain where a count has grown by so many ticks: each look is rounded down, so that a tick may
/// have been begun before the first. In a second, one tick more or less is 1% of a CPU.
fn certain(ticks: u64) -> u64 {
    ticks.saturating_sub(1)
}

/// Ticks of `/proc/stat`, as a share of a window that is longer than none.
fn in_window(ticks: u64, window: Duration) -> f64 {
    ticks as f64 * TICK_NS as f64 / window.as_nanos() as f64
}

/// What a CPU has done so far, in hundredths of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CpuTimes {
    /// By the ticks that met them.
    interrupts: u64,
    idle: u64,
    steal: u64,
}

/// A task; its number may be given to another one later, which began at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TaskId {
    pid: u32,
    task: u32,
    started: u64,
}

#[derive(Clone, Debug)]
struct Task {
    name: String,
    /// On which CPU it ran last.
    cpu: usize,
    /// Nanoseconds so far.
    ran: u64,
}

/// Reads `/proc/stat`, which has a line for each CPU: `cpu0` and, each since the machine began, the
/// times of user, nice, system, idle, iowait, irq, softirq and steal; guests' are in the first two.
fn cpu_times(text: &str) -> BTreeMap<usize, CpuTimes> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let numbers: Option<Vec<u64>> = words.take(8).map(|word| word.parse().ok()).collect();
        let &[_user, _nice, _system, idle, iowait, irq, softirq, steal] = numbers?.as_slice()
        else {
            return None;
        };
        // Idle while a disk works is idle.
        Some((cpu, CpuTimes { interrupts: irq + softirq, idle: idle + iowait, steal }))
    };
    text.lines().filter_map(line).collect()
}

/// The number of a network namespace, by a file that stands for it.
pub fn namespace_number(file: &Path) -> Option<u64> {
    Some(fs::metadata(file).ok()?.ino())
}

/// What a task ran so far, in nanoseconds, by its folder below `/proc`.
fn task_run_time(folder: &Path) -> Option<u64> {
    parse_schedstat(&fs::read_to_string(folder.join("schedstat")).ok()?)
}

/// Reads a `schedstat`: the time that a task ran, that it waited, and how often it did.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// What we read of `/proc/PID/stat`, or that of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskStat<'a> {
    name: &'a str,
    /// The process whose child it is; 0 of the first.
    parent: u32,
    /// When it began; only to be compared.
    started: u64,
    /// On which CPU it ran last.
    cpu: usize,
    priority: u32,
    policy: u32,
}

impl<'a> TaskStat<'a> {
    /// The second field is the name, in parentheses, and may hold anything.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (front, behind) = text.rsplit_once(')')?;
        let name = front.split_once('(')?.1;
        let fields: Vec<&str> = behind.split_whitespace().collect();
        // As proc(5) counts them, from 1; the third is the first behind the name.
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            name,
            parent: field(4)?.parse().ok()?,
            started: field(22)?.parse().ok()?,
            cpu: field(39)?.parse().ok()?,
            priority: field(40)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
        })
    }

    /// At which real-time priority it runs, first come, first served, if it does.
    pub(crate) fn real_time_priority(&self) -> Option<u32> {
        const FIFO: u32 = 1;
        (self.policy == FIFO).then_some(self.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, started: u64, cpu: usize, [priority, policy]: [u32; 2]) -> String {
        let words = |from: usize, to: usize| {
            (from..to).map(|field| (field + 100).to_string()).collect::<Vec<_>>().join(" ")
        };
        let (first, second) = (words(4, 22), words(23, 39));
        format!("7 ({name}) S {first} {started} {second} {cpu} {priority} {policy} 0 0\n")
    }

    #[test]
    fn a_task_is_read_behind_any_name() {
        let text = stat("a) S 1 (b", 9, 3, [0, 0]);
        let seen = TaskStat::parse(&text).unwrap();
        assert_eq!((seen.name, seen.parent, seen.started, seen.cpu), ("a) S 1 (b", 104, 9, 3));
        assert_eq!(seen.real_time_priority(), None);
        let text = stat("a", 9, 3, [3, 1]);
        assert_eq!(TaskStat::parse(&text).unwrap().real_time_priority(), Some(3));
        let cut = text.rsplit_once(" 3 1 0").unwrap().0;
        assert_eq!([TaskStat::parse(""), TaskStat::parse(cut)], [None, None]);
    }

    #[test]
    fn cpus_that_share_a_core_are_listed_together() {
        let seen = ["0\n", "13\n", "0,4\n", "0-1\n"].map(is_of_several);
        assert_eq!(seen, [false, false, true, true]);
    }

    #[test]
    fn cpus_are_read_by_their_numbers_and_waiting_for_a_disk_is_idle() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 4 8 16 32 64 128 1 2\n\
                    cpu2 0 0 0 7 0 0 0 0 0 0\ncpu3 1 2\nintr 5\ncpux 1 1 1 1 1 1 1 1\n";
        let seen = cpu_times(text);
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(seen[&0], CpuTimes { interrupts: 96, idle: 24, steal: 128 });
        assert_eq!(seen[&2], CpuTimes { interrupts: 0, idle: 7, steal: 0 });
    }

    #[test]
    fn what_the_host_takes_most_of_one_cpu_is_told() {
        let times = |steal| CpuTimes { interrupts: 0, idle: 0, steal };
        let now = Instant::now();
        let look = |after, cpus: [u64; 2]| Steal {
            at: now + Duration::from_secs(after),
            cpus: (0..).zip(cpus.map(times)).collect(),
        };
        let (before, after) = (look(0, [0, 5]), look(1, [2, 11]));
        let most = |cpus: &[usize]| before.until(&after, cpus);
        assert_eq!((most(&[0]), most(&[0, 1]), most(&[7])), (0.01, 0.05, 0.0));
        assert_eq!(before.until(&look(1, [1, 5]), &[0, 1]), 0.0, "it may have been before");
        assert_eq!(before.until(&before, &[0, 1]), 0.0);
        assert!(Steal::now().is_ok());
    }

    #[test]
    fn run_time_is_the_first_number() {
        assert_eq!(parse_schedstat("1596305 3721669 3\n"), Some(1_596_305));
        assert_eq!([parse_schedstat(""), parse_schedstat("x 1 2")], [None, None]);
        assert!(run_time(std::process::id()) > 0);
        assert_eq!(run_time(u32::MAX), 0);
    }

    type Seen = (u32, u64, usize, u64);

    fn look(at: Instant, times: CpuTimes, tasks: &[Seen]) -> CpuLook {
        let task = |&(task, started, cpu, ran): &Seen| {
            let id = TaskId { pid: task / 10, task, started };
            (id, Task { name: format!("t{task}"), cpu, ran })
        };
        CpuLook {
            at,
            cpus: BTreeMap::from([(1, times)]),
            tasks: tasks.iter().map(task).collect(),
            processes: BTreeMap::new(),
        }
    }

    #[test]
    fn a_window_is_what_came_between_two_looks() {
        let at = Instant::now();
        let before = look(
            at,
            CpuTimes { interrupts: 5, idle: 50, steal: 10 },
            &[(10, 1, 1, 500), (11, 1, 1, 7), (12, 1, 0, 7), (13, 1, 1, 900_000_000)],
        );
        let after = look(
            at + Duration::from_secs(2),
            CpuTimes { interrupts: 25, idle: 80, steal: 30 },
            // One ran, one did not, one ran elsewhere, one has another's number, one is new.
            &[
                (10, 1, 1, 500 + 600_000_000),
                (11, 1, 1, 7),
                (12, 1, 0, 1_000_000_000),
                (13, 2, 1, 200_000_000),
                (20, 1, 1, 400_000_000),
            ],
        );
        let seen = before.until(&after, 1).unwrap();
        assert_eq!((seen.busy, seen.steal), (0.8, 0.095));
        let tasks: Vec<_> = seen.by_task.iter().map(|one| (one.task, one.share)).collect();
        assert_eq!(tasks, [(10, 0.3), (20, 0.2), (13, 0.1)]);
        assert_eq!((seen.by_task[1].pid, seen.by_task[1].name.as_str()), (2, "t20"));
        assert!((seen.of_process(1) - 0.4).abs() < 1e-9);
        assert!((seen.without_tasks() - 0.2).abs() < 1e-9);
        assert!((seen.interrupts - 0.1).abs() < 1e-9 && (seen.ended() - 0.1).abs() < 1e-9);
        let none = before.until(&after, 0).unwrap_err().to_string();
        assert_eq!(none, "the use of a CPU: expected a CPU of this machine, found \"0\"");
        let error = before.until(&before, 1).unwrap_err().to_string();
        assert!(error.contains("expected some hundredths of a second, found \"0ns\""), "{error}");
    }

    #[test]
    fn what_was_taken_while_a_cpu_slept_is_not_taken_from_what_it_did() {
        for (idle, taken, tasks, expected) in [
            (0.25, 0.0, 0.5, 0.75),
            // Its tasks ran for more than is left: of what was taken, some was idle.
            (0.5, 0.4, 0.4, 0.45),
            (0.5, 0.6, 0.0, 0.25),
            // What ran here last may have run elsewhere before; and each number is rounded.
            (0.5, 0.0, 0.9, 0.5),
            (1.01, 0.0, 0.001, 0.0),
        ] {
            let seen = busy(idle, taken, tasks);
            assert!((seen - expected).abs() < 1e-9, "{idle} {taken} {tasks}: {seen}");
        }
    }

    #[test]
    fn what_descends_from_us_or_is_in_our_networks_is_ours() {
        let own = std::process::id();
        let process = |parent, network| Process { parent, network: Some(network) };
        let mut seen = look(Instant::now(), CpuTimes::default(), &[]);
        // Numbers that no process has.
        let [init, child, grandchild, stranger, daemon, thread] =
            [1, 2, 3, 4, 5, 6].map(|n| n << 24);
        seen.processes = BTreeMap::from([
            (init, process(0, 1)),
            (own, process(init, 1)),
            (child, process(own, 1)),
            (grandchild, process(child, 1)),
            (stranger, process(init, 1)),
            (daemon, process(init, 7)),
            (thread, process(2, 1)),
        ]);
        let ours = |pid| seen.is_ours(pid, &[7]);
        assert!(ours(own) && ours(child) && ours(grandchild) && ours(daemon) && ours(thread));
        assert!(!ours(stranger) && !ours(init) && !seen.is_ours(daemon, &[]));
        assert!(ours(999 << 20), "what ended is nobody's");
        let real = CpuLook::now().unwrap();
        assert!(real.is_ours(own, &[]));
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        assert!(CpuLook::now().unwrap().is_ours(child.id(), &[]));
        child.kill().unwrap();
        child.wait().unwrap();
        let network = namespace_number(Path::new("/proc/self/ns/net"));
        assert!(network.is_some() && real.processes[&own].network == network);
    }

    #[test]
    fn who_runs_is_seen() {
        let before = CpuLook::now().unwrap();
        let own = (std::process::id(), run_time(std::process::id()));
        let end = Instant::now() + Duration::from_millis(200);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        let after = CpuLook::now().unwrap();
        assert!(run_time(own.0) > own.1 && !idle_ns().is_empty());
        let cpus = after.cpus.keys().filter_map(|cpu| before.until(&after, *cpu).ok());
        let shares: f64 = cpus.map(|seen| seen.of_process(own.0)).sum();
        assert!(shares > 0.0, "{shares}");
    }

    #[test]
    fn who_runs_by_the_clock_is_not_missed_by_its_ticks() {
        let before = CpuLook::now().unwrap();
        let end = Instant::now() + Duration::from_millis(600);
        // A fifth of each millisecond, after it was woken by the clock: a tick comes while it sleeps.
        while Instant::now() < end {
            let now = Instant::now();
            while now.elapsed() < Duration::from_micros(200) {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_micros(750));
        }
        let after = CpuLook::now().unwrap();
        let cpus: Vec<CpuUse> =
            after.cpus.keys().filter_map(|cpu| before.until(&after, *cpu).ok()).collect();
        let ran: f64 = cpus.iter().map(|seen| seen.of_process(std::process::id())).sum();
        let busy: f64 = cpus.iter().map(|seen| seen.busy + seen.steal).sum();
        // Two hundredths of a second that each look may be wrong by.
        let least = ran - 0.04 * cpus.len() as f64;
        assert!(ran > 0.1 && busy > least, "{busy} of all CPUs, where {ran} ran");
    }
}
