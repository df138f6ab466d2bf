//! What initiators change and a restart must not: config strings and MAC masks of AoE exports, reservations of volumes.
//!
//! A file for each value, a line of text below a line that says what it is: `aoe/UUID-SHELF.SLOT` and `reservations/UUID` in the state directory; a
//! value that says nothing has none. A file is replaced as a whole (`state`). A file that is not understood is left alone, and its export is refused until somebody has looked at it: a
//! mask or reservation that is forgotten would let in whom it kept out.
//!
//! ```text
//!   shard --News::Store--> mail thread --channel--> this thread: write, sync --Mail::Stored--> shard, which then answers the initiator
//! ```
//!
//! A thread of its own does it, which waits for nothing but the disk of the directory: neither the mail nor an order of the control thread ever waits for it,
//! and while the control thread waits for a shard, the shard may wait for this. Errors are logged once for each file until it can be written again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::{fs, io};

use ::aoe::ExportId;
use block::{ShardId, VolumeId};
use reactor::Handle;
use shard::{Mail, StoreKey, StoredValue};
use uuid::Uuid;
use wire::aoe::Address;

use super::error::RunError;
use super::news::log;
use super::state::StateDirectory;

/// Where a value is stored, and what it is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    at: At,
    what: String,
}

#[derive(Clone, Debug)]
enum At {
    File(StateDirectory, PathBuf),
    /// Of volumes that have another identity after a restart: as long as the process, so that an export may move to other interfaces.
    Memory(Arc<Mutex<Option<String>>>),
}

impl Place {
    /// The config string and mask of the volume at an address. The same on whatever links.
    pub(super) fn of_control(
        state: &StateDirectory,
        uuid: &Uuid,
        address: Address,
        volume: &str,
    ) -> Place {
        let what = format!("config string and MAC mask of volume {volume} at {address}");
        let name = Path::new("aoe").join(format!("{uuid}-{address}"));
        Place { at: At::File(state.clone(), name), what }
    }

    /// The reservation of a volume.
    pub(super) fn of_reservation(state: &StateDirectory, uuid: &Uuid, volume: &str) -> Place {
        let name = Path::new("reservations").join(uuid.to_string());
        Place { at: At::File(state.clone(), name), what: format!("reservation of volume {volume}") }
    }

    /// What is stored; the default, where there is nothing.
    pub(super) fn load<T: FromStr<Err: Display> + Default>(&self) -> Result<T, RunError> {
        let fail = |doing: &str, seen: String| {
            let place =
                self.path().map_or_else(String::new, |path| format!("{}: ", path.display()));
            RunError::new(format!("cannot {doing} the {}: {place}{seen}", self.what))
                .help("it is left as it is; mend it, or move it away to begin without it")
        };
        let text = match &self.at {
            At::Memory(kept) => lock(kept).clone(),
            At::File(state, name) => match fs::read_to_string(state.path().join(name)) {
                Ok(text) => Some(text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(fail("read", error.to_string())),
            },
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
    /// The value.
    pub(super) value: StoredValue,
}

#[derive(Debug, Default)]
struct Places {
    /// What is kept in memory alone, by the file that it would have.
    memory: BTreeMap<PathBuf, Arc<Mutex<Option<String>>>>,
    controls: BTreeMap<ExportId, (Place, VolumeId)>,
    reservations: BTreeMap<VolumeId, Place>,
}

impl Places {
    fn find(&self, key: StoreKey) -> Option<Place> {
        match key {
            StoreKey::Control(export) => self.controls.get(&export).map(|(place, _)| place.clone()),
            StoreKey::Reservation(volume) => self.reservations.get(&volume).cloned(),
        }
    }
}

/// The thread that stores, and what it knows of exports.
#[derive(Debug)]
pub(super) struct Archive {
    places: Arc<Mutex<Places>>,
    thread: Option<JoinHandle<()>>,
}

impl Archive {
    /// Begins to store what comes through the channel, until all of its senders are gone.
    pub(super) fn start(handle: Arc<Handle<Mail>>) -> io::Result<(Archive, Sender<Job>)> {
        let (jobs, work) = mpsc::channel();
        let places: Arc<Mutex<Places>> = Arc::default();
        let known = places.clone();
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || store(&handle, &known, &work))?;
        Ok((Archive { places, thread: Some(thread) }, jobs))
    }

    /// The same value, kept only as long as the process.
    pub(super) fn in_memory(&self, place: Place) -> Place {
        let Some(path) = place.path() else { return place };
        let kept = lock(&self.places).memory.entry(path).or_default().clone();
        Place { at: At::Memory(kept), what: place.what }
    }

    /// An export is about to be added, and the values of it and of its volume are stored there.
    pub(super) fn put(
        &self,
        export: ExportId,
        control: Place,
        volume: VolumeId,
        reservation: Place,
    ) {
        let mut places = lock(&self.places);
        places.controls.insert(export, (control, volume));
        places.reservations.insert(volume, reservation);
    }

    /// An export is gone, and with the last one of a volume its reservation is nothing that could change.
    pub(super) fn forget(&self, export: ExportId) {
        let mut places = lock(&self.places);
        let Some((_, volume)) = places.controls.remove(&export) else { return };
        if !places.controls.values().any(|(_, other)| *other == volume) {
            places.reservations.remove(&volume);
        }
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
        let place = lock(places).find(key);
        let stored = place.is_some_and(|place| match place.store(text(&value)) {
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
                    log(&format!(
                        "cannot store the {what}: {path}: {error}; initiators are refused the change"
                    ));
                }
                false
            }
        });
        handle.send(from, Mail::Stored { key, version, stored });
    }
}

/// A value as a line; none if it says nothing.
fn text(value: &StoredValue) -> Option<String> {
    match value {
        StoredValue::Control(control) => {
            let is_empty = control.config().is_empty() && control.mask().is_empty();
            (!is_empty).then(|| control.to_string())
        }
        StoredValue::Reservation(reservation) => {
            (!reservation.is_free()).then(|| reservation.to_string())
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use ::aoe::Control;
    use volume::Reservation;
    use wire::ethernet::MacAddress;

    use super::*;

    fn control() -> Control {
        Control::with(b"hello", &[MacAddress([2, 0, 0, 0, 0, 1])]).unwrap()
    }

    const UUID: Uuid = Uuid::from_bytes([7; 16]);

    fn place(state: &StateDirectory) -> Place {
        Place::of_control(state, &UUID, Address::new(7, 0), "v0")
    }

    #[test]
    fn what_is_stored_is_loaded_and_what_says_nothing_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(&directory.path().join("a/b"));
        let place = place(&state);
        assert_eq!(place.load::<Control>().unwrap(), Control::default());
        place.store(text(&StoredValue::Control(control()))).unwrap();
        assert_eq!(place.load::<Control>().unwrap(), control());
        place.store(text(&StoredValue::Control(Control::default()))).unwrap();
        assert_eq!(place.load::<Control>().unwrap(), Control::default());
        assert_eq!(fs::read_dir(state.path().join("aoe")).unwrap().count(), 0);
        // Twice is once.
        place.store(None).unwrap();
        let reservation = Place::of_reservation(&state, &UUID, "v0");
        assert!(reservation.load::<Reservation>().unwrap().is_free());
    }

    #[test]
    fn the_file_of_another_address_or_volume_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let state = &StateDirectory::new(directory.path());
        place(state).store(text(&StoredValue::Control(control()))).unwrap();
        for other in [
            Place::of_control(state, &UUID, Address::new(7, 1), "v0"),
            Place::of_control(state, &Uuid::from_bytes([8; 16]), Address::new(7, 0), "v0"),
        ] {
            assert_eq!(other.load::<Control>().unwrap(), Control::default());
        }
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(&StateDirectory::new(directory.path()));
        place.store(text(&StoredValue::Control(control()))).unwrap();
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
    fn memory_keeps_what_no_file_could_keep_longer() {
        let directory = tempfile::tempdir().unwrap();
        let places = Places::default();
        let archive = Archive { places: Arc::new(Mutex::new(places)), thread: None };
        let kept = || archive.in_memory(place(&StateDirectory::new(directory.path())));
        kept().store(text(&StoredValue::Control(control()))).unwrap();
        assert_eq!(kept().load::<Control>().unwrap(), control());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
