//! A request that is larger than a command may be: cut into jobs at the edges of pages, joined again when the last of them is over.
//!
//! Units: bytes of the request's buffer. The whole ends as the worst of its parts did.

use block::{Buffer, Completion, Extent, Outcome, Ticket};

use super::Jobs;

/// A request whose parts are jobs.
#[derive(Debug)]
pub(super) struct Parent {
    ticket: Ticket,
    left: u32,
    outcome: Outcome,
    parts: Vec<(u32, Buffer)>,
}

impl Jobs {
    /// Cuts a job whose payload is larger than `most` (a multiple of 4096) into parts, at the edges of pages; they wait in front.
    pub(in crate::tcp::initiator) fn split(&mut self, index: u32, most: u32) {
        let job = &mut self.table[index as usize];
        let mut whole = core::mem::take(job.buffer_mut());
        let mut rest = whole.split_off(most - whole.phase());
        let (number, kind, durable, deadline) = (job.number, job.kind, job.durable, job.deadline);
        let (ticket, in_doubt) = (job.ticket, job.in_doubt);
        let (mut offset, mut at) = (job.offset, job.part_at);
        let first = whole.len();
        job.length = first.into();
        *job.buffer_mut() = whole;
        let parents = &mut self.parents;
        let parent = *job.parent.get_or_insert_with(|| {
            let parts = Vec::with_capacity(8);
            parents.insert(Parent { ticket, left: 1, outcome: Outcome::Done, parts })
        });
        (offset, at) = (offset + u64::from(first), at + first);
        let mut place = self.waiting.iter().position(|waits| *waits == index).unwrap_or(0) + 1;
        while !rest.is_empty() {
            let next = if rest.len() > most { rest.split_off(most) } else { Buffer::empty() };
            let length = rest.len();
            let part = self.place();
            let job = &mut self.table[part as usize];
            job.begin(ticket, number, deadline);
            let extent = Extent::new(offset, length.into());
            job.carry(kind, extent, core::mem::replace(&mut rest, next));
            (job.durable, job.in_doubt) = (durable, in_doubt);
            (job.parent, job.part_at) = (Some(parent), at);
            if in_doubt {
                self.doubts.push(part);
            }
            self.waiting.insert(place, part);
            place += 1;
            (offset, at) = (offset + u64::from(length), at + length);
            self.parents.get_mut(parent).expect("it has parts").left += 1;
        }
    }

    #[cold]
    pub(super) fn finish_part(
        &mut self,
        slot: block::Slot,
        at: u32,
        outcome: Outcome,
        buffer: Buffer,
    ) {
        let parent = self.parents.get_mut(slot).expect("a parent outlives its parts");
        parent.outcome = join(parent.outcome, outcome, at);
        parent.parts.push((at, buffer));
        parent.left -= 1;
        if parent.left > 0 {
            return;
        }
        let mut parent = self.parents.remove(slot).expect("just seen");
        parent.parts.sort_by_key(|(at, _)| *at);
        let mut whole = Buffer::empty();
        for (_, part) in parent.parts {
            whole.append(part);
        }
        self.completions.push_back(Completion::new(parent.ticket, parent.outcome, whole));
    }
}

/// The outcome of a whole of which one part, at byte `at`, ended so.
fn join(whole: Outcome, part: Outcome, at: u32) -> Outcome {
    let part = match part {
        Outcome::Miscompare(byte) => Outcome::Miscompare(at + byte),
        other => other,
    };
    let rank = |outcome| match outcome {
        Outcome::Done => 0,
        Outcome::Miscompare(_) => 1,
        Outcome::NotDone(_) => 2,
        Outcome::Unknown(_) => 3,
    };
    match (whole, part) {
        (Outcome::Miscompare(a), Outcome::Miscompare(b)) => Outcome::Miscompare(a.min(b)),
        _ if rank(part) > rank(whole) => part,
        _ => whole,
    }
}
