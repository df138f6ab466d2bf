//! What a volume is like, derived from its disks: whether its blocks can be kept whole, its layout,
//! and what hosts are told of it.
//!
//! The rule of blocks: for each disk, logical block <= block size <= what it writes atomically, so
//! that nothing is ever read to be written back and no block is torn. A volume is as volatile as
//! its most volatile disk and discards only what all of them discard. Units: bytes. Nothing here
//! does I/O.

use ::volume::label::LABEL_AREA;
use ::volume::{Layout, LayoutError, Member};
use block::{ByteCount, VolumeId};
use contract::{Cache, DiskFacts, DiskId};
use uuid::Uuid;

use super::error::RunError;
use crate::config::volume::{self, VolumeConfig};

/// A disk of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    /// Its number.
    pub(crate) disk: DiskId,
    /// What is known of it.
    pub(crate) facts: DiskFacts,
}

/// Checks the rule of blocks.
pub(crate) fn check_blocks(volume: &VolumeConfig, parts: &[Part]) -> Result<(), RunError> {
    let block = volume.block_size;
    for Part { name, facts, .. } in parts {
        let DiskFacts { logical_block, physical_block, .. } = *facts;
        if block >= logical_block && block <= physical_block {
            continue;
        }
        let message = format!(
            "volume {}: block_size {block} on disk {name}: expected {}, seen {block}",
            volume.name,
            match logical_block == physical_block {
                true => format!(
                    "{logical_block}, the only block that it can address and writes atomically"
                ),
                false => format!(
                    "{logical_block} (what it can address) to {physical_block} (what it writes atomically)"
                ),
            }
        );
        let fits =
            [512, 4096].into_iter().find(|size| (logical_block..=physical_block).contains(size));
        let help = match fits {
            Some(size) => {
                format!("write block_size = {size} in the [[volume]]; then: plateway check")
            }
            None => "this disk cannot be served in blocks of 512 or 4096 bytes".to_owned(),
        };
        return Err(RunError::new(message).help(help).key("block_size"));
    }
    Ok(())
}

/// The layout over disks as they are now. `labelled` has the lengths of the members' data when they
/// were labelled; `None` for a volume without labels.
pub(crate) fn layout(
    volume: &VolumeConfig,
    parts: &[Part],
    labelled: Option<&[u64]>,
) -> Result<Layout, RunError> {
    let room = |part: &Part| part.facts.size.0.saturating_sub(LABEL_AREA);
    let member = |part: &Part, length: u64| Member { disk: part.disk, base: LABEL_AREA, length };
    let layout = match (&volume.layout, labelled) {
        (volume::Layout::Concat { .. }, Some(lengths)) => {
            // Only the last member may use what it grew by: otherwise the data after it would move.
            let last = parts.len().saturating_sub(1);
            let lengths = parts.iter().zip(lengths).enumerate();
            let members = lengths.map(|(index, (part, length))| {
                member(part, if index == last { room(part) } else { *length })
            });
            Layout::concat(members.collect())
        }
        (volume::Layout::Stripe { chunk_bytes, .. }, Some(_)) => Layout::stripe(
            parts.iter().map(|part| member(part, room(part))).collect(),
            *chunk_bytes,
        ),
        _ => Ok(Layout::single(Member {
            disk: parts[0].disk,
            base: 0,
            length: parts[0].facts.size.0,
        })),
    };
    let layout = layout.map_err(|error| {
        let why = match error {
            LayoutError::Small { index, length, needed } => format!(
                "disk {} has {:#} for data, expected at least {:#}",
                parts[index].name,
                ByteCount(length),
                ByteCount(needed)
            ),
            LayoutError::Empty | LayoutError::Chunk(_) => error.to_string(),
        };
        RunError::new(format!("volume {}: {why}", volume.name))
    })?;
    size(volume, &layout)?;
    Ok(layout)
}

/// The bytes that hosts see: whole blocks, cut to `size` where the configuration says so.
pub(crate) fn size(volume: &VolumeConfig, layout: &Layout) -> Result<u64, RunError> {
    let there = layout.size().0;
    let there = there - there % u64::from(volume.block_size);
    match volume.size_bytes {
        Some(wanted) if wanted > there => Err(RunError::new(format!(
            "volume {}: size {:#}: expected at most the {:#} that its disks hold",
            volume.name,
            ByteCount(wanted),
            ByteCount(there)
        ))
        .key("size")),
        Some(wanted) => Ok(wanted),
        None if there == 0 => Err(RunError::new(format!(
            "volume {}: expected disks with at least one block of {}, seen {:#}",
            volume.name,
            volume.block_size,
            layout.size()
        ))),
        None => Ok(there),
    }
}

/// What is told of a volume by whatever protocol.
#[derive(Clone, Debug)]
pub(crate) struct VolumeFacts {
    pub(crate) id: VolumeId,
    pub(crate) uuid: Uuid,
    pub(crate) bytes: u64,
    pub(crate) block_size: u32,
    pub(crate) read_only: bool,
    pub(crate) cache_volatile: bool,
    pub(crate) discards: bool,
    pub(crate) discard_zeroes: bool,
    /// What is written atomically.
    pub(crate) physical_block: u32,
}

pub(crate) fn facts(
    volume: &VolumeConfig,
    id: VolumeId,
    uuid: Uuid,
    layout: &Layout,
    parts: &[Part],
) -> Result<VolumeFacts, RunError> {
    let facts = || parts.iter().map(|part| &part.facts);
    let atomic = facts().map(|facts| facts.physical_block).min().unwrap_or(volume.block_size);
    Ok(VolumeFacts {
        id,
        uuid,
        bytes: size(volume, layout)?,
        block_size: volume.block_size,
        read_only: facts().any(|facts| facts.read_only),
        cache_volatile: facts().any(|facts| facts.cache == Cache::Volatile),
        discards: facts().all(|facts| facts.discards),
        discard_zeroes: facts().all(|facts| facts.discards && facts.discard_zeroes),
        physical_block: atomic.max(volume.block_size),
    })
}

/// Two volumes cannot have one identity.
pub(crate) fn same_identity(volume: &VolumeConfig, twin: &str) -> RunError {
    RunError::new(format!(
        "volume {}: expected an identity of its own, seen that of volume {twin}",
        volume.name
    ))
    .help(format!(
        "a copy of a disk needs a uuid of its own: uuid = \"...\" of volume {name} in the configuration; for a copy of a set \
         serve or apply it with --overwrite {name}, too, which writes labels with that uuid and leaves what is behind them",
        name = volume.name
    ))
}

#[cfg(test)]
mod tests {
    use block::ByteCount;

    use super::*;

    fn part(name: &str, disk: u32, logical: u32, physical: u32, size: u64) -> Part {
        let facts = DiskFacts {
            size: ByteCount(size),
            logical_block: logical,
            physical_block: physical,
            cache: Cache::None,
            read_only: false,
            discards: true,
            discard_zeroes: true,
        };
        Part { name: name.to_owned(), disk: DiskId(disk), facts }
    }

    fn config(layout: volume::Layout, block_size: u32, size_bytes: Option<u64>) -> VolumeConfig {
        VolumeConfig { name: "v0".to_owned(), layout, block_size, uuid: None, size_bytes }
    }

    fn single() -> volume::Layout {
        volume::Layout::Single { disk: "d0".to_owned() }
    }

    #[test]
    fn a_block_lies_between_what_a_disk_addresses_and_what_it_writes_atomically() {
        let disk = |logical, physical| [part("d0", 0, logical, physical, 1 << 20)];
        for (block, logical, physical, allowed) in [
            (512, 512, 512, true),
            (512, 512, 4096, true),
            (4096, 512, 4096, true),
            (4096, 4096, 4096, true),
            (4096, 512, 512, false),
            (512, 4096, 4096, false),
        ] {
            let seen = check_blocks(&config(single(), block, None), &disk(logical, physical));
            assert_eq!(seen.is_ok(), allowed, "{block} on {logical}/{physical}");
        }
        let error = check_blocks(&config(single(), 512, None), &disk(4096, 4096)).unwrap_err();
        assert!(error.line().contains("block_size = 4096"), "{}", error.line());
    }

    #[test]
    fn a_disk_that_grows_in_the_middle_of_a_concat_moves_no_data() {
        let concat = volume::Layout::Concat { disks: vec!["d0".to_owned(), "d1".to_owned()] };
        let volume = config(concat, 512, None);
        let labelled = [1 << 20, 1 << 20];
        let grown = [part("d0", 0, 512, 512, 5 << 20), part("d1", 1, 512, 512, 4 << 20)];
        let layout = layout(&volume, &grown, Some(&labelled)).unwrap();
        assert_eq!(layout.members()[0].length, 1 << 20);
        assert_eq!(layout.size().0, (1 << 20) + (3 << 20));
    }

    #[test]
    fn a_volume_is_cut_to_its_size_and_not_stretched() {
        let disk = [part("d0", 0, 512, 512, 1 << 20)];
        let cut = config(single(), 512, Some(4096));
        let whole = layout(&cut, &disk, None).unwrap();
        assert_eq!(size(&cut, &whole).unwrap(), 4096);
        assert!(layout(&config(single(), 512, Some(2 << 20)), &disk, None).is_err());
    }

    #[test]
    fn a_disk_without_room_for_a_block_or_a_chunk_is_refused_by_name() {
        let small = config(single(), 4096, None);
        let error = layout(&small, &[part("d0", 0, 512, 4096, 1024)], None).unwrap_err();
        let words = "volume v0: expected disks with at least one block of 4096, seen 1 KiB";
        assert!(error.line().starts_with(words), "{}", error.line());

        let disks = vec!["d0".to_owned(), "d1".to_owned()];
        let stripe = config(volume::Layout::Stripe { disks, chunk_bytes: 1 << 16 }, 512, None);
        let room = [1 << 20, 1 << 12];
        let parts = [("d0", 0), ("d1", 1)]
            .map(|(name, number)| part(name, number, 512, 512, LABEL_AREA + room[number as usize]));
        let error = layout(&stripe, &parts, Some(&room)).unwrap_err();
        let words = "volume v0: disk d1 has 4 KiB for data, expected at least 64 KiB";
        assert!(error.line().starts_with(words), "{}", error.line());
    }
}
