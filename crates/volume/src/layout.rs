//! Layouts: which bytes of which member hold which bytes of a volume. Arithmetic only.
//!
//! Units: bytes. A stripe of n members and chunk c, where a row is n chunks:
//!
//! ```text
//!   volume  | 0 | 1 | 2 | 3 | 4 | 5 | ...      chunk k lies on member k % n,
//!   member 0  0   3        member 1  1   4      in that member's row k / n
//! ```
//!
//! Every edge between members is a multiple of 4 KiB, so that a payload is cut at the edges of its
//! pages.

use core::cmp::Ordering;
use core::fmt;

use block::{ByteCount, Extent};
use contract::DiskId;

/// Edges between members lie at multiples of this many bytes: a page of a buffer.
pub const EDGE: u64 = block::PAGE_SIZE as u64;

/// A disk's part in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub disk: DiskId,
    /// Where the member's data begin on it: 0, or after the label.
    pub base: u64,
    /// Bytes of data that it can hold from there on.
    pub length: u64,
}

/// How members make a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    kind: Kind,
    members: Vec<Member>,
    size: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Single,
    /// The volume offset at which each member begins.
    Concat(Vec<u64>),
    Stripe {
        chunk_shift: u32,
    },
}

/// Why members do not make a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// There are no members.
    Empty,
    /// The chunk is not a power of two of at least 4096 bytes.
    Chunk(u64),
    /// A member has no room for data.
    Small {
        /// Which, from 0.
        index: usize,
        /// Bytes that it has.
        length: u64,
        /// Bytes that it needs.
        needed: u64,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Empty => f.write_str("expected at least one disk, seen none"),
            LayoutError::Chunk(chunk) => {
                write!(f, "expected a chunk that is a power of two of 4096 or more, seen {chunk}")
            }
            LayoutError::Small { index, length, needed } => {
                write!(
                    f,
                    "member {index} has {:#} for data, expected at least {:#}",
                    ByteCount(*length),
                    ByteCount(*needed)
                )
            }
        }
    }
}

impl std::error::Error for LayoutError {}

/// A run of a request on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The member's disk.
    pub disk: DiskId,
    /// The bytes on the disk.
    pub extent: Extent,
}

impl Layout {
    /// One disk, whole and raw.
    pub fn single(member: Member) -> Layout {
        Layout { kind: Kind::Single, size: member.length, members: vec![member] }
    }

    /// One member after the other; each gives the whole 4 KiB pages that it has.
    pub fn concat(mut members: Vec<Member>) -> Result<Layout, LayoutError> {
        if members.is_empty() {
            return Err(LayoutError::Empty);
        }
        let mut starts = Vec::with_capacity(members.len());
        let mut size = 0u64;
        for (index, member) in members.iter_mut().enumerate() {
            member.length -= member.length % EDGE;
            if member.length == 0 {
                return Err(LayoutError::Small { index, length: 0, needed: EDGE });
            }
            starts.push(size);
            size += member.length;
        }
        Ok(Layout { kind: Kind::Concat(starts), members, size })
    }

    /// Chunks in turn; every member gives what the smallest has, in whole chunks.
    pub fn stripe(mut members: Vec<Member>, chunk: u64) -> Result<Layout, LayoutError> {
        if !chunk.is_power_of_two() || chunk < EDGE {
            return Err(LayoutError::Chunk(chunk));
        }
        let smallest = members.iter().enumerate().min_by_key(|(_, member)| member.length);
        let (index, &Member { length, .. }) = smallest.ok_or(LayoutError::Empty)?;
        if length < chunk {
            return Err(LayoutError::Small { index, length, needed: chunk });
        }
        let length = length - length % chunk;
        members.iter_mut().for_each(|member| member.length = length);
        let size = length * members.len() as u64;
        Ok(Layout { kind: Kind::Stripe { chunk_shift: chunk.trailing_zeros() }, members, size })
    }

    /// Bytes that the volume has.
    #[inline]
    pub fn size(&self) -> ByteCount {
        ByteCount(self.size)
    }

    /// The members, in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The first run of `extent`, which must fit and not be empty: the part on one member before
    /// the next edge. For most requests that is all of it.
    #[inline]
    pub fn first_piece(&self, extent: Extent) -> Piece {
        let offset = extent.offset.0;
        let (member, at, room) = match &self.kind {
            Kind::Single => (&self.members[0], offset, u64::MAX),
            Kind::Concat(starts) => {
                let index = starts.partition_point(|start| *start <= offset) - 1;
                let member = &self.members[index];
                let at = offset - starts[index];
                (member, at, member.length - at)
            }
            Kind::Stripe { chunk_shift } => {
                let count = self.members.len() as u64;
                let chunk = offset >> chunk_shift;
                let within = offset & ((1 << chunk_shift) - 1);
                let member = &self.members[(chunk % count) as usize];
                (member, ((chunk / count) << chunk_shift) + within, (1 << chunk_shift) - within)
            }
        };
        Piece {
            disk: member.disk,
            extent: Extent::new(member.base + at, extent.length.0.min(room)),
        }
    }

    /// What each member has of `extent`, which is one range; members that have nothing of it are
    /// left out. As many as there are members, however long it is.
    pub fn shares(&self, extent: Extent) -> impl Iterator<Item = Piece> + '_ {
        self.members.iter().enumerate().filter_map(move |(index, member)| {
            let [from, to] = [extent.offset.0, extent.end().0].map(|end| self.before(end, index));
            let extent = Extent::new(member.base + from, to - from);
            (to > from).then_some(Piece { disk: member.disk, extent })
        })
    }

    /// Bytes of a member that hold what lies before `end` in the volume.
    fn before(&self, end: u64, index: usize) -> u64 {
        match &self.kind {
            Kind::Single => end,
            Kind::Concat(starts) => {
                end.saturating_sub(starts[index]).min(self.members[index].length)
            }
            Kind::Stripe { chunk_shift } => {
                let count = self.members.len() as u64;
                let chunk = end >> chunk_shift;
                let within = match (chunk % count).cmp(&(index as u64)) {
                    Ordering::Less => 0,
                    Ordering::Equal => end & ((1 << chunk_shift) - 1),
                    Ordering::Greater => 1 << chunk_shift,
                };
                ((chunk / count) << chunk_shift) + within
            }
        }
    }

    /// All runs of `extent`, in its order.
    pub fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> + '_ {
        let mut left = extent;
        core::iter::from_fn(move || {
            if left.length.0 == 0 {
                return None;
            }
            let piece = self.first_piece(left);
            let taken = piece.extent.length.0;
            left = Extent::new(left.offset.0 + taken, left.length.0 - taken);
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(lengths: &[u64]) -> Vec<Member> {
        let member = |(index, length): (usize, &u64)| Member {
            disk: DiskId(index as u32),
            base: 1 << 20,
            length: *length,
        };
        lengths.iter().enumerate().map(member).collect()
    }

    /// Every byte of a volume lies on one byte of one member, and no two on the same.
    fn assert_one_to_one(layout: &Layout, step: u64) {
        let mut seen = std::collections::BTreeSet::new();
        for offset in (0..layout.size().0).step_by(step as usize) {
            let piece = layout.first_piece(Extent::new(offset, step));
            assert_eq!(piece.extent.length.0, step);
            let member = layout.members()[piece.disk.0 as usize];
            assert!(piece.extent.offset.0 >= member.base);
            assert!(piece.extent.end().0 <= member.base + member.length);
            assert!(seen.insert((piece.disk, piece.extent.offset)));
        }
    }

    #[test]
    fn a_stripe_maps_one_to_one() {
        let layout = Layout::stripe(members(&[40_960, 36_864, 40_000]), 8192).unwrap();
        assert_eq!(layout.size().0, 3 * 32_768);
        assert_one_to_one(&layout, 4096);
    }

    #[test]
    fn a_concat_maps_one_to_one_and_uses_whole_pages() {
        let layout = Layout::concat(members(&[8192, 5000, 12_288])).unwrap();
        assert_eq!(layout.size().0, 8192 + 4096 + 12_288);
        assert_one_to_one(&layout, 512);
    }

    #[test]
    fn a_share_holds_the_pieces_of_its_member() {
        let layouts = [
            Layout::single(members(&[1 << 20])[0]),
            Layout::concat(members(&[65_536, 4096, 1 << 20])).unwrap(),
            Layout::stripe(members(&[1 << 18; 3]), 8192).unwrap(),
        ];
        for layout in layouts {
            let blocks = layout.size().0 / 512;
            for step in 0..2_000u64 {
                let from = step * 7_919 % blocks;
                let extent = Extent::new(from * 512, step * 104_729 % (blocks - from) * 512);
                let mut by_disk = std::collections::BTreeMap::<DiskId, Vec<Extent>>::new();
                for piece in layout.pieces(extent) {
                    by_disk.entry(piece.disk).or_default().push(piece.extent);
                }
                by_disk.values_mut().for_each(Extent::merge);
                let mut shares: Vec<_> = layout.shares(extent).collect();
                shares.sort_by_key(|share| share.disk);
                let pieces = by_disk.into_iter().flat_map(|(disk, extents)| {
                    extents.into_iter().map(move |extent| Piece { disk, extent })
                });
                assert_eq!(shares, pieces.collect::<Vec<_>>(), "{extent} of {layout:?}");
            }
        }
    }

    #[test]
    fn pieces_cover_a_request_in_order() {
        let layout = Layout::stripe(members(&[1 << 20; 4]), 65_536).unwrap();
        let extent = Extent::new(60_000 / 512 * 512, 300_032);
        let pieces: Vec<_> = layout.pieces(extent).collect();
        assert_eq!(pieces.iter().map(|piece| piece.extent.length.0).sum::<u64>(), 300_032);
        assert_eq!(pieces.len(), 6);
        assert_eq!(pieces[1].extent, Extent::new(1 << 20, 65_536));
        assert!(pieces.iter().skip(1).all(|piece| piece.extent.offset.0 % 65_536 == 0));
    }

    #[test]
    fn what_is_no_layout_says_why() {
        let error = Layout::stripe(members(&[4096, 8192]), 8192).unwrap_err();
        assert_eq!(error.to_string(), "member 0 has 4 KiB for data, expected at least 8 KiB");
        assert_eq!(Layout::stripe(members(&[8192]), 5000), Err(LayoutError::Chunk(5000)));
        assert!(Layout::concat(Vec::new()).is_err());
    }
}
