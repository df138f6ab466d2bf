//! PDUs that move no blocks: logins, NOPs, texts, task management and logouts.
//!
//! Each that is not immediate takes its turn among the commands. Errors: a Reject, or a
//! [`Violation`] that ends the session. Spec: RFC 7143, 11.5, 11.10, 11.12, 11.14, 11.18, 11.19.

use wire::iscsi::{
    LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, NopIn, NopOut, Pdu,
    RESERVED_TAG, Reject, RejectReason,
};

use super::receive::{Step, Stream, Turn};
use super::{Connection, Context};
use crate::pdu_stream::{PduHead, Violation};

impl Connection {
    /// A PDU that is neither a command nor data, all of it.
    pub(super) fn take_control(
        &mut self,
        pdu: &[u8],
        head: &PduHead,
        ctx: &mut Context<'_>,
    ) -> Result<Step, Violation> {
        let parsed = Pdu::parse(pdu).map_err(|error| Violation::field(&error))?;
        let data = head.data(pdu);
        if let Pdu::LoginRequest(request) = parsed {
            return self.login(&request, data, pdu.len(), ctx);
        }
        let (cmd_sn, is_asked) = match &parsed {
            Pdu::NopOut(nop) => (nop.cmd_sn, nop.initiator_task_tag != RESERVED_TAG),
            Pdu::TextRequest(text) => (text.cmd_sn, true),
            Pdu::LogoutRequest(logout) => (logout.cmd_sn, true),
            Pdu::TaskManagementRequest(request) => (request.cmd_sn, true),
            _ => {
                self.reject(RejectReason::COMMAND_NOT_SUPPORTED, pdu);
                return Ok(Step::Consumed(pdu.len()));
            }
        };
        let is_immediate = head.bhs.is_immediate();
        if !is_asked {
            // The answer to a question of ours, or a sign of life.
            return Ok(Step::Consumed(pdu.len()));
        }
        match self.turn(is_immediate, cmd_sn)? {
            Turn::Now => {}
            Turn::Never => return Ok(Step::Consumed(pdu.len())),
            Turn::Rejected => return Ok(self.reject_immediate(pdu, head)),
        }
        if self.outbox.is_crowded() {
            self.intake.stream = Stream::Unread;
            return Ok(Step::Pause);
        }
        self.take_turn(is_immediate);
        // Reads that were asked for before it are answered before it.
        self.take_loans(ctx);
        match parsed {
            Pdu::NopOut(nop) => self.echo(&nop, data, is_immediate),
            Pdu::TextRequest(text) => self.take_text(&text, data, pdu, ctx)?,
            Pdu::TaskManagementRequest(request) => self.manage(&request, ctx),
            Pdu::LogoutRequest(logout) => {
                self.take_logout(&logout, is_immediate, ctx);
                return Ok(if self.is_open() { Step::Consumed(pdu.len()) } else { Step::End });
            }
            _ => unreachable!("it was one of these"),
        }
        Ok(Step::Consumed(pdu.len()))
    }

    /// NOP-Out: its data go back, as much of them as the host takes.
    fn echo(&mut self, nop: &NopOut, data: &[u8], is_immediate: bool) {
        let data = &data[..data.len().min(self.outbox.segment_max as usize)];
        self.outbox.answered(is_immediate);
        let numbers = self.outbox.numbers.of_status();
        let answer = NopIn::pong(nop, data.len() as u32, numbers);
        self.outbox.push(&answer.emit(), data);
    }

    fn take_logout(&mut self, logout: &LogoutRequest, is_immediate: bool, ctx: &mut Context<'_>) {
        let response = match logout.reason() {
            LogoutReason::CLOSE_SESSION => None,
            LogoutReason::CLOSE_CONNECTION if logout.cid == self.cid => None,
            LogoutReason::CLOSE_CONNECTION => Some(LogoutResponseCode::NO_SUCH_CID),
            _ => Some(LogoutResponseCode::RECOVERY_NOT_SUPPORTED),
        };
        let tag = logout.initiator_task_tag;
        let Some(response) = response else { return self.log_out(tag, ctx) };
        self.outbox.answered(is_immediate);
        let numbers = self.outbox.numbers.of_status();
        self.outbox.push(&LogoutResponse::new(tag, response, numbers).emit(), &[]);
    }

    /// Sends the header of a PDU back that was not taken.
    pub(super) fn push_reject(&mut self, reason: RejectReason, header: &[u8]) {
        let numbers = self.outbox.numbers.of_status();
        let reject = Reject::new(reason, header.len() as u32, numbers);
        self.outbox.push(&reject.emit(), header);
    }
}
