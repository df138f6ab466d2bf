//! Whether a volume can be assembled: do the labels on its members make the set that the
//! configuration names?
//!
//! In: what was found on each disk. Out: a [`Verdict`], or a refusal that names the disk, what was
//! expected and what was seen. Nothing is written here. Only blank disks are labelled, unless the
//! user says to overwrite.

use core::fmt;

use crate::label::{Label, LabelError, SetLabel};

/// What was found where a label should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Zeros, in the first and the last MiB.
    Blank,
    Label(Label),
    /// Data that are not a label.
    Foreign,
    /// Something that looks like a label and is none.
    Damaged(LabelError),
}

/// What to do with the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The labels match: assemble the volume under this UUID.
    Assemble {
        /// The volume's UUID.
        uuid: [u8; 16],
    },
    /// Label all members, then assemble. `uuid` is that of a set whose forming was interrupted, to
    /// be used again.
    Form {
        /// The UUID to use again, if any.
        uuid: Option<[u8; 16]>,
    },
}

/// Why a set is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which member, from 0.
    pub index: usize,
    /// What was expected there.
    pub expected: String,
    pub seen: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}: expected {}, seen {}", self.index, self.expected, self.seen)
    }
}

impl std::error::Error for Refusal {}

/// A UUID as people write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Judges what was found on the members of the set that the configuration wants (`wanted.uuid` is
/// looked at only if `uuid_is_given`; `wanted.generation` is not). `overwrite` takes disks that
/// hold something else.
pub fn judge(
    found: &[Found],
    wanted: &SetLabel,
    uuid_is_given: bool,
    overwrite: bool,
) -> Result<Verdict, Refusal> {
    let labels = || {
        found.iter().enumerate().filter_map(|(index, found)| match found {
            Found::Label(label) => Some((index, label)),
            _ => None,
        })
    };
    let uuid = match labels().next() {
        Some((_, label)) => label.set.uuid,
        None => wanted.uuid,
    };
    let is_ours = |index: usize, label: &Label| {
        is_member(label, index, wanted, &uuid) && (!uuid_is_given || uuid == wanted.uuid)
    };
    let whole = labels().count() == found.len();
    if whole && labels().all(|(index, label)| is_ours(index, label)) {
        // Forming may have been interrupted between the two steps: all are labelled, so it is only
        // completed.
        return Ok(match labels().all(|(_, label)| label.complete) {
            true => Verdict::Assemble { uuid },
            false => Verdict::Form { uuid: Some(uuid) },
        });
    }
    if overwrite {
        return Ok(Verdict::Form { uuid: None });
    }
    let expected = expectation(wanted, uuid_is_given.then_some(&wanted.uuid));
    for (index, found) in found.iter().enumerate() {
        match found {
            Found::Blank => continue,
            Found::Label(label) if is_ours(index, label) => continue,
            Found::Label(_) | Found::Foreign | Found::Damaged(_) => {}
        }
        let expected = format!("{expected}, index {index}, or a blank disk");
        return Err(Refusal { index, expected, seen: found.to_string() });
    }
    // What is left is labelled as ours or blank. A complete label means that the blank ones were
    // lost.
    if labels().any(|(_, label)| label.complete) {
        let index = found.iter().position(|found| *found == Found::Blank).unwrap_or(0);
        let expected = format!("volume {} index {index}", uuid_text(&uuid));
        return Err(Refusal { index, expected, seen: "a blank disk".to_owned() });
    }
    let interrupted = labels().next().is_some();
    Ok(Verdict::Form { uuid: interrupted.then_some(uuid) })
}

/// Whether a label says that its disk is member `index` of the set that is wanted, under this UUID.
pub fn is_member(label: &Label, index: usize, wanted: &SetLabel, uuid: &[u8; 16]) -> bool {
    label.set.uuid == *uuid
        && label.index as usize == index
        && label.set.layout == wanted.layout
        && label.set.count == wanted.count
        && label.set.chunk == wanted.chunk
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Blank => f.write_str("a blank disk"),
            Found::Label(label) => f.write_str(&describe(label)),
            Found::Foreign => f.write_str("other data"),
            Found::Damaged(error) => write!(f, "a damaged label ({error})"),
        }
    }
}

fn expectation(wanted: &SetLabel, uuid: Option<&[u8; 16]>) -> String {
    let set = match uuid {
        Some(uuid) => format!("volume {}", uuid_text(uuid)),
        None => "one volume".to_owned(),
    };
    format!("{set}, {} of {} with chunk {}", wanted.layout, wanted.count, wanted.chunk)
}

fn describe(label: &Label) -> String {
    format!(
        "volume {} ({:?}), {} of {} with chunk {}, index {}",
        uuid_text(&label.set.uuid),
        label.set.name,
        label.set.layout,
        label.set.count,
        label.set.chunk,
        label.index
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::tests::label;

    fn wanted() -> SetLabel {
        SetLabel { uuid: [9; 16], generation: 0, ..label(0).set }
    }

    fn set() -> Vec<Found> {
        (0..4).map(|index| Found::Label(label(index))).collect()
    }

    #[test]
    fn a_matching_set_is_assembled_under_its_own_uuid() {
        assert_eq!(judge(&set(), &wanted(), false, false), Ok(Verdict::Assemble { uuid: [7; 16] }));
    }

    #[test]
    fn blank_disks_are_labelled() {
        let blank = vec![Found::Blank; 4];
        assert_eq!(judge(&blank, &wanted(), false, false), Ok(Verdict::Form { uuid: None }));
    }

    #[test]
    fn swapped_disks_are_refused_with_expected_and_seen() {
        let mut found = set();
        found.swap(1, 2);
        let refusal = judge(&found, &wanted(), false, false).unwrap_err();
        assert_eq!(refusal.index, 1);
        assert!(refusal.to_string().contains("index 2"), "{refusal}");
    }

    #[test]
    fn a_lost_member_is_not_replaced_by_a_blank_disk() {
        let mut found = set();
        found[2] = Found::Blank;
        let refusal = judge(&found, &wanted(), false, false).unwrap_err();
        assert_eq!((refusal.index, refusal.seen.as_str()), (2, "a blank disk"));
    }

    #[test]
    fn an_interrupted_forming_goes_on_under_its_uuid() {
        let mut first = label(0);
        first.complete = false;
        let found = [Found::Label(first), Found::Blank, Found::Blank, Found::Blank];
        let verdict = judge(&found, &wanted(), false, false);
        assert_eq!(verdict, Ok(Verdict::Form { uuid: Some([7; 16]) }));
    }

    #[test]
    fn foreign_data_need_the_word_overwrite() {
        let mut found = vec![Found::Blank; 4];
        found[3] = Found::Foreign;
        assert_eq!(judge(&found, &wanted(), false, false).unwrap_err().seen, "other data");
        assert_eq!(judge(&found, &wanted(), false, true), Ok(Verdict::Form { uuid: None }));
    }

    #[test]
    fn another_chunk_is_another_set() {
        let other = SetLabel { chunk: 131_072, ..wanted() };
        assert!(judge(&set(), &other, false, false).is_err());
    }

    #[test]
    fn a_given_uuid_must_be_on_the_labels() {
        assert!(judge(&set(), &wanted(), true, false).is_err());
    }
}
