//! Commands whose data are there: they are judged once more if they had to wait, and carried out.
//!
//! Spec: SBC-3, 5; SPC-4, 6. Not here: commands of several steps (`steps`, `copy`), how their data came.

use block::{Buffer, Class, Operation, VolumeId};
use scsi::{Ordered, Work};
use wire::scsi::{Cdb, ScsiStatus};

use super::slots::{Grant, Incoming, Judged, Kind, TaskState};
use super::{Connection, Context, Ending};

impl Connection {
    /// All data of a task came, or what came was wrong.
    pub(super) fn data_is_whole(&mut self, slot: u16, ctx: &mut Context<'_>) {
        let taken = TaskState::InFlight(Kind::Plain(Class::Transfer));
        let TaskState::Granted(grant) = core::mem::replace(self.slots.state(slot), taken) else {
            panic!("data came for slot {slot}, which takes none");
        };
        let Grant { judged, data } = *grant;
        let lun = self.slots.task(slot).lun;
        let found = match data.flaw {
            Some(flaw) => Err(flaw.into()),
            None if self.slots.task(slot).is_aborted => Err(Ending::ABORTED),
            None => self.judge_again(lun, &judged, ctx),
        };
        match found {
            Ok((volume, work)) => {
                self.carry_out(slot, (volume, work), &judged, data, Class::Transfer, ctx);
            }
            Err(refusal) => {
                self.give_data(data, Class::Transfer, ctx);
                self.end(slot, refusal, ctx);
            }
        }
    }

    /// Gives the memory of a task's data back.
    pub(super) fn give_data(&mut self, mut data: Incoming, class: Class, ctx: &mut Context<'_>) {
        let buffers = data.take_buffers();
        self.give_all(buffers, class, ctx);
    }

    /// The list that a task's data are, whose memory is given back.
    pub(super) fn take_list(
        &mut self,
        data: Incoming,
        class: Class,
        ctx: &mut Context<'_>,
    ) -> Vec<u8> {
        let mut list = vec![0; data.length as usize];
        ctx.memory.read(&data.buffer, 0, &mut list);
        self.give_data(data, class, ctx);
        list
    }

    /// Carries out a command whose data are there, in `slot`, which is in flight.
    pub(super) fn carry_out(
        &mut self,
        slot: u16,
        (volume, work): (VolumeId, Work),
        judged: &Judged,
        data: Incoming,
        class: Class,
        ctx: &mut Context<'_>,
    ) {
        match work {
            Work::Write(extent, durable) => {
                *self.slots.state(slot) = TaskState::InFlight(Kind::Plain(class));
                let operation = Operation::Write { extent, buffer: data.buffer, durable };
                self.submit(slot, volume, operation, ctx);
            }
            Work::Compare(extent) => {
                *self.slots.state(slot) = TaskState::InFlight(Kind::Plain(class));
                let operation = Operation::Compare { extent, buffer: data.buffer };
                self.submit(slot, volume, operation, ctx);
            }
            Work::CompareAndWrite(extent, durable) => {
                *self.slots.state(slot) = TaskState::InFlight(Kind::Plain(class));
                let Incoming { buffer, mut more, .. } = data;
                let replacement = more.pop().expect("it has two buffers");
                let expected = Box::new(buffer);
                let operation =
                    Operation::CompareAndWrite { extent, expected, replacement, durable };
                self.submit(slot, volume, operation, ctx);
            }
            Work::ReserveOut(_) => {
                self.take_reserve_out(slot, volume, &judged.cdb, data, class, ctx);
            }
            Work::SetPaths(_) => self.take_set_paths(slot, data, class, ctx),
            Work::Copy(_) => self.begin_copy(slot, data, class, ctx),
            Work::Parameters(_) => {
                self.take_parameters(slot, volume, &judged.cdb, data, class, ctx);
            }
            _ => self.begin_steps(slot, (volume, work), judged, data, class, ctx),
        }
    }

    /// A command whose data say what it does.
    pub(super) fn take_parameters(
        &mut self,
        slot: u16,
        volume: VolumeId,
        cdb: &Cdb,
        data: Incoming,
        class: Class,
        ctx: &mut Context<'_>,
    ) {
        let Some(session) = self.state.session() else {
            self.give_data(data, class, ctx);
            return self.end(slot, Ending::ABORTED, ctx);
        };
        let mut bytes = vec![0; data.length as usize];
        ctx.memory.read(&data.buffer, 0, &mut bytes);
        let unit = ctx.shared.unit(session, self.slots.task(slot).lun);
        let unit = unit.ok_or(Ending::NO_UNIT);
        let ordered = unit.and_then(|unit| Ok((scsi::parameters(cdb, &bytes, unit)?, unit.uuid)));
        let done = match ordered {
            Ok((Ordered::Discard(extents), _)) if !extents.is_empty() => {
                let memory = Buffer::reserved(data.buffer.len(), data.buffer.phase());
                ctx.memory.release(data.buffer);
                *self.slots.state(slot) = TaskState::InFlight(Kind::Ranges(class));
                self.ranges.insert(slot, memory);
                return self.submit(slot, volume, Operation::Discard { extents }, ctx);
            }
            Ok((Ordered::Mode(mode), uuid)) => {
                self.give_data(data, class, ctx);
                let number = ctx.shared.set_mode(session, uuid, mode);
                *self.slots.state(slot) = TaskState::Changing(number);
                return;
            }
            Ok(_) => Ending::bare(ScsiStatus::GOOD),
            Err(refusal) => refusal,
        };
        self.give_data(data, class, ctx);
        self.end(slot, done, ctx);
    }
}
