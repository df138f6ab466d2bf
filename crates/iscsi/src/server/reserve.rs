//! Commands that change a reservation: they wait until all shards have agreed; and those that tell of
//! it, which are answered from what is in force here.
//!
//! A task that is aborted meanwhile, or whose session ends, is answered no more, and its change may
//! still be made: its host sees by PERSISTENT RESERVE IN whether it was. Spec: SPC-4, 5.13. Not
//! here: what commands ask for (`scsi`), who is told (`targets`).

use block::{Class, VolumeId};
use reservation::{Change, PathGroup, Reservation};
use scsi::{Asker, Work};
use wire::scsi::Cdb;
use wire::scsi::persistent::TransportId;

use super::command::Asked;
use super::slots::{Incoming, TaskState};
use super::{Connection, Context, Ending};
use crate::targets::Nexus;

impl Connection {
    /// The data of PERSISTENT RESERVE IN.
    pub(super) fn reservation_data(
        &self,
        asked: &Asked<'_>,
        volume: VolumeId,
        ctx: &Context<'_>,
    ) -> Result<Vec<u8>, Ending> {
        let none = Reservation::default();
        let reservation = ctx.reservations.get(volume).unwrap_or(&none);
        let told = scsi::reserve_in(&asked.cdb, reservation, self.group.number());
        told.map_err(|(status, sense)| Ending { status, sense })
    }

    /// PERSISTENT RESERVE OUT, whose list is there, in `slot`.
    #[cold]
    pub(super) fn take_reserve_out(
        &mut self,
        slot: u16,
        volume: VolumeId,
        cdb: &Cdb,
        data: Incoming,
        class: Class,
        ctx: &mut Context<'_>,
    ) {
        let list = self.take_list(data, class, ctx);
        let session = self.state.session();
        let Some(nexus) = session.and_then(|session| ctx.shared.nexus(session)) else {
            return self.end(slot, Ending::ABORTED, ctx);
        };
        let by = ctx.shared.applicant(nexus);
        let port = |id: Option<&TransportId>, port| {
            let group = PathGroup::new(port)?;
            let other = match id {
                Some(id) => nexus.other(id, group)?,
                None => Nexus { group, ..nexus.clone() },
            };
            Some(ctx.shared.applicant(&other))
        };
        let groups = ctx.shared.groups(self.group);
        let ports: Vec<u16> = groups.into_iter().map(PathGroup::number).collect();
        let relative_port = self.group.number();
        let asker = Asker { by: &by, relative_port, ports: &ports, port };
        match scsi::reserve_out(cdb, &list, &asker) {
            Ok(change) => self.change_reservation(slot, volume, change, ctx),
            Err(sense) => self.end(slot, sense.into(), ctx),
        }
    }

    /// RESERVE or RELEASE, in `slot`.
    #[cold]
    pub(super) fn change_hold(
        &mut self,
        slot: u16,
        volume: VolumeId,
        work: Work,
        ctx: &mut Context<'_>,
    ) {
        let session = self.state.session();
        let Some(hold) = session.and_then(|session| ctx.shared.hold(session)) else {
            return self.end(slot, Ending::ABORTED, ctx);
        };
        let change = match work {
            Work::Hold => Change::Hold(hold),
            _ => Change::EndHold(hold),
        };
        self.change_reservation(slot, volume, change, ctx);
    }

    fn change_reservation(
        &mut self,
        slot: u16,
        volume: VolumeId,
        change: Change,
        ctx: &mut Context<'_>,
    ) {
        let session = self.state.session().expect("a task is a session's");
        let number = ctx.shared.change(session, volume, change);
        *self.slots.state(slot) = TaskState::Changing(number);
    }

    /// All shards have agreed on a change, of a reservation or of paths, or not, or have a mode that was
    /// set: who asked for it is answered, if it is there.
    pub(super) fn change_is_decided(&mut self, number: u64, end: Ending, ctx: &mut Context<'_>) {
        if let Some(slot) = self.slots.changing(number) {
            self.end(slot, end, ctx);
        }
    }
}
