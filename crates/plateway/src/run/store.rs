//! What initiators change and a restart must not: config strings and MAC masks of AoE exports,
//! reservations of volumes, states of groups of listeners.
//!
//! A file for each value, a line of text below a line that says what it is: `aoe/UUID-SHELF.SLOT`,
//! `reservations/UUID` and `paths` in the state directory; a value that says nothing has none. A file is
//! replaced as a whole (`state`). A file that is not understood is left alone, and its export or
//! volume is refused until somebody has looked at it: a mask or reservation that is forgotten would
//! let in whom it kept out.
//!
//! ```text
//!   shard --News::Store--> mail thread --channel--> this thread: write, sync
//!     --Mail::Stored--> shard, which then answers the initiator
//! ```
//!
//! A thread of its own does it, which waits for nothing but the disk of the directory: neither the
//! mail nor an order of the control thread ever waits for it, and while the control thread waits
//! for a shard, the shard may wait for this. Errors are logged once for each file until it can be
//! written again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use block::ShardId;
use reactor::Handle;
use shard::{Mail, StoreKey, StoredValue};
use uuid::Uuid;

use super::error::RunError;
use super::state::StateDirectory;
use super::{Running, identity};
use crate::config::volume::VolumeConfig;
use crate::log::Event;
use crate::protocols::stored_text;

/// Where a value is stored, and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    at: At,
    what: String,
}

#[derive(Clone, Debug)]
enum At {
    File(StateDirectory, PathBuf),
    /// Of volumes that have another identity after a restart: as long as the process, so that an
    /// export may move to other interfaces.
    Memory(Arc<Mutex<Option<String>>>),
}

impl Running {
    pub(crate) fn store(&self) -> &Store {
        self.shards.store()
    }

    /// What was stored of an export of a volume, and is stored there under this key from now on.
    pub(crate) fn stored_of_export<T: FromStr<Err: Display> + Default>(
        &self,
        volume: &str,
        key: StoreKey,
        place: Place,
    ) -> Result<T, RunError> {
        self.stored(&self.volume(volume)?.config, key, place)
    }

    /// The same of a volume that is about to be added. What has another identity after a restart is
    /// kept in memory.
    pub(super) fn stored<T: FromStr<Err: Display> + Default>(
        &self,
        volume: &VolumeConfig,
        key: StoreKey,
        mut place: Place,
    ) -> Result<T, RunError> {
        if !self.is_lasting(volume) {
            self.store().keep_in_memory(&mut place);
        }
        let stored = place.load()?;
        self.store().put(key, place)?;
        Ok(stored)
    }

    /// Whether a volume has the same identity after a restart.
    fn is_lasting(&self, config: &VolumeConfig) -> bool {
        let is_known = |disk: &String| {
            let disk = self.disks.get(disk);
            disk.is_some_and(|disk| identity::backing(&disk.config.uri).is_some())
        };
        config.uuid.is_some() || config.layout.disks().iter().all(is_known)
    }
}

impl At {
    fn is(&self, other: &At) -> bool {
        match (self, other) {
            (At::File(state, name), At::File(other, same)) => {
                (state.path(), name) == (other.path(), same)
            }
            (At::Memory(kept), At::Memory(other)) => Arc::ptr_eq(kept, other),
            _ => false,
        }
    }
}

impl Place {
    /// In a file of the state directory; `what` is that of which volume.
    pub(crate) fn new(state: StateDirectory, file: String, what: String) -> Place {
        Place { at: At::File(state, file.into()), what }
    }

    /// That of the reservation of a volume.
    pub(super) fn of_reservation(state: StateDirectory, volume: &str, uuid: Uuid) -> Place {
        let what = format!("reservation of volume {volume}");
        Place::new(state, format!("reservations/{uuid}"), what)
    }

    /// That of the states of groups of listeners.
    pub(super) fn of_paths(state: StateDirectory) -> Place {
        Place::new(state, "paths".to_owned(), "states of groups of listeners".to_owned())
    }

    /// What is stored; the default, where there is nothing.
    pub(crate) fn load<T: FromStr<Err: Display> + Default>(&self) -> Result<T, RunError> {
        let fail = |doing: &str, seen: String| {
            let place =
                self.path().map_or_else(String::new, |path| format!("{}: ", path.display()));
            RunError::new(format!("cannot {doing} the {}: {place}{seen}", self.what))
                .help("it is left as it is; mend it, or move it away to begin without it")
        };
        let text = match &self.at {
            At::Memory(kept) => lock(kept).clone(),
            At::File(state, name) => {
                state.read(name).map_err(|error| fail("read", error.to_string()))?
            }
        };
        let Some(text) = text else { return Ok(T::default()) };
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        match (lines.next(), lines.next()) {
            (Some(line), None) => {
                line.parse().map_err(|error: T::Err| fail("understand", error.to_string()))
            }
            _ => Err(fail("understand", "expected one line".to_owned())),
        }
    }

    /// Stores a value durably; `None` says nothing.
    fn store(&self, value: Option<String>) -> io::Result<()> {
        match (&self.at, value) {
            (At::Memory(kept), value) => *lock(kept) = value,
            // Values of one key come one after the other, and no two servers have one volume.
            (At::File(state, name), Some(value)) => {
                state
                    .replace(name, &format!("# The {}, kept by plateway.\n{value}\n", self.what))?;
            }
            (At::File(state, name), None) => state.remove(name)?,
        }
        Ok(())
    }

    fn path(&self) -> Option<PathBuf> {
        match &self.at {
            At::File(state, name) => Some(state.path().join(name)),
            At::Memory(_) => None,
        }
    }
}

/// A value that a shard wants to be durable.
#[derive(Debug)]
pub(super) struct Job {
    /// The shard that waits.
    pub(super) from: ShardId,
    /// Which value.
    pub(super) key: StoreKey,
    /// Which version of it.
    pub(super) version: u64,
    pub(super) value: StoredValue,
}

#[derive(Debug, Default)]
struct Places {
    /// What is kept in memory alone, by the file that it would have.
    memory: BTreeMap<PathBuf, Arc<Mutex<Option<String>>>>,
    known: Vec<(StoreKey, Place)>,
}

/// The thread that stores, and what it knows of exports.
#[derive(Debug)]
pub(crate) struct Store {
    places: Arc<Mutex<Places>>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Begins to store what comes through the channel, until all of its senders are gone.
    pub(super) fn start(handle: Arc<Handle<Mail>>) -> io::Result<(Store, Sender<Job>)> {
        let (jobs, work) = mpsc::channel();
        let places: Arc<Mutex<Places>> = Arc::default();
        let known = places.clone();
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || store(&handle, &known, &work))?;
        Ok((Store { places, thread: Some(thread) }, jobs))
    }

    /// What would be in a file lasts only as long as the process.
    fn keep_in_memory(&self, place: &mut Place) {
        if let At::File(_, file) = &place.at {
            let kept = lock(&self.places).memory.entry(file.clone()).or_default().clone();
            place.at = At::Memory(kept);
        }
    }

    /// From now on this value is stored there, and no other: two would undo each other's changes.
    pub(super) fn put(&self, key: StoreKey, place: Place) -> Result<(), RunError> {
        let mut places = lock(&self.places);
        if places.known.iter().any(|(other, known)| *other != key && known.at.is(&place.at)) {
            return Err(RunError::new(format!("the {} has an owner already", place.what)));
        }
        places.known.retain(|(other, _)| *other != key);
        places.known.push((key, place));
        Ok(())
    }

    /// Nothing changes this value any more.
    pub(crate) fn forget(&self, key: StoreKey) {
        lock(&self.places).known.retain(|(other, _)| *other != key);
    }

    /// Waits for the end of the thread.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn store(handle: &Handle<Mail>, places: &Mutex<Places>, work: &Receiver<Job>) {
    let mut complained: BTreeSet<PathBuf> = BTreeSet::new();
    for Job { from, key, version, value } in work {
        let known = |(other, _): &&(StoreKey, Place)| *other == key;
        let place = lock(places).known.iter().find(known).map(|(_, place)| place.clone());
        let stored = place.is_some_and(|place| match place.store(stored_text(&value)) {
            Ok(()) => {
                if let Some(path) = place.path() {
                    complained.remove(&path);
                }
                true
            }
            Err(error) => {
                let path = place.path().unwrap_or_default();
                if complained.insert(path.clone()) {
                    let (what, path) = (&place.what, path.display());
                    let words = format!(
                        "cannot store the {what}: {path}: {error}; the change is not made, and whoever asked for it is told so"
                    );
                    Event::error(words).tell();
                }
                false
            }
        });
        handle.send(from, Mail::Stored { key, version, stored });
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ::aoe::Control;
    use reservation::Reservation;
    use wire::ethernet::MacAddress;

    use super::*;

    fn control() -> Control {
        Control::with(b"hello", &[MacAddress([2, 0, 0, 0, 0, 1])]).unwrap()
    }

    fn place(state: &StateDirectory) -> Place {
        let what = "config string and MAC mask of volume v0 at 7.0";
        Place::new(state.clone(), "aoe/7-7.0".to_owned(), what.to_owned())
    }

    #[test]
    fn what_is_stored_is_loaded_and_what_says_nothing_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(&directory.path().join("a/b"));
        let place = place(&state);
        assert_eq!(place.load::<Control>().unwrap(), Control::default());
        place.store(stored_text(&StoredValue::AoeControl(control()))).unwrap();
        assert_eq!(place.load::<Control>().unwrap(), control());
        place.store(stored_text(&StoredValue::AoeControl(Control::default()))).unwrap();
        assert_eq!(place.load::<Control>().unwrap(), Control::default());
        assert_eq!(fs::read_dir(state.path().join("aoe")).unwrap().count(), 0);
        // Twice is once.
        place.store(None).unwrap();
        let reservation = Place::of_reservation(state, "v0", Uuid::nil());
        assert!(reservation.load::<Reservation>().unwrap().is_free());
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(&StateDirectory::new(directory.path()));
        place.store(stored_text(&StoredValue::AoeControl(control()))).unwrap();
        let path = place.path().unwrap();
        for damaged in
            ["", "config zz mask\n", "# only a remark\n", "config - mask\nconfig - mask\n"]
        {
            fs::write(&path, damaged).unwrap();
            let error = place.load::<Control>().unwrap_err().line();
            assert!(
                error.contains(
                    "cannot understand the config string and MAC mask of volume v0 at 7.0: "
                ),
                "{error}"
            );
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn a_value_has_one_owner() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store { places: Arc::default(), thread: None };
        let place = || place(&StateDirectory::new(directory.path()));
        let in_memory = || {
            let mut place = place();
            store.keep_in_memory(&mut place);
            place
        };
        let [first, second] = [0, 1].map(|id| StoreKey::AoeControl(::aoe::ExportId(id)));
        for place in [&place as &dyn Fn() -> Place, &in_memory] {
            store.put(first, place()).unwrap();
            // It may be told again where it is.
            store.put(first, place()).unwrap();
            let error = store.put(second, place()).unwrap_err().line();
            assert!(error.contains("volume v0 at 7.0 has an owner already"), "{error}");
            store.forget(first);
            store.put(second, place()).unwrap();
            store.forget(second);
        }
    }

    #[test]
    fn memory_keeps_what_no_file_could_keep_longer() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store { places: Arc::default(), thread: None };
        let state = StateDirectory::new(directory.path());
        let kept = || {
            let mut place = place(&state);
            store.keep_in_memory(&mut place);
            place
        };
        kept().store(stored_text(&StoredValue::AoeControl(control()))).unwrap();
        assert_eq!(kept().load::<Control>().unwrap(), control());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
