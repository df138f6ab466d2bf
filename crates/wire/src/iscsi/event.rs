//! Asynchronous Message and Reject: what a target says unasked.
//!
//! The data of a Reject are the header that was wrong, those of an Asynchronous Message with a SCSI
//! event are a length of 2 bytes and sense data. Spec: RFC 7143 clauses 11.9 and 11.17.

use core::fmt;

use super::show::{self, LunText, Tag};
use super::{Bhs, FinalFlag, Opcode, Operation, RESERVED_TAG, TargetNumbers, U24};

codes! {
    /// What happened. From 248 on vendors say what a number means.
    pub struct AsyncEvent(u8) {
        SCSI = 0 "SCSI asynchronous event",
        LOGOUT_REQUEST = 1 "target requests logout",
        CONNECTION_DROP = 2 "target will drop the connection",
        SESSION_DROP = 3 "target will drop the session",
        NEGOTIATION_REQUEST = 4 "target requests negotiation",
        FAST_ABORT = 5 "tasks of the logical unit are being terminated",
        VENDOR = 255 "vendor specific event",
    }
}

layout! {
    big_endian:
    /// Asynchronous Message.
    pub struct AsyncMessage[48] {
        /// Asynchronous Message.
        0 => operation: Operation,
        /// Always F.
        1 => flags: FinalFlag,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of sense data with their length, or what a vendor sends.
        5 => data_segment_length: U24,
        /// The logical unit, where the event is about one.
        8 => lun: [u8; 8],
        /// [`RESERVED_TAG`].
        16 => initiator_task_tag: u32,
        /// The number of this status.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
        /// What happened.
        36 => async_event: AsyncEvent,
        /// AsyncVCode: a vendor's code.
        37 => async_vendor_code: u8,
        /// Of a drop: the CID.
        38 => parameter1: u16,
        /// Of a drop: Time2Wait, in seconds.
        40 => parameter2: u16,
        /// Of a drop: Time2Retain; of a request: the seconds in which it is to be obeyed.
        42 => parameter3: u16,
    }
}
pdu!(AsyncMessage ASYNC_MESSAGE);

impl AsyncMessage {
    /// A message without data that is about no logical unit.
    pub const fn new(
        async_event: AsyncEvent,
        [parameter1, parameter2, parameter3]: [u16; 3],
        numbers: TargetNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: FinalFlag::SET,
            total_ahs_length: 0,
            data_segment_length: U24::new(0),
            lun: [0; 8],
            initiator_task_tag: RESERVED_TAG,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            async_event,
            async_vendor_code: 0,
            parameter1,
            parameter2,
            parameter3,
        }
    }

    /// A SCSI event of the logical unit `lun`, `data_segment_length` bytes of sense data with their
    /// length following.
    pub const fn scsi(lun: [u8; 8], data_segment_length: u32, numbers: TargetNumbers) -> Self {
        let mut message = Self::new(AsyncEvent::SCSI, [0; 3], numbers);
        message.lun = lun;
        message.data_segment_length = U24::new(data_segment_length);
        message
    }

    /// A wish that the initiator logs out within so many seconds.
    pub const fn logout_request(seconds: u16, numbers: TargetNumbers) -> Self {
        Self::new(AsyncEvent::LOGOUT_REQUEST, [0, 0, seconds], numbers)
    }
}

impl fmt::Display for AsyncMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " {} vcode {} lun {} parameters {} {} {}",
            self.async_event,
            self.async_vendor_code,
            LunText(self.lun),
            self.parameter1,
            self.parameter2,
            self.parameter3
        )?;
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

codes! {
    /// Why a PDU was rejected.
    pub struct RejectReason(u8) {
        DATA_DIGEST_ERROR = 0x02 "data digest error",
        SNACK = 0x03 "SNACK reject",
        PROTOCOL_ERROR = 0x04 "protocol error",
        COMMAND_NOT_SUPPORTED = 0x05 "command not supported",
        TOO_MANY_IMMEDIATE_COMMANDS = 0x06 "too many immediate commands",
        TASK_IN_PROGRESS = 0x07 "task in progress",
        INVALID_DATA_ACK = 0x08 "invalid data ACK",
        INVALID_PDU_FIELD = 0x09 "invalid PDU field",
        LONG_OPERATION = 0x0a "long operation reject",
        WAITING_FOR_LOGOUT = 0x0c "waiting for logout",
    }
}

layout! {
    big_endian:
    /// Reject: the header that was wrong follows.
    pub struct Reject[48] {
        /// Reject.
        0 => operation: Operation,
        /// Always F.
        1 => flags: FinalFlag,
        /// Why.
        2 => reason: RejectReason,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of the header that was wrong, additional headers included.
        5 => data_segment_length: U24,
        /// [`RESERVED_TAG`].
        16 => initiator_task_tag: u32,
        /// The number of this status.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
        /// DataSN/R2TSN: of a rejected Data-Out or SNACK of a task, what the task is to get next.
        36 => data_sn: u32,
    }
}
pdu!(Reject REJECT);

impl Reject {
    /// A Reject that sends back `data_segment_length` bytes of the header that was wrong.
    pub const fn new(
        reason: RejectReason,
        data_segment_length: u32,
        numbers: TargetNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: FinalFlag::SET,
            reason,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            initiator_task_tag: RESERVED_TAG,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            data_sn: 0,
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(f, " {} itt {}", self.reason, Tag(self.initiator_task_tag))?;
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        write!(f, " datasn {}", self.data_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}
