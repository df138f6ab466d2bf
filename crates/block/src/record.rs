//! What tests passed through: each kind of mail, each refusal, and what else calls [`passed`].
//!
//! `cargo xtask test` names a file in the environment and compares it with all that there is. A line
//! is a kind, a tab and a name; each process appends each line once. As with [`crate::planted`] the
//! tests of the whole workspace alone are built so: in every other build, and in each without debug
//! assertions, the functions are empty and the name of the variable is not in the program.

#[cfg(all(feature = "planted", debug_assertions))]
pub use kept::{passed, passed_here, passed_variant};

/// Something of this kind and name was passed through.
#[cfg(not(all(feature = "planted", debug_assertions)))]
#[inline(always)]
pub fn passed(_kind: &str, _name: impl core::fmt::Display) {}

/// A variant of an enum whose `Debug` is derived was passed through.
#[cfg(not(all(feature = "planted", debug_assertions)))]
#[inline(always)]
pub fn passed_variant<T: core::fmt::Debug>(_kind: &str, _value: &T) {}

/// The place of the call was passed through, or of the call to who calls and tracks its caller.
#[cfg(not(all(feature = "planted", debug_assertions)))]
#[inline(always)]
pub fn passed_here(_kind: &str) {}

#[cfg(all(feature = "planted", debug_assertions))]
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests of pure crates have no other way out, and nothing is read back"
)]
mod kept {
    use std::collections::BTreeSet;
    use std::fmt::{self, Debug, Display, Write as _};
    use std::fs::File;
    use std::io::Write as _;
    use std::panic::Location;
    use std::sync::{LazyLock, Mutex, PoisonError};

    struct Record {
        file: File,
        /// What this process has written.
        lines: Mutex<BTreeSet<String>>,
    }

    static RECORD: LazyLock<Option<Record>> = LazyLock::new(|| {
        let path = std::env::var_os("PLATEWAY_RECORD")?;
        let file = File::options().append(true).create(true).open(path).ok()?;
        Some(Record { file, lines: Mutex::default() })
    });

    pub fn passed(kind: &str, name: impl Display) {
        let Some(record) = &*RECORD else { return };
        let line = format!("{kind}\t{name}\n");
        let mut lines = record.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if !lines.contains(&line) {
            // One write, at the end of the file, whoever else writes.
            let _ = (&record.file).write_all(line.as_bytes());
            lines.insert(line);
        }
    }

    pub fn passed_variant<T: Debug>(kind: &str, value: &T) {
        if RECORD.is_some() {
            let path = std::any::type_name::<T>();
            let path = path.split('<').next().unwrap_or(path);
            let mut variant = FirstWord(String::new());
            let _ = write!(variant, "{value:?}");
            passed(kind, format_args!("{path}::{}", variant.0));
        }
    }

    #[track_caller]
    pub fn passed_here(kind: &str) {
        passed(kind, Location::caller());
    }

    /// Takes a word and fails after it, so that what a variant holds is not written.
    struct FirstWord(String);

    impl fmt::Write for FirstWord {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
            self.0.push_str(&text[..end]);
            if end < text.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }
}
