//! How things are with a router: its tables and what was counted at each, as values.
//!
//! A report is a copy, for people; it is as long as the tables are. Units: those of the counters. No
//! errors.

use block::Instant;
use contract::{LinkFacts, LinkId};
use wire::mpls::Label;

use crate::change::{PortKind, RouterId};
use crate::forwarder::{NeighbourReport, QueueCounters, WatchReport};
use crate::ilm::{IlmCounters, Owner, State};
use crate::nhlfe::{Nhlfe, NhlfeCounters, NhlfeId};
use crate::port::PortCounters;
use crate::protection::Way;
use crate::pseudowire::{Pseudowire, PseudowireCounters, PseudowireId};
use crate::router::{Router, Space};
use crate::sequencing::SequenceCounters;
use crate::tunnel::{Tunnel, TunnelCounters, TunnelId};
use crate::verdict::Drops;

/// A router.
#[derive(Clone, Debug)]
pub struct RouterReport {
    pub router: RouterId,
    /// By number.
    pub ports: Vec<PortReport>,
    /// Where packets go, by number; a path whose port was never up is not here.
    pub nhlfes: Vec<NhlfeReport>,
    /// By number.
    pub neighbours: Vec<NeighbourReport>,
    /// The labels of the platform, then those of each port, in their order.
    pub labels: Vec<LabelReport>,
    pub pseudowires: Vec<PseudowireReport>,
    /// By number.
    pub tunnels: Vec<TunnelReport>,
    /// Of frames by ports that are not there.
    pub strays: Drops,
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortReport {
    pub link: LinkId,
    pub kind: PortKind,
    /// `None`: it is down.
    pub facts: Option<LinkFacts>,
    pub counters: PortCounters,
    pub queue: QueueCounters,
    /// What was recorded last.
    pub bins: Option<Bins>,
    pub drops: Drops,
}

/// What a port did in each millisecond of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bins {
    /// Bytes that left.
    pub bytes: Vec<u32>,
    /// The most frames that waited whenever one more came.
    pub queued: Vec<u32>,
}

/// An NHLFE.
#[derive(Clone, Copy, Debug)]
pub struct NhlfeReport {
    pub id: NhlfeId,
    pub nhlfe: Nhlfe,
    pub counters: NhlfeCounters,
    /// Whether its packets take it, or its backup.
    pub way: Way,
}

/// A label of the incoming label map.
#[derive(Clone, Copy, Debug)]
pub struct LabelReport {
    pub space: Space,
    pub label: Label,
    pub owner: Owner,
    pub state: State,
    pub counters: IlmCounters,
}

/// A pseudowire.
#[derive(Clone, Debug)]
pub struct PseudowireReport {
    pub id: PseudowireId,
    pub pseudowire: Pseudowire,
    pub counters: PseudowireCounters,
    pub sequence: SequenceCounters,
    pub drops: Drops,
    /// `None`: it is not watched.
    pub watch: Option<WatchReport>,
}

/// A tunnel.
#[derive(Clone, Copy, Debug)]
pub struct TunnelReport {
    pub id: TunnelId,
    pub tunnel: Tunnel,
    pub counters: TunnelCounters,
    pub sequence: SequenceCounters,
    pub drops: Drops,
}

impl RouterReport {
    pub(crate) fn new(
        now: Instant,
        id: RouterId,
        router: &Router,
        ports: Vec<PortReport>,
        neighbours: Vec<NeighbourReport>,
        watch: impl Fn(PseudowireId) -> Option<WatchReport>,
    ) -> Self {
        let mut labels = Vec::new();
        let spaces = ports.iter().map(|port| Space::Port(port.link));
        for space in core::iter::once(Space::Platform).chain(spaces) {
            let known = router.labels(space).into_iter().flat_map(|labels| labels.iter());
            // One whose quarantine is over is nobody's, whether its entry is still there or not.
            let known = known.filter(
                |(_, entry)| !matches!(entry.state, State::Withdrawn { until } if until <= now),
            );
            labels.extend(known.map(|(label, entry)| LabelReport {
                space,
                label,
                owner: entry.owner,
                state: entry.state,
                counters: entry.counters,
            }));
        }
        let pseudowires =
            router.pseudowires().map(|(id, pseudowire, counters, sequence, drops)| {
                let (counters, sequence, drops) = (*counters, *sequence, *drops);
                let (pseudowire, watch) = (pseudowire.clone(), watch(id));
                PseudowireReport { id, pseudowire, counters, sequence, drops, watch }
            });
        let tunnels = router.tunnels().map(|(id, tunnel, counters, sequence, drops)| {
            let (counters, sequence, drops) = (*counters, *sequence, *drops);
            TunnelReport { id, tunnel: *tunnel, counters, sequence, drops }
        });
        let nhlfes = router.nhlfes().map(|(id, nhlfe, counters, way)| NhlfeReport {
            id,
            nhlfe: *nhlfe,
            counters: *counters,
            way,
        });
        Self {
            router: id,
            nhlfes: nhlfes.collect(),
            neighbours,
            labels,
            pseudowires: pseudowires.collect(),
            tunnels: tunnels.collect(),
            strays: *router.strays(),
            ports,
        }
    }
}
