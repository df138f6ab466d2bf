//! What hosts ask, and what may come of it: the oracle, which keeps each sector as one register.

use super::*;

impl World {
    pub(super) fn ask(&mut self, host: usize) {
        if self.hosts[host].left == 0 || self.hosts[host].initiator.is_none() {
            return;
        }
        let (from, to) = match self.scenario.shared {
            true => (0, SECTORS),
            false => {
                let part = SECTORS / HOSTS as u64;
                (host as u64 * part, (host as u64 + 1) * part)
            }
        };
        let first = from + self.random.below(to - from);
        let most = if self.random.chance(1, 3) { to - first } else { 3.min(to - first) };
        let count = 1 + self.random.below(most);
        let extent = Extent::new(first * 512, count * 512);
        let mut buffer = Buffer::reserved((count * 512) as u32, (first * 512 % 4096) as u32);
        let choice = self.random.below(10);
        let write = if choice < 5 { self.begin_write(first, count) } else { 0 };
        let state = &mut self.hosts[host];
        state.left -= 1;
        let operation = if write > 0 {
            let bytes: Vec<u8> =
                (first..first + count).flat_map(|sector| fill(write, sector)).collect();
            state.memory.write(&mut buffer, 0, &bytes);
            Operation::Write { extent, buffer, durable: choice == 0 }
        } else if choice == 9 {
            Operation::Flush
        } else {
            Operation::Read { extent, buffer }
        };
        let slot = state.next;
        state.next += 1;
        state.asked.insert(slot, Asked { extent, since: self.now.0, write });
        let generation = state.lives as u32;
        let ticket = Ticket { machine: MachineId(3), generation, slot, shard: ShardId(0) };
        if let Some(initiator) = &mut state.initiator {
            initiator.handle_request(self.now, Request { ticket, operation });
        }
        self.settle_host(host);
    }

    pub(super) fn begin_write(&mut self, first: u64, count: u64) -> u64 {
        let number = self.next_write;
        self.next_write += 1;
        for sector in first..first + count {
            let write = Write { start: self.now.0, end: None, done: false };
            self.writes[sector as usize].push((number, write));
        }
        number
    }

    pub(super) fn end_write(&mut self, asked: &Asked, now: u64, done: bool) {
        if asked.write == 0 {
            return;
        }
        for sector in asked.extent.offset.0 / 512..asked.extent.end().0 / 512 {
            let list = &mut self.writes[sector as usize];
            for (number, write) in list.iter_mut().rev() {
                if *number == asked.write {
                    (write.end, write.done) = (Some(now), done);
                    break;
                }
            }
        }
    }

    pub(super) fn completed(&mut self, host: usize, completion: Completion) {
        let Completion { ticket, outcome, buffer, .. } = completion;
        let state = &mut self.hosts[host];
        assert_eq!(u64::from(ticket.generation), state.lives, "an answer to another life");
        let asked = state.asked.remove(&ticket.slot).expect("it is answered once");
        let bytes = match (asked.write, buffer.is_empty() || buffer.is_reserved()) {
            (0, false) => state.memory.bytes(&buffer),
            _ => Vec::new(),
        };
        state.memory.release(buffer);
        let (now, name) = (
            self.now.0,
            match outcome {
                Outcome::Done => "done",
                Outcome::NotDone(Failure::TimedOut) => "timed out",
                Outcome::NotDone(_) => "not done",
                Outcome::Unknown(_) => "unknown",
                Outcome::Miscompare(_) => unreachable!("nothing is compared"),
            },
        );
        *self.outcomes.entry(name).or_default() += 1;
        self.end_write(&asked, now, outcome.is_done());
        if outcome.is_done() && asked.write == 0 {
            let first = asked.extent.offset.0 / 512;
            for (index, sector) in bytes.chunks_exact(512).enumerate() {
                let sector_number = first + index as u64;
                let number = number_of(sector, sector_number);
                self.check_read(sector_number, number, asked.since);
            }
        }
        self.after_ms(0, 20, Event::Ask(host));
    }

    /// Whether a read that began at `since` and ends now may return write `number`.
    pub(super) fn check_read(&self, sector: u64, number: u64, since: u64) {
        let list = &self.writes[sector as usize];
        let seen = list.iter().find(|(other, _)| *other == number);
        let Some((_, seen)) = seen else {
            panic!(
                "seed {}: sector {sector} holds write {number}, which is of elsewhere",
                self.scenario.seed
            )
        };
        let Some(end) = seen.end else { return };
        for (other, write) in list {
            let supersedes =
                write.done && write.start > end && write.end.is_some_and(|end| end < since);
            assert!(
                !supersedes,
                "seed {}: at {} sector {sector} holds write {number} {seen:?}, superseded by {other} {write:?}",
                self.scenario.seed, self.now.0
            );
        }
    }
}
