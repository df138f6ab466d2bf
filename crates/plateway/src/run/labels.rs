//! Labels of the members of a concat or stripe: read before a volume is assembled, written when it is formed.
//!
//! Each member is looked at through a volume of its own that lasts as long as the look, so a label takes the same way as data. Forming has two
//! steps, each durable before the next: all members say *forming*, then all say *complete*. Units: bytes. Errors name the disk, what was
//! expected and what was seen; nothing was written then, but for an interrupted forming, which the next start goes on with.

use block::{Extent, VolumeId};
use volume::label::{LABEL_AREA, LABEL_OFFSETS, LABEL_SIZE, Label, LabelError, SetLabel};
use volume::survey::{Found, Verdict, survey};

use super::error::RunError;
use super::shards::Shards;

/// One read of the look for other data.
const LOOK: u64 = 256 << 10;

/// A member that is looked at.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    /// The disk's name.
    pub(super) disk: &'a str,
    /// Its size.
    pub(super) bytes: u64,
    /// The volume over the whole of it.
    pub(super) whole: VolumeId,
}

/// What the labels say once the set is whole.
#[derive(Debug)]
pub(super) struct Set {
    /// The volume's UUID.
    pub(super) uuid: [u8; 16],
    /// Bytes of data of each member when it was labelled.
    pub(super) lengths: Vec<u64>,
}

/// Makes sure that the members are the set that is `wanted`, labelling them if all are blank.
pub(super) fn assemble(
    shards: &Shards,
    members: &[Seen<'_>],
    wanted: &SetLabel,
    uuid_is_given: bool,
) -> Result<Set, RunError> {
    for member in members {
        if member.bytes < LABEL_AREA + block::PAGE_SIZE as u64 {
            return Err(RunError::new(format!(
                "volume {}: disk {} has {} bytes, expected at least {} for a label and data",
                wanted.name,
                member.disk,
                member.bytes,
                LABEL_AREA + block::PAGE_SIZE as u64
            )));
        }
    }
    let found: Vec<Found> =
        members.iter().map(|member| look(shards, member)).collect::<Result<_, _>>()?;
    let verdict = survey(&found, wanted, uuid_is_given, false).map_err(|refusal| {
        let disk = members.get(refusal.index).map_or("?", |member| member.disk);
        RunError::new(format!(
            "volume {}: disk {disk}: expected {}, seen {}",
            wanted.name, refusal.expected, refusal.seen
        ))
        .help(
            "the order of `disks`, the layout and the chunk must be those that the volume was made with; \
             a disk that may be overwritten must read as zeros in its first and last MiB",
        )
    })?;
    match verdict {
        Verdict::Assemble { uuid } => {
            let lengths = found.iter().map(|found| match found {
                Found::Label(label) => label.data_length,
                Found::Blank | Found::Foreign | Found::Damaged(_) => 0,
            });
            let set = Set { uuid, lengths: lengths.collect() };
            for (member, length) in members.iter().zip(&set.lengths) {
                if member.bytes - LABEL_AREA < *length {
                    return Err(RunError::new(format!(
                        "volume {}: disk {} has shrunk: expected {} bytes, seen {}",
                        wanted.name,
                        member.disk,
                        LABEL_AREA + length,
                        member.bytes
                    )));
                }
            }
            Ok(set)
        }
        Verdict::Form { uuid } => {
            let uuid = uuid.unwrap_or(wanted.uuid);
            form(shards, members, &SetLabel { uuid, generation: 1, ..wanted.clone() })
        }
    }
}

/// What is on a member where a label should be.
fn look(shards: &Shards, member: &Seen<'_>) -> Result<Found, RunError> {
    let read = |at: u64, length: u64| {
        shards.read(member.whole, Extent::new(at, length)).map_err(|why| {
            RunError::new(format!(
                "disk {}: cannot read {length} bytes at {at}: {why}",
                member.disk
            ))
        })
    };
    let mut copies = Vec::new();
    for at in LABEL_OFFSETS {
        let bytes = read(at, LABEL_SIZE as u64)?;
        copies.push(<[u8; LABEL_SIZE]>::try_from(bytes).expect("as many as asked for"));
    }
    match Label::best(&copies) {
        Ok(label) => return Ok(Found::Label(label)),
        Err(LabelError::NoLabel) => {}
        Err(error) => return Ok(Found::Damaged(error)),
    }
    // Whole pages, so that every disk can be asked.
    let end = member.bytes - member.bytes % u64::from(block::PAGE_SIZE);
    let first = 0..LABEL_AREA.min(end);
    let last = end.saturating_sub(LABEL_AREA).max(first.end)..end;
    for range in [first, last] {
        let mut at = range.start;
        while at < range.end {
            let length = LOOK.min(range.end - at);
            if read(at, length)?.iter().any(|byte| *byte != 0) {
                return Ok(Found::Foreign);
            }
            at += length;
        }
    }
    Ok(Found::Blank)
}

/// Labels all members, first as forming, then as complete.
fn form(shards: &Shards, members: &[Seen<'_>], set: &SetLabel) -> Result<Set, RunError> {
    let lengths: Vec<u64> = members
        .iter()
        .map(|member| {
            (member.bytes - LABEL_AREA) / u64::from(block::PAGE_SIZE) * u64::from(block::PAGE_SIZE)
        })
        .collect();
    for complete in [false, true] {
        for (index, member) in members.iter().enumerate() {
            let label = Label {
                set: set.clone(),
                complete,
                index: index as u32,
                data_offset: LABEL_AREA,
                data_length: lengths[index],
            };
            let fail = |why: String| {
                RunError::new(format!("disk {}: cannot write its label: {why}", member.disk))
            };
            for at in LABEL_OFFSETS {
                shards.write(member.whole, at, label.emit().to_vec()).map_err(fail)?;
            }
        }
        for member in members {
            let fail = |why: String| {
                RunError::new(format!("disk {}: cannot flush its label: {why}", member.disk))
            };
            shards.flush(member.whole, super::shards::VISIT_LIMIT).map_err(fail)?;
        }
    }
    Ok(Set { uuid: set.uuid, lengths })
}
