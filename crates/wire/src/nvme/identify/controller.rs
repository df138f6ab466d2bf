//! Identify Controller, CNS 01h.

use super::Version;

layout! {
    /// The controller: 4096 bytes, fields named as in the specification. What neither our target
    /// says nor our initiator reads has no row here.
    pub struct IdentifyController[4096] {
        /// Serial number, ASCII padded with spaces.
        4 => sn: [u8; 20],
        /// Model number, ASCII padded with spaces.
        24 => mn: [u8; 40],
        /// Firmware revision, ASCII padded with spaces.
        64 => fr: [u8; 8],
        /// Bit 0: more ports, bit 1: more controllers, bit 3: ANA reporting.
        76 => cmic: u8,
        /// Most data of one command: 4096 << MDTS bytes, 0 for no limit.
        77 => mdts: u8,
        /// Controller ID, the one Connect returned.
        78 => cntlid: u16,
        /// Version, as in VS.
        80 => ver: Version,
        /// RTD3 entry latency, microseconds.
        88 => rtd3e: u32,
        /// Optional asynchronous events; bit 8 namespace, 11 ANA, 31 discovery log.
        92 => oaes: u32,
        /// Controller attributes; bit 0: 128-bit host ID, bit 6: traffic based keep alive.
        96 => ctratt: u32,
        /// 1 I/O controller, 2 discovery controller, 3 administrative controller.
        111 => cntrltype: u8,
        /// Abort commands in flight, less one.
        258 => acl: u8,
        /// Asynchronous event requests in flight, less one.
        259 => aerl: u8,
        /// Firmware; bit 0: slot 1 is read-only, bits 3:1: slots, 1 to 7.
        260 => frmw: u8,
        /// Log attributes; bit 1: commands supported and effects, bit 2: extended data.
        261 => lpa: u8,
        /// Error log entries, less one.
        262 => elpe: u8,
        /// Keep alive granularity, 100 ms; 0 means no keep alive.
        320 => kas: u16,
        /// ANATT: the longest transition of a group, in seconds.
        342 => anatt: u8,
        /// ANA capabilities.
        343 => anacap: u8,
        /// ANAGRPMAX: the largest number of a group.
        344 => anagrpmax: u32,
        /// NANAGRPID: groups at most.
        348 => nanagrpid: u32,
        /// Submission queue entries: required in 3:0, most in 7:4; 0x66.
        512 => sqes: u8,
        /// Completion queue entries: required in 3:0, most in 7:4; 0x44.
        513 => cqes: u8,
        /// Commands in flight on one queue, most; not 0 over fabrics.
        514 => maxcmd: u16,
        /// Largest NSID.
        516 => nn: u32,
        /// Optional NVM commands; b0 compare, b1 write uncorrectable, b2 DSM, b3 write zeroes,
        /// b4 save, b5 reservations, b6 timestamp, b7 verify, b8 copy.
        520 => oncs: u16,
        /// Fused operations; bit 0: compare and write.
        522 => fuses: u16,
        /// Volatile write cache; bit 0: present, bits 2:1 = 3: flush of all namespaces works.
        525 => vwc: u8,
        /// Atomic write unit across a power failure, logical blocks less one.
        528 => awupf: u16,
        /// Optional Copy formats; bit 0: source ranges of format 0.
        534 => ocfs: u16,
        /// SGL support; bits 1:0 = 1: byte aligned, bit 20: offset in capsule.
        536 => sgls: u32,
        /// Namespaces attached, most; 0 for NN.
        540 => mnan: u32,
        /// Subsystem NQN, padded with NUL.
        768 => subnqn: [u8; 256],
        /// I/O command capsule, 16 bytes each: 4 + in-capsule data / 16.
        1792 => ioccsz: u32,
        /// I/O response capsule, 16 bytes each: 1.
        1796 => iorcsz: u32,
        /// In-capsule data offset, 16 bytes each: 0.
        1800 => icdoff: u16,
        /// SGL descriptors of one command, most: 1.
        1803 => msdbd: u8,
    }
}
