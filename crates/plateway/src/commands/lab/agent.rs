//! `lab agent`: the far end on another machine, for a lab that runs at the near end.
//!
//! ```text
//!   lab run PLAN   --ssh HOST, or a socket-->   lab agent: serve, targets, looks at CPUs and counters
//! ```
//! It does what the lab itself does at the far end of a path on one machine: starts the systems of a
//! plan, sees whether they are up, looks at its CPUs and its interface, and says what it cannot do
//! before anything runs. Questions and answers are lines ([`message`]), on standard input and output
//! or, with `--socket`, of one connection after the other. When a connection ends, so does all that
//! was started for it, also what went into the background. It changes no interface and no address.
//! Whoever may connect may have it run any command: a socket is its owner's alone. Errors: answers.

mod client;
mod message;

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::plan::{Experiment, Line};
use rustix::process::{Pid, Signal, WaitOptions};
use testbed::{Counters, CpuLook, Folder};

use super::far::{self, Place, Running};
use super::seen::{self, End, Ours};
use super::served::Served;
use super::trial::tell;
use super::{Ends, machine};
use crate::cli::LabAgentArgs;
use crate::commands::environment::environment;
use crate::commands::session::Interrupt;

pub(super) use client::{Agent, FarMachine};
pub(super) use message::{Looked, Request};

use message::{Answer, LINE_MAX};

/// How long it may take until a lab that has gone is cleared up after.
const GOING_MAX: Duration = Duration::from_secs(5);

pub(super) fn run(args: &LabAgentArgs) -> miette::Result<()> {
    // What goes into the background becomes our child, and ends with us.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| miette::miette!("cannot look after what is started: {error}"))?;
    let Some(socket) = &args.socket else {
        return attend(std::io::stdin(), std::io::stdout(), &Interrupt::watch()?);
    };
    let listener = listen(socket)?;
    let _gone = Gone(socket);
    crate::log::Event::info(format!("an agent waits at {}", socket.display())).tell();
    // Ends as any program does that is told to; what it started ends with it.
    let interrupt = Interrupt::watch()?;
    listener.set_nonblocking(true).map_err(|error| miette::miette!("{error}"))?;
    let mut attended: Option<JoinHandle<()>> = None;
    while !interrupt.is_raised() {
        match listener.accept() {
            Ok((stream, _)) if is_busy(attended.as_ref()) => refuse(stream),
            Ok((stream, _)) => {
                let interrupt = interrupt.clone();
                attended = Some(std::thread::spawn(move || attend_socket(stream, &interrupt)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(far::AGAIN);
            }
            Err(error) => return Err(miette::miette!("{}: {error}", socket.display())),
        }
    }
    // What it started is ended first.
    attended.map_or(Ok(()), JoinHandle::join).map_err(|_| miette::miette!("an agent panicked"))
}

/// Whether a lab is attended, and goes on to be: one that has gone is cleared up after first.
fn is_busy(attended: Option<&JoinHandle<()>>) -> bool {
    let until = Instant::now() + GOING_MAX;
    let is_there = || attended.is_some_and(|one| !one.is_finished());
    while is_there() && Instant::now() < until {
        std::thread::sleep(far::AGAIN);
    }
    is_there()
}

fn refuse(mut stream: UnixStream) {
    let why = "expected one lab at a time, and another one is there";
    // Who does not listen has gone.
    let _ = say(&mut stream, &Answer::Error(why.to_owned()));
}

fn attend_socket(stream: UnixStream, interrupt: &Interrupt) {
    // One that asks and does not listen keeps nobody.
    let ready = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_write_timeout(Some(far::START)))
        .and_then(|()| stream.try_clone());
    let attended = ready
        .map_err(|error| miette::miette!("{error}"))
        .and_then(|to| attend(stream, to, interrupt));
    if let Err(why) = attended {
        crate::log::Event::warn(format!("{why}")).tell();
    }
}

/// A socket that only its owner may use; one that a dead agent left is replaced.
fn listen(socket: &Path) -> miette::Result<UnixListener> {
    let tell = |error: &dyn std::fmt::Display| miette::miette!("{}: {error}", socket.display());
    if let Ok(seen) = socket.symlink_metadata() {
        if !seen.file_type().is_socket() {
            return Err(tell(&"expected a socket or nothing, and it is something else"));
        }
        if UnixStream::connect(socket).is_ok() {
            return Err(tell(&"expected a place where nobody listens, and somebody does"));
        }
        std::fs::remove_file(socket).map_err(|error| tell(&error))?;
    }
    // Nobody is let in before the rights are as they are to be.
    let listener = {
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(socket);
        rustix::process::umask(before);
        listener.map_err(|error| tell(&error))?
    };
    let owner_alone = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(socket, owner_alone).map_err(|error| tell(&error))?;
    Ok(listener)
}

/// A socket that goes with the agent.
struct Gone<'a>(&'a PathBuf);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// Answers until there are no more questions, or a signal comes.
fn attend(
    from: impl Read + Send + 'static,
    mut to: impl Write,
    interrupt: &Interrupt,
) -> miette::Result<()> {
    // Waits at this end are over with the connection.
    let ended = interrupt.or_when_told();
    let lines = questions(from, ended.clone());
    let mut post = match Post::new(&ended) {
        Ok(post) => post,
        Err(why) => {
            // Said to who asks, too.
            let _ = say(&mut to, &Answer::Error(why.to_string()));
            return Err(why);
        }
    };
    loop {
        let line = match lines.recv_timeout(far::AGAIN) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if interrupt.is_raised() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let answer = match serde_json::from_str::<Request>(&line) {
            Ok(request) => post.answer(&request),
            Err(error) => Answer::Error(format!("expected a question of the lab: {error}")),
        };
        // Who does not listen any more has gone.
        if say(&mut to, &answer).is_err() {
            return Ok(());
        }
    }
}

fn say(to: &mut impl Write, answer: &Answer) -> std::io::Result<()> {
    let line = serde_json::to_string(answer)? + "\n";
    to.write_all(line.as_bytes()).and_then(|()| to.flush())
}

/// Reads questions on a thread of its own; says when there are no more.
fn questions(from: impl Read + Send + 'static, ended: Interrupt) -> Receiver<String> {
    // Whoever asks more than is answered waits.
    let (told, lines) = sync_channel(1);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        loop {
            let mut line = String::new();
            match (&mut from).take(LINE_MAX).read_line(&mut line) {
                Ok(read) if read > 0 && line.ends_with('\n') && told.send(line).is_ok() => {}
                _ => {
                    ended.raise();
                    return;
                }
            }
        }
    });
    lines
}

/// An agent at its post: what it was told, and what runs.
struct Post<'a> {
    interrupt: &'a Interrupt,
    ends: Ends,
    /// Whether its questions are of its own version.
    is_known: bool,
    experiment: Option<Experiment>,
    home: Folder,
    trial: Option<Running>,
    trials: usize,
    looks: RefCell<Vec<CpuLook>>,
}

impl<'a> Post<'a> {
    fn new(interrupt: &'a Interrupt) -> miette::Result<Post<'a>> {
        let cpus = reactor::allowed_cpus();
        Ok(Post {
            interrupt,
            ends: Ends { near: Vec::new(), far: cpus, are_machines: true },
            is_known: false,
            experiment: None,
            home: Folder::make(far::PREFIX).map_err(tell)?,
            trial: None,
            trials: 0,
            looks: RefCell::default(),
        })
    }

    fn answer(&mut self, request: &Request) -> Answer {
        if !self.is_known && !matches!(request, Request::Hello { .. }) {
            return Answer::Error("expected to be asked first who this is".to_owned());
        }
        match request {
            Request::Hello { version, commit } => Answer::of(self.hello(version, commit.as_ref())),
            Request::Plan { name, text } => Answer::of(self.take_plan(name, text)),
            Request::Check => Answer::of(self.check()),
            Request::Line { path } => Answer::of(self.judge(*path)),
            Request::Clock => Answer::of(Ok(unix_now())),
            Request::Start { system, disks, path } => {
                Answer::of(self.start(*system, *disks, *path))
            }
            Request::IsUp => Answer::of(self.is_up()),
            Request::Look { path } => Answer::of(self.look(*path)),
            Request::Used { from, to } => Answer::of(self.used(*from, *to)),
            Request::End => {
                self.end();
                Answer::of(Ok(()))
            }
        }
    }

    fn hello(
        &mut self,
        version: &str,
        commit: Option<&String>,
    ) -> miette::Result<lab::report::Environment> {
        let own = environment("as each trial says".to_owned());
        let is_same = own.version == version && own.commit.as_ref() == commit;
        if !is_same {
            let name = |version: &str, commit: Option<&String>| match commit {
                Some(commit) => format!("{version} ({commit})"),
                None => version.to_owned(),
            };
            return Err(miette::miette!(
                "expected a lab of its own version, {}, seen {} (take the same program to both ends)",
                name(&own.version, own.commit.as_ref()),
                name(version, commit)
            ));
        }
        self.is_known = true;
        Ok(own)
    }

    fn take_plan(&mut self, name: &str, text: &str) -> miette::Result<()> {
        let experiment = Experiment::parse(name, text).map_err(|why| miette::miette!("{why}"))?;
        self.experiment = Some(experiment);
        Ok(())
    }

    fn experiment(&self) -> miette::Result<&Experiment> {
        self.experiment.as_ref().ok_or_else(|| miette::miette!("expected a plan first"))
    }

    /// A path's own words of this end.
    fn line(&self, path: usize) -> miette::Result<&Line> {
        let path = self.experiment()?.paths.get(path).and_then(|path| path.line.as_ref());
        path.ok_or_else(|| miette::miette!("expected a path between two machines"))
    }

    fn check(&self) -> miette::Result<Vec<String>> {
        let experiment = self.experiment()?;
        let far = experiment.systems.iter().filter(|system| system.means.needs_path());
        let mut lines = machine::systems(far, &self.ends);
        for path in 0..experiment.paths.len() {
            lines.extend(self.judge(path)?);
        }
        Ok(lines)
    }

    fn judge(&self, path: usize) -> miette::Result<Vec<String>> {
        let name = &self.line(path)?.far_interface;
        Ok(machine::interface(&self.experiment()?.paths[path], name, "far"))
    }

    /// Starts a system with so many disks; what it says of itself if it is ours.
    fn start(&mut self, system: usize, disks: u32, path: usize) -> miette::Result<Option<Served>> {
        self.end();
        let line = self.line(path)?.clone();
        let experiment = self.experiment()?;
        let system = experiment.systems.get(system);
        let system = system.ok_or_else(|| miette::miette!("expected a system of the plan"))?;
        let home = self.home.path().join(format!("trial-{}", self.trials));
        super::make_folder(&home)?;
        let place = Place {
            at: None,
            interface: &line.far_interface,
            address: line.far_address,
            cpus: &self.ends.far,
            loads: false,
        };
        let (running, served) = far::start(system, disks, &place, &home, self.interrupt)?;
        self.trial = Some(running);
        self.trials += 1;
        Ok(served)
    }

    fn is_up(&self) -> miette::Result<()> {
        match &self.trial {
            Some(running) => running.is_up(),
            None => Err(miette::miette!("nothing runs")),
        }
    }

    fn look(&self, path: usize) -> miette::Result<Looked> {
        let name = &self.line(path)?.far_interface;
        let counters = Counters::seen_by(std::process::id(), name).ok_or_else(|| {
            miette::miette!("the far end: expected an interface {name}, and there is none")
        })?;
        let at = unix_now();
        let mut looks = self.looks.borrow_mut();
        looks.push(CpuLook::now().map_err(tell)?);
        Ok(Looked { look: looks.len() - 1, at, dropped: counters.rx_dropped + counters.tx_dropped })
    }

    fn used(&self, from: usize, to: usize) -> miette::Result<End> {
        let looks = self.looks.borrow();
        let [from, to] = [from, to].map(|at| looks.get(at));
        let (from, to) = from.zip(to).ok_or_else(|| miette::miette!("expected two looks"))?;
        seen::used(from, to, &self.ends.far, &Ours::default())
    }

    /// Ends what runs, also what went into the background.
    fn end(&mut self) {
        self.trial = None;
        self.looks.borrow_mut().clear();
        end_descendants();
        let home = self.home.path().join(format!("trial-{}", self.trials.saturating_sub(1)));
        let _ = std::fs::remove_dir_all(home);
    }
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends all that descends from this process, also what went into the background, and waits for it: for
/// so long, since what waits for a disk that is gone does not end. What was started in the foreground
/// is over before.
fn end_descendants() {
    let until = Instant::now() + far::START;
    while let Ok(look) = CpuLook::now() {
        let all = look.descendants(std::process::id());
        if all.is_empty() {
            return;
        }
        for pid in all.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
            // One that has ended meanwhile is what is wanted.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        if Instant::now() > until {
            let words = "what was started here does not end: it is left alone";
            return crate::log::Event::warn(words.to_owned()).tell();
        }
        std::thread::sleep(far::AGAIN);
    }
}

/// Seconds since 1970.
pub(super) fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
