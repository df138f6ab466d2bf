//! `plateway lab program`: bonnie++, PostMark, pgbench ([`pgbench`]) or an external merge sort ([`merge_sort`]), run in a
//! folder; the client of a load whose files are a program's, and how a trial has it run.
//!
//! The program makes its files itself. It is started in the folder, its output is read as it comes
//! and each piece stamped, since PostMark counts whole seconds alone; what it says is `lab::programs`' to read. Here is printed
//! what `plateway bench --steady` prints, as far as it has it: of pgbench alone there are latencies. Windows divide PostMark's transactions
//! evenly, of which each is an operation. Bonnie++ has no such thing: its windows divide its time, and an operation
//! is a MiB of its file, through all of its tests. Errors: what the program said, that it is not there, with its package, and what of its output is not
//! understood.

mod merge_sort;
mod pgbench;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::plan::{Cell, Experiment, Files, Measure, TrialOutcome};
use lab::programs::{bonnie, postmark};
use lab::statistics::steady::WINDOWS;
use serde_json::{Value, json};
use testbed::{ScratchFolder, process, scratch};

use super::face;
use super::far::PREFIX;
use super::folder::{FileSystem, Work};
use super::list;
use super::seen::Seen;
use super::trial::{Lab, tell};
use crate::cli::LabProgramArgs;
use crate::commands::print_json;

/// How long a program may take.
const RUN_MAX: Duration = Duration::from_secs(24 * 3_600);
/// How often CPUs and interfaces are looked at: a run may be over at any time.
const LOOK: Duration = Duration::from_millis(50);
/// Of what a program complained, so many letters are told, the last ones.
const WORDS_MAX: usize = 400;

/// Programs that the cells of a system need, as they would be started.
pub(super) fn needed(experiment: &Experiment, system: usize) -> Vec<String> {
    let cells = experiment.cells().into_iter().filter(|cell| cell.system == system);
    let files = cells.filter_map(|cell: Cell| cell.load.files);
    let mut all: Vec<String> = files
        .flat_map(|files| match files {
            Files::Bonnie | Files::Postmark => vec![files.word().to_owned()],
            Files::Pgbench => pgbench::needed(),
            Files::Ours(_) | Files::MergeSort => Vec::new(),
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl Lab<'_> {
    /// Has a program work where something is mounted, and judges what it told.
    pub(super) fn work_by_program(
        &self,
        work: &Work<'_>,
        files: Files,
        mounted: FileSystem,
    ) -> miette::Result<(TrialOutcome, Seen)> {
        let Work { cell, place, way, .. } = *work;
        scratch::remove_leftovers(place, PREFIX).map_err(tell)?;
        let mut folder = ScratchFolder::make(place, PREFIX).map_err(tell)?;
        if !work.removes {
            folder.leave();
        }
        let (cpus, program) = (list(self.client_cpus(way)), super::program()?);
        let (said, sighted) = self.bounded(cell, |group| {
            let mut command = process::command_in(group, work.near(), &cpus, &program);
            command.args(["lab", "program", files.word()]).arg(folder.path());
            command.args(["--size", &cell.load.size.unwrap_or(0).to_string()]);
            command.args(["--seed", &self.experiment.seed.to_string()]);
            command.args(["--jobs", &cell.load.jobs.to_string()]).arg("--home").arg(work.home);
            let [window, warm_up] = [self.experiment.window_of(cell), self.experiment.warm_up]
                .map(|time| format!("{}ms", time.as_millis()));
            command.args(["--steady", &window, "--warmup", &warm_up]);
            let looks = self.looks(LOOK, way, false).counting(work.home.join(face::CALLS));
            self.finish_seen(command, RUN_MAX, looks)
        })?;
        let (outcome, mut seen) = self.judge(cell, said, &sighted, way)?;
        seen.file_system = Some(mounted);
        Ok((outcome, seen))
    }
}

/// Runs a program, and prints what it came to.
pub(super) fn run(args: &LabProgramArgs) -> miette::Result<()> {
    let LabProgramArgs { program, folder, size, seed, .. } = args;
    print_json(&match program {
        Files::Bonnie => run_bonnie(folder, *size, *seed)?,
        Files::Postmark => run_postmark(folder, *size, *seed)?,
        Files::Pgbench => pgbench::run(args)?,
        Files::MergeSort => merge_sort::run(args)?,
        Files::Ours(_) => unreachable!("{} is no program", program.word()),
    })
}

fn run_postmark(folder: &Path, size: u64, seed: u64) -> miette::Result<Value> {
    let asked = postmark::Asked::of(size, seed);
    // What it is told on its standard input it reads as a file, so that it does not prompt.
    let mut command = program(Files::Postmark, folder);
    command.arg("/dev/stdin");
    let mut running = postmark::Running::default();
    let began = SystemTime::now();
    follow(command, asked.commands().as_bytes(), |bytes, at| running.handle_output(bytes, at))?;
    let told = running.end(&asked).map_err(|why| miette::miette!("{why}"))?;
    let total = seconds(told.total);
    let edges: Vec<f64> = told.edges::<WINDOWS>().into_iter().map(seconds).collect();
    let steady = evenly(began, &edges, asked.transactions);
    Ok(json!({
        "client": told.version,
        "files": Files::Postmark.word(),
        "file_count": asked.files,
        "transactions": asked.transactions,
        "seed": asked.seed,
        "total_seconds": total,
        "told": {
            Measure::ReadThroughput.word(): told.read_bytes / total,
            Measure::WriteThroughput.word(): told.written_bytes / total,
        },
        "steady": steady,
    }))
}

fn run_bonnie(folder: &Path, size: u64, seed: u64) -> miette::Result<Value> {
    let mut command = program(Files::Bonnie, folder);
    command.args(bonnie::arguments(size, seed));
    let (mut printed, mut took) = (Vec::new(), Duration::ZERO);
    let began = SystemTime::now();
    follow(command, &[], |bytes, at| {
        printed.extend_from_slice(bytes);
        took = at;
        Ok(())
    })?;
    let told = bonnie::Told::parse(&String::from_utf8_lossy(&printed), size);
    let told = told.map_err(|why| miette::miette!("{why}"))?;
    let edges: Vec<f64> =
        (0..=WINDOWS).map(|edge| seconds(took) * edge as f64 / WINDOWS as f64).collect();
    let units = size / bonnie::UNIT_BYTES;
    let rate = units as f64 / seconds(took);
    let steady = steady(began, &edges, units, rate, &[rate; WINDOWS]);
    let all = [
        (Measure::CharWrite, told.char_write),
        (Measure::WriteThroughput, told.write),
        (Measure::Rewrite, told.rewrite),
        (Measure::CharRead, told.char_read),
        (Measure::ReadThroughput, told.read),
        (Measure::Seeks, told.seeks),
    ];
    let missing = all.iter().filter(|(_, rate)| rate.is_none());
    let notes: Vec<String> = missing
        .map(|(measure, _)| {
            format!(
                "bonnie++ tells no {measure} of what took less than half a second (a larger size)"
            )
        })
        .collect();
    let rates = all.into_iter().filter_map(|(measure, rate)| Some((measure.word(), rate?)));
    Ok(json!({
        "client": told.version,
        "files": Files::Bonnie.word(),
        "seed": seed,
        "total_seconds": seconds(took),
        "told": rates.collect::<std::collections::BTreeMap<_, _>>(),
        "steady": steady,
        "notes": notes,
    }))
}

/// Windows in each of which as much was done, all in all so many operations.
fn evenly(began: SystemTime, edges: &[f64], requests: u64) -> Value {
    let rate = |count: f64, spent: f64| count / spent.max(1e-9);
    let each = requests as f64 / WINDOWS as f64;
    let rates: Vec<f64> = edges.windows(2).map(|edge| rate(each, edge[1] - edge[0])).collect();
    steady(began, edges, requests, rate(requests as f64, edges[WINDOWS] - edges[0]), &rates)
}

/// Windows of a run, whose edges are seconds since its start.
fn steady(began: SystemTime, edges: &[f64], requests: u64, rate: f64, windows: &[f64]) -> Value {
    let began = began.duration_since(UNIX_EPOCH).map_or(0.0, seconds);
    let edges_unix: Vec<f64> = edges.iter().map(|edge| began + edge).collect();
    let window = (edges[WINDOWS] - edges[0]) / WINDOWS as f64;
    json!({
        "is_steady": true,
        "window_seconds": window,
        "iops": rate,
        "windows": windows,
        "edges_unix": edges_unix,
        "requests": requests,
    })
}

fn seconds(time: Duration) -> f64 {
    time.max(Duration::from_nanos(1)).as_secs_f64()
}

/// A program in its folder, which does not outlive this process.
fn program(files: Files, folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", files.word()]).current_dir(folder);
    command
}

/// Runs a program to its end. Each piece of its output is handed on as it comes, with the time since its start.
fn follow(
    mut command: Command,
    input: &[u8],
    mut handle: impl FnMut(&[u8], Duration) -> Result<(), String>,
) -> miette::Result<()> {
    let words = testbed::words(&command);
    let failed =
        |doing: &str, error: &std::io::Error| miette::miette!("cannot {doing} {words}: {error}");
    let start = Instant::now();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed("start", &error))?;
    let errors = child.stderr.take().map(process::read_all);
    let mut trouble = None;
    // It may have ended before it read all of it, which its output tells.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input));
    let mut output = child.stdout.take().expect("it is piped");
    let mut bytes = [0; 4096];
    loop {
        let count =
            output.read(&mut bytes).map_err(|error| failed("read what was written by", &error))?;
        if count == 0 {
            break;
        }
        if let Err(why) = handle(&bytes[..count], start.elapsed()) {
            trouble = Some(why);
            child.kill().map_err(|error| failed("end", &error))?;
            break;
        }
    }
    let status = child.wait().map_err(|error| failed("wait for", &error))?;
    let errors = errors.and_then(|reader| reader.join().ok()).unwrap_or_default();
    let said = errors.split_whitespace().collect::<Vec<_>>().join(" ");
    // What it says last is why it ends.
    let passed = said.chars().count().saturating_sub(WORDS_MAX);
    let said: String = said.chars().skip(passed).collect();
    match (trouble, status.success()) {
        (Some(why), _) if said.is_empty() => Err(miette::miette!("{why}")),
        (Some(why), _) => Err(miette::miette!("{why}: {said}")),
        (None, true) => Ok(()),
        (None, false) => Err(miette::miette!("{words}: {status}: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_program_prints_is_handed_on_as_it_comes() {
        let mut pieces = Vec::new();
        let take = |bytes: &[u8], at: Duration| {
            pieces.push((String::from_utf8_lossy(bytes).into_owned(), at));
            Ok(())
        };
        follow(shell("read line; echo $line; sleep 0.2; echo end"), b"begin\n", take).unwrap();
        let words: Vec<&str> = pieces.iter().map(|(words, _)| &**words).collect();
        assert_eq!(words, ["begin\n", "end\n"]);
        assert!(pieces[1].1 - pieces[0].1 >= Duration::from_millis(100), "{pieces:?}");
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let none = |_: &[u8], _| Ok(());
        let why = follow(shell("echo no room >&2; exit 3"), &[], none).unwrap_err().to_string();
        assert!(why.ends_with("exit status: 3: no room"), "{why}");
        let long = "i=0; while [ $i -lt 200 ]; do echo chatter; i=$((i + 1)); done >&2; echo no room >&2; exit 3";
        let why = follow(shell(long), &[], none).unwrap_err().to_string();
        assert!(why.ends_with("chatter no room"), "{why}");
        let refuses = |_: &[u8], _| Err("expected nothing".to_owned());
        let why = follow(shell("echo a; exec sleep 600"), &[], refuses).unwrap_err().to_string();
        assert_eq!(why, "expected nothing");
        let nowhere = program(Files::Postmark, Path::new("/nowhere/at/all"));
        let why = follow(nowhere, &[], none).unwrap_err().to_string();
        assert!(why.starts_with("cannot start setpriv --pdeathsig KILL postmark: "), "{why}");
    }
}
