//! What customers may hear: what was sent into the other end of the same wire, byte for byte and,
//! where frames are numbered, each at most once and none behind one that was sent later.
//!
//! A frame is known by all of its bytes, so one that was altered, or taken out of another, is one
//! that nobody sent.

use std::collections::BTreeMap;

use contract::LinkId;

/// What became of the frames of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) channel_messages: u64,
    /// Frames that came before others.
    pub(crate) waited: u64,
}

struct Sent {
    to: LinkId,
    is_sequenced: bool,
    number: u64,
}

#[derive(Default)]
pub(super) struct Oracle {
    sent: BTreeMap<Vec<u8>, Sent>,
    /// The number of the last one that was delivered, by circuit.
    last: BTreeMap<LinkId, u64>,
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
            self.broke(format!("{circuit} heard frame {number} after {last}"));
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
