//! Files that outlast a power cut: which calls make one so, in which order.
//!
//! A name that people read never leads to half of a file, so a new one is synced under a name of
//! its own first. The rename is one step. The directory is synced last, since until then a power
//! cut may bring the old name back. The calls themselves are [`Files`], so that a test loses all
//! that they did not make last.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What is asked of a file system.
pub(super) trait Files {
    /// A file that was written.
    type File;

    fn is_directory(&self, path: &Path) -> bool;
    /// Makes a directory, for its owner alone.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// What was made, renamed or removed in a directory lasts from now on.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Whether what holds a directory takes no writes, so that nothing in it is unsynced.
    fn is_fixed(&self, path: &Path) -> bool;
    /// A new file, or the one of this name emptied, with this text.
    fn create(&self, path: &Path, text: &str) -> io::Result<Self::File>;
    /// What is in a file lasts from now on, but not its name.
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// Replaces a file durably; a power cut leaves the old or the new one, whole.
pub(super) fn replace<F: Files>(files: &F, path: &Path, text: &str) -> io::Result<()> {
    make_directory(files, above(path))?;
    replace_in(files, path, text)
}

/// The same, in a directory that is there: one that people name is theirs to make, for whom they like.
fn replace_in<F: Files>(files: &F, path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_added_extension("new");
    let written = files.create(&beside, text).and_then(|file| files.sync(&file));
    if let Err(error) = written.and_then(|()| files.rename(&beside, path)) {
        // Half a file is nobody's.
        let _ = files.remove(&beside);
        return Err(error);
    }
    files.sync_directory(above(path))
}

/// The same, of the file system's own files.
pub(crate) fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    replace_in(&System, path, text)
}

/// Whether a file may be written, which is known by doing it: one beside it is, and is removed.
pub(crate) fn try_file(path: &Path) -> io::Result<()> {
    let tried = path.with_added_extension(format!("try-{}", std::process::id()));
    fs::write(&tried, "").and_then(|()| fs::remove_file(&tried))
}

/// What a file holds, if it is there, and is there to stay.
///
/// Who was killed may have left a rename that no sync followed. What is told to others has to be
/// there after a power cut, too, so the directory is synced before it is read.
pub(super) fn read<F: Files>(files: &F, path: &Path) -> io::Result<Option<String>> {
    let directory = above(path);
    let synced = files.sync_directory(directory).or_else(|error| match files.is_fixed(directory) {
        true => Ok(()),
        false => Err(error),
    });
    match synced.and_then(|()| files.read(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file durably; one that is not there is removed.
pub(super) fn remove<F: Files>(files: &F, path: &Path) -> io::Result<()> {
    match files.remove(path) {
        Ok(()) => files.sync_directory(above(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a directory and those above it durably.
///
/// Who made one that is there may have been killed before it was synced, but not before those above
/// it were. Where nothing can be made nothing was, and what cannot be synced is as it is.
pub(super) fn make_directory<F: Files>(files: &F, directory: &Path) -> io::Result<()> {
    let parent = above(directory);
    if files.is_directory(directory) {
        return files.sync_directory(parent).or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => Ok(()),
            _ if files.is_fixed(parent) => Ok(()),
            _ => Err(error),
        });
    }
    make_directory(files, parent)?;
    match files.make_directory(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    files.sync_directory(parent)
}

fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => path,
    }
}

/// The file systems of this machine.
pub(super) struct System;

impl Files for System {
    type File = File;

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn is_fixed(&self, path: &Path) -> bool {
        let seen = rustix::fs::statvfs(path);
        seen.is_ok_and(|seen| seen.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    }

    fn create(&self, path: &Path, text: &str) -> io::Result<File> {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        Ok(file)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;

    use block::Random;

    use super::*;

    /// What a name leads to: a directory, or a file by its number.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Node {
        Directory,
        File(usize),
    }

    /// A file system that at a power cut keeps what was synced, and of the rest whatever it likes:
    /// of names each for itself, of a file any first part.
    #[derive(Debug, Default)]
    struct Lossy {
        names: BTreeMap<PathBuf, Node>,
        lasting: BTreeMap<PathBuf, Node>,
        /// What files hold, and of that, what lasts.
        files: Vec<(String, String)>,
        /// Calls until the power goes.
        left: usize,
    }

    impl Lossy {
        fn new() -> Lossy {
            let mut made = Lossy::default();
            for path in ["/", "."] {
                made.names.insert(path.into(), Node::Directory);
                made.lasting.insert(path.into(), Node::Directory);
            }
            made
        }

        fn cut_power(&mut self, random: &mut Random) {
            let all: BTreeSet<PathBuf> =
                self.names.keys().chain(self.lasting.keys()).cloned().collect();
            let mut kept = BTreeMap::new();
            // Parents come before what is in them.
            for path in all {
                let from = if random.chance(1, 2) { &self.names } else { &self.lasting };
                let is_reached = path.parent().is_none_or(|above| kept.contains_key(above));
                if let Some(node) = from.get(&path).filter(|_| is_reached) {
                    kept.insert(path, *node);
                }
            }
            for (now, lasting) in &mut self.files {
                if now != lasting && random.chance(1, 2) {
                    let part = random.below(now.len() as u64 + 1) as usize;
                    *lasting = now[..part].to_owned();
                }
                now.clone_from(lasting);
            }
            (self.names, self.lasting) = (kept.clone(), kept);
        }

        /// A call, if there is still power.
        fn call(&mut self) -> io::Result<&mut Lossy> {
            self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::Interrupted)?;
            Ok(self)
        }

        fn find(&self, path: &Path) -> io::Result<Node> {
            self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    impl Files for RefCell<Lossy> {
        type File = usize;

        fn is_directory(&self, path: &Path) -> bool {
            self.borrow().find(path).is_ok_and(|node| node == Node::Directory)
        }

        fn make_directory(&self, path: &Path) -> io::Result<()> {
            self.borrow_mut().call()?.names.insert(path.to_owned(), Node::Directory);
            Ok(())
        }

        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            let mut held = self.borrow_mut();
            let Lossy { names, lasting, .. } = held.call()?;
            if !names.contains_key(path) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let is_in = |it: &PathBuf| it.parent() == Some(path);
            lasting.retain(|it, _| !is_in(it));
            lasting.extend(
                names.iter().filter(|(it, _)| is_in(it)).map(|(it, node)| (it.clone(), *node)),
            );
            Ok(())
        }

        fn is_fixed(&self, _: &Path) -> bool {
            false
        }

        fn create(&self, path: &Path, text: &str) -> io::Result<usize> {
            let mut held = self.borrow_mut();
            let Lossy { names, files, .. } = held.call()?;
            // One that is there is emptied and written anew.
            let number = match names.get(path) {
                Some(Node::File(number)) => *number,
                _ => {
                    files.push(Default::default());
                    files.len() - 1
                }
            };
            text.clone_into(&mut files[number].0);
            names.insert(path.to_owned(), Node::File(number));
            Ok(number)
        }

        fn sync(&self, file: &usize) -> io::Result<()> {
            let mut held = self.borrow_mut();
            let (now, lasting) = &mut held.call()?.files[*file];
            lasting.clone_from(now);
            Ok(())
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            let mut held = self.borrow_mut();
            let names = &mut held.call()?.names;
            let node = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            names.insert(to.to_owned(), node);
            Ok(())
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            let mut held = self.borrow_mut();
            let held = held.call()?;
            held.find(path)?;
            held.names.remove(path);
            Ok(())
        }

        fn read(&self, path: &Path) -> io::Result<String> {
            let mut held = self.borrow_mut();
            let held = held.call()?;
            match held.find(path)? {
                Node::File(number) => Ok(held.files[number].0.clone()),
                Node::Directory => Err(io::ErrorKind::IsADirectory.into()),
            }
        }
    }

    /// What is done to the file; `None` removes it.
    const STEPS: [Option<&str>; 5] = [Some("one\n"), Some("another\n"), None, None, Some("last\n")];

    #[test]
    fn at_every_power_cut_a_file_is_as_it_was_or_as_it_was_to_be_and_what_was_done_or_read_stays() {
        let path = Path::new("/state/aoe/one");
        for seed in 0..200 {
            let mut random = Random::new(seed);
            for calls in 0..40 {
                let files = RefCell::new(Lossy::new());
                files.borrow_mut().left = calls;
                let mut before = None;
                let mut during = None;
                for step in STEPS {
                    during = step;
                    let done = match step {
                        Some(text) => replace(&files, path, text),
                        None => remove(&files, path),
                    };
                    if done.is_err() {
                        break;
                    }
                    before = step;
                }
                // Who was killed alone, is started again.
                if random.chance(1, 2) {
                    files.borrow_mut().left = usize::MAX;
                    replace(&files, path, "again\n").expect("there is power");
                    (before, during) = (Some("again\n"), Some("again\n"));
                }
                // Somebody reads it after a cut, and after one more.
                let mut allowed = vec![before, during];
                for _ in 0..2 {
                    if random.chance(1, 2) {
                        files.borrow_mut().cut_power(&mut random);
                    }
                    files.borrow_mut().left = usize::MAX;
                    let seen = read(&files, path).expect("there is power");
                    let is_right = allowed.contains(&seen.as_deref());
                    assert!(is_right, "seed {seed}, {calls} calls: {seen:?}, expected {allowed:?}");
                    allowed.retain(|text| *text == seen.as_deref());
                }
            }
        }
    }
}
