//! Changes that initiators ask for (config string, MAC mask, reservation), and what was agreed on.
//!
//! A change is an [`Ask`] that leaves the target: the shard has it agreed on by all shards and
//! stored (`reservation::replica`), and brings the answer back, which answers the frame. A frame
//! that asks again meanwhile is dropped; one that asks again later finds its change made, and is
//! answered as the first was.

use block::{Slot, VolumeId};
use contract::Station;
use reservation::replica::Answer;
use reservation::{Registration, Reservation};
use wire::aoe::{
    ConfigCommand, Directive, DirectiveCommand, ErrorCode, Header, MaskArgument, MaskCommand,
    MaskError, ReserveArgument, ReserveCommand,
};

use super::{Context, Target};
use crate::control::{self, Control, Verdict};
use crate::export::ExportId;
use crate::limits::{CHANGES_MAX, RESERVE_MAX};
use crate::received::Received;

/// A change that is to be agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Of a config string or mask; answered by [`Target::handle_control_answer`].
    Control {
        /// Of this export.
        export: ExportId,
        /// The target's number of it.
        number: u64,
        /// What.
        change: control::Change,
    },
    /// Of a reservation; answered by [`Target::handle_reservation_answer`].
    Reservation {
        /// Of this volume.
        volume: VolumeId,
        /// The target's number of it.
        number: u64,
        /// What.
        change: reservation::Change,
    },
}

/// A frame that is answered once its change was agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    from: Station,
    header: Header,
    export: ExportId,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Config(ConfigCommand),
    Mask,
    Reserve(ReserveCommand),
}

impl Target {
    /// Set or force a config string.
    pub(super) fn change_config(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        command: ConfigCommand,
        string: &[u8],
    ) {
        let Some(number) = self.pend(received, id, What::Config(command)) else { return };
        let change = control::Change::Config { command, string: string.to_vec() };
        self.asks.push_back(Ask::Control { export: id, number, change });
    }

    /// MAC mask.
    pub(super) fn mask(&mut self, received: &Received<'_>, id: ExportId) {
        let Some(argument) = self.whole(MaskArgument::parse(received.body)) else { return };
        let length = usize::from(argument.count) * Directive::SIZE;
        match argument.command {
            MaskCommand::READ => {
                self.counters.queries += 1;
                let control = self.exports[id.0].control.clone();
                self.tell_mask(received, id, MaskCommand::READ, &control);
            }
            MaskCommand::EDIT => {
                let Some(list) = received.body[MaskArgument::SIZE..].get(..length) else {
                    return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
                };
                let directives = list.chunks_exact(Directive::SIZE).map(Directive::parse);
                let Ok(directives) = directives.collect() else { return };
                let Some(number) = self.pend(received, id, What::Mask) else { return };
                let change = control::Change::Mask(directives);
                self.asks.push_back(Ask::Control { export: id, number, change });
            }
            _ => self.refuse(received, id, ErrorCode::BAD_ARGUMENT),
        }
    }

    /// Reserve or release.
    pub(super) fn reserve(&mut self, received: &Received<'_>, id: ExportId, ctx: &Context<'_>) {
        let Some(argument) = self.whole(ReserveArgument::parse(received.body)) else { return };
        if argument.command == ReserveCommand::READ {
            self.counters.queries += 1;
            let volume = self.exports[id.0].export.volume;
            let reservation = ctx.reservations.held(volume).cloned().unwrap_or_default();
            return self.tell_reservation(received, id, ReserveCommand::READ, &reservation);
        }
        let length = usize::from(argument.count) * 6;
        let list = received.body[ReserveArgument::SIZE..].get(..length);
        let is_known = argument.command <= ReserveCommand::FORCE;
        let is_short = usize::from(argument.count) <= RESERVE_MAX;
        let (Some(list), true, true) = (list, is_known, is_short) else {
            return self.refuse(received, id, ErrorCode::BAD_ARGUMENT);
        };
        let what = What::Reserve(argument.command);
        let Some(number) = self.pend(received, id, what) else { return };
        let (macs, _) = list.as_chunks();
        let list = macs.iter().map(|mac| self.named.listed(*mac)).collect();
        let change = match argument.command {
            ReserveCommand::SET => {
                let by = self.named.station(received.from.mac.0);
                reservation::Change::SetList { by, list }
            }
            _ => reservation::Change::ForceList { list },
        };
        let volume = self.exports[id.0].export.volume;
        self.asks.push_back(Ask::Reservation { volume, number, change });
    }

    /// Notes who is to be answered; `None` and counted if it is asked already, or too many ask.
    fn pend(&mut self, received: &Received<'_>, id: ExportId, what: What) -> Option<u64> {
        let Received { from, header, .. } = *received;
        let is_same = |other: &Pending| {
            (other.from.mac, other.export, other.header, other.what) == (from.mac, id, header, what)
        };
        let is_asked = self.pending.iter().any(|(_, other)| is_same(other));
        if is_asked || self.pending.len() >= CHANGES_MAX {
            self.drops.busy += 1;
            return None;
        }
        self.counters.changes += 1;
        let pending = Pending { from, header, export: id, what };
        let Slot { index, generation } = self.pending.insert(pending);
        Some(u64::from(generation) << 32 | u64::from(index))
    }

    /// Who asked for a change, as the frame in which it was asked; `None` if nobody waits, or the
    /// export is gone.
    fn asker(&mut self, number: u64) -> Option<(Received<'static>, ExportId, What)> {
        let slot = Slot { index: number as u32, generation: (number >> 32) as u32 };
        let Pending { from, header, export, what } = self.pending.remove(slot)?;
        let is_there = self.exports.get(export.0).is_some();
        let received = Received { from, is_broadcast: false, header, body: &[] };
        is_there.then_some((received, export, what))
    }

    /// A change of a config string or mask was agreed on, or not.
    pub fn handle_control_answer(&mut self, number: u64, answer: Answer<Verdict, Control>) {
        let Some((received, id, what)) = self.asker(number) else { return };
        let (verdict, control) = match answer {
            Answer::Decided(verdict, control) => (verdict, control),
            Answer::NotStored => return self.refuse(&received, id, ErrorCode::DEVICE_UNAVAILABLE),
            Answer::Busy | Answer::Gone => {
                self.drops.busy += 1;
                return;
            }
        };
        match (verdict, what) {
            (Verdict::Refused(code), _) => self.refuse(&received, id, code),
            (Verdict::Stopped(error, done), _) => {
                let command = MaskCommand::EDIT;
                let argument = MaskArgument { command, error, count: done };
                self.send_two(&self.reply(&received, id), &argument.emit());
            }
            (Verdict::Done, What::Config(command)) => {
                self.tell(received.from, &received.header, id, command);
            }
            (Verdict::Done, _) => self.tell_mask(&received, id, MaskCommand::EDIT, &control),
        }
    }

    /// A change of a reservation was agreed on, or not.
    pub fn handle_reservation_answer(
        &mut self,
        number: u64,
        answer: Answer<reservation::Verdict, Reservation>,
    ) {
        let Some((received, id, what)) = self.asker(number) else { return };
        match (answer, what) {
            (Answer::Decided(reservation::Verdict::Done, held), What::Reserve(command)) => {
                self.tell_reservation(&received, id, command, &held);
            }
            (Answer::Decided(..), _) => self.refuse(&received, id, ErrorCode::RESERVED),
            (Answer::NotStored, _) => self.refuse(&received, id, ErrorCode::DEVICE_UNAVAILABLE),
            (Answer::Busy | Answer::Gone, _) => self.drops.busy += 1,
        }
    }

    fn tell_mask(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        command: MaskCommand,
        control: &Control,
    ) {
        let count = control.mask().len() as u8;
        let mut body = MaskArgument { command, error: MaskError::NONE, count }.emit().to_vec();
        for mac in control.mask() {
            let directive = Directive { command: DirectiveCommand::NONE, mac: *mac };
            body.extend_from_slice(&directive.emit());
        }
        self.send_two(&self.reply(received, id), &body);
    }

    fn tell_reservation(
        &mut self,
        received: &Received<'_>,
        id: ExportId,
        command: ReserveCommand,
        reservation: &Reservation,
    ) {
        let stations = reservation.holders().flat_map(Registration::listed);
        let mut body = ReserveArgument { command, count: 0 }.emit().to_vec();
        for station in stations.take(RESERVE_MAX) {
            body.extend(station);
            body[1] += 1;
        }
        self.send_two(&self.reply(received, id), &body);
    }

    /// A config string and mask that were agreed on are in force.
    pub fn install_control(&mut self, id: ExportId, control: Control) {
        if let Some(exported) = self.exports.get_mut(id.0) {
            exported.set_control(control);
        }
    }
}
