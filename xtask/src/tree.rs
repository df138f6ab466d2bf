//! Where things are: the repository, the target directory, the host's target triple; and how to
//! start a command there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The paths that the chores share.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The repository's root, absolute.
    pub(crate) root: PathBuf,
    /// Cargo's target directory, absolute: `$CARGO_TARGET_DIR`, or `target` in the root.
    pub(crate) target: PathBuf,
    /// The triple of this machine as rustc names it, for instance `x86_64-unknown-linux-gnu`.
    pub(crate) host: String,
}

impl Tree {
    /// Finds the repository from where xtask was compiled, so that the working directory does not
    /// matter.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask is a folder in the repository's root")?
            .to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => std::path::absolute(dir)?,
            None => root.join("target"),
        };
        let rustc =
            Command::new("rustc").arg("-vV").current_dir(&root).output().context("rustc -vV")?;
        let text = String::from_utf8(rustc.stdout).context("rustc -vV answers in UTF-8")?;
        let host = text
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .context("rustc -vV names its host")?
            .to_owned();
        Ok(Self { root, target, host })
    }

    /// A command that runs in the repository's root with the target directory settled for all that
    /// it starts. A relative program with a slash is taken from the root.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let program = Path::new(program.as_ref());
        let mut command = if program.components().count() > 1 {
            Command::new(self.root.join(program))
        } else {
            Command::new(program)
        };
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// `cargo ARGS` in the root.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = self.command("cargo");
        command.args(args);
        command
    }
}

/// Runs a command with our own input and output; the code it ended with, none if a signal ended it.
/// An error if it could not start.
pub(crate) fn exit_code(command: &mut Command) -> Result<Option<i32>> {
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    Ok(status.code())
}

/// The same; whether it ended with code 0.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    Ok(exit_code(command)? == Some(0))
}

/// Runs a command with our own input and output and makes anything but code 0 an error that names
/// it.
pub(crate) fn must_succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", words(command));
    }
    Ok(())
}

/// The command as one would type it, near enough to read.
pub(crate) fn words(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
