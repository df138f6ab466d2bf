//! A login, request by request: who we are, then what is agreed on.
//!
//! ```text
//!   security     InitiatorName SessionType TargetName AuthMethod -->      T if nothing is to be proved
//!                CHAP, as long as it takes                      <-->
//!   operational  offers                                          -->  T
//!                their results                                  <--   T: full feature phase
//! ```
//! In: responses of the target with their texts, which may come in pieces. Out: requests, pushed to
//! the connection; in the end [`Parameters`]. Both the initiator and the discovery use it. Errors:
//! a [`Fault`], which says what the target answered and what that may be due to. Spec: RFC 7143,
//! 6.3, 11.12, 11.13.

use std::net::{IpAddr, SocketAddr};

use wire::iscsi::keys::{Key, Pair, Pairs, push};
use wire::iscsi::{
    Digests, IscsiName, LoginFlags, LoginRequest, LoginResponse, LoginStatus, PORT, Stage,
};

use super::framing::{Fault, Framing, broken, fault};
use super::numbers::{Numbers, numbers_of};
use crate::auth::{self, Asker, Challenge};
use crate::limits::{LOGIN_REQUESTS_MAX, TEXT_MAX};
use crate::negotiation::{Offer, Parameters};
use crate::pdu_stream::Violation;

/// The tag of every login request.
const TAG: u32 = 1;
/// CID of the only connection.
pub(super) const CID: u16 = 0;

/// Who logs in, where.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) initiator: IscsiName,
    /// `None` to ask which targets there are.
    pub(super) target: Option<IscsiName>,
    pub(super) isid: [u8; 6],
    pub(super) digests: Digests,
    pub(super) auth: Option<(auth::Login, Challenge)>,
}

/// A login under way.
#[derive(Debug)]
pub(super) struct Login {
    isid: [u8; 6],
    asker: Asker,
    offer: Offer,
    stage: Stage,
    /// The stage that was asked for, if the last request asked for one.
    wants: Option<Stage>,
    /// What the target has said so far of a text that goes on.
    text: Vec<u8>,
    requests: u32,
}

impl Login {
    /// The connection is there: sends the first request.
    pub(super) fn begin(who: Who, framing: &mut Framing, numbers: &Numbers) -> Login {
        let mut text = Vec::new();
        push(&mut text, Key::InitiatorName.name(), &who.initiator);
        match &who.target {
            Some(target) => {
                push(&mut text, Key::SessionType.name(), "Normal");
                push(&mut text, Key::TargetName.name(), target);
            }
            None => push(&mut text, Key::SessionType.name(), "Discovery"),
        }
        let asker = Asker::new(who.auth);
        asker.begin(&mut text);
        let mut login = Login {
            isid: who.isid,
            asker,
            offer: Offer::new(who.digests, who.target.is_none()),
            stage: Stage::SECURITY,
            wants: None,
            text: Vec::new(),
            requests: 0,
        };
        login.send(&text, framing, numbers);
        login
    }

    /// Sends a request of the stage, which asks for the next one if all is said.
    fn send(&mut self, text: &[u8], framing: &mut Framing, numbers: &Numbers) {
        self.wants = match self.stage {
            Stage::SECURITY => self.asker.is_last().then_some(Stage::OPERATIONAL),
            _ => Some(Stage::FULL_FEATURE),
        };
        let flags = match self.wants {
            Some(next) => LoginFlags::transit(self.stage, next),
            None => LoginFlags::stay(self.stage),
        };
        self.send_with(flags, text, framing, numbers);
    }

    fn send_with(
        &mut self,
        flags: LoginFlags,
        text: &[u8],
        framing: &mut Framing,
        numbers: &Numbers,
    ) {
        self.requests += 1;
        let length = text.len() as u32;
        let request = LoginRequest::new(flags, self.isid, 0, CID, TAG, length, numbers.immediate());
        framing.push_header(&request.emit());
        framing.push_bytes(text);
    }

    /// Takes a response with its text: goes on, or has the result.
    pub(super) fn handle(
        &mut self,
        response: &LoginResponse,
        text: &[u8],
        framing: &mut Framing,
        numbers: &mut Numbers,
    ) -> Result<Option<Parameters>, Fault> {
        if response.initiator_task_tag != TAG {
            return broken("a response to a login that is under way");
        }
        numbers.note_status(numbers_of!(response))?;
        if !response.status.is_success() {
            return Err(refusal(response.status, text));
        }
        self.check(response)?;
        if self.requests >= LOGIN_REQUESTS_MAX {
            return fault("the login does not come to an end");
        }
        if self.text.len() + text.len() > TEXT_MAX {
            return fault("the target says more in its login than anybody has to say");
        }
        self.text.extend_from_slice(text);
        if response.flags.is_continue() {
            self.wants = None;
            self.send_with(LoginFlags::stay(self.stage), &[], framing, numbers);
            return Ok(None);
        }
        let mut reply = Vec::new();
        self.take_text(&mut reply)?;
        if response.flags.is_transit() {
            if self.stage == Stage::OPERATIONAL {
                return self.end(response).map(Some);
            }
            if !self.asker.is_done() {
                return broken("the security stage before the next one");
            }
            self.stage = Stage::OPERATIONAL;
            self.offer.emit(&mut reply);
        }
        self.send(&reply, framing, numbers);
        Ok(None)
    }

    fn check(&self, response: &LoginResponse) -> Result<(), Fault> {
        response.check().map_err(|error| Violation::field(&error))?;
        if response.version_active != 0 {
            return fault(format!("expected version 0, seen {}", response.version_active));
        }
        if response.flags.current() != self.stage {
            return broken("a login stays in its stage");
        }
        if response.flags.is_transit() && Some(response.flags.next()) != self.wants {
            return broken("the next stage of a login is the one that was asked for");
        }
        Ok(())
    }

    /// Takes the keys of a whole text, and appends what they are answered with.
    fn take_text(&mut self, reply: &mut Vec<u8>) -> Result<(), Fault> {
        let text = core::mem::take(&mut self.text);
        for pair in Pairs::new(&text) {
            let Pair { key, value } = pair.map_err(|error| Violation::field(&error))?;
            let taken = match auth::is_key(key) && self.stage == Stage::SECURITY {
                true => self.asker.take(key, value),
                false => self.offer.take(key, value, reply),
            };
            taken.map_err(Fault::Reason)?;
        }
        if self.stage == Stage::SECURITY {
            self.asker.go_on(reply).map_err(Fault::Final)?;
        }
        Ok(())
    }

    fn end(&self, response: &LoginResponse) -> Result<Parameters, Fault> {
        if response.tsih == 0 {
            return broken("a session has a TSIH");
        }
        self.offer.parameters().map_err(Fault::Reason)
    }
}

/// What a status that ends a login means, with what to do about it.
fn refusal(status: LoginStatus, text: &[u8]) -> Fault {
    let hint = match status {
        LoginStatus::MOVED_TEMPORARILY | LoginStatus::MOVED_PERMANENTLY => return moved(text),
        LoginStatus::AUTHENTICATION_FAILURE => "the name or the secret is wrong, or one is wanted",
        LoginStatus::AUTHORIZATION_FAILURE => "it does not let this initiator use the target",
        LoginStatus::NOT_FOUND => "it has no target of this name",
        LoginStatus::TARGET_REMOVED => "it has no target of this name any more",
        LoginStatus::UNSUPPORTED_VERSION => "it speaks another version",
        LoginStatus::TOO_MANY_CONNECTIONS => "it takes no more connections of ours",
        LoginStatus::SERVICE_UNAVAILABLE | LoginStatus::OUT_OF_RESOURCES => "it may be later",
        _ => "",
    };
    let separator = if hint.is_empty() { "" } else { ": " };
    let words = format!("the login was answered with {status} ({:04x}){separator}{hint}", status.0);
    // Class 2 is ours to mend, except for what is but a number of the moment.
    let is_passing =
        matches!(status, LoginStatus::TOO_MANY_CONNECTIONS | LoginStatus::NO_SUCH_SESSION);
    if status.class() == 2 && !is_passing { Fault::Final(words) } else { Fault::Reason(words) }
}

/// Where a target is that moved.
fn moved(text: &[u8]) -> Fault {
    let mut pairs = Pairs::new(text).filter_map(Result::ok);
    let address = pairs.find(|pair| pair.key == Key::TargetAddress.name());
    match address.map(|pair| (pair.value, address_of(pair.value))) {
        Some((_, Some((address, _)))) => Fault::Moved(address),
        Some((seen, None)) => Fault::Final(format!(
            "the target moved: expected an address such as 192.0.2.1:3260, seen {seen:?}"
        )),
        None => Fault::Final("the target moved, and does not say where to".to_owned()),
    }
}

/// The address and the portal group of a TargetAddress, `host[:port][,tag]`, where the host is no
/// name: nobody asks a name server here.
pub(super) fn address_of(value: &str) -> Option<(SocketAddr, Option<u16>)> {
    let (address, tag) = match value.rsplit_once(',') {
        Some((address, tag)) => (address, Some(tag.parse().ok()?)),
        None => (value, None),
    };
    if let Ok(address) = address.parse() {
        return Some((address, tag));
    }
    let host = address.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host: IpAddr = host.unwrap_or(address).parse().ok()?;
    Some((SocketAddr::new(host, PORT), tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_target_may_leave_out_port_and_portal_group() {
        for (text, address, tag) in [
            ("192.0.2.1:3261,1", "192.0.2.1:3261", Some(1)),
            ("192.0.2.1:3261", "192.0.2.1:3261", None),
            ("192.0.2.1,7", "192.0.2.1:3260", Some(7)),
            ("[2001:db8::1]:3261,65535", "[2001:db8::1]:3261", Some(65_535)),
            ("[2001:db8::1]", "[2001:db8::1]:3260", None),
        ] {
            assert_eq!(address_of(text), Some((address.parse().unwrap(), tag)), "{text}");
        }
        for wrong in ["", "storage.example:3260,1", "192.0.2.1:x", "192.0.2.1:3260,99999", ",1"] {
            assert_eq!(address_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_a_host_can_mend_is_final_and_told_with_the_status() {
        for (status, is_final, words) in [
            (LoginStatus::AUTHENTICATION_FAILURE, true, "authentication failure (0201): the name"),
            (LoginStatus::AUTHORIZATION_FAILURE, true, "(0202): it does not let"),
            (LoginStatus::NOT_FOUND, true, "(0203): it has no target"),
            (LoginStatus(0x02ff), true, "0x2ff (02ff)"),
            (LoginStatus::TOO_MANY_CONNECTIONS, false, "(0206)"),
            (LoginStatus::SERVICE_UNAVAILABLE, false, "(0301): it may be later"),
            (LoginStatus::TARGET_ERROR, false, "(0300)"),
        ] {
            let fault = refusal(status, &[]);
            assert_eq!(matches!(fault, Fault::Final(_)), is_final, "{status}");
            assert!(fault.to_string().contains(words), "{fault}");
        }
    }

    #[test]
    fn a_target_that_moved_says_where_to() {
        let status = LoginStatus::MOVED_TEMPORARILY;
        let address = "192.0.2.7:3260".parse().unwrap();
        let text = b"TargetAddress=192.0.2.7,1\0";
        assert_eq!(refusal(status, text), Fault::Moved(address));
        let named = refusal(status, b"TargetAddress=storage.example,1\0").to_string();
        assert!(named.contains("seen \"storage.example,1\""), "{named}");
        assert!(refusal(status, b"").to_string().contains("does not say where"));
    }
}
