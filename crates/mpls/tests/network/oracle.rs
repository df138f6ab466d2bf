//! What customers may hear: what was sent into the other end of the same wire, byte for byte and,
//! where frames are numbered, each at most once and none behind one that was sent later. And what they
//! have to hear: frames of which somebody who knows the network says so when they are sent.
//!
//! A frame is known by all of its bytes, so one that was altered, or taken out of another, is one
//! that nobody sent.

use std::collections::BTreeMap;

use block::Instant;
use contract::LinkId;

use super::customers::number_in;

/// What became of the frames of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) channel_messages: u64,
    /// Frames that came before others.
    pub(crate) waited: u64,
    /// Frames that had to come out.
    pub(crate) promised: u64,
}

struct Sent {
    to: LinkId,
    is_sequenced: bool,
    number: u64,
}

/// A frame that has to come out.
struct Promise {
    at: Instant,
    to: LinkId,
    why: String,
}

#[derive(Default)]
pub(super) struct Oracle {
    sent: BTreeMap<Vec<u8>, Sent>,
    /// The number of the last one that was delivered, by circuit.
    last: BTreeMap<LinkId, u64>,
    /// By the number that the frame has in it.
    promises: BTreeMap<u64, Promise>,
    pub(super) tally: Tally,
    /// The first promise that was broken.
    pub(super) broken: Option<String>,
}

impl Oracle {
    /// A frame went into the other end of the wire that ends at `to`.
    pub(super) fn sent(&mut self, to: LinkId, is_sequenced: bool, frame: &[u8]) {
        self.tally.sent += 1;
        let number = self.tally.sent;
        let before = self.sent.insert(frame.to_vec(), Sent { to, is_sequenced, number });
        assert!(before.is_none(), "frames are told from each other");
    }

    /// A frame that was sent has to come out.
    pub(super) fn promise(&mut self, at: Instant, to: LinkId, frame: &[u8], why: String) {
        let number = number_in(frame).expect("it is a customer's");
        self.promises.insert(number, Promise { at, to, why });
        self.tally.promised += 1;
    }

    /// What has to come out at a circuit, or at all, and was sent since this moment, may be lost.
    pub(super) fn excuse(&mut self, since: Instant, only: Option<LinkId>) {
        let promised = &mut self.tally.promised;
        self.promises.retain(|_, promise| {
            let is_excused = promise.at >= since && only.is_none_or(|only| only == promise.to);
            *promised -= u64::from(is_excused);
            !is_excused
        });
    }

    /// A link lost a packet, or some of what it made of it.
    pub(super) fn lost(&mut self, packet: &[u8]) {
        if let Some(number) = number_in(packet) {
            self.promises.remove(&number);
        }
    }

    /// A frame came out.
    pub(super) fn delivered(&mut self, circuit: LinkId, frame: &[u8]) {
        self.tally.delivered += 1;
        let Some(Sent { to, is_sequenced, number }) = self.sent.get(frame) else {
            return self.broke(format!("{circuit} heard what nobody sent: {frame:02x?}"));
        };
        if *to != circuit {
            return self.broke(format!("{circuit} heard frame {number}, which was for {to}"));
        }
        let last = self.last.insert(circuit, *number).unwrap_or(0);
        if *is_sequenced && last >= *number {
            return self.broke(format!("{circuit} heard frame {number} after {last}"));
        }
        if let Some(number) = number_in(frame) {
            self.promises.remove(&number);
        }
    }

    /// Nothing that was sent before this moment is on its way.
    pub(super) fn settle(&mut self, before: Instant) {
        let lost = self.promises.iter().find(|(_, promise)| promise.at < before);
        if let Some((number, Promise { at, to, why })) = lost {
            let at = core::time::Duration::from_nanos(at.0);
            self.broke(format!("frame {number} for {to}, sent at {at:?}, was lost: {why}"));
        }
    }

    /// The number of the last frame that came out of a circuit.
    pub(super) fn last(&self, circuit: LinkId) -> u64 {
        self.last.get(&circuit).copied().unwrap_or(0)
    }

    pub(super) fn broke(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}
