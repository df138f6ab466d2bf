//! Login Request and Login Response: how a connection begins. Their data are text keys.
//!
//! A login walks through stages, security negotiation and operational negotiation, to the full
//! feature phase: T asks for the next stage NSG, or agrees to it. Spec: RFC 7143 clauses 11.12 and
//! 11.13.

use core::fmt;

use super::show::{self, Tag};
use super::{Bhs, InitiatorNumbers, Opcode, Operation, TargetNumbers, U24};
use crate::{Expected, ParseError};

codes! {
    /// Where a login stands.
    pub struct Stage(u8) {
        SECURITY = 0 "security negotiation",
        OPERATIONAL = 1 "operational negotiation",
        FULL_FEATURE = 3 "full feature phase",
    }
}

codes! {
    /// What became of a login: class and detail, the class in the high byte.
    pub struct LoginStatus(u16) {
        SUCCESS = 0x0000 "success",
        MOVED_TEMPORARILY = 0x0101 "target moved temporarily",
        MOVED_PERMANENTLY = 0x0102 "target moved permanently",
        INITIATOR_ERROR = 0x0200 "initiator error",
        AUTHENTICATION_FAILURE = 0x0201 "authentication failure",
        AUTHORIZATION_FAILURE = 0x0202 "authorization failure",
        NOT_FOUND = 0x0203 "target not found",
        TARGET_REMOVED = 0x0204 "target removed",
        UNSUPPORTED_VERSION = 0x0205 "unsupported version",
        TOO_MANY_CONNECTIONS = 0x0206 "too many connections",
        MISSING_PARAMETER = 0x0207 "missing parameter",
        CANNOT_INCLUDE = 0x0208 "cannot include in session",
        SESSION_TYPE_NOT_SUPPORTED = 0x0209 "session type not supported",
        NO_SUCH_SESSION = 0x020a "session does not exist",
        INVALID_DURING_LOGIN = 0x020b "invalid request during login",
        TARGET_ERROR = 0x0300 "target error",
        SERVICE_UNAVAILABLE = 0x0301 "service unavailable",
        OUT_OF_RESOURCES = 0x0302 "out of resources",
    }
}

impl LoginStatus {
    /// Status-Class: 0 success, 1 redirection, 2 initiator error, 3 target error.
    pub const fn class(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Status-Detail.
    pub const fn detail(self) -> u8 {
        self.0 as u8
    }

    /// True while the login goes on, or is done; the connection ends with any other status.
    pub const fn is_success(self) -> bool {
        self.class() == 0
    }
}

bits! {
    /// Byte 1 of both PDUs.
    pub struct LoginFlags(u8) {
        fields {
            /// CSG: the current [`Stage`].
            csg / with_csg: 2, 2;
            /// NSG: the next [`Stage`], with T.
            nsg / with_nsg: 0, 2;
        }
        flags {
            /// T: ready for the next stage.
            is_transit / with_transit: 7;
            /// C: the text goes on in the next PDU.
            is_continue / with_continue: 6;
        }
    }
}

impl LoginFlags {
    /// More is to be said in the stage `current`.
    pub const fn stay(current: Stage) -> Self {
        Self(0).with_csg(current.0)
    }

    /// All is said in the stage `current`; `next` may follow.
    pub const fn transit(current: Stage, next: Stage) -> Self {
        Self::stay(current).with_transit(true).with_nsg(next.0)
    }

    /// The current stage.
    pub const fn current(self) -> Stage {
        Stage(self.csg())
    }

    /// The next stage; counts with T.
    pub const fn next(self) -> Stage {
        Stage(self.nsg())
    }

    /// Checks that the stages exist, that T leads forward, and that nothing is to be continued in a
    /// stage that is left.
    pub fn check(self) -> Result<(), ParseError> {
        let error = |field, expected| {
            Err(ParseError::new(field, 1, Expected::Words(expected), self.0.into()))
        };
        if !matches!(self.current(), Stage::SECURITY | Stage::OPERATIONAL) {
            return error("CSG", "security or operational negotiation");
        }
        if self.is_transit() && self.is_continue() {
            return error("C", "C without T");
        }
        let is_later = self.next().name().is_some() && self.next() > self.current();
        if self.is_transit() && !is_later {
            return error("NSG", "a later stage");
        }
        Ok(())
    }
}

impl fmt::Display for LoginFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::letters(f, self.0, b"TC      ", 0x0f)?;
        write!(f, " {}", self.current())?;
        if self.is_transit() {
            write!(f, " to {}", self.next())?;
        }
        Ok(())
    }
}

layout! {
    big_endian:
    /// Login Request: text keys follow.
    pub struct LoginRequest[48] {
        /// Login Request, always immediate.
        0 => operation: Operation,
        /// T, C and the stages.
        1 => flags: LoginFlags,
        /// Version-max: 0.
        2 => version_max: u8,
        /// Version-min: 0.
        3 => version_min: u8,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of text.
        5 => data_segment_length: U24,
        /// The initiator's part of the session's identifier.
        8 => isid: [u8; 6],
        /// The target's part of it; 0 for a new session.
        14 => tsih: u16,
        /// The same in all requests of a login.
        16 => initiator_task_tag: u32,
        /// Names the connection in its session.
        20 => cid: u16,
        /// The number of the session's next command.
        24 => cmd_sn: u32,
        /// All statuses before this one have arrived; of a connection's first request, means
        /// nothing.
        28 => exp_stat_sn: u32,
    }
}
pdu!(LoginRequest LOGIN_REQUEST);

impl LoginRequest {
    /// A request of the connection `cid` of the session `isid` and `tsih`, with
    /// `data_segment_length` bytes of text.
    pub const fn new(
        flags: LoginFlags,
        isid: [u8; 6],
        tsih: u16,
        cid: u16,
        initiator_task_tag: u32,
        data_segment_length: u32,
        numbers: InitiatorNumbers,
    ) -> Self {
        Self {
            operation: Operation::immediate(Self::OPCODE),
            flags,
            version_max: 0,
            version_min: 0,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            isid,
            tsih,
            initiator_task_tag,
            cid,
            cmd_sn: numbers.cmd_sn,
            exp_stat_sn: numbers.exp_stat_sn,
        }
    }

    /// Checks what is wrong whatever was said before: the stages. A version that nobody speaks has
    /// a status of its own.
    pub fn check(&self) -> Result<(), ParseError> {
        self.flags.check()
    }
}

impl fmt::Display for LoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(f, " version {}-{} isid ", self.version_min, self.version_max)?;
        show::hex(f, &self.isid)?;
        write!(
            f,
            " tsih {:#x} cid {} itt {} cmdsn {} expstatsn {}",
            self.tsih,
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
    /// Login Response: text keys follow.
    pub struct LoginResponse[48] {
        /// Login Response.
        0 => operation: Operation,
        /// T, C and the stages.
        1 => flags: LoginFlags,
        /// Version-max: 0.
        2 => version_max: u8,
        /// Version-active: 0.
        3 => version_active: u8,
        /// TotalAHSLength: 0.
        4 => total_ahs_length: u8,
        /// DataSegmentLength: bytes of text.
        5 => data_segment_length: U24,
        /// That of the request.
        8 => isid: [u8; 6],
        /// That of the request, but for the last response, which names the session.
        14 => tsih: u16,
        /// That of the request.
        16 => initiator_task_tag: u32,
        /// The number of this status.
        24 => stat_sn: u32,
        /// The next CmdSN that is awaited.
        28 => exp_cmd_sn: u32,
        /// The last CmdSN that is taken.
        32 => max_cmd_sn: u32,
        /// Status-Class and Status-Detail.
        36 => status: LoginStatus,
    }
}
pdu!(LoginResponse LOGIN_RESPONSE);

impl LoginResponse {
    /// An answer to `request` with `data_segment_length` bytes of text; the login goes on, or is
    /// done.
    pub const fn new(
        request: &LoginRequest,
        flags: LoginFlags,
        tsih: u16,
        data_segment_length: u32,
        numbers: TargetNumbers,
    ) -> Self {
        Self {
            operation: Operation::new(Self::OPCODE),
            flags,
            version_max: 0,
            version_active: 0,
            total_ahs_length: 0,
            data_segment_length: U24::new(data_segment_length),
            isid: request.isid,
            tsih,
            initiator_task_tag: request.initiator_task_tag,
            stat_sn: numbers.stat_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            status: LoginStatus::SUCCESS,
        }
    }

    /// A refusal of `request`, or a redirection, whose address is in the text.
    pub const fn refused(
        request: &LoginRequest,
        status: LoginStatus,
        data_segment_length: u32,
        numbers: TargetNumbers,
    ) -> Self {
        let flags = LoginFlags::stay(request.flags.current());
        let mut refused = Self::new(request, flags, request.tsih, data_segment_length, numbers);
        refused.status = status;
        refused
    }

    /// Checks what is wrong whatever was said before: the stages of a success.
    pub fn check(&self) -> Result<(), ParseError> {
        if self.status.is_success() { self.flags.check() } else { Ok(()) }
    }
}

impl fmt::Display for LoginResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::head(f, self.operation, &self.flags)?;
        write!(f, " {} version {}-{}", self.status, self.version_active, self.version_max)?;
        f.write_str(" isid ")?;
        show::hex(f, &self.isid)?;
        write!(f, " tsih {:#x} itt {}", self.tsih, Tag(self.initiator_task_tag))?;
        show::target_numbers(f, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn)?;
        show::tail(f, self.total_ahs_length, self.data_segment_length)
    }
}
