//! Secrets of CHAP: where they are, how they are read, and which are in force.
//!
//! A secret is the first line of a file that only its owner may read, or a variable of this
//! process's environment; it is never in a configuration, an argument, a log or an answer. Here is
//! the one place that reads them, for hosts of our targets and for targets of our disks. Errors say
//! where the secret should be, what was expected and what was seen, never a byte of it. Spec: RFC
//! 7143, 9.2.1 and 12.1.3 (its length, and that both ways have different ones).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ::iscsi::auth::{Credentials, Required, Secret};

use super::chap::{ChapConfig, UserConfig};
use crate::run::RunError;

/// What holds the secret by which a host proves who it is, where no file is named.
pub(super) const OF_HOST: &str = "PLATEWAY_CHAP_SECRET";
/// The same of the one by which a target does.
pub(super) const OF_TARGET: &str = "PLATEWAY_CHAP_MUTUAL_SECRET";
/// More than a line of the longest secret.
const FILE_MAX: u64 = 4096;
/// Reading and writing, by the group and by others.
const NOT_OWNER: u32 = 0o066;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SecretSource {
    File(PathBuf),
    /// A variable of the environment.
    Variable(&'static str),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => path.display().fmt(f),
            SecretSource::Variable(name) => f.write_str(name),
        }
    }
}

impl SecretSource {
    /// A file, if one is named.
    pub(super) fn of(file: Option<&Path>, variable: &'static str) -> SecretSource {
        match file {
            Some(path) => SecretSource::File(path.to_owned()),
            None => SecretSource::Variable(variable),
        }
    }

    /// Where it is for a process that works in another directory.
    pub(super) fn within(&self, directory: &Path) -> SecretSource {
        match self {
            SecretSource::File(path) => SecretSource::File(directory.join(path)),
            variable => variable.clone(),
        }
    }

    /// The secret of this user. `variable` looks into the environment; `file` says how a file is
    /// named where there is none of both.
    pub(super) fn read(
        &self,
        user: &str,
        variable: impl Fn(&str) -> Option<OsString>,
        file: &str,
    ) -> Result<Secret, RunError> {
        let bytes = match self {
            SecretSource::File(path) => read_file(path)?,
            SecretSource::Variable(name) => match variable(name) {
                Some(secret) => OsStr::as_bytes(&secret).to_vec(),
                None => {
                    let what = format!("no secret is configured for user {user}");
                    // Another process has another environment.
                    return Err(RunError::new(what).unpermitted().help(format!(
                        "write it into a file that nobody else may read, and {file}; or set {name}"
                    )));
                }
            },
        };
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Secret::new(line.strip_suffix(b"\r").unwrap_or(line))
            .map_err(|why| RunError::new(format!("cannot use the secret of {self}: {why}")))
    }
}

/// The beginning of a file that nobody but its owner may read.
fn read_file(path: &Path) -> Result<Vec<u8>, RunError> {
    let shown = path.display();
    let failed = |error: io::Error| {
        let kind = error.kind();
        let failed = RunError::new(format!("cannot read the secret {shown}: {error}"));
        if kind == io::ErrorKind::PermissionDenied { failed.unpermitted() } else { failed }
    };
    // A pipe is not waited for.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(RunError::new(format!(
            "cannot read the secret {shown}: expected a regular file, seen something else"
        )));
    }
    let mode = facts.mode() & 0o777;
    if mode & NOT_OWNER != 0 {
        let message = format!(
            "the secret {shown} is no secret: expected a file that its owner alone may read and write, seen mode {mode:04o}"
        );
        return Err(RunError::new(message).help(format!("chmod 600 {shown}")));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The secrets that hosts and targets prove themselves by, as they were read last, by where they
/// are: what shards are shown is made of these, so that a file that changes means nothing before
/// somebody applies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Secrets(BTreeMap<SecretSource, Secret>);

impl Secrets {
    /// Reads those of a proof; relative paths begin at `directory`.
    pub(crate) fn read(&mut self, proof: &ChapConfig, directory: &Path) -> Result<(), RunError> {
        for one in proof.users() {
            let secret = one.secret.within(directory).read(
                &one.user,
                |name| std::env::var_os(name),
                "name it: secret_file = \"PATH\"",
            );
            let secret = secret.map_err(|error| error.key("chap"))?;
            self.0.insert(one.secret.clone(), secret);
        }
        let required = self.required(proof);
        required.check().map_err(|why| RunError::new(format!("chap: {why}")).key("chap"))
    }

    /// These, and of what has none here the others'.
    #[must_use]
    pub(crate) fn beside(&self, others: &Secrets) -> Secrets {
        let mut all = others.0.clone();
        all.extend(self.0.clone());
        Secrets(all)
    }

    /// Whether a proof has other secrets there.
    pub(crate) fn differ(&self, other: &Secrets, proof: &ChapConfig) -> bool {
        let mut sources = proof.users().map(|one| &one.secret);
        sources.any(|source| self.0.get(source) != other.0.get(source))
    }

    /// What a target, or a listener for discovery, asks of hosts.
    pub(in crate::protocols) fn required(&self, proof: &ChapConfig) -> Required {
        let credentials = |one: &UserConfig| {
            let secret = self.0.get(&one.secret).expect("secrets are read before they are used");
            Credentials { name: one.user.clone(), secret: secret.clone() }
        };
        Required {
            users: vec![credentials(&proof.user)],
            own: proof.mutual.as_ref().map(credentials),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// What is said of a file with this text and mode.
    fn said(text: &str, mode: u32) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        match SecretSource::File(path).read("u", |_| None, "name it") {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.line(),
        }
    }

    #[test]
    fn a_secret_is_a_line_of_a_file_that_its_owner_alone_may_read() {
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(said("a long secret\n", mode), "fine");
        }
        for mode in [0o640, 0o604, 0o620, 0o666] {
            let said = said("a long secret\n", mode);
            let seen = format!("seen mode {mode:04o} (chmod 600 /");
            assert!(said.contains("is no secret") && said.contains(&seen), "{said}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_without_it() {
        let short = said("eleven byte\nand more\n", 0o600);
        assert!(short.contains("expected a secret of at least 12 bytes, seen 11"), "{short}");
        assert!(!short.contains("eleven"), "{short}");
        let of = |path: &Path| SecretSource::File(path.to_owned()).read("u", |_| None, "");
        let directory = tempfile::tempdir().unwrap();
        let folder = of(directory.path()).unwrap_err().line();
        assert!(folder.contains("expected a regular file"), "{folder}");
        let away = of(&directory.path().join("away")).unwrap_err().line();
        assert!(away.contains("cannot read the secret /"), "{away}");
    }
}
