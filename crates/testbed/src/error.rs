//! What went wrong, in one line that says what to do.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use crate::tool::package;

/// What every function of this room returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done to this machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that does it is not installed.
    #[error("`{program}` is not on PATH{}", of_package(program))]
    Missing { program: String },
    /// A program refused: what it was asked, and what it said.
    #[error("{command}: {said}{}", of_rights(said))]
    Refused { command: String, said: String },
    /// The system refused; `doing` as in "cannot ...".
    #[error("cannot {doing}: {source}")]
    System { doing: String, source: io::Error },
    /// What a file of the kernel's or a program says is not what we know to read.
    #[error("{what}: expected {expected}, found {seen:?}")]
    Unexpected { what: String, expected: &'static str, seen: String },
    /// An interface keeps some of its offloads.
    #[error("{interface} in {namespace} does not let {} be switched off (`ethtool -k {interface}` there)", kept.join(", "))]
    Kept { interface: String, namespace: String, kept: Vec<&'static str> },
    /// The driver of an interface has no thread for what it receives.
    #[error("no thread of {interface} is there: its driver runs no program")]
    NoThread { interface: String },
    /// A server is not there any more; the last lines of its log.
    #[error("{called} ended with {status}: {words}")]
    Ended { called: String, status: ExitStatus, words: String },
    /// A server does not listen in time; the last lines of its log.
    #[error("{called} does not listen: {words}")]
    Silent { called: String, words: String },
    /// A load did not end in time, and was ended.
    #[error("{command} did not end within {limit:?}")]
    Late { command: String, limit: Duration },
}

/// Which package of Debian's brings a program, if we know.
fn of_package(program: &str) -> String {
    package(program).map_or(String::new(), |name| format!(" (Debian package {name})"))
}

/// Who may, where what was said is that we may not.
fn of_rights(said: &str) -> &'static str {
    let refused = ["Permission denied", "Operation not permitted"];
    let is_refused = refused.iter().any(|words| said.contains(words));
    if is_refused { " (network namespaces need root)" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_rights_is_told_who_has() {
        let refused = |said: &str| {
            Error::Refused { command: "ip netns add a".into(), said: said.into() }.to_string()
        };
        assert_eq!(
            refused("mkdir /run/netns failed: Permission denied"),
            "ip netns add a: mkdir /run/netns failed: Permission denied (network namespaces need root)"
        );
        assert_eq!(refused("File exists"), "ip netns add a: File exists");
    }
}
