//! Which files are open at the client, and what becomes of one that is removed meanwhile.
//!
//! A [`Store`] knows no open files, so a file would be gone with its name, and what waits to be written back with it. As
//! a kernel's NFS client does, the name of one that is open becomes another (`.nfs` and numbers) when it is removed, or
//! replaced by a rename, and goes when the file is closed for the last time. Names are those by which files were seen,
//! until the kernel forgets them: nobody else renames here. Errors: the store's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::store::{Result, Store};

/// A name in a folder.
type Name = (u64, OsString);

/// Files by their numbers.
#[derive(Default)]
pub(super) struct Held(Mutex<Files>);

#[derive(Default)]
struct Files {
    /// All that the kernel knows.
    known: BTreeMap<u64, Known>,
    open: BTreeMap<u64, Open>,
    /// How many names were put aside.
    aside: u64,
}

struct Known {
    /// By how many answers it learned of it, which it gives back.
    answers: u64,
    name: Name,
}

struct Open {
    /// By how many.
    count: u64,
    /// It was removed, and has this name until it is closed.
    aside: Option<Name>,
}

impl Files {
    /// Which file of this name is open.
    fn open_by(&self, folder: u64, name: &OsStr) -> Option<u64> {
        let is_it = |id: &&u64| {
            self.known.get(*id).is_some_and(|Known { name: (in_it, called), .. }| {
                *in_it == folder && called == name
            })
        };
        self.open.keys().find(is_it).copied()
    }
}

impl Held {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer tells the kernel of a file by this name.
    pub(super) fn see(&self, id: u64, folder: u64, name: &OsStr) {
        let name = (folder, name.to_owned());
        let mut files = self.files();
        let answers = files.known.get(&id).map_or(0, |known| known.answers) + 1;
        files.known.insert(id, Known { answers, name });
    }

    /// The kernel has forgotten what so many answers told.
    pub(super) fn forget(&self, id: u64, answers: u64) {
        let mut files = self.files();
        let Some(known) = files.known.get_mut(&id) else { return };
        known.answers = known.answers.saturating_sub(answers);
        if known.answers == 0 {
            files.known.remove(&id);
        }
    }

    pub(super) fn open(&self, id: u64) {
        self.files().open.entry(id).or_insert(Open { count: 0, aside: None }).count += 1;
    }

    /// It is closed once; removed, if that was the last time and it was put aside.
    pub(super) fn close(&self, store: &dyn Store, id: u64) -> Result<()> {
        let aside = {
            let mut files = self.files();
            let Some(open) = files.open.get_mut(&id) else { return Ok(()) };
            open.count -= 1;
            if open.count > 0 {
                return Ok(());
            }
            files.open.remove(&id).and_then(|open| open.aside)
        };
        aside.map_or(Ok(()), |(folder, name)| store.remove(folder, &name))
    }

    /// Removes a name; what is open stays by another one.
    pub(super) fn remove(&self, store: &dyn Store, folder: u64, name: &OsStr) -> Result<()> {
        if self.put_aside(store, folder, name)? { Ok(()) } else { store.remove(folder, name) }
    }

    /// Renames; what is replaced and open stays by another name.
    pub(super) fn rename(
        &self,
        store: &dyn Store,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
    ) -> Result<()> {
        if from != to {
            self.put_aside(store, to.0, to.1)?;
        }
        store.rename(from, to)?;
        let mut files = self.files();
        let old = (from.0, from.1.to_owned());
        if let Some(known) = files.known.values_mut().find(|known| known.name == old) {
            known.name = (to.0, to.1.to_owned());
        }
        Ok(())
    }

    /// Removes what was put aside, by whoever unmounts.
    pub(super) fn end(&self, store: &dyn Store) {
        let open = std::mem::take(&mut self.files().open);
        for (folder, name) in open.into_values().filter_map(|open| open.aside) {
            // Nobody waits for it any more.
            let _ = store.remove(folder, &name);
        }
    }

    /// Gives a name that is to go to another, where its file is open; whether it is.
    fn put_aside(&self, store: &dyn Store, folder: u64, name: &OsStr) -> Result<bool> {
        let mut files = self.files();
        let Some(id) = files.open_by(folder, name) else { return Ok(false) };
        files.aside += 1;
        let other = OsString::from(format!(".nfs{id:016x}{:08x}", files.aside));
        store.rename((folder, name), (folder, &other))?;
        if let Some(known) = files.known.get_mut(&id) {
            known.name = (folder, other.clone());
        }
        if let Some(open) = files.open.get_mut(&id) {
            open.aside = Some((folder, other));
        }
        Ok(true)
    }
}
