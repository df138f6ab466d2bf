//! Log pages: the Get Log Page command and the structures it returns.
//!
//! Spec: NVMe base, "Get Log Page command". LPO and lengths are bytes, multiples of 4.

use core::fmt;

use super::command::{AdminOpcode, Command, SglDescriptor};

mod ana;
mod discovery;
mod health;

pub use ana::{AnaDescriptor, AnaGroup, AnaHeader, AnaLog, AnaState};
pub use discovery::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, DiscoverySubtype, SecurityType, TransportType,
};
pub use health::{ChangedNamespaces, CommandEffects, ErrorEntry, FirmwareSlots, Smart};

codes! {
    /// LID, CDW10 7:0.
    pub struct LogId(u8) {
        SUPPORTED = 0x00 "supported log pages",
        ERROR = 0x01 "error information",
        SMART = 0x02 "SMART / health",
        FIRMWARE_SLOT = 0x03 "firmware slot",
        CHANGED_NAMESPACES = 0x04 "changed namespace list",
        COMMAND_EFFECTS = 0x05 "commands supported and effects",
        SELF_TEST = 0x06 "device self-test",
        TELEMETRY_HOST = 0x07 "telemetry, host initiated",
        TELEMETRY_CONTROLLER = 0x08 "telemetry, controller initiated",
        ENDURANCE_GROUP = 0x09 "endurance group",
        ANA = 0x0c "asymmetric namespace access",
        PERSISTENT_EVENT = 0x0d "persistent event",
        FEATURE_EFFECTS = 0x12 "feature identifiers supported and effects",
        MI_EFFECTS = 0x13 "NVMe-MI commands supported and effects",
        DISCOVERY = 0x70 "discovery",
        RESERVATION_NOTIFICATION = 0x80 "reservation notification",
        SANITIZE_STATUS = 0x81 "sanitize status",
    }
}

/// The fields of a Get Log Page command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLog {
    /// LID.
    pub id: LogId,
    /// LSP, 7 bits, by log.
    pub specific: u8,
    /// RAE: reading does not re-arm the event that announced this log.
    pub retain_event: bool,
    /// NUMD + 1, in bytes: up to 16 GiB, a multiple of 4.
    pub bytes: u64,
    /// LPO, in bytes; must be a multiple of 4.
    pub offset: u64,
}

impl GetLog {
    /// Reads CDW10 to CDW13.
    pub fn from_command(command: &Command) -> Self {
        let (cdw10, cdw11) = (command.cdw(10), command.cdw(11));
        let dwords = u64::from(cdw11 & 0xffff) << 16 | u64::from(cdw10 >> 16);
        Self {
            id: LogId(cdw10 as u8),
            specific: (cdw10 >> 8 & 0x7f) as u8,
            retain_event: cdw10 & 1 << 15 != 0,
            bytes: (dwords + 1) * 4,
            offset: u64::from(command.cdw(13)) << 32 | u64::from(command.cdw(12)),
        }
    }

    /// The command; the SGL asks for as many bytes as a transport descriptor can say.
    pub fn to_command(&self, nsid: u32) -> Command {
        debug_assert!(self.bytes >= 4 && self.bytes.is_multiple_of(4));
        let dwords = (self.bytes / 4).wrapping_sub(1);
        let cdw10 = u32::from(self.id.0)
            | (u32::from(self.specific) & 0x7f) << 8
            | u32::from(self.retain_event) << 15
            | (dwords as u32 & 0xffff) << 16;
        let length = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        Command::new(AdminOpcode::GET_LOG_PAGE.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(length))
            .with_cdw(10, cdw10)
            .with_cdw(11, (dwords >> 16) as u32 & 0xffff)
            .with_cdw(12, self.offset as u32)
            .with_cdw(13, (self.offset >> 32) as u32)
    }
}

impl fmt::Display for GetLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} offset {} bytes {}", self.id, self.offset, self.bytes)?;
        if self.specific != 0 {
            write!(f, " lsp {:#x}", self.specific)?;
        }
        f.write_str(if self.retain_event { " rae" } else { "" })
    }
}

#[cfg(test)]
mod tests;
