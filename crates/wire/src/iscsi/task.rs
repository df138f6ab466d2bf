//! Task Management Function Request and Response: what is to become of other tasks.
//!
//! Spec: RFC 7143 clauses 11.5 and 11.6; RFC 7144 for the functions from 9 on and the
//! response "function succeeded".

use core::fmt;

use super::show::{self, LunText, Tag};
use super::{
    Bhs, FinalFlag, InitiatorNumbers, Opcode, Operation, RESERVED_TAG, TargetNumbers, U24,
};

codes! {
    /// What is to be done.
    pub struct TaskFunction(u8) {
        ABORT_TASK = 1 "ABORT TASK",
        ABORT_TASK_SET = 2 "ABORT TASK SET",
        CLEAR_ACA = 3 "CLEAR ACA",
        CLEAR_TASK_SET = 4 "CLEAR TASK SET",
        LOGICAL_UNIT_RESET = 5 "LOGICAL UNIT RESET",
        TARGET_WARM_RESET = 6 "TARGET WARM RESET",
        TARGET_COLD_RESET = 7 "TARGET COLD RESET",
        TASK_REASSIGN = 8 "TASK REASSIGN",
        QUERY_TASK = 9 "QUERY TASK",
        QUERY_TASK_SET = 10 "QUERY TASK SET",
        I_T_NEXUS_RESET = 11 "I_T NEXUS RESET",
        QUERY_ASYNC_EVENT = 12 "QUERY ASYNCHRONOUS EVENT",
    }
}

impl TaskFunction {
    /// True for the functions that name one task by its tag.
    pub const fn names_a_task(self) -> bool {
        matches!(self, Self::ABORT_TASK | Self::TASK_REASSIGN | Self::QUERY_TASK)
    }
}

codes! {
    /// What became of a function.
    pub struct TaskResponse(u8) {
        COMPLETE = 0 "function complete",
        NO_SUCH_TASK = 1 "task does not exist",
        NO_SUCH_LUN = 2 "LUN does not exist",
        STILL_ALLEGIANT = 3 "task still allegiant",
        REASSIGNMENT_NOT_SUPPORTED = 4 "task allegiance reassignment not supported",
        NOT_SUPPORTED = 5 "task management function not supported",
        AUTHORIZATION_FAILED = 6 "function authorization failed",
        SUCCEEDED = 7 "function succeeded",
        REJECTED = 255 "function rejected",
    }
}

bits! {
    /// Byte 1 of a Task Management Function Request; the highest bit is always set.
    pub struct TaskFunctionFlags(u8) {
        fields {
            /// A [`TaskFunction`].
            function / with_function: 0, 7;
        }
        flags {
            /// Always 1.
            is_final / with_final: 7;
        }
    }
}

impl fmt::Display for TaskFunctionFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"F       ", 0x7f)
    }
}

layout! {
    big_endian:
    /// Task Management Function Request.
    pub struct TaskManagementRequest[48] {
        /// Task Management Function Request, mostly immediate.
        0 => operation: Operation,
        /// The function.
        1 => flags: TaskFunctionFlags,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: 0.
        5 => data_segment_length: U24,
        /// The logical unit; means nothing for the resets of a target and for TASK REASSIGN.
        8 => lun: [u8; 8],
        /// Names this request.
        16 => initiator_task_tag: u32,
        /// The task that is meant, or [`RESERVED_TAG`].
        20 => referenced_task_tag: u32,
        /// The request's place in the order of the session.
        24 => cmd_sn: u32,
        /// All statuses before this one have arrived.
        28 => exp_stat_sn: u32,
        /// Of ABORT TASK: the CmdSN of the task that is meant.
        32 => ref_cmd_sn: u32,
        /// Of TASK REASSIGN: the next DataSN or R2TSN that is awaited.
        36 => exp_data_sn: u32,
    }
}
pdu!(TaskManagementRequest TASK_MANAGEMENT_REQUEST);

impl TaskManagementRequest {
    /// An immediate request for a function on the logical unit `lun`, or on the target.
    pub const fn new(
        function: TaskFunction,
        lun: [u8; 8],
        initiator_task_tag: u32,
        numbers: InitiatorNumbers,
    ) -> Self {
        Self {
            operation: Operation::immediate(Self::OPCODE),
            flags: TaskFunctionFlags(0x80).with_function(function.0),
            total_ahs_length: 0,
            data_segment_length: U24::new(0),
            lun,
            initiator_task_tag,
            referenced_task_tag: RESERVED_TAG,
            cmd_sn: numbers.cmd_sn,
            exp_stat_sn: numbers.exp_stat_sn,
            ref_cmd_sn: 0,
            exp_data_sn: 0,
        }
    }

    /// The same, on the task with this tag that came as this CmdSN.
    #[must_use]
    pub const fn with_task(mut self, referenced_task_tag: u32, ref_cmd_sn: u32) -> Self {
        self.referenced_task_tag = referenced_task_tag;
        self.ref_cmd_sn = ref_cmd_sn;
        self
    }

    /// What is to be done.
    pub const fn function(&self) -> TaskFunction {
        TaskFunction(self.flags.function())
    }
}

impl fmt::Display for TaskManagementRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(
            f,
            " {} lun {} itt {} rtt {} cmdsn {} expstatsn {} refcmdsn {}",
            self.function(),
            LunText(self.lun),
            Tag(self.initiator_task_tag),
            Tag(self.referenced_task_tag),
            self.cmd_sn,
            self.exp_stat_sn,
            self.ref_cmd_sn
        )?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}

layout! {
    big_endian:
    /// Task Management Function Response.
    pub struct TaskManagementResponse[48] {
        /// Task Management Function Response.
        0 => operation: Operation,
        /// Always F.
        1 => flags: FinalFlag,
        /// What became of the function.
        2 => response: TaskResponse,
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
    }
}
pdu!(TaskManagementResponse TASK_MANAGEMENT_RESPONSE);

impl TaskManagementResponse {
    /// The answer to the request with this tag.
    pub const fn new(
        initiator_task_tag: u32,
        response: TaskResponse,
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
        }
    }
}

impl fmt::Display for TaskManagementResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(f, " {} itt {}", self.response, Tag(self.initiator_task_tag))?;
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}
