//! The lab's side of an agent: it is reached, asked, and let go.
//!
//! By `ssh HOST`, whose `plateway lab agent` speaks on its standard input and output, or on a socket
//! where somebody has started one. Whatever runs at the far end ends with the connection. Its clock is
//! held against ours by a few questions: the one that was answered soonest says how far they are
//! apart, to half of what it took. Units: seconds. Errors: no way there, another version, an agent
//! that is silent for [`PATIENCE`] or ended, each with its last words; and what it answers as one.

use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use lab::plan::AgentAt;
use lab::report::Environment;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::{Answer, LINE_MAX, Looked, Request};
use super::unix_now;
use crate::commands::environment::environment;
use crate::commands::lab::far;
use crate::commands::session::Interrupt;

/// How long an answer may take: longer than anything that is started may take to be ready.
const PATIENCE: Duration = far::START.saturating_mul(3);
/// How long an agent may take to end once it is let go.
const LETTING_GO: Duration = Duration::from_secs(5);
/// How many questions hold clocks against each other.
const CLOCK_QUESTIONS: usize = 8;

/// A connection to one.
pub(crate) struct Agent {
    /// As the plan calls it.
    name: String,
    to: Box<dyn Write>,
    answers: Receiver<Result<String, String>>,
    /// Why an answer was not waited for any longer: whatever comes then would be taken for the next one's.
    lost: Option<String>,
    /// Of one that was reached on a socket, or started by ssh.
    socket: Option<UnixStream>,
    child: Option<Child>,
    interrupt: Interrupt,
    /// A path between both machines, by its place in the plan.
    path: usize,
    pub(crate) environment: Environment,
    /// How many seconds its clock is before ours, and how well that is known.
    ahead: f64,
    ahead_within: f64,
}

/// The machine of an agent.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FarMachine {
    /// How its agent was reached.
    agent: String,
    environment: Environment,
    /// How many seconds its clock is before the near end's, give or take so many.
    clock_ahead_seconds: f64,
    clock_within_seconds: f64,
}

impl Agent {
    /// What is kept of it.
    pub(crate) fn machine(&self) -> FarMachine {
        FarMachine {
            agent: self.name.clone(),
            environment: self.environment.clone(),
            clock_ahead_seconds: self.ahead,
            clock_within_seconds: self.ahead_within,
        }
    }

    /// Reaches one, and sees that it is of this version.
    pub(crate) fn reach(at: &AgentAt, interrupt: &Interrupt) -> miette::Result<Agent> {
        let name = at.to_string();
        let tell = |error: &dyn Display| miette::miette!("the agent at {name}: {error}");
        let (mut socket, mut ssh) = (None, None);
        let (to, from): (Box<dyn Write>, Box<dyn Read + Send>) = match at {
            AgentAt::Socket(path) => {
                let stream = UnixStream::connect(path).map_err(|error| tell(&error))?;
                let two = stream.try_clone().and_then(|to| Ok((to, stream.try_clone()?)));
                let (to, from) = two.map_err(|error| tell(&error))?;
                socket = Some(stream);
                (Box::new(to), Box::new(from))
            }
            AgentAt::Ssh(host) => {
                let mut command = Command::new("ssh");
                // A question that nobody sees would wait for ever, and so would a line that was cut.
                for option in ["BatchMode=yes", "ServerAliveInterval=5", "ServerAliveCountMax=3"] {
                    command.args(["-o", option]);
                }
                command.args(["--", host, "plateway lab agent"]);
                // A Ctrl-C is ours: the agent is let go once what runs there was ended.
                command.process_group(0);
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut child = command.spawn().map_err(|error| tell(&error))?;
                let to = child.stdin.take().ok_or_else(|| tell(&"no way to it"))?;
                let from = child.stdout.take().ok_or_else(|| tell(&"no way from it"))?;
                ssh = Some(child);
                (Box::new(to), Box::new(from))
            }
        };
        let mut agent = Agent::over(name, (to, from), interrupt);
        (agent.socket, agent.child) = (socket, ssh);
        let Environment { version, commit, .. } = environment(String::new());
        agent.environment = agent.ask(&Request::Hello { version, commit })?;
        agent.hold_clocks()?;
        Ok(agent)
    }

    /// One that is spoken to so, and was asked nothing yet.
    fn over(
        name: String,
        (to, from): (Box<dyn Write>, Box<dyn Read + Send>),
        interrupt: &Interrupt,
    ) -> Agent {
        Agent {
            name,
            to,
            answers: listen(from),
            lost: None,
            socket: None,
            child: None,
            interrupt: interrupt.clone(),
            path: 0,
            environment: Environment::default(),
            ahead: 0.0,
            ahead_within: f64::INFINITY,
        }
    }

    /// Tells it the plan that all further questions speak of, one of whose paths between both machines is
    /// this.
    pub(crate) fn tell_plan(
        &mut self,
        name: String,
        text: &str,
        path: usize,
    ) -> miette::Result<()> {
        self.path = path;
        self.ask(&Request::Plan { name, text: text.to_owned() })
    }

    /// Has it look at its CPUs.
    pub(crate) fn look(&mut self) -> miette::Result<Looked> {
        self.ask(&Request::Look { path: self.path })
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, what: &Request) -> miette::Result<T> {
        let tell =
            |name: &str, error: &dyn Display| miette::miette!("the agent at {name}: {error}");
        if let Some(why) = &self.lost {
            return Err(tell(&self.name, why));
        }
        let mut line = serde_json::to_string(what).map_err(|error| tell(&self.name, &error))?;
        line.push('\n');
        let sent = self.to.write_all(line.as_bytes()).and_then(|()| self.to.flush());
        // Why it does not listen, its last line says.
        let line = match (self.answer(), sent) {
            (Ok(line), _) => line,
            (Err(why), sent) => {
                let why = sent.err().map_or(why, |error| error.to_string());
                return Err(tell(&self.name, self.lost.insert(why)));
            }
        };
        let answer = serde_json::from_str(&line).map_err(|_| {
            let seen: String = line.chars().take(200).collect();
            tell(&self.name, &format!("expected an answer, seen {seen:?}"))
        })?;
        match answer {
            Answer::Error(why) => Err(tell(&self.name, &why)),
            Answer::Is(value) => {
                serde_json::from_value(value).map_err(|error| tell(&self.name, &error))
            }
        }
    }

    fn answer(&mut self) -> Result<String, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.answers.recv_timeout(far::AGAIN) {
                Ok(line) => return line,
                Err(RecvTimeoutError::Disconnected) => return Err("it has ended".to_owned()),
                Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                    return Err(format!("it does not answer for {PATIENCE:?}"));
                }
                Err(RecvTimeoutError::Timeout) if self.interrupt.is_raised() => {
                    return Err("interrupted".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Finds out how far its clock is from ours.
    fn hold_clocks(&mut self) -> miette::Result<()> {
        for _ in 0..CLOCK_QUESTIONS {
            let asked = unix_now();
            let there: f64 = self.ask(&Request::Clock)?;
            let answered = unix_now();
            let within = (answered - asked).max(0.0) / 2.0;
            if within < self.ahead_within {
                self.ahead = there - (asked + answered) / 2.0;
                self.ahead_within = within;
            }
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The end of its input is its end; and where that is not heard, that of ssh is.
        self.to = Box::new(std::io::sink());
        if let Some(socket) = self.socket.take() {
            let _ = socket.shutdown(Shutdown::Write);
            // Once all that it started is over, it hangs up.
            let until = Instant::now() + LETTING_GO;
            while let Some(left) = until.checked_duration_since(Instant::now())
                && self.answers.recv_timeout(left).is_ok()
            {}
        }
        if let Some(mut child) = self.child.take() {
            let until = Instant::now() + LETTING_GO;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(far::AGAIN);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reads lines on a thread of its own, until there are no more.
fn listen(from: Box<dyn Read + Send>) -> Receiver<Result<String, String>> {
    let (told, answers) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        loop {
            let mut line = String::new();
            let read = (&mut from).take(LINE_MAX).read_line(&mut line);
            let answer = match read {
                Ok(0) => return,
                Ok(_) if line.ends_with('\n') => Ok(line),
                Ok(_) => Err("its answer has no end".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            let is_last = answer.is_err();
            if told.send(answer).is_err() || is_last {
                return;
            }
        }
    });
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_not_waited_for_is_taken_for_no_other() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let interrupt = Interrupt::watch().unwrap().or_when_told();
        let both: (Box<dyn Write>, Box<dyn Read + Send>) =
            (Box::new(ours.try_clone().unwrap()), Box::new(ours));
        let mut agent = Agent::over("unix:a".to_owned(), both, &interrupt);
        theirs.write_all(b"{\"is\":1.5}\n").unwrap();
        assert_eq!(agent.ask::<f64>(&Request::Clock).unwrap(), 1.5);
        interrupt.raise();
        let expected = "the agent at unix:a: interrupted";
        assert_eq!(agent.ask::<f64>(&Request::Clock).unwrap_err().to_string(), expected);
        theirs.write_all(b"{\"is\":2.5}\n").unwrap();
        std::thread::sleep(far::AGAIN * 2);
        assert_eq!(agent.ask::<f64>(&Request::Clock).unwrap_err().to_string(), expected);
    }
}
