//! Where events are written, as a subscriber of `tracing`: the journal where standard error goes
//! there, so that each thing that an event is about is a field (`PLATEWAY_DISK`, ...) and its level
//! a priority; JSON, an object a line; or text, a sentence a line, without fields since it names
//! them.
//!
//! A journal without its socket gets lines that begin with their priority as `<4>`. What cannot be
//! written is lost: there is nobody to tell. Spec: systemd.exec(5) `JOURNAL_STREAM`, sd-daemon(3),
//! systemd.journal-fields(7), no-color.org.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tracing::{Dispatch, Metadata, dispatcher};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::prelude::*;

use super::{Event, Fields, Format, Level};

/// A place in the code has one level, and names its fields.
macro_rules! emit {
    ($level:expr, $event:expr) => {{
        let Event { words, fields, more, .. } = $event;
        let Fields { disk, volume, export, listener, link, host, peer, offset, length, errno } =
            fields;
        tracing::event!(
            target: "plateway",
            $level,
            disk = disk.as_deref(),
            volume = volume.as_deref(),
            export = export.as_deref(),
            listener = listener.as_deref(),
            link = link.as_deref(),
            host = host.as_deref(),
            peer = peer.as_deref(),
            offset,
            length,
            errno,
            more = (*more > 0).then_some(*more),
            "{words}"
        )
    }};
}
/// Where events are written.
pub(super) struct Sink {
    dispatch: Dispatch,
    told: Told,
    is_text: bool,
}

impl Sink {
    pub(super) fn open(format: Format) -> Sink {
        let stderr = io::stderr();
        let is_journal = format == Format::Auto && is_journal(&stderr);
        let journal = is_journal.then(tracing_journald::layer).and_then(Result::ok);
        // Not the handle of the standard library: a write that hangs would hold its lock.
        let to = Stderr {
            file: stderr.as_fd().try_clone_to_owned().map(File::from).ok(),
            has_priorities: is_journal,
        };
        let told = Told(Arc::new(Mutex::new(SystemTime::UNIX_EPOCH)));
        let layer = fmt::layer().with_writer(to).with_target(false).log_internal_errors(false);
        // Its own fields are named in the sentence.
        let sentence = format::debug_fn(|to, field, value| match field.name() {
            "message" => write!(to, "{value:?}"),
            _ => Ok(()),
        });
        let registry = tracing_subscriber::registry();
        let dispatch = match (format, journal) {
            (_, Some(journal)) => Dispatch::new(registry.with(fields_and_priorities(journal))),
            (Format::Json, _) => {
                let json = layer.json().flatten_event(true).with_timer(told.clone());
                Dispatch::new(registry.with(json.with_current_span(false).with_span_list(false)))
            }
            _ if is_journal => {
                let plain = layer.fmt_fields(sentence).with_ansi(false);
                Dispatch::new(registry.with(plain.without_time().with_level(false)))
            }
            _ => {
                let text = layer.fmt_fields(sentence).with_timer(told.clone());
                Dispatch::new(registry.with(text.with_ansi(is_coloured(&stderr))))
            }
        };
        Sink { dispatch, told, is_text: format != Format::Json && !is_journal }
    }

    /// Whether lines are for people.
    pub(super) fn is_text(&self) -> bool {
        self.is_text
    }

    /// What is written in `inside` goes here.
    pub(super) fn with(&self, inside: impl FnOnce()) {
        dispatcher::with_default(&self.dispatch, inside);
    }

    /// Writes an event, [`with`](Self::with) it. Waits for as long as it takes.
    pub(super) fn write(&self, at: SystemTime, event: &Event) {
        *self.told.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
        match event.level {
            Level::Error => emit!(tracing::Level::ERROR, event),
            Level::Warn => emit!(tracing::Level::WARN, event),
            Level::Info => emit!(tracing::Level::INFO, event),
            Level::Debug => emit!(tracing::Level::DEBUG, event),
        }
    }
}

/// When the event that is being written was told.
#[derive(Clone)]
struct Told(Arc<Mutex<SystemTime>>);

impl FormatTime for Told {
    fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = jiff::Timestamp::try_from(at).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(to, "{at:.6}")
    }
}

/// Whether what is written here goes to the journal, as the service manager says.
fn is_journal(stderr: &io::Stderr) -> bool {
    let told = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let told = told.split_once(':').and_then(|(d, i)| Some((d.parse().ok()?, i.parse().ok()?)));
    rustix::fs::fstat(stderr).is_ok_and(|stat| told == Some((stat.st_dev, stat.st_ino)))
}

fn is_coloured(stderr: &io::Stderr) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stderr.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// Names of fields begin with ours, so that they never are another's.
fn fields_and_priorities(journal: tracing_journald::Layer) -> tracing_journald::Layer {
    journal
        .with_field_prefix(Some("PLATEWAY".to_owned()))
        .with_syslog_identifier("plateway".to_owned())
        .with_priority_mappings(PriorityMappings {
            info: Priority::Informational,
            debug: Priority::Debug,
            ..PriorityMappings::new()
        })
}

/// Standard error, of this thread's own.
struct Stderr {
    file: Option<File>,
    /// Whether lines begin with their priority, since a journal reads them.
    has_priorities: bool,
}

/// A line, written at once.
struct Line<'a> {
    file: Option<&'a File>,
    priority: Option<u8>,
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { file: self.file.as_ref(), priority: None }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        let priority = match *meta.level() {
            tracing::Level::ERROR => 3,
            tracing::Level::WARN => 4,
            tracing::Level::INFO => 6,
            _ => 7,
        };
        Line { priority: self.has_priorities.then_some(priority), ..self.make_writer() }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(mut file) = self.file else { return Ok(line.len()) };
        if let Some(priority) = self.priority.take() {
            file.write_all(format!("<{priority}>").as_bytes())?;
        }
        file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
