//! The PDUs of the data path: Data-Out, Data-In and R2T; and SNACK, which asks for them again.
//!
//! Offsets and lengths count bytes of the task's data. DataSN and R2TSN count from 0: of a task's
//! Data-In and R2T together, of Data-Out for each R2T, and for what was not asked for.
//! Spec: RFC 7143 clauses 11.7, 11.8 and 11.16.

use core::fmt;

use super::show::{self, LunText, Tag};
use super::{Bhs, FinalFlag, Opcode, Operation, RESERVED_TAG, Residual, TargetNumbers, U24};
use crate::{Expected, ParseError};

layout! {
    big_endian:
    /// SCSI Data-Out: data for the target, asked for by an R2T or not.
    pub struct DataOut[48] {
        /// Data-Out.
        0 => operation: Operation,
        /// F: ends what an R2T asked for, or what was not asked for.
        1 => flags: FinalFlag,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of data.
        5 => data_segment_length: U24,
        /// That of the R2T.
        8 => lun: [u8; 8],
        /// The task.
        16 => initiator_task_tag: u32,
        /// That of the R2T, or [`RESERVED_TAG`] for what was not asked for.
        20 => target_transfer_tag: u32,
        /// All statuses before this one have arrived.
        28 => exp_stat_sn: u32,
        /// Counts the PDUs of this answer from 0.
        36 => data_sn: u32,
        /// Where the data belong.
        40 => buffer_offset: u32,
    }
}
pdu!(DataOut DATA_OUT);

impl DataOut {
    /// A part of the answer to `grant`.
    pub const fn solicited(
        grant: &R2t,
        data_sn: u32,
        buffer_offset: u32,
        data_segment_length: u32,
        is_final: bool,
        exp_stat_sn: u32,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: FinalFlag(0).with_final(is_final),
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            lun: grant.lun,
            initiator_task_tag: grant.initiator_task_tag,
            target_transfer_tag: grant.target_transfer_tag,
            exp_stat_sn,
            data_sn,
            buffer_offset,
        }
    }

    /// Data nobody asked for, behind the command with this tag.
    pub const fn unsolicited(
        lun: [u8; 8],
        initiator_task_tag: u32,
        data_sn: u32,
        buffer_offset: u32,
        data_segment_length: u32,
        is_final: bool,
        exp_stat_sn: u32,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: FinalFlag(0).with_final(is_final),
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            lun,
            initiator_task_tag,
            target_transfer_tag: RESERVED_TAG,
            exp_stat_sn,
            data_sn,
            buffer_offset,
        }
    }
}

impl fmt::Display for DataOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " lun {} itt {} ttt {} datasn {} offset {} expstatsn {}",
            LunText(self.lun),
            Tag(self.initiator_task_tag),
            Tag(self.target_transfer_tag),
            self.data_sn,
            self.buffer_offset,
            self.exp_stat_sn
        )?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

bits! {
    /// Byte 1 of a Data-In.
    pub struct DataInFlags(u8) {
        fields {}
        flags {
            /// F: ends a sequence of at most MaxBurstLength bytes.
            is_final / with_final: 7;
            /// A: the target wants to hear that the data arrived.
            is_acknowledge / with_acknowledge: 6;
            /// O: the residual is an overflow.
            is_overflow / with_overflow: 2;
            /// U: the residual is an underflow.
            is_underflow / with_underflow: 1;
            /// S: the PDU also ends the task; status, StatSN and residual count.
            is_status / with_status: 0;
        }
    }
}

impl fmt::Display for DataInFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"FA   OUS", 0)
    }
}

layout! {
    big_endian:
    /// SCSI Data-In: data of a task for the initiator; the last one may also end the task.
    pub struct DataIn[48] {
        /// Data-In.
        0 => operation: Operation,
        /// F, A, O, U and S.
        1 => flags: DataInFlags,
        /// The SCSI status, with S; GOOD or what is as harmless.
        3 => status: u8,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of data.
        5 => data_segment_length: U24,
        /// The logical unit, with A.
        8 => lun: [u8; 8],
        /// The task.
        16 => initiator_task_tag: u32,
        /// What the acknowledgement shall name, with A; else [`RESERVED_TAG`].
        20 => target_transfer_tag: u32,
        /// The number of this status, with S.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
        /// Counts the task's PDUs from 0.
        36 => data_sn: u32,
        /// Where the data belong.
        40 => buffer_offset: u32,
        /// The residual, with S.
        44 => residual_count: u32,
    }
}
pdu!(DataIn DATA_IN);

impl DataIn {
    /// Data that do not end their task; StatSN is 0, whatever `numbers` says.
    #[inline]
    pub const fn new(
        initiator_task_tag: u32,
        data_sn: u32,
        buffer_offset: u32,
        data_segment_length: u32,
        is_final: bool,
        numbers: TargetNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: DataInFlags(0).with_final(is_final),
            status: 0,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            lun: [0; 8],
            initiator_task_tag,
            target_transfer_tag: RESERVED_TAG,
            stat_sn: 0,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            data_sn,
            buffer_offset,
            residual_count: 0,
        }
    }

    /// The same, ending the task as a response would: F and S are set.
    #[inline]
    #[must_use]
    pub const fn with_status(mut self, status: u8, residual: Residual, stat_sn: u32) -> Self {
        let (overflow, underflow, residual_count) = residual.to_flags();
        self.flags = self
            .flags
            .with_final(true)
            .with_status(true)
            .with_overflow(overflow)
            .with_underflow(underflow);
        self.status = status;
        self.stat_sn = stat_sn;
        self.residual_count = residual_count;
        self
    }

    /// The residual; none without S.
    #[inline]
    pub const fn residual(&self) -> Residual {
        let flags = self.flags;
        let (overflow, underflow) = (flags.is_overflow(), flags.is_underflow());
        Residual::from_flags(
            overflow && flags.is_status(),
            underflow && flags.is_status(),
            self.residual_count,
        )
    }

    /// Checks that S comes with F, as an initiator may demand.
    pub fn check(&self) -> Result<(), ParseError> {
        if self.flags.is_status() && !self.flags.is_final() {
            let expected = Expected::Words("F with S");
            return Err(ParseError::new("flags", 1, expected, self.flags.0.into()));
        }
        Ok(())
    }
}

impl fmt::Display for DataIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(f, " itt {}", Tag(self.initiator_task_tag))?;
        if self.flags.is_acknowledge() {
            write!(f, " lun {} ttt {}", LunText(self.lun), Tag(self.target_transfer_tag))?;
        }
        write!(f, " datasn {} offset {}", self.data_sn, self.buffer_offset)?;
        if self.flags.is_status() {
            write!(f, " status {:#04x} statsn {}", self.status, self.stat_sn)?;
        }
        if self.residual() != Residual::None {
            write!(f, " residual {}", self.residual())?;
        }
        write!(f, " expcmdsn {} maxcmdsn {}", self.exp_cmd_sn, self.max_cmd_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

layout! {
    big_endian:
    /// R2T, Ready To Transfer: the target asks for a range of a task's data.
    pub struct R2t[48] {
        /// R2T.
        0 => operation: Operation,
        /// Always F.
        1 => flags: FinalFlag,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: 0.
        5 => data_segment_length: U24,
        /// The logical unit.
        8 => lun: [u8; 8],
        /// The task.
        16 => initiator_task_tag: u32,
        /// Chosen by the target, repeated in every Data-Out that answers.
        20 => target_transfer_tag: u32,
        /// The next StatSN; an R2T has none of its own.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
        /// Counts the task's R2Ts from 0.
        36 => r2t_sn: u32,
        /// The first byte that is wanted.
        40 => buffer_offset: u32,
        /// Bytes that are wanted: 1 to MaxBurstLength.
        44 => desired_data_transfer_length: u32,
    }
}
pdu!(R2t R2T);

impl R2t {
    /// A wish for `length` bytes from `buffer_offset` on; StatSN is that of the next status.
    #[inline]
    pub const fn new(
        lun: [u8; 8],
        initiator_task_tag: u32,
        target_transfer_tag: u32,
        r2t_sn: u32,
        buffer_offset: u32,
        desired_data_transfer_length: u32,
        numbers: TargetNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: FinalFlag::SET,
            total_ahs_length: 0,
            data_segment_length: U24::new(0),
            lun,
            initiator_task_tag,
            target_transfer_tag,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            r2t_sn,
            buffer_offset,
            desired_data_transfer_length,
        }
    }

    /// Checks that something is wanted.
    pub fn check(&self) -> Result<(), ParseError> {
        if self.desired_data_transfer_length == 0 {
            let field = "DesiredDataTransferLength";
            return Err(ParseError::new(field, 44, Expected::AtLeast(1), 0));
        }
        Ok(())
    }
}

impl fmt::Display for R2t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " lun {} itt {} ttt {} r2tsn {} offset {} length {}",
            LunText(self.lun),
            Tag(self.initiator_task_tag),
            Tag(self.target_transfer_tag),
            self.r2t_sn,
            self.buffer_offset,
            self.desired_data_transfer_length
        )?;
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

codes! {
    /// What a SNACK is about.
    pub struct SnackKind(u8) {
        DATA_R2T = 0 "Data/R2T",
        STATUS = 1 "Status",
        DATA_ACK = 2 "DataACK",
        R_DATA = 3 "R-Data",
    }
}

bits! {
    /// Byte 1 of a SNACK; the highest bit is always set.
    pub struct SnackFlags(u8) {
        fields {
            /// A [`SnackKind`].
            kind / with_kind: 0, 4;
        }
        flags {
            /// Always 1.
            is_final / with_final: 7;
        }
    }
}

impl fmt::Display for SnackFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"F       ", 0x0f)
    }
}

layout! {
    big_endian:
    /// SNACK: the initiator asks for PDUs again, or says that data arrived.
    pub struct Snack[48] {
        /// SNACK.
        0 => operation: Operation,
        /// What it is about.
        1 => flags: SnackFlags,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: 0.
        5 => data_segment_length: U24,
        /// Of a DataACK: that of the Data-In.
        8 => lun: [u8; 8],
        /// The task, or [`RESERVED_TAG`] for Status and DataACK.
        16 => initiator_task_tag: u32,
        /// Of a DataACK: that of the Data-In; of an R-Data: a tag that is not 0; else reserved.
        20 => target_transfer_tag: u32,
        /// All statuses before this one have arrived.
        28 => exp_stat_sn: u32,
        /// The first DataSN, R2TSN or StatSN that is missing; of a DataACK, the next expected.
        40 => beg_run: u32,
        /// How many are missing; 0 for all that follow.
        44 => run_length: u32,
    }
}
pdu!(Snack SNACK);

impl Snack {
    /// A request of this kind for `run_length` PDUs from number `beg_run` on.
    pub const fn new(
        kind: SnackKind,
        lun: [u8; 8],
        initiator_task_tag: u32,
        target_transfer_tag: u32,
        beg_run: u32,
        run_length: u32,
        exp_stat_sn: u32,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags: SnackFlags(0x80).with_kind(kind.0),
            total_ahs_length: 0,
            data_segment_length: U24::new(0),
            lun,
            initiator_task_tag,
            target_transfer_tag,
            exp_stat_sn,
            beg_run,
            run_length,
        }
    }

    /// What it is about.
    pub const fn kind(&self) -> SnackKind {
        SnackKind(self.flags.kind())
    }
}

impl fmt::Display for Snack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " {} lun {} itt {} ttt {} begrun {} runlength {} expstatsn {}",
            self.kind(),
            LunText(self.lun),
            Tag(self.initiator_task_tag),
            Tag(self.target_transfer_tag),
            self.beg_run,
            self.run_length,
            self.exp_stat_sn
        )?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}
