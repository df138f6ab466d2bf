//! A pseudowire: a wire between two circuits that the network imitates.
//!
//! It is named by the label that its own end gave it, the bottom one of the packets that come, and
//! by how they come: by which port, and in which tunnel. A packet that comes otherwise is somebody
//! else's, or forged, whatever its bottom label. Labels are given by the end that receives, so the
//! same number on two routers means two things.
//! Units: frames, and their bytes from the destination address on. Errors: a pseudowire without a way
//! to come, or with too many; its label or circuit is another's. Spec: RFC 3985, RFC 4385, RFC 4448;
//! that the tunnel is looked at is ours.

use core::fmt;

use block::planted;
use contract::{LinkId, counters};
use wire::clamp::Clamp;
use wire::mpls::Label;
use wire::sequence::Numbers;

use crate::ftn::Fec;
use crate::limits::ORIGINS_MAX;
use crate::nhlfe::NhlfeId;
use crate::protection::Way;
use crate::refused::Refused;
use crate::sequencing::{Receiver, Sender, Sequencing};
use crate::verdict::{DropReason, Drops};

/// The number of a pseudowire, given by whoever configured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PseudowireId(pub u32);

impl fmt::Display for PseudowireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pseudowire {}", self.0)
    }
}

/// A way by which a pseudowire's packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The core port.
    pub port: LinkId,
    /// The label right above the pseudowire's; `None` where the router before popped it, so that
    /// the port alone tells who sent them.
    pub tunnel: Option<Label>,
    /// By which of the other end's paths they come so.
    pub way: Way,
}

/// A pseudowire's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pseudowire {
    /// Which frames go by it.
    pub fec: Fec,
    /// Our label, with which packets come.
    pub label_in: Label,
    /// The other end's, with which they are sent.
    pub label_out: Label,
    /// All ways by which packets come.
    pub origins: Vec<Origin>,
    /// The path by which they are sent: its labels go on top of the pseudowire's.
    pub nhlfe: NhlfeId,
    /// The path by which they are sent while that one fails.
    pub backup: Option<NhlfeId>,
    /// What is done with sequence numbers; `None` is a pseudowire without a control word. The same
    /// at the other end.
    pub control_word: Option<Sequencing>,
    /// What is lowered in its frames, of both directions, so that those that they ask for fit.
    pub clamp: Option<Clamp>,
}

impl Pseudowire {
    /// Whether it can be as it is.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        if self.label_out.is_special() {
            return Err(Refused::Special(self.label_out));
        }
        match self.origins.len() {
            1..=ORIGINS_MAX => Ok(()),
            count => Err(Refused::Origins(count)),
        }
    }

    /// The NHLFE of a path.
    pub fn nhlfe_of(&self, way: Way) -> Option<NhlfeId> {
        match way {
            Way::Primary => Some(self.nhlfe),
            Way::Backup => self.backup,
        }
    }

    /// Checks that a packet came as this pseudowire's do; by which of the other end's paths.
    #[inline]
    pub(crate) fn check_origin(
        &self,
        port: LinkId,
        tunnel: Option<Label>,
    ) -> Result<Way, DropReason> {
        let is_by_port = |origin: &&Origin| origin.port == port || planted("port-is-not-looked-at");
        let mut by_port = self.origins.iter().filter(is_by_port).peekable();
        if by_port.peek().is_none() {
            return Err(DropReason::WrongPort);
        }
        match by_port.find(|origin| origin.tunnel == tunnel) {
            Some(origin) => Ok(origin.way),
            None if planted("tunnel-is-not-looked-at") => Ok(Way::Primary),
            None => Err(DropReason::WrongTunnel),
        }
    }
}

counters! {
    /// What went through a pseudowire, by way of this end.
    pub struct PseudowireCounters {
        /// Frames that were sent to the other end.
        sent: Frames,
        /// Their bytes.
        sent_bytes: Bytes,
        /// Frames of the other end that were delivered.
        delivered: Frames,
        /// Their bytes.
        delivered_bytes: Bytes,
        /// Messages of the associated channel that came.
        channel_messages: Frames,
        /// Those that were sent.
        channel_messages_sent: Frames,
        /// Frames in which a count was lowered, so that those that are asked for fit.
        clamped: Frames,
    }
}

/// A pseudowire as the router has it.
#[derive(Debug)]
pub(crate) struct PseudowireState {
    pub(crate) pseudowire: Pseudowire,
    /// The path that its frames take.
    pub(crate) way: Way,
    /// The largest frame that each path takes, where that is less than its port's MTU says.
    pub(crate) narrows: [Option<u32>; 2],
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) counters: PseudowireCounters,
    /// Of both directions, as far as they were known to be its frames.
    pub(crate) drops: Drops,
}

impl PseudowireState {
    pub(crate) fn new(pseudowire: Pseudowire) -> Self {
        Self {
            pseudowire,
            way: Way::Primary,
            narrows: [None; 2],
            sender: Sender::new(Numbers::PSEUDOWIRE),
            receiver: Receiver::new(Numbers::PSEUDOWIRE),
            counters: PseudowireCounters::default(),
            drops: Drops::default(),
        }
    }

    /// Takes another value; counters stay, and so does what is known of sequence numbers, since
    /// frames of before may still be on their way. Numbers that were ignored so far are not known,
    /// nor those of another circuit's frames, of which those that wait reach none.
    pub(crate) fn renew(&mut self, pseudowire: Pseudowire) {
        let is_another = pseudowire.fec.circuit != self.pseudowire.fec.circuit;
        if is_another && !planted("waiting-frames-follow-the-circuit") {
            self.drops.no_circuit += self.receiver.begin_for_another(Numbers::PSEUDOWIRE);
        } else if pseudowire.control_word != self.pseudowire.control_word
            || planted("renewal-forgets-the-sequence")
        {
            self.receiver.begin_anew(Numbers::PSEUDOWIRE);
        }
        if pseudowire.backup.is_none() && !planted("way-outlives-its-path") {
            self.way = Way::Primary;
        }
        self.pseudowire = pseudowire;
    }
}
