//! The target's end of a negotiation: answers each key as it comes, and remembers the result.
//!
//! It offers nothing of its own and declares only MaxRecvDataSegmentLength: hosts give a login up
//! over a key that they did not expect. So what a host does not mention is as the standard has it
//! by default; FirstBurstLength is then 65536.
//!
//! Errors: a value that the key cannot have is answered `Reject` and ends the login as an
//! initiator's error, and so does a key that comes twice; a name that is none ends it by what it
//! was to name. In the full feature phase ([`Responder::renegotiate`]) the same is a protocol error
//! of that text request alone. Spec: RFC 7143, 6.2, 7.12 and 13.

use wire::iscsi::keys::values::{self, yes_no};
use wire::iscsi::keys::{IRRELEVANT, Key, NONE, NOT_UNDERSTOOD, REJECT, push};
use wire::iscsi::{IscsiName, LoginStatus};

use super::{CRC32C, Keys, Parameters, is_irrelevant_in_discovery, number, range};
use crate::limits::{BURST_MAX, FIRST_BURST_MAX, SEGMENT_MAX, TIME_TO_RETAIN, TIME_TO_WAIT};

/// What a host negotiates with a target; see the module. Order of calls: [`take`](Self::take) for
/// each key, SessionType before others where a request has it; [`declare`](Self::declare) with the
/// first answer of the operational stage.
#[derive(Clone, Debug, Default)]
pub struct Responder {
    /// The keys that came in this negotiation.
    seen: Keys,
    has_declared: bool,
    is_full_feature: bool,
    is_discovery: bool,
    agreed: Parameters,
    initiator: Option<IscsiName>,
    initiator_alias: Option<String>,
    target: Option<IscsiName>,
}

/// The answer to a key.
enum Answer {
    /// It was a declaration.
    None,
    Text(&'static str),
    Number(u32),
}

impl Responder {
    /// Of a login that begins.
    pub fn new() -> Responder {
        Responder::default()
    }

    /// A text negotiation of the full feature phase begins: keys may come once more, and those that
    /// belong to logins are rejected.
    pub fn renegotiate(&mut self) {
        (self.seen, self.is_full_feature) = (Keys::default(), true);
    }

    /// What was agreed on so far.
    pub fn parameters(&self) -> Parameters {
        let first_burst = self.agreed.first_burst.min(self.agreed.max_burst);
        Parameters { first_burst, ..self.agreed }
    }

    /// Whether the session is one of discovery.
    pub fn is_discovery(&self) -> bool {
        self.is_discovery
    }

    /// InitiatorName, once it came.
    pub fn initiator(&self) -> Option<&IscsiName> {
        self.initiator.as_ref()
    }

    /// InitiatorAlias, if it came, without control characters.
    pub fn initiator_alias(&self) -> Option<&str> {
        self.initiator_alias.as_deref()
    }

    /// TargetName, once it came.
    pub fn target(&self) -> Option<&IscsiName> {
        self.target.as_ref()
    }

    /// Appends what we declare, the first time it is called.
    pub fn declare(&mut self, answers: &mut Vec<u8>) {
        if !core::mem::replace(&mut self.has_declared, true) {
            push(answers, Key::MaxRecvDataSegmentLength.name(), SEGMENT_MAX);
        }
    }

    /// Takes a key with its value, and appends what is to be answered.
    pub fn take(
        &mut self,
        key: &str,
        value: &str,
        answers: &mut Vec<u8>,
    ) -> Result<(), LoginStatus> {
        let Some(known) = Key::from_name(key) else {
            push(answers, key, NOT_UNDERSTOOD);
            return Ok(());
        };
        if !self.seen.insert(known) {
            return Err(LoginStatus::INITIATOR_ERROR);
        }
        if self.is_full_feature && !is_told_at_any_time(known) {
            push(answers, key, REJECT);
            return Ok(());
        }
        if self.is_discovery && is_irrelevant_in_discovery(known) {
            push(answers, key, IRRELEVANT);
            return Ok(());
        }
        let answer = match self.answer(known, value) {
            Ok(answer) => answer,
            Err(status) => {
                push(answers, key, REJECT);
                return Err(status);
            }
        };
        match answer {
            Answer::None => {}
            Answer::Text(text) => push(answers, key, text),
            Answer::Number(number) => push(answers, key, number),
        }
        Ok(())
    }

    /// The result of a key.
    fn answer(&mut self, key: Key, value: &str) -> Result<Answer, LoginStatus> {
        let wrong = LoginStatus::INITIATOR_ERROR;
        if range(key).is_some() {
            return Ok(self.number(key, number(key, value).ok_or(wrong)?));
        }
        let agreed = &mut self.agreed;
        Ok(match key {
            Key::HeaderDigest => {
                agreed.header_digest = digest(value).ok_or(wrong)?;
                Answer::Text(if agreed.header_digest { CRC32C } else { NONE })
            }
            Key::DataDigest => {
                agreed.data_digest = digest(value).ok_or(wrong)?;
                Answer::Text(if agreed.data_digest { CRC32C } else { NONE })
            }
            Key::TaskReporting => Answer::Text(first_of(value, &["RFC3720"]).ok_or(wrong)?),
            // Ours is No, so that a host may send data unasked.
            Key::InitialR2T => {
                agreed.initial_r2t = boolean(value)?;
                Answer::Text(yes_no(agreed.initial_r2t))
            }
            // Ours is Yes.
            Key::ImmediateData => {
                agreed.immediate_data = boolean(value)?;
                Answer::Text(yes_no(agreed.immediate_data))
            }
            // Data come in order.
            Key::DataPduInOrder | Key::DataSequenceInOrder => {
                boolean(value)?;
                Answer::Text("Yes")
            }
            // Markers are a matter of RFC 3720: 7143, 13.25 says how they are declined.
            Key::OfMarker | Key::IfMarker => Answer::Text("No"),
            Key::OfMarkInt | Key::IfMarkInt => Answer::Text(REJECT),
            key => {
                self.name(key, value)?;
                Answer::None
            }
        })
    }

    /// The result of a numeric key, which is in its range.
    fn number(&mut self, key: Key, offered: u32) -> Answer {
        let agreed = &mut self.agreed;
        let result = match key {
            Key::MaxRecvDataSegmentLength => {
                agreed.peer_segment = offered;
                return Answer::None;
            }
            Key::MaxBurstLength => {
                agreed.max_burst = offered.min(BURST_MAX);
                agreed.max_burst
            }
            // Whichever of the two comes later must not leave this one above the other.
            Key::FirstBurstLength => {
                agreed.first_burst = offered.min(FIRST_BURST_MAX).min(agreed.max_burst);
                agreed.first_burst
            }
            Key::DefaultTime2Wait => {
                agreed.time_to_wait = (offered as u16).max(TIME_TO_WAIT);
                agreed.time_to_wait.into()
            }
            Key::DefaultTime2Retain => {
                // The least that can be offered.
                agreed.time_to_retain = TIME_TO_RETAIN;
                agreed.time_to_retain.into()
            }
            Key::MaxConnections | Key::MaxOutstandingR2T => 1,
            Key::ErrorRecoveryLevel => 0,
            Key::IscsiProtocolLevel => offered.min(1),
            other => unreachable!("{other:?} has a range and no result"),
        };
        Answer::Number(result)
    }

    /// Takes who an end says it is, and what it wants.
    fn name(&mut self, key: Key, value: &str) -> Result<(), LoginStatus> {
        match key {
            Key::SessionType => match value {
                "Normal" => self.is_discovery = false,
                "Discovery" => self.is_discovery = true,
                _ => return Err(LoginStatus::SESSION_TYPE_NOT_SUPPORTED),
            },
            Key::InitiatorName => {
                let name = IscsiName::new(value).map_err(|_| LoginStatus::INITIATOR_ERROR)?;
                self.initiator = Some(name);
            }
            Key::InitiatorAlias => {
                self.initiator_alias =
                    Some(value.replace(|char: char| char.is_control(), "\u{fffd}"));
            }
            // What cannot be a name names no target.
            Key::TargetName => {
                self.target = Some(IscsiName::new(value).map_err(|_| LoginStatus::NOT_FOUND)?);
            }
            // What only a target says, or what is none of a negotiation.
            _ => return Err(LoginStatus::INITIATOR_ERROR),
        }
        Ok(())
    }
}

/// Whether a key may be sent again in the full feature phase.
fn is_told_at_any_time(key: Key) -> bool {
    matches!(key, Key::MaxRecvDataSegmentLength | Key::InitiatorAlias)
}

fn boolean(value: &str) -> Result<bool, LoginStatus> {
    values::boolean(value).map_err(|_| LoginStatus::INITIATOR_ERROR)
}

/// Whether CRC32C is the first digest of a list that both have; `None` if there is none.
fn digest(list: &str) -> Option<bool> {
    first_of(list, &[CRC32C, NONE]).map(|chosen| chosen == CRC32C)
}

/// The first value of a list that is among ours.
fn first_of(list: &str, ours: &[&'static str]) -> Option<&'static str> {
    values::list(list).find_map(|value| ours.iter().copied().find(|our| *our == value))
}
