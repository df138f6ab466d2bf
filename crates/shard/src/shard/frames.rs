//! Frames: links, and what all shards agree on for those who are reached through them.
//!
//! A frame is opened once, and goes to those of its EtherType; one that came inside another, on a virtual link, is taken out before. What is for nobody is
//! counted. An answer goes to the imports that want it, everything else to the targets. Batches come back by their mark: the targets', or the serial number
//! of the import that sent them.
//!
//! Reservations are changed by agreement ([`volume::agreement`]): asks leave as mail for the key's owner, values go to the control
//! thread to be stored ([`News::Store`], [`Mail::Stored`]), then to all shards, then whoever asked is answered. A reservation belongs to a
//! volume, whatever exports it: this shard's copy is kept here while there is an export.

use std::collections::BTreeMap;

use block::{Instant, Memory, ShardId, VolumeId};
use contract::{Effect, FrameBatch, InFrame, LinkFacts, LinkId, Links, OpenedFrame, VirtualLinks};
use volume::agreement::{Agreement, Outbox};
use volume::{Agreed, Reservation};
use wire::ethernet::EtherType;

use super::Shard;
use crate::imports;
use crate::mail::{Mail, News};
use crate::protocols::{Export, ExportKey, StoreKey, StoredValue};
use crate::remote::Answered;

/// The mark of the targets' batches; imports have theirs from 1 on.
const TARGETS: u32 = imports::NO_SERIAL;

/// Links, and reservations.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) links: Links,
    virtual_links: Option<Box<dyn VirtualLinks>>,
    reservations: Agreement<Reservation>,
    reservation_outbox: Outbox<Reservation>,
    /// What is in force here, of volumes that are exported.
    in_force: BTreeMap<VolumeId, Reservation>,
    /// Whether something happened since the targets were settled.
    pub(super) touched: bool,
}

impl Frames {
    pub(super) fn new(shard: ShardId, shards: u16) -> Frames {
        Frames {
            links: Links::default(),
            virtual_links: None,
            reservations: Agreement::new(shard, shards),
            reservation_outbox: Outbox::default(),
            in_force: BTreeMap::new(),
            touched: false,
        }
    }

    /// Whether something happened since it was settled.
    #[inline]
    pub(super) fn needs_settle(&self) -> bool {
        self.touched
    }

    /// Opens a frame, and the one inside it if it is of a virtual link; `None` and counted if it is not for us.
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
        match frame.ether_type {
            EtherType::AOE => self.take_message(now, &frame, memory),
            _ => self.frames.links.misfits.other_type += 1,
        }
        if !self.outbox.has_only_requests() {
            self.route_outbox(now, memory);
        }
    }

    /// An AoE message came.
    #[inline]
    fn take_message(&mut self, now: Instant, frame: &OpenedFrame<'_>, memory: &mut dyn Memory) {
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

    /// From now on this machine carries virtual links over those of the driver. There is one, given before anybody uses its links.
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

    /// Hosts are shown something; or why not.
    pub(super) fn set_export(&mut self, now: Instant, export: Export) -> Result<(), String> {
        self.frames.touched = true;
        let Some((volume, stored)) = export.reservation() else {
            return self.protocols.set_export(now, export, &Reservation::default());
        };
        let reservation = self.frames.in_force.get(&volume).unwrap_or(stored).clone();
        self.protocols.set_export(now, export, &reservation)?;
        if self.frames.in_force.insert(volume, reservation.clone()).is_none() {
            self.frames.reservations.add(volume.0, reservation);
        }
        Ok(())
    }

    pub(super) fn remove_export(&mut self, now: Instant, key: &ExportKey, memory: &mut dyn Memory) {
        let last = self.with_protocols(now, memory, |protocols, context| {
            protocols.remove_export(key, context)
        });
        if let Some(volume) = last {
            let frames = &mut self.frames;
            frames.in_force.remove(&volume);
            frames.reservations.remove(volume.0, &mut frames.reservation_outbox);
        }
    }

    /// The control thread stored a value, or could not.
    pub(super) fn handle_stored(&mut self, key: StoreKey, version: u64, stored: bool) {
        let frames = &mut self.frames;
        frames.touched = true;
        match key {
            StoreKey::Reservation(volume) => {
                let outbox = &mut frames.reservation_outbox;
                frames.reservations.handle_stored(volume.0, version, stored, outbox);
            }
            key => self.protocols.handle_stored(key, version, stored),
        }
    }

    pub(super) fn handle_reservation_mail(
        &mut self,
        from: ShardId,
        message: volume::agreement::Message<Reservation>,
    ) {
        let frames = &mut self.frames;
        frames.touched = true;
        frames.reservations.handle_message(from, message, &mut frames.reservation_outbox);
    }

    /// The end of a turn for the targets: frames leave, and what is to be agreed on goes its way.
    #[inline]
    pub(super) fn settle_frames(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !core::mem::take(&mut self.frames.touched) {
            return;
        }
        self.route_agreements(now, memory);
        self.with_protocols(now, memory, |protocols, context| protocols.settle(context));
        self.frames.touched = false;
        while let Some(batch) = self.protocols.poll_frames() {
            self.effects.push_back(Effect::SendFrames { token: TARGETS, batch });
        }
    }

    /// Carries asks, values and answers, until nothing follows from it.
    fn route_agreements(&mut self, now: Instant, memory: &mut dyn Memory) {
        loop {
            self.protocols.agree();
            let Frames { reservations, reservation_outbox, .. } = &mut self.frames;
            while let Some((volume, number, change)) = self.protocols.poll_reservation_change() {
                reservations.ask(volume.0, number, change, reservation_outbox);
            }
            while let Some((volume, version)) = self.protocols.poll_drained() {
                reservations.installed(volume.0, version, reservation_outbox);
            }
            if is_empty(reservation_outbox) {
                return;
            }
            self.carry_reservations(now, memory);
        }
    }

    fn carry_reservations(&mut self, now: Instant, memory: &mut dyn Memory) {
        let Outbox { messages, store, install, answers } =
            core::mem::take(&mut self.frames.reservation_outbox);
        for (to, message) in messages {
            self.effects.push_back(Effect::Mail { to, mail: Mail::Reservation(message) });
        }
        for (volume, version, value) in store {
            let key = StoreKey::Reservation(VolumeId(volume));
            self.tell(News::Store { key, version, value: StoredValue::Reservation(value) });
        }
        for (volume, version, value) in install {
            let volume = VolumeId(volume);
            if let Some(held) = self.frames.in_force.get_mut(&volume) {
                held.clone_from(&value);
            }
            self.with_protocols(now, memory, |protocols, context| {
                protocols.install_reservation(volume, version, &value, context);
            });
        }
        for (number, answer) in answers {
            self.protocols.handle_reservation_answer(number, answer);
        }
    }
}

fn is_empty<V: Agreed>(outbox: &Outbox<V>) -> bool {
    let Outbox { messages, store, install, answers } = outbox;
    messages.is_empty() && store.is_empty() && install.is_empty() && answers.is_empty()
}
