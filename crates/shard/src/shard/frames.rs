//! Frames: links, and those who are reached through them.
//!
//! A frame of a link that whoever carries virtual links takes goes there; what it gives back came
//! inside, on a virtual link. A frame is opened once, and goes to those of its EtherType. What is for
//! nobody is counted. An answer goes to the imports that want it, everything else to the target.
//! Batches come back by their mark: the machine that sent them, or the serial number of an import.

use std::collections::VecDeque;

use block::{Instant, MachineId, Memory};
use contract::{
    Effect, FrameBatch, InFrame, LinkFacts, LinkId, Links, Misfits, OpenedFrame, VirtualLinks,
};

use super::Shard;
use crate::carriers::{Carrier, Change, RouterId};
use crate::machine;
use crate::mail::{Mail, News};
use crate::protocols::FrameProtocol;
use crate::remote::Answered;

/// Links.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) links: Links,
    pub(super) carrier: Option<Carrier>,
}

impl Frames {
    /// Opens a frame, or the one inside it if it is of a link whose frames are carried; `None`: there
    /// is none for those who live here, which is counted.
    #[inline]
    fn open<'a>(&mut self, now: Instant, frame: &InFrame<'a>) -> Option<OpenedFrame<'a>> {
        if let Some(carrier) = &mut self.carrier
            && carrier.takes(frame.link)
        {
            return self.links.open(&carrier.receive(now, frame)?);
        }
        self.links.open(frame)
    }

    /// Puts the frames of virtual links into those that the driver sends.
    #[inline]
    fn encapsulate(&mut self, now: Instant, batch: &mut FrameBatch, memory: &dyn Memory) {
        if let Some(carrier) = &mut self.carrier {
            carrier.encapsulate(now, batch, memory);
        }
    }

    /// The same of what imports send, among all that they have the driver do.
    #[inline]
    pub(super) fn encapsulate_all(
        &mut self,
        now: Instant,
        effects: &mut VecDeque<Effect<Mail>>,
        memory: &dyn Memory,
    ) {
        if self.carrier.is_none() {
            return;
        }
        for effect in effects {
            if let Effect::SendFrames { batch, .. } = effect {
                self.encapsulate(now, batch, memory);
            }
        }
    }

    /// Frames that nobody took.
    pub(super) fn misfits(&self) -> Misfits {
        let mut all = self.links.misfits;
        if let Some(carrier) = &self.carrier {
            all += carrier.misfits();
        }
        all
    }

    /// When whoever carries virtual links wants to be called.
    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.carrier.as_ref()?.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now)
            && let Some(carrier) = &mut self.carrier
        {
            carrier.handle_timeout(now);
        }
    }
}

impl Shard {
    /// A frame came.
    #[inline]
    pub(super) fn take_frame(&mut self, now: Instant, frame: InFrame<'_>, memory: &mut dyn Memory) {
        if let Some(frame) = self.frames.open(now, &frame) {
            self.take_whole(now, &frame, memory);
        }
        self.take_received(now, memory);
    }

    /// Frames of virtual links that had to wait for others.
    #[inline]
    pub(super) fn take_received(&mut self, now: Instant, memory: &mut dyn Memory) {
        while let Some(carrier) = &mut self.frames.carrier
            && let Some((link, frame)) = carrier.poll_received()
        {
            let frame = InFrame::new(link, None, &frame);
            if let Some(frame) = self.frames.links.open(&frame) {
                self.take_whole(now, &frame, memory);
            }
        }
    }

    #[inline]
    fn take_whole(&mut self, now: Instant, frame: &OpenedFrame<'_>, memory: &mut dyn Memory) {
        match FrameProtocol::of(frame.ether_type) {
            Some(protocol) => self.take_opened(now, protocol, frame, memory),
            None => self.frames.links.misfits.other_type += 1,
        }
        if !self.volumes.outbox.has_only_requests() {
            self.route_outbox(now, memory);
        }
    }

    /// A frame of a protocol came.
    #[inline]
    fn take_opened(
        &mut self,
        now: Instant,
        protocol: FrameProtocol,
        frame: &OpenedFrame<'_>,
        memory: &mut dyn Memory,
    ) {
        match Answered::of(protocol, frame) {
            Some(answer) if self.imports.frame(now, answer, frame, memory) => {
                self.route_import_answers(now, memory);
            }
            // Nothing new is begun while what is below is finished.
            None if self.draining => {}
            _ => self.with_protocols(now, memory, |protocols, context| {
                protocols.handle_frame(protocol, frame, context);
            }),
        }
    }

    /// A link of the driver's is up or not what it was; `None`: it is down.
    pub(super) fn handle_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>) {
        self.tell(News::Link(link, facts.is_some()));
        self.tell_link(now, link, facts);
        if let Some(carrier) = &mut self.frames.carrier {
            carrier.handle_link(now, link, facts);
        }
    }

    /// From now on this machine carries virtual links over those of the driver.
    pub(super) fn set_virtual_links(&mut self, now: Instant, mut carrier: Box<dyn VirtualLinks>) {
        self.frames
            .links
            .iter()
            .for_each(|(link, facts)| carrier.handle_link(now, link, Some(*facts)));
        let before = self.frames.carrier.replace(Carrier::Given(carrier));
        assert!(before.is_none(), "virtual links are carried already, by {before:?}");
    }

    /// A router is changed.
    pub(super) fn route(
        &mut self,
        now: Instant,
        id: RouterId,
        change: Change,
    ) -> Result<(), String> {
        let port = if let Change::SetPort(port, _) = change { Some(port) } else { None };
        let carrier = &mut self.frames.carrier;
        let seed = self.settings.seed;
        let carrier = carrier.get_or_insert_with(|| Carrier::routers(seed));
        carrier.route(now, id, change)?;
        // The link may be up already.
        if let Some((port, facts)) =
            port.and_then(|port| Some((port, self.frames.links.get(port)?)))
        {
            carrier.handle_link(now, port, Some(*facts));
        }
        Ok(())
    }

    /// Tells of virtual links that are up or down, and sends what belongs to none of them.
    #[inline]
    fn settle_virtual_links(&mut self, now: Instant) {
        while let Some(carrier) = &mut self.frames.carrier {
            if let Some((link, facts)) = carrier.poll_link() {
                self.tell_link(now, link, facts);
            } else if let Some(batch) = carrier.poll_batch() {
                let token = machine::VIRTUAL_LINKS.0;
                self.effects.push_back(Effect::SendFrames { token, batch });
            } else if let Some((router, event)) = carrier.poll_event() {
                self.tell(News::Route(router, event));
            } else {
                return;
            }
        }
    }

    fn tell_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>) {
        self.frames.links.set(link, facts);
        self.protocols.handle_link(link, facts);
        self.imports.handle_link(now, link, facts);
    }

    /// A batch of frames is back.
    #[inline]
    pub(super) fn frames_sent(
        &mut self,
        now: Instant,
        token: u32,
        batch: FrameBatch,
        memory: &mut dyn Memory,
    ) {
        let machine = MachineId(token);
        if machine::kind(machine) == machine::TARGET {
            self.with_protocols(now, memory, |protocols, context| {
                protocols.handle_frames_sent(machine, batch, context);
            });
        } else if machine != machine::VIRTUAL_LINKS {
            self.imports.frames_sent(now, token, batch);
        } else if let Some(carrier) = &mut self.frames.carrier {
            carrier.handle_sent(batch);
        }
    }

    /// The end of a turn for the targets: what they ask their like goes its way, and frames leave.
    #[inline]
    pub(super) fn settle_frames(&mut self, now: Instant, memory: &mut dyn Memory) {
        self.settle_virtual_links(now);
        self.take_received(now, memory);
        if !self.protocols.needs_settle() {
            return;
        }
        self.protocols.propose();
        self.with_protocols(now, memory, |protocols, context| protocols.settle(context));
        while let Some((MachineId(token), mut batch)) = self.protocols.poll_frames() {
            self.frames.encapsulate(now, &mut batch, memory);
            self.effects.push_back(Effect::SendFrames { token, batch });
        }
    }
}
