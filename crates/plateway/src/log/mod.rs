//! The log: what an operator should know, each as an [`Event`] with a level, a sentence and what it
//! is about, so that nothing is written of which nobody decided how grave it is.
//!
//! `serve` [starts](start) a lane: a bounded queue, and a thread behind it that alone writes. A
//! terminal that is held, a pipe that nobody reads or a journal that hangs stops that thread and
//! nobody else; what does not fit meanwhile is counted, and the count is told once there is room.
//! The thread hands events to `tracing`, whose subscriber ([`sink`]) is the journal, JSON or text.
//! The other commands write to standard error at once, and so does a test.
//!
//! Names that strangers choose stand in events. Whatever is no printable character is escaped in
//! one place ([`Event::tell`]), so that an event is one line and moves no terminal's cursor. Times
//! are those at which events were told, by the system's clock.

mod sink;

use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, SystemTime};

use crate::config::text::Count;
use crate::config::thing::Thing;

/// Lines that wait for whoever reads them.
const WAITING_MAX: usize = 1024;
/// Of a sentence or a value, so many bytes: what waits is bounded, and a datagram takes it.
const BYTES_MAX: usize = 4096;
/// How long the end waits until the last lines are written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How grave something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Level {
    /// Data or service is lost.
    Error,
    /// Something is worse than it should be, or somebody was refused.
    Warn,
    /// What an operator wants to read once.
    #[default]
    Info,
    /// All else.
    Debug,
}

impl Level {
    /// Every spelling, in the order of the documentation.
    pub(crate) const NAMES: [(&str, Level); 4] = [
        ("error", Level::Error),
        ("warn", Level::Warn),
        ("info", Level::Info),
        ("debug", Level::Debug),
    ];
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(self, &Self::NAMES))
    }
}

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The journal where standard error goes there, else text.
    #[default]
    Auto,
    /// A line for people, in colour on a terminal.
    Text,
    /// An object of JSON a line.
    Json,
}

impl Format {
    /// Every spelling, in the order of the documentation.
    pub(crate) const NAMES: [(&str, Format); 3] =
        [("auto", Format::Auto), ("text", Format::Text), ("json", Format::Json)];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(self, &Self::NAMES))
    }
}

fn name_of<T: PartialEq>(value: &T, names: &[(&'static str, T)]) -> &'static str {
    names.iter().find(|(_, named)| named == value).map_or("", |(name, _)| name)
}

/// Something that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "nobody knows of it before it is told"]
pub(crate) struct Event {
    level: Level,
    words: String,
    fields: Fields,
    /// Events like it that were not shown.
    more: u64,
}

/// What an event is about: only what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fields {
    disk: Option<String>,
    volume: Option<String>,
    export: Option<String>,
    listener: Option<String>,
    link: Option<String>,
    host: Option<String>,
    peer: Option<String>,
    /// Bytes from the beginning of the disk.
    offset: Option<u64>,
    /// In bytes.
    length: Option<u64>,
    errno: Option<i64>,
}

impl Event {
    fn new(level: Level, words: impl Into<String>) -> Event {
        Event { level, words: words.into(), fields: Fields::default(), more: 0 }
    }

    /// Data or service is lost.
    pub(crate) fn error(words: impl Into<String>) -> Event {
        Event::new(Level::Error, words)
    }

    /// Something is worse than it should be, or somebody was refused.
    pub(crate) fn warn(words: impl Into<String>) -> Event {
        Event::new(Level::Warn, words)
    }

    /// What an operator wants to read once.
    pub(crate) fn info(words: impl Into<String>) -> Event {
        Event::new(Level::Info, words)
    }

    /// All else.
    pub(crate) fn debug(words: impl Into<String>) -> Event {
        Event::new(Level::Debug, words)
    }

    pub(crate) fn disk(mut self, name: &str) -> Event {
        self.fields.disk = Some(name.to_owned());
        self
    }

    pub(crate) fn volume(mut self, name: &str) -> Event {
        self.fields.volume = Some(name.to_owned());
        self
    }

    /// By the name that hosts know.
    pub(crate) fn export(mut self, name: &str) -> Event {
        self.fields.export = Some(name.to_owned());
        self
    }

    pub(crate) fn link(mut self, name: &str) -> Event {
        self.fields.link = Some(name.to_owned());
        self
    }

    /// By what it calls itself.
    pub(crate) fn host(mut self, name: &str) -> Event {
        self.fields.host = Some(name.to_owned());
        self
    }

    /// The address of the other side.
    pub(crate) fn peer(mut self, address: impl fmt::Display) -> Event {
        self.fields.peer = Some(address.to_string());
        self
    }

    /// Where on the disk, in bytes.
    pub(crate) fn place(mut self, offset: u64, length: u64) -> Event {
        (self.fields.offset, self.fields.length) = (Some(offset), Some(length));
        self
    }

    /// What the system said.
    pub(crate) fn errno(mut self, errno: Option<i32>) -> Event {
        self.fields.errno = errno.map(Into::into);
        self
    }

    /// A thing of the configuration.
    pub(crate) fn about(mut self, thing: &Thing) -> Event {
        let fields = &mut self.fields;
        let (field, name) = match thing {
            Thing::Disk(disk) => (&mut fields.disk, disk.name.clone()),
            Thing::Volume(volume) => (&mut fields.volume, volume.name.clone()),
            Thing::Link(link) => (&mut fields.link, link.name.clone()),
            Thing::Host(host) => (&mut fields.host, host.name.clone()),
            Thing::Export(export) => (&mut fields.export, export.shown()[0].clone()),
            Thing::Routed(one) => (&mut fields.link, one.title()),
            Thing::Listener(_) | Thing::Metrics(_) => (&mut fields.listener, thing.title()),
        };
        *field = Some(name);
        self
    }

    /// So many like it were not shown.
    pub(crate) fn and_more(self, more: u64) -> Event {
        Event { more, ..self }
    }

    /// The sentence, in one line.
    pub(crate) fn line(&self) -> String {
        let mut line = printable(&self.words);
        if self.more > 0 {
            line += &format!(" ({} more like it were not shown)", self.more);
        }
        line
    }

    /// Writes it to the log. Never waits where a lane was started.
    pub(crate) fn tell(self) {
        let Some(lane) = LANE.get() else {
            if self.level < Level::Debug {
                let _ = writeln!(std::io::stderr().lock(), "plateway: {}", self.line());
            }
            return;
        };
        if self.level <= lane.level {
            lane.take(self.clean());
        }
    }

    /// Without anything that is no character of a line.
    fn clean(mut self) -> Event {
        let Fields { disk, volume, export, listener, link, host, peer, .. } = &mut self.fields;
        for value in [disk, volume, export, listener, link, host, peer].into_iter().flatten() {
            *value = printable(value);
        }
        self.words = self.line();
        self
    }
}

/// What is left of a text when all that is not printed stands as it is written in Rust and JSON,
/// and what is too long is cut.
fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if line.len() > BYTES_MAX {
            line += "...";
            break;
        }
        // Of what is printed it escapes these alone.
        match character {
            '"' | '\'' | '\\' => line.push(character),
            other => line.extend(other.escape_debug()),
        }
    }
    line
}

/// The way to the thread that writes.
static LANE: OnceLock<Lane> = OnceLock::new();

struct Lane {
    level: Level,
    queue: SyncSender<Waiting>,
    /// Since there was no room for them.
    lost: &'static AtomicU64,
    /// Whether lines are for people.
    is_text: bool,
}

enum Waiting {
    Event(SystemTime, Box<Event>),
    /// All before it is written.
    Finish(SyncSender<()>),
}

impl Lane {
    fn take(&self, event: Event) {
        if self.queue.try_send(Waiting::Event(SystemTime::now(), Box::new(event))).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// From here on events of this level and graver ones go through a lane. Without the thread they are
/// written at once.
pub(crate) fn start(format: Format, level: Level) {
    static LOST: AtomicU64 = AtomicU64::new(0);
    let sink = sink::Sink::open(format);
    let is_text = sink.is_text();
    let (queue, coming) = mpsc::sync_channel(WAITING_MAX);
    let writing = std::thread::Builder::new().name("log".to_owned());
    match writing.spawn(move || write(&sink, &coming, &LOST)) {
        Ok(_) => drop(LANE.set(Lane { level, queue, lost: &LOST, is_text })),
        Err(error) => Event::warn(format!("no thread for the log: {error}")).tell(),
    }
}

fn write(sink: &sink::Sink, coming: &Receiver<Waiting>, lost: &AtomicU64) {
    sink.with(|| {
        for waiting in coming {
            match waiting {
                Waiting::Event(at, event) => sink.write(at, &event),
                Waiting::Finish(done) => drop(done.try_send(())),
            }
            match lost.swap(0, Relaxed) {
                0 => {}
                count => {
                    let lines = Count(count, "line");
                    let words = format!("lost {lines} of the log: nobody took what is logged");
                    sink.write(SystemTime::now(), &Event::warn(words));
                }
            }
        }
    });
}

/// Whether the report of how a command ended is for people: a journal and JSON get an event.
pub(crate) fn is_for_people() -> bool {
    LANE.get().is_none_or(|lane| lane.is_text)
}

/// Waits, not for long, until all that was told is written.
fn finish() -> bool {
    let Some(lane) = LANE.get() else { return true };
    let (done, is_done) = mpsc::sync_channel(1);
    lane.queue.try_send(Waiting::Finish(done)).is_ok() && is_done.recv_timeout(LAST_WORDS).is_ok()
}

/// The end of the command that failed so: people read the report, a journal an event. The last
/// lines are written, unless nobody takes them.
pub(crate) fn end(done: &Result<(), miette::Report>) {
    let report = done.as_ref().err();
    if let Some(report) = report.filter(|_| !is_for_people()) {
        let help = report.help().map(|help| format!(" ({help})")).unwrap_or_default();
        Event::error(format!("{report}{help}")).tell();
    }
    if finish()
        && let Some(report) = report.filter(|_| is_for_people())
    {
        let _ = writeln!(std::io::stderr().lock(), "Error: {report:?}");
    }
}

/// A server with a broken part would serve wrong answers or none: it ends, with a message, and is
/// started again, whether or not somebody reads the message.
pub(crate) fn abort_on_panic() {
    let message = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let end = || {
            std::thread::sleep(2 * LAST_WORDS);
            std::process::abort();
        };
        let is_bounded = std::thread::Builder::new().spawn(end).is_ok();
        finish();
        if is_bounded {
            message(panic);
        }
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_call_themselves_ends_no_line_and_moves_no_cursor() {
        let name = "nqn.x\n2026 ERROR all is lost\r\u{1b}[2J\u{9b}1m\u{202e}\u{2028}\0 \"ü\\ 漢\"";
        let event = Event::warn(format!("host {name} was refused")).host(name).clean();
        let clean =
            "nqn.x\\n2026 ERROR all is lost\\r\\u{1b}[2J\\u{9b}1m\\u{202e}\\u{2028}\\0 \"ü\\ 漢\"";
        assert_eq!(event.words, format!("host {clean} was refused"));
        assert_eq!(event.fields.host.as_deref(), Some(clean));
    }

    #[test]
    fn a_line_is_bounded_and_says_how_many_were_left_out() {
        let event = Event::info("x".repeat(1 << 20)).and_more(7);
        let line = event.line();
        assert!(line.len() < BYTES_MAX + 100, "{}", line.len());
        assert!(line.ends_with("x... (7 more like it were not shown)"), "{line}");
    }

    #[test]
    fn a_lane_that_nobody_empties_is_bounded_and_counts_what_it_left_out() {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let (queue, coming) = mpsc::sync_channel(WAITING_MAX);
        let lane = Lane { level: Level::Info, queue, lost: &LOST, is_text: true };
        for _ in 0..WAITING_MAX + 9 {
            lane.take(Event::info("again"));
        }
        assert_eq!(LOST.load(Relaxed), 9);
        assert_eq!(coming.try_iter().count(), WAITING_MAX);
    }
}
