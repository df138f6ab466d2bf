//! A request whose payload is larger than a command may carry: cut into jobs at the edges of pages,
//! joined again when the last of them is over. The whole ends as the worst of its parts did. Units:
//! bytes of the request's buffer.

use block::{Buffer, Completion, Extent, Join, Operation, Request, Slot, Ticket};

use crate::disk::Disk;
use crate::job::JobKind;

/// A request whose parts are jobs.
#[derive(Debug)]
pub(crate) struct Whole {
    ticket: Ticket,
    join: Join,
}

impl<W: Default> Disk<W> {
    /// Cuts the job in front, whose payload is larger than `most` (a multiple of 4096), into parts,
    /// which wait in its place.
    #[cold]
    pub fn split(&mut self, most: u32) {
        let index = *self.waiting.front().expect("the job that is cut is in front");
        let wholes = &mut self.wholes;
        let job = &mut self.table[index as usize];
        let (ticket, number, deadline) = (job.ticket, job.number, job.deadline);
        let (kind, durable, claims, all) = (job.kind, job.durable, job.claims, job.extent);
        let mut rest = job.buffer.split_off(most - job.buffer.phase());
        let mut at = job.buffer.len();
        job.extent = Extent::new(all.offset.0, at.into());
        let (whole, start) = *job
            .part_of
            .get_or_insert_with(|| (wholes.insert(Whole { ticket, join: Join::new(1) }), 0));
        let mut place = 1;
        while !rest.is_empty() {
            let next = if rest.len() > most { rest.split_off(most) } else { Buffer::empty() };
            let buffer = core::mem::replace(&mut rest, next);
            let length = buffer.len();
            let part = self.place();
            let extent = Extent::new(all.offset.0 + u64::from(at), length.into());
            let operation = match kind {
                JobKind::Read => Operation::Read { extent, buffer },
                JobKind::Compare => Operation::Compare { extent, buffer },
                _ => Operation::Write { extent, buffer, durable },
            };
            let job = &mut self[part];
            job.begin(&mut Request { ticket, operation }, number, deadline);
            job.part_of = Some((whole, start + at));
            if claims {
                self.claim(part);
            }
            self.waiting.insert(place, part);
            self.wholes.get_mut(whole).expect("it has parts").join.add();
            (place, at) = (place + 1, at + length);
        }
    }

    /// A part that begins `start` bytes into its whole is over.
    #[cold]
    pub(crate) fn finish_part(&mut self, whole: Slot, start: u32, part: u32) {
        let Completion { outcome, buffer: part, .. } = self.vacate(part);
        let Whole { ticket, join } =
            self.wholes.get_mut(whole).expect("a whole outlives its parts");
        if let Some((outcome, buffer)) = join.came_back(start, outcome, part) {
            self.completions.push_back(Completion::new(*ticket, outcome, buffer));
            self.wholes.remove(whole);
        }
    }
}
