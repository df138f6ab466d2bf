//! Whether a command may be carried out: when it comes, when it starts after it waited, and before each
//! further request of one that has several.
//!
//! Asked is the unit under its LUN (masks, and whose blocks they are), what is to be told to the host
//! first, `scsi` about the CDB, the state of the path, and what is in force of reservations. Errors: an
//! [`Ending`].

use block::VolumeId;
use reservation::Access;
use scsi::{LogicalUnit, Work};
use wire::scsi::{Cdb, ScsiStatus};

use super::command::Asked;
use super::slots::Judged;
use super::{Connection, Context, Ending};
use crate::target::UnitIdentity;

impl Connection {
    /// What is under the LUN of a command, if its host may use it.
    #[inline]
    pub(super) fn unit<'c>(
        &self,
        asked: &Asked<'_>,
        ctx: &'c Context<'_>,
    ) -> Option<&'c LogicalUnit> {
        ctx.shared.unit(self.state.session()?, asked.lun?)
    }

    /// What a command asks of its unit, if its host may ask that now.
    #[inline]
    pub(super) fn admit(
        &mut self,
        asked: &mut Asked<'_>,
        unit: &LogicalUnit,
        ctx: &Context<'_>,
    ) -> Result<Work, Ending> {
        let lun = asked.task.lun;
        asked.task.descriptor_sense = unit.mode.descriptor_sense;
        if let Some(sense) = self.attentions.take(lun, asked.cdb.opcode()) {
            return Err(sense.into());
        }
        let work = scsi::judge(&asked.cdb, unit)?;
        self.check_access(&asked.cdb, unit.volume, &work, ctx)?;
        let session = self.state.session().ok_or(Ending::NO_UNIT)?;
        if !ctx.shared.knows(session, lun) && !matches!(work, Work::Reply) {
            return Err(Ending::NO_UNIT);
        }
        Ok(work)
    }

    /// A command as it was judged, to be judged again later.
    pub(super) fn judged(&self, asked: &Asked<'_>, ctx: &Context<'_>) -> Result<Judged, Ending> {
        let unit = self.unit(asked, ctx).ok_or(Ending::NO_UNIT)?;
        Ok(Judged::of(asked.cdb, unit))
    }

    /// Whether the listener by which the host came carries a command out now, and a reservation lets
    /// the host do what it asks of a volume.
    #[inline]
    pub(super) fn check_access(
        &self,
        cdb: &Cdb,
        volume: VolumeId,
        work: &Work,
        ctx: &Context<'_>,
    ) -> Result<(), Ending> {
        scsi::check_path(cdb, ctx.paths.state(self.group))?;
        self.check_reservation(volume, work.access(cdb), ctx)
    }

    /// What a command that waited, or was begun, asks of its volume now, if it still may: the unit
    /// under its LUN has to be the one that it was judged by.
    pub(super) fn judge_again(
        &self,
        lun: u16,
        judged: &Judged,
        ctx: &Context<'_>,
    ) -> Result<(VolumeId, Work), Ending> {
        let unit = self.same_unit(lun, judged.unit, ctx).ok_or(Ending::NO_UNIT)?;
        let work = scsi::judge(&judged.cdb, unit)?;
        self.check_access(&judged.cdb, unit.volume, &work, ctx)?;
        Ok((unit.volume, work))
    }

    /// What is under a LUN, if its blocks are still these and the host may use it.
    pub(super) fn same_unit<'c>(
        &self,
        lun: u16,
        identity: UnitIdentity,
        ctx: &'c Context<'_>,
    ) -> Option<&'c LogicalUnit> {
        let unit = ctx.shared.unit(self.state.session()?, lun)?;
        (UnitIdentity::of(unit) == identity).then_some(unit)
    }

    /// Whether a reservation lets the host do this with a volume now.
    #[inline]
    pub(super) fn check_reservation(
        &self,
        volume: VolumeId,
        access: Option<Access>,
        ctx: &Context<'_>,
    ) -> Result<(), Ending> {
        let allows = |access| ctx.reservations.allows(volume, self.registrant, access);
        match access.is_none_or(allows) {
            true => Ok(()),
            false => Err(Ending::bare(ScsiStatus::RESERVATION_CONFLICT)),
        }
    }
}
