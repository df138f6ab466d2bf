//! Additional sense codes with their qualifiers: ASC in the high byte, ASCQ in the low one.
//!
//! Those that our targets give, that initiators look at, or that a trace is likely to show. Spec:
//! SPC-4, "ASC and ASCQ assignments".

use core::fmt;

/// ASC and ASCQ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AdditionalSense(pub u16);

names! {
    AdditionalSense by |code| code.0;
    NONE = 0x0000 "no additional sense information",
    OPERATION_IN_PROGRESS = 0x0016 "operation in progress",
    NOT_READY_CAUSE_NOT_REPORTABLE = 0x0400 "logical unit not ready, cause not reportable",
    BECOMING_READY = 0x0401 "logical unit is in process of becoming ready",
    INITIALIZING_COMMAND_REQUIRED = 0x0402 "logical unit not ready, initializing command required",
    ALUA_TRANSITION = 0x040a "logical unit not accessible, asymmetric access state transition",
    ALUA_STANDBY = 0x040b "logical unit not accessible, target port in standby state",
    ALUA_UNAVAILABLE = 0x040c "logical unit not accessible, target port in unavailable state",
    COMMUNICATION_FAILURE = 0x0800 "logical unit communication failure",
    COMMUNICATION_TIMEOUT = 0x0801 "logical unit communication time-out",
    UNREACHABLE_COPY_TARGET = 0x0804 "unreachable copy target",
    WRITE_ERROR = 0x0c00 "write error",
    UNEXPECTED_UNSOLICITED_DATA = 0x0c0c "write error - unexpected unsolicited data",
    NOT_ENOUGH_UNSOLICITED_DATA = 0x0c0d "write error - not enough unsolicited data",
    THIRD_PARTY_DEVICE_FAILURE = 0x0d01 "third party device failure",
    COPY_TARGET_NOT_REACHABLE = 0x0d02 "copy target device not reachable",
    INCORRECT_COPY_TARGET_DEVICE_TYPE = 0x0d03 "incorrect copy target device type",
    INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT = 0x0e03 "invalid field in command information unit",
    UNRECOVERED_READ_ERROR = 0x1100 "unrecovered read error",
    PARAMETER_LIST_LENGTH_ERROR = 0x1a00 "parameter list length error",
    MISCOMPARE_DURING_VERIFY = 0x1d00 "miscompare during verify operation",
    INVALID_COMMAND_OPERATION_CODE = 0x2000 "invalid command operation code",
    LBA_OUT_OF_RANGE = 0x2100 "logical block address out of range",
    INVALID_FIELD_IN_CDB = 0x2400 "invalid field in CDB",
    LOGICAL_UNIT_NOT_SUPPORTED = 0x2500 "logical unit not supported",
    INVALID_FIELD_IN_PARAMETER_LIST = 0x2600 "invalid field in parameter list",
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x2604 "invalid release of persistent reservation",
    TOO_MANY_TARGET_DESCRIPTORS = 0x2606 "too many target descriptors",
    UNSUPPORTED_TARGET_DESCRIPTOR = 0x2607 "unsupported target descriptor type code",
    TOO_MANY_SEGMENT_DESCRIPTORS = 0x2608 "too many segment descriptors",
    UNSUPPORTED_SEGMENT_DESCRIPTOR = 0x2609 "unsupported segment descriptor type code",
    UNEXPECTED_INEXACT_SEGMENT = 0x260a "unexpected inexact segment",
    INLINE_DATA_LENGTH_EXCEEDED = 0x260b "inline data length exceeded",
    WRITE_PROTECTED = 0x2700 "write protected",
    SOFTWARE_WRITE_PROTECTED = 0x2702 "logical unit software write protected",
    SPACE_ALLOCATION_FAILED = 0x2707 "space allocation failed write protect",
    POWER_ON_RESET_OR_BUS_DEVICE_RESET = 0x2900 "power on, reset, or bus device reset occurred",
    POWER_ON = 0x2901 "power on occurred",
    BUS_RESET = 0x2902 "SCSI bus reset occurred",
    BUS_DEVICE_RESET = 0x2903 "bus device reset function occurred",
    NEXUS_LOSS = 0x2907 "I_T nexus loss occurred",
    MODE_PARAMETERS_CHANGED = 0x2a01 "mode parameters changed",
    RESERVATIONS_PREEMPTED = 0x2a03 "reservations preempted",
    RESERVATIONS_RELEASED = 0x2a04 "reservations released",
    REGISTRATIONS_PREEMPTED = 0x2a05 "registrations preempted",
    ASYMMETRIC_ACCESS_CHANGED = 0x2a06 "asymmetric access state changed",
    CAPACITY_DATA_CHANGED = 0x2a09 "capacity data has changed",
    COMMAND_SEQUENCE_ERROR = 0x2c00 "command sequence error",
    COMMANDS_CLEARED_BY_ANOTHER_INITIATOR = 0x2f00 "commands cleared by another initiator",
    THIN_PROVISIONING_SOFT_THRESHOLD = 0x3807 "thin provisioning soft threshold reached",
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x3900 "saving parameters not supported",
    MEDIUM_NOT_PRESENT = 0x3a00 "medium not present",
    INQUIRY_DATA_CHANGED = 0x3f03 "INQUIRY data has changed",
    REPORTED_LUNS_DATA_CHANGED = 0x3f0e "reported LUNs data has changed",
    INTERNAL_TARGET_FAILURE = 0x4400 "internal target failure",
    PROTOCOL_SERVICE_CRC_ERROR = 0x4705 "protocol service CRC error",
    INVALID_TARGET_PORT_TRANSFER_TAG = 0x4b01 "invalid target port transfer tag received",
    TOO_MUCH_WRITE_DATA = 0x4b02 "too much write data",
    DATA_OFFSET_ERROR = 0x4b05 "data offset error",
    OVERLAPPED_COMMANDS = 0x4e00 "overlapped commands attempted",
    INSUFFICIENT_RESOURCES = 0x5503 "insufficient resources",
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x5504 "insufficient registration resources",
    SET_TARGET_PORT_GROUPS_FAILED = 0x670a "set target port groups command failed",
}

impl AdditionalSense {
    /// ASC.
    #[inline]
    pub const fn asc(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// ASCQ.
    #[inline]
    pub const fn ascq(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Display for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:02x}/{:02x})", self.asc(), self.ascq()),
            None => write!(f, "code {:02x}/{:02x}", self.asc(), self.ascq()),
        }
    }
}

impl fmt::Debug for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdditionalSense({self})")
    }
}
