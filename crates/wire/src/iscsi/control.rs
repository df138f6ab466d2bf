//! Text, NOP and Logout, each as request and response: what the two ends of a session say to each
//! other about themselves.
//!
//! A NOP-Out asks for a NOP-In that repeats its data, or answers one; the other way round it is the
//! same. Spec: RFC 7143 clauses 11.10, 11.11, 11.14, 11.15, 11.18 and 11.19.

use core::fmt;

use super::show::{self, LunText, Tag};
use super::{
    Bhs, FinalFlag, InitiatorNumbers, Opcode, Operation, RESERVED_TAG, TargetNumbers, U24,
};
use crate::{Expected, ParseError};

bits! {
    /// Byte 1 of Text Request and Text Response.
    pub struct TextFlags(u8) {
        fields {}
        flags {
            /// F: the sender has said all; both set it and the exchange is over.
            is_final / with_final: 7;
            /// C: the text goes on in the next PDU.
            is_continue / with_continue: 6;
        }
    }
}

impl TextFlags {
    /// More is to be said.
    pub const NONE: Self = Self(0);
    /// All is said.
    pub const FINAL: Self = Self(0x80);
    /// The text goes on in the next PDU.
    pub const CONTINUE: Self = Self(0x40);

    /// Checks that nothing is to be continued when all is said.
    pub fn check(self) -> Result<(), ParseError> {
        if self.is_final() && self.is_continue() {
            return Err(ParseError::new("C", 1, Expected::Words("C without F"), self.0.into()));
        }
        Ok(())
    }
}

impl fmt::Display for TextFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"FC      ", 0)
    }
}

layout! {
    big_endian:
    /// Text Request: text keys follow.
    pub struct TextRequest[48] {
        /// Text Request, perhaps immediate.
        0 => operation: Operation,
        /// F and C.
        1 => flags: TextFlags,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of text.
        5 => data_segment_length: U24,
        /// That of the response that is answered.
        8 => lun: [u8; 8],
        /// The same in all requests of an exchange.
        16 => initiator_task_tag: u32,
        /// That of the response that is answered, or [`RESERVED_TAG`] to begin anew.
        20 => target_transfer_tag: u32,
        /// The request's place in the order of the session.
        24 => cmd_sn: u32,
        /// All statuses before this one have arrived.
        28 => exp_stat_sn: u32,
    }
}
pdu!(TextRequest TEXT_REQUEST);

impl TextRequest {
    /// A request with `data_segment_length` bytes of text that is not immediate.
    pub const fn new(
        flags: TextFlags,
        initiator_task_tag: u32,
        target_transfer_tag: u32,
        data_segment_length: u32,
        numbers: InitiatorNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            lun: [0; 8],
            initiator_task_tag,
            target_transfer_tag,
            cmd_sn: numbers.cmd_sn,
            exp_stat_sn: numbers.exp_stat_sn,
        }
    }

    /// Checks what is wrong whatever was said before: the flags.
    pub fn check(&self) -> Result<(), ParseError> {
        self.flags.check()
    }
}

impl fmt::Display for TextRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " itt {} ttt {} cmdsn {} expstatsn {}",
            Tag(self.initiator_task_tag),
            Tag(self.target_transfer_tag),
            self.cmd_sn,
            self.exp_stat_sn
        )?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

layout! {
    big_endian:
    /// Text Response: text keys follow.
    pub struct TextResponse[48] {
        /// Text Response.
        0 => operation: Operation,
        /// F and C.
        1 => flags: TextFlags,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of text.
        5 => data_segment_length: U24,
        /// What the next request shall repeat.
        8 => lun: [u8; 8],
        /// The request.
        16 => initiator_task_tag: u32,
        /// What the next request shall repeat, or [`RESERVED_TAG`] at the end.
        20 => target_transfer_tag: u32,
        /// The number of this status.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
    }
}
pdu!(TextResponse TEXT_RESPONSE);

impl TextResponse {
    /// A response with `data_segment_length` bytes of text.
    pub const fn new(
        flags: TextFlags,
        initiator_task_tag: u32,
        target_transfer_tag: u32,
        data_segment_length: u32,
        numbers: TargetNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            lun: [0; 8],
            initiator_task_tag,
            target_transfer_tag,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
        }
    }

    /// Checks what is wrong whatever was said before: the flags.
    pub fn check(&self) -> Result<(), ParseError> {
        self.flags.check()
    }
}

impl fmt::Display for TextResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        let (itt, ttt) = (Tag(self.initiator_task_tag), Tag(self.target_transfer_tag));
        write!(f, " itt {itt} ttt {ttt}")?;
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

layout! {
    big_endian:
    /// NOP-Out: the initiator asks whether the target is there, or answers its question.
    pub struct NopOut[48] {
        /// NOP-Out, perhaps immediate.
        0 => operation: Operation,
        /// Always F.
        1 => flags: FinalFlag,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of data, which come back.
        5 => data_segment_length: U24,
        /// That of the NOP-In that is answered.
        8 => lun: [u8; 8],
        /// The question, or [`RESERVED_TAG`] where no answer is wanted.
        16 => initiator_task_tag: u32,
        /// That of the NOP-In that is answered, or [`RESERVED_TAG`].
        20 => target_transfer_tag: u32,
        /// The PDU's place in the order of the session.
        24 => cmd_sn: u32,
        /// All statuses before this one have arrived.
        28 => exp_stat_sn: u32,
    }
}
pdu!(NopOut NOP_OUT);

impl NopOut {
    /// An immediate question, `data_segment_length` bytes of data with it.
    pub const fn ping(
        initiator_task_tag: u32,
        data_segment_length: u32,
        numbers: InitiatorNumbers,
    ) -> Self {
        Self {
            operation: Operation::immediate(Self::OPCODE),
            flags: FinalFlag::SET,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            lun: [0; 8],
            initiator_task_tag,
            target_transfer_tag: RESERVED_TAG,
            cmd_sn: numbers.cmd_sn,
            exp_stat_sn: numbers.exp_stat_sn,
        }
    }

    /// The answer to a target's question.
    pub const fn pong(question: &NopIn, numbers: InitiatorNumbers) -> Self {
        let mut pong = Self::ping(RESERVED_TAG, 0, numbers);
        pong.lun = question.lun;
        pong.target_transfer_tag = question.target_transfer_tag;
        pong
    }
}

impl fmt::Display for NopOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " lun {} itt {} ttt {} cmdsn {} expstatsn {}",
            LunText(self.lun),
            Tag(self.initiator_task_tag),
            Tag(self.target_transfer_tag),
            self.cmd_sn,
            self.exp_stat_sn
        )?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

layout! {
    big_endian:
    /// NOP-In: the target answers, asks, or only tells its numbers.
    pub struct NopIn[48] {
        /// NOP-In.
        0 => operation: Operation,
        /// Always F.
        1 => flags: FinalFlag,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of data of the question that is answered.
        5 => data_segment_length: U24,
        /// Of a question: what the answer shall repeat.
        8 => lun: [u8; 8],
        /// The question that is answered, or [`RESERVED_TAG`].
        16 => initiator_task_tag: u32,
        /// Of a question: what the answer shall repeat; else [`RESERVED_TAG`].
        20 => target_transfer_tag: u32,
        /// Of an answer: the number of this status; else that of the next.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
    }
}
pdu!(NopIn NOP_IN);

impl NopIn {
    /// The answer to an initiator's question, `data_segment_length` bytes of its data with it.
    pub const fn pong(question: &NopOut, data_segment_length: u32, numbers: TargetNumbers) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: FinalFlag::SET,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            lun: [0; 8],
            initiator_task_tag: question.initiator_task_tag,
            target_transfer_tag: RESERVED_TAG,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
        }
    }

    /// A question, or with [`RESERVED_TAG`] for a tag only the numbers. StatSN is that of the next
    /// status.
    pub const fn ping(lun: [u8; 8], target_transfer_tag: u32, numbers: TargetNumbers) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: FinalFlag::SET,
            total_ahs_length: 0,
            data_segment_length: U24::new(0),
            lun,
            initiator_task_tag: RESERVED_TAG,
            target_transfer_tag,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
        }
    }
}

impl fmt::Display for NopIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " lun {} itt {} ttt {}",
            LunText(self.lun),
            Tag(self.initiator_task_tag),
            Tag(self.target_transfer_tag)
        )?;
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

codes! {
    /// What a Logout is to end.
    pub struct LogoutReason(u8) {
        CLOSE_SESSION = 0 "close the session",
        CLOSE_CONNECTION = 1 "close the connection",
        RECOVERY = 2 "remove the connection for recovery",
    }
}

codes! {
    /// What became of a Logout.
    pub struct LogoutResponseCode(u8) {
        CLOSED = 0 "closed successfully",
        NO_SUCH_CID = 1 "CID not found",
        RECOVERY_NOT_SUPPORTED = 2 "connection recovery not supported",
        CLEANUP_FAILED = 3 "cleanup failed",
    }
}

bits! {
    /// Byte 1 of a Logout Request; the highest bit is always set.
    pub struct LogoutFlags(u8) {
        fields {
            /// A [`LogoutReason`].
            reason / with_reason: 0, 7;
        }
        flags {
            /// Always 1.
            is_final / with_final: 7;
        }
    }
}

impl fmt::Display for LogoutFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"F       ", 0x7f)
    }
}

layout! {
    big_endian:
    /// Logout Request.
    pub struct LogoutRequest[48] {
        /// Logout Request, perhaps immediate.
        0 => operation: Operation,
        /// What is to be ended.
        1 => flags: LogoutFlags,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: 0.
        5 => data_segment_length: U24,
        /// Names this request.
        16 => initiator_task_tag: u32,
        /// The connection; means nothing where the session is to be closed.
        20 => cid: u16,
        /// The request's place in the order of the session.
        24 => cmd_sn: u32,
        /// All statuses before this one have arrived.
        28 => exp_stat_sn: u32,
    }
}
pdu!(LogoutRequest LOGOUT_REQUEST);

impl LogoutRequest {
    /// An immediate request to end the connection `cid` or its session.
    pub const fn new(
        reason: LogoutReason,
        cid: u16,
        initiator_task_tag: u32,
        numbers: InitiatorNumbers,
    ) -> Self {
        Self {
            operation: Operation::immediate(Self::OPCODE),
            flags: LogoutFlags(0x80).with_reason(reason.0),
            total_ahs_length: 0,
            data_segment_length: U24::new(0),
            initiator_task_tag,
            cid,
            cmd_sn: numbers.cmd_sn,
            exp_stat_sn: numbers.exp_stat_sn,
        }
    }

    /// What is to be ended.
    pub const fn reason(&self) -> LogoutReason {
        LogoutReason(self.flags.reason())
    }
}

impl fmt::Display for LogoutRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " {} cid {} itt {} cmdsn {} expstatsn {}",
            self.reason(),
            self.cid,
            Tag(self.initiator_task_tag),
            self.cmd_sn,
            self.exp_stat_sn
        )?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

layout! {
    big_endian:
    /// Logout Response.
    pub struct LogoutResponse[48] {
        /// Logout Response.
        0 => operation: Operation,
        /// Always F.
        1 => flags: FinalFlag,
        /// What became of it.
        2 => response: LogoutResponseCode,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: 0.
        5 => data_segment_length: U24,
        /// The request.
        16 => initiator_task_tag: u32,
        /// The number of this status.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
        /// Time2Wait: seconds before the initiator may come back.
        40 => time2wait: u16,
        /// Time2Retain: seconds, from then on, for which the tasks are kept.
        42 => time2retain: u16,
    }
}
pdu!(LogoutResponse LOGOUT_RESPONSE);

impl LogoutResponse {
    /// The answer to the request with this tag. Times are 0: the initiator may come back at once,
    /// and nothing is kept.
    pub const fn new(
        initiator_task_tag: u32,
        response: LogoutResponseCode,
        numbers: TargetNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: FinalFlag::SET,
            response,
            total_ahs_length: 0,
            data_segment_length: U24::new(0),
            initiator_task_tag,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            time2wait: 0,
            time2retain: 0,
        }
    }
}

impl fmt::Display for LogoutResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(f, " {} itt {}", self.response, Tag(self.initiator_task_tag))?;
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        write!(f, " time2wait {} time2retain {}", self.time2wait, self.time2retain)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}
