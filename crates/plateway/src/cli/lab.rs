//! `lab`: plans that compare systems.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use lab::file_load::Personality;
use lab::plan::Files;
use lab::plan::Measure;

use super::values;
use crate::config::size::parse_fio_size;

/// `lab run PLAN`, `lab check PLAN` and what is done with what they came to
#[derive(Args, Clone, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) action: LabAction,
}

/// What is done with a plan.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LabAction {
    /// Run a plan: systems in rounds, each trial from a fresh start, and a verdict on each comparison
    #[command(after_help = "Examples:\n  \
        plateway lab run three-roads.toml\n  \
        plateway lab run three-roads.toml --result monday.json\n\n\
        What a plan may say stands in docs/plans.md, what verdicts mean in docs/statistics.md. Namespaces and\n\
        links are made for it, and removed at the end however it ends. On Ctrl-C what was measured is told and\n\
        kept, with intervals and without verdicts.\n\n\
        Exit code 0: run. 1: a mistake in the plan, a machine that cannot run it, or trials that failed. 130:\n\
        interrupted.")]
    Run(LabRunArgs),
    /// Compare what two plans came to that were run at different times, through `null`, which both hold
    #[command(
        after_help = "What is said is labelled as not interleaved, and never faster or slower: nothing shows that what\n\
        changed between the runs changed both alike. To know, put both into one plan."
    )]
    Compare(LabCompareArgs),
    /// Draw the page of a result file anew, and each of its figures as SVG with its data as CSV
    #[command(after_help = "Examples:\n  \
        plateway lab page three-roads.result.json --figures three-roads-figures\n  \
        plateway lab page monday.json --to /srv/www/monday.html --overwrite")]
    Page(LabPageArgs),
    /// Say which system to take for each path and load of a result file, how sure that is, and what would
    /// change it
    #[command(after_help = "Examples:\n  \
        plateway lab recommend three-roads.result.json\n  \
        plateway lab recommend three-roads.result.json --by cpu-per-op\n\n\
        Who is better is read off verdicts alone. Of those of whom none is shown to be better, CPU per\n\
        operation decides, then bytes on the wire, then what changes nothing; that is said.\n\n\
        Exit code 0: told, also where nothing can be recommended. 1: a file that cannot be read.")]
    Recommend(LabRecommendArgs),
    /// Run a plan again and again, keep what comes of it, and test whether it changed
    #[command(after_help = "Examples:\n  \
        plateway lab watch three-roads.toml\n  \
        plateway lab watch three-roads.toml --every 1h --textfile /var/lib/prometheus/node-exporter/lab.prom\n\n\
        Without --every it runs the plan once, for cron and systemd timers. How changes are found, and how\n\
        often falsely, stands in docs/watch.md.\n\n\
        Exit code 0: nothing changed. 1: a mistake, trials that failed, or results that could not be kept. 3: a\n\
        change was found. 130: interrupted, whatever was found before.")]
    Watch(LabWatchArgs),
    /// Rerun what a paper measured, and say which of its findings hold here
    #[command(after_help = "Examples:\n  \
        plateway lab paper rocha --list\n  \
        plateway lab paper all --list --json\n  \
        plateway lab paper rocha --quick\n  \
        plateway lab paper rocha --result monday.json\n  \
        plateway lab paper rocha --full\n  \
        plateway lab paper all --quick --result papers\n\n\
        NAME is rocha, technomages, landowski, goncalves, sarkar, or all. What is kept is NAME.result.json and its\n\
        page, NAME.result.html; of all in one folder, with papers.html over them. How findings are judged, and which are not rerun yet, stands in docs/papers.md.\n\n\
        Exit code 0: told, whatever was confirmed or refuted. 1: a mistake, a machine that cannot run it, or trials\n\
        that failed. 130: interrupted.")]
    Paper(LabPaperArgs),
    /// Check a plan, also against this machine, and say what it would run and for how long
    Check(LabCheckArgs),
    /// Look after the far end of a plan whose paths are between two machines, for a lab at the near one
    #[command(
        after_help = "A lab starts it over ssh (agent = \"ssh:HOST\" in [[path]]), where this program is in the PATH. By\n\
        hand it waits at a socket, which is its owner's alone (agent = \"unix:PATH\"). What it started ends with the\n\
        connection. It changes no interface and no address."
    )]
    Agent(LabAgentArgs),
    /// Make the files of a load, or work on them: what a trial with `files` starts
    #[command(hide = true)]
    Files(LabFilesArgs),
    /// Relay frames between two interfaces, each a fixed time later: of a path with a delay, where the
    /// kernel has no netem
    #[command(hide = true)]
    Relay(LabRelayArgs),
    /// Send blocks over TCP to a sink, or take them from there: the client of a plan's stream
    #[command(hide = true)]
    Stream(LabStreamArgs),
    /// Write a file once, as a copy is: the client of a plan that copies
    #[command(hide = true)]
    Copy(LabCopyArgs),
    /// Export a folder by NFS version 3: the far end of a system of a plan that is reached by it
    #[command(hide = true)]
    Export(LabExportArgs),
    /// Mount what is exported by NFS version 3, or a folder, by FUSE: the near end of such a system
    #[command(hide = true)]
    Import(LabImportArgs),
    /// Run a program in a folder that makes its files itself: the client of a plan whose files are its
    #[command(hide = true)]
    Program(LabProgramArgs),
    /// Take what comes over TCP, or send what is asked for: the far end of a plan's stream
    #[command(hide = true)]
    Sink(LabSinkArgs),
}

/// `lab run PLAN`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabRunArgs {
    /// The plan
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Where to keep what comes of it; the page is beside it, .html [default: PLAN with .result.json in place of its ending]
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    /// Replace result file and page if they are there
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print what is kept, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab paper NAME`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabPaperArgs {
    /// The paper: rocha, technomages, landowski, goncalves or sarkar, or all
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Say of each finding how it is recreated here or why not, and for how long that runs, and run nothing
    #[arg(long, conflicts_with_all = ["quick", "result", "overwrite"])]
    pub(crate) list: bool,
    /// Run the primary comparisons alone, in short windows: eight minutes at most. What is left out is named
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run all of its plans, each until its differences are told, however long that takes; without it, an hour
    #[arg(long, conflicts_with_all = ["quick", "list"])]
    pub(crate) full: bool,
    /// Where to keep what comes of it; the page is beside it, .html [default: NAME.result.json]. Of all, the
    /// folder for their files
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    /// Replace result file and page if they are there
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab check PLAN`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabCheckArgs {
    /// The plan
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
}

/// `lab compare FIRST SECOND`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabCompareArgs {
    /// The result file of which it is said
    #[arg(value_name = "FIRST")]
    pub(crate) first: PathBuf,
    /// The result file that it is held against
    #[arg(value_name = "SECOND")]
    pub(crate) second: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab page RESULT`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabPageArgs {
    /// The result file
    #[arg(value_name = "RESULT")]
    pub(crate) result: PathBuf,
    /// Where to put the page [default: RESULT with .html in place of its ending]
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Put each figure, NAME.svg and NAME.csv, into this folder, which is made if it is not there
    #[arg(long, value_name = "FOLDER")]
    pub(crate) figures: Option<PathBuf>,
    /// Replace files that are there
    #[arg(long)]
    pub(crate) overwrite: bool,
}

/// `lab recommend RESULT`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabRecommendArgs {
    /// The result file
    #[arg(value_name = "RESULT")]
    pub(crate) result: PathBuf,
    /// The measure that counts, as plans call it, such as iops or p99 [default: the first primary one of
    /// each path and load]
    #[arg(long, value_name = "MEASURE")]
    pub(crate) by: Option<Measure>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab watch PLAN`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabWatchArgs {
    /// The plan, which is read once
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Run it again and again, so long from one start to the next; without it, once
    #[arg(long, value_name = "TIME", value_parser = |text: &str| values::time(text, 1_000))]
    pub(crate) every: Option<Duration>,
    /// How many runs; without it, until Ctrl-C
    #[arg(long, value_name = "RUNS", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) times: Option<u64>,
    /// The folder that keeps the results; it is made if it is not there [default: PLAN with .watch in place
    /// of its ending]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) results: Option<PathBuf>,
    /// Write metrics after each run, for the node exporter's textfile collector, which reads *.prom
    #[arg(long, value_name = "FILE.prom")]
    pub(crate) textfile: Option<PathBuf>,
    /// Print what is said after each run as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab agent`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabAgentArgs {
    /// Wait for labs at this socket, one after the other; without it, one speaks on standard input and output
    #[arg(long, value_name = "SOCKET")]
    pub(crate) socket: Option<PathBuf>,
}

/// `lab stream ADDRESS`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabStreamArgs {
    /// Where the sink is
    #[arg(value_name = "ADDRESS:PORT")]
    pub(crate) to: SocketAddr,
    /// read, which the sink sends, or write, which it takes
    #[arg(long, value_name = "PATTERN")]
    pub(crate) rw: String,
    /// Bytes of a block
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(512..=16 << 20))]
    pub(crate) bs: u32,
    /// Jobs, each with a connection of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) numjobs: u32,
    /// Measure until five windows of this length are steady, in 25 at most
    #[arg(long, value_name = "TIME", value_parser = |text: &str| values::time(text, 100))]
    pub(crate) steady: Duration,
    /// How long to run before measuring
    #[arg(long, value_name = "TIME", value_parser = |text: &str| values::time(text, 0))]
    pub(crate) warmup: Duration,
}

/// `lab copy FILE`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabCopyArgs {
    /// The file, of which nothing stays that is there
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Bytes that are written at once
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(512..=16 << 20))]
    pub(crate) bs: u32,
    /// Bytes of the file
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) size: u64,
    /// Sync it in the end
    #[arg(long)]
    pub(crate) sync: bool,
}

/// `lab export FOLDER`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabExportArgs {
    /// What is exported
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// Read and write past the page cache
    #[arg(long)]
    pub(crate) past: bool,
}

/// `lab import POINT`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabImportArgs {
    /// Where it is mounted
    #[arg(value_name = "POINT")]
    pub(crate) point: PathBuf,
    /// Who exports it
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "folder")]
    pub(crate) server: Option<SocketAddr>,
    /// In place of that, a folder of this machine: what FUSE alone costs
    #[arg(long, value_name = "FOLDER", conflicts_with = "server")]
    pub(crate) folder: Option<PathBuf>,
    /// Have each write durable when it is answered, and nothing to commit
    #[arg(long, conflicts_with = "folder")]
    pub(crate) sync: bool,
    /// How many bytes one call reads or writes at most: whole pages, as a kernel's client 1 MiB
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(4096..=1 << 20))]
    pub(crate) call_bytes: u32,
    /// Keep how many calls were made in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) calls: Option<PathBuf>,
}

/// `lab program NAME FOLDER`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabProgramArgs {
    /// Which: bonnie++, postmark, pgbench or merge-sort
    #[arg(value_name = "NAME", value_parser = program)]
    pub(crate) program: Files,
    /// Where it makes its files
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Bytes of its files
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) size: u64,
    /// What it draws from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many clients of pgbench there are
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) jobs: u32,
    /// Where pgbench and its server have what is beside their files
    #[arg(long, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,
    /// Have pgbench work until five windows of this length are steady, in 25 at most
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| values::time(text, 100))]
    pub(crate) steady: Duration,
    /// How long it works before that
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| values::time(text, 0))]
    pub(crate) warmup: Duration,
}

/// A program by its name.
fn program(text: &str) -> Result<Files, String> {
    let mut programs = Files::WORDS.iter().filter(|(_, files)| files.is_program());
    let known = programs.clone().find(|(word, _)| *word == text);
    known.map(|(_, files)| *files).ok_or_else(|| {
        let words: Vec<&str> = programs.by_ref().map(|(word, _)| *word).collect();
        format!("expected {}, seen {text:?}", words.join(", "))
    })
}

/// `lab sink ADDRESS`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabSinkArgs {
    /// Where to listen
    #[arg(value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
}

/// `lab files FOLDER`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabFilesArgs {
    /// The folder in which they lie
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Whose they are
    #[arg(long, value_name = "LOAD")]
    pub(crate) load: Personality,
    /// Bytes of all of them
    #[arg(long, value_name = "SIZE", value_parser = parse_fio_size)]
    pub(crate) size: u64,
    /// Threads; of a database its readers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) jobs: u32,
    /// What their lengths and contents are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Make them, and do nothing else
    #[arg(long)]
    pub(crate) make: bool,
    /// Work until five windows of this length are steady, in 25 at most
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| values::time(text, 100))]
    pub(crate) steady: Duration,
    /// How long to work before that
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| values::time(text, 0))]
    pub(crate) warmup: Duration,
}

/// `lab relay ONE OTHER`
#[derive(Args, Clone, Debug)]
pub(crate) struct LabRelayArgs {
    /// One interface
    #[arg(value_name = "ONE")]
    pub(crate) one: String,
    /// The other one
    #[arg(value_name = "OTHER")]
    pub(crate) other: String,
    /// By how much each frame is late, in microseconds
    #[arg(long, value_name = "US")]
    pub(crate) delay_us: u32,
    /// Bytes of frames that may wait each way; more are dropped
    #[arg(long, value_name = "BYTES")]
    pub(crate) bytes_max: usize,
}
