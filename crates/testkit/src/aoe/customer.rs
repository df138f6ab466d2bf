//! A host and a disk that speak AoE across a network that may keep frames, and count on nothing but
//! its numbers: with those out of order an old copy of a write lands behind a newer one (docs/faults.md).
//!
//! The host is as Linux's driver: what is not answered it sends again, under another tag, and it asks
//! nothing more of a sector until that is answered. The disk carries out what comes, as one that knows
//! no copies. Each write to a sector is one more than the one before, and data bear the customer's mark,
//! the sector and the number of the write. Messages come in and go out as they stand behind the
//! EtherType; who is at the ends of a frame is for others. Units: virtual time, sectors. Errors: what was
//! heard that must not be.

use core::time::Duration;
use std::collections::BTreeMap;

use block::Instant;
use wire::aoe::{Address, AtaArgument, Body, Command, Header, Message, SECTOR};
use wire::ata::Opcode;

use super::{ata, request};

/// How long an answer is waited for, first and at most.
const WAIT_FIRST: Duration = Duration::from_millis(150);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// What is in front of data.
const MARK: &[u8; 24] = b"the other customer's own";

/// What is asked of a sector.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// What is written; `None` for a read.
    value: Option<u64>,
    /// The first tag of it; those of before were of something else.
    first_tag: u32,
    since: Instant,
    wait: Duration,
    again_at: Instant,
}

/// What a tag is of.
#[derive(Clone, Copy, Debug)]
struct Tagged {
    sector: u64,
    value: Option<u64>,
    /// The last write of the sector that was answered before.
    after: u64,
}

/// Host and disk.
#[derive(Debug)]
pub struct Customer {
    address: Address,
    /// All that was ever asked.
    tags: BTreeMap<u32, Tagged>,
    /// By sector.
    asked: BTreeMap<u64, Asked>,
    answered: BTreeMap<u64, u64>,
    disk: BTreeMap<u64, u64>,
    /// Commands that were answered, and those that were sent again.
    pub done: u64,
    pub again: u64,
}

impl Customer {
    /// One whose disk is at this shelf and slot.
    pub fn new(address: Address) -> Customer {
        let (tags, asked, answered, disk) = Default::default();
        Customer { address, tags, asked, answered, disk, done: 0, again: 0 }
    }

    /// Whether nothing is asked at present.
    pub fn is_quiet(&self) -> bool {
        self.asked.is_empty()
    }

    /// What the host waits for, in words.
    pub fn state(&self) -> String {
        format!("{:?}", self.asked)
    }

    /// Since when it has waited for what it has waited for longest.
    pub fn waits_since(&self) -> Option<Instant> {
        self.asked.values().map(|asked| asked.since).min()
    }

    /// When it sends something again, if nothing is answered until then.
    pub fn next(&self) -> Option<Instant> {
        self.asked.values().map(|asked| asked.again_at).min()
    }

    /// Whether something is asked of a sector.
    pub fn is_asked(&self, sector: u64) -> bool {
        self.asked.contains_key(&sector)
    }

    /// The host writes to a sector of which nothing is asked, or reads it. Returns the message.
    pub fn begin(&mut self, now: Instant, sector: u64, writes: bool) -> Vec<u8> {
        assert!(!self.is_asked(sector), "something is asked of sector {sector}");
        let value = writes.then(|| self.answered(sector) + 1);
        let (first_tag, wait) = (self.next_tag(), WAIT_FIRST);
        let asked = Asked { value, first_tag, since: now, wait, again_at: now };
        self.asked.insert(sector, asked);
        self.ask(now, sector)
    }

    /// What is not answered, and has to be sent again by now.
    pub fn ask_again(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let late = self.asked.iter_mut().filter(|(_, asked)| asked.again_at <= now);
        let late = late.map(|(sector, asked)| {
            asked.wait = (asked.wait * 2).min(WAIT_MAX);
            *sector
        });
        let late: Vec<u64> = late.collect();
        self.again += late.len() as u64;
        late.into_iter().map(|sector| self.ask(now, sector)).collect()
    }

    /// The disk carries out what comes. Returns its answer.
    pub fn serve(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        let (header, argument, data) = parse(message)?;
        let sector = argument.lba48();
        let asked = self.tags.get(&header.tag).filter(|tagged| tagged.sector == sector);
        if header.flags.is_response() || asked.is_none() {
            return Err(format!("heard what its host never asked: {header:?} {argument:?}"));
        }
        let mut answer = [&header.response(self.address).emit()[..], &argument.emit()].concat();
        if argument.command_status == Opcode::WRITE_SECTORS_EXT.0 {
            let (value, answered) = (value_of(sector, data)?, self.answered(sector));
            self.disk.insert(sector, value);
            if value < answered {
                return Err(format!(
                    "has write {value} of sector {sector}, and {answered} was answered"
                ));
            }
        } else {
            answer.extend(data_of(sector, self.disk.get(&sector).copied().unwrap_or(0)));
        }
        Ok(answer)
    }

    /// The host hears an answer, which may be to something that was answered before.
    pub fn hear(&mut self, message: &[u8]) -> Result<(), String> {
        let (header, argument, data) = parse(message)?;
        let Some(Tagged { sector, value, after }) = self.tags.get(&header.tag).copied() else {
            return Err(format!("was answered what it never asked: {header:?} {argument:?}"));
        };
        if !header.flags.is_response() || sector != argument.lba48() {
            return Err(format!("heard no answer of its disk's: {header:?} {argument:?}"));
        }
        if value.is_none() {
            let read = value_of(sector, data)?;
            if read < after {
                return Err(format!(
                    "read write {read} of sector {sector}, and {after} was answered before"
                ));
            }
        }
        if self.asked.get(&sector).is_some_and(|asked| asked.first_tag <= header.tag) {
            self.asked.remove(&sector);
            self.answered.extend(value.map(|value| (sector, value)));
            self.done += 1;
        }
        Ok(())
    }

    fn next_tag(&self) -> u32 {
        self.tags.len() as u32 + 1
    }

    /// The last write of a sector that was answered; 0: none was.
    fn answered(&self, sector: u64) -> u64 {
        self.answered.get(&sector).copied().unwrap_or(0)
    }

    /// What is asked of a sector, under a tag of its own.
    fn ask(&mut self, now: Instant, sector: u64) -> Vec<u8> {
        let (tag, after) = (self.next_tag(), self.answered(sector));
        let asked = self.asked.get_mut(&sector).expect("something is asked");
        asked.again_at = now + asked.wait;
        let value = asked.value;
        self.tags.insert(tag, Tagged { sector, value, after });
        let body = match value {
            Some(value) => ata(Opcode::WRITE_SECTORS_EXT.0, sector, 1, &data_of(sector, value)),
            None => ata(Opcode::READ_SECTORS_EXT.0, sector, 1, &[]),
        };
        request(self.address, Command::ATA.0, tag, &body)
    }
}

/// A sector's data behind a write.
fn data_of(sector: u64, value: u64) -> Vec<u8> {
    let mut data = [&MARK[..], &sector.to_be_bytes(), &value.to_be_bytes()].concat();
    data.resize(SECTOR, 0);
    data
}

/// Which write data are of.
fn value_of(sector: u64, data: &[u8]) -> Result<u64, String> {
    let at = MARK.len() + 8;
    let value = data.get(at..at + 8).and_then(<[u8]>::first_chunk).copied();
    let value = value.map(u64::from_be_bytes);
    let is_its = |value: &u64| data.get(..SECTOR) == Some(&data_of(sector, *value)[..]);
    value.filter(is_its).ok_or_else(|| {
        let first = &data[..data.len().min(64)];
        format!("was given data that are not its own for sector {sector}: {first:02x?}")
    })
}

/// What a message says, which has to be a command or the answer to one.
fn parse(message: &[u8]) -> Result<(Header, AtaArgument, &[u8]), String> {
    match Message::parse(message) {
        Ok(Message { header, body: Body::Ata(argument, data) }) => Ok((header, argument, data)),
        _ => {
            let first = &message[..message.len().min(64)];
            Err(format!("heard what this customer never sends: {first:02x?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(1_000_000_000);

    fn customer() -> Customer {
        Customer::new(Address::new(7, 0))
    }

    fn answer(it: &mut Customer, asked: &[u8]) {
        let answer = it.serve(asked).expect("it is the host's");
        it.hear(&answer).expect("it is the disk's");
    }

    #[test]
    fn an_old_copy_of_a_write_behind_a_newer_one_is_seen_and_one_before_it_is_not() {
        let mut it = customer();
        let first = it.begin(START, 3, true);
        answer(&mut it, &first);
        answer(&mut it, &first);
        let second = it.begin(START, 3, true);
        answer(&mut it, &second);
        assert_eq!(it.done, 2);
        let seen = it.serve(&first).expect_err("it is old");
        assert_eq!(seen, "has write 1 of sector 3, and 2 was answered");
        let read = it.begin(START, 3, false);
        let seen = it.serve(&read).and_then(|answer| it.hear(&answer)).expect_err("it is old");
        assert_eq!(seen, "read write 1 of sector 3, and 2 was answered before");
    }

    #[test]
    fn what_is_not_answered_is_sent_again_under_another_tag_each_time_later() {
        let mut it = customer();
        let first = it.begin(START, 0, true);
        let mut at = START;
        for wait_ms in [150, 300, 600, 1_000, 1_000] {
            assert_eq!(it.ask_again(at), [[0; 0]; 0]);
            at = at + Duration::from_millis(wait_ms);
            assert_eq!(it.next(), Some(at));
            let again = it.ask_again(at);
            assert!(again.len() == 1 && again[0] != first);
        }
        assert_eq!((it.again, it.waits_since(), it.is_quiet()), (5, Some(START), false));
        // The first one's answer does as well.
        answer(&mut it, &first);
        assert!(it.is_quiet() && it.next().is_none());
    }

    #[test]
    fn what_is_somebody_elses_is_seen() {
        let (mut it, mut other) = (customer(), customer());
        let theirs = other.begin(START, 1, true);
        assert!(it.serve(&theirs).is_err_and(|what| what.starts_with("heard what its host never")));
        let answer = other.serve(&theirs).expect("it is its own");
        assert!(it.hear(&answer).is_err_and(|what| what.starts_with("was answered what it never")));
        let own = it.begin(START, 1, true);
        assert!(it.hear(&own).is_err_and(|what| what.starts_with("heard no answer")));
        let mut forged = own;
        *forged.last_mut().expect("it has data") ^= 1;
        assert!(it.serve(&forged).is_err_and(|what| what.starts_with("was given data")));
    }
}
