//! Identify Controller, CNS 01h.

use super::Version;

layout! {
    /// The controller: 4096 bytes, fields named as in the specification.
    pub struct IdentifyController[4096] {
        /// PCI vendor ID; 0 over fabrics unless there is one.
        0 => vid: u16,
        /// PCI subsystem vendor ID.
        2 => ssvid: u16,
        /// Serial number, ASCII padded with spaces.
        4 => sn: [u8; 20],
        /// Model number, ASCII padded with spaces.
        24 => mn: [u8; 40],
        /// Firmware revision, ASCII padded with spaces.
        64 => fr: [u8; 8],
        /// Recommended arbitration burst, a power of two.
        72 => rab: u8,
        /// IEEE OUI.
        73 => ieee: [u8; 3],
        /// Bit 0: more ports, bit 1: more controllers, bit 3: ANA reporting.
        76 => cmic: u8,
        /// Most data of one command: 4096 << MDTS bytes, 0 for no limit.
        77 => mdts: u8,
        /// Controller ID, the one Connect returned.
        78 => cntlid: u16,
        /// Version, as in VS.
        80 => ver: Version,
        /// RTD3 resume latency, microseconds.
        84 => rtd3r: u32,
        /// RTD3 entry latency, microseconds.
        88 => rtd3e: u32,
        /// Optional asynchronous events; bit 8 namespace, 11 ANA, 31 discovery log.
        92 => oaes: u32,
        /// Controller attributes; bit 0: 128-bit host ID, bit 6: traffic based keep alive.
        96 => ctratt: u32,
        /// Read recovery levels.
        100 => rrls: u16,
        /// 1 I/O controller, 2 discovery controller, 3 administrative controller.
        111 => cntrltype: u8,
        /// FRU GUID.
        112 => fguid: [u8; 16],
        /// Command retry delays 1 to 3, in 100 ms.
        128 => crdt: [u16; 3],
        /// Optional admin commands.
        256 => oacs: u16,
        /// Abort commands in flight, less one.
        258 => acl: u8,
        /// Asynchronous event requests in flight, less one.
        259 => aerl: u8,
        /// Firmware updates.
        260 => frmw: u8,
        /// Log attributes; bit 1: commands supported and effects, bit 2: extended data.
        261 => lpa: u8,
        /// Error log entries, less one.
        262 => elpe: u8,
        /// Power states, less one.
        263 => npss: u8,
        /// Admin vendor specific command configuration.
        264 => avscc: u8,
        /// Autonomous power state transitions.
        265 => apsta: u8,
        /// Warning temperature, kelvin.
        266 => wctemp: u16,
        /// Critical temperature, kelvin.
        268 => cctemp: u16,
        /// Longest firmware activation, 100 ms.
        270 => mtfa: u16,
        /// Host memory buffer, preferred.
        272 => hmpre: u32,
        /// Host memory buffer, least.
        276 => hmmin: u32,
        /// Total capacity, bytes.
        280 => tnvmcap: u128,
        /// Unallocated capacity, bytes.
        296 => unvmcap: u128,
        /// Replay protected memory block.
        312 => rpmbs: u32,
        /// Extended self-test time, minutes.
        316 => edstt: u16,
        /// Self-test options.
        318 => dsto: u8,
        /// Firmware update granularity, 4 KiB.
        319 => fwug: u8,
        /// Keep alive granularity, 100 ms; 0 means no keep alive.
        320 => kas: u16,
        /// Host controlled thermal management.
        322 => hctma: u16,
        /// Least thermal management temperature, kelvin.
        324 => mntmt: u16,
        /// Most thermal management temperature, kelvin.
        326 => mxtmt: u16,
        /// Sanitize capabilities.
        328 => sanicap: u32,
        /// Host memory buffer descriptor, least size.
        332 => hmminds: u32,
        /// Host memory buffer descriptors, most.
        336 => hmmaxd: u16,
        /// NVM set identifier, most.
        338 => nsetidmax: u16,
        /// Endurance group identifier, most.
        340 => endgidmax: u16,
        /// Longest ANA transition, seconds.
        342 => anatt: u8,
        /// ANA capabilities.
        343 => anacap: u8,
        /// ANA group identifier, most.
        344 => anagrpmax: u32,
        /// ANA groups, count.
        348 => nanagrpid: u32,
        /// Persistent event log, 64 KiB.
        352 => pels: u32,
        /// Domain identifier.
        356 => domain: u16,
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
        /// Format attributes.
        524 => fna: u8,
        /// Volatile write cache; bit 0: present, bits 2:1 = 3: flush of all namespaces works.
        525 => vwc: u8,
        /// Atomic write unit, logical blocks less one.
        526 => awun: u16,
        /// Atomic write unit across a power failure, logical blocks less one.
        528 => awupf: u16,
        /// NVM vendor specific command configuration.
        530 => icsvscc: u8,
        /// Namespace write protection.
        531 => nwpc: u8,
        /// Atomic compare and write unit, logical blocks less one.
        532 => acwu: u16,
        /// Copy descriptor formats.
        534 => cdfs: u16,
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
        /// Fabrics controller attributes; bit 0: static controllers.
        1802 => fcatt: u8,
        /// SGL descriptors of one command, most: 1.
        1803 => msdbd: u8,
        /// Optional fabrics commands; bit 0: Disconnect.
        1804 => ofcs: u16,
        /// Power state 0.
        2048 => psd0: [u8; 32],
    }
}
