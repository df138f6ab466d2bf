//! Probes of watched pseudowires: how large frames their paths carry is asked when a path comes up,
//! when its frames take it, and when what was promised or the next hop is another; and the probes of
//! the other end are answered.
//!
//! ```text
//!   Ethernet | tunnel labels | pseudowire's label, S | 0001 0000 7ff8 | probe, padded
//! ```
//! Promised is the largest frame of the circuit: its MTU and a header, and a tag where the circuit is
//! split by VLAN; or, of a pseudowire that ends in this process, the largest one that the port takes. A
//! path that is not up is not asked. A request is answered by the path of the same name as that by
//! which it came, whether anything is watched here or not, and an answer counts if it came by that
//! path. What is found goes three ways: to [`crate::protection`], to the router, which lowers by it what
//! frames ask for, and to virtual links, whose MTU it is.
//! Units: bytes of a frame from its destination address on. Errors: messages that are none are passed
//! over. Spec: none; see [`wire::probe`].

use block::Instant;
use wire::classify::Classifier;
use wire::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};
use wire::probe::{Probe, ProbeKind};
use wire::pseudowire::{AssociatedChannelHeader, ChannelType};

use super::watch::{Event, Narrow, PathProof};
use super::{Forwarder, Port};
use crate::change::{PortKind, RouterId};
use crate::probe::{Prober, Proof, Question};
use crate::protection::{Fit, Way};
use crate::pseudowire::PseudowireId;

/// A path of a pseudowire of a router.
type Key = (RouterId, PseudowireId, Way);

/// What is known of a path.
pub(super) fn report(prober: &Prober) -> Option<PathProof> {
    let promised = prober.question()?.promised;
    Some(PathProof { promised, proof: prober.proof(), is_asked: prober.is_searching() })
}

impl Forwarder {
    /// What a path is to be asked; `None`: it is not there, or nobody was promised anything.
    fn question(&self, (router, id, way): Key) -> Option<Question> {
        let router = &self.routers.get(router.0)?.router;
        let (pseudowire, _) = router.pseudowire(id)?;
        let nhlfe = *router.nhlfe_taken(pseudowire.nhlfe_of(way)?)?;
        let room = router.room(id, way)?;
        let Port { kind, facts, .. } = self.ports.get(pseudowire.fec.circuit.0)?;
        let promised = match kind {
            PortKind::Circuit { classifier, .. } => {
                let is_tagged = *classifier == Some(Classifier::Vlan);
                let tag = if is_tagged { VLAN_TAG_SIZE } else { 0 };
                (*facts)?.mtu.saturating_add((HEADER_SIZE + tag) as u32)
            }
            _ => room,
        };
        Some(Question { nhlfe, promised, ceiling: promised.min(room) })
    }

    /// A path came up, or is taken.
    pub(super) fn probe_anew(&mut self, now: Instant, key: Key) {
        let (router, id, way) = key;
        let Some(question) = self.question(key) else { return };
        let Some(watched) = self.watched.get_mut(&(router, id)) else { return };
        if watched.protection.is_up(way) {
            watched.probers[way as usize].ask(now, question, &mut self.random);
            self.ask_and_tell(now, key);
        }
    }

    /// A path is not up any more.
    pub(super) fn probe_no_more(&mut self, now: Instant, key: Key) {
        let (router, id, way) = key;
        let Some(watched) = self.watched.get_mut(&(router, id)) else { return };
        watched.probers[way as usize].stop();
        self.ask_and_tell(now, key);
        self.find_next_probe();
    }

    /// Paths of a pseudowire are asked again if what they are asked is another.
    pub(super) fn renew_probes(&mut self, now: Instant, router: RouterId, id: PseudowireId) {
        for way in Way::BOTH {
            let key = (router, id, way);
            let Some(question) = self.question(key) else { continue };
            let Some(watched) = self.watched.get(&(router, id)) else { continue };
            if watched.probers[way as usize].question() != Some(&question) {
                self.probe_anew(now, key);
            }
        }
    }

    /// The same of all pseudowires of a router.
    pub(super) fn renew_all_probes(&mut self, now: Instant, router: RouterId) {
        let its = self.watched.range((router, PseudowireId(0))..=(router, PseudowireId(u32::MAX)));
        let its: Vec<PseudowireId> = its.map(|((_, id), _)| *id).collect();
        its.into_iter().for_each(|id| self.renew_probes(now, router, id));
    }

    /// Nothing is known any more of a pseudowire's paths.
    pub(super) fn forget_probes(&mut self, router: RouterId, id: PseudowireId) {
        if let Some(routed) = self.routers.get_mut(router.0) {
            Way::BOTH.into_iter().for_each(|way| routed.router.set_narrow(id, way, None));
        }
        self.find_next_probe();
    }

    /// Sends the requests that a path is due, and has what is known of it told and used.
    fn ask_and_tell(&mut self, now: Instant, key: Key) {
        let (router, id, way) = key;
        let Some(watched) = self.watched.get_mut(&(router, id)) else { return };
        let prober = &mut watched.probers[way as usize];
        let mut due = Vec::new();
        while let Some(request) = prober.handle_timeout(now, &mut self.random) {
            due.push(request);
        }
        let (proof, is_asked) = (prober.proof(), prober.is_searching());
        let news = prober.poll_news();
        self.next_probe = Instant::earliest(self.next_probe, prober.poll_timeout());
        let (fit, narrow) = match proof {
            Proof::Nothing => (Fit::Unknown, None),
            Proof::Whole => (Fit::Carries, None),
            Proof::Only(fits) => (Fit::TooNarrow, Some(fits)),
        };
        let moved = watched.protection.handle_fit(now, way, fit, is_asked);
        due.iter().for_each(|request| self.send_probe(now, key, request));
        self.events.extend(news.map(|(fits, promised)| match fits < promised {
            true => (router, Event::Narrow(id, way, Narrow { fits, promised })),
            false => (router, Event::Whole(id, way, promised)),
        }));
        if let Some(routed) = self.routers.get_mut(router.0) {
            routed.router.set_narrow(id, way, narrow);
            self.look_at_virtual_links();
        }
        if let Some(way) = moved {
            self.take_way(now, router, id, way);
        }
        self.find_next_move();
    }

    /// A message leaves by a path, as long as it says.
    fn send_probe(&mut self, now: Instant, (router, id, way): Key, message: &Probe) {
        let header = AssociatedChannelHeader { channel_type: ChannelType::MTU_PROBE };
        let mut bytes = message.emit().to_vec();
        if message.kind == ProbeKind::REQUEST {
            bytes.resize(message.length as usize, 0);
        }
        let Some(routed) = self.routers.get_mut(router.0) else { return };
        if let Some(port) = routed.router.channel(id, way, header, bytes.len()) {
            self.due.put_first(&mut self.ports, now, port, [routed.router.front(), &bytes]);
        }
    }

    /// A probe came, or the answer to one.
    pub(super) fn handle_probe(&mut self, now: Instant, key: Key, message: &[u8]) {
        let Ok(probe) = Probe::receive(message) else { return };
        if probe.kind == ProbeKind::REQUEST {
            return self.send_probe(now, key, &probe.answer());
        }
        let (router, id, way) = key;
        let Some(watched) = self.watched.get_mut(&(router, id)) else { return };
        let prober = &mut watched.probers[way as usize];
        if prober.handle_answer(now, &probe, &mut self.random) {
            self.ask_and_tell(now, key);
        }
    }

    /// Moments at which requests leave, or are taken for lost, may have come.
    pub(super) fn probe_when_due(&mut self, now: Instant) {
        if self.next_probe.is_none_or(|at| at > now) {
            return;
        }
        let is_due = |prober: &Prober| prober.poll_timeout().is_some_and(|at| at <= now);
        let due: Vec<Key> = self
            .watched
            .iter()
            .flat_map(|((router, id), watched)| {
                Way::BOTH.map(|way| ((*router, *id, way), &watched.probers[way as usize]))
            })
            .filter(|(_, prober)| is_due(prober))
            .map(|(key, _)| key)
            .collect();
        due.into_iter().for_each(|key| self.ask_and_tell(now, key));
        self.find_next_probe();
    }

    fn find_next_probe(&mut self) {
        let probers = self.watched.values().flat_map(|watched| &watched.probers);
        self.next_probe = probers.filter_map(Prober::poll_timeout).min();
    }
}
