//! Vectors of both headers and the pages, and lists that are cut.

use super::*;

fn data() -> ModeData {
    let flags = CachingFlags(0).with_write_cache(true);
    let mut pages = Caching { flags, ..Caching::new() }.emit().to_vec();
    let flags = ControlFlags(0).with_descriptor_sense(true).with_software_write_protect(true);
    pages.extend(Control { flags, ..Control::new() }.emit());
    ModeData {
        medium_type: 0,
        device: DeviceSpecific(0).with_dpo_fua(true),
        descriptor: Some(BlockDescriptor { blocks: 1 << 33, block_length: 4096, is_long: false }),
        pages,
    }
}

#[test]
fn the_header_of_6_bytes_both_ways() {
    let bytes = data().emit(ModeFormat::Six);
    assert_eq!(bytes[..4], [43, 0, 0x10, 8]);
    assert_eq!(bytes[4..12], [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0]);
    assert_eq!(bytes[12..15], [0x08, 0x12, 0x04]);
    assert_eq!(bytes[32..37], [0x0a, 0x0a, 0x04, 0, 0x08]);
    let read = ModeData::parse(&bytes, ModeFormat::Six).expect("what was written");
    let descriptor = BlockDescriptor { blocks: 0xffff_ffff, block_length: 4096, is_long: false };
    assert_eq!(read, ModeData { descriptor: Some(descriptor), ..data() });
}

#[test]
fn the_header_of_10_bytes_both_ways() {
    let bytes = data().emit(ModeFormat::Ten);
    assert_eq!(bytes[..8], [0, 46, 0, 0x10, 0, 0, 0, 8]);
    let long = BlockDescriptor { blocks: 1 << 33, block_length: 512, is_long: true };
    let data = ModeData { descriptor: Some(long), ..data() };
    let bytes = data.emit(ModeFormat::Ten);
    assert_eq!(bytes[..8], [0, 54, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(bytes[8..24], [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(ModeData::parse(&bytes, ModeFormat::Ten), Ok(data.clone()));
    let without = ModeData { descriptor: None, ..data };
    assert_eq!(ModeData::parse(&without.emit(ModeFormat::Ten), ModeFormat::Ten), Ok(without));
}

#[test]
fn pages_are_found_by_their_code() {
    let data = data();
    let control = data.page(ModePageCode::CONTROL).expect("it is there");
    let control = Control::parse(control).expect("a control page");
    assert!(control.flags.descriptor_sense() && control.flags.software_write_protect());
    assert_eq!(data.page(ModePageCode::ERROR_RECOVERY), None);
    let codes: Vec<_> = data.pages().map(|page| page.map(|page| (page.code.0, page.at))).collect();
    assert_eq!(codes, [Ok((8, 0)), Ok((0x0a, 20))]);
}

#[test]
fn a_page_that_is_cut_ends_the_list() {
    let mut data = data();
    data.pages.truncate(25);
    assert_eq!(data.pages().count(), 2);
    assert!(data.pages().last().expect("the second").is_err());
    data.pages = vec![0x4a, 0x01, 0, 2, 1, 2, 0x0a];
    let pages: Vec<_> = data.pages().collect();
    let first = pages[0].expect("a subpage");
    assert_eq!((first.code, first.subpage), (ModePageCode::CONTROL, Some(1)));
    assert!(pages[1].is_err() && pages.len() == 2);
}

#[test]
fn a_list_that_does_not_hold_its_descriptor_is_refused() {
    for bytes in [&[0, 0, 0][..], &[0, 0, 0, 8, 0, 0], &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]] {
        assert!(ModeData::parse(bytes, ModeFormat::Six).is_err(), "{bytes:?}");
    }
    assert!(
        ModeData::parse(&[0, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0], ModeFormat::Ten)
            .is_err()
    );
}

#[test]
fn what_was_said_may_be_less_than_what_came() {
    assert_eq!(ModeFormat::Six.said(&[3, 0, 0, 0, 9, 9]), [3, 0, 0, 0]);
    assert_eq!(ModeFormat::Ten.said(&[0, 6, 0, 0, 0, 0, 0, 0, 9]), [0, 6, 0, 0, 0, 0, 0, 0]);
    assert!(ModeFormat::Six.said(&[]).is_empty() && ModeFormat::Ten.said(&[0]).is_empty());
}

#[test]
fn every_page_has_its_code_and_length() {
    assert_eq!(ErrorRecovery::new().emit()[..2], [0x01, 0x0a]);
    assert_eq!(Caching::new().emit()[..2], [0x08, 0x12]);
    assert_eq!(Control::new().emit()[..2], [0x0a, 0x0a]);
    assert_eq!(InformationalExceptions::new().emit()[..2], [0x1c, 0x0a]);
}
