//! A router: its ports and its tables, and how these are changed.
//!
//! One type is both kinds of router, since what is done with a packet is up to its label: what is
//! switched makes it an LSR, circuits and pseudowires make it an LER.
//!
//! Order of calls: `set_*` and `remove_*` at any time, `handle_labelled` with what comes by a core
//! port, `handle_circuit` with what comes by a circuit, `handle_tunnelled` with what comes by a port
//! of tunnels. Entries are set whole, one by one. One that is
//! set again keeps its counters and, of a pseudowire, what is known of sequence numbers, so what did
//! not change may be set again in the midst of traffic. Entries refer to each other by number and
//! need not be there: what refers to one that is not drops and counts.
//! Units: those of the tables; `now` is a moment on the shard's clock. Errors: [`Refused`], after
//! which nothing is changed; numbers beyond `limits` are our own mistake. Spec: RFC 3031.

use core::time::Duration;
use std::collections::BTreeMap;

use block::{IdMap, Instant, planted};
use contract::LinkId;
use wire::Front;
use wire::mpls::{Label, LabelStackEntry};
use wire::pseudowire::ControlWord;
use wire::sequence::Numbers;

use crate::ftn::{Fec, Ftn, Wire};
use crate::ilm::{Action, FecId, Ilm, Owner, State};
use crate::limits::{
    FRONT_MAX, NHLFES_MAX, PORTS_MAX, PSEUDOWIRES_MAX, QUARANTINE_DEFAULT, TUNNELS_MAX,
};
use crate::nhlfe::{Nhlfe, NhlfeCounters, NhlfeId, NhlfeState};
use crate::port::{PortCounters, PortState, Role};
use crate::protection::Way;
use crate::pseudowire::{Pseudowire, PseudowireCounters, PseudowireId, PseudowireState};
use crate::refused::Refused;
use crate::repair::{Hops, Repairs};
use crate::sequencing::SequenceCounters;
use crate::tunnel::{SessionKey, Tunnel, TunnelCounters, TunnelId, TunnelState};
use crate::verdict::{DropReason, Drops, Verdict};

/// A label space: where a label means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// On all core ports; those of pseudowires are there (RFC 8077 clause 3).
    Platform,
    /// On one core port, on top of a packet. There it goes before one of the platform.
    Port(LinkId),
}

/// What has frames that came early, and when the next of them waits no longer.
#[derive(Debug, Default)]
pub(crate) struct EarlyWires {
    wires: Vec<Wire>,
    next: Option<Instant>,
}

impl EarlyWires {
    /// One has such a frame.
    #[cold]
    pub(crate) fn put(&mut self, wire: Wire) {
        if !self.wires.contains(&wire) {
            self.wires.push(wire);
        }
    }
}

/// A label switching router, at the edge of its network or within.
#[derive(Debug)]
pub struct Router {
    pub(crate) ports: IdMap<PortState>,
    /// The labels of the platform.
    pub(crate) labels: Ilm,
    /// Those of ports, by port.
    pub(crate) port_labels: IdMap<Ilm>,
    pub(crate) nhlfes: IdMap<NhlfeState>,
    pub(crate) repairs: Repairs,
    pub(crate) pseudowires: IdMap<PseudowireState>,
    pub(crate) tunnels: IdMap<TunnelState>,
    /// By which of them a packet of a port is.
    pub(crate) sessions: BTreeMap<(LinkId, SessionKey), TunnelId>,
    pub(crate) ftn: Ftn,
    pub(crate) early: EarlyWires,
    /// What goes in front of the frame that is handled.
    pub(crate) front: Front<FRONT_MAX>,
    /// The label whose place was fetched last.
    pub(crate) fetched: Label,
    quarantine: Duration,
    /// Of frames by ports that are not there.
    strays: Drops,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            ports: IdMap::default(),
            labels: Ilm::default(),
            port_labels: IdMap::default(),
            nhlfes: IdMap::default(),
            repairs: Repairs::default(),
            pseudowires: IdMap::default(),
            tunnels: IdMap::default(),
            sessions: BTreeMap::new(),
            ftn: Ftn::default(),
            early: EarlyWires::default(),
            front: Front::new(),
            fetched: Label::MAX,
            quarantine: QUARANTINE_DEFAULT,
            strays: Drops::default(),
        }
    }
}

impl Router {
    /// What goes in front of the frame of which the last verdict says that it is sent, or of the message
    /// for which a port was found.
    #[inline]
    pub fn front(&self) -> &[u8] {
        &self.front
    }

    /// How long labels that are withdrawn from now on are nobody's.
    pub fn set_quarantine(&mut self, quarantine: Duration) {
        self.quarantine = quarantine;
    }

    /// There is a port, or it is for something else now.
    pub fn set_port(&mut self, port: LinkId, role: Role) {
        assert!(port.0 < PORTS_MAX, "{port} is none of {PORTS_MAX}");
        match self.ports.get_mut(port.0) {
            Some(state) => state.role = role,
            None => drop(self.ports.insert(port.0, PortState::new(role))),
        }
    }

    /// There is no such port any more; the labels of its own are forgotten with it.
    pub fn remove_port(&mut self, port: LinkId) {
        self.ports.remove(port.0);
        self.port_labels.remove(port.0);
        self.repairs.set_hops(port, Hops::default());
    }

    /// Where packets go.
    pub fn set_nhlfe(&mut self, id: NhlfeId, nhlfe: Nhlfe) {
        assert!(id.0 < NHLFES_MAX, "{id:?} is none of {NHLFES_MAX}");
        let was_unresolved = self.nhlfe(id).is_some_and(|before| before.next_hop.is_unresolved());
        self.repairs.set_resolved(was_unresolved, nhlfe.next_hop.is_unresolved());
        match self.nhlfes.get_mut(id.0) {
            Some(state) => state.nhlfe = nhlfe,
            None => {
                let counters = NhlfeCounters::default();
                self.nhlfes.insert(id.0, NhlfeState { nhlfe, counters });
            }
        }
    }

    pub fn remove_nhlfe(&mut self, id: NhlfeId) {
        let before = self.nhlfes.remove(id.0);
        let was_unresolved = before.is_some_and(|one| one.nhlfe.next_hop.is_unresolved());
        self.repairs.set_resolved(was_unresolved, false);
        self.repairs.set_backup(id, None);
    }

    /// Packets of an NHLFE take this one while its next hop is not Up, or none does in its place.
    pub fn set_backup(&mut self, id: NhlfeId, backup: Option<NhlfeId>) {
        self.repairs.set_backup(id, backup);
    }

    /// Whether any NHLFE has a backup.
    pub fn has_backups(&self) -> bool {
        self.repairs.has_backups()
    }

    /// Which next hops of a port are Up. Those of a port of which nothing was said are.
    pub fn set_hops(&mut self, port: LinkId, hops: Hops) {
        self.repairs.set_hops(port, hops);
    }

    /// What is done with packets of a FEC, which come with this label. Panics if the space is that of
    /// a port that is not there.
    pub fn set_label(
        &mut self,
        now: Instant,
        space: Space,
        label: Label,
        fec: FecId,
        action: Action,
    ) -> Result<(), Refused> {
        if let Space::Port(port) = space {
            assert!(self.ports.get(port.0).is_some(), "{port} is not there, and has no labels");
            if self.port_labels.get(port.0).is_none() {
                self.port_labels.insert(port.0, Ilm::default());
            }
        }
        let ilm = self.labels_mut(space).expect("it is there or was just made");
        let owner = Owner::Fec(fec);
        ilm.check(now, label, owner)?;
        ilm.assign(now, label, owner, State::Lsp(action));
        Ok(())
    }

    /// A label is taken from its FEC, and nobody's for the quarantine.
    pub fn withdraw_label(&mut self, now: Instant, space: Space, label: Label, fec: FecId) {
        let until = now + self.quarantine;
        if let Some(ilm) = self.labels_mut(space) {
            ilm.withdraw(now, label, Owner::Fec(fec), until);
        }
    }

    /// There is a pseudowire, or it is another way now. A label that it had and has no more is
    /// withdrawn. For another circuit it needs another label, since frames for the one before may
    /// still come.
    pub fn set_pseudowire(
        &mut self,
        now: Instant,
        id: PseudowireId,
        pseudowire: Pseudowire,
    ) -> Result<(), Refused> {
        assert!(id.0 < PSEUDOWIRES_MAX, "{id} is none of {PSEUDOWIRES_MAX}");
        let Pseudowire { fec, label_in, .. } = pseudowire;
        let owner = Owner::Pseudowire(id, fec.circuit);
        pseudowire.check()?;
        self.labels.check(now, label_in, owner)?;
        self.ftn.check(fec, Wire::Pseudowire(id))?;
        if let Some(PseudowireState { pseudowire: before, .. }) = self.pseudowires.get(id.0) {
            if before.label_in != label_in {
                let owner = Owner::Pseudowire(id, before.fec.circuit);
                self.labels.withdraw(now, before.label_in, owner, now + self.quarantine);
            }
            self.ftn.remove(before.fec);
        }
        self.labels.assign(now, label_in, owner, State::Pseudowire(id));
        self.ftn.insert(fec, Wire::Pseudowire(id));
        match self.pseudowires.get_mut(id.0) {
            Some(state) => state.renew(pseudowire),
            None => drop(self.pseudowires.insert(id.0, PseudowireState::new(pseudowire))),
        }
        Ok(())
    }

    /// There is no such pseudowire any more; its label is withdrawn.
    pub fn remove_pseudowire(&mut self, now: Instant, id: PseudowireId) {
        let Some(PseudowireState { pseudowire, .. }) = self.pseudowires.remove(id.0) else {
            return;
        };
        let Pseudowire { fec, label_in, .. } = pseudowire;
        let until = now + self.quarantine;
        self.labels.withdraw(now, label_in, Owner::Pseudowire(id, fec.circuit), until);
        self.ftn.remove(fec);
    }

    /// There is a tunnel, or it is another way now.
    pub fn set_tunnel(&mut self, id: TunnelId, tunnel: Tunnel) -> Result<(), Refused> {
        assert!(id.0 < TUNNELS_MAX, "{id} is none of {TUNNELS_MAX}");
        let key = tunnel.session.key();
        tunnel.check()?;
        if let Some(by) = self.sessions.get(&(tunnel.port, key)).filter(|by| **by != id) {
            return Err(Refused::SessionTaken { key, by: *by });
        }
        self.ftn.check(tunnel.fec, Wire::Tunnel(id))?;
        if let Some(TunnelState { tunnel: before, .. }) = self.tunnels.get(id.0) {
            self.sessions.remove(&(before.port, before.session.key()));
            self.ftn.remove(before.fec);
        }
        self.sessions.insert((tunnel.port, key), id);
        self.ftn.insert(tunnel.fec, Wire::Tunnel(id));
        match self.tunnels.get_mut(id.0) {
            Some(state) => state.renew(tunnel),
            None => drop(self.tunnels.insert(id.0, TunnelState::new(tunnel))),
        }
        Ok(())
    }

    /// There is no such tunnel any more.
    pub fn remove_tunnel(&mut self, id: TunnelId) {
        let Some(TunnelState { tunnel, .. }) = self.tunnels.remove(id.0) else { return };
        self.sessions.remove(&(tunnel.port, tunnel.session.key()));
        self.ftn.remove(tunnel.fec);
    }

    /// Frames of a pseudowire take this path from now on. Those on their way may come behind them,
    /// and are late then.
    pub fn take_way(&mut self, id: PseudowireId, way: Way) {
        if let Some(state) = self.pseudowires.get_mut(id.0) {
            state.way = way;
            if planted("move-forgets-the-sequence") {
                state.receiver.begin_anew(Numbers::PSEUDOWIRE);
            }
        }
    }

    /// The largest frame that a path of a pseudowire takes, as was found on the way; `None`: none that
    /// its port sends was too large, as far as is known.
    pub fn set_narrow(&mut self, id: PseudowireId, way: Way, narrow: Option<u32>) {
        if let Some(state) = self.pseudowires.get_mut(id.0) {
            state.narrows[way as usize] = narrow;
        }
    }

    /// The largest frame, from its destination address on, that the port of a path of a pseudowire
    /// takes; `None`: there is no such path now.
    pub fn room(&self, id: PseudowireId, way: Way) -> Option<u32> {
        let state = self.pseudowires.get(id.0)?;
        let nhlfe = self.nhlfe_taken(state.pseudowire.nhlfe_of(way)?)?;
        let word = if state.pseudowire.control_word.is_some() { ControlWord::SIZE } else { 0 };
        let labels = (nhlfe.labels.as_slice().len() + 1) * LabelStackEntry::SIZE;
        nhlfe.mtu.checked_sub((labels + word) as u32)
    }

    /// The same of the whole path that its frames take, as far as is known.
    pub fn fits(&self, id: PseudowireId) -> Option<u32> {
        let PseudowireState { way, narrows, .. } = self.pseudowires.get(id.0)?;
        let room = self.room(id, *way)?;
        Some(narrows[*way as usize].map_or(room, |narrow| narrow.min(room)))
    }

    /// The other end of a pseudowire began anew, as was learnt in another way than by its numbers:
    /// what comes next is taken, whatever its number.
    pub fn follow_anew(&mut self, id: PseudowireId) {
        if let Some(state) = self.pseudowires.get_mut(id.0) {
            state.receiver.begin_anew(Numbers::PSEUDOWIRE);
        }
    }

    /// The other end of a pseudowire is heard of for the first time, and may have begun since frames
    /// came last.
    pub fn doubt(&mut self, id: PseudowireId) {
        if let Some(state) = self.pseudowires.get_mut(id.0) {
            state.receiver.doubt();
        }
    }

    /// The next frame that came before others and is delivered by a circuit now, until there is none:
    /// to be called after each `handle_*` and `set_*`, before the next, and at
    /// [`poll_timeout`](Self::poll_timeout).
    #[inline]
    pub fn poll_early(&mut self, now: Instant) -> Option<(LinkId, Vec<u8>)> {
        if self.early.wires.is_empty() { None } else { self.take_early(now) }
    }

    #[cold]
    fn take_early(&mut self, now: Instant) -> Option<(LinkId, Vec<u8>)> {
        let ports = &mut self.ports;
        let mut index = 0;
        self.early.next = None;
        while let Some(wire) = self.early.wires.get(index).copied() {
            let (taken, receiver) = match wire {
                Wire::Pseudowire(id) => match self.pseudowires.get_mut(id.0) {
                    Some(state) => (state.take_early(now, ports), Some(&state.receiver)),
                    None => (None, None),
                },
                Wire::Tunnel(id) => match self.tunnels.get_mut(id.0) {
                    Some(state) => (state.take_early(now, ports), Some(&state.receiver)),
                    None => (None, None),
                },
            };
            if let Some((circuit, mut frame)) = taken {
                self.clamp_early(wire, &mut frame);
                return Some((circuit, frame));
            }
            match receiver.and_then(|receiver| receiver.waiting().poll_timeout()) {
                Some(at) => {
                    self.early.next = Instant::earliest(self.early.next, Some(at));
                    index += 1;
                }
                None => drop(self.early.wires.swap_remove(index)),
            }
        }
        None
    }

    /// When a frame that came early waits no longer.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.early.next
    }

    /// A pseudowire, and the path that its frames take.
    pub fn pseudowire(&self, id: PseudowireId) -> Option<(&Pseudowire, Way)> {
        self.pseudowires.get(id.0).map(|state| (&state.pseudowire, state.way))
    }

    /// The labels of a space: their incoming label map.
    pub fn labels(&self, space: Space) -> Option<&Ilm> {
        match space {
            Space::Platform => Some(&self.labels),
            Space::Port(port) => self.port_labels.get(port.0),
        }
    }

    fn labels_mut(&mut self, space: Space) -> Option<&mut Ilm> {
        match space {
            Space::Platform => Some(&mut self.labels),
            Space::Port(port) => self.port_labels.get_mut(port.0),
        }
    }

    /// The ports: what they are for, what went through, and what came and was dropped.
    pub fn ports(&self) -> impl Iterator<Item = (LinkId, &Role, &PortCounters, &Drops)> {
        let ports = self.ports.iter();
        ports.map(|(id, port)| (LinkId(id), &port.role, &port.counters, &port.drops))
    }

    /// The NHLFEs, what each sent, and which of it and its backup packets take now.
    pub fn nhlfes(&self) -> impl Iterator<Item = (NhlfeId, &Nhlfe, &NhlfeCounters, Way)> {
        self.nhlfes.iter().map(|(id, NhlfeState { nhlfe, counters })| {
            let way = self.repairs.way(&self.nhlfes, NhlfeId(id));
            (NhlfeId(id), nhlfe, counters, way)
        })
    }

    /// Where packets with this number go; `None`: that is not known.
    pub fn nhlfe(&self, id: NhlfeId) -> Option<&Nhlfe> {
        self.nhlfes.get(id.0).map(|state| &state.nhlfe)
    }

    /// Where they go now: by it, or by its backup.
    pub fn nhlfe_taken(&self, id: NhlfeId) -> Option<&Nhlfe> {
        self.nhlfe(self.repairs.taken(&self.nhlfes, id))
    }

    /// What frames go by.
    pub fn wire_of(&self, fec: Fec) -> Option<Wire> {
        self.ftn.find(fec)
    }

    /// The pseudowires: what went through, what was seen of sequence numbers, and what was dropped.
    pub fn pseudowires(
        &self,
    ) -> impl Iterator<Item = (PseudowireId, &Pseudowire, &PseudowireCounters, &SequenceCounters, &Drops)>
    {
        self.pseudowires.iter().map(|(id, state)| {
            let PseudowireState { pseudowire, counters, receiver, drops, .. } = state;
            (PseudowireId(id), pseudowire, counters, &receiver.counters, drops)
        })
    }

    /// A tunnel.
    pub fn tunnel(&self, id: TunnelId) -> Option<&Tunnel> {
        self.tunnels.get(id.0).map(|state| &state.tunnel)
    }

    /// The tunnels: what went through, what was seen of sequence numbers, and what was dropped.
    pub fn tunnels(
        &self,
    ) -> impl Iterator<Item = (TunnelId, &Tunnel, &TunnelCounters, &SequenceCounters, &Drops)> {
        self.tunnels.iter().map(|(id, state)| {
            let TunnelState { tunnel, counters, receiver, drops, .. } = state;
            (TunnelId(id), tunnel, counters, &receiver.counters, drops)
        })
    }

    /// What came by ports that are not there.
    pub fn strays(&self) -> &Drops {
        &self.strays
    }

    /// A frame that came by a port goes nowhere.
    #[cold]
    pub(crate) fn drop_frame<'a>(&mut self, port: LinkId, reason: DropReason) -> Verdict<'a> {
        match self.ports.get_mut(port.0) {
            Some(_) if planted("drop-is-not-counted") => {}
            Some(port) => port.drops.count(reason),
            None => self.strays.count(reason),
        }
        Verdict::Drop(reason)
    }
}
