//! Frames: links, and those who are reached through them.
//!
//! A frame is opened once, and goes to those of its EtherType; one that came inside another, on a
//! virtual link, is taken out before. What is for nobody is counted. An answer goes to the imports
//! that want it, everything else to the targets. Batches come back by their mark: the targets', or
//! the serial number of the import that sent them.

use block::{Instant, Memory};
use contract::{Effect, FrameBatch, InFrame, LinkFacts, LinkId, Links, OpenedFrame, VirtualLinks};

use super::Shard;
use super::reservations::Proposer;
use crate::remote::Answered;
use crate::{imports, protocols};

/// The mark of the targets' batches; imports have theirs from 1 on.
const TARGETS: u32 = imports::NO_SERIAL;

/// Links.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) links: Links,
    virtual_links: Option<Box<dyn VirtualLinks>>,
    /// Whether something happened since the targets were settled.
    pub(super) touched: bool,
}

impl Frames {
    /// Whether something happened since it was settled.
    #[inline]
    pub(super) fn needs_settle(&self) -> bool {
        self.touched
    }

    /// Opens a frame, and the one inside it if it is of a virtual link; `None` and counted if it is
    /// not for us.
    #[inline]
    fn open<'a>(&mut self, frame: &InFrame<'a>) -> Option<OpenedFrame<'a>> {
        let opened = self.links.open(frame)?;
        match &mut self.virtual_links {
            Some(carrier) if carrier.takes(opened.ether_type) => {
                self.links.open(&carrier.decapsulate(&opened)?)
            }
            _ => Some(opened),
        }
    }

    /// Puts the frames of virtual links into those that the driver sends.
    #[inline]
    pub(super) fn encapsulate(&mut self, batch: &mut FrameBatch) {
        if let Some(carrier) = &mut self.virtual_links {
            carrier.encapsulate(batch);
        }
    }
}

impl Shard {
    /// A frame came.
    #[inline]
    pub(super) fn take_frame(&mut self, now: Instant, frame: InFrame<'_>, memory: &mut dyn Memory) {
        let Some(frame) = self.frames.open(&frame) else { return };
        if protocols::takes(frame.ether_type) {
            self.take_opened(now, &frame, memory);
        } else {
            self.frames.links.misfits.other_type += 1;
        }
        if !self.volumes.outbox.has_only_requests() {
            self.route_outbox(now, memory);
        }
    }

    /// A frame of a protocol came.
    #[inline]
    fn take_opened(&mut self, now: Instant, frame: &OpenedFrame<'_>, memory: &mut dyn Memory) {
        match Answered::of(frame) {
            Some(answer) if self.imports.frame(now, answer, frame, memory) => {}
            // Nothing new is begun while what is below is finished.
            None if self.draining => {}
            _ => self.with_protocols(now, memory, |protocols, context| {
                protocols.handle_frame(frame, context);
            }),
        }
    }

    /// A link of the driver's is up or not what it was; `None`: it is down.
    pub(super) fn handle_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>) {
        self.tell_link(now, link, facts);
        if let Some(carrier) = &mut self.frames.virtual_links {
            carrier.handle_link(link, facts);
        }
        self.route_virtual_links(now);
    }

    /// From now on this machine carries virtual links over those of the driver. There is one, given
    /// before anybody uses its links.
    pub fn set_virtual_links(&mut self, now: Instant, mut carrier: Box<dyn VirtualLinks>) {
        self.frames.links.iter().for_each(|(link, facts)| carrier.handle_link(link, Some(*facts)));
        let before = self.frames.virtual_links.replace(carrier);
        assert!(before.is_none(), "virtual links are carried already, by {before:?}");
        self.route_virtual_links(now);
    }

    fn route_virtual_links(&mut self, now: Instant) {
        let poll = |frames: &mut Frames| frames.virtual_links.as_mut()?.poll_link();
        while let Some((link, facts)) = poll(&mut self.frames) {
            self.tell_link(now, link, facts);
        }
    }

    fn tell_link(&mut self, now: Instant, link: LinkId, facts: Option<LinkFacts>) {
        self.frames.touched = true;
        self.frames.links.set(link, facts);
        match facts {
            Some(facts) => {
                self.protocols.link_up(link, facts);
                self.imports.link_up(now, link, facts);
            }
            None => {
                self.protocols.link_down(link);
                self.imports.link_down(now, link);
            }
        }
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
        match token {
            TARGETS => self.with_protocols(now, memory, |protocols, context| {
                protocols.handle_frames_sent(batch, context);
            }),
            serial => self.imports.frames_sent(now, serial, batch),
        }
    }

    /// The end of a turn for the targets: frames leave, and what is proposed goes its way.
    #[inline]
    pub(super) fn settle_frames(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !core::mem::take(&mut self.frames.touched) {
            return;
        }
        self.protocols.propose();
        while let Some((volume, number, change)) = self.protocols.poll_reservation_change() {
            self.reservations.propose(volume, Proposer::Protocol(number), change);
        }
        self.with_protocols(now, memory, |protocols, context| protocols.settle(context));
        self.frames.touched = false;
        while let Some(batch) = self.protocols.poll_frames() {
            self.effects.push_back(Effect::SendFrames { token: TARGETS, batch });
        }
    }
}
