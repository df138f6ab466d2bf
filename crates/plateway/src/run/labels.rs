//! Labels of the members of a concat or stripe: examined before a volume is assembled, written when
//! it is formed.
//!
//! What a set of labels comes to is judged here for a start, which then does what is due, and for
//! `check`, which only says it. A start reads and writes through a volume of its own over each
//! member, so a label takes the same way as data. Forming has two steps, each durable before the
//! next: all members say *forming*, then all say *complete*. Units: bytes. Errors name the disk,
//! what was expected and what was seen; nothing was written then, but for an interrupted forming,
//! which the next start goes on with.

use ::volume::assemble::{self, Found, Refusal, Verdict};
use ::volume::label::{
    LABEL_AREA, LABEL_OFFSETS, LABEL_SIZE, Label, LabelError, LabelLayout, SetLabel,
};
use block::{ByteCount, VolumeId};
use std::fmt::Display;
use uuid::Uuid;

use super::error::RunError;
use super::look::Member;
use super::shape::Part;
use super::shards::{ACCESS_LIMIT, Shards};
use crate::config::disk::disk_title;
use crate::config::volume::{Layout, VolumeConfig};

/// One read of the search for other data.
const SEARCH: u64 = 256 << 10;

/// What the labels of a set come to.
#[derive(Debug)]
pub(crate) struct Set {
    /// What its members are labelled with, but for an identity that is to be drawn.
    pub(super) label: SetLabel,
    /// None where it is to be drawn.
    pub(crate) uuid: Option<Uuid>,
    /// Bytes of data of each member by its label.
    pub(crate) lengths: Vec<u64>,
    pub(crate) due: Due,
}

/// What is to be done before the set is whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Its forming was interrupted.
    GoOn,
    /// It is formed; with a line for each disk that is not blank, and gives up what it held.
    Form(Vec<String>),
}

/// The label of a volume's members; none where they carry none.
pub(crate) fn set_label(volume: &VolumeConfig, uuid: Uuid) -> Option<SetLabel> {
    let (layout, chunk) = match &volume.layout {
        Layout::Single { .. } => return None,
        Layout::Concat { .. } => (LabelLayout::Concat, 0),
        Layout::Stripe { chunk_bytes, .. } => (LabelLayout::Stripe, *chunk_bytes),
    };
    let (uuid, name) = (uuid.into_bytes(), volume.name.clone());
    let count = volume.layout.disks().len() as u32;
    Some(SetLabel { uuid, name, layout, count, chunk, generation: 1 })
}

/// Judges what was found on the members: whether it is the set that the volume wants, or may be
/// made it, and then their identity, the lengths of their data, and what is due. `overwrite` gives
/// up what they hold. All is known of members whose labels are.
pub(super) fn judge(
    volume: &VolumeConfig,
    label: SetLabel,
    members: &[Member],
    found: &[Found],
    overwrite: bool,
) -> Result<Set, RunError> {
    let name = &volume.name;
    // A disk that left its set may be back or mended later. Disks that never were one are refused
    // to whoever would make them one, and so is an order that is not that of the set.
    let is_of_set = |found: &Found| match found {
        Found::Label(label) => match volume.uuid {
            Some(uuid) => label.set.uuid == uuid.into_bytes(),
            None => label.set.name == *name,
        },
        Found::Blank | Found::Foreign | Found::Damaged(_) => false,
    };
    let refuse = |refusal: Refusal| {
        let has_left = !is_of_set(&found[refusal.index]) && found.iter().any(is_of_set);
        let error = refused(volume, members, refusal);
        if has_left { error.transient() } else { error }
    };
    let verdict =
        assemble::judge(found, &label, volume.uuid.is_some(), overwrite).map_err(refuse)?;
    let parts: Vec<&Part> = members.iter().filter_map(|member| member.part.as_ref()).collect();
    let uuid = match verdict {
        Verdict::Assemble { uuid } => {
            let lengths: Vec<u64> = found.iter().map(labelled_length).collect();
            for (part, length) in parts.iter().zip(&lengths) {
                check_length(name, part, *length)?;
            }
            let uuid = Some(Uuid::from_bytes(uuid));
            return Ok(Set { label, uuid, lengths, due: Due::Nothing });
        }
        Verdict::Form { uuid } => uuid.map(Uuid::from_bytes),
    };
    if let Some(part) = parts.iter().find(|part| part.facts.read_only) {
        return Err(RunError::new(format!(
            "volume {name}: disk {}: expected one that can be labelled, seen one that may not be written",
            part.name
        ))
        .help("allow this user to write it")
        .key(disk_title(&part.name)));
    }
    let lengths = parts.iter().map(|part| data_length(part.facts.size.0)).collect();
    let held = parts.iter().zip(found).filter(|(_, found)| **found != Found::Blank);
    let due = match uuid {
        Some(_) => Due::GoOn,
        None => Due::Form(
            held.map(|(part, found)| {
                let disk = &part.name;
                format!("volume {name}: disk {disk}: --overwrite: what it held is lost: {found}")
            })
            .collect(),
        ),
    };
    Ok(Set { label, uuid: uuid.or(volume.uuid), lengths, due })
}

fn refused(volume: &VolumeConfig, members: &[Member], refusal: Refusal) -> RunError {
    let (name, expected) = (&volume.name, refusal.expected);
    let disk = &volume.layout.disks()[refusal.index];
    let (seen, help) = match members[refusal.index].is_unmade {
        true => (
            "no file".to_owned(),
            format!(
                "put its file back: create makes no member beside disks that carry labels; where all that they hold is given up, \
                 --overwrite {name} makes it and labels them anew"
            ),
        ),
        false => (
            refusal.seen,
            format!(
                "the order of `disks`, the layout and the chunk must be those that the volume was made with; \
                 `plateway check FILE --overwrite {name}` shows what is lost where all that its disks hold is given up, \
                 and serve or apply with --overwrite {name} does it"
            ),
        ),
    };
    RunError::new(format!("volume {name}: disk {disk}: expected {expected}, seen {seen}"))
        .help(help)
        .key(disk_title(disk))
}

/// What is where a label is on a member; of a volume without labels, whether there is one. `read`
/// gives so many bytes from an offset on, both whole pages.
pub(crate) fn examine<E: Display>(
    volume: &VolumeConfig,
    Part { name, facts, .. }: &Part,
    read: impl Fn(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<Found, RunError> {
    let bytes = facts.size.0;
    let is_single = matches!(volume.layout, Layout::Single { .. });
    let least = LABEL_AREA + u64::from(block::PAGE_SIZE);
    if bytes < least {
        if is_single {
            return Ok(Found::Blank);
        }
        return Err(RunError::new(format!(
            "volume {}: disk {name} has {:#}, expected at least {:#} for a label and data",
            volume.name,
            ByteCount(bytes),
            ByteCount(least)
        ))
        .key(disk_title(name)));
    }
    let read = |at, length| {
        read(at, length).map_err(|why| {
            RunError::new(format!("disk {name}: cannot read {length} bytes at {at}: {why}"))
                .transient()
                .key(disk_title(name))
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
    // A label alone tells that it is not to be served so.
    if is_single {
        return Ok(Found::Foreign);
    }
    // Whole pages, so that every disk can be asked.
    let end = bytes - bytes % u64::from(block::PAGE_SIZE);
    let first = 0..LABEL_AREA.min(end);
    let last = end.saturating_sub(LABEL_AREA).max(first.end)..end;
    for range in [first, last] {
        let mut at = range.start;
        while at < range.end {
            let length = SEARCH.min(range.end - at);
            if read(at, length)?.iter().any(|byte| *byte != 0) {
                return Ok(Found::Foreign);
            }
            at += length;
        }
    }
    Ok(Found::Blank)
}

/// Bytes of data that a member of so many bytes is labelled with.
fn data_length(bytes: u64) -> u64 {
    let page = u64::from(block::PAGE_SIZE);
    bytes.saturating_sub(LABEL_AREA) / page * page
}

fn labelled_length(found: &Found) -> u64 {
    match found {
        Found::Label(label) => label.data_length,
        Found::Blank | Found::Foreign | Found::Damaged(_) => 0,
    }
}

/// Whether a disk still holds all the data that its label promises.
fn check_length(volume: &str, part: &Part, labelled: u64) -> Result<(), RunError> {
    let (disk, bytes) = (&part.name, part.facts.size.0);
    match bytes.saturating_sub(LABEL_AREA) >= labelled {
        true => Ok(()),
        false => Err(RunError::new(format!(
            "volume {volume}: disk {disk} has shrunk: expected {:#}, seen {:#}",
            ByteCount(LABEL_AREA + labelled),
            ByteCount(bytes)
        ))
        .help("give the disk its former size back: what lies beyond its end is part of the volume")
        .key(disk_title(disk))
        .transient()),
    }
}

/// Labels all members, each through its volume, first as forming, then as complete.
pub(super) fn form(
    shards: &Shards,
    members: &[(&Part, VolumeId)],
    set: &Set,
) -> Result<(), RunError> {
    for complete in [false, true] {
        for (index, ((part, whole), length)) in members.iter().zip(&set.lengths).enumerate() {
            let label = Label {
                set: set.label.clone(),
                complete,
                index: index as u32,
                data_offset: LABEL_AREA,
                data_length: *length,
            };
            for at in LABEL_OFFSETS {
                shards.write(*whole, at, label.emit().to_vec()).map_err(|why| {
                    RunError::new(format!("disk {}: cannot write its label: {why}", part.name))
                })?;
            }
        }
        for (part, whole) in members {
            shards.flush(*whole, ACCESS_LIMIT).map_err(|why| {
                RunError::new(format!("disk {}: cannot flush its label: {why}", part.name))
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use contract::{DiskFacts, DiskId};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn part(bytes: u64, read_only: bool) -> Part {
        let facts = DiskFacts { read_only, ..DiskFacts::of_memory(ByteCount(bytes)) };
        Part { name: "a".to_owned(), disk: DiskId(0), facts }
    }

    fn stripe() -> VolumeConfig {
        let disks = vec!["a".to_owned()];
        let layout = Layout::Stripe { disks, chunk_bytes: 1 << 16 };
        VolumeConfig { name: "s".to_owned(), layout, block_size: 512, uuid: None, size_bytes: None }
    }

    #[test]
    fn a_member_that_cannot_be_labelled_or_is_not_whole_is_refused_by_name() {
        let set = set_label(&stripe(), Uuid::from_u128(7)).unwrap();
        let label = Label {
            set: set.clone(),
            complete: true,
            index: 0,
            data_offset: LABEL_AREA,
            data_length: 7 * MIB,
        };
        for (part, found, words) in [
            (
                part(8 * MIB, true),
                Found::Blank,
                "volume s: disk a: expected one that can be labelled, seen one that may not be \
                 written (allow this user to write it)",
            ),
            (
                part(4 * MIB, false),
                Found::Label(label),
                "volume s: disk a has shrunk: expected 8 MiB, seen 4 MiB (give the disk its former \
                 size back: what lies beyond its end is part of the volume)",
            ),
        ] {
            let member = Member {
                backing: None,
                part: Some(part),
                is_unmade: false,
                lost: None,
                is_served: false,
            };
            let error = judge(&stripe(), set.clone(), &[member], &[found], false).unwrap_err();
            assert_eq!(error.line(), words);
        }
    }

    #[test]
    fn a_label_that_cannot_be_read_is_told_with_its_place() {
        let read = |at, _| match at {
            0 => Ok(vec![0; LABEL_SIZE]),
            _ => Err("a medium error"),
        };
        let error = examine(&stripe(), &part(8 * MIB, false), read).unwrap_err();
        assert!(error.is_transient());
        assert_eq!(error.line(), "disk a: cannot read 4096 bytes at 65536: a medium error");
    }
}
