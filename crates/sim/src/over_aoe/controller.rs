//! A host that administers the target over AoE: config strings, masks and reservations, while
//! clients work. One change at a time, sent again until it is answered.
//!
//! It knows what the target must answer, also after kills: what was answered once stands until the
//! next change is asked for. And it knows who is shut out: between the answer to a change and the
//! next one, exactly one list is in force; while one is under way, both may be.
//!
//! Copies of a change are changes themselves, so it rests until its last frame is surely dead
//! before it asks for another: a target cannot tell an old copy from a new wish. Units: virtual
//! nanoseconds.

use std::collections::BTreeSet;

use block::Random;
use testkit::aoe::Station;
use wire::aoe::{
    Command, ConfigArgument, ConfigCommand, Directive, DirectiveCommand, ErrorCode, Header,
    MaskArgument, MaskCommand, MaskError, ReserveArgument, ReserveCommand,
};
use wire::ethernet::MacAddress;

use super::lan::ADDRESS;
use crate::client::SimWorld;
use crate::seed::Counts;

const MILLISECOND: u64 = 1_000_000;
/// Between two copies of what is not answered.
const AGAIN: u64 = 250 * MILLISECOND;
/// A frame is dead after so long, and what a copy of it began is over.
const DEAD: u64 = 1_200 * MILLISECOND;

/// A list of stations, as it came to be.
#[derive(Debug)]
struct State {
    asked_at: u64,
    answered_at: Option<u64>,
    list: BTreeSet<MacAddress>,
}

/// Who was listed when. An empty list shuts nobody out.
#[derive(Debug)]
struct History(Vec<State>);

impl History {
    fn new() -> History {
        History(vec![State { asked_at: 0, answered_at: Some(0), list: BTreeSet::new() }])
    }

    fn ask(&mut self, now: u64, list: BTreeSet<MacAddress>) {
        self.0.push(State { asked_at: now, answered_at: None, list });
    }

    fn answer(&mut self, now: u64) {
        let last = self.0.last_mut().expect("there is a first");
        last.answered_at.get_or_insert(now);
    }

    fn list(&self) -> &BTreeSet<MacAddress> {
        &self.0.last().expect("there is a first").list
    }

    /// Whether whatever was in force from `start` to `end` listed others, and none of these.
    fn shuts_out(&self, macs: &[MacAddress], start: u64, end: u64) -> bool {
        let known = |state: &State| state.answered_at.is_some_and(|at| at <= start);
        let first = self.0.iter().rposition(known).unwrap_or(0);
        let others = |state: &State| {
            !state.list.is_empty() && !macs.iter().any(|mac| state.list.contains(mac))
        };
        self.0[first..].iter().take_while(|state| state.asked_at <= end).all(others)
    }
}

/// What is asked.
#[derive(Clone, Debug)]
enum What {
    ReadConfig,
    TestConfig(ConfigCommand, Vec<u8>),
    SetConfig(ConfigCommand, Vec<u8>),
    ReadMask,
    EditMask(BTreeSet<MacAddress>, Vec<Directive>),
    ReadReserved,
    Reserve(ReserveCommand, BTreeSet<MacAddress>),
}

/// A question that is not answered.
#[derive(Debug)]
struct Asked {
    what: What,
    bytes: Vec<u8>,
    sent_at: u64,
}

/// The administrator.
#[derive(Debug)]
pub(crate) struct ControlHost {
    random: Random,
    station: usize,
    /// What it says and may hear.
    speaker: Station,
    clients: Vec<Vec<MacAddress>>,
    /// What it draws from: what is beyond the others is a reservation.
    kinds: u64,
    asked: Option<Asked>,
    next_at: u64,
    /// When it is woken.
    alarmed_at: u64,
    stopping: bool,
    config: Vec<u8>,
    mask: History,
    reserved: History,
}

impl ControlHost {
    pub(crate) fn new(
        random: Random,
        station: usize,
        speaker: Station,
        clients: Vec<Vec<MacAddress>>,
    ) -> ControlHost {
        ControlHost {
            random,
            station,
            speaker,
            clients,
            kinds: 12,
            asked: None,
            next_at: 0,
            alarmed_at: 0,
            stopping: false,
            config: Vec::new(),
            mask: History::new(),
            reserved: History::new(),
        }
    }

    /// Reserves and releases more than anything else.
    pub(crate) fn reserve_often(&mut self) {
        self.kinds *= 3;
    }

    /// Lets everybody in again, and is quiet then.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether everybody is let in and nothing is asked any more.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_open = self.mask.list().is_empty() && self.reserved.list().is_empty();
        self.stopping && self.asked.is_none() && is_open
    }

    /// Whether a host with these addresses was shut out from `start` to `end`.
    pub(crate) fn shuts_out(&self, macs: &[MacAddress], start: u64, end: u64) -> bool {
        self.mask.shuts_out(macs, start, end) || self.reserved.shuts_out(macs, start, end)
    }

    /// Whether a host with these addresses was shut out by a reservation from `start` to `end`.
    pub(crate) fn reserves_out(&self, macs: &[MacAddress], start: u64, end: u64) -> bool {
        self.reserved.shuts_out(macs, start, end)
    }

    /// Since when the volume is surely reserved, so that whoever is nobody's station is shut out.
    pub(crate) fn reserved_since(&self) -> Option<u64> {
        let last = self.reserved.0.last()?;
        last.answered_at.filter(|_| !last.list.is_empty())
    }

    /// Whether somebody who is no station was shut out from `start` to `end`.
    pub(crate) fn reserves(&self, start: u64, end: u64) -> bool {
        self.reserved.shuts_out(&[], start, end)
    }

    /// What it waits for, in words.
    pub(crate) fn state(&self) -> String {
        format!("{:?}, goes on at {}", self.asked, self.next_at)
    }

    /// Takes answers, asks again, asks anew.
    pub(crate) fn drive(
        &mut self,
        world: &mut SimWorld,
        counts: &mut Counts,
    ) -> Result<(), String> {
        while let Some(frame) = world.receive_frame(self.station) {
            if let Some((header, body)) = self.speaker.hear(&frame)? {
                self.take(world.now, &header, &body, counts)?;
            }
        }
        let now = world.now;
        if self.is_quiet() {
            return Ok(());
        }
        if now >= self.next_at {
            if self.asked.is_none() {
                let what = self.draw();
                self.begin(now, what);
            }
            let asked = self.asked.as_mut().expect("something is asked");
            asked.sent_at = now;
            world.send_frame(self.station, &asked.bytes);
            self.next_at = now + AGAIN;
        }
        if self.alarmed_at != self.next_at {
            self.alarmed_at = self.next_at;
            world.alarm_at(self.next_at);
        }
        Ok(())
    }

    fn some_clients(&mut self) -> BTreeSet<MacAddress> {
        let mut list = BTreeSet::from([self.speaker.mac]);
        for index in 0..self.clients.len() {
            if self.random.chance(3, 4) {
                list.extend(&self.clients[index]);
            }
        }
        list
    }

    fn draw(&mut self) -> What {
        let everybody = BTreeSet::new();
        if self.stopping {
            return match self.mask.list().is_empty() {
                false => self.edit_mask(everybody),
                true => What::Reserve(ReserveCommand::FORCE, everybody),
            };
        }
        let string = || b"shelf seven".to_vec();
        match self.random.below(self.kinds) {
            0 => What::ReadConfig,
            1 if !self.config.is_empty() => {
                let length = self.random.below(self.config.len() as u64) as usize;
                What::TestConfig(ConfigCommand::PREFIX, self.config[..length].to_vec())
            }
            1 | 2 => What::TestConfig(ConfigCommand::TEST, self.config.clone()),
            3 if self.random.chance(1, 2) => What::SetConfig(ConfigCommand::SET, string()),
            3 => {
                let string = self.random.next_u64().to_le_bytes().to_vec();
                What::SetConfig(ConfigCommand::SET, string)
            }
            4 => {
                let length = self.random.below(1025);
                let string = (0..length).map(|_| self.random.next_u64() as u8).collect();
                What::SetConfig(ConfigCommand::FORCE, string)
            }
            5 => What::ReadMask,
            6 | 7 if self.mask.list().is_empty() => {
                let list = self.some_clients();
                self.edit_mask(list)
            }
            6 | 7 => self.edit_mask(everybody),
            8 => What::ReadReserved,
            _ if !self.reserved.list().is_empty() && self.random.chance(3, 4) => {
                What::Reserve(ReserveCommand::SET, everybody)
            }
            _ => {
                let set = self.random.chance(1, 2);
                let command = if set { ReserveCommand::SET } else { ReserveCommand::FORCE };
                What::Reserve(command, self.some_clients())
            }
        }
    }

    /// A question that is new: what it would change is in doubt from now on.
    fn begin(&mut self, now: u64, what: What) {
        match &what {
            What::EditMask(list, _) => self.mask.ask(now, list.clone()),
            What::Reserve(_, list) => self.reserved.ask(now, list.clone()),
            _ => {}
        }
        self.put(now, what);
    }

    /// Makes the frame of a question, which is under way from now on.
    fn put(&mut self, now: u64, what: What) {
        let config = |command, string: &[u8]| {
            let argument = ConfigArgument::request(command, string.len() as u16);
            (Command::CONFIG, [&argument.emit()[..], string].concat())
        };
        let (command, body) = match &what {
            What::ReadConfig => config(ConfigCommand::READ, &[]),
            What::TestConfig(command, string) | What::SetConfig(command, string) => {
                config(*command, string)
            }
            What::ReadMask => (Command::MAC_MASK, mask(MaskCommand::READ, &[])),
            What::EditMask(_, edits) => (Command::MAC_MASK, mask(MaskCommand::EDIT, edits)),
            What::ReadReserved => {
                (Command::RESERVE, reserve(ReserveCommand::READ, &BTreeSet::new()))
            }
            What::Reserve(command, list) => (Command::RESERVE, reserve(*command, list)),
        };
        let bytes = self.speaker.ask(ADDRESS, command, &body);
        self.asked = Some(Asked { what, bytes, sent_at: now });
    }

    /// An edit that makes this of the mask.
    fn edit_mask(&self, list: BTreeSet<MacAddress>) -> What {
        let directive = |command| move |mac: &MacAddress| Directive { command, mac: *mac };
        let added = list.iter().map(directive(DirectiveCommand::ADD));
        let gone = self.mask.list().difference(&list).map(directive(DirectiveCommand::DELETE));
        let edits = gone.chain(added).collect();
        What::EditMask(list, edits)
    }

    /// An answer came.
    fn take(
        &mut self,
        now: u64,
        header: &Header,
        body: &[u8],
        counts: &mut Counts,
    ) -> Result<(), String> {
        let Asked { what, sent_at, .. } = self.asked.take().expect("it is answered once");
        if header.flags.is_error() {
            self.refused(sent_at, &what, header.error)?;
            if header.error == ErrorCode::DEVICE_UNAVAILABLE {
                // A copy of it may have been stored all the same: it is asked until it is done.
                counts.unavailable += 1;
                self.put(now, what);
            }
            return Ok(());
        }
        let wrong = |seen: String| Err(format!("{what:?} was answered {seen}"));
        match &what {
            What::ReadConfig | What::TestConfig(..) | What::SetConfig(..) => {
                if let What::SetConfig(command, string) = &what {
                    let is_free = self.config.is_empty() || self.config == *string;
                    if *command == ConfigCommand::SET && !is_free {
                        return wrong(format!("as done, though it is {:02x?}", self.config));
                    }
                    self.config.clone_from(string);
                    counts.changes += 1;
                }
                let argument = ConfigArgument::parse(body).expect("an answer is whole");
                let string = &body[ConfigArgument::SIZE..][..argument.length.into()];
                if string != self.config {
                    return wrong(format!("{string:02x?} and must be {:02x?}", self.config));
                }
            }
            What::ReadMask | What::EditMask(..) => {
                let argument = MaskArgument::parse(body).expect("an answer is whole");
                let list = body[MaskArgument::SIZE..].chunks_exact(Directive::SIZE);
                let list: BTreeSet<MacAddress> = list
                    .take(argument.count.into())
                    .map(|bytes| Directive::parse(bytes).expect("a whole directive").mac)
                    .collect();
                if argument.error != MaskError::NONE || list != *self.mask.list() {
                    return wrong(format!("{argument} {list:?}, not {:?}", self.mask.list()));
                }
                counts.changes += u64::from(argument.command == MaskCommand::EDIT);
                self.mask.answer(now);
            }
            What::ReadReserved | What::Reserve(..) => {
                let argument = ReserveArgument::parse(body).expect("an answer is whole");
                let list = body[ReserveArgument::SIZE..].chunks_exact(6);
                let list: BTreeSet<MacAddress> = list
                    .take(argument.count.into())
                    .map(|mac| MacAddress(mac.try_into().expect("6 bytes")))
                    .collect();
                if list != *self.reserved.list() {
                    return wrong(format!("{list:?}, not {:?}", self.reserved.list()));
                }
                counts.changes += u64::from(argument.command != ReserveCommand::READ);
                self.reserved.answer(now);
            }
        }
        // Clients work for a while as things are now; not so long if some of them cannot.
        let is_open = self.mask.list().is_empty() && self.reserved.list().is_empty();
        let rest = match (self.stopping, is_open) {
            (true, _) => 0,
            (false, true) => self.random.below(4_000 * MILLISECOND),
            (false, false) => self.random.below(400 * MILLISECOND),
        };
        self.next_at = sent_at + DEAD + rest;
        Ok(())
    }

    /// The target refused something.
    fn refused(&mut self, sent_at: u64, what: &What, error: ErrorCode) -> Result<(), String> {
        self.next_at = sent_at + DEAD;
        match (what, error) {
            (What::SetConfig(ConfigCommand::SET, string), ErrorCode::CONFIG_PRESENT)
                if !self.config.is_empty() && self.config != *string =>
            {
                Ok(())
            }
            (
                What::SetConfig(..) | What::EditMask(..) | What::Reserve(..),
                ErrorCode::DEVICE_UNAVAILABLE,
            ) => Ok(()),
            (what, error) => Err(format!("{what:?} was refused: {error}")),
        }
    }
}

fn mask(command: MaskCommand, directives: &[Directive]) -> Vec<u8> {
    let count = directives.len() as u8;
    let mut bytes = MaskArgument { command, error: MaskError::NONE, count }.emit().to_vec();
    directives.iter().for_each(|directive| bytes.extend(directive.emit()));
    bytes
}

fn reserve(command: ReserveCommand, list: &BTreeSet<MacAddress>) -> Vec<u8> {
    let mut bytes = ReserveArgument { command, count: list.len() as u8 }.emit().to_vec();
    list.iter().for_each(|mac| bytes.extend(mac.0));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_listed_is_shut_out_from_the_answer_until_the_next_change_is_asked_for() {
        let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
        let mut history = History::new();
        assert!(!history.shuts_out(&[mac(1)], 5, 6), "an empty list lets all in");
        history.ask(10, [mac(2)].into());
        assert!(!history.shuts_out(&[mac(1)], 11, 12), "it is not answered");
        history.answer(20);
        assert!(history.shuts_out(&[mac(1)], 21, 22));
        assert!(!history.shuts_out(&[mac(1)], 19, 22), "it began before");
        assert!(!history.shuts_out(&[mac(1), mac(2)], 21, 22));
        history.ask(30, BTreeSet::new());
        assert!(history.shuts_out(&[mac(1)], 21, 29));
        assert!(!history.shuts_out(&[mac(1)], 21, 30));
    }
}
