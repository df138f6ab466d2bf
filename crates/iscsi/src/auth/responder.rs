//! The target's end of CHAP.
//!
//! Errors: a [`LoginStatus`] that ends the login. Whoever proves nothing, or names a user that
//! there is not, is told the same, "authentication failure", after the same work. Spec: RFC 7143,
//! 12.1.3.

use wire::iscsi::LoginStatus;
use wire::iscsi::keys::values::Hex;
use wire::iscsi::keys::{Key, NONE, REJECT, push, values};

use super::{Algorithm, Challenge, Credentials, Received, SAME_SECRET, Secret};

/// Who may log in, and how the target proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Required {
    /// The users; nobody else is let in.
    pub users: Vec<Credentials>,
    /// What the target answers a host that asks it for a proof; none of it is let in without.
    pub own: Option<Credentials>,
}

impl Required {
    /// Refuses one secret for both ways, and a user that there is twice: what was seen and what to
    /// do.
    pub fn check(&self) -> Result<(), String> {
        if let Some(own) = &self.own
            && self.users.iter().any(|user| user.secret == own.secret)
        {
            return Err(SAME_SECRET.to_owned());
        }
        for (at, user) in self.users.iter().enumerate() {
            if self.users[..at].iter().any(|other| other.name == user.name) {
                return Err(format!("expected a user once, seen {:?} twice", user.name));
            }
        }
        Ok(())
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Method,
    Algorithm,
    /// The host has the challenge.
    Response(Algorithm),
    Done,
}

/// A target that wants to know who logs in; see [`auth`](super). Order of calls:
/// [`take`](Self::take) for each key of a text for which [`is_key`](super::is_key) holds, then
/// [`answer`](Self::answer). While it is not [done](Self::is_done) the security stage is not left,
/// and a login that begins behind it is refused.
#[derive(Clone, Debug)]
pub struct Responder {
    required: Option<Required>,
    challenge: Challenge,
    received: Received,
    step: Step,
    user: Option<String>,
    /// Why the host was refused, in words for people here: the host is told less.
    refusal: &'static str,
}

impl Responder {
    /// Of a login that begins; `None` lets everybody in.
    pub fn new(required: Option<Required>, challenge: Challenge) -> Responder {
        Responder {
            required,
            challenge,
            received: Received::default(),
            step: Step::Method,
            user: None,
            refusal: LEFT_OUT,
        }
    }

    /// Whether there is nothing left to prove.
    pub fn is_done(&self) -> bool {
        match self.step {
            Step::Method => self.required.is_none(),
            step => step == Step::Done,
        }
    }

    /// Who logged in, once that is proved.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// What was wrong with the proof of a host that was answered "authentication failure".
    pub fn refusal(&self) -> &'static str {
        self.refusal
    }

    fn refuse<T>(&mut self, why: &'static str) -> Result<T, LoginStatus> {
        self.refusal = why;
        Err(LoginStatus::AUTHENTICATION_FAILURE)
    }

    /// Takes a key.
    pub fn take(&mut self, key: &str, value: &str) -> Result<(), LoginStatus> {
        let wrong = LoginStatus::INITIATOR_ERROR;
        self.received.take(Key::from_name(key).ok_or(wrong)?, value).map_err(|_| wrong)
    }

    /// All keys of a text were taken: appends what is to be answered, even where the login is to
    /// end.
    pub fn answer(&mut self, answers: &mut Vec<u8>) -> Result<(), LoginStatus> {
        let received = &mut self.received;
        match self.step {
            Step::Method => {
                let Some(methods) = received.methods.take() else { return self.nothing_else() };
                let wanted = if self.required.is_some() { "CHAP" } else { NONE };
                let is_offered = values::list(&methods).any(|method| method == wanted);
                push(answers, Key::AuthMethod.name(), if is_offered { wanted } else { REJECT });
                if !is_offered {
                    return self.refuse(match wanted {
                        NONE => "it insists on a proof, and none is configured here",
                        _ => "it offers no proof of who it is",
                    });
                }
                self.step = if wanted == NONE { Step::Done } else { Step::Algorithm };
            }
            Step::Algorithm => {
                let Some(list) = received.algorithms.take() else { return self.nothing_else() };
                let Some(algorithm) = values::list(&list).find_map(Algorithm::of) else {
                    push(answers, Key::ChapA.name(), REJECT);
                    return self.refuse("it has none of MD5, SHA-1, SHA-256 and SHA3-256");
                };
                push(answers, Key::ChapA.name(), algorithm as u32);
                push(answers, Key::ChapI.name(), self.challenge.identifier);
                push(answers, Key::ChapC.name(), Hex(&self.challenge.bytes));
                self.step = Step::Response(algorithm);
            }
            Step::Response(_) if received.is_empty() => {}
            Step::Response(algorithm) => {
                self.check(algorithm)?;
                self.prove(algorithm, answers)?;
                self.step = Step::Done;
            }
            Step::Done => {}
        }
        self.nothing_else()
    }

    /// Keys that have no place in this step are an error.
    fn nothing_else(&self) -> Result<(), LoginStatus> {
        if self.received.is_empty() { Ok(()) } else { Err(LoginStatus::INITIATOR_ERROR) }
    }

    /// Whether the host is who it says.
    fn check(&mut self, algorithm: Algorithm) -> Result<(), LoginStatus> {
        let (name, response) = (self.received.name.take(), self.received.response.take());
        let Some((name, response)) = name.zip(response) else { return self.refuse(LEFT_OUT) };
        let users = self.required.as_ref().map_or(&[][..], |required| &required.users);
        let user = users.iter().find(|user| user.name == name);
        // A name that nobody has costs the same time as a wrong secret.
        let nobody = Secret([0; Secret::LENGTH_MIN].into());
        let secret = user.map_or(&nobody, |user| &user.secret);
        let is_proved = algorithm.proves(secret, &self.challenge, &response);
        // The name is not told: it may be a secret that was typed into the wrong place.
        match (user.is_some(), is_proved) {
            (false, _) => return self.refuse("there is no such user as it names"),
            (true, false) => return self.refuse("its secret is not that of the user"),
            (true, true) => self.user = Some(name),
        }
        Ok(())
    }

    /// Proves who the target is, if the host asks for it.
    fn prove(&mut self, algorithm: Algorithm, answers: &mut Vec<u8>) -> Result<(), LoginStatus> {
        let asked = (self.received.identifier.take(), self.received.challenge.take());
        let (identifier, challenge) = match asked {
            (None, None) => return Ok(()),
            (Some(identifier), Some(challenge)) => (identifier, challenge),
            _ => return Err(LoginStatus::INITIATOR_ERROR),
        };
        // Its own challenge come back: somebody wants to have the answer made for him.
        if challenge == self.challenge.bytes {
            return self.refuse("it asks what it was asked itself");
        }
        let Some(own) = self.required.as_ref().and_then(|required| required.own.as_ref()) else {
            return self.refuse("it wants a proof in return, for which no mutual is configured");
        };
        let response = algorithm.response(&own.secret, identifier, &challenge);
        push(answers, Key::ChapN.name(), &own.name);
        push(answers, Key::ChapR.name(), Hex(&response));
        Ok(())
    }
}

const LEFT_OUT: &str = "it leaves the proof of who it is out";
