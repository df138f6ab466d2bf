//! The status of a completion: what became of a command.
//!
//! A [`Status`] is the status word without its phase bit: SC 7:0, SCT 10:8, CRD 12:11, M 13,
//! DNR 14. Constants have neither DNR nor M; add [`Status::with_dnr`] where a retry is useless, and
//! match on [`Status::code`]. Spec: NVMe base, "Status Field"; command set and fabrics values.

use core::fmt;

use crate::field::Field;

/// Status code type, status code and retry hints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u16);

names! {
    Status by |status| status.code();
    SUCCESS = 0x000 "successful completion",
    INVALID_OPCODE = 0x001 "invalid command opcode",
    INVALID_FIELD = 0x002 "invalid field in command",
    COMMAND_ID_CONFLICT = 0x003 "command ID conflict",
    DATA_TRANSFER_ERROR = 0x004 "data transfer error",
    POWER_LOSS = 0x005 "aborted, power loss notification",
    INTERNAL_ERROR = 0x006 "internal error",
    ABORT_REQUESTED = 0x007 "command abort requested",
    SQ_DELETED = 0x008 "aborted, submission queue deleted",
    FUSED_FAILED = 0x009 "aborted, failed fused command",
    FUSED_MISSING = 0x00a "aborted, missing fused command",
    INVALID_NAMESPACE = 0x00b "invalid namespace or format",
    COMMAND_SEQUENCE_ERROR = 0x00c "command sequence error",
    INVALID_SGL_SEGMENT = 0x00d "invalid SGL segment descriptor",
    INVALID_SGL_COUNT = 0x00e "invalid number of SGL descriptors",
    INVALID_SGL_LENGTH = 0x00f "data SGL length invalid",
    INVALID_METADATA_SGL_LENGTH = 0x010 "metadata SGL length invalid",
    INVALID_SGL_TYPE = 0x011 "SGL descriptor type invalid",
    INVALID_PRP_OFFSET = 0x013 "PRP offset invalid",
    ATOMIC_WRITE_UNIT_EXCEEDED = 0x014 "atomic write unit exceeded",
    OPERATION_DENIED = 0x015 "operation denied",
    INVALID_SGL_OFFSET = 0x016 "SGL offset invalid",
    HOST_ID_INCONSISTENT = 0x018 "host identifier inconsistent format",
    KEEP_ALIVE_EXPIRED = 0x019 "keep alive timer expired",
    INVALID_KEEP_ALIVE = 0x01a "keep alive timeout invalid",
    PREEMPTED = 0x01b "aborted, preempt and abort",
    SANITIZE_FAILED = 0x01c "sanitize failed",
    SANITIZE_IN_PROGRESS = 0x01d "sanitize in progress",
    INVALID_SGL_GRANULARITY = 0x01e "SGL data block granularity invalid",
    UNSUPPORTED_COMMAND_IN_CMB = 0x01f "command not supported for queue in CMB",
    NAMESPACE_WRITE_PROTECTED = 0x020 "namespace is write protected",
    COMMAND_INTERRUPTED = 0x021 "command interrupted",
    TRANSIENT_TRANSPORT_ERROR = 0x022 "transient transport error",
    COMMAND_PROHIBITED = 0x023 "command prohibited by lockdown",
    ADMIN_MEDIA_NOT_READY = 0x024 "admin command media not ready",
    LBA_OUT_OF_RANGE = 0x080 "LBA out of range",
    CAPACITY_EXCEEDED = 0x081 "capacity exceeded",
    NAMESPACE_NOT_READY = 0x082 "namespace not ready",
    RESERVATION_CONFLICT = 0x083 "reservation conflict",
    FORMAT_IN_PROGRESS = 0x084 "format in progress",
    INVALID_COMPLETION_QUEUE = 0x100 "completion queue invalid",
    INVALID_QUEUE_ID = 0x101 "invalid queue identifier",
    INVALID_QUEUE_SIZE = 0x102 "invalid queue size",
    ABORT_LIMIT_EXCEEDED = 0x103 "abort command limit exceeded",
    ASYNC_EVENT_LIMIT_EXCEEDED = 0x105 "asynchronous event request limit exceeded",
    INVALID_FIRMWARE_SLOT = 0x106 "invalid firmware slot",
    INVALID_LOG_PAGE = 0x109 "invalid log page",
    INVALID_FORMAT = 0x10a "invalid format",
    FEATURE_NOT_SAVEABLE = 0x10d "feature identifier not saveable",
    FEATURE_NOT_CHANGEABLE = 0x10e "feature not changeable",
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f "feature not namespace specific",
    OVERLAPPING_RANGE = 0x114 "overlapping range",
    NAMESPACE_ATTACHED = 0x118 "namespace already attached",
    NAMESPACE_NOT_ATTACHED = 0x11a "namespace not attached",
    INVALID_CONTROLLER_LIST = 0x11c "controller list invalid",
    INVALID_CONTROLLER_ID = 0x11f "invalid controller identifier",
    CONNECT_INCOMPATIBLE_FORMAT = 0x180 "connect incompatible format",
    CONNECT_BUSY = 0x181 "connect controller busy",
    CONNECT_INVALID_PARAMETERS = 0x182 "connect invalid parameters",
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x183 "command size limit exceeded, or connect restart discovery",
    CONNECT_INVALID_HOST = 0x184 "connect invalid host",
    INVALID_QUEUE_TYPE = 0x185 "invalid queue type",
    DISCOVER_RESTART = 0x190 "discover restart",
    AUTHENTICATION_REQUIRED = 0x191 "authentication required",
    WRITE_FAULT = 0x280 "write fault",
    UNRECOVERED_READ_ERROR = 0x281 "unrecovered read error",
    GUARD_CHECK_FAILED = 0x282 "end-to-end guard check error",
    APPLICATION_TAG_CHECK_FAILED = 0x283 "end-to-end application tag check error",
    REFERENCE_TAG_CHECK_FAILED = 0x284 "end-to-end reference tag check error",
    COMPARE_FAILURE = 0x285 "compare failure",
    ACCESS_DENIED = 0x286 "access denied",
    DEALLOCATED_BLOCK = 0x287 "deallocated or unwritten logical block",
    INTERNAL_PATH_ERROR = 0x300 "internal path error",
    ANA_PERSISTENT_LOSS = 0x301 "asymmetric access persistent loss",
    ANA_INACCESSIBLE = 0x302 "asymmetric access inaccessible",
    ANA_TRANSITION = 0x303 "asymmetric access transition",
    CONTROLLER_PATHING_ERROR = 0x360 "controller pathing error",
    HOST_PATHING_ERROR = 0x370 "host pathing error",
    ABORTED_BY_HOST = 0x371 "command aborted by host",
}

impl Status {
    /// What [`Self::COMMAND_SIZE_LIMIT_EXCEEDED`] of the NVM command set is to Connect: one number
    /// has both meanings, and only the command tells which.
    pub const CONNECT_RESTART_DISCOVERY: Self = Self::COMMAND_SIZE_LIMIT_EXCEEDED;

    const CODE: u16 = 0x7ff;
    const MORE: u16 = 1 << 13;
    const DNR: u16 = 1 << 14;

    /// From the status word of a completion queue entry, phase bit dropped.
    #[inline]
    pub const fn from_word(word: u16) -> Self {
        Self(word >> 1)
    }

    /// As the status word of a completion queue entry, phase bit 0 as Fabrics demand.
    #[inline]
    pub const fn to_word(self) -> u16 {
        self.0 << 1
    }

    /// SCT and SC as one number, 0x000 to 0x7ff: what the constants hold.
    #[inline]
    pub const fn code(self) -> u16 {
        self.0 & Self::CODE
    }

    /// The same status without DNR, M and CRD, fit for comparison with the constants.
    #[inline]
    #[must_use]
    pub const fn without_hints(self) -> Self {
        Self(self.code())
    }

    /// CRD, command retry delay: which of the controller's CRDTs to wait, 0 for none.
    #[inline]
    pub const fn crd(self) -> u8 {
        (self.0 >> 11 & 3) as u8
    }

    /// M: the error information log says more.
    #[inline]
    pub const fn more(self) -> bool {
        self.0 & Self::MORE != 0
    }

    /// DNR: the same command would fail again.
    #[inline]
    pub const fn dnr(self) -> bool {
        self.0 & Self::DNR != 0
    }

    /// True for success.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.code() == 0
    }

    /// True if the medium lost data: a write fault, an unrecovered read or a failed check of
    /// protection information.
    pub const fn is_media_error(self) -> bool {
        matches!(self.code(), 0x280..=0x284)
    }

    /// The same status with DNR.
    #[inline]
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | Self::DNR)
    }
}

/// As its word stands in a completion.
impl Field for Status {
    const SIZE: usize = 2;
    #[inline(always)]
    fn get(bytes: &[u8], at: usize) -> Self {
        Self::from_word(u16::get(bytes, at))
    }
    #[inline(always)]
    fn put(&self, bytes: &mut [u8], at: usize) {
        self.to_word().put(bytes, at);
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:#05x})", self.code())?,
            None => write!(f, "status {:#05x}", self.code())?,
        }
        if self.crd() != 0 {
            write!(f, " crd {}", self.crd())?;
        }
        if self.more() {
            f.write_str(" more")?;
        }
        if self.dnr() {
            f.write_str(" dnr")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_both_ways_and_hints() {
        // SCT 1, SC 0x82, DNR: 0x182 << 1 | 1 << 15.
        let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        assert_eq!(status.to_word(), 0x8304);
        assert_eq!(Status::from_word(0x8305), status, "the phase bit is dropped");
        assert_eq!(status.without_hints(), Status(0x182));
        let hinted = Status::from_word(0x82 << 1 | 2 << 12 | 1 << 14);
        assert_eq!(hinted.without_hints(), Status::NAMESPACE_NOT_READY);
        assert_eq!((hinted.crd(), hinted.more(), hinted.dnr()), (2, true, false));
        assert!(Status::SUCCESS.is_success() && !hinted.is_success());
        for word in 0..=u16::MAX {
            assert_eq!(Status::from_word(word).to_word(), word & !1);
        }
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!(Status::AUTHENTICATION_REQUIRED.to_string(), "authentication required (0x191)");
        assert_eq!(Status(0x7c1 | 1 << 13).to_string(), "status 0x7c1 more");
        assert_eq!(format!("{:?}", Status::SUCCESS), "Status(successful completion (0x000))");
    }
}
