//! Frames: links, the AoE target, and what all shards agree on for it.
//!
//! A request goes to the target; an answer or announcement to the imports that want it, else to the target, which then hears of addresses that are used
//! twice. Batches come back by their mark: the target's, or the serial number of the import that sent them.
//!
//! Config strings, masks and reservations are changed by agreement ([`volume::agreement`]): asks leave as mail for the key's owner, values go to the control
//! thread to be stored ([`News::Store`], [`Mail::Stored`]), then to all shards, then the frame is answered. A reservation belongs to a
//! volume, whatever exports it: this shard's copy is kept here while there is an export.

use std::collections::BTreeMap;

use aoe::control::Control;
use aoe::target::{Ask, Context, Target, TargetEffect};
use aoe::{Export, ExportId, answer_of};
use block::{Instant, Memory, ShardId, VolumeId};
use contract::{Effect, FrameBatch, InFrame, LinkFacts, LinkId};
use volume::agreement::{Agreement, Outbox};
use volume::{Agreed, Reservation};

use super::routing::Below;
use super::{Settings, Shard};
use crate::mail::{Mail, News, StoreKey, StoredValue};
use crate::report::AoeReport;
use crate::{imports, machine};

/// The mark of the target's batches; imports have theirs from 1 on.
const TARGET: u32 = imports::NO_SERIAL;

/// A shard's part of AoE.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) target: Target,
    pub(super) links: BTreeMap<LinkId, LinkFacts>,
    /// Volumes of exports, by export.
    exports: BTreeMap<ExportId, VolumeId>,
    controls: Agreement<Control>,
    control_outbox: Outbox<Control>,
    reservations: Agreement<Reservation>,
    reservation_outbox: Outbox<Reservation>,
    /// What is in force here, of volumes that are exported.
    in_force: BTreeMap<VolumeId, Reservation>,
    touched: bool,
}

impl Frames {
    pub(super) fn new(settings: Settings) -> Frames {
        let Settings { shard, shards, .. } = settings;
        Frames {
            target: Target::new(machine::AOE_TARGET, shard).among(shards),
            links: BTreeMap::new(),
            exports: BTreeMap::new(),
            controls: Agreement::new(shard, shards),
            control_outbox: Outbox::default(),
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

    /// Whether nothing of any frame is below.
    pub(super) fn is_quiet(&self) -> bool {
        self.target.in_flight() == 0
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.target.poll_timeout()
    }

    pub(super) fn report(&self) -> AoeReport {
        let traffic = |id: &ExportId| Some((*id, self.target.traffic(*id)?));
        AoeReport {
            counters: self.target.counters(),
            drops: *self.target.drops(),
            repeat_bytes: self.target.repeat_bytes(),
            exports: self.exports.keys().filter_map(traffic).collect(),
            links: self.links.keys().map(|link| (*link, self.target.link_use(*link))).collect(),
        }
    }
}

impl Shard {
    /// Runs `work` on the target and marks it as touched.
    #[inline]
    pub(super) fn with_target<R>(
        &mut self,
        now: Instant,
        memory: &mut dyn Memory,
        work: impl FnOnce(&mut Target, &mut Context<'_>) -> R,
    ) -> R {
        self.frames.touched = true;
        let mut below = Below { now, volumes: &mut self.volumes, outbox: &mut self.outbox };
        let pool = &mut self.pool;
        let mut context = Context { now, memory, pool, below: &mut below, shared: &mut () };
        work(&mut self.frames.target, &mut context)
    }

    /// A frame came.
    #[inline]
    pub(super) fn take_frame(&mut self, now: Instant, frame: InFrame<'_>, memory: &mut dyn Memory) {
        match answer_of(frame.bytes) {
            Some(answer) if self.imports.frame(now, answer, frame, memory) => {}
            // Nothing new is begun while what is below is finished.
            None if self.draining => {}
            _ => self.with_target(now, memory, |target, context| {
                target.handle_frame(frame, context);
            }),
        }
        if !self.outbox.has_only_requests() {
            self.route_outbox(now, memory);
        }
    }

    pub(super) fn link_up(&mut self, now: Instant, link: LinkId, facts: LinkFacts) {
        self.frames.links.insert(link, facts);
        self.frames.target.link_up(link, facts);
        self.frames.touched = true;
        self.imports.link_up(now, link, facts);
    }

    pub(super) fn link_down(&mut self, now: Instant, link: LinkId) {
        self.frames.links.remove(&link);
        self.frames.target.link_down(link);
        self.frames.touched = true;
        self.imports.link_down(now, link);
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
            TARGET => self.with_target(now, memory, |target, context| {
                target.handle_sent(batch, context);
            }),
            serial => self.imports.frames_sent(now, serial, batch),
        }
    }

    /// A volume is exported; or the link on which its address is taken.
    pub(super) fn add_export(
        &mut self,
        id: ExportId,
        export: Export,
        control: Control,
        reservation: Reservation,
    ) -> Result<(), LinkId> {
        let volume = export.volume;
        let reservation = self.frames.in_force.get(&volume).cloned().unwrap_or(reservation);
        self.frames.target.add_export(id, export, control.clone(), &reservation)?;
        self.frames.touched = true;
        self.frames.exports.insert(id, volume);
        self.frames.controls.add(id.0, control);
        if self.frames.in_force.insert(volume, reservation.clone()).is_none() {
            self.frames.reservations.add(volume.0, reservation);
        }
        Ok(())
    }

    pub(super) fn remove_export(&mut self, now: Instant, id: ExportId, memory: &mut dyn Memory) {
        self.with_target(now, memory, |target, context| target.remove_export(id, context));
        let frames = &mut self.frames;
        frames.controls.remove(id.0, &mut frames.control_outbox);
        let Some(volume) = frames.exports.remove(&id) else { return };
        if !frames.exports.values().any(|other| *other == volume) {
            frames.in_force.remove(&volume);
            frames.reservations.remove(volume.0, &mut frames.reservation_outbox);
        }
    }

    /// The control thread stored a value, or could not.
    pub(super) fn handle_stored(&mut self, key: StoreKey, version: u64, stored: bool) {
        let frames = &mut self.frames;
        frames.touched = true;
        match key {
            StoreKey::Control(export) => {
                let outbox = &mut frames.control_outbox;
                frames.controls.handle_stored(export.0, version, stored, outbox);
            }
            StoreKey::Reservation(volume) => {
                let outbox = &mut frames.reservation_outbox;
                frames.reservations.handle_stored(volume.0, version, stored, outbox);
            }
        }
    }

    pub(super) fn handle_control_mail(
        &mut self,
        from: ShardId,
        message: volume::agreement::Message<Control>,
    ) {
        let frames = &mut self.frames;
        frames.touched = true;
        frames.controls.handle_message(from, message, &mut frames.control_outbox);
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

    /// The end of a turn for the target: frames leave, and what is to be agreed on goes its way.
    #[inline]
    pub(super) fn settle_frames(&mut self, now: Instant, memory: &mut dyn Memory) {
        if !core::mem::take(&mut self.frames.touched) {
            return;
        }
        self.route_agreements(now, memory);
        self.with_target(now, memory, |target, context| target.settle(context));
        self.frames.touched = false;
        while let Some(TargetEffect::Send(batch)) = self.frames.target.poll_effect() {
            self.effects.push_back(Effect::SendFrames { token: TARGET, batch });
        }
        while let Some(notice) = self.frames.target.poll_notice() {
            self.tell(News::Aoe(notice));
        }
    }

    /// Carries asks, messages, values and answers, until nothing follows from it.
    fn route_agreements(&mut self, now: Instant, memory: &mut dyn Memory) {
        loop {
            let frames = &mut self.frames;
            while let Some(ask) = frames.target.poll_ask() {
                match ask {
                    Ask::Control { export, number, change } => {
                        let outbox = &mut frames.control_outbox;
                        frames.controls.ask(export.0, number, change, outbox);
                    }
                    Ask::Reservation { volume, number, change } => {
                        let outbox = &mut frames.reservation_outbox;
                        frames.reservations.ask(volume.0, number, change, outbox);
                    }
                }
            }
            while let Some((volume, version)) = frames.target.poll_drained() {
                let outbox = &mut frames.reservation_outbox;
                frames.reservations.installed(volume.0, version, outbox);
            }
            if is_empty(&frames.control_outbox) && is_empty(&frames.reservation_outbox) {
                return;
            }
            self.carry_controls();
            self.carry_reservations(now, memory);
        }
    }

    fn carry_controls(&mut self) {
        let Outbox { messages, store, install, answers } =
            core::mem::take(&mut self.frames.control_outbox);
        for (to, message) in messages {
            self.effects.push_back(Effect::Mail { to, mail: Mail::Control(message) });
        }
        for (export, version, value) in store {
            let key = StoreKey::Control(ExportId(export));
            self.tell(News::Store { key, version, value: StoredValue::Control(value) });
        }
        let frames = &mut self.frames;
        for (export, version, value) in install {
            frames.target.install_control(ExportId(export), value);
            frames.controls.installed(export, version, &mut frames.control_outbox);
        }
        for (number, answer) in answers {
            frames.target.handle_control_answer(number, answer);
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
            self.with_target(now, memory, |target, context| {
                target.install_reservation(volume, version, &value, context);
            });
        }
        for (number, answer) in answers {
            self.frames.target.handle_reservation_answer(number, answer);
        }
    }
}

fn is_empty<V: Agreed>(outbox: &Outbox<V>) -> bool {
    let Outbox { messages, store, install, answers } = outbox;
    messages.is_empty() && store.is_empty() && install.is_empty() && answers.is_empty()
}
