//! A load: a program that runs for so many seconds and prints what it saw.
//!
//! In: a command and how long it means to run. Out: all that it wrote, the share of a CPU that its
//! threads used in mid-run (looked at twice, after four and after eight tenths of its time), and
//! each CPU's idle share then. Errors: it could not be started, or did not end in time. How it ended
//! is the caller's to judge.

use std::ops::ControlFlow;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::cpu;
use crate::error::{Error, Result};
use crate::process::{LOOK, how_it_ended, read_all, spawn};
use crate::tool::words;

/// What became of a load.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub printed: String,
    /// What it wrote to standard error.
    pub errors: String,
    /// Of a CPU, in mid-run; not a number if it ended before it was looked at twice.
    pub cpu_share: f64,
    /// Of each CPU, by its number; none if there were no two looks.
    pub idle: Vec<f64>,
}

/// What a load wrote, and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub printed: String,
    /// What it wrote to standard error.
    pub errors: String,
}

/// Runs a load that means to take so many seconds to its end, or until the slack beyond them is over.
pub fn run(command: Command, seconds: f64, slack: Duration) -> Result<Done> {
    let due = [seconds * 0.4, seconds * 0.8];
    let mut looks = Vec::new();
    let limit = Duration::from_secs_f64(seconds) + slack;
    let ended = watch(command, limit, |pid, spent| {
        if due.get(looks.len()).is_some_and(|due| spent.as_secs_f64() >= *due) {
            let (ran, idle) = (cpu::run_time(pid), cpu::idle_ns());
            looks.push(Look { at: Instant::now(), ran, idle });
        }
        ControlFlow::Continue(())
    })?;
    let (cpu_share, idle) = shares(&looks);
    let Ended { status, printed, errors } = ended;
    Ok(Done { status, printed, errors, cpu_share, idle })
}

/// Runs a load to its end, or until its time is over; what it started and left ends with it.
/// Meanwhile `look` is called, some fifty times a second, with the number of its process and the time
/// since its start; where that breaks, the load is ended.
pub fn watch(
    mut command: Command,
    limit: Duration,
    mut look: impl FnMut(u32, Duration) -> ControlFlow<()>,
) -> Result<Ended> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, with whatever it starts.
    let mut child = spawn(command.process_group(0))?;
    let readers = [child.stdout.take().map(read_all), child.stderr.take().map(read_all)];
    let start = Instant::now();
    let lost = |source| Error::System { doing: "look after a load".into(), source };
    let status = loop {
        if how_it_ended(&child).map_err(lost)?.is_some() {
            break end(&mut child).map_err(lost)?;
        }
        let spent = start.elapsed();
        let flow = look(child.id(), spent);
        if flow.is_break() || spent > limit {
            let status = end(&mut child).map_err(lost)?;
            if flow.is_break() {
                break status;
            }
            return Err(Error::Late { command: words(&command), limit });
        }
        std::thread::sleep(LOOK);
    };
    let [printed, errors] =
        readers.map(|reader| reader.and_then(|reader| reader.join().ok()).unwrap_or_default());
    Ok(Ended { status, printed, errors })
}

/// Ends a load, if it has not ended, with all of its group: who is left there would keep what it writes to open.
fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    kill_process_group(Pid::from_child(child), Signal::KILL)?;
    child.wait()
}

/// What a load ran and its CPUs were idle until some time, in nanoseconds.
struct Look {
    at: Instant,
    ran: u64,
    idle: Vec<u64>,
}

/// The load's share of a CPU, and each CPU's idle share, between two looks.
fn shares(looks: &[Look]) -> (f64, Vec<f64>) {
    let [first, second] = looks else { return (f64::NAN, Vec::new()) };
    let time = (second.at - first.at).as_nanos() as f64;
    let share = |(a, b): (&u64, &u64)| b.saturating_sub(*a) as f64 / time;
    let idle = first.idle.iter().zip(&second.idle).map(share).collect();
    (share((&first.ran, &second.ran)), idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_load_started_ends_with_it_and_is_not_waited_for() {
        let at = Instant::now();
        let ended = watch(shell("sleep 600.25 & echo on"), Duration::from_secs(60), |_, _| {
            ControlFlow::Continue(())
        });
        assert_eq!(ended.unwrap().printed, "on\n");
        let broken =
            watch(shell("sleep 600.25 & sleep 600.25"), Duration::from_secs(60), |_, _| {
                ControlFlow::Break(())
            });
        assert!(!broken.unwrap().status.success());
        assert!(at.elapsed() < Duration::from_secs(60), "it was waited for");
        let commands = std::fs::read_dir("/proc").unwrap().flatten();
        let mut commands =
            commands.filter_map(|one| std::fs::read(one.path().join("cmdline")).ok());
        assert!(!commands.any(|command| command == b"sleep\x00600.25\x00"));
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_load_said_is_collected_however_it_ended() {
        let done = run(shell("echo out; echo err >&2; exit 3"), 0.0, Duration::from_secs(60));
        let done = done.unwrap();
        assert_eq!((done.printed.as_str(), done.errors.as_str()), ("out\n", "err\n"));
        assert_eq!(done.status.code(), Some(3));
    }

    #[test]
    fn a_load_that_does_not_end_is_ended() {
        let error = run(shell("exec sleep 600"), 0.0, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "sh -c exec sleep 600 did not end within 50ms");
    }

    #[test]
    fn a_load_is_looked_at_until_it_ends_or_the_look_ends_it() {
        let mut looks = 0;
        let ended = watch(shell("echo on; exec sleep 600"), Duration::from_secs(60), |_, _| {
            looks += 1;
            if looks == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let ended = ended.unwrap();
        assert_eq!((looks, ended.status.code()), (3, None));
        let mut seen = Duration::ZERO;
        let ended = watch(shell("sleep 0.1; echo on"), Duration::from_secs(60), |_, spent| {
            assert!(spent >= seen);
            seen = spent;
            ControlFlow::Continue(())
        });
        assert!(seen > Duration::ZERO && ended.unwrap().printed == "on\n");
    }

    #[test]
    fn shares_are_what_came_between_two_looks() {
        let at = Instant::now();
        let look = |ms: u64, ran: u64, idle: [u64; 2]| Look {
            at: at + Duration::from_millis(ms),
            ran: ran * 1_000_000,
            idle: idle.map(|ms| ms * 1_000_000).to_vec(),
        };
        let looks = [look(100, 30, [10, 90]), look(300, 80, [210, 90])];
        assert_eq!(shares(&looks), (0.25, vec![1.0, 0.0]));
        let (none, idle) = shares(&looks[..1]);
        assert!(none.is_nan() && idle.is_empty());
    }
}
