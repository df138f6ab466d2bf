//! Labels as a disk may hold them, and whether a volume of up to four disks is assembled.
//!
//! The input is cut into what the disks hold; a field of a good label may be changed and its
//! checksum made right again, so that more than the checksum is searched.
#![no_main]

use block::checksum::crc32c;
use libfuzzer_sys::fuzz_target;
use plateway_fuzz::Choices;
use volume::assemble::{self, Found, Verdict};
use volume::label::{LABEL_AREA, LABEL_SIZE, Label, LabelError, LabelLayout, SetLabel};

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let way = choices.byte();
    let wanted = set(choices.byte());
    let found: Vec<Found> = (0..1 + way % 4).map(|index| found(index, &mut choices)).collect();
    let (given, overwrite) = (way & 0x40 != 0, way & 0x80 != 0);
    let labels = || {
        found.iter().filter_map(|found| match found {
            Found::Label(label) => Some(label),
            _ => None,
        })
    };
    match assemble::judge(&found, &wanted, given, overwrite) {
        Ok(Verdict::Assemble { uuid }) => {
            assert_eq!(labels().count(), found.len(), "a volume of unlabelled disks");
            for (index, label) in labels().enumerate() {
                assert!(label.complete && label.set.uuid == uuid && label.index as usize == index);
                assert_eq!(label.set.layout, wanted.layout);
                assert_eq!((label.set.count, label.set.chunk), (wanted.count, wanted.chunk));
            }
            assert!(!given || uuid == wanted.uuid, "another volume than the one that was named");
        }
        Ok(Verdict::Form { uuid }) => {
            if !overwrite {
                let safe = |found: &Found| match found {
                    Found::Blank => true,
                    Found::Label(label) => Some(label.set.uuid) == uuid,
                    Found::Foreign | Found::Damaged(_) => false,
                };
                assert!(found.iter().all(safe), "a disk with data is labelled: {found:?}");
                let complete = labels().filter(|label| label.complete).count();
                let blank = found.contains(&Found::Blank);
                assert!(complete == 0 || !blank, "a lost member is replaced: {found:?}");
            }
        }
        Err(refusal) => {
            assert!(refusal.index < found.len(), "{refusal}");
            assert!(!refusal.to_string().is_empty());
        }
    }
});

/// A set, mostly the same one.
fn set(way: u8) -> SetLabel {
    SetLabel {
        uuid: [if way & 1 == 0 { 7 } else { 8 }; 16],
        name: if way & 2 == 0 { "v0".into() } else { "ü".repeat(40) },
        layout: if way & 4 == 0 { LabelLayout::Stripe } else { LabelLayout::Concat },
        count: if way & 8 == 0 { 4 } else { 2 },
        chunk: if way & 16 == 0 { 65_536 } else { 0 },
        generation: u64::from(way >> 5),
    }
}

fn found(index: u8, choices: &mut Choices<'_>) -> Found {
    let way = choices.byte();
    match way % 8 {
        0 => return Found::Blank,
        1 => return Found::Foreign,
        _ => {}
    }
    let shift = if way & 0x40 == 0 { 0 } else { 1 };
    let good = Label {
        set: set(choices.byte()),
        complete: way & 0x20 == 0,
        index: u32::from(index + shift),
        data_offset: LABEL_AREA,
        data_length: 1 << 30,
    };
    let mut copies = [[0; LABEL_SIZE]; 2];
    for copy in &mut copies {
        *copy = if good.index < good.set.count { good.emit() } else { [0; LABEL_SIZE] };
        let changes = choices.byte();
        for _ in 0..changes % 4 {
            let at = usize::from(choices.byte()) % 144;
            copy[at] = choices.byte();
        }
        if changes & 0x80 == 0 {
            let sum = crc32c(&copy[..LABEL_SIZE - 4]);
            copy[LABEL_SIZE - 4..].copy_from_slice(&sum.to_le_bytes());
        }
        check(copy);
    }
    match Label::best(&copies) {
        Ok(label) => {
            let parsed = copies.iter().any(|copy| Label::parse(copy).as_ref() == Ok(&label));
            assert!(parsed, "believes what neither copy says");
            Found::Label(label)
        }
        Err(LabelError::NoLabel) => Found::Blank,
        Err(error) => Found::Damaged(error),
    }
}

/// What parses survives being written again, unless its name was no text.
fn check(bytes: &[u8; LABEL_SIZE]) {
    match Label::parse(bytes) {
        Ok(label) => {
            assert!(label.index < label.set.count);
            let again = Label::parse(&label.emit()).expect("reads what it wrote");
            let replaced = label.set.name.contains(char::REPLACEMENT_CHARACTER);
            if !replaced {
                assert_eq!(again, label, "written and read again");
            }
        }
        Err(error) => drop(format!("{error} {error:?}")),
    }
}
