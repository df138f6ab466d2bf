//! Identify Namespace: CNS 00h, 05h, 06h and 08h.

layout! {
    /// One LBA format.
    pub struct LbaFormat[4] {
        /// Metadata bytes of a block.
        0 => ms: u16,
        /// Data bytes of a block: 1 << LBADS.
        2 => lbads: u8,
    }
}

layout! {
    /// The namespace as the NVM command set sees it, CNS 00h: 4096 bytes.
    pub struct IdentifyNamespace[4096] {
        /// Size, logical blocks.
        0 => nsze: u64,
        /// Capacity, logical blocks.
        8 => ncap: u64,
        /// Used, logical blocks.
        16 => nuse: u64,
        /// Features; bit 0: thin, bit 4: the NPWG..NOWS hints are set.
        24 => nsfeat: u8,
        /// Format in use, bits 3:0.
        26 => flbas: u8,
        /// Bit 0: may be attached to more than one controller.
        30 => nmic: u8,
        /// Reservation capabilities.
        31 => rescap: u8,
        /// Format progress.
        32 => fpi: u8,
        /// Deallocated blocks read as: bits 2:0 = 1 zeroes; bit 3: Write Zeroes may deallocate.
        33 => dlfeat: u8,
        /// The same across a power failure.
        36 => nawupf: u16,
        /// Atomic boundary across a power failure.
        44 => nabspf: u16,
        /// Preferred write granularity, logical blocks less one.
        64 => npwg: u16,
        /// Preferred write alignment, logical blocks less one.
        66 => npwa: u16,
        /// Preferred deallocate granularity, logical blocks less one.
        68 => npdg: u16,
        /// Preferred deallocate alignment, logical blocks less one.
        70 => npda: u16,
        /// Copy: logical blocks of one source range, most.
        74 => mssrl: u16,
        /// Copy: logical blocks of all source ranges, most.
        76 => mcl: u32,
        /// Copy: source ranges of one command, most, less one.
        80 => msrc: u8,
        /// ANA group.
        92 => anagrpid: u32,
        /// Bit 0: write protected.
        99 => nsattr: u8,
        /// NVM set.
        100 => nvmsetid: u16,
        /// Endurance group.
        102 => endgid: u16,
        /// NGUID, big-endian bytes, zeros for none.
        104 => nguid: [u8; 16],
        /// EUI-64, big-endian bytes, zeros for none.
        120 => eui64: [u8; 8],
        /// The formats.
        128 => lbaf: [LbaFormat; 16],
    }
}

impl IdentifyNamespace {
    /// Bytes of a logical block in the format in use; `None` for a shift no namespace has.
    pub fn block_bytes(&self) -> Option<u32> {
        let format = self.lbaf[usize::from(self.flbas & 0xf)];
        (9..32).contains(&format.lbads).then(|| 1 << format.lbads)
    }
}

layout! {
    /// The namespace without its command set, CNS 08h: 4096 bytes.
    pub struct IdentifyNamespaceIndependent[4096] {
        /// Features.
        0 => nsfeat: u8,
        /// Bit 0: may be attached to more than one controller.
        1 => nmic: u8,
        /// Reservation capabilities.
        2 => rescap: u8,
        /// Format progress.
        3 => fpi: u8,
        /// ANA group.
        4 => anagrpid: u32,
        /// Bit 0: write protected.
        8 => nsattr: u8,
        /// NVM set.
        10 => nvmsetid: u16,
        /// Endurance group.
        12 => endgid: u16,
        /// NSTAT; bit 0 NRDY: ready. Linux ignores a namespace that is not.
        14 => nstat: u8,
    }
}

layout! {
    /// The controller in the NVM command set, CNS 06h with CSI 0: 4096 bytes. Sizes are powers of
    /// two of 4 KiB, 0 for "no other limit than MDTS".
    pub struct IdentifyNvmController[4096] {
        /// Verify size limit.
        0 => vsl: u8,
        /// Write Zeroes size limit.
        1 => wzsl: u8,
        /// Dataset Management ranges limit, 0 for none.
        3 => dmrl: u8,
        /// Dataset Management blocks in one range, 0 for no limit.
        4 => dmrsl: u32,
        /// Dataset Management blocks in all ranges, 0 for no limit.
        8 => dmsl: u64,
    }
}
