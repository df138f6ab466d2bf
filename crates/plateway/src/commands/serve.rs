//! `plateway serve`: from flags or a file to a server that runs until SIGTERM.
//!
//! The main thread is the control thread: it sleeps until a signal or somebody on the control
//! socket wants something, and does one thing after the other. Standard output has what is served,
//! ending in a line `ready: KEY ADDRESS` for each address that is listened at and `ready: KEY LINK`
//! for each link; standard error has the log. SIGTERM or SIGINT drains, flushes and ends with code
//! 0, or 1 where that failed, also while it starts; a second one ends at once with 130; SIGHUP reads
//! the configuration again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Instant;

use block::ByteCount;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::ServeArgs;
use crate::config::defaults::Defaults;
use crate::config::link::LinkConfig;
use crate::config::model::HiArgs;
use crate::config::quick::Flags;
use crate::config::text::Count;
use crate::config::thing::Configured as _;
use crate::config::{self, Checked};
use crate::control::{self, Ask, Changes, Reply};
use crate::log::Event;
use crate::protocols::{self, ExportConfig, Routers};
use crate::run::state::StateDirectory;
use crate::run::stop;
use crate::run::{Applied, ApplyError, Consent, RunError, Running, Taken};
use crate::service::Service;

/// What the control thread is asked.
enum Input {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
    /// A remote disk changed, or where a next hop is.
    Follow,
    /// Somebody on the control socket.
    Ask(Ask, control::Answering),
}

/// Serves.
pub(crate) fn run(args: &ServeArgs) -> miette::Result<()> {
    crate::log::abort_on_panic();
    let defaults = Defaults::of_this_machine();
    let flags = args.flags.clone();
    let checked = config::load_with_flags(args.config.as_deref(), &flags, &defaults);
    let checked = checked.inspect_err(|error| {
        crate::log::start(flags.log.unwrap_or_default(), flags.log_level.unwrap_or_default());
        // People are shown each in its line of the file.
        if let (config::ConfigError::Wrong(mistakes), false) = (error, crate::log::is_for_people())
        {
            for (severity, line) in mistakes.graded() {
                let is_error = severity == miette::Severity::Error;
                if is_error { Event::error(line) } else { Event::warn(line) }.tell();
            }
        }
    })?;
    crate::log::start(checked.args.server.log, checked.args.server.log_level);
    checked.warnings.lines().for_each(|line| Event::warn(line).tell());
    // First, so that two servers never touch the same disks, and signals are never lost.
    let socket = control::ControlSocket::open(&checked.args.server)?;
    let (inputs, coming) = mpsc::channel();
    watch_signals(inputs.clone())
        .map_err(|error| RunError::new(format!("cannot watch signals: {error}")))?;
    let (mut running, warnings) = match Running::start(&checked.args, &args.overwrite) {
        // As of every start that fails, nothing of it is left.
        Err(error) if stop::is_stopped() => {
            Event::info(format!("stopped while it started: {}", error.line())).tell();
            return Ok(());
        }
        started => started?,
    };
    if stop::is_stopped() {
        Event::info("stopped while it started").tell();
        return shut_down(running);
    }
    Event::info(&*running.driver().reason).tell();
    let unwritable = StateDirectory::new(&checked.args.server.state).unwritable();
    warnings.iter().chain(&unwritable).for_each(|line| Event::warn(line).tell());
    let follows = inputs.clone();
    running.when_a_disk_changes(move || drop(follows.send(Input::Follow)));
    // Of what changed before somebody listened.
    let _ = inputs.send(Input::Follow);
    let asking: control::Asking =
        Arc::new(move |ask, answering| inputs.send(Input::Ask(ask, answering)).is_ok());
    running.answer_metrics(asking.clone())?;
    let _serving = socket.serve(asking)?;
    if checked.args.exports.is_empty() && checked.args.routing.routers.is_empty() {
        let words = "nothing is exported: name exports in the configuration, then: plateway apply";
        Event::warn(words).tell();
    }
    introduce(introduction(&running));
    let service = Service::ready(running.pulse(), served(&running));

    let control = checked.args.server.control.clone();
    let server = Server { args, flags, defaults, control };
    loop {
        // Without a failure it sleeps until somebody wants something.
        let input = match running.next_try() {
            None => coming.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => coming.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match input {
            Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(Input::Reload) => {
                service.reloading();
                server.reload(&mut running);
                service.reloaded(served(&running));
            }
            Ok(Input::Follow) => {
                running.follow_remote_disks().into_iter().for_each(Event::tell);
                running.keep_protection();
                running.follow_next_hops();
            }
            Ok(Input::Ask(ask, answering)) => answering.answer(server.answer(&mut running, ask)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        running.try_failed(Instant::now()).into_iter().for_each(Event::tell);
    }
    // Whoever asks from now on, or waits for an answer, is told at once that there is none.
    drop(coming);
    service.stopping();
    Event::info("stopping: draining for at most 5 s; a second signal ends at once").tell();
    shut_down(running)
}

fn shut_down(running: Running) -> miette::Result<()> {
    match running.shut_down().as_slice() {
        [] => Ok(()),
        missed => Err(RunError::new(format!("it did not end well: {}", missed.join("; "))).into()),
    }
}

/// What it was started with, which every later configuration is read beside.
struct Server<'a> {
    args: &'a ServeArgs,
    flags: Flags,
    defaults: Defaults,
    control: PathBuf,
}

impl Server<'_> {
    /// SIGHUP.
    fn reload(&self, running: &mut Running) {
        let path = self.args.config.as_deref();
        match config::load_with_flags(path, &self.flags, &self.defaults) {
            // What may be overwritten or taken away a person says each time, never a signal.
            Ok(checked) => {
                let applied = running.apply(&checked.args, &Consent::default());
                log_apply(running, &checked, &applied);
                if let (Err(ApplyError::Taken(taken)), Some(path)) = (&applied, path) {
                    let command = self.to_type(&applying(&from_anywhere(path)), taken);
                    Event::warn(format!("to have it: {command}")).tell();
                }
            }
            Err(error) => {
                if let config::ConfigError::Wrong(mistakes) = &error {
                    mistakes.lines().for_each(|line| Event::warn(line).tell());
                }
                Event::warn(format!("the configuration was not applied: {error}")).tell();
            }
        }
    }

    /// A configuration that came over the control socket; flags of `[server]` stand as they did at
    /// the start, disks on the command line do not.
    fn read(&self, name: &str, text: &str) -> Result<Checked, String> {
        config::check_with_flags(name, text, &self.flags.of_the_server(), &self.defaults)
            .map_err(|mistakes| mistakes.lines().collect::<Vec<_>>().join("\n"))
    }

    /// What has a change done that takes away what is in use; `command` did not.
    fn to_type(&self, command: &str, taken: &Taken) -> String {
        let flags = taken.flags().join(" ");
        let control = from_anywhere(&self.control);
        format!("plateway {command} --control {} {flags}", control.display())
    }

    /// Applies a configuration, as `command` wanted.
    fn apply(
        &self,
        running: &mut Running,
        (name, text): (&str, &str),
        consent: &Consent,
        command: &str,
    ) -> Reply {
        let checked = match self.read(name, text) {
            Ok(checked) => checked,
            Err(mistakes) => return Reply::Refused(mistakes),
        };
        let applied = running.apply(&checked.args, consent);
        log_apply(running, &checked, &applied);
        match applied {
            Ok(Applied { steps, warnings }) => {
                let warnings = checked.warnings.lines().chain(warnings).collect();
                Reply::Changes(Changes { steps, warnings, ..Changes::default() })
            }
            Err(ApplyError::Taken(taken)) => {
                let command = self.to_type(command, &taken);
                Reply::Refused(format!("{}\nto have it: {command}", ApplyError::Taken(taken)))
            }
            Err(why) => Reply::Refused(why.to_string()),
        }
    }

    fn answer(&self, running: &mut Running, ask: Ask) -> Reply {
        let refuse = Reply::Refused;
        match ask {
            Ask::Status => match running.status() {
                Ok(status) => Reply::Status(Box::new(status)),
                Err(error) => refuse(error.line()),
            },
            Ask::Metrics => match running.metrics() {
                Ok(text) => Reply::Metrics(text),
                Err(error) => refuse(error.line()),
            },
            Ask::Routers => match running.router_statuses() {
                Ok(routers) => Reply::Routers(Routers { routers, ..Routers::default() }),
                Err(error) => refuse(error.line()),
            },
            Ask::Record { port, milliseconds } => match running.record_port(&port, milliseconds) {
                Ok(()) => Reply::Text(String::new()),
                Err(error) => refuse(error.line()),
            },
            Ask::Recorded { port } => match running.recorded(&port) {
                Ok(bins) => Reply::Bins(bins),
                Err(error) => refuse(error.line()),
            },
            Ask::Config => Reply::Text(config::text::config_text(&running.args())),
            Ask::Difference { name, text } => match self.read(&name, &text) {
                Ok(checked) => match difference(running, &checked) {
                    Ok(changes) => Reply::Changes(changes),
                    Err(error) => refuse(error.to_string()),
                },
                Err(mistakes) => refuse(mistakes),
            },
            Ask::Apply { name, text, consent } => {
                self.apply(running, (&name, &text), &consent, &applying(Path::new(&name)))
            }
            Ask::Edit { edit, yes } => match edit.of(&running.args()) {
                Ok(args) => {
                    // Read again, it passes what a file passes.
                    let text = config::text::config_text(&args);
                    let consent = Consent { yes, ..Consent::default() };
                    let served = ("what is served", &*text);
                    let mut reply = self.apply(running, served, &consent, &edit.command());
                    if let Reply::Changes(changes) = &mut reply {
                        let words = match changes.steps.is_empty() {
                            true => edit.is_so(),
                            false => "the configuration file stays as it is: write it there, too, or the next apply, reload or start takes it back".to_owned(),
                        };
                        changes.warnings.push(words);
                    }
                    reply
                }
                Err(why) => refuse(why),
            },
            Ask::Reopen { disk } => told(running.reopen(&disk)),
            Ask::CloseSessions { host } => told(running.close_sessions(&host)),
            Ask::ClearReservation { volume } => told(running.clear_reservation(&volume)),
            Ask::SetGroup { group, state } => told(running.set_group(group, state)),
        }
    }
}

/// The command that applies a file.
fn applying(file: &Path) -> String {
    format!("apply {}", file.display())
}

/// What came of a configuration, in the log.
fn log_apply(running: &Running, checked: &Checked, applied: &Result<Applied, ApplyError>) {
    let Applied { steps, warnings } = match applied {
        Ok(applied) => applied,
        Err(why) => {
            let why = why.to_string().replace(":\n", ": ").replace('\n', "; ");
            let words = format!("the configuration was not applied: {why}");
            running.tell_apply(Event::warn(words));
            return;
        }
    };
    let words = format!("the configuration was applied: {}", Count(steps.len(), "step"));
    let summary = if steps.is_empty() { Event::debug(words) } else { Event::info(words) };
    if running.tell_apply(summary) {
        steps.iter().for_each(|step| Event::info(&*step.text).tell());
        let warnings = checked.warnings.lines().chain(warnings.iter().cloned());
        warnings.for_each(|line| Event::warn(line).tell());
    }
}

/// What was done for somebody is told to them and logged.
fn told(done: Result<String, RunError>) -> Reply {
    match done {
        Ok(done) => {
            Event::info(&*done).tell();
            Reply::Text(done)
        }
        Err(error) => Reply::Refused(error.line()),
    }
}

/// What `apply` would do.
fn difference(running: &Running, checked: &Checked) -> Result<Changes, ApplyError> {
    let plan = running.difference(&checked.args)?;
    let taken = running.taken(&plan, &checked.args).map_err(ApplyError::NotAsked)?;
    Ok(Changes {
        steps: plan.steps.iter().map(Into::into).collect(),
        warnings: checked.warnings.lines().collect(),
        in_use: taken.lines(),
        needs: taken.flags().into_iter().map(str::to_owned).collect(),
        ..Changes::default()
    })
}

/// What is served, in a line for the service manager.
fn served(running: &Running) -> String {
    let exports = format!("serving {}", Count(running.exports().count(), "export"));
    match running.router_summaries().len() {
        0 => exports,
        routers => format!("{exports}, {}", Count(routers, "router")),
    }
}

/// What is served and what to type on a host; the last lines say where.
fn introduction(running: &Running) -> String {
    let args: HiArgs = running.args();
    let mut text = String::new();
    let mut table = crate::control::table(&["export", "number", "volume", "size", "hosts"]);
    for (export, facts) in running.export_facts() {
        let [name, place, hosts] = export.shown();
        table.add_row([
            name,
            place,
            export.volume().to_owned(),
            ByteCount(facts.bytes).to_string(),
            hosts,
        ]);
    }
    let routers = running.router_summaries();
    if !routers.is_empty() {
        let _ = writeln!(text, "{}", protocols::router_summaries(&routers));
    }
    match (args.exports.is_empty(), routers.is_empty()) {
        (false, _) => drop(writeln!(text, "{table}")),
        (true, true) => {
            let _ =
                writeln!(text, "no exports: name some in the configuration, then: plateway apply");
        }
        // A router carries, and need not serve.
        (true, false) => {}
    }
    for line in protocols::hints(&args.exports, &running.portals()) {
        let _ = writeln!(text, "on a Linux host: {line}");
    }
    for (protocol, address) in running.addresses() {
        let _ = writeln!(text, "ready: {} {address}", protocols::stream_key(protocol));
    }
    let is_port_alone = |link: &&LinkConfig| {
        let is_on = |export: &ExportConfig| export.stands_on().contains(&link.title());
        let mut ports = args.routing.ports.iter();
        ports.any(|port| port.link == link.name) && !args.exports.iter().any(is_on)
    };
    for link in args.links.iter().filter(|link| !is_port_alone(link)) {
        let _ = writeln!(text, "ready: {} {}", protocols::LINK_KEY, link.name);
    }
    for router in &routers {
        let _ = writeln!(text, "ready: router {}", router.name);
    }
    if args.listeners.is_empty() && args.links.is_empty() && routers.is_empty() {
        let _ = writeln!(
            text,
            "ready: no listener; give one with --nvme 127.0.0.1:4420 or --iscsi 127.0.0.1:3260"
        );
    }
    text
}

/// A path as it may be typed in another folder than the server's.
fn from_anywhere(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A thread that turns signals into inputs; the second one to stop does not wait for anything.
fn watch_signals(inputs: Sender<Input>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => drop(inputs.send(Input::Reload)),
                _ if stopping => std::process::exit(super::INTERRUPTED.into()),
                _ => {
                    stopping = true;
                    stop::stop();
                    let _ = inputs.send(Input::Stop);
                }
            }
        }
    })?;
    Ok(())
}

/// Prints what is served, in a thread of its own: hosts are served whether or not anybody reads it.
fn introduce(text: String) {
    let print = move || {
        let told = super::print(&text);
        let _ = told.inspect_err(|error| Event::warn(error.to_string()).tell());
    };
    if let Err(error) = std::thread::Builder::new().name("introduction".to_owned()).spawn(print) {
        Event::warn(format!("no thread that prints what is served: {error}")).tell();
    }
}
