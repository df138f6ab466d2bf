//! How often events of one kind are told: some at once, then one now and then, and what was left
//! out is counted in the next that is told, or, where none follows, in the last that was not.
//!
//! What a stranger does is bounded by a key that he cannot invent, the address that he has. Of
//! those so many are remembered, and whoever comes on top of them shares what others have.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use contract::{DiskId, LinkId};
use shard::{RouterId, Subject};

use crate::log::Event;

/// Events that may be left out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Connections that were closed, of an address.
    Peer(IpAddr),
    /// Hosts of an address that come and go.
    Host(IpAddr),
    /// Hosts of an address that are refused.
    Refusal(IpAddr),
    Warnings,
    /// Changes of the configuration, done or not.
    Applies,
    /// Each disk has its own, and what its target's network says hides nothing of what it does.
    Import(DiskId),
    Disk(DiskId),
    Errors(DiskId),
    Link(LinkId),
    /// States of groups of listeners.
    Paths,
    /// What becomes of a thing of a router's.
    Routed(RouterId, Subject),
    /// Where the next hop of a link's with this address is.
    NextHop(LinkId, IpAddr),
    /// Stations of a link that are refused.
    Stations(LinkId),
}

/// So many events of a key are told at once ...
pub(super) const BURST: u32 = 10;
/// ... and then one for each of these.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// The same of a host that comes and goes, to many exports.
const HOST_BURST: u32 = 50;
/// The same of errors of one disk.
const ERRORS_BURST: u32 = 5;
pub(super) const ERRORS_EVERY: Duration = Duration::from_secs(10);
/// Addresses that have an allowance of their own for what they do wrong, ...
const STRANGERS_MAX: usize = 64;
/// ... and as hosts: a machine room that starts anew is told whole.
const HOSTS_MAX: usize = 1024;

impl Key {
    fn allowance(self, now: Instant) -> Allowance {
        match self {
            Key::Host(_) => Allowance::new(HOST_BURST, EVERY, now),
            Key::Errors(_) => Allowance::new(ERRORS_BURST, ERRORS_EVERY, now),
            _ => Allowance::new(BURST, EVERY, now),
        }
    }

    /// Of a key that is an address: how many of its kind are remembered, and what the rest share.
    fn strangers(self) -> Option<(usize, Key)> {
        let rest = IpAddr::from([0, 0, 0, 0]);
        Some(match self {
            Key::Peer(_) => (STRANGERS_MAX, Key::Peer(rest)),
            Key::Host(_) => (HOSTS_MAX, Key::Host(rest)),
            Key::Refusal(_) => (STRANGERS_MAX, Key::Refusal(rest)),
            _ => return None,
        })
    }
}

/// The network that somebody with this address cannot leave: of IPv6 he has as many addresses as
/// he likes.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
        address @ IpAddr::V4(_) => address,
    }
}

/// What may be told.
#[derive(Debug, Default)]
pub(super) struct Limits {
    allowances: BTreeMap<Key, Allowance>,
    /// When what was left out is told if nothing like it follows.
    due: Option<Instant>,
    /// When those that are quiet were forgotten.
    swept: Option<Instant>,
}

impl Limits {
    /// The event with what was left out before it, unless it is left out itself; `untold` like it
    /// were left out before by somebody else.
    pub(super) fn take(
        &mut self,
        key: Key,
        untold: u64,
        event: Event,
        now: Instant,
    ) -> Option<Event> {
        let key = self.known(key, now);
        let allowance = self.allowances.entry(key).or_insert_with(|| key.allowance(now));
        allowance.left_out += untold;
        let told = allowance.take(now, event);
        if told.is_none() {
            self.due.get_or_insert(now + EVERY);
        }
        told
    }

    /// The key under which this is counted.
    fn known(&mut self, key: Key, now: Instant) -> Key {
        let Some((most, rest)) = key.strangers() else { return key };
        let is_full = |limits: &Limits| {
            let alike =
                |other: &&Key| std::mem::discriminant(*other) == std::mem::discriminant(&key);
            limits.allowances.keys().filter(alike).count() >= most
        };
        if self.allowances.contains_key(&key) || !is_full(self) {
            return key;
        }
        if self.swept.is_none_or(|at| now >= at + EVERY) {
            self.swept = Some(now);
            self.allowances.retain(|key, one| key.strangers().is_none() || !one.is_quiet(now));
        }
        if is_full(self) { rest } else { key }
    }

    /// When [`left_out`](Self::left_out) wants to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The last of each kind that was left out and that nothing like it followed, once it may be
    /// told.
    pub(super) fn left_out(&mut self, now: Instant) -> Vec<Event> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let told = self.allowances.values_mut().filter_map(|one| one.take_left_out(now)).collect();
        let is_more = self.allowances.values().any(|one| one.last.is_some());
        self.due = is_more.then_some(now + EVERY);
        told
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.allowances.len()
    }

    pub(super) fn forget(&mut self, key: Key) {
        self.allowances.remove(&key);
    }
}

/// What may be told of one key.
#[derive(Debug)]
struct Allowance {
    burst: u32,
    every: Duration,
    left: u32,
    refilled: Instant,
    left_out: u64,
    /// The last that was left out.
    last: Option<Event>,
}

impl Allowance {
    /// `burst` events at once, and one more for each `every` that passes.
    fn new(burst: u32, every: Duration, now: Instant) -> Allowance {
        Allowance { burst, every, left: burst, refilled: now, left_out: 0, last: None }
    }

    fn refill(&mut self, now: Instant) {
        while self.left < self.burst && now >= self.refilled + self.every {
            self.left += 1;
            self.refilled += self.every;
        }
        if self.left == self.burst {
            self.refilled = now;
        }
    }

    fn is_quiet(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left == self.burst && self.left_out == 0
    }

    fn take(&mut self, now: Instant, event: Event) -> Option<Event> {
        self.refill(now);
        let Some(left) = self.left.checked_sub(1) else {
            self.left_out += 1;
            self.last = Some(event);
            return None;
        };
        (self.left, self.last) = (left, None);
        Some(event.and_more(std::mem::take(&mut self.left_out)))
    }

    /// The last that was left out, with those before it.
    fn take_left_out(&mut self, now: Instant) -> Option<Event> {
        let last = self.last.take()?;
        self.left_out -= 1;
        self.take(now, last)
    }
}
