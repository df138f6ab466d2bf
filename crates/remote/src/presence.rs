//! Whether a remote disk is there, what is known of it, what is to become of requests that wait for
//! it, and the words in which people are told.

use core::fmt::Display;
use std::collections::VecDeque;

use block::{ByteCount, Failure, Instant};
use contract::DiskFacts;

use crate::disk::Disk;

/// What people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorNews {
    /// The disk is there, for the first time or again.
    Connected,
    /// It is not, for this reason.
    Lost(String),
    /// One of several ways to it is missing, as told here; it is reached by the others.
    WayLost(String),
    /// All ways to it are there.
    WayFound,
    /// It is not as it was: its size, for one.
    FactsChanged,
    /// It is reached, and cannot be used any more, for this reason.
    Unusable(String),
    /// Somebody who says that he is the disk is not, as told here.
    Refused(String),
}

/// Whether the disk can be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Not at present: what waits goes on waiting.
    #[default]
    Away,
    Here,
    /// Whoever serves it is there, and says that there is no such disk: what waits ends.
    Gone,
}

/// What is known of a remote disk.
#[derive(Debug)]
pub struct Presence {
    reach: Reach,
    facts: Option<DiskFacts>,
    /// Why the disk is not there, or not by one of its ways.
    pub fault: String,
    /// Whether it would be the same if it were tried again, by the word of whoever serves it.
    pub is_refused: bool,
    closing: bool,
    draining: bool,
    pub news: VecDeque<InitiatorNews>,
}

impl Default for Presence {
    fn default() -> Presence {
        Presence {
            reach: Reach::Away,
            facts: None,
            fault: "no answer yet".to_owned(),
            is_refused: false,
            closing: false,
            draining: false,
            news: VecDeque::new(),
        }
    }
}

impl Presence {
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// What is known of the disk: `None` until it was there for the first time.
    pub fn facts(&self) -> Option<&DiskFacts> {
        self.facts.as_ref()
    }

    /// What the disk says of itself.
    pub fn set_facts(&mut self, facts: DiskFacts) {
        if self.facts.as_ref().is_some_and(|known| *known != facts) {
            self.news.push_back(InitiatorNews::FactsChanged);
        }
        self.facts = Some(facts);
    }

    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Why requests that wait are not to wait any longer, if so.
    #[inline]
    pub(crate) fn ends_waiting(&self) -> Option<Failure> {
        match self.reach {
            Reach::Here => None,
            Reach::Gone => Some(Failure::Removed),
            Reach::Away if self.closing => Some(Failure::Removed),
            Reach::Away => self.draining.then_some(Failure::NotReady),
        }
    }

    /// How it is that `what` (how the disk is sought, and where) is not there, in words.
    pub fn explain(&self, what: impl Display) -> String {
        format!("{what}: {}", self.fault)
    }

    /// News of a disk at `address` in words; `state` is how it is now.
    pub fn tell(&self, news: &InitiatorNews, address: impl Display, state: impl Display) -> String {
        let size = self.facts.as_ref().map_or(ByteCount(0), |facts| facts.size);
        match news {
            InitiatorNews::Connected => format!("{state}, {size}"),
            InitiatorNews::Lost(why) => format!("lost {address}: {why}"),
            InitiatorNews::FactsChanged => format!("changed: it has {size:#} now"),
            InitiatorNews::Unusable(why) => format!("cannot be used any more: {why}"),
            InitiatorNews::WayFound => state.to_string(),
            InitiatorNews::WayLost(why) | InitiatorNews::Refused(why) => why.clone(),
        }
    }
}

impl<W: Default> Disk<W> {
    /// The disk answers.
    pub fn came(&mut self) {
        if core::mem::replace(&mut self.presence.reach, Reach::Here) == Reach::Away {
            self.presence.news.push_back(InitiatorNews::Connected);
        }
    }

    /// The disk does not answer any more, for the last fault that was told.
    pub fn lost(&mut self) {
        let Presence { closing, ref fault, .. } = self.presence;
        if core::mem::take(&mut self.presence.reach) != Reach::Away && !closing {
            let news = InitiatorNews::Lost(fault.clone());
            self.presence.news.push_back(news);
        }
        self.hurry();
    }

    /// There is no such disk any more.
    pub fn gone(&mut self, why: String) {
        self.presence.reach = Reach::Gone;
        self.presence.news.push_back(InitiatorNews::Unusable(why));
        self.hurry();
    }

    /// What can be finished is finished, and nothing new is taken.
    pub fn close(&mut self) {
        self.presence.closing = true;
        self.wake_at(Instant::ZERO);
    }

    /// What can be done while the disk is there is done, but nobody waits for it.
    pub fn drain(&mut self) {
        self.presence.draining = true;
        self.hurry();
    }

    fn hurry(&mut self) {
        if self.presence.ends_waiting().is_some() {
            self.wake_at(Instant::ZERO);
        }
    }
}
