//! What an Asynchronous Event Request returns: DW0 of its completion.
//!
//! Bits 2:0 type, 15:8 information, 23:16 the log page to read. Spec: NVMe base, "Asynchronous
//! Event Request command".

use super::log::LogId;

codes! {
    /// The kind of event.
    pub struct EventType(u8) {
        ERROR = 0 "error",
        SMART = 1 "health",
        NOTICE = 2 "notice",
        IO_COMMAND_SET = 6 "I/O command specific",
        VENDOR = 7 "vendor specific",
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Type.
    pub kind: EventType,
    /// Information, by type.
    pub info: u8,
    /// The log that tells more; reading it with RAE 0 re-arms the event.
    pub log: LogId,
}

impl AsyncEvent {
    /// Namespaces were added, removed or changed.
    pub const NAMESPACE_CHANGED: Self = Self::notice(0x00, LogId::CHANGED_NAMESPACES);
    /// The state of a group of namespaces changed.
    pub const ACCESS_CHANGED: Self = Self::notice(0x03, LogId::ANA);
    /// The discovery log changed.
    pub const DISCOVERY_CHANGED: Self = Self::notice(0xf0, LogId::DISCOVERY);

    /// A reservation notification waits.
    pub const RESERVATION_NOTIFICATION: Self =
        Self { kind: EventType::IO_COMMAND_SET, info: 0, log: LogId::RESERVATION_NOTIFICATION };

    /// A notice.
    pub const fn notice(info: u8, log: LogId) -> Self {
        Self { kind: EventType::NOTICE, info, log }
    }

    /// DW0 of the completion.
    pub const fn to_result(self) -> u32 {
        (self.kind.0 as u32 & 7) | (self.info as u32) << 8 | (self.log.0 as u32) << 16
    }

    /// From DW0 of the completion.
    pub const fn from_result(result: u32) -> Self {
        Self {
            kind: EventType(result as u8 & 7),
            info: (result >> 8) as u8,
            log: LogId((result >> 16) as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux drivers/nvme/target: `(type | info << 8 | log page << 16)`.
    #[test]
    fn results_as_linux_computes_them() {
        for (event, result) in [
            (AsyncEvent::NAMESPACE_CHANGED, 0x04_00_02),
            (AsyncEvent::ACCESS_CHANGED, 0x0c_03_02),
            (AsyncEvent::DISCOVERY_CHANGED, 0x70_f0_02),
            (AsyncEvent::RESERVATION_NOTIFICATION, 0x80_00_06),
        ] {
            assert_eq!(event.to_result(), result);
            assert_eq!(AsyncEvent::from_result(result), event);
        }
    }
}
