//! The initiator's end of CHAP.
//!
//! Without credentials it offers no method; with them it lets the target say whether it wants them,
//! unless the target itself has to prove something. Errors: a text that says what was expected and
//! what was seen. Spec: RFC 7143, 12.1.3.

use wire::iscsi::keys::values::Hex;
use wire::iscsi::keys::{Key, NONE, push};

use super::{Algorithm, Challenge, Login, Received};

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The methods were offered, or are about to be.
    Method,
    /// The algorithms were offered: one of them and a challenge are awaited.
    Algorithm,
    /// The response was given: the target's own is awaited, if it has to prove something.
    Proof(Algorithm),
    Done,
}

/// A host that logs in; see [`auth`](super). Order of calls: [`begin`](Self::begin), then for each
/// text of the target [`take`](Self::take) for its keys and [`go_on`](Self::go_on). The security
/// stage is not left before it is [done](Self::is_done).
#[derive(Clone, Debug)]
pub struct Asker {
    /// What it has to prove, and what the target is asked, should that have to prove something.
    login: Option<(Login, Challenge)>,
    received: Received,
    step: Step,
}

impl Asker {
    /// Of a login that begins.
    pub fn new(login: Option<(Login, Challenge)>) -> Asker {
        Asker { login, received: Received::default(), step: Step::Method }
    }

    /// Whether the stage may be left.
    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Whether the next text is the last one from here, so that it may ask for the next stage.
    pub fn is_last(&self) -> bool {
        matches!(self.step, Step::Proof(_) | Step::Done) || self.login.is_none()
    }

    /// Appends the offer.
    pub fn begin(&self, text: &mut Vec<u8>) {
        let methods = match &self.login {
            None => NONE,
            Some((Login { target: None, .. }, _)) => "CHAP,None",
            Some(_) => "CHAP",
        };
        push(text, Key::AuthMethod.name(), methods);
    }

    /// Takes a key.
    pub fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let known = Key::from_name(key).ok_or_else(|| format!("{key} is unknown"))?;
        self.received.take(known, value)
    }

    /// All keys of a text were taken: appends what is to be said next.
    pub fn go_on(&mut self, text: &mut Vec<u8>) -> Result<(), String> {
        match self.step {
            Step::Method => self.choose_method(text)?,
            Step::Algorithm => self.respond(text)?,
            Step::Proof(algorithm) => self.check(algorithm)?,
            Step::Done => {}
        }
        if self.received.is_empty() {
            return Ok(());
        }
        Err("the target sent keys of CHAP that have no place here".to_owned())
    }

    fn choose_method(&mut self, text: &mut Vec<u8>) -> Result<(), String> {
        let may_do_without = self.login.as_ref().is_none_or(|(login, _)| login.target.is_none());
        match self.received.methods.take().as_deref() {
            Some("CHAP") if self.login.is_some() => {
                // All of them, the best first; the target takes the first that it has.
                let list = Algorithm::ALL.map(|algorithm| (algorithm as u32).to_string());
                push(text, Key::ChapA.name(), list.join(","));
                self.step = Step::Algorithm;
                Ok(())
            }
            Some(NONE) | None if may_do_without => {
                self.step = Step::Done;
                Ok(())
            }
            Some("CHAP") => Err("the target wants a name and a secret (CHAP)".to_owned()),
            seen => {
                let seen = seen.unwrap_or(NONE);
                let expected = if self.login.is_some() { "CHAP" } else { NONE };
                Err(format!("AuthMethod: expected {expected}, seen {seen:?}"))
            }
        }
    }

    fn respond(&mut self, text: &mut Vec<u8>) -> Result<(), String> {
        let Received { algorithms, identifier, challenge, .. } = &mut self.received;
        let (Some(chosen), Some(identifier), Some(challenge)) =
            (algorithms.take(), identifier.take(), challenge.take())
        else {
            return Err("expected CHAP_A, CHAP_I and CHAP_C of the target".to_owned());
        };
        let (Login { own, target }, ours) = self.login.as_ref().expect("CHAP was chosen");
        // Ours, which nobody has seen yet but in a login of long ago: somebody collects answers.
        if challenge == ours.bytes {
            return Err("the target's challenge is the one that it is to be asked".to_owned());
        }
        let Some(algorithm) = Algorithm::of(&chosen) else {
            return Err(format!("CHAP_A: expected one of 8, 7, 6, 5, seen {chosen:?}"));
        };
        push(text, Key::ChapN.name(), &own.name);
        let response = algorithm.response(&own.secret, identifier, &challenge);
        push(text, Key::ChapR.name(), Hex(&response));
        if target.is_some() {
            push(text, Key::ChapI.name(), ours.identifier);
            push(text, Key::ChapC.name(), Hex(&ours.bytes));
        }
        self.step = Step::Proof(algorithm);
        Ok(())
    }

    /// Whether the target is who it should be, if it has to prove that.
    fn check(&mut self, algorithm: Algorithm) -> Result<(), String> {
        let (Login { target, .. }, ours) = self.login.as_ref().expect("CHAP was chosen");
        let Received { name, response, .. } = &mut self.received;
        let (name, response) = (name.take(), response.take());
        if let Some(target) = target {
            let (Some(name), Some(response)) = (name, response) else {
                return Err("the target has not proved who it is".to_owned());
            };
            if name != target.name {
                let expected = &target.name;
                return Err(format!("the target calls itself {name:?}, expected {expected:?}"));
            }
            if !algorithm.proves(&target.secret, ours, &response) {
                return Err("the target does not know its secret".to_owned());
            }
        } else if name.is_some() || response.is_some() {
            return Err("the target proves what it was not asked for".to_owned());
        }
        self.step = Step::Done;
        Ok(())
    }
}
