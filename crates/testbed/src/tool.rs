//! Programs that do one thing and end: they are run, and what they said is an error or the answer.
//!
//! In: a program and its arguments. Out: its standard output. Errors: it is missing (with its Debian
//! package), also where `ip netns exec` looked for it in vain, or it refused.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use rustix::fs::Access;

use crate::error::{Error, Result};

/// Which package of Debian's brings which program.
const PACKAGES: &[(&str, &[&str])] = &[
    ("bonnie++", &["bonnie++"]),
    ("coreutils", &["cat", "sleep"]),
    ("dash", &["sh"]),
    ("e2fsprogs", &["mkfs.ext4"]),
    ("ethtool", &["ethtool"]),
    ("fio", &["fio"]),
    ("iproute2", &["bridge", "ip", "tc"]),
    ("mount", &["losetup", "mount", "umount"]),
    ("nftables", &["nft"]),
    ("nvme-cli", &["nvme"]),
    ("postgresql", &["initdb", "pgbench", "postgres", "psql"]),
    ("postmark", &["postmark"]),
    ("util-linux", &["chrt", "nsenter", "setpriv", "setsid", "taskset", "unshare"]),
    ("util-linux-extra", &["fincore"]),
];

/// The package of a program.
pub(crate) fn package(program: &str) -> Option<&'static str> {
    let found = PACKAGES.iter().find(|(_, programs)| programs.contains(&program));
    found.map(|(package, _)| *package)
}

/// Says in time that a program is missing: an error if it cannot be started. It is looked for and not run, since a plan
/// may name any, and what one does that is asked for its version, nobody knows.
pub fn needs(program: &str) -> Result<()> {
    let may_run = |path: &Path| {
        let is_file = fs::metadata(path)?.is_file();
        rustix::fs::access(path, Access::EXEC_OK)?;
        if is_file { Ok(()) } else { Err(std::io::Error::from(ErrorKind::PermissionDenied)) }
    };
    if program.contains('/') {
        return may_run(Path::new(program)).map_err(|error| not_started(program, error));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| may_run(&folder.join(program)).is_ok());
    if found { Ok(()) } else { Err(Error::Missing { program: program.to_owned() }) }
}

/// A command as one would type it, near enough to read.
pub fn words(command: &Command) -> String {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    all.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a program to its end; what it wrote to standard output.
pub fn run(program: &str, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    finish(command)
}

/// `ip`, which says nothing if all is well.
pub(crate) fn ip(args: &[&str]) -> Result<()> {
    run("ip", args).map(|_| ())
}

/// Runs a command to its end; what it wrote to standard output.
pub(crate) fn finish(mut command: Command) -> Result<String> {
    let output = command.output();
    let program = command.get_program().to_string_lossy();
    let output = output.map_err(|error| not_started(&program, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = one_line(&output.stderr);
    if let Some(program) = sought_in_vain(&said) {
        return Err(Error::Missing { program: program.to_owned() });
    }
    let said = if said.is_empty() { output.status.to_string() } else { said };
    Err(Error::Refused { command: words(&command), said })
}

pub(crate) fn not_started(program: &str, source: std::io::Error) -> Error {
    match source.kind() {
        ErrorKind::NotFound => Error::Missing { program: program.to_owned() },
        _ => Error::System { doing: format!("start {program}"), source },
    }
}

/// The program that a program which was to become it did not find.
fn sought_in_vain(said: &str) -> Option<&str> {
    let rest = said.strip_suffix(" failed: No such file or directory")?;
    rest.strip_prefix("exec of \"")?.strip_suffix('"')
}

pub(crate) fn one_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_told_with_its_package() {
        let missing = Error::Missing { program: "ethtool".into() };
        assert_eq!(missing.to_string(), "`ethtool` is not on PATH (Debian package ethtool)");
        let other = Error::Missing { program: "tool".into() };
        assert_eq!(other.to_string(), "`tool` is not on PATH");
        // By a path: where a folder of PATH may not be searched, a missing name is a refused one.
        assert!(matches!(run("/no/such/tool", &[]), Err(Error::Missing { .. })));
    }

    #[test]
    fn a_program_is_looked_for_and_not_run() {
        assert!(matches!(needs("/no/such/tool"), Err(Error::Missing { .. })));
        assert!(matches!(needs("no-such-tool"), Err(Error::Missing { .. })));
        assert!(matches!(needs("/etc/passwd"), Err(Error::System { .. })), "nobody may run it");
        assert!(matches!(needs("/etc"), Err(Error::System { .. })), "a folder");
        needs("sh").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        // It would never end.
        fs::write(at("tool"), format!("#!/bin/sh\ntouch {}\nsleep 600\n", at("ran"))).unwrap();
        run("chmod", &["+x", &at("tool")]).unwrap();
        needs(&at("tool")).unwrap();
        assert!(!Path::new(&at("ran")).exists());
    }

    #[test]
    fn a_program_that_is_missing_behind_ip_is_as_missing() {
        let said = "exec of \"ethtool\" failed: No such file or directory";
        assert_eq!(sought_in_vain(said), Some("ethtool"));
        assert_eq!(sought_in_vain("Cannot open network namespace \"a\": No such file"), None);
    }

    #[test]
    fn a_refusal_says_what_was_asked_and_what_was_said() {
        let error = run("sh", &["-c", "echo one >&2; echo two >&2; exit 3"]).unwrap_err();
        assert!(error.to_string().ends_with("exit 3: one two"), "{error}");
        assert_eq!(run("false", &[]).unwrap_err().to_string(), "false: exit status: 1");
        assert_eq!(run("echo", &["a", "b"]).unwrap(), "a b\n");
    }
}
