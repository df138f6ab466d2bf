//! What links did, and what it promises to the frames that were sent meanwhile.

use core::time::Duration;
use std::collections::BTreeMap;

use block::Instant;

use super::{D, HOPS, LINKS, LSPS, WATCH, hop_of, link, routers_of};

/// After which a failure is known to whoever sends: the detection time at the other end, who says so at
/// once, and what is on its way.
const DETECTED: Duration = Duration::from_millis(300);
/// By when two who hear each other again are Up: three packets, one a second.
const UP_AGAIN: Duration = Duration::from_secs(4);

/// What became of the frames of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    /// Of those sent, the ones that had to arrive while a hop of theirs was down.
    pub(crate) promised: u64,
    /// Frames that went around a hop.
    pub(crate) around: u64,
}

/// A link, as whoever breaks it knows it.
#[derive(Clone, Copy)]
struct Known {
    is_whole: bool,
    /// Since when it is as it is; at first for ever.
    since: Instant,
    /// It was down for long enough to be found out, before it was whole.
    was_found: bool,
}

#[derive(Clone, Copy)]
struct Sent {
    lsp: usize,
    /// It has to come out.
    is_promised: bool,
}

pub(super) struct Oracle {
    links: [Known; LINKS.len()],
    changed_at: Instant,
    sent: BTreeMap<u64, Sent>,
    pub(super) tally: Tally,
    /// The first promise that was broken.
    pub(super) broken: Option<String>,
}

impl Oracle {
    pub(super) fn new() -> Self {
        let known = Known { is_whole: true, since: Instant(0), was_found: false };
        Self {
            links: [known; LINKS.len()],
            changed_at: Instant(0),
            sent: BTreeMap::new(),
            tally: Tally::default(),
            broken: None,
        }
    }

    /// A link fails or comes back, or fails in another way.
    pub(super) fn changed(&mut self, now: Instant, number: usize, is_whole: bool) {
        self.changed_at = now;
        let before = self.links[number];
        let was_found = match (before.is_whole, is_whole) {
            (false, true) => now.since(before.since) > DETECTED,
            _ => before.was_found,
        };
        let since = if before.is_whole == is_whole { before.since } else { now };
        self.links[number] = Known { is_whole, since, was_found };
    }

    fn is_whole_for(&self, now: Instant, number: usize, time: Duration) -> bool {
        let Known { is_whole, since, .. } = self.links[number];
        is_whole && (since == Instant(0) || now.since(since) >= time)
    }

    /// Whether a hop is taken as it is.
    fn is_taken(&self, now: Instant, [here, there]: [usize; 2]) -> bool {
        self.is_whole_for(now, link(here, there), UP_AGAIN + WATCH.revert_after)
    }

    /// Whether the way around a hop is whole, and whoever takes it knows that.
    fn goes_around(&self, now: Instant, [here, there]: [usize; 2]) -> bool {
        self.is_whole_for(now, link(here, D), UP_AGAIN) && self.links[link(D, there)].is_whole
    }

    /// Whether a hop is whole, and whoever takes it knows of no way around it.
    fn has_no_other(&self, now: Instant, [here, there]: [usize; 2]) -> bool {
        let Known { is_whole, since, .. } = self.links[link(here, D)];
        self.links[link(here, there)].is_whole && !is_whole && now.since(since) > DETECTED
    }

    /// A frame is sent; its number.
    pub(super) fn sent(&mut self, now: Instant, lsp: usize) -> u64 {
        self.tally.sent += 1;
        let number = self.tally.sent;
        let [first, second, third] = routers_of(lsp);
        let hops = [[first, second], [second, third]];
        let passes = |hop: &[usize; 2]| {
            let hop = *hop;
            self.is_taken(now, hop) || self.goes_around(now, hop) || self.has_no_other(now, hop)
        };
        let is_settled = self.changed_at == Instant(0) || now.since(self.changed_at) > DETECTED;
        let is_promised = is_settled && hops.iter().all(passes);
        let is_repaired = hops.iter().any(|hop| !self.links[link(hop[0], hop[1])].is_whole);
        self.tally.promised += u64::from(is_promised && is_repaired);
        self.sent.insert(number, Sent { lsp, is_promised });
        number
    }

    /// A frame of a path leaves a router towards another one, on a link.
    pub(super) fn went(&mut self, now: Instant, [here, there]: [usize; 2], is_around: bool) {
        if is_around {
            self.tally.around += 1;
            return;
        }
        let known = self.links[link(here, there)];
        let is_early = known.was_found
            && known.is_whole
            && now.since(known.since) < WATCH.revert_after
            && self.is_whole_for(now, link(here, D), UP_AGAIN + WATCH.revert_after);
        if is_early {
            let waited = now.since(known.since);
            self.broke(format!("{here} sends to {there} again after {waited:?}"));
        }
    }

    /// A frame of a path goes around a hop.
    pub(super) fn went_around(&mut self, now: Instant, hop: usize) {
        self.went(now, HOPS[hop], true);
        if self.is_taken(now, HOPS[hop]) {
            let [here, there] = HOPS[hop];
            self.broke(format!("{here} goes around to {there}, which it hears"));
        }
    }

    /// A frame came out as one of a path.
    pub(super) fn delivered(&mut self, lsp: usize, number: u64) {
        self.tally.delivered += 1;
        match self.sent.remove(&number) {
            Some(sent) if sent.lsp == lsp => {}
            Some(Sent { lsp: of, .. }) => {
                self.broke(format!("frame {number} of path {of} came out of {lsp} of {LSPS}"));
            }
            None => self.broke(format!("frame {number} came out twice, or was never sent")),
        }
    }

    /// Nothing is on its way any more.
    pub(super) fn drained(&mut self, now: Instant) {
        let lost = core::mem::take(&mut self.sent);
        if let Some((number, sent)) = lost.iter().find(|(_, sent)| sent.is_promised) {
            let whole = self.links.map(|known| (known.is_whole, now.since(known.since)));
            let [first, second, _] = routers_of(sent.lsp);
            let hop = hop_of(first, second);
            self.broke(format!(
                "frame {number} of path {}, {hop} first, was lost: {whole:?}",
                sent.lsp
            ));
        }
    }

    pub(super) fn broke(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}
