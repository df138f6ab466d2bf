//! Addresses and counts as types of their own, so that a block number is never added to a byte
//! offset.
//!
//! Units: [`Lba`] and [`BlockCount`] count logical blocks of the volume's [`BlockSize`]; everything
//! below a target counts bytes, in [`ByteOffset`] and [`ByteCount`], because the members of a
//! volume may have other block sizes than the volume. Conversions that could overflow return
//! `None`.

use core::fmt;

/// A logical block address: the number of a block on a volume, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// A number of logical blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockCount(pub u64);

/// A distance in bytes from the start of a disk or volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

/// For people: as it is, where at most four digits of a binary unit say it (`64 MiB`), else three
/// digits of a decimal one, as drives are sold (`1.00 TB`). `{:#}` adds the bytes where these do
/// not say all, for sizes that are compared.
impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let binary = [("EiB", 60), ("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let exact = binary.into_iter().map(|(unit, shift)| (bytes >> shift, unit, shift));
        let mut exact = exact.filter(|(number, _, shift)| {
            (1..10_000).contains(number) && bytes.trailing_zeros() >= *shift
        });
        if let Some((number, unit, _)) = exact.next() {
            return f.pad(&format!("{number} {unit}"));
        }
        if bytes < 10_000 {
            return f.pad(&format!("{bytes} bytes"));
        }
        let (mut value, mut unit) = (bytes as f64 / 1e3, "kB");
        for larger in ["MB", "GB", "TB", "PB", "EB"] {
            // What would be rounded to four digits.
            if value >= 999.5 {
                (value, unit) = (value / 1e3, larger);
            }
        }
        let digits = match value {
            value if value < 9.995 => 2,
            value if value < 99.95 => 1,
            _ => 0,
        };
        match f.alternate() {
            true => f.pad(&format!("{value:.digits$} {unit} ({bytes} bytes)")),
            false => f.pad(&format!("{value:.digits$} {unit}")),
        }
    }
}

/// The size of a logical block: 512 or 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize {
    shift: u8,
}

impl BlockSize {
    /// 512-byte blocks, the default.
    pub const B512: BlockSize = BlockSize { shift: 9 };
    /// 4096-byte blocks.
    pub const B4096: BlockSize = BlockSize { shift: 12 };

    /// The block size of `bytes` bytes, or `None` when it is neither 512 nor 4096.
    pub fn new(bytes: u64) -> Option<BlockSize> {
        match bytes {
            512 => Some(Self::B512),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }

    /// Bytes in a block.
    #[inline]
    pub fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The base-2 logarithm of the size in bytes (LBADS of NVMe).
    #[inline]
    pub fn shift(self) -> u8 {
        self.shift
    }

    /// The bytes that `count` blocks from `first` on occupy, or `None` when they overflow 64 bits.
    #[inline]
    pub fn extent(self, first: Lba, count: BlockCount) -> Option<Extent> {
        let last = first.0.checked_add(count.0)?;
        if last > u64::MAX >> self.shift {
            return None;
        }
        Some(Extent {
            offset: ByteOffset(first.0 << self.shift),
            length: ByteCount(count.0 << self.shift),
        })
    }

    /// Whole blocks in `bytes`, rounded down.
    #[inline]
    pub fn blocks_in(self, bytes: ByteCount) -> BlockCount {
        BlockCount(bytes.0 >> self.shift)
    }
}

/// A range of bytes of a disk or volume: `offset` up to, not including, `offset + length`.
///
/// Whoever makes one keeps `offset + length` within 64 bits; [`Extent::new`] checks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Where the range begins.
    pub offset: ByteOffset,
    /// How long it is.
    pub length: ByteCount,
}

impl Extent {
    /// The range of `length` bytes from `offset`; panics when its end overflows 64 bits.
    #[inline]
    pub fn new(offset: u64, length: u64) -> Extent {
        assert!(offset.checked_add(length).is_some(), "extent {offset}+{length} ends beyond 2^64");
        Extent { offset: ByteOffset(offset), length: ByteCount(length) }
    }

    /// The first byte after the range.
    #[inline]
    pub fn end(self) -> ByteOffset {
        ByteOffset(self.offset.0 + self.length.0)
    }

    /// Whether the two ranges share a byte.
    #[inline]
    pub fn overlaps(self, other: Extent) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    /// Puts ranges in order, joins those that share bytes or touch, and leaves empty ones out.
    pub fn merge(extents: &mut Vec<Extent>) {
        extents.retain(|extent| extent.length.0 > 0);
        extents.sort_unstable_by_key(|extent| extent.offset);
        extents.dedup_by(|next, last| {
            let touches = next.offset <= last.end();
            if touches {
                last.length.0 = last.end().max(next.end()).0 - last.offset.0;
            }
            touches
        });
    }

    /// Whether the whole of the range lies below `size`.
    #[inline]
    pub fn fits(self, size: ByteCount) -> bool {
        self.end().0 <= size.0
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset.0, self.length.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_ranges_cover_the_same_bytes_once() {
        let mut random = crate::random::Random::new(1);
        for _ in 0..1_000 {
            let mut draw = |below: u64| random.next_u64() % below;
            let count = draw(8);
            let extents: Vec<_> = (0..count).map(|_| Extent::new(draw(32), draw(8))).collect();
            let mut merged = extents.clone();
            Extent::merge(&mut merged);
            let covers = |extents: &[Extent], at| {
                extents.iter().any(|extent| extent.overlaps(Extent::new(at, 1)))
            };
            for at in 0..40 {
                assert_eq!(covers(&merged, at), covers(&extents, at), "{extents:?} {merged:?}");
            }
            assert!(merged.iter().all(|extent| extent.length.0 > 0));
            assert!(merged.windows(2).all(|pair| pair[0].end() < pair[1].offset), "{merged:?}");
        }
    }

    #[test]
    fn an_extent_beyond_64_bits_is_refused() {
        assert_eq!(BlockSize::B512.extent(Lba(u64::MAX), BlockCount(1)), None);
        assert_eq!(BlockSize::B512.extent(Lba(u64::MAX >> 9), BlockCount(1)), None);
        assert_eq!(BlockSize::B4096.extent(Lba(2), BlockCount(3)), Some(Extent::new(8192, 12288)));
    }

    #[test]
    fn ranges_that_touch_do_not_overlap() {
        let a = Extent::new(0, 512);
        assert!(!a.overlaps(Extent::new(512, 512)));
        assert!(a.overlaps(Extent::new(511, 1)));
        assert!(!a.overlaps(Extent::new(100, 0)) || a.overlaps(Extent::new(100, 1)));
    }

    #[test]
    fn a_number_of_bytes_can_be_read() {
        for (bytes, plain, exact) in [
            (0, "0 bytes", "0 bytes"),
            (512, "512 bytes", "512 bytes"),
            (4096, "4 KiB", "4 KiB"),
            (9_999, "9999 bytes", "9999 bytes"),
            (999_936, "1.00 MB", "1.00 MB (999936 bytes)"),
            (1536 << 20, "1536 MiB", "1536 MiB"),
            (10 << 40, "10 TiB", "10 TiB"),
            (1_000_204_886_016, "1.00 TB", "1.00 TB (1000204886016 bytes)"),
            (12_345_678, "12.3 MB", "12.3 MB (12345678 bytes)"),
            (123_456, "123 kB", "123 kB (123456 bytes)"),
            (u64::MAX, "18.4 EB", "18.4 EB (18446744073709551615 bytes)"),
        ] {
            let count = ByteCount(bytes);
            assert_eq!((count.to_string(), format!("{count:#}")), (plain.into(), exact.into()));
        }
    }
}
