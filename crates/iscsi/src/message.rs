//! What the targets of one shard tell another's about sessions, carried as mail that is first in,
//! first out between two shards.
//!
//! A session lives on the shard of its connection, and its initiator port may have another one
//! anywhere: an older one ends, and nothing of it is below any more, before a login is answered
//! (RFC 7143, 6.3.5).
//!
//! ```text
//!  new session's shard                 every other shard
//!       | ----- NexusAsk --------------> |   ends sessions of this nexus
//!       | <---- NexusAnswer ------------ |   once they have drained, at the latest after
//!                                            REINSTATEMENT_HOLD
//!  shard of a reset's request          every other shard
//!       | ----- ResetAsk --------------> |   tasks of the unit end
//!       | <---- ResetAnswer ------------ |   once none of them is below
//!
//!  shard of a MODE SELECT, or          every other shard
//!  each shard that a reset reaches
//!       | ----- ModeSet ---------------> |   the unit is so for its sessions, too
//!       | <---- ModeAnswer ------------- |   at once
//! ```

use block::{ShardId, Slot};
use scsi::ModeState;

use crate::targets::Wanted;
use crate::targets::reset::Scope;

/// What one shard's targets tell another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A host logs in: end what it has with this nexus, and answer once nothing of it is below.
    NexusAsk {
        /// The asker's mark, given back.
        ask: Slot,
        wanted: Box<Wanted>,
    },
    /// The answer.
    NexusAnswer {
        /// The asker's mark.
        ask: Slot,
        found: Found,
    },
    /// A host has reset a unit or a target: end its tasks, and answer once none of them is below.
    ResetAsk {
        /// The asker's mark, given back.
        ask: Slot,
        scope: Box<Scope>,
    },
    /// The answer.
    ResetAnswer {
        /// The asker's mark.
        ask: Slot,
    },
    /// A host has set how a unit is to be, whatever its LUN and target.
    ModeSet {
        /// The unit, as its volume's UUID.
        uuid: [u8; 16],
        mode: ModeState,
        stamp: ModeStamp,
        /// The asker's, given back.
        number: u64,
    },
    /// The answer.
    ModeAnswer {
        /// The asker's.
        number: u64,
    },
}

/// Which of several settings of a unit is the last: how many there were before, and the shard of its host.
pub(crate) type ModeStamp = (u64, ShardId);

/// What a shard has of a nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// No session.
    Nothing,
    /// There was one, it has ended and drained.
    Ended,
    /// There is one, with another connection.
    Another,
    /// There is one that still drains, or somebody else is about to begin one; or the shard has just
    /// begun, and has not all of its configuration.
    Busy,
}
