//! Who has which file: which are there, which are open, which are being made or going, and how long each is.
//!
//! All hands share one. Of a choice every file that may be met is as likely. As in filebench a file that somebody has
//! open is deleted by nobody, and one that is being made is met by nobody; here one that is going is not, either. Two
//! may append to a file at once: each has a part of its own, and whoever reads meanwhile reads up to where all parts
//! are written. Order of calls: `open` or a `begin_*`, what it says is done, then its `end_*` with the same file. Units:
//! bytes. Errors: `None` where no file may be met at present; a set of sixteen files a thread always has one.

use block::Random;

use super::FileSet;

/// A file.
#[derive(Clone, Debug)]
struct Entry {
    state: State,
    /// How many hands have it open.
    open: u32,
    /// How long it will be once all that was begun is written.
    length: u64,
    /// Up to where it is written.
    written: u64,
    /// How many are writing to it.
    writing: u32,
    /// How often it was made since the set was.
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// Between two states: one hand makes or deletes it.
    Between,
    There,
}

/// The files of a set, as they are.
#[derive(Debug)]
pub struct Register {
    set: FileSet,
    entries: Vec<Entry>,
    /// Those that are there, and those that are not, in no order, and where each lies among them.
    there: Vec<u32>,
    absent: Vec<u32>,
    place: Vec<usize>,
    /// How long a web server's log is.
    log: u64,
    /// Of each writer of a database, what it waits for.
    waiting: Vec<Waiting>,
    /// Whether something changed for which a hand may wait.
    wakes: bool,
}

/// A writer of a database, which writes once so many reads were made.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Reads that were made since, as it counts them.
    reads: u32,
    /// Whether it writes.
    is_busy: bool,
    /// For how many reads it waits, and how many there may be at most while it writes.
    due: u32,
    ahead_max: u32,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub offset: u64,
    pub bytes: u64,
}

impl Register {
    /// Of a set that was just made.
    pub fn new(set: FileSet) -> Register {
        let (count, there) = (set.count(), set.there());
        let entry = |file: u32| {
            let is_there = file < there;
            let length = if is_there { set.length(file) } else { 0 };
            Entry {
                state: if is_there { State::There } else { State::Absent },
                open: 0,
                length,
                written: length,
                writing: 0,
                generation: 0,
            }
        };
        let place = |file: u32| if file < there { file } else { file - there } as usize;
        Register {
            entries: (0..count).map(entry).collect(),
            there: (0..there).collect(),
            absent: (there..count).collect(),
            place: (0..count).map(place).collect(),
            log: 0,
            waiting: Vec::new(),
            wakes: false,
            set,
        }
    }

    pub fn set(&self) -> &FileSet {
        &self.set
    }

    /// How often a file was made since the set was.
    pub fn generation(&self, file: u32) -> u32 {
        self.entries[file as usize].generation
    }

    fn entry(&mut self, file: u32) -> &mut Entry {
        &mut self.entries[file as usize]
    }

    /// One that is there, which is open from now on.
    pub(super) fn open(&mut self, random: &mut Random) -> Option<u32> {
        let file = self.meet(random)?;
        self.entry(file).open += 1;
        Some(file)
    }

    pub(super) fn end_open(&mut self, file: u32) {
        let entry = self.entry(file);
        entry.open = entry.open.checked_sub(1).expect("a file that is closed was open");
    }

    /// One that is there, whoever has it open.
    fn meet(&self, random: &mut Random) -> Option<u32> {
        let count = self.there.len() as u64;
        (count > 0).then(|| self.there[random.below(count) as usize])
    }

    /// One that is not there, to be made and open.
    pub(super) fn begin_making(&mut self, random: &mut Random) -> Option<u32> {
        let count = self.absent.len() as u64;
        let file = (count > 0).then(|| self.absent[random.below(count) as usize])?;
        remove(&mut self.absent, &mut self.place, file);
        let entry = self.entry(file);
        (entry.state, entry.open, entry.length, entry.written) = (State::Between, 1, 0, 0);
        entry.generation += 1;
        Some(file)
    }

    /// It was closed by who made it, and is met from now on.
    pub(super) fn end_making(&mut self, file: u32) {
        let entry = self.entry(file);
        (entry.state, entry.open) = (State::There, 0);
        insert(&mut self.there, &mut self.place, file);
        self.wakes = true;
    }

    /// Whether it is being made.
    pub(super) fn is_made(&self, file: u32) -> bool {
        self.entries[file as usize].state == State::Between
    }

    /// One that nobody has open, which is met by nobody from now on.
    pub(super) fn begin_deleting(&mut self, random: &mut Random) -> Option<u32> {
        let is_free = |file: u32| self.entries[file as usize].open == 0;
        // Most are: so a few draws find one, each as likely. If not, the next one behind a place.
        let drawn = (0..DRAWS).find_map(|_| self.meet(random).filter(|file| is_free(*file)));
        let file = drawn.or_else(|| {
            let from = random.below(self.there.len().max(1) as u64) as usize;
            let (before, behind) = self.there.split_at(from.min(self.there.len()));
            behind.iter().chain(before).copied().find(|file| is_free(*file))
        })?;
        remove(&mut self.there, &mut self.place, file);
        self.entry(file).state = State::Between;
        Some(file)
    }

    pub(super) fn end_deleting(&mut self, file: u32) {
        self.entry(file).state = State::Absent;
        insert(&mut self.absent, &mut self.place, file);
        self.wakes = true;
    }

    /// A part at the end of a file.
    pub(super) fn begin_appending(&mut self, file: u32, bytes: u64) -> Part {
        let entry = self.entry(file);
        let part = Part { offset: entry.length, bytes };
        entry.length += bytes;
        entry.writing += 1;
        part
    }

    pub(super) fn end_appending(&mut self, file: u32) {
        let entry = self.entry(file);
        entry.writing = entry.writing.checked_sub(1).expect("what was written was begun");
        if entry.writing == 0 {
            entry.written = entry.length;
        }
    }

    /// Up to where a file is written.
    pub(super) fn written(&self, file: u32) -> u64 {
        self.entries[file as usize].written
    }

    /// A part at the end of the log, and whether the log begins anew for it.
    pub(super) fn append_to_log(&mut self, bytes: u64) -> (Part, bool) {
        let is_full = self.log + bytes > self.set.log_max();
        if is_full {
            self.log = 0;
        }
        let part = Part { offset: self.log, bytes };
        self.log += bytes;
        (part, is_full)
    }

    /// A writer of a database that waits for so many reads; its number.
    pub(super) fn add_waiting(&mut self, due: u32, ahead_max: u32) -> usize {
        self.waiting.push(Waiting { reads: 0, is_busy: false, due, ahead_max });
        self.waiting.len() - 1
    }

    /// Takes note of a read for all writers; false where readers are too far ahead of one that writes, and wait.
    pub(super) fn note_read(&mut self) -> bool {
        let is_ahead = |one: &Waiting| one.is_busy && one.reads >= one.ahead_max;
        if self.waiting.iter().any(is_ahead) {
            return false;
        }
        for one in &mut self.waiting {
            one.reads += 1;
            self.wakes |= one.reads == one.due;
        }
        true
    }

    /// Whether so many reads were made that a writer writes; it is busy until it asks again.
    pub(super) fn is_due(&mut self, writer: usize) -> bool {
        let one = &mut self.waiting[writer];
        one.is_busy = one.reads >= one.due;
        if one.is_busy {
            one.reads -= one.due;
        }
        self.wakes = true;
        one.is_busy
    }

    /// Whether since the last call something came for which hands may wait, all of which look again then.
    pub fn takes_wakes(&mut self) -> bool {
        std::mem::take(&mut self.wakes)
    }

    /// How many files are there, and how many somebody has open.
    #[cfg(test)]
    pub(super) fn seen(&self) -> (usize, usize) {
        let open = self.entries.iter().filter(|entry| entry.open > 0);
        (self.there.len(), open.count())
    }
}

/// Draws until one looks for a file in order.
const DRAWS: usize = 8;

fn remove(list: &mut Vec<u32>, place: &mut [usize], file: u32) {
    let at = place[file as usize];
    list.swap_remove(at);
    if let Some(moved) = list.get(at) {
        place[*moved as usize] = at;
    }
}

fn insert(list: &mut Vec<u32>, place: &mut [usize], file: u32) {
    place[file as usize] = list.len();
    list.push(file);
}
