//! Where things are: the repository, the target directory, the host's target triple; and how to
//! start a command there.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

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

/// What a command said that tells why it failed: few lines, for a summary.
#[derive(Debug, Default)]
pub(crate) struct LastWords {
    /// Those that speak of a failure, the first ones.
    failures: Vec<String>,
    last: VecDeque<String>,
}

impl LastWords {
    const FAILURES_MAX: usize = 6;
    const LAST_MAX: usize = 3;

    /// A line was printed.
    pub(crate) fn hear(&mut self, line: &str) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let is_failure = ["FAIL", "panicked at", "error: ", "error["];
        if is_failure.iter().any(|word| line.contains(word)) {
            if self.failures.len() < Self::FAILURES_MAX {
                self.failures.push(line.to_owned());
            }
            return;
        }
        if self.last.len() == Self::LAST_MAX {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }

    /// The lines, failures first.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.failures.iter().chain(&self.last).map(String::as_str)
    }
}

/// Runs a command as [`exit_code`] does, hearing what it prints on its way to us. Its errors come by
/// our standard output, too, so that they stay in their order.
pub(crate) fn exit_code_heard(command: &mut Command) -> Result<(Option<i32>, LastWords)> {
    /// What a process that outlives the command still prints is not waited for.
    const STRAGGLERS: Duration = Duration::from_secs(2);
    let (reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let named = words(command);
    let child = command.spawn().with_context(|| format!("cannot start {named}"));
    // Our own ends of the pipe, so that it ends with the command's.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child?;
    let heard = Arc::new(Mutex::new(LastWords::default()));
    let (told, ended) = mpsc::channel();
    let ears = heard.clone();
    thread::spawn(move || {
        let mut lines = BufReader::new(reader);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
            ears.lock().expect("nobody panics here").hear(&String::from_utf8_lossy(&line));
            line.clear();
        }
        let _ = told.send(());
    });
    let status = child.wait()?;
    let _ = ended.recv_timeout(STRAGGLERS);
    let heard = std::mem::take(&mut *heard.lock().expect("nobody panics here"));
    Ok((status.code(), heard))
}

/// Runs a command with our own input and output; whether it ended with code 0.
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
