//! Where things are: the repository, the target directory, the host's target triple; and how to
//! start a command there.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
pub(crate) use testbed::words;

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

/// The PATH of this process with a program's folder before it.
pub(crate) fn path_with(program: &Path) -> Result<OsString> {
    let folder = program.parent().context("a program is in a folder")?.to_owned();
    let known = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&known)))?)
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
    /// Those that speak of a failure: the first ones, which may explain all others,
    first: Vec<String>,
    /// and the last ones, at which it ended.
    latest: VecDeque<String>,
    last: VecDeque<String>,
    /// A panic was told of, whose message is a line of its own.
    is_panic: bool,
    /// What came of a line that has not ended.
    begun: Vec<u8>,
}

impl LastWords {
    const FAILURES_MAX: usize = 3;
    pub(crate) const LAST_MAX: usize = 12;
    /// Bytes of a line that are looked at and kept. Not all that is printed is lines.
    const LINE_MAX: usize = 4096;

    /// Something was printed, up to anywhere.
    pub(crate) fn hear_bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = Self::LINE_MAX - self.begun.len();
            self.begun.extend(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// Nothing follows what was printed.
    pub(crate) fn end_line(&mut self) {
        let line = std::mem::take(&mut self.begun);
        self.hear(&String::from_utf8_lossy(&line));
    }

    /// A line was printed.
    pub(crate) fn hear(&mut self, line: &str) {
        let plain = without_colours(line);
        let line = plain.trim_end();
        if line.is_empty() {
            return;
        }
        let is_message = std::mem::replace(&mut self.is_panic, line.contains("panicked at"));
        let is_failure = ["FAIL", "panicked at", "error: ", "error["];
        if !is_message && !is_failure.iter().any(|word| line.contains(word)) {
            keep_last(&mut self.last, Self::LAST_MAX, line);
        } else if self.first.len() < Self::FAILURES_MAX {
            self.first.push(line.to_owned());
        } else {
            keep_last(&mut self.latest, Self::FAILURES_MAX, line);
        }
    }

    /// The lines, failures first.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.first.iter().chain(&self.latest).chain(&self.last).map(String::as_str)
    }
}

/// Keeps a line, and forgets the oldest one where there are so many.
fn keep_last(lines: &mut VecDeque<String>, most: usize, line: &str) {
    if lines.len() == most {
        lines.pop_front();
    }
    lines.push_back(line.to_owned());
}

/// A line without what sets colours: `ESC [ numbers m`.
fn without_colours(line: &str) -> String {
    let mut pieces = line.split("\x1b[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let behind = piece.trim_start_matches(|at: char| at.is_ascii_digit() || at == ';');
        match behind.strip_prefix('m') {
            Some(text) => plain += text,
            // Something else, such as a cursor that moves.
            None => plain.extend(["\x1b[", piece]),
        }
    }
    plain
}

/// What a command prints on its way to us: as it is, or whole lines with a name in front.
struct Voice {
    name: Option<&'static str>,
    heard: LastWords,
    /// Of a named one: what came of a line that has not ended.
    begun: Vec<u8>,
}

impl Voice {
    /// Passes something on at once, up to anywhere: who hangs has told where. A line with a name waits for
    /// its end, since others print between.
    fn pass_on(&mut self, bytes: &[u8], out: &mut impl Write) -> std::io::Result<()> {
        self.heard.hear_bytes(bytes);
        let Some(name) = self.name else {
            out.write_all(bytes)?;
            return out.flush();
        };
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.begun);
                out.write_all(&[name.as_bytes(), b"| ", &line].concat())?;
            }
        }
        out.flush()
    }

    /// Nothing follows.
    fn end(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        self.heard.end_line();
        if !self.begun.is_empty() { self.pass_on(b"\n", out) } else { Ok(()) }
    }
}

/// Runs a command as [`exit_code`] does, hearing what it prints on its way to us. Its errors come by
/// our standard output, too, so that they stay in their order. With a `name`, each line has it in front,
/// and the command hears nothing from us.
pub(crate) fn exit_code_heard(
    command: &mut Command,
    name: Option<&'static str>,
) -> Result<(Option<i32>, LastWords)> {
    /// What a process that outlives the command still prints is not waited for.
    const STRAGGLERS: Duration = Duration::from_secs(2);
    let (reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    if name.is_some() {
        command.stdin(Stdio::null());
    }
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let named = words(command);
    let child = command.spawn().with_context(|| format!("cannot start {named}"));
    // Our own ends of the pipe, so that it ends with the command's.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child?;
    let voice = Voice { name, heard: LastWords::default(), begun: Vec::new() };
    let voice = Arc::new(Mutex::new(voice));
    let (told, ended) = mpsc::channel();
    let ears = voice.clone();
    thread::spawn(move || {
        let (mut reader, mut chunk) = (reader, [0; 8192]);
        loop {
            let count = match reader.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let mut voice = ears.lock().expect("nobody panics here");
            let _ = voice.pass_on(&chunk[..count], &mut std::io::stdout().lock());
        }
        let _ = told.send(());
    });
    let status = child.wait()?;
    let _ = ended.recv_timeout(STRAGGLERS);
    let mut voice = voice.lock().expect("nobody panics here");
    let _ = voice.end(&mut std::io::stdout().lock());
    Ok((status.code(), std::mem::take(&mut voice.heard)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(bytes: &[u8]) -> Vec<String> {
        let mut words = LastWords::default();
        // As a pipe may cut it.
        bytes.chunks(7).for_each(|chunk| words.hear_bytes(chunk));
        words.end_line();
        words.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_of_a_named_one_are_whole_and_named_and_others_pass_as_they_come() {
        let told = |name| {
            let mut voice = Voice { name, heard: LastWords::default(), begun: Vec::new() };
            let mut out = Vec::new();
            for piece in ["one\ntw", "o\n\nthr", "ee"] {
                voice.pass_on(piece.as_bytes(), &mut out).unwrap();
                out.push(b'/');
            }
            voice.end(&mut out).unwrap();
            assert_eq!(voice.heard.lines().collect::<Vec<_>>(), ["one", "two", "three"]);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(told(None), "one\ntw/o\n\nthr/ee/");
        assert_eq!(told(Some("it")), "it| one\n/it| two\nit| \n//it| three\n");
    }

    #[test]
    fn a_failure_is_heard_whatever_its_colours_and_kept_without() {
        let text = "\x1b[1m\x1b[38;5;9merror\x1b[0m\x1b[1m: no such thing\x1b[0m\n1\n2\n";
        assert_eq!(heard(text.as_bytes()), ["error: no such thing", "1", "2"]);
        assert_eq!(without_colours("a\x1b[2Kb\x1b[mc\x1b["), "a\x1b[2Kbc\x1b[");
    }

    #[test]
    fn of_a_line_without_end_its_beginning_is_kept() {
        let mut text = b"error: ".to_vec();
        text.resize(100_000, b'x');
        let seen = heard(&text);
        assert_eq!((seen.len(), seen[0].len()), (1, LastWords::LINE_MAX));
        text.extend(b"\nnext\xff");
        let seen = heard(&text);
        assert_eq!((seen.len(), seen[0].len()), (2, LastWords::LINE_MAX));
        assert_eq!(seen[1], "next\u{fffd}");
    }

    #[test]
    fn of_many_failures_the_first_and_the_last_are_kept() {
        let text: String = (0..100).map(|number| format!("FAIL {number}\n")).collect();
        let expected = [0, 1, 2, 97, 98, 99].map(|number| format!("FAIL {number}"));
        assert_eq!(heard(text.as_bytes()), expected);
        // And of what else was said the last.
        let text: String = (0..100).map(|number| format!("{number}\n")).collect();
        let expected: Vec<_> =
            (100 - LastWords::LAST_MAX..100).map(|line| line.to_string()).collect();
        assert_eq!(heard(text.as_bytes()), expected);
    }

    #[test]
    fn a_panic_is_kept_with_its_message() {
        let text = "thread 'it' panicked at src/a.rs:1:2:\nleft is not right\nnote\n1\n2\n3\n";
        let panic = ["thread 'it' panicked at src/a.rs:1:2:", "left is not right"];
        assert_eq!(heard(text.as_bytes()), [&panic[..], &["note", "1", "2", "3"]].concat());
    }
}
