//! Text requests: which targets there are, and how much data the host takes in one PDU.
//!
//! A text may come in several requests and leave in several responses; at most one is under way.
//! Spec: RFC 7143, 6.1 to 6.4, 11.10, 11.11, appendix C (SendTargets).

use wire::iscsi::keys::{self, Key, Pairs};
use wire::iscsi::{IscsiName, RESERVED_TAG, RejectReason, TextFlags, TextRequest, TextResponse};

use super::{Connection, Context};
use crate::limits::TEXT_MAX;
use crate::negotiation::Responder;
use crate::pdu_stream::Violation;

/// By which a response that is not the last is known. There is one negotiation at a time.
const TRANSFER_TAG: u32 = 1;

/// A text negotiation under way.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// What came of the host's text.
    came: Vec<u8>,
    /// What is left of ours, and where in it the next response begins.
    ours: Vec<u8>,
    at: usize,
    /// The negotiation of keys other than SendTargets.
    responder: Option<Box<Responder>>,
}

impl Text {
    /// Bytes that it holds outside the pool.
    pub(super) fn bytes_held(&self) -> usize {
        self.came.len() + self.ours.len()
    }
}

impl Connection {
    /// Keeps what the login agreed on, for texts that change it.
    pub(super) fn keep_negotiation(&mut self, mut responder: Responder) {
        responder.renegotiate();
        self.text.responder = Some(Box::new(responder));
    }

    /// A text request that has taken its turn.
    pub(super) fn take_text(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        pdu: &[u8],
        ctx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let is_anew = request.target_transfer_tag == RESERVED_TAG;
        if is_anew {
            (self.text.came, self.text.ours, self.text.at) = (Vec::new(), Vec::new(), 0);
        } else if request.target_transfer_tag != TRANSFER_TAG {
            self.reject_text(request, RejectReason::INVALID_PDU_FIELD, pdu);
            return Ok(());
        }
        if request.check().is_err() {
            self.reject_text(request, RejectReason::INVALID_PDU_FIELD, pdu);
            return Ok(());
        }
        if self.text.came.len() + data.len() > TEXT_MAX {
            return Err(Violation::protocol("no more text than one negotiation may have"));
        }
        self.text.came.extend_from_slice(data);
        if request.flags.is_continue() {
            self.respond(request, TextFlags::default(), TRANSFER_TAG, &[]);
            return Ok(());
        }
        let came = core::mem::take(&mut self.text.came);
        if !came.is_empty() {
            match self.answer_text(&came, ctx) {
                Some(ours) => (self.text.ours, self.text.at) = (ours, 0),
                None => {
                    self.reject_text(request, RejectReason::PROTOCOL_ERROR, pdu);
                    return Ok(());
                }
            }
        }
        self.send_text(request);
        Ok(())
    }

    /// It has taken its turn, and is answered by a Reject.
    fn reject_text(&mut self, request: &TextRequest, reason: RejectReason, pdu: &[u8]) {
        self.outbox.answered(request.operation.is_immediate());
        self.reject(reason, pdu);
    }

    /// Sends the next part of our text.
    fn send_text(&mut self, request: &TextRequest) {
        let Text { ours, at, .. } = &mut self.text;
        let ours = core::mem::take(ours);
        let end = ours.len().min(*at + self.outbox.segment_max as usize);
        let part = &ours[*at..end];
        let is_whole = end == ours.len();
        // A host that has more to say is not told that it is over.
        let is_last = is_whole && request.flags.is_final();
        let flags = TextFlags::default().with_final(is_last).with_continue(!is_whole);
        let tag = if is_last { RESERVED_TAG } else { TRANSFER_TAG };
        self.respond(request, flags, tag, part);
        if !is_whole {
            (self.text.ours, self.text.at) = (ours, end);
        }
    }

    fn respond(&mut self, request: &TextRequest, flags: TextFlags, tag: u32, text: &[u8]) {
        self.outbox.answered(request.operation.is_immediate());
        let numbers = self.outbox.numbers.of_status();
        let length = text.len() as u32;
        let response = TextResponse::new(flags, request.initiator_task_tag, tag, length, numbers);
        self.outbox.push(&response.emit(), text);
    }

    /// What a whole text is answered; `None` if it is none.
    fn answer_text(&mut self, text: &[u8], ctx: &Context<'_>) -> Option<Vec<u8>> {
        let mut ours = Vec::new();
        // What fails leaves everything as it was.
        let mut responder = self.text.responder.clone()?;
        let mut has_sent = false;
        for pair in Pairs::new(text) {
            let pair = pair.ok()?;
            match Key::from_name(pair.key) {
                Some(Key::SendTargets) if has_sent => return None,
                Some(Key::SendTargets) => {
                    has_sent = true;
                    self.send_targets(&responder, pair.value, &mut ours, ctx);
                }
                _ => responder.take(pair.key, pair.value, &mut ours).ok()?,
            }
        }
        self.outbox.segment_max = responder.parameters().peer_segment;
        responder.renegotiate();
        self.text.responder = Some(responder);
        Some(ours)
    }

    /// SendTargets: all targets that the host may use (in a session of discovery), or one of them.
    fn send_targets(
        &self,
        responder: &Responder,
        which: &str,
        ours: &mut Vec<u8>,
        ctx: &Context<'_>,
    ) {
        let Some(host) = responder.initiator() else { return };
        let wanted = match which {
            "All" if responder.is_discovery() => None,
            "All" => return keys::push(ours, Key::SendTargets.name(), keys::REJECT),
            "" => match responder.target() {
                Some(own) => Some(own.clone()),
                None => return keys::push(ours, Key::SendTargets.name(), keys::REJECT),
            },
            name => match IscsiName::new(name) {
                Ok(name) => Some(name),
                Err(_) => return keys::push(ours, Key::SendTargets.name(), keys::REJECT),
            },
        };
        let addresses = ctx.shared.addresses(&self.endpoint);
        for name in ctx.shared.targets_of(host) {
            if wanted.as_ref().is_none_or(|wanted| wanted == name) {
                keys::push(ours, Key::TargetName.name(), name);
                for (address, group) in &addresses {
                    let address = format_args!("{address},{group}");
                    keys::push(ours, Key::TargetAddress.name(), address);
                }
            }
        }
    }
}
