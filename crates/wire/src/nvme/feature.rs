//! Features: what Get Features and Set Features read and change.
//!
//! The values are CDW11 of Set Features and DW0 of the completion of Get Features. Spec: NVMe base,
//! "Feature Values".

use super::command::Command;

codes! {
    /// FID, CDW10 7:0.
    pub struct FeatureId(u8) {
        ARBITRATION = 0x01 "arbitration",
        POWER_MANAGEMENT = 0x02 "power management",
        LBA_RANGE = 0x03 "LBA range type",
        TEMPERATURE_THRESHOLD = 0x04 "temperature threshold",
        ERROR_RECOVERY = 0x05 "error recovery",
        VOLATILE_WRITE_CACHE = 0x06 "volatile write cache",
        NUMBER_OF_QUEUES = 0x07 "number of queues",
        INTERRUPT_COALESCING = 0x08 "interrupt coalescing",
        INTERRUPT_VECTOR = 0x09 "interrupt vector configuration",
        WRITE_ATOMICITY = 0x0a "write atomicity normal",
        ASYNC_EVENT_CONFIGURATION = 0x0b "asynchronous event configuration",
        AUTONOMOUS_POWER = 0x0c "autonomous power state transition",
        HOST_MEMORY_BUFFER = 0x0d "host memory buffer",
        TIMESTAMP = 0x0e "timestamp",
        KEEP_ALIVE_TIMER = 0x0f "keep alive timer",
        THERMAL_MANAGEMENT = 0x10 "host controlled thermal management",
        HOST_BEHAVIOR = 0x16 "host behavior support",
        IO_COMMAND_SET_PROFILE = 0x19 "I/O command set profile",
        SOFTWARE_PROGRESS = 0x80 "software progress marker",
        HOST_IDENTIFIER = 0x81 "host identifier",
        RESERVATION_MASK = 0x82 "reservation notification mask",
        RESERVATION_PERSISTENCE = 0x83 "reservation persistence",
        WRITE_PROTECT = 0x84 "namespace write protection",
    }
}

impl FeatureId {
    /// FID of a Get Features or Set Features command.
    pub const fn of(command: &Command) -> Self {
        Self(command.0[40])
    }

    /// SEL of a Get Features command, CDW10 10:8.
    pub const fn select_of(command: &Command) -> Select {
        Select(command.0[41] & 7)
    }

    /// SV of a Set Features command, CDW10 bit 31: keep the value across resets.
    pub const fn save_of(command: &Command) -> bool {
        command.0[43] & 0x80 != 0
    }
}

codes! {
    /// SEL: which value of a feature is asked for.
    pub struct Select(u8) {
        CURRENT = 0 "current",
        DEFAULT = 1 "default",
        SAVED = 2 "saved",
        CAPABILITIES = 3 "supported capabilities",
    }
}

bits! {
    /// DW0 of Get Features with SEL "supported capabilities".
    pub struct FeatureCapabilities(u32) {
        fields {}
        flags {
            /// The value can be saved.
            saveable / with_saveable: 0;
            /// The value is per namespace.
            namespace_specific / with_namespace_specific: 1;
            /// The value can be changed.
            changeable / with_changeable: 2;
        }
    }
}

bits! {
    /// Number of queues: asked for in Set Features, granted in the completion; both less one.
    pub struct NumberOfQueues(u32) {
        fields {
            /// NSQR, NSQA: submission queues, less one.
            submission / with_submission: 0, 16;
            /// NCQR, NCQA: completion queues, less one.
            completion / with_completion: 16, 16;
        }
        flags {}
    }
}

bits! {
    /// Asynchronous event configuration: events the host wants.
    pub struct AsyncEventMask(u32) {
        fields {
            /// SMART / health critical warnings, as in the log's first byte.
            smart / with_smart: 0, 8;
        }
        flags {
            /// Namespace attribute changed.
            namespace_changed / with_namespace_changed: 8;
            /// Asymmetric namespace access changed.
            access_changed / with_access_changed: 11;
            /// Discovery log changed.
            discovery_changed / with_discovery_changed: 31;
        }
    }
}

bits! {
    /// Volatile write cache.
    pub struct VolatileWriteCache(u32) {
        fields {}
        flags {
            /// WCE: the cache is on.
            enabled / with_enabled: 0;
        }
    }
}

bits! {
    /// Error recovery.
    pub struct ErrorRecovery(u32) {
        fields {
        }
        flags {
            /// DULBE: reading a deallocated block is an error.
            deallocated_error / with_deallocated_error: 16;
        }
    }
}

layout! {
    /// Timestamp, 8 bytes of data.
    pub struct Timestamp[8] {
        /// Milliseconds since 1970-01-01 UTC, 48 bits: low 32.
        0 => low: u32,
        /// The same: high 16.
        4 => high: u16,
        /// Bits 3:1: 1 if set by the host; bit 0: the clock may have stopped.
        6 => attributes: u8,
    }
}

impl Timestamp {
    /// Milliseconds since 1970-01-01 UTC.
    pub const fn milliseconds(&self) -> u64 {
        self.low as u64 | (self.high as u64) << 32
    }

    /// A time set by the host; bits above 48 are cut.
    pub const fn new(milliseconds: u64, set_by_host: bool) -> Self {
        Self {
            low: milliseconds as u32,
            high: (milliseconds >> 32) as u16,
            attributes: (set_by_host as u8) << 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_where_the_specification_has_them() {
        let queues = NumberOfQueues::default().with_submission(3).with_completion(7);
        assert_eq!(queues.0, 0x0007_0003);
        assert_eq!((queues.submission(), queues.completion()), (3, 7));
        let mask =
            AsyncEventMask::default().with_namespace_changed(true).with_discovery_changed(true);
        assert_eq!(mask.0, 1 << 8 | 1 << 31);
        assert!(VolatileWriteCache(1).enabled());
        assert!(ErrorRecovery(0x1_0009).deallocated_error());
        assert_eq!(FeatureCapabilities::default().with_changeable(true).0, 0b100);
    }

    #[test]
    fn timestamp_both_ways() {
        let stamp = Timestamp::new(0x0102_0304_0506, true);
        assert_eq!(stamp.emit(), [6, 5, 4, 3, 2, 1, 2, 0]);
        assert_eq!(Timestamp::parse(&stamp.emit()), Ok(stamp));
        assert_eq!(stamp.milliseconds(), 0x0102_0304_0506);
    }
}
