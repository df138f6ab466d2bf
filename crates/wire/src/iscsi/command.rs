//! SCSI Command and SCSI Response: how a task begins and ends.
//!
//! Residuals say how much more or less the command would have moved than the initiator expected:
//! [`Residual::between`] is the arithmetic. A status is SAM's byte, a CDB and a LUN are SAM's
//! bytes. Spec: RFC 7143 clauses 11.3 and 11.4.

use core::fmt;

use super::show::{self, LunText, Tag};
use super::{Bhs, InitiatorNumbers, Opcode, Operation, TargetNumbers, U24};

codes! {
    /// The task attribute of a command.
    pub struct TaskAttribute(u8) {
        UNTAGGED = 0 "untagged",
        SIMPLE = 1 "simple",
        ORDERED = 2 "ordered",
        HEAD_OF_QUEUE = 3 "head of queue",
        ACA = 4 "ACA",
    }
}

bits! {
    /// Byte 1 of a SCSI Command.
    pub struct ScsiCommandFlags(u8) {
        fields {
            /// ATTR: a [`TaskAttribute`].
            attribute / with_attribute: 0, 3;
        }
        flags {
            /// F: no unsolicited Data-Out follows.
            is_final / with_final: 7;
            /// R: data are expected from the target.
            is_read / with_read: 6;
            /// W: data are expected to go to the target.
            is_write / with_write: 5;
        }
    }
}

impl ScsiCommandFlags {
    /// A command without data, of simple attribute.
    pub const NO_DATA: Self = Self(0x81);
    /// A command that reads, of simple attribute.
    pub const READ: Self = Self(0xc1);
    /// A command that writes, of simple attribute, and whose data the target will ask for (those
    /// apart that come with it).
    pub const WRITE: Self = Self(0xa1);
}

impl fmt::Display for ScsiCommandFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"FRW     ", 0x07)?;
        write!(f, " {}", TaskAttribute(self.attribute()))
    }
}

layout! {
    big_endian:
    /// SCSI Command: additional headers and immediate data may follow.
    pub struct ScsiCommand[48] {
        /// SCSI Command, perhaps immediate.
        0 => operation: Operation,
        /// F, R, W and the task attribute.
        1 => flags: ScsiCommandFlags,
        /// TotalAHSLength: words of 4 bytes of additional headers.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of immediate data.
        5 => data_segment_length: U24,
        /// The logical unit.
        8 => lun: [u8; 8],
        /// Names the task from now on.
        16 => initiator_task_tag: u32,
        /// Bytes that the initiator has, or has room for; of a bidirectional command, has.
        20 => expected_data_transfer_length: u32,
        /// The command's place in the order of the session.
        24 => cmd_sn: u32,
        /// All statuses before this one have arrived.
        28 => exp_stat_sn: u32,
        /// The CDB; where it is longer than 16 bytes, its beginning.
        32 => cdb: [u8; 16],
    }
}
pdu!(ScsiCommand SCSI_COMMAND);

impl ScsiCommand {
    /// A command of `flags` with `data_segment_length` bytes of immediate data.
    pub const fn new(
        lun: [u8; 8],
        initiator_task_tag: u32,
        flags: ScsiCommandFlags,
        cdb: [u8; 16],
        expected_data_transfer_length: u32,
        data_segment_length: u32,
        numbers: InitiatorNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            lun,
            initiator_task_tag,
            expected_data_transfer_length,
            cmd_sn: numbers.cmd_sn,
            exp_stat_sn: numbers.exp_stat_sn,
            cdb,
        }
    }

    /// The task attribute.
    #[inline]
    pub const fn attribute(&self) -> TaskAttribute {
        TaskAttribute(self.flags.attribute())
    }
}

impl fmt::Display for ScsiCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " lun {} itt {} edtl {} cmdsn {} expstatsn {} cdb ",
            LunText(self.lun),
            Tag(self.initiator_task_tag),
            self.expected_data_transfer_length,
            self.cmd_sn,
            self.exp_stat_sn
        )?;
        show::hex(f, &self.cdb)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

codes! {
    /// The response of a SCSI Response: whether the SCSI status counts.
    pub struct ResponseCode(u8) {
        COMPLETED = 0x00 "command completed at target",
        TARGET_FAILURE = 0x01 "target failure",
    }
}

bits! {
    /// Byte 1 of a SCSI Response; the highest bit is always set.
    pub struct ResponseFlags(u8) {
        fields {}
        flags {
            /// Always 1.
            is_final / with_final: 7;
            /// o: the bidirectional read residual is an overflow.
            is_read_overflow / with_read_overflow: 4;
            /// u: the bidirectional read residual is an underflow.
            is_read_underflow / with_read_underflow: 3;
            /// O: the residual is an overflow.
            is_overflow / with_overflow: 2;
            /// U: the residual is an underflow.
            is_underflow / with_underflow: 1;
        }
    }
}

impl fmt::Display for ResponseFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"F  ouOU ", 0)
    }
}

/// What a command would have moved, compared with what the initiator expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Residual {
    /// The same.
    #[default]
    None,
    /// So many bytes more; they were not moved.
    Overflow(u32),
    /// So many bytes less.
    Underflow(u32),
}

impl Residual {
    /// The residual of a command for which `expected` bytes were announced and which moves
    /// `presented` bytes by what its CDB and the device say. Bytes beyond what 32 bits count are
    /// left out.
    pub const fn between(expected: u32, presented: u64) -> Self {
        let wanted = expected as u64;
        if presented > wanted {
            let more = presented - wanted;
            Self::Overflow(if more > u32::MAX as u64 { u32::MAX } else { more as u32 })
        } else if presented < wanted {
            Self::Underflow((wanted - presented) as u32)
        } else {
            Self::None
        }
    }

    /// From the flags O and U and the count, both flags and neither meaning none.
    pub(super) const fn from_flags(overflow: bool, underflow: bool, count: u32) -> Self {
        match (overflow, underflow) {
            (true, false) => Self::Overflow(count),
            (false, true) => Self::Underflow(count),
            _ => Self::None,
        }
    }

    /// The flags O and U and the count.
    pub(super) const fn to_flags(self) -> (bool, bool, u32) {
        match self {
            Self::None => (false, false, 0),
            Self::Overflow(count) => (true, false, count),
            Self::Underflow(count) => (false, true, count),
        }
    }
}

impl fmt::Display for Residual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Overflow(count) => write!(f, "+{count}"),
            Self::Underflow(count) => write!(f, "-{count}"),
        }
    }
}

layout! {
    big_endian:
    /// SCSI Response: the end of a task. Its data are a length of 2 bytes and sense data.
    pub struct ScsiResponse[48] {
        /// SCSI Response.
        0 => operation: Operation,
        /// What the residuals mean.
        1 => flags: ResponseFlags,
        /// Whether the status counts.
        2 => response: ResponseCode,
        /// The SCSI status, where `response` is COMPLETED.
        3 => status: u8,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of sense data with their length.
        5 => data_segment_length: U24,
        /// The task.
        16 => initiator_task_tag: u32,
        /// Copied from the last R-Data SNACK, if there was one.
        20 => snack_tag: u32,
        /// The number of this status.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
        /// R2T and Data-In PDUs that the task got.
        36 => exp_data_sn: u32,
        /// Of a bidirectional command: the residual of what was read.
        40 => bidirectional_read_residual_count: u32,
        /// The residual.
        44 => residual_count: u32,
    }
}
pdu!(ScsiResponse SCSI_RESPONSE);

impl ScsiResponse {
    /// A task that ended with this SCSI `status`, `exp_data_sn` R2T and Data-In PDUs having been
    /// sent for it, and `data_segment_length` bytes of sense data with their length.
    #[inline]
    pub const fn new(
        initiator_task_tag: u32,
        status: u8,
        residual: Residual,
        exp_data_sn: u32,
        data_segment_length: u32,
        numbers: TargetNumbers,
    ) -> Self {
        let (overflow, underflow, residual_count) = residual.to_flags();
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: ResponseFlags(0x80).with_overflow(overflow).with_underflow(underflow),
            response: ResponseCode::COMPLETED,
            status,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            initiator_task_tag,
            snack_tag: 0,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            exp_data_sn,
            bidirectional_read_residual_count: 0,
            residual_count,
        }
    }

    /// A task that ended without a SCSI status, the target having failed.
    pub const fn failed(
        initiator_task_tag: u32,
        response: ResponseCode,
        numbers: TargetNumbers,
    ) -> Self {
        let mut failed = Self::new(initiator_task_tag, 0, Residual::None, 0, 0, numbers);
        failed.response = response;
        failed
    }

    /// The residual.
    #[inline]
    pub const fn residual(&self) -> Residual {
        let flags = self.flags;
        Residual::from_flags(flags.is_overflow(), flags.is_underflow(), self.residual_count)
    }
}

impl fmt::Display for ScsiResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(f, " itt {}", Tag(self.initiator_task_tag))?;
        match self.response {
            ResponseCode::COMPLETED => write!(f, " status {:#04x}", self.status)?,
            response => write!(f, " response {response}")?,
        }
        if self.residual() != Residual::None {
            write!(f, " residual {}", self.residual())?;
        }
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        write!(f, " expdatasn {}", self.exp_data_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}
