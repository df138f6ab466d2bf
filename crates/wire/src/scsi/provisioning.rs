//! UNMAP and GET LBA STATUS: which blocks are kept.
//!
//! ```text
//!  UNMAP           0 length (16) | 2 descriptor length (16) | 8 descriptors: LBA (64), blocks (32)
//!  GET LBA STATUS  0 length (32)                            | 8 descriptors: ..., 12 status
//! ```
//! Units: logical blocks. Errors: an input that ends before what its lengths say. Spec: SBC-3,
//! "UNMAP parameter list", "GET LBA STATUS parameter data".

use super::{be16, be32, put};
use crate::{Expected, ParseError};

layout! { big_endian:
    /// UNMAP block descriptor.
    pub struct UnmapRange[16] {
        /// UNMAP LOGICAL BLOCK ADDRESS.
        0 => lba: u64,
        /// NUMBER OF LOGICAL BLOCKS.
        8 => blocks: u32,
    }
}

/// The parameter list of UNMAP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnmapList(pub Vec<UnmapRange>);

impl UnmapList {
    /// Bytes in front of the descriptors.
    pub const HEADER: usize = 8;
    /// Bytes of a descriptor.
    pub const DESCRIPTOR: usize = UnmapRange::SIZE;

    /// The list as bytes. Panics if it is longer than its length can say.
    pub fn emit(&self) -> Vec<u8> {
        let length = u16::try_from(self.0.len() * Self::DESCRIPTOR).expect("at most 4095 ranges");
        let mut bytes = vec![0; Self::HEADER];
        put(&mut bytes, 0, (length + 6).to_be_bytes());
        put(&mut bytes, 2, length.to_be_bytes());
        bytes.extend(self.0.iter().flat_map(UnmapRange::emit));
        bytes
    }

    /// Reads a list. UNMAP DATA LENGTH is not looked at, since the descriptors' length says it all.
    /// A descriptor that is not whole counts for nothing, as the standard has it.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::HEADER {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        }
        let length = usize::from(be16(bytes, 2));
        let Some(descriptors) = bytes[Self::HEADER..].get(..length) else {
            let expected = Expected::AtMost((bytes.len() - Self::HEADER) as u64);
            let field = "UNMAP BLOCK DESCRIPTOR DATA LENGTH";
            return Err(ParseError::new(field, 2, expected, length as u64));
        };
        let chunks = descriptors.as_chunks::<{ Self::DESCRIPTOR }>().0;
        chunks.iter().map(|chunk| UnmapRange::parse(chunk)).collect::<Result<_, _>>().map(Self)
    }
}

codes! {
    /// PROVISIONING STATUS of blocks.
    pub struct ProvisioningStatus(u8) {
        MAPPED = 0 "mapped, or unknown",
        DEALLOCATED = 1 "deallocated",
        ANCHORED = 2 "anchored",
    }
}

layout! { big_endian:
    /// LBA status descriptor.
    pub struct LbaStatus[16] {
        /// LBA STATUS LOGICAL BLOCK ADDRESS.
        0 => lba: u64,
        /// NUMBER OF LOGICAL BLOCKS.
        8 => blocks: u32,
        /// PROVISIONING STATUS, bits 3:0.
        12 => status: ProvisioningStatus,
    }
}

/// The parameter data of GET LBA STATUS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LbaStatusList(pub Vec<LbaStatus>);

impl LbaStatusList {
    /// Bytes in front of the descriptors.
    pub const HEADER: usize = 8;

    /// The data as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let length = (4 + self.0.len() * LbaStatus::SIZE) as u32;
        let mut bytes = vec![0; Self::HEADER];
        put(&mut bytes, 0, length.to_be_bytes());
        bytes.extend(self.0.iter().flat_map(LbaStatus::emit));
        bytes
    }

    /// Reads what is there of the data, which may have been cut behind any descriptor.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() < Self::HEADER {
            return Err(ParseError::short(Self::HEADER, bytes.len()));
        }
        let said = (be32(bytes, 0) as usize).saturating_sub(4);
        let list = &bytes[Self::HEADER..];
        let list = &list[..list.len().min(said)];
        let chunks = list.as_chunks::<{ LbaStatus::SIZE }>().0;
        chunks.iter().map(|chunk| LbaStatus::parse(chunk)).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_both_ways() {
        let list = UnmapList(vec![
            UnmapRange { lba: 8, blocks: 16 },
            UnmapRange { lba: 1 << 40, blocks: 0 },
        ]);
        let bytes = list.emit();
        assert_eq!(bytes[..8], [0, 38, 0, 32, 0, 0, 0, 0]);
        assert_eq!(bytes[8..24], [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0, 0, 0]);
        assert_eq!(UnmapList::parse(&bytes), Ok(list));
        assert_eq!(UnmapList::parse(&[0; 8]), Ok(UnmapList(Vec::new())));
    }

    #[test]
    fn a_list_that_is_shorter_than_it_says_is_refused() {
        let bytes = UnmapList(vec![UnmapRange { lba: 0, blocks: 1 }]).emit();
        assert!(UnmapList::parse(&bytes[..7]).is_err());
        let error = UnmapList::parse(&bytes[..23]).expect_err("cut");
        assert_eq!((error.offset, error.seen), (2, 16));
    }

    #[test]
    fn a_range_that_is_not_whole_counts_for_nothing() {
        let mut bytes = UnmapList(vec![UnmapRange { lba: 0, blocks: 1 }]).emit();
        bytes.extend([1; 9]);
        bytes[3] = 25;
        assert_eq!(UnmapList::parse(&bytes).map(|list| list.0.len()), Ok(1));
    }

    #[test]
    fn statuses_both_ways_and_cut() {
        let list = LbaStatusList(vec![
            LbaStatus { lba: 5, blocks: 9, status: ProvisioningStatus::MAPPED },
            LbaStatus { lba: 14, blocks: 2, status: ProvisioningStatus::DEALLOCATED },
        ]);
        let bytes = list.emit();
        assert_eq!(bytes[..8], [0, 0, 0, 36, 0, 0, 0, 0]);
        assert_eq!(bytes[36], 1);
        assert_eq!(LbaStatusList::parse(&bytes), Ok(list.clone()));
        let first = LbaStatusList(list.0[..1].to_vec());
        assert_eq!(LbaStatusList::parse(&bytes[..39]), Ok(first));
        assert!(LbaStatusList::parse(&bytes[..7]).is_err());
    }
}
