//! Where a remote disk is, and how it is to be used. Units: times as `Duration`. What cannot be had
//! is clamped by the initiator: the target may grant less.

use core::time::Duration;
use std::net::SocketAddr;

use contract::Poll;
use wire::nvme::Nqn;
use wire::nvme_tcp::Digests;

/// Where a remote disk is and how it is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the target listens; tried one after the other, starting over with each break.
    pub addresses: Vec<SocketAddr>,
    pub subsystem: Nqn,
    /// The namespace.
    pub nsid: u32,
    /// I/O queues, at most; the target may grant fewer.
    pub queues: u16,
    /// Commands outstanding on each, at most.
    pub depth: u16,
    /// Digests to insist on.
    pub digests: Digests,
    /// Who we say we are.
    pub host: Nqn,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// KATO: the target gives us up after so long without a word, and we it. Zero for never.
    pub keep_alive: Duration,
    /// A request that was not answered after so long ends.
    pub deadline: Duration,
    /// From the closing of the last connection of an association until its commands are surely
    /// dead.
    pub quiesce: Duration,
    /// The first connection must stand after so long.
    pub connect_deadline: Duration,
    /// How long to look for answers before sleeping.
    pub poll: Poll,
}

impl Settings {
    /// Usual settings: 2 queues of 128 commands, both digests, KATO 5 s, deadline 60 s, quiesce 2
    /// KATO, first connection within 10 s.
    ///
    /// Quiesce: a target that hears nothing gives us up after KATO; a command that the network held
    /// back until just before that gives it another KATO. A target that needs longer to stop its
    /// disks needs a longer time here.
    pub fn new(
        address: SocketAddr,
        subsystem: Nqn,
        nsid: u32,
        host: Nqn,
        host_id: [u8; 16],
    ) -> Settings {
        let keep_alive = Duration::from_secs(5);
        Settings {
            addresses: vec![address],
            subsystem,
            nsid,
            queues: 2,
            depth: 128,
            digests: Digests { header: true, data: true },
            host,
            host_id,
            keep_alive,
            deadline: Duration::from_secs(60),
            quiesce: keep_alive * 2,
            connect_deadline: Duration::from_secs(10),
            poll: Poll::default(),
        }
    }
}
