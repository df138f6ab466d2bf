//! What a controller and its namespace say about themselves, as facts of a disk and limits of
//! commands.
//!
//! Units: bytes, unless the name says blocks. Errors: a text, for a namespace that cannot stand in
//! for a disk. Spec: NVMe base, "Identify Controller"; NVM command set, "Identify Namespace", "I/O
//! Command Set specific Identify Controller".

use block::ByteCount;
use block::limits::TRANSFER_MAX;
use contract::{Cache, DiskFacts};
use wire::nvme::identify::{
    IdentifyController, IdentifyNamespace, IdentifyNvmController, NamespaceDescriptor,
};

/// What commands may ask of this controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Base-2 logarithm of the block size.
    pub(super) block_shift: u8,
    /// Most data of one command: a multiple of 4096.
    pub(super) transfer: u32,
    /// Most data in a capsule.
    pub(super) capsule: u32,
    /// Most bytes of one Write Zeroes; 0 where there is no such command.
    pub(super) zeroes: u64,
    /// Most bytes of one Verify; 0 where there is no such command.
    pub(super) verify: u64,
    /// Most ranges of one Dataset Management; 0 where there is no such command.
    pub(super) ranges: u32,
    /// Most blocks in one range.
    pub(super) range_blocks: u32,
    /// Most blocks in all ranges of one command.
    pub(super) discard_blocks: u64,
    /// Whether there is Compare.
    pub(super) compares: bool,
}

const COMPARE: u16 = 1 << 0;
const DATASET_MANAGEMENT: u16 = 1 << 2;
const WRITE_ZEROES: u16 = 1 << 3;
const VERIFY: u16 = 1 << 7;

/// A size field that counts powers of two of 4 KiB, 0 for no limit.
fn power(field: u8) -> u64 {
    if field == 0 { u64::MAX } else { 4096u64.checked_shl(field.into()).unwrap_or(u64::MAX) }
}

impl Limits {
    /// The limits that a controller states. `nvm` is there only where the controller knows CNS 06h.
    pub(super) fn new(
        controller: &IdentifyController,
        nvm: Option<&IdentifyNvmController>,
        namespace: &IdentifyNamespace,
    ) -> Result<Limits, String> {
        let block_shift = block_shift(namespace)?;
        let transfer = power(controller.mdts).min(TRANSFER_MAX.into()) as u32;
        // NLB has 16 bits. Without CNS 06h, commands without data keep to MDTS, as hosts have long
        // done.
        let most = 65_536u64 << block_shift;
        let without_data = |limit: fn(&IdentifyNvmController) -> u8| match nvm {
            Some(nvm) => power(limit(nvm)).min(most),
            None => u64::from(transfer),
        };
        let has = |bit| controller.oncs & bit != 0;
        let or_all = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        let (dmrl, dmrsl, dmsl) = nvm.map_or((0, 0, 0), |nvm| (nvm.dmrl, nvm.dmrsl, nvm.dmsl));
        let capsule = u64::from(controller.ioccsz) * 16;
        let ranges = if dmrl == 0 { 256 } else { u32::from(dmrl) };
        Ok(Limits {
            block_shift,
            transfer,
            capsule: capsule.saturating_sub(64).min(TRANSFER_MAX.into()) as u32,
            zeroes: if has(WRITE_ZEROES) { without_data(|nvm| nvm.wzsl) } else { 0 },
            verify: if has(VERIFY) { without_data(|nvm| nvm.vsl) } else { 0 },
            ranges: if has(DATASET_MANAGEMENT) { ranges } else { 0 },
            range_blocks: or_all(dmrsl.into()).min(u32::MAX.into()) as u32,
            discard_blocks: or_all(dmsl),
            compares: has(COMPARE),
        })
    }
}

fn block_shift(namespace: &IdentifyNamespace) -> Result<u8, String> {
    // A number without a namespace is answered with zeros.
    if namespace.nsze == 0 {
        return Err("there is none".to_owned());
    }
    let format = namespace.lbaf[usize::from(namespace.flbas & 0xf)];
    if format.ms != 0 {
        return Err(format!("its blocks carry {} bytes of metadata, expected none", format.ms));
    }
    match format.lbads {
        shift @ (9 | 12) => Ok(shift),
        shift => Err(format!("its blocks are of 2^{shift} bytes, expected 512 or 4096")),
    }
}

/// The facts of a namespace as a disk.
pub(super) fn disk_facts(
    controller: &IdentifyController,
    namespace: &IdentifyNamespace,
    limits: &Limits,
) -> Result<DiskFacts, String> {
    if namespace.nsze == 0 {
        return Err("there is no such namespace".to_owned());
    }
    let Some(size) = namespace.nsze.checked_mul(1 << limits.block_shift) else {
        return Err(format!("its size overflows: {} blocks", namespace.nsze));
    };
    let block = 1u32 << limits.block_shift;
    // A write of so many blocks is whole or not there after a power failure; only powers of two are
    // of use as a block size.
    let own = namespace.nsfeat & 1 << 1 != 0;
    let atomic = u32::from(if own { namespace.nawupf } else { controller.awupf }) + 1;
    let atomic = if atomic.is_power_of_two() && namespace.nabspf == 0 { atomic } else { 1 };
    Ok(DiskFacts {
        size: ByteCount(size),
        logical_block: block,
        physical_block: (u64::from(atomic) << limits.block_shift).min(4096).max(block.into())
            as u32,
        // Completed writes may be lost with the target.
        cache: if controller.vwc & 1 != 0 { Cache::Volatile } else { Cache::None },
        read_only: namespace.nsattr & 1 != 0,
        discards: limits.ranges != 0,
        discard_zeroes: limits.ranges != 0 && namespace.dlfeat & 7 == 1,
    })
}

/// Which namespace it is, wherever and whenever it is met: never again another's data under this
/// one's number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) nguid: [u8; 16],
    pub(super) eui64: [u8; 8],
    pub(super) names: Vec<NamespaceDescriptor>,
    pub(super) block_shift: u8,
}

impl Identity {
    /// Whether it says anything that tells it from others, which zeros do not.
    pub(super) fn is_told(&self) -> bool {
        let says = |name: &NamespaceDescriptor| match name {
            NamespaceDescriptor::Eui64(bytes) => *bytes != [0; 8],
            NamespaceDescriptor::Nguid(bytes) | NamespaceDescriptor::Uuid(bytes) => {
                *bytes != [0; 16]
            }
            NamespaceDescriptor::CommandSet(_) => false,
        };
        self.nguid != [0; 16] || self.eui64 != [0; 8] || self.names.iter().any(says)
    }
}

impl core::fmt::Display for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.names.is_empty() {
            let hex =
                |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            return write!(f, "nguid {} eui64 {}", hex(&self.nguid), hex(&self.eui64));
        }
        let names: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::nvme::identify::LbaFormat;

    fn namespace(lbads: u8) -> IdentifyNamespace {
        let mut namespace = IdentifyNamespace { nsze: 2048, ..IdentifyNamespace::default() };
        namespace.lbaf[0] = LbaFormat { ms: 0, lbads };
        namespace
    }

    #[test]
    fn facts_are_what_the_namespace_says() {
        let controller = IdentifyController {
            mdts: 5,
            ioccsz: 516,
            vwc: 1,
            oncs: 0x8d,
            awupf: 7,
            ..Default::default()
        };
        let mut namespace = namespace(9);
        namespace.nsattr = 1;
        namespace.dlfeat = 1;
        let limits = Limits::new(&controller, None, &namespace).unwrap();
        assert_eq!((limits.transfer, limits.capsule, limits.zeroes), (131_072, 8192, 131_072));
        let facts = disk_facts(&controller, &namespace, &limits).unwrap();
        assert_eq!((facts.size.0, facts.logical_block, facts.physical_block), (1 << 20, 512, 4096));
        assert_eq!(facts.cache, Cache::Volatile);
        assert!(facts.read_only && facts.discards && facts.discard_zeroes);
    }

    #[test]
    fn limits_of_commands_without_data_come_from_cns_06() {
        let controller = IdentifyController { oncs: 0x8d, mdts: 1, ..Default::default() };
        let nvm = IdentifyNvmController { wzsl: 4, dmrl: 8, dmrsl: 100, ..Default::default() };
        let limits = Limits::new(&controller, Some(&nvm), &namespace(9)).unwrap();
        assert_eq!((limits.zeroes, limits.verify), (65_536, 65_536 * 512));
        assert_eq!((limits.ranges, limits.range_blocks, limits.discard_blocks), (8, 100, u64::MAX));
        assert_eq!(limits.capsule, 0);
    }

    #[test]
    fn a_namespace_that_cannot_be_a_disk_is_refused_in_words() {
        let controller = IdentifyController::default();
        let error = Limits::new(&controller, None, &namespace(16)).unwrap_err();
        assert!(error.contains("2^16"), "{error}");
        let mut with_metadata = namespace(12);
        with_metadata.lbaf[0].ms = 8;
        assert!(Limits::new(&controller, None, &with_metadata).unwrap_err().contains("metadata"));
    }
}
