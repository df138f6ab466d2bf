//! The way of a packet with labels: switched by the top one, or popped down to the pseudowire that
//! ends here.
//!
//! ```text
//!   top label -> its entry:  forward      -> NHLFE, other labels in its place; nothing below is read
//!                            pop          -> the tunnel ends here: look up the one below
//!                            pseudowire   -> `ler`, if it is the bottom
//!                            withdrawn    -> dropped
//! ```
//! Each entry that is looked at has a hop left, or the packet is dropped; no message tells its sender,
//! who is behind a pseudowire. Of special labels explicit null alone is popped, and only by a port
//! where tunnels end so. Units: bytes from the label stack on. Errors: packets are dropped and
//! counted. Spec: RFC 3031, RFC 3032 clauses 2.1 and 2.4, RFC 3443, RFC 7274.

use core::mem;

use block::{IdMap, Instant, planted};
use contract::{Fetch, LinkId};
use wire::mpls::{Label, LabelStackEntry};

use crate::ftn::Wire;
use crate::ilm::{Action, Ilm, IlmEntry, State};
use crate::limits::DEPTH_MAX;
use crate::port::{Core, PortState, Role};
use crate::router::Router;
use crate::verdict::{DropReason, Verdict};

impl Router {
    /// What is done with a packet, from its label stack on, that came to this station by a core
    /// port. One that came by any other port is dropped, whatever its labels.
    #[inline]
    pub fn handle_labelled<'a>(
        &mut self,
        now: Instant,
        port: LinkId,
        packet: &'a [u8],
    ) -> Verdict<'a> {
        match self.forward(now, port, packet) {
            Ok(verdict) => verdict,
            Err(reason) => self.drop_frame(port, reason),
        }
    }

    /// A packet, from its label stack on, comes soon: what is known of its top label is fetched meanwhile, in two
    /// steps, as another one is told of. Nothing is counted, and whatever it is may still turn out to be no packet.
    #[inline]
    pub(crate) fn fetch(&mut self, fetch: Fetch, packet: &[u8]) {
        if !self.labels.is_large() {
            return;
        }
        let Ok((entry, _)) = LabelStackEntry::pop(packet) else { return };
        self.labels.fetch_place(fetch, entry.label);
        let next = mem::replace(&mut self.fetched, entry.label);
        if let Some(id) = self.labels.fetch_entry(fetch, next)
            && let Some(to) = self.nhlfes.place(id.0)
        {
            fetch.of(to);
        }
    }

    /// Pops labels until one says where the packet goes.
    #[inline]
    fn forward<'a>(
        &mut self,
        now: Instant,
        port: LinkId,
        packet: &'a [u8],
    ) -> Result<Verdict<'a>, DropReason> {
        self.front.clear();
        let core = enter(&mut self.ports, port, packet.len())?;
        let (mut rest, mut tunnel) = (packet, None);
        for depth in 0..DEPTH_MAX {
            let (entry, below) = LabelStackEntry::pop(rest).map_err(|_| DropReason::Truncated)?;
            if entry.label.is_special() {
                check_explicit_null(core, &entry)?;
            } else {
                // A label of the port's own stands on top; whoever put one below it is no neighbour.
                let own = if depth == 0 { self.port_labels.get_mut(port.0) } else { None };
                let (known, state) = look_up(own, &mut self.labels, now, entry.label, rest.len())?;
                let next = match (entry.outgoing_ttl(), state) {
                    (_, State::Withdrawn { .. }) => Err(DropReason::Quarantined),
                    (None, _) => Err(DropReason::TtlExpired),
                    (Some(ttl), State::Lsp(Action::Forward(id))) => {
                        let id = self.repairs.taken(&self.nhlfes, id);
                        match self.nhlfes.get_mut(id.0) {
                            Some(to) => {
                                let (ports, front) = (&mut self.ports, &mut self.front);
                                to.switch(ports, front, &entry, ttl, below).map(Some)
                            }
                            None => Err(DropReason::NoNextHop),
                        }
                    }
                    (_, State::Lsp(Action::Pop)) if entry.is_bottom => {
                        Err(DropReason::BottomPopped)
                    }
                    (_, State::Lsp(Action::Pop)) => Ok(None),
                    (_, State::Pseudowire(id)) => {
                        let end = &mut self.pseudowires[id.0];
                        let came = (port, tunnel, entry.is_bottom);
                        let left = end.leave(now, &mut self.ports, id, came, below);
                        if matches!(left, Ok(Verdict::Wait)) {
                            self.early.put(Wire::Pseudowire(id));
                        }
                        left.map(Some)
                    }
                };
                match next {
                    Ok(None) => {}
                    Ok(Some(verdict)) => {
                        let State::Pseudowire(id) = state else { return Ok(verdict) };
                        return Ok(self.clamp(id, verdict));
                    }
                    Err(reason) => {
                        known.counters.dropped += 1;
                        return Err(reason);
                    }
                }
            }
            (rest, tunnel) = (below, Some(entry.label));
        }
        Err(DropReason::TooDeep)
    }
}

/// A packet comes by a port, which must be of the core.
#[inline]
fn enter(ports: &mut IdMap<PortState>, port: LinkId, bytes: usize) -> Result<Core, DropReason> {
    let state = ports.get_mut(port.0).ok_or(DropReason::NotCore)?;
    let core = match state.role {
        Role::Core(core) => core,
        Role::Circuit(_) if planted("labels-of-customers-are-looked-up") => Core::default(),
        Role::Circuit(_) | Role::Tunnels { .. } => return Err(DropReason::NotCore),
    };
    state.count_received(bytes);
    Ok(core)
}

/// Finds a label, among those of the port first.
#[inline]
fn look_up<'t>(
    own: Option<&'t mut Ilm>,
    platform: &'t mut Ilm,
    now: Instant,
    label: Label,
    bytes: usize,
) -> Result<(&'t mut IlmEntry, State), DropReason> {
    if let Some(own) = own {
        match own.find(now, label, bytes) {
            Err(DropReason::UnknownLabel) => {}
            found => return found,
        }
    }
    platform.find(now, label, bytes)
}

/// Of special labels explicit null may be popped, where tunnels end with it and something is below.
#[cold]
fn check_explicit_null(core: Core, entry: &LabelStackEntry) -> Result<(), DropReason> {
    entry.check().map_err(|_| DropReason::ReservedLabel)?;
    match entry.label {
        Label::IPV4_EXPLICIT_NULL | Label::IPV6_EXPLICIT_NULL => {}
        _ => return Err(DropReason::SpecialLabel),
    }
    if !core.takes_explicit_null {
        return Err(DropReason::ExplicitNull);
    }
    if entry.is_bottom {
        return Err(DropReason::BottomPopped);
    }
    entry.outgoing_ttl().map(drop).ok_or(DropReason::TtlExpired)
}
