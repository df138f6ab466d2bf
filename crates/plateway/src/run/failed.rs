//! What a start could not have, and how it comes back: a disk that is missing, in use, or remote
//! and not up yet fails with what stands on it; all else is served.
//!
//! ```text
//!   disk fails to open ----> failed <---- a volume over it, an export of that volume
//!                              |  tried again after 1 s, 2 s, 4 s .. 60 s; remote disks without
//!                              |  waiting for their answers
//!                              v
//!                    opened, then assembled, then shown
//! ```
//!
//! What is failed belongs to what is served: a plan finds it there, so that `apply` neither opens
//! it nor refuses it where the file says the same of it. A set is assembled when all its disks are
//! open, and never before; no file is made for a set while a disk of it is away, since nobody could
//! compare its labels. What no time mends (a wrong size, other data) is refused at a start, as are
//! disks that are `required`. Times are the caller's.

use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::Running;
use super::error::RunError;
use super::reach::{PATIENCE, Reached, Reaching};
use super::stop;
use crate::config::disk::DiskConfig;
use crate::config::model::HiArgs;
use crate::config::thing::{Step, Thing};
use crate::config::uri::DiskUri;
use crate::log::Event;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is configured and not there, by title.
#[derive(Debug, Default)]
pub(super) struct FailedThings {
    things: IndexMap<String, FailedThing>,
    /// When they are tried again; none while nothing is failed.
    due: Option<Instant>,
    pause: Duration,
}

#[derive(Debug)]
struct FailedThing {
    thing: Thing,
    why: String,
    /// Whether that is another thing that it stands on.
    is_waiting: bool,
    /// Of a remote disk: shards are reaching it.
    reaching: Option<Reaching>,
}

impl FailedThings {
    pub(super) fn contains(&self, title: &str) -> bool {
        self.things.contains_key(title)
    }

    pub(super) fn titles(&self) -> Vec<String> {
        self.things.keys().cloned().collect()
    }

    /// What they are and why they are not there, in the order in which they failed.
    pub(super) fn things(&self) -> impl Iterator<Item = (&Thing, &str)> {
        self.things.values().map(|failed| (&failed.thing, &*failed.why))
    }

    /// What is to be told of them.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> {
        let event = |(title, failed): (&String, &FailedThing)| match &failed.reaching {
            Some(reaching) => reaching.waits(),
            None if failed.is_waiting => Event::warn(format!("{title} {}", failed.why)),
            None => Event::error(format!("{title} failed and is tried again: {}", failed.why)),
        };
        self.things.iter().map(move |thing| event(thing).about(&thing.1.thing))
    }

    /// What people are told who wait for remote disks.
    pub(super) fn reached_for(&self) -> impl Iterator<Item = Event> {
        self.things.values().filter_map(|failed| Some(failed.reaching.as_ref()?.waits()))
    }

    /// Something failed now.
    fn insert(&mut self, thing: Thing, why: String, now: Instant) {
        self.insert_failed(FailedThing { thing, why, is_waiting: false, reaching: None }, now);
    }

    fn insert_failed(&mut self, failed: FailedThing, now: Instant) {
        if self.due.is_none() {
            (self.pause, self.due) = (PAUSE_MIN, Some(now + PAUSE_MIN));
        }
        self.things.insert(failed.thing.title(), failed);
    }

    fn remove(&mut self, title: &str) -> Option<FailedThing> {
        let gone = self.things.shift_remove(title);
        if self.things.is_empty() {
            self.due = None;
        }
        gone
    }

    /// Notes another reason; whether it is another one.
    fn explain(&mut self, title: &str, why: String) -> bool {
        self.things.get_mut(title).is_some_and(|failed| {
            failed.reaching = None;
            std::mem::replace(&mut failed.why, why) != failed.why
        })
    }

    /// Whether it is time to try; then the next time is twice as far.
    fn take_due(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.due = Some(now + self.pause);
        true
    }

    /// Tried at once.
    fn hurry(&mut self, now: Instant) {
        if self.due.is_some() {
            (self.pause, self.due) = (PAUSE_MIN, Some(now));
        }
    }
}

impl Running {
    /// When [`try_failed`](Self::try_failed) wants to be called; never while nothing is failed.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        self.failed.due
    }

    /// Carries out a step of a start, or one that undoes another: what may be there later fails
    /// then, with what stands on it. Returns what deserves to be told.
    pub(super) fn carry_out_or_fail(
        &mut self,
        step: &Step,
        to: &HiArgs,
    ) -> Result<Option<String>, RunError> {
        let done = self.check_unmade(step, to).and_then(|()| self.carry_out(step, &[]));
        match (done, step) {
            (Err(why), Step::Add(thing)) if why.is_transient() && !self.is_required(thing) => {
                self.failed.insert(thing.clone(), why.line(), Instant::now());
                Ok(Some(format!("{} failed and is tried again: {}", thing.title(), why.line())))
            }
            (done, _) => done,
        }
    }

    /// Whether a start without it is none: an address that is taken, or a disk that is required.
    fn is_required(&self, thing: &Thing) -> bool {
        let required =
            |name: &String| self.disks.get(name).is_some_and(|disk| disk.config.required);
        match thing {
            Thing::Disk(disk) => disk.required,
            Thing::Volume(volume) => volume.layout.disks().iter().any(required),
            Thing::Listener(_)
            | Thing::Link(_)
            | Thing::Routed(_)
            | Thing::Host(_)
            | Thing::Export(_) => true,
            // What is watched is more than who watches.
            Thing::Metrics(_) => false,
        }
    }

    /// Carries out a step of what is failed or stands on what is; `None` where it concerns neither.
    pub(super) fn carry_out_failed(
        &mut self,
        step: &Step,
    ) -> Option<Result<Option<String>, RunError>> {
        let (thing, title) = (step.thing(), step.thing().title());
        match step {
            Step::Add(_) => {
                let why = self.waits_for(thing)?;
                let told = format!("{title} {why}");
                let thing = thing.clone();
                let failed = FailedThing { thing, why, is_waiting: true, reaching: None };
                self.failed.insert_failed(failed, Instant::now());
                Some(Ok(Some(told)))
            }
            Step::Remove(_) => {
                let failed = self.failed.remove(&title)?;
                Some(self.let_alone(&failed).map(|()| None))
            }
            Step::Resize { .. } => None,
            // It is shown with what it proves by once it is there.
            Step::Renew(_) => self.failed.contains(&title).then_some(Ok(None)),
            Step::Change { .. } if !self.failed.contains(&title) => None,
            Step::Change { from: Thing::Disk(from), to: Thing::Disk(disk) }
                if from.uri != disk.uri =>
            {
                let before = self.failed.remove(&title)?;
                let opened = self.let_alone(&before).and_then(|()| self.add_disk(disk));
                Some(match opened {
                    Ok(told) => {
                        self.failed.hurry(Instant::now());
                        Ok(told)
                    }
                    Err(error) => {
                        self.failed.insert(before.thing, before.why, Instant::now());
                        Err(error)
                    }
                })
            }
            Step::Change { to, .. } => {
                self.failed.things.get_mut(&title)?.thing = to.clone();
                Some(Ok(None))
            }
        }
    }

    /// Of what a thing waits that it stands on.
    fn waits_for(&self, thing: &Thing) -> Option<String> {
        let below = thing.stands_on().into_iter().find(|title| self.failed.contains(title))?;
        Some(format!("waits for {below}"))
    }

    /// Why a disk is away beside which no file may be made for this one.
    pub(super) fn away_beside(&self, disk: &str, others: &[String]) -> Option<RunError> {
        let mut others = others.iter().filter(|other| *other != disk);
        let other =
            others.find(|other| self.failed.contains(&crate::config::disk::disk_title(other)))?;
        let why = format!("disk {disk}: no file is made for it while disk {other} is away");
        Some(RunError::new(why).transient())
    }

    /// What is served as the configuration has it, although it is not there.
    pub(super) fn renew_failed(&mut self, to: &HiArgs) {
        for thing in to.things() {
            if let Some(failed) = self.failed.things.get_mut(&thing.title()) {
                failed.thing = thing;
            }
        }
    }

    /// Tries what is failed, if it is time to, and takes up what came of remote disks that are
    /// being reached. Returns what is new.
    pub(crate) fn try_failed(&mut self, now: Instant) -> Vec<Event> {
        let is_due = self.failed.take_due(now);
        let mut told = Vec::new();
        for title in self.failed.titles() {
            let Some(failed) = self.failed.things.get_mut(&title) else { continue };
            let Thing::Disk(config) = failed.thing.clone() else { continue };
            let tried = match failed.reaching.take() {
                Some(reaching) => self.reached(&title, reaching),
                None if is_due => self.try_disk(&title, &config),
                None => continue,
            };
            self.tried(&title, tried, &mut told);
        }
        if !told.is_empty() || is_due {
            for title in self.failed.titles() {
                let Some(failed) = self.failed.things.get(&title) else { continue };
                let thing = failed.thing.clone();
                if matches!(thing, Thing::Disk(_)) || self.waits_for(&thing).is_some() {
                    continue;
                }
                let added = self.carry_out(&Step::Add(thing), &[]).map(|_| true);
                self.tried(&title, added, &mut told);
            }
        }
        told
    }

    /// Notes whether a thing is there now.
    fn tried(&mut self, title: &str, tried: Result<bool, RunError>, told: &mut Vec<Event>) {
        let Some(failed) = self.failed.things.get(title) else { return };
        let thing = failed.thing.clone();
        let about = |event: Event| event.about(&thing);
        match tried {
            Ok(true) => {
                self.failed.remove(title);
                told.push(about(Event::info(format!("{title} is there and served"))));
            }
            // It is being reached.
            Ok(false) => {}
            Err(error) => {
                if self.failed.explain(title, error.line()) {
                    let words = format!("{title} is still failed: {}", error.line());
                    told.push(about(Event::error(words)));
                }
            }
        }
    }

    /// Tries a disk; whether it is there, which is told later of a remote one.
    fn try_disk(&mut self, title: &str, config: &DiskConfig) -> Result<bool, RunError> {
        let DiskUri::Remote(uri) = &config.uri else {
            let step = Step::Add(Thing::Disk(config.clone()));
            let args = self.args();
            self.check_unmade(&step, &args)?;
            let disk = self.open_local(config)?;
            self.disks.insert(config.name.clone(), disk);
            return Ok(true);
        };
        let reaching = self.begin_reaching(config, uri)?;
        self.reached(title, reaching)
    }

    /// Goes on with a remote disk; whether it is there.
    fn reached(&mut self, title: &str, reaching: Reaching) -> Result<bool, RunError> {
        match self.go_on(reaching)? {
            Reached::There(disk) => {
                self.disks.insert(disk.config.name.clone(), disk);
                Ok(true)
            }
            Reached::NotYet(reaching) => {
                if let Some(failed) = self.failed.things.get_mut(title) {
                    failed.reaching = Some(reaching);
                }
                Ok(false)
            }
        }
    }

    /// Lets go of what is being reached for a failed thing.
    fn let_alone(&mut self, failed: &FailedThing) -> Result<(), RunError> {
        failed.reaching.as_ref().map_or(Ok(()), |reaching| self.give_up(reaching))
    }

    /// Begins to reach all remote disks of a start, side by side, and waits for those that are
    /// required; for the others [`wait_for_remote`](Self::wait_for_remote) does. Until then they
    /// are failed.
    pub(super) fn begin_remote(&mut self, steps: &[Step]) -> Result<(), RunError> {
        let mut required = Vec::new();
        for step in steps {
            let Step::Add(thing @ Thing::Disk(config)) = step else { continue };
            let DiskUri::Remote(uri) = &config.uri else { continue };
            let (why, reaching) = match self.begin_reaching(config, uri) {
                Ok(reaching) if config.required => {
                    required.push((config.name.clone(), reaching));
                    continue;
                }
                Ok(reaching) => ("it is being reached".to_owned(), Some(reaching)),
                Err(why) if why.is_transient() && !config.required => (why.line(), None),
                Err(why) => return Err(why),
            };
            let failed = FailedThing { thing: thing.clone(), why, is_waiting: false, reaching };
            self.failed.insert_failed(failed, Instant::now());
        }
        for (name, reaching) in required {
            let disk = self.wait_for(reaching)?;
            self.disks.insert(name, disk);
        }
        Ok(())
    }

    /// Waits until the remote disks of a start are there or failed, it is `until`, or the process is to
    /// end. What stands on them follows them.
    pub(super) fn wait_for_remote(&mut self, until: Instant) {
        loop {
            // What comes of each is told at the end of the start.
            self.try_failed(Instant::now());
            let left = until.saturating_duration_since(Instant::now());
            let waits = self.failed.reached_for().next().is_some();
            if !waits || left.is_zero() || stop::is_stopped() {
                return;
            }
            self.shards.bell().wait(left.min(PATIENCE));
        }
    }

    /// Tries a failed disk at once, because a person asked for it. Returns what came of it, if it
    /// is failed.
    pub(super) fn try_now(&mut self, disk: &str) -> Option<String> {
        let title = crate::config::disk::disk_title(disk);
        if !self.failed.contains(&title) {
            return None;
        }
        let now = Instant::now();
        self.failed.hurry(now);
        self.try_failed(now).into_iter().for_each(Event::tell);
        Some(match self.failed.things.get(&title) {
            None => format!("{title} is there and served"),
            Some(FailedThing { reaching: Some(_), .. }) => format!("{title} is being reached"),
            Some(failed) => format!("{title} is still failed: {}", failed.why),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_twice_as_far_apart_each_time_up_to_a_minute_and_end_with_the_last_failure() {
        let mut failed = FailedThings::default();
        let uri = "ram:1MiB".parse().unwrap();
        let disk = Thing::Disk(DiskConfig::plain("d0".to_owned(), uri));
        let mut now = Instant::now();
        assert!(!failed.take_due(now + PAUSE_MAX));
        failed.insert(disk.clone(), String::new(), now);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let pause = Duration::from_secs(seconds);
            assert_eq!(failed.due, Some(now + pause));
            assert!(!failed.take_due(now + pause - Duration::from_millis(1)));
            now += pause;
            assert!(failed.take_due(now));
        }
        failed.remove(&disk.title());
        assert_eq!(failed.due, None);
        // What fails then begins anew.
        failed.insert(disk, String::new(), now);
        assert_eq!(failed.due, Some(now + PAUSE_MIN));
    }
}
