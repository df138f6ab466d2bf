//! The initiator's end of a negotiation: what it offers, and whether what the target makes of it is
//! a result that there can be.
//!
//! Each key is offered once, in the operational stage. A key that the target does not answer is as
//! the standard has it by default, but for the digests, on which we insist. Errors: a text that
//! says what was offered and what was answered. Spec: RFC 7143, 6.2 and 13.

use wire::iscsi::Digests;
use wire::iscsi::keys::values::{self, yes_no};
use wire::iscsi::keys::{IRRELEVANT, Key, NONE, NOT_UNDERSTOOD, REJECT, push};

use super::{CRC32C, Keys, Parameters, is_irrelevant_in_discovery, number, range};
use crate::limits::{
    BURST_MAX, DISCOVERY_SEGMENT_MAX, INITIATOR_FIRST_BURST, INITIATOR_R2T_MAX,
    INITIATOR_SEGMENT_MAX, TIME_TO_RETAIN, TIME_TO_WAIT,
};

/// What an initiator offers, and what is answered. Order of calls: [`emit`](Self::emit) once,
/// [`take`](Self::take) for each key that the target sends, then
/// [`parameters`](Self::parameters).
#[derive(Clone, Debug)]
pub struct Offer {
    digests: Digests,
    is_discovery: bool,
    /// Keys that were offered and are not answered, and those that the target sent.
    pending: Keys,
    seen: Keys,
    agreed: Parameters,
    portal_group: Option<u16>,
}

/// How numbers of both ends become one.
#[derive(Clone, Copy)]
enum Rule {
    Minimum(u32),
    Maximum(u32),
}

impl Offer {
    /// For a session that asks for these digests; `is_discovery` for one that asks for targets.
    pub fn new(digests: Digests, is_discovery: bool) -> Offer {
        Offer {
            digests,
            is_discovery,
            pending: Keys::default(),
            seen: Keys::default(),
            agreed: Parameters::default(),
            portal_group: None,
        }
    }

    /// Appends what we offer and declare.
    pub fn emit(&mut self, text: &mut Vec<u8>) {
        let segment = if self.is_discovery { DISCOVERY_SEGMENT_MAX } else { INITIATOR_SEGMENT_MAX };
        push(text, Key::MaxRecvDataSegmentLength.name(), segment);
        for key in Key::ALL.iter().copied() {
            if self.is_discovery && is_irrelevant_in_discovery(key) {
                continue;
            }
            match (key, rule(key)) {
                (Key::HeaderDigest, _) => push(text, key.name(), digest(self.digests.header)),
                (Key::DataDigest, _) => push(text, key.name(), digest(self.digests.data)),
                (_, Some(Rule::Minimum(ours) | Rule::Maximum(ours))) => {
                    push(text, key.name(), ours);
                }
                _ => match ours(key) {
                    Some(ours) => push(text, key.name(), yes_no(ours)),
                    None => continue,
                },
            }
            self.pending.insert(key);
        }
    }

    /// Takes a key that the target sent, and appends what is to be answered, should it be an offer
    /// of the target's own.
    pub fn take(&mut self, key: &str, value: &str, replies: &mut Vec<u8>) -> Result<(), String> {
        let Some(known) = Key::from_name(key) else {
            if value != NOT_UNDERSTOOD {
                push(replies, key, NOT_UNDERSTOOD);
            }
            return Ok(());
        };
        if !self.seen.insert(known) {
            return Err(format!("the target sent {key} twice"));
        }
        let was_offered = self.pending.remove(known);
        let illegal = |expected: &str| Err(format!("{key}: expected {expected}, seen {value:?}"));
        match known {
            Key::MaxRecvDataSegmentLength => match number(known, value) {
                Some(length) => self.agreed.peer_segment = length,
                None => return illegal("512 to 16777215"),
            },
            Key::TargetPortalGroupTag => match values::number(value).map(u16::try_from) {
                Ok(Ok(tag)) => self.portal_group = Some(tag),
                _ => return illegal("0 to 65535"),
            },
            Key::TargetAlias | Key::TargetAddress | Key::TargetName => {}
            _ if !was_offered => push(replies, key, REJECT),
            _ if value == IRRELEVANT => {}
            Key::HeaderDigest if value == digest(self.digests.header) => {
                self.agreed.header_digest = self.digests.header;
            }
            Key::DataDigest if value == digest(self.digests.data) => {
                self.agreed.data_digest = self.digests.data;
            }
            Key::HeaderDigest => return illegal(&insisted(self.digests.header, "hdgst")),
            Key::DataDigest => return illegal(&insisted(self.digests.data, "ddgst")),
            _ => return self.result(known, value).or_else(|expected| illegal(&expected)),
        }
        Ok(())
    }

    /// Takes the target's result of a key; the error says what was expected.
    fn result(&mut self, key: Key, value: &str) -> Result<(), String> {
        if let Some(ours) = ours(key) {
            let result = values::boolean(value).map_err(|_| "Yes or No")?;
            // Yes of an end that wants it decides where the result is the OR, No where it is the
            // AND.
            match key {
                Key::InitialR2T => self.agreed.initial_r2t = result,
                Key::ImmediateData => self.agreed.immediate_data = result,
                _ if result != ours => return Err(yes_no(ours).to_owned()),
                _ => {}
            }
            return Ok(());
        }
        let Some(rule) = rule(key) else { return Ok(()) };
        let range = range(key).expect("a number has a range");
        let (least, most) = match rule {
            Rule::Minimum(ours) => (*range.start(), ours),
            Rule::Maximum(ours) => (ours, *range.end()),
        };
        let result = number(key, value).filter(|result| (least..=most).contains(result));
        let result = result.ok_or_else(|| format!("{least} to {most}"))?;
        let agreed = &mut self.agreed;
        match key {
            Key::MaxBurstLength => agreed.max_burst = result,
            Key::FirstBurstLength => agreed.first_burst = result,
            Key::MaxOutstandingR2T => agreed.max_outstanding_r2t = result as u16,
            Key::DefaultTime2Wait => agreed.time_to_wait = result as u16,
            Key::DefaultTime2Retain => agreed.time_to_retain = result as u16,
            _ => {}
        }
        Ok(())
    }

    /// What was agreed on, once the target has sent all it wanted to.
    pub fn parameters(&self) -> Result<Parameters, String> {
        let Parameters { header_digest, data_digest, first_burst, max_burst, .. } = self.agreed;
        let seen = Digests { header: header_digest, data: data_digest };
        if seen != self.digests {
            return Err("the target has not answered the digests that were asked for".to_owned());
        }
        // What nobody answered is what it is by default, which may be more than we offered.
        let first_burst = first_burst.min(INITIATOR_FIRST_BURST).min(max_burst);
        Ok(Parameters { first_burst, ..self.agreed })
    }

    /// TargetPortalGroupTag, which the first answer of a normal session tells.
    pub fn portal_group(&self) -> Option<u16> {
        self.portal_group
    }
}

fn digest(is_wanted: bool) -> &'static str {
    if is_wanted { CRC32C } else { NONE }
}

fn insisted(is_wanted: bool, option: &str) -> String {
    match is_wanted {
        true => format!("CRC32C; to do without, say {option}=0"),
        false => format!("None; to have one, say {option}=1"),
    }
}

/// What we offer of a key that is Yes or No.
fn ours(key: Key) -> Option<bool> {
    match key {
        Key::InitialR2T => Some(false),
        Key::ImmediateData | Key::DataPduInOrder | Key::DataSequenceInOrder => Some(true),
        _ => None,
    }
}

/// What we offer of a key that is a number.
fn rule(key: Key) -> Option<Rule> {
    Some(match key {
        Key::MaxConnections => Rule::Minimum(1),
        Key::MaxBurstLength => Rule::Minimum(BURST_MAX),
        Key::FirstBurstLength => Rule::Minimum(INITIATOR_FIRST_BURST),
        Key::MaxOutstandingR2T => Rule::Minimum(INITIATOR_R2T_MAX as u32),
        Key::ErrorRecoveryLevel => Rule::Minimum(0),
        Key::DefaultTime2Wait => Rule::Maximum(TIME_TO_WAIT.into()),
        Key::DefaultTime2Retain => Rule::Minimum(TIME_TO_RETAIN.into()),
        _ => return None,
    })
}
