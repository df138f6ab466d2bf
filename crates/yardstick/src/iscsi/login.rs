//! How the bare target lets somebody in.
//!
//! In: a login request, wholly there. Out: the response in the outbox, and whether the full feature
//! phase begins behind it. Any name is let in and none is asked who it is; a request may begin with
//! the security stage or with the operational one, and goes as far as it wishes. Errors: a text that
//! goes on in another PDU, or a key that cannot be read. Spec: RFC 7143, 6 and 11.12.

use super::pdu::{self, at, flag, opcode};
use super::terms::{self, Terms};
use crate::bytes::put;
use crate::outbox::Outbox;
use crate::responder::Malformed;

/// Stages of a login.
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Class and detail: there is no session of the type that was asked for.
const NO_SUCH_TYPE: [u8; 2] = [0x02, 0x09];

/// A login that is under way.
pub(super) struct Login {
    terms: Terms,
    /// The session's handle, once it is let in.
    tsih: u16,
    /// A response has been sent.
    is_under_way: bool,
}

impl Login {
    /// That of connection `number`.
    pub(super) fn new(number: u64) -> Self {
        Self { terms: Terms::default(), tsih: (number as u16).max(1), is_under_way: false }
    }

    /// Answers a request with its text; what was agreed on if the full feature phase begins. `head`
    /// has the response's sequence numbers.
    pub(super) fn answer(
        &mut self,
        request: &[u8],
        text: &[u8],
        mut head: pdu::Bhs,
        outbox: &mut Outbox,
    ) -> Result<Option<Terms>, Malformed> {
        let flags = request[at::FLAGS];
        if flags & flag::CONTINUE != 0 {
            return Err(Malformed);
        }
        let (stage, wished) = (flags >> 2 & 3, flags & 3);
        let goes_on = flags & flag::FINAL != 0;
        let discovery = terms::parse(text).any(|pair| pair == ("SessionType", "Discovery"));
        let enters = goes_on && wished == FULL_FEATURE && !discovery;
        let said = if discovery { Vec::new() } else { self.say(stage, text)? };
        let data = terms::emit(&said);
        head[0] = opcode::LOGIN_RESPONSE;
        head[at::FLAGS] = stage << 2 | if goes_on { flag::FINAL | wished } else { 0 };
        put(&mut head, at::ISID, &request[at::ISID..at::TSIH]);
        if enters {
            put(&mut head, at::TSIH, &self.tsih.to_be_bytes());
        }
        if discovery {
            head[at::FLAGS] = 0;
            put(&mut head, at::LOGIN_STATUS, &NO_SUCH_TYPE);
        }
        pdu::put_data_len(&mut head, data.len());
        outbox.copy(&head);
        outbox.copy(&pdu::segment(&data, false));
        self.is_under_way = true;
        Ok(enters.then(|| self.terms.clone()))
    }

    /// The pairs of a response.
    fn say(&mut self, stage: u8, text: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
        let mut said = Vec::new();
        if !self.is_under_way {
            said.push(("TargetPortalGroupTag".to_owned(), "1".to_owned()));
        }
        for (key, offered) in terms::parse(text) {
            let answer = self.terms.answer(key, offered).map_err(|_| Malformed)?;
            said.extend(answer.map(|answer| (key.to_owned(), answer)));
        }
        if stage == OPERATIONAL {
            said.push(Terms::declared());
        }
        Ok(said)
    }
}
