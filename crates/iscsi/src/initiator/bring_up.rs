//! From the connection to the disk, and what is asked about it later.
//!
//! ```text
//!   login -> INQUIRY -> [83h] -> TEST UNIT READY -> [B0h] -> [B2h] -> [REPORT SUPPORTED OPERATION CODES, WRITE SAME(16)]
//!         -> READ CAPACITY(16) -> [READ CAPACITY(10)] -> MODE SENSE(6) -> [MODE SENSE(10)] -> live
//!   live: a unit attention "changed" -> all is answered -> the same from INQUIRY on -> new facts, and commands again
//! ```
//! Each session asks for itself, and hears of changes for itself. All must find the same unit: if
//! one finds another, it ends, and the others ask once more before they send anything else. Of two
//! that say different things about the same unit, the one that began to ask later is believed.
//!
//! Steps in brackets may fail, or are asked only where the one before does: units differ in what
//! they have. Every step is asked again while there are unit attentions, and a little later while
//! the unit is not ready. Whose it is comes before all that a target may refuse until it was asked.
//! A reconnect that finds another unit under the old number is refused: its
//! data are not ours. Page B1h is not asked for: a disk here is not told whether it rotates.
//! Errors: a [`Fault`] that says which step was answered how. Spec: SPC-4, SBC-3.

use block::Instant;
use contract::StreamEffect;
use remote::InitiatorNews;
use wire::scsi::capacity::{Capacity10, Capacity16};
use wire::scsi::inquiry::StandardInquiry;
use wire::scsi::mode::{ModeData, ModeFormat, ModePageCode};
use wire::scsi::opcodes::OneCommand;
use wire::scsi::vpd::{self, BlockLimits, BlockProvisioning, DesignatorList, VpdPage};
use wire::scsi::{AdditionalSense, Cdb, OpCode, ScsiStatus, Sense, SenseKey};

use super::Initiator;
use super::exchange::Exchange;
use super::facts::{Found, Identity, Limits, disk_facts, is_ours, names_of_unit};
use super::framing::{Fault, fault};
use super::outcome::{Attention, attention};
use super::port::{Live, Port, State, Unit};
use super::session::{News, Reply, Session};
use crate::limits::{HANDSHAKE, QUESTION_TRIES_MAX, READY_INTERVAL};

/// What a unit is asked, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Inquiry,
    Names,
    Ready,
    Limits,
    Provisioning,
    WriteSame,
    Capacity16,
    Capacity10,
    Mode6,
    Mode10,
}

/// How far the questions about a unit are, and what the answers before said.
#[derive(Debug)]
pub(super) struct Identifying {
    step: Step,
    found: Box<Found>,
    tries: u32,
    /// Nothing that it found is older.
    began: Instant,
}

/// What an answer comes to.
#[derive(Debug)]
enum Answered {
    GoesOn,
    Known,
    /// There is no such unit, as told here.
    Missing(String),
}

impl Identifying {
    /// Asks the first question.
    pub(super) fn begin(now: Instant, session: &mut Session) -> Identifying {
        let (step, found) = (Step::Inquiry, Box::default());
        let identifying = Identifying { step, found, tries: 0, began: now };
        identifying.ask(now, session);
        identifying
    }

    fn ask(&self, at: Instant, session: &mut Session) {
        let page = |page: VpdPage, most: u16| (Cdb::vital_product_data(page.0, most), most.into());
        let (what, (cdb, most)) = match self.step {
            Step::Ready => ("TEST UNIT READY", (Cdb::test_unit_ready(), 0)),
            Step::Inquiry => ("INQUIRY", (Cdb::inquiry(96), 96)),
            // As much as the names of all but peculiar units take, which are cut.
            Step::Names => ("INQUIRY page 83h", page(VpdPage::DEVICE_IDENTIFICATION, 1024)),
            Step::Limits => ("INQUIRY page B0h", page(VpdPage::BLOCK_LIMITS, 64)),
            Step::Provisioning => ("INQUIRY page B2h", page(VpdPage::BLOCK_PROVISIONING, 64)),
            Step::WriteSame => {
                let cdb = Cdb::report_opcode(OpCode::WRITE_SAME_16, None, 64);
                ("REPORT SUPPORTED OPERATION CODES", (cdb, 64))
            }
            Step::Capacity16 => ("READ CAPACITY(16)", (Cdb::read_capacity_16(32), 32)),
            Step::Capacity10 => ("READ CAPACITY(10)", (Cdb::read_capacity_10(), 8)),
            Step::Mode6 => {
                ("MODE SENSE(6)", (Cdb::mode_sense_6(ModePageCode::CACHING.0, true, 192), 192))
            }
            Step::Mode10 => {
                ("MODE SENSE(10)", (Cdb::mode_sense_10(ModePageCode::CACHING.0, true, 192), 192))
            }
        };
        session.ask(at, what, cdb, most);
    }

    /// Takes an answer, and asks what follows.
    fn handle_reply(
        &mut self,
        now: Instant,
        reply: &Reply,
        session: &mut Session,
    ) -> Result<Answered, Fault> {
        if let Some(at) = asks_again(now, reply) {
            self.tries += 1;
            if self.tries == QUESTION_TRIES_MAX {
                return fault(reply.refusal());
            }
            if news_of(reply).is_some() {
                // What was said before may not be so any more.
                (self.step, self.found, self.began) = (Step::Inquiry, Box::default(), now);
            }
            self.ask(at, session);
            return Ok(Answered::GoesOn);
        }
        if is_missing(reply) {
            return Ok(Answered::Missing(reply.refusal()));
        }
        let next = match self.take(reply)? {
            Taken::Step(step) => step,
            Taken::All => return Ok(Answered::Known),
            Taken::Missing(why) => return Ok(Answered::Missing(why)),
        };
        self.step = next;
        self.ask(now, session);
        Ok(Answered::GoesOn)
    }

    /// Takes what an answer says.
    fn take(&mut self, reply: &Reply) -> Result<Taken, Fault> {
        let found = &mut *self.found;
        let is_good = reply.is_good();
        Ok(Taken::Step(match self.step {
            // Whoever has it reserved does not keep us from knowing it.
            Step::Ready if is_good || reply.status == ScsiStatus::RESERVATION_CONFLICT => {
                Step::Limits
            }
            Step::Inquiry if is_good => {
                found.inquiry = reply.parse(StandardInquiry::read)?;
                let peripheral = found.inquiry.peripheral;
                match (peripheral.qualifier(), peripheral.device_type()) {
                    (0, 0) => Step::Names,
                    (0, kind) => {
                        let why = format!("it is no disk (device type {kind:#04x})");
                        return Ok(Taken::Missing(why));
                    }
                    _ => return Ok(Taken::Missing("there is none".to_owned())),
                }
            }
            Step::Names => {
                if is_good {
                    let body = vpd::body(&reply.data, VpdPage::DEVICE_IDENTIFICATION);
                    let names = body.and_then(DesignatorList::parse).unwrap_or_default();
                    found.names = names_of_unit(names.0);
                }
                Step::Ready
            }
            Step::Limits => {
                if is_good {
                    found.limits = BlockLimits::read(&reply.data).unwrap_or_default();
                }
                Step::Provisioning
            }
            Step::Provisioning => {
                if is_good {
                    found.provisioning = BlockProvisioning::read(&reply.data).unwrap_or_default();
                }
                Step::WriteSame
            }
            Step::WriteSame => {
                found.write_same = OneCommand::parse(&reply.data).ok().filter(|_| is_good);
                Step::Capacity16
            }
            Step::Capacity16 if is_good => {
                found.capacity = reply.parse(Capacity16::read)?;
                Step::Mode6
            }
            // Older units have the older command alone.
            Step::Capacity16 => Step::Capacity10,
            Step::Capacity10 if is_good => {
                let Capacity10 { last_lba, block_length } = reply.parse(Capacity10::parse)?;
                let last_lba = last_lba.into();
                found.capacity = Capacity16 { last_lba, block_length, ..Capacity16::default() };
                Step::Mode6
            }
            Step::Mode6 | Step::Mode10 => {
                let is_long = self.step == Step::Mode10;
                let format = if is_long { ModeFormat::Ten } else { ModeFormat::Six };
                let said = format.said(&reply.data);
                found.mode = ModeData::parse(said, format).ok().filter(|_| is_good);
                match found.mode {
                    None if !is_long => Step::Mode10,
                    _ => return Ok(Taken::All),
                }
            }
            _ => return fault(reply.refusal()),
        }))
    }
}

/// What an answer that counts says.
enum Taken {
    Step(Step),
    All,
    Missing(String),
}

/// When a question is asked again, if that is what its answer comes to.
fn asks_again(now: Instant, reply: &Reply) -> Option<Instant> {
    let is_absent = |sense: &Sense| sense.code == AdditionalSense::MEDIUM_NOT_PRESENT;
    match (reply.status, reply.sense.map(|sense| sense.key)) {
        (ScsiStatus::CHECK_CONDITION, Some(SenseKey::UNIT_ATTENTION)) => Some(now),
        (ScsiStatus::CHECK_CONDITION, Some(SenseKey::NOT_READY)) => {
            (!reply.sense.as_ref().is_some_and(is_absent)).then(|| now + READY_INTERVAL)
        }
        (ScsiStatus::CHECK_CONDITION, Some(SenseKey::ABORTED_COMMAND))
        | (ScsiStatus::BUSY | ScsiStatus::TASK_SET_FULL | ScsiStatus::TASK_ABORTED, _) => {
            Some(now + READY_INTERVAL)
        }
        _ => None,
    }
}

/// What an answer says about the unit beside what was asked.
fn news_of(reply: &Reply) -> Option<Attention> {
    reply.sense.as_ref().and_then(attention)
}

/// Whether there is no unit under the number.
fn is_missing(reply: &Reply) -> bool {
    reply.sense.is_some_and(|sense| sense.code == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
}

impl Initiator {
    /// Asks for a port's connection. The driver has a time limit of its own for that; the login gets
    /// ours once it stands.
    pub(super) fn open(&mut self, at: usize) {
        let (token, poll) = (self.next_token, self.settings.poll);
        self.next_token = token.wrapping_add(1);
        let address = self.ports[at].address(&self.settings);
        self.effects.push_back(StreamEffect::Connect { token, address, poll });
        self.ports[at].open(&self.settings, token);
    }

    /// What follows news of a session. A fault leaves [`State::Failed`], which is broken off.
    pub(super) fn handle_news(&mut self, now: Instant, at: usize, news: News) -> Result<(), Fault> {
        let state = core::mem::replace(&mut self.ports[at].state, State::Failed);
        let session = &mut self.ports[at].session;
        let state = match (state, news) {
            (State::LoggingIn { .. }, News::LoggedIn) => {
                let identifying = Identifying::begin(now, session);
                State::Identifying { identifying, by: now + HANDSHAKE * 2 }
            }
            (State::Identifying { mut identifying, by }, News::Answered(reply)) => {
                match identifying.handle_reply(now, &reply, session)? {
                    Answered::GoesOn => State::Identifying { identifying, by },
                    Answered::Known => match self.known(now, at, &identifying)? {
                        Some(limits) => self.begin_live(now, at, limits, &identifying),
                        None => {
                            let identifying = Identifying::begin(now, &mut self.ports[at].session);
                            State::Identifying { identifying, by }
                        }
                    },
                    Answered::Missing(why) => {
                        return Err(Fault::Final(format!("LUN {}: {why}", self.settings.lun)));
                    }
                }
            }
            (State::Live(live), News::Answered(reply)) => self.look(now, at, live, &reply)?,
            (State::Live(live), News::Attention(attention)) => {
                State::Live(self.attend(at, live, attention))
            }
            (State::Live(mut live), News::LogoutWanted(seconds)) => {
                let by = now + core::time::Duration::from_secs(seconds.into());
                live.leave_by.get_or_insert(by);
                State::Live(live)
            }
            (State::Leaving { .. }, News::LoggedOut) => {
                return fault(if self.disk.presence.is_closing() {
                    "closed"
                } else {
                    "the target asked us to log out"
                });
            }
            (State::Live(_) | State::Identifying { .. }, News::LoggedOut) => {
                return fault("the target logged us out");
            }
            (state, _) => state,
        };
        self.ports[at].state = state;
        self.look_for_unit();
        self.tell_of_all();
        Ok(())
    }

    /// The unit is known: commands may follow. That a port has logged in again tells, of a target of
    /// ours, that nothing of its earlier session is carried out any more; a redirection may lead
    /// elsewhere.
    fn begin_live(
        &mut self,
        now: Instant,
        at: usize,
        limits: Limits,
        identifying: &Identifying,
    ) -> State {
        let is_ours = is_ours(&identifying.found.inquiry);
        self.stood += 1;
        let port = &mut self.ports[at];
        (port.attempts, port.stands_since) = (0, Some(self.stood));
        port.is_missed = false;
        port.fault.clear();
        if is_ours && port.moved_to.is_none() {
            let is_its = |wire: &Exchange| usize::from(wire.port) == at;
            self.disk.doubt_is_over(now, is_its);
        }
        self.disk.came();
        for other in 0..self.ports.len() {
            if let State::Unopened = self.ports[other].state {
                self.open(other);
            }
        }
        State::Live(Live { limits, is_ours, unit: Unit::Known, leave_by: None })
    }

    /// Of several sessions, people hear when all stand.
    fn tell_of_all(&mut self) {
        if self.ports.len() > 1 && !self.is_whole && self.ports.iter().all(Port::is_live) {
            self.is_whole = true;
            self.disk.presence.news.push_back(InitiatorNews::WayFound);
        }
    }

    /// All is known about the unit, which must be the one that it was: what it takes. `None`: another
    /// session says something else, and began to ask later; so it has to be asked once more.
    fn known(
        &mut self,
        now: Instant,
        at: usize,
        identifying: &Identifying,
    ) -> Result<Option<Limits>, Fault> {
        let (lun, found) = (self.settings.lun, &*identifying.found);
        let (limits, facts) = Limits::new(found)
            .and_then(|limits| Ok((limits, disk_facts(found, &limits)?)))
            .map_err(|why| Fault::Final(format!("LUN {lun}: {why}")))?;
        let identity = Identity { names: found.names.clone(), block_shift: limits.block_shift };
        match &self.identity {
            Some(known) if *known != identity => {
                let seen = format!("expected {known}, seen {identity}");
                self.suspect_others(now, at);
                return fault(format!("LUN {lun} is another unit now: {seen}"));
            }
            _ => self.identity = Some(identity),
        }
        let is_other = self.disk.presence.facts().is_some_and(|known| *known != facts);
        if is_other && identifying.began < self.facts_at {
            return Ok(None);
        }
        self.facts_at = self.facts_at.max(identifying.began);
        self.disk.presence.set_facts(facts);
        Ok(Some(limits))
    }

    /// A session found another unit: the others ask theirs who it is.
    fn suspect_others(&mut self, now: Instant, but: usize) {
        for at in (0..self.ports.len()).filter(|at| *at != but) {
            if let State::Live(live) = &mut self.ports[at].state
                && let Unit::Known = live.unit
            {
                live.unit = Unit::Changed;
                self.look_again(now, at);
            }
        }
    }

    /// A unit that was started anew may have lost what it had. All sessions are told; that by which
    /// flushes go is, before it flushes again.
    fn note_restart(&mut self, at: usize, attention: Attention) {
        if attention == Attention::Restarted && self.eldest() == Some(at) {
            self.disk.doubt_flushes(self.shared);
        }
    }

    /// The unit tells that something happened to it.
    fn attend(&mut self, at: usize, mut live: Live, attention: Attention) -> Live {
        self.note_restart(at, attention);
        // What waits does so until it is known what there is.
        self.disk.came();
        live.unit = match live.unit {
            Unit::Asked { identifying, .. } => Unit::Asked { identifying, again: true },
            _ => Unit::Changed,
        };
        live
    }

    /// Asks what became of a unit that changed, once all is answered that a session sent to it; and
    /// whether there is something to know, of one that a session has not asked for anything lately.
    pub(super) fn look_again(&mut self, now: Instant, at: usize) {
        let Port { state: State::Live(live), session, .. } = &mut self.ports[at] else { return };
        // Its own question, or the logout, comes first.
        if session.question().is_some() || live.leave_by.is_some() {
            return;
        }
        let is_due = live.check_at(session) <= now;
        match live.unit {
            Unit::Changed if session.outstanding() == 0 => {}
            // It may be back.
            Unit::Gone if is_due => {}
            Unit::Known if is_due => {
                return session.ask(now, "TEST UNIT READY", Cdb::test_unit_ready(), 0);
            }
            _ => return,
        }
        let identifying = Identifying::begin(now, session);
        live.unit = Unit::Asked { identifying, again: false };
    }

    /// An answer about a unit that changed, or may have.
    fn look(
        &mut self,
        now: Instant,
        at: usize,
        mut live: Live,
        reply: &Reply,
    ) -> Result<State, Fault> {
        let news = news_of(reply);
        let Unit::Asked { identifying, again } = &mut live.unit else {
            return Ok(State::Live(match news {
                Some(news) => self.attend(at, live, news),
                None => live,
            }));
        };
        if let Some(news) = news {
            self.note_restart(at, news);
        }
        let again = *again;
        let missing = match identifying.handle_reply(now, reply, &mut self.ports[at].session)? {
            Answered::GoesOn => return Ok(State::Live(live)),
            Answered::Missing(why) => Some(why),
            Answered::Known => {
                let Some(limits) = self.known(now, at, identifying)? else {
                    live.unit = Unit::Changed;
                    return Ok(State::Live(live));
                };
                live.limits = limits;
                self.disk.came();
                None
            }
        };
        live.unit = match missing {
            // It changed once more meanwhile.
            _ if again => Unit::Changed,
            None => Unit::Known,
            Some(why) => {
                self.ports[at].fault = why;
                Unit::Gone
            }
        };
        Ok(State::Live(live))
    }
}

#[cfg(test)]
mod tests {
    use wire::iscsi::IscsiName;

    use super::*;
    use crate::initiator::Settings;

    #[test]
    fn of_two_answers_that_differ_the_one_that_was_asked_for_later_is_believed() {
        let name = |name| IscsiName::new(name).expect("a valid name");
        let (target, own) = (name("iqn.2026-11.a:target"), name("iqn.2026-11.a:own"));
        let address = "127.0.0.1:3260".parse().expect("an address");
        let settings = Settings::new(address, target, 0, own, [0x80, 0, 0, 0, 0, 0]);
        let mut initiator = Initiator::new(settings, false, 1);
        let mut known = |last_lba, began| {
            let capacity = Capacity16 { last_lba, block_length: 512, ..Capacity16::default() };
            let found = Box::new(Found { capacity, ..Found::default() });
            let began = Instant(began);
            let asked = Identifying { step: Step::Mode6, found, tries: 0, began };
            initiator.known(Instant(9), 0, &asked).expect("the same unit").is_some()
        };
        assert!(known(1023, 5), "nobody said anything before");
        assert!(!known(511, 4), "it may have grown since");
        assert!(known(1023, 4), "they agree");
        assert!(known(511, 6));
        assert!(!known(1023, 5));
    }

    #[test]
    fn a_question_is_asked_again_at_once_after_an_attention_and_later_of_one_that_is_not_ready() {
        let now = Instant(1);
        let check = ScsiStatus::CHECK_CONDITION;
        let of = |status, sense| asks_again(now, &Reply::new(status, sense));
        let attention = Sense::attention(AdditionalSense::POWER_ON);
        assert_eq!(of(check, Some(attention)), Some(now));
        let becoming = Sense::new(SenseKey::NOT_READY, AdditionalSense::BECOMING_READY);
        assert_eq!(of(check, Some(becoming)), Some(now + READY_INTERVAL));
        let absent = Sense::new(SenseKey::NOT_READY, AdditionalSense::MEDIUM_NOT_PRESENT);
        assert_eq!(of(check, Some(absent)), None);
        assert_eq!(of(ScsiStatus::BUSY, None), Some(now + READY_INTERVAL));
        assert_eq!(of(ScsiStatus::GOOD, None), None);
        let gone = Sense::illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        assert!(of(check, Some(gone)).is_none());
        assert!(is_missing(&Reply::new(check, Some(gone))));
    }
}
