//! Looks at a trial while its load runs: at CPUs, interfaces and storage now and then, and all the time at what the
//! first router sends to the core where the plan asks for that.
//!
//! What comes of them is in [`super::seen`]. Units: seconds since 1970. Errors: those of the testbed, of an agent, and
//! of a router that does not answer.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use lab::plan::Measure;
use testbed::{Counters, CpuLook, StorageBytes};

use super::agent::{Looked, unix_now};
use super::core_port::{Core, Recorder};
use super::trial::{Lab, tell};
use super::way::Way;

/// How often it is looked whether all of the way is there.
const LIVES: Duration = Duration::from_secs(1);

/// What was seen at a moment of a trial.
pub(super) struct Look {
    /// Seconds since 1970.
    pub(super) at: f64,
    pub(super) cpu: CpuLook,
    /// Of the near end's interface, where there is one.
    pub(super) counters: Option<Counters>,
    /// Of the first router's interface to the core, where there is one.
    pub(super) core: Option<Counters>,
    /// What an agent saw, where there is one.
    pub(super) far: Option<Looked>,
    /// What the load had of this machine's storage.
    pub(super) storage: Option<StorageBytes>,
    /// How often a server of NFS was asked.
    pub(super) calls: Option<u64>,
}

/// What was seen of a trial.
#[derive(Default)]
pub(super) struct Sighted {
    pub(super) looks: Vec<Look>,
    /// What the first router sent to the core.
    pub(super) core: Option<Core>,
}

impl Lab<'_> {
    /// Looks over a way, if it goes any, and where it works on storage of this machine's, at what it had of that.
    pub(super) fn looks<'a>(
        &self,
        every: Duration,
        way: Option<&'a Way<'a>>,
        has_storage: bool,
    ) -> Looks<'a> {
        let mut columns = self.experiment.groups.iter().flat_map(|group| &group.columns);
        let is_asked = columns.any(|column| Measure::is_of_core(column.measure));
        let recorder = way.filter(|_| is_asked).and_then(Way::recorder);
        let (calls, seen, trouble) = (None, Vec::new(), None);
        Looks { every, way, has_storage, calls, seen, times_up: 0, recorder, trouble }
    }
}

/// Looks at CPUs and interfaces, now and then.
pub(super) struct Looks<'a> {
    every: Duration,
    way: Option<&'a Way<'a>>,
    /// Whether the load works on storage of this machine's.
    has_storage: bool,
    /// Where it is kept how often a server of NFS was asked.
    calls: Option<PathBuf>,
    seen: Vec<Look>,
    /// How often it was looked whether all of the way is there.
    times_up: u32,
    /// Who counts what the first router sends to the core, where the plan asks for that.
    recorder: Option<Recorder>,
    trouble: Option<miette::Report>,
}

impl<'a> Looks<'a> {
    /// Looks as well how often a server of NFS was asked, by a file that says so, if it is there.
    pub(super) fn counting(self, calls: PathBuf) -> Looks<'a> {
        Looks { calls: Some(calls), ..self }
    }

    /// An error if a look failed, or what was looked at has ended.
    pub(super) fn trouble(&mut self) -> miette::Result<()> {
        self.trouble.take().map_or(Ok(()), Err)
    }

    /// All of it, unless there is [`trouble`](Self::trouble).
    pub(super) fn end(mut self) -> miette::Result<Sighted> {
        self.trouble()?;
        let core = self.recorder.map(Recorder::end).transpose()?;
        Ok(Sighted { looks: self.seen, core })
    }

    /// Looks if it is time; the load is this process, and so much of it has gone by. Breaks where it cannot go on:
    /// a look failed, or what it works with has ended, for whose answer it may wait for long.
    pub(super) fn look(&mut self, pid: u32, spent: Duration) -> ControlFlow<()> {
        if let Err(error) = self.look_when_due(pid, spent) {
            self.trouble.get_or_insert(error);
        }
        if self.trouble.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn look_when_due(&mut self, pid: u32, spent: Duration) -> miette::Result<()> {
        if spent >= LIVES * self.times_up {
            self.times_up += 1;
            self.way.map_or(Ok(()), Way::is_up)?;
        }
        if spent >= self.every * self.seen.len() as u32 {
            let look = self.now(pid)?;
            self.seen.push(look);
        }
        Ok(())
    }

    fn now(&self, pid: u32) -> miette::Result<Look> {
        let (counters, core, far) = match self.way {
            Some(way) => (way.counters(pid), way.core_counters(), way.look()?),
            None => (None, None, None),
        };
        let storage = if self.has_storage { StorageBytes::of(pid) } else { None };
        let calls = self.calls.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let calls = calls.and_then(|said| said.parse().ok());
        Ok(Look {
            at: unix_now(),
            cpu: CpuLook::now().map_err(tell)?,
            counters,
            core,
            far,
            storage,
            calls,
        })
    }
}
