//! Labels: what a member of a concat or stripe says of itself, in its first MiB, so that a volume
//! is never assembled from the wrong disks.
//!
//! ```text
//!   0      magic "PLATEWAY"      8    version u32 = 1        12   state u32: 0 forming, 1 complete
//!   16     layout u32: 1 concat, 2 stripe                    20   index u32      24   count u32   28  0
//!   32     chunk u64             40   generation u64         48   data offset u64
//!   56     data length u64       64   volume UUID            80   volume name, NUL padded, 64 bytes
//!   4092   CRC32C of the bytes before, u32                   all little-endian
//! ```
//!
//! Two copies lie at byte 0 and byte 65,536, written one after the other, so that a torn write
//! leaves one whole. A set is labelled in two steps, all members as *forming* and then all as
//! *complete*: a set whose forming was interrupted is told from a set that lost a member.

use core::fmt;

use block::checksum::crc32c;

/// Bytes of a label.
pub const LABEL_SIZE: usize = 4096;
/// Bytes before a member's data; the label and its copy lie in them.
pub const LABEL_AREA: u64 = 1 << 20;
/// Where the copies lie.
pub const LABEL_OFFSETS: [u64; 2] = [0, 65_536];

const MAGIC: &[u8; 8] = b"PLATEWAY";
const VERSION: u32 = 1;
const NAME_MAX: usize = 64;

/// The layouts that have labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelLayout {
    /// One member after the other.
    Concat = 1,
    /// Chunks in turn.
    Stripe = 2,
}

impl fmt::Display for LabelLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LabelLayout::Concat => "concat",
            LabelLayout::Stripe => "stripe",
        })
    }
}

/// What all labels of a set agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetLabel {
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// The volume's name when it was made, for people.
    pub name: String,
    /// How the members make the volume.
    pub layout: LabelLayout,
    /// Members of the set.
    pub count: u32,
    /// Bytes of a chunk; 0 for a concat.
    pub chunk: u64,
    /// Counts up with every change of the set.
    pub generation: u64,
}

/// A member's label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// What all of them agree on.
    pub set: SetLabel,
    /// Whether all members of the set had been labelled when this was written.
    pub complete: bool,
    /// Which member, from 0.
    pub index: u32,
    /// Where its data begin: [`LABEL_AREA`].
    pub data_offset: u64,
    /// Bytes of data from there on.
    pub data_length: u64,
}

/// Why bytes are not a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelError {
    /// They do not begin with the magic.
    NoLabel,
    /// The checksum is wrong.
    Checksum {
        /// What the label says.
        expected: u32,
        /// What its bytes give.
        seen: u32,
    },
    /// A field cannot be.
    Field {
        name: &'static str,
        /// What it holds.
        seen: u64,
    },
}

impl fmt::Display for LabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelError::NoLabel => f.write_str("no label"),
            LabelError::Checksum { expected, seen } => {
                write!(f, "label checksum: expected {expected:#010x}, seen {seen:#010x}")
            }
            LabelError::Field { name, seen } => write!(f, "label field {name}: seen {seen}"),
        }
    }
}

impl std::error::Error for LabelError {}

impl Label {
    /// The label as bytes.
    pub fn emit(&self) -> [u8; LABEL_SIZE] {
        let mut bytes = [0; LABEL_SIZE];
        bytes[..8].copy_from_slice(MAGIC);
        let mut put32 =
            |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put32(8, VERSION);
        put32(12, u32::from(self.complete));
        put32(16, self.set.layout as u32);
        put32(20, self.index);
        put32(24, self.set.count);
        let mut put64 =
            |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put64(32, self.set.chunk);
        put64(40, self.set.generation);
        put64(48, self.data_offset);
        put64(56, self.data_length);
        bytes[64..80].copy_from_slice(&self.set.uuid);
        let mut end = self.set.name.len().min(NAME_MAX);
        while !self.set.name.is_char_boundary(end) {
            end -= 1;
        }
        bytes[80..80 + end].copy_from_slice(&self.set.name.as_bytes()[..end]);
        let crc = crc32c(&bytes[..LABEL_SIZE - 4]);
        bytes[LABEL_SIZE - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The label that the bytes hold.
    pub fn parse(bytes: &[u8; LABEL_SIZE]) -> Result<Label, LabelError> {
        if &bytes[..8] != MAGIC {
            return Err(LabelError::NoLabel);
        }
        let get32 = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let get64 = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (expected, seen) = (get32(LABEL_SIZE - 4), crc32c(&bytes[..LABEL_SIZE - 4]));
        if expected != seen {
            return Err(LabelError::Checksum { expected, seen });
        }
        let field = |name, seen: u32| LabelError::Field { name, seen: u64::from(seen) };
        if get32(8) != VERSION {
            return Err(field("version", get32(8)));
        }
        let layout = match get32(16) {
            1 => LabelLayout::Concat,
            2 => LabelLayout::Stripe,
            other => return Err(field("layout", other)),
        };
        let (index, count) = (get32(20), get32(24));
        if index >= count {
            return Err(field("index", index));
        }
        let name = &bytes[80..80 + NAME_MAX];
        let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(NAME_MAX)];
        Ok(Label {
            set: SetLabel {
                uuid: bytes[64..80].try_into().expect("16 bytes"),
                name: String::from_utf8_lossy(name).into_owned(),
                layout,
                count,
                chunk: get64(32),
                generation: get64(40),
            },
            complete: get32(12) == 1,
            index,
            data_offset: get64(48),
            data_length: get64(56),
        })
    }

    /// Of the copies that a disk holds, the one to believe: the whole one, the newer one, the
    /// complete one.
    pub fn best(copies: &[[u8; LABEL_SIZE]]) -> Result<Label, LabelError> {
        let mut worst = LabelError::NoLabel;
        let mut best: Option<Label> = None;
        for copy in copies {
            match Label::parse(copy) {
                Ok(label) => {
                    let rank = |l: &Label| (l.set.generation, l.complete);
                    if best.as_ref().is_none_or(|best| rank(&label) > rank(best)) {
                        best = Some(label);
                    }
                }
                Err(LabelError::NoLabel) => {}
                Err(error) => worst = error,
            }
        }
        best.ok_or(worst)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn label(index: u32) -> Label {
        Label {
            set: SetLabel {
                uuid: [7; 16],
                name: "v0".into(),
                layout: LabelLayout::Stripe,
                count: 4,
                chunk: 65_536,
                generation: 1,
            },
            complete: true,
            index,
            data_offset: LABEL_AREA,
            data_length: 1 << 30,
        }
    }

    #[test]
    fn a_label_survives_the_disk() {
        assert_eq!(Label::parse(&label(3).emit()), Ok(label(3)));
        let mut long = label(0);
        long.set.name = "ü".repeat(40);
        assert_eq!(Label::parse(&long.emit()).unwrap().set.name, "ü".repeat(32));
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let good = label(1).emit();
        for at in [0, 9, 20, 64, 100, 4000, 4095] {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert!(Label::parse(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_whole_copy_of_two_is_believed() {
        let good = label(1).emit();
        let mut torn = good;
        torn[512..].fill(0);
        assert_eq!(Label::best(&[torn, good]), Ok(label(1)));
        assert!(matches!(Label::best(&[torn, torn]), Err(LabelError::Checksum { .. })));
        assert_eq!(Label::best(&[[0; LABEL_SIZE]; 2]), Err(LabelError::NoLabel));
    }
}
