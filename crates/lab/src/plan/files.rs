//! Files of a plan: a system that is a folder, or on which a file system is made; what of a load only
//! their cells have, loads of many files among it, and what their clients cannot do.
//!
//! A folder is of the near end alone. What is mounted there is seen by whoever runs the plan; here it
//! is a path, and what holds its blocks is said by the plan. A file system is made on any other system's
//! disk, which stays what it is. Units: bytes. Errors: the mistakes of a
//! plan, each at its place.

use toml::Spanned;

use super::axes::{SIZE_MAX, Written, pick};
use super::check::{Checker, Table};
use super::low::LowLoad;
use super::many::Files;
use super::model::{Client, Folder, Load, Means, Pace, System};
use super::reader::Low;
use super::words::{self, Bytes};
use crate::mistake::{Mistake, Span};

/// What is said of requests, which a load of many files has none of its own of.
const OF_REQUESTS: [&str; 9] =
    ["block-size", "pattern", "read-share", "depth", "rate", "arrivals", "sync", "fsync", "cache"];

/// What a client without a limit of its own starts with.
pub(super) const MEMORY_MIN: u64 = 16 << 20;

/// The values of `cache` and of `client-memory`; `None` if one is wrong, `Some(None)` if there are none.
type OfFiles = (Option<Option<Vec<bool>>>, Option<Option<Vec<Option<u64>>>>);

impl Checker<'_> {
    /// The folder of a system, and who works in it.
    pub(super) fn folder(
        &mut self,
        written: &Spanned<String>,
        client: &Low<String>,
        file_system: &Low<String>,
    ) -> Option<Folder> {
        let client = self.client(client)?;
        if let Some(kind) = file_system {
            let message = "file-system: expected a disk that the lab makes it on, seen a folder, where one is mounted";
            self.push(Mistake::new(kind.span(), message).help("leave it out"));
            return None;
        }
        let path = written.get_ref();
        if !path.starts_with('/') || path.contains('\0') {
            let message =
                format!("folder: expected a path from / on, such as \"/mnt/x\", seen {path:?}");
            self.push(Mistake::new(written.span(), message));
            return None;
        }
        Some(Folder { path: path.clone(), client, span: written.span() })
    }

    /// Whether the client of one of these systems works on a file, or may do so.
    pub(super) fn has_file(&self, systems: &[usize]) -> bool {
        systems.iter().any(|at| {
            let system = self.systems[*at].thing.as_ref();
            system.is_none_or(|system| system.file_client().is_some())
        })
    }

    /// What a load has for the cells of files: refused where a table has none, and not taken from
    /// `[load]` there.
    pub(super) fn of_files(&mut self, own: &LowLoad, usual: &LowLoad, has_file: bool) -> OfFiles {
        if !has_file {
            for Written { key, span, .. } in own.written() {
                if ["client-memory", "cache", "files"].contains(&key) {
                    let message = format!(
                        "{key}: expected a system with a folder or a file-system, seen disks alone"
                    );
                    let help = match key {
                        "files" => "add file-system = \"ext4\" to it, or leave it out",
                        _ => "leave it out: disks have no page cache",
                    };
                    self.push(Mistake::new(span, message).help(help));
                }
            }
            return (Some(None), Some(None));
        }
        let caches = self.distinct(pick(&own.cache, &usual.cache), "cache", |cache| Some(*cache));
        let memories =
            self.axis(pick(&own.client_memory, &usual.client_memory), "client-memory", |text| {
                words::size(text, MEMORY_MIN..=SIZE_MAX).map(Some)
            });
        (caches, memories)
    }

    /// Whose files a table's clients work on, each of them: `None` if that is wrong, nobody's where the client works
    /// on one file, or on none.
    pub(super) fn files(
        &mut self,
        own: &LowLoad,
        usual: &LowLoad,
        has_file: bool,
    ) -> Option<Vec<Option<Files>>> {
        let Some(low) = pick(&own.files, &usual.files).filter(|_| has_file) else {
            return Some(vec![None]);
        };
        let mut all = Vec::new();
        for word in &low.get_ref().0 {
            all.push(Some(self.word(word, "files", Files::WORDS)?));
        }
        self.distinct(Some(low), "files", |_| Some(()))?;
        self.refuse_of_requests(own, "a load of many files")?;
        Some(all)
    }

    /// `None` where a table says something of requests, which is refused.
    pub(super) fn refuse_of_requests(&mut self, own: &LowLoad, what: &str) -> Option<()> {
        let written = own.written();
        let wrong: Vec<&Written> =
            written.iter().filter(|one| OF_REQUESTS.contains(&one.key)).collect();
        for Written { key, span, .. } in &wrong {
            let message =
                format!("{key}: expected none with {what}, whose operations are its own, seen one");
            let help = "leave it out; jobs, size and client-memory are of both";
            self.push(Mistake::new(span.clone(), message).help(help));
        }
        wrong.is_empty().then_some(())
    }

    /// Refuses many files for systems of which one has none, or whose client is not ours, and so few of them that
    /// threads would wait for each other's.
    fn many_files(
        &mut self,
        systems: &[usize],
        loads: &[Load],
        table: &Table<'_>,
        own: &LowLoad,
        usual: &LowLoad,
    ) {
        let is_asked = loads.iter().any(|load| load.files.is_some());
        let Some(written) = pick(&own.files, &usual.files).filter(|_| is_asked) else { return };
        let wrong = systems.iter().find_map(|at| {
            let system = self.systems[*at].thing.as_ref()?;
            let name = &system.name;
            match system.file_client() {
                Some(Client::Bench) => None,
                Some(client @ (Client::Fio | Client::Copy)) => {
                    let seen = format!("{name:?}, whose client is {}", client.word());
                    Some((seen, "client = \"bench\""))
                }
                None => Some((
                    format!("{name:?}, which has none"),
                    "add file-system = \"ext4\" to it, or leave it out of systems",
                )),
            }
        });
        if let Some((seen, help)) = wrong {
            let message = format!(
                "files: expected systems with a folder or a file-system, on which this program works, seen {seen}"
            );
            self.push(Mistake::new(written.span(), message).help(help));
            return;
        }
        self.program_of_one(loads, table, own, usual);
        self.server_by_fuse(systems, loads, written.span());
        let few = loads.iter().find_map(|load| {
            let least = load.files?.bytes_min(load.jobs);
            load.size.filter(|size| *size < least).map(|size| (load, size, least))
        });
        if let Some((load, size, least)) = few {
            let (size, least) = (Bytes(size), Bytes(least));
            let word = load.files.map_or("", Files::word);
            let message = format!(
                "size: expected {least} at least, files enough of {word} for {} jobs, seen {size}",
                load.jobs
            );
            let at = pick(&own.size, &usual.size).map_or(table.span.clone(), Spanned::span);
            self.push(Mistake::new(at, message).help("a larger size, or fewer jobs"));
        }
    }

    /// Refuses a PostgreSQL server whose folder the lab shows by FUSE, where permissions are nobody's.
    fn server_by_fuse(&mut self, systems: &[usize], loads: &[Load], span: Span) {
        let mut of = loads.iter().filter_map(|load| load.files);
        if !of.any(|files| files == Files::Pgbench) {
            return;
        }
        let by_fuse = systems.iter().find_map(|at| {
            let system = self.systems[*at].thing.as_ref()?;
            let is_nfs = matches!(system.means, Means::Nfs(_));
            let is_one = is_nfs || system.mounted.as_ref().is_some_and(|mounted| mounted.fuse);
            is_one.then(|| system.name.clone())
        });
        if let Some(name) = by_fuse {
            let message = format!(
                "files: expected systems whose folders keep permissions with pgbench, as its server demands of its own, seen {name:?}, which comes by FUSE"
            );
            self.push(Mistake::new(span, message).help("leave it out of systems"));
        }
    }

    /// Refuses several jobs of a program that is one process, and a size that it cannot be asked for.
    fn program_of_one(
        &mut self,
        loads: &[Load],
        table: &Table<'_>,
        own: &LowLoad,
        usual: &LowLoad,
    ) {
        let of_programs = || {
            let all = loads.iter().filter_map(|load| Some((load, load.files?)));
            all.filter(|(_, files)| files.runs_once())
        };
        if let Some((load, files)) = of_programs().find(|(load, _)| load.jobs > 1) {
            let (jobs, files) = (load.jobs, files.word());
            let message = format!("jobs: expected 1, since {files} is one process, seen {jobs}");
            let at = pick(&own.jobs, &usual.jobs).map_or(table.span.clone(), Spanned::span);
            self.push(Mistake::new(at, message).help("leave it out"));
        }
        let odd = loads.iter().find_map(|load| {
            let files = load.files?;
            load.size.filter(|size| !size.is_multiple_of(files.unit())).zip(Some(files))
        });
        if let Some((size, files)) = odd {
            let (unit, size, files) = (Bytes(files.unit()), Bytes(size), files.word());
            let message = format!("size: expected a multiple of {unit} with {files}, seen {size}");
            let at = pick(&own.size, &usual.size).map_or(table.span.clone(), Spanned::span);
            self.push(Mistake::new(at, message));
        }
    }

    /// Refuses loads of a table's files that have no size, or that their client cannot do.
    pub(super) fn worked_on(
        &mut self,
        systems: &[usize],
        loads: &[Load],
        table: &Table<'_>,
        own: &LowLoad,
        usual: &LowLoad,
    ) {
        let files = systems.iter().filter_map(|at| {
            let system = self.systems[*at].thing.as_ref()?;
            Some((system.name.clone(), system.file_client()?))
        });
        let files: Vec<(String, Client)> = files.collect();
        self.many_files(systems, loads, table, own, usual);
        let Some((name, _)) = files.first() else { return };
        if let Some(written) = pick(&own.client_memory, &usual.client_memory) {
            self.client_memory.get_or_insert(written.span());
        }
        if loads.iter().any(|load| load.size.is_none()) {
            let message = format!(
                "{} has no size, as large as which the file in {name:?} is made",
                table.title
            );
            self.push(Mistake::new(table.span.clone(), message).help("add size = \"1GiB\""));
        }
        if let Some((name, _)) = files.iter().find(|(_, client)| *client == Client::Copy) {
            self.copied(&name.clone(), loads, table, own, usual);
        }
        let Some((name, _)) = files.iter().find(|(_, client)| *client == Client::Fio) else {
            return;
        };
        let is_open = loads.iter().any(|load| matches!(load.pace, Pace::Open { .. }));
        if let Some(rate) = pick(&own.rate, &usual.rate).filter(|_| is_open) {
            let message = format!(
                "rate: expected a depth with {name:?}, since its client is fio, which is asked for closed loops alone, seen a rate"
            );
            let help = "depth = 32 in place of it, or client = \"bench\"";
            self.push(Mistake::new(rate.span(), message).help(help));
        }
        let trims = loads.iter().any(|load| load.pattern.trims());
        if let Some(pattern) = pick(&own.pattern, &usual.pattern).filter(|_| trims) {
            let message = format!(
                "pattern: expected reads and writes with {name:?}, since its client is fio, which trims devices alone, seen trims"
            );
            self.push(Mistake::new(pattern.span(), message).help("client = \"bench\""));
        }
    }

    /// Refuses loads that no copy is.
    fn copied(
        &mut self,
        name: &str,
        loads: &[Load],
        table: &Table<'_>,
        own: &LowLoad,
        usual: &LowLoad,
    ) {
        let is_write =
            |load: &Load| !load.pattern.random && !load.pattern.reads() && !load.pattern.trims();
        let mut wrong = Vec::new();
        if let Some(load) = loads.iter().find(|load| !is_write(load)) {
            wrong.push(("pattern", "write", load.pattern.to_string()));
        }
        wrong.extend(not_one_by_one(loads));
        if let Some(load) = loads.iter().find(|load| load.jobs != 1) {
            wrong.push(("jobs", "1", load.jobs.to_string()));
        }
        if loads.iter().any(|load| !load.cache) {
            wrong.push(("cache", "true", "false".to_owned()));
        }
        if let Some(writes) = loads.iter().find_map(|load| load.fsync) {
            let expected = "none, and sync = true where all of it is synced in the end";
            wrong.push(("fsync", expected, writes.to_string()));
        }
        self.unfit(&format!("{name:?} is copied to"), wrong, &table.span, own, usual);
    }

    /// Tells what of a load does not fit a client: the key, what was expected, and what was seen.
    pub(super) fn unfit(
        &mut self,
        who: &str,
        wrong: Vec<(&'static str, &str, String)>,
        span: &Span,
        own: &LowLoad,
        usual: &LowLoad,
    ) {
        for (key, expected, seen) in wrong {
            let mut written = own.written().into_iter().chain(usual.written());
            let place = written.find(|one| one.key == key).map_or(span.clone(), |one| one.span);
            let message = format!("{key}: {who}: expected {expected}, seen {seen}");
            self.push(Mistake::new(place, message));
        }
    }
}

/// A load that has more than one request on its way, or leaves by the clock.
pub(super) fn not_one_by_one(loads: &[Load]) -> Option<(&'static str, &'static str, String)> {
    let load = loads.iter().find(|load| load.pace != Pace::Closed { depth: 1 })?;
    let key = if matches!(load.pace, Pace::Open { .. }) { "rate" } else { "depth" };
    Some((key, "depth = 1, since one block goes at a time", load.pace.to_string()))
}

/// What is said of a disk in loads, by its key: what a client that knows of none, or of all of it alone, is not asked for.
pub(super) fn said_of_a_disk(loads: &[Load]) -> impl Iterator<Item = (&'static str, String)> {
    let size = loads.iter().find_map(|load| load.size).map(|size| Bytes(size).to_string());
    let sync = loads.iter().any(|load| load.sync).then(|| "true".to_owned());
    let fsync = loads.iter().find_map(|load| load.fsync).map(|writes| writes.to_string());
    let all = [("size", size), ("sync", sync), ("fsync", fsync)];
    all.into_iter().filter_map(|(key, seen)| Some((key, seen?)))
}

/// In what the clients of two systems differ that do not both work on a file.
pub(super) fn client_differs(
    subject: &System,
    reference: &System,
    loads: &[Load],
) -> Option<String> {
    let (file, other) = match (subject.file_client(), reference.file_client()) {
        (Some(_), None) => (&subject.name, &reference.name),
        (None, Some(_)) => (&reference.name, &subject.name),
        _ => return None,
    };
    // Of many files it is said that there are none.
    let loads = loads.iter().filter(|load| load.files.is_none());
    if loads.clone().any(|load| load.cache) {
        return Some(format!(
            "the client of {file:?} works through its page cache, and that of {other:?} has none (cache = false)"
        ));
    }
    let is_bounded = { loads }.any(|load| load.client_memory.is_some());
    is_bounded.then(|| {
        format!("the memory of the client of {file:?} is bounded, and that of {other:?} is not")
    })
}
