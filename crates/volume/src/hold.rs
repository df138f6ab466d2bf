//! Holds: a change that must be one step across shards (compare-and-write) stops all other changes
//! of its range for as long as it takes.
//!
//! ```text
//!   asker                 owner of the volume             every shard (asker and owner too)
//!     |--- HoldAsk ---------->|  waits for holds that overlap
//!     |                       |--- Hold ------------------->|  no new change of the range is submitted;
//!     |                       |<------------- HoldReady ----|  answered when none is in flight
//!     |<-- HoldGranted -------|  when all are ready
//!     |  compares, writes     |
//!     |--- Release ---------->|--- Release ---------------->|  what waited goes on
//! ```
//!
//! [`Server`] is the owner's side and [`Held`] each shard's. What waits for a hold is not in
//! flight, so two holds never wait for each other's waiters: an owner grants overlapping holds one
//! after the other, in the order asked.

use block::{Extent, Request, planted};

use crate::message::HoldId;

/// The owner's side: which holds stand, and which wait for them.
#[derive(Debug, Default)]
pub struct Server {
    standing: Vec<Standing>,
    waiting: Vec<(HoldId, Extent)>,
}

#[derive(Debug)]
struct Standing {
    hold: HoldId,
    extent: Extent,
    unready: u16,
}

impl Server {
    /// A shard asks for a hold. Returns whether the hold begins now: then every shard is to be
    /// told.
    pub fn ask(&mut self, hold: HoldId, extent: Extent, shards: u16) -> bool {
        let blocked = self.standing.iter().any(|other| other.extent.overlaps(extent))
            || self.waiting.iter().any(|(_, other)| other.overlaps(extent));
        if blocked {
            self.waiting.push((hold, extent));
            return false;
        }
        self.standing.push(Standing { hold, extent, unready: shards });
        true
    }

    /// A shard has nothing of the range in flight. Returns whether the hold now stands everywhere.
    pub fn ready(&mut self, hold: HoldId) -> bool {
        let Some(standing) = self.standing.iter_mut().find(|standing| standing.hold == hold) else {
            return false;
        };
        standing.unready = standing.unready.saturating_sub(1);
        standing.unready == 0
    }

    /// The asker made its change. Returns the holds that begin now, for every shard to be told.
    pub fn release(&mut self, hold: HoldId, shards: u16) -> Vec<(HoldId, Extent)> {
        self.standing.retain(|standing| standing.hold != hold);
        let mut begun = Vec::new();
        for (hold, extent) in core::mem::take(&mut self.waiting) {
            if self.ask(hold, extent, shards) {
                begun.push((hold, extent));
            }
        }
        begun
    }
}

/// A shard's side: the holds that stand here, and the requests that wait for them.
#[derive(Debug, Default)]
pub struct Held {
    holds: Vec<Here>,
    waiting: Vec<Request>,
}

#[derive(Debug)]
struct Here {
    hold: HoldId,
    extent: Extent,
    /// The number that the next request in flight had when the hold began.
    since: u64,
    in_flight: u32,
}

impl Held {
    /// Whether a change of `extent` has to wait. Usually no hold stands.
    #[inline]
    pub fn blocks(&self, extent: Extent) -> bool {
        self.holds.iter().any(|here| here.extent.overlaps(extent))
    }

    /// Lets a request wait for the holds that block it.
    pub fn wait(&mut self, request: Request) {
        self.waiting.push(request);
    }

    /// A hold begins while `in_flight` overlapping changes, all numbered before `since`, are in
    /// flight. Returns whether it is ready at once.
    pub fn begin(&mut self, hold: HoldId, extent: Extent, since: u64, in_flight: u32) -> bool {
        self.holds.push(Here { hold, extent, since, in_flight });
        in_flight == 0 || planted("hold-stands-early")
    }

    /// A change of `extent`, numbered `number`, came back. Returns the holds that have nothing in
    /// flight any more.
    #[inline]
    pub fn came_back(&mut self, extent: Extent, number: u64) -> Vec<HoldId> {
        let mut ready = Vec::new();
        for here in &mut self.holds {
            if number < here.since && here.in_flight > 0 && here.extent.overlaps(extent) {
                here.in_flight -= 1;
                if here.in_flight == 0 {
                    ready.push(here.hold);
                }
            }
        }
        ready
    }

    /// A hold ends; returns what waited, to be handled again in its order.
    pub fn end(&mut self, hold: HoldId) -> Vec<Request> {
        self.holds.retain(|here| here.hold != hold);
        if planted("who-waits-for-a-hold-is-forgotten") {
            return Vec::new();
        }
        core::mem::take(&mut self.waiting)
    }

    /// The requests that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &Request> {
        self.waiting.iter()
    }

    /// The requests that wait, when the volume goes away.
    pub fn drain(&mut self) -> Vec<Request> {
        core::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::ShardId;

    fn hold(number: u64) -> HoldId {
        HoldId { shard: ShardId(0), number }
    }

    #[test]
    fn overlapping_holds_stand_one_after_the_other_in_order() {
        let mut server = Server::default();
        assert!(server.ask(hold(1), Extent::new(0, 100), 2));
        assert!(!server.ask(hold(2), Extent::new(50, 100), 2));
        // It overlaps only what waits, and must not overtake it.
        assert!(!server.ask(hold(3), Extent::new(140, 100), 2));
        assert!(server.ask(hold(4), Extent::new(500, 1), 2));
        assert!(!server.ready(hold(1)));
        assert!(server.ready(hold(1)));
        let begun = server.release(hold(1), 2);
        assert_eq!(begun.iter().map(|(hold, _)| hold.number).collect::<Vec<_>>(), [2]);
        let begun = server.release(hold(2), 2);
        assert_eq!(begun.iter().map(|(hold, _)| hold.number).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_hold_is_ready_when_what_was_below_came_back() {
        let mut held = Held::default();
        assert!(!held.begin(hold(1), Extent::new(0, 4096), 7, 2));
        assert_eq!(held.came_back(Extent::new(0, 512), 5), []);
        // The asker's own write, numbered after the hold began, does not count.
        assert_eq!(held.came_back(Extent::new(0, 512), 7), []);
        assert_eq!(held.came_back(Extent::new(512, 512), 6), [hold(1)]);
    }
}
