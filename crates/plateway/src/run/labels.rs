//! Labels of the members of a concat or stripe: read before a volume is assembled, written when it is formed.
//!
//! Each member is looked at through a volume of its own that lasts as long as the look, so a label takes the same way as data. Forming has two
//! steps, each durable before the next: all members say *forming*, then all say *complete*. Units: bytes. Errors name the disk, what was
//! expected and what was seen; nothing was written then, but for an interrupted forming, which the next start goes on with. What needs no shard
//! (judging, measuring, the words of a refusal) is shared with `preview`, which looks without starting anything.

use block::{Extent, VolumeId};
use volume::label::{
    LABEL_AREA, LABEL_OFFSETS, LABEL_SIZE, Label, LabelError, LabelLayout, SetLabel,
};
use volume::survey::{Found, Refusal, Verdict, survey};

use super::error::RunError;
use super::news::log;
use super::shards::Shards;
use crate::config::model::{Layout, VolumeConfig};

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
    /// What was given up for it, a line for each member; logged already.
    pub(super) overwritten: Vec<String>,
}

/// What the labels of a volume's members are to say; `None` for a volume without labels.
pub(crate) fn wanted(config: &VolumeConfig, uuid: [u8; 16]) -> Option<SetLabel> {
    let (layout, chunk) = match &config.layout {
        Layout::Single { .. } => return None,
        Layout::Concat { .. } => (LabelLayout::Concat, 0),
        Layout::Stripe { chunk_bytes, .. } => (LabelLayout::Stripe, *chunk_bytes),
    };
    let count = config.layout.disks().len() as u32;
    Some(SetLabel { uuid, name: config.name.clone(), layout, count, chunk, generation: 0 })
}

/// Makes sure that the members are the set that is `wanted`, labelling them if all are blank or `overwrite` gives up what they hold.
pub(super) fn assemble(
    shards: &Shards,
    members: &[Seen<'_>],
    wanted: &SetLabel,
    uuid_is_given: bool,
    overwrite: bool,
) -> Result<Set, RunError> {
    for member in members {
        check_room(&wanted.name, member.disk, member.bytes)?;
    }
    let found: Vec<Found> =
        members.iter().map(|member| look_at(shards, member)).collect::<Result<_, _>>()?;
    let verdict = survey(&found, wanted, uuid_is_given, overwrite).map_err(|refusal| {
        let disk = members.get(refusal.index).map_or("?", |member| member.disk);
        refused(&wanted.name, disk, &refusal)
    })?;
    match verdict {
        Verdict::Assemble { uuid } => {
            let set = Set { uuid, lengths: lengths(&found), overwritten: Vec::new() };
            for (member, length) in members.iter().zip(&set.lengths) {
                check_length(&wanted.name, member.disk, member.bytes, *length)?;
            }
            Ok(set)
        }
        Verdict::Form { uuid } => {
            let goes_on = uuid.is_some();
            let uuid = uuid.unwrap_or(wanted.uuid);
            let names: Vec<&str> = members.iter().map(|member| member.disk).collect();
            let overwritten = match goes_on {
                true => Vec::new(),
                false => overwritten(&wanted.name, &names, &found),
            };
            // Told before it is done: whatever happens then, somebody can know what was there.
            overwritten.iter().for_each(|line| log(line));
            let set = SetLabel { uuid, generation: 1, ..wanted.clone() };
            form(shards, members, &set).map(|lengths| Set { uuid, lengths, overwritten })
        }
    }
}

/// What is on a member where a label should be.
pub(super) fn look_at(shards: &Shards, member: &Seen<'_>) -> Result<Found, RunError> {
    look(member.bytes, |at, length| {
        shards.read(member.whole, Extent::new(at, length)).map_err(|why| {
            RunError::new(format!(
                "disk {}: cannot read {length} bytes at {at}: {why}",
                member.disk
            ))
        })
    })
}

/// What is where a label should be on a disk of so many bytes; `read` gives so many bytes from an offset on, both whole pages.
pub(crate) fn look<E>(
    bytes: u64,
    mut read: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<Found, E> {
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
    let end = bytes - bytes % u64::from(block::PAGE_SIZE);
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

/// Bytes of data that a member of so many bytes is labelled with.
pub(crate) fn data_length(bytes: u64) -> u64 {
    let page = u64::from(block::PAGE_SIZE);
    bytes.saturating_sub(LABEL_AREA) / page * page
}

/// Whether a disk of so many bytes has room for a label and data.
pub(crate) fn check_room(volume: &str, disk: &str, bytes: u64) -> Result<(), RunError> {
    let least = LABEL_AREA + u64::from(block::PAGE_SIZE);
    match bytes >= least {
        true => Ok(()),
        false => Err(RunError::new(format!(
            "volume {volume}: disk {disk} has {bytes} bytes, expected at least {least} for a label and data"
        ))),
    }
}

/// Whether a disk still holds all the data that its label promises.
pub(crate) fn check_length(
    volume: &str,
    disk: &str,
    bytes: u64,
    labelled: u64,
) -> Result<(), RunError> {
    match bytes.saturating_sub(LABEL_AREA) >= labelled {
        true => Ok(()),
        false => Err(RunError::new(format!(
            "volume {volume}: disk {disk} has shrunk: expected {} bytes, seen {bytes}",
            LABEL_AREA + labelled
        ))
        .help(
            "give the disk its former size back: what lies beyond its end is part of the volume",
        )),
    }
}

/// The refusal of a set, with what to do next.
pub(crate) fn refused(volume: &str, disk: &str, refusal: &Refusal) -> RunError {
    let Refusal { expected, seen, .. } = refusal;
    RunError::new(format!("volume {volume}: disk {disk}: expected {expected}, seen {seen}")).help(
        format!(
            "the order of `disks`, the layout and the chunk must be those that the volume was made with; \
             `plateway check FILE --overwrite {volume}` shows what is lost where all that its disks hold is given up, \
             and serve or apply with --overwrite {volume} does it"
        ),
    )
}

/// The refusal of a set of which a member's file is missing: `create` does not make it anew.
pub(crate) fn lost(volume: &str, disk: &str, refusal: &Refusal) -> RunError {
    RunError::new(format!(
        "volume {volume}: disk {disk}: expected {}, seen no file",
        refusal.expected
    ))
    .help(format!(
        "put its file back: create makes no member beside disks that carry labels; where all that they hold is given up, \
         --overwrite {volume} makes it and labels them anew"
    ))
}

/// Bytes of data of each member by its label.
pub(crate) fn lengths(found: &[Found]) -> Vec<u64> {
    let length = |found: &Found| match found {
        Found::Label(label) => label.data_length,
        Found::Blank | Found::Foreign | Found::Damaged(_) => 0,
    };
    found.iter().map(length).collect()
}

/// What labelling these disks anew gives up, a line for each that is not blank.
pub(crate) fn overwritten(volume: &str, disks: &[&str], found: &[Found]) -> Vec<String> {
    let held = disks.iter().zip(found).filter(|(_, found)| **found != Found::Blank);
    held.map(|(disk, found)| {
        format!("volume {volume}: disk {disk}: --overwrite gives up what it held: {found}")
    })
    .collect()
}

/// Labels all members, first as forming, then as complete. Returns the bytes of data of each.
fn form(shards: &Shards, members: &[Seen<'_>], set: &SetLabel) -> Result<Vec<u64>, RunError> {
    let lengths: Vec<u64> = members.iter().map(|member| data_length(member.bytes)).collect();
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
    Ok(lengths)
}
