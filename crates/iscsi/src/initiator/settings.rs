//! Where a remote disk is, and how it is to be used. Units: times as `Duration`. What cannot be had
//! is clamped by the initiator: the target may grant less.

use core::time::Duration;
use std::net::SocketAddr;

use contract::Poll;
use wire::iscsi::{Digests, IscsiName};

use crate::auth::{Challenges, Login};
use crate::limits::INITIATOR_SESSIONS_MAX;

/// How we prove who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    pub login: Login,
    /// Of these come the challenges for the target, should it have to prove something; each port
    /// (ISID) makes others of them. Of random bytes that are not used for another import.
    pub challenges: Challenges,
}

/// Where a remote disk is and how it is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the target listens; tried one after the other, starting over with each break.
    pub addresses: Vec<SocketAddr>,
    pub target: IscsiName,
    /// The logical unit.
    pub lun: u16,
    /// Sessions with the target, of one connection each; it may admit fewer.
    pub sessions: u16,
    /// Commands outstanding on each at most; the target's window may be smaller.
    pub depth: u16,
    /// Digests to insist on.
    pub digests: Digests,
    /// Who we say we are.
    pub initiator: IscsiName,
    /// Which of our ports the first session has: no two sessions of ours with one target may have
    /// the same, and a session that comes back has the one that it had. The lower bits of its fifth
    /// byte, in which the session's number is put, are zero ([`SESSION_BITS`]).
    pub isid: [u8; 6],
    /// How we prove who we are, if we are asked; and that the target does, too.
    pub auth: Option<Auth>,
    /// A target that says nothing for half of it is asked for a sign of life, and given up after
    /// the whole. Zero for never.
    pub keep_alive: Duration,
    /// A request that was not answered after so long ends.
    pub deadline: Duration,
    /// From the closing of a session's connection until its commands are surely dead.
    pub quiesce: Duration,
    /// The first session must stand after so long.
    pub connect_deadline: Duration,
    /// How long to look for answers before sleeping.
    pub poll: Poll,
}

/// Bits of an ISID's fifth byte that are the number of the session.
pub const SESSION_BITS: u8 = (INITIATOR_SESSIONS_MAX - 1) as u8;

const _: () = assert!(INITIATOR_SESSIONS_MAX.is_power_of_two() && INITIATOR_SESSIONS_MAX <= 128);

impl Settings {
    /// The ISID of a session, from 0 on.
    pub(super) fn isid_of(&self, session: u16) -> [u8; 6] {
        let [.., number, _] = self.isid;
        assert!(
            number & SESSION_BITS == 0 && session < INITIATOR_SESSIONS_MAX,
            "session {session} has no room in ISID {:02x?}",
            self.isid
        );
        let mut isid = self.isid;
        isid[4] |= session as u8;
        isid
    }

    /// Usual settings: one session of 128 commands, both digests, keep-alive 5 s, deadline 60 s, quiesce 30 s, the
    /// first session within 10 s.
    ///
    /// Quiesce: a target ends what a session left when its initiator port logs in again, but none
    /// other than ours is known to wait for its disks before it says so. Half of what a disk may
    /// take before it is stuck is long for a disk and short for a deadline; a target that needs
    /// longer to stop its disks needs a longer time here.
    pub fn new(
        address: SocketAddr,
        target: IscsiName,
        lun: u16,
        initiator: IscsiName,
        isid: [u8; 6],
    ) -> Settings {
        Settings {
            addresses: vec![address],
            target,
            lun,
            sessions: 1,
            depth: 128,
            digests: Digests { header: true, data: true },
            initiator,
            isid,
            auth: None,
            keep_alive: Duration::from_secs(5),
            deadline: Duration::from_secs(60),
            quiesce: Duration::from_secs(30),
            connect_deadline: Duration::from_secs(10),
            poll: Poll::default(),
        }
    }
}
