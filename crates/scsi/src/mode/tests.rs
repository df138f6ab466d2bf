//! MODE SENSE and MODE SELECT: pages, what may change, and lists that are refused.

use super::*;
use crate::fixtures::{facts, unit};
use crate::{Ordered, Work, judge, parameters, reply};

fn ask(cdb: &Cdb, unit: &LogicalUnit) -> Result<Vec<u8>, Sense> {
    assert_eq!(judge(cdb, unit), Ok(Work::Reply));
    reply(cdb, Some(unit), &facts(&[0]))
}

fn read(page: ModePageCode, control: u8, unit: &LogicalUnit) -> ModeData {
    let mut cdb = Cdb::mode_sense_6(page.0, false, 255);
    cdb.0[2] |= control << 6;
    ModeData::parse(&ask(&cdb, unit).expect("data"), ModeFormat::Six).expect("mode data")
}

fn control(unit: &LogicalUnit, values: u8) -> Control {
    let data = read(ModePageCode::CONTROL, values, unit);
    Control::parse(data.page(ModePageCode::CONTROL).expect("a page")).expect("a page")
}

/// Sends pages with the header of 6 bytes, or of 10.
fn send(pages: &[u8], unit: &LogicalUnit, format: ModeFormat) -> Result<Ordered, Sense> {
    let device = DeviceSpecific(0);
    let data = ModeData { medium_type: 0, device, descriptor: None, pages: pages.to_vec() };
    send_list(&data.emit(format), unit, format)
}

fn send_list(list: &[u8], unit: &LogicalUnit, format: ModeFormat) -> Result<Ordered, Sense> {
    let cdb = match format {
        ModeFormat::Six => Cdb::mode_select_6(list.len() as u8),
        ModeFormat::Ten => Cdb::mode_select_10(list.len() as u16),
    };
    assert_eq!(judge(&cdb, unit), Ok(Work::Parameters(list.len() as u32)));
    parameters(&cdb, list, unit)
}

fn with_mode(descriptor_sense: bool, software_write_protect: bool) -> LogicalUnit {
    LogicalUnit { mode: ModeState { descriptor_sense, software_write_protect }, ..unit() }
}

#[test]
fn all_pages_come_in_order_and_each_comes_alone() {
    let all = read(ModePageCode::ALL, 0, &unit());
    let codes: Vec<_> = all.pages().map(|page| page.expect("a page").code.0).collect();
    assert_eq!(codes, [0x01, 0x08, 0x0a, 0x1c]);
    for code in codes {
        let one = read(ModePageCode(code), 0, &unit());
        assert_eq!(one.page(ModePageCode(code)), all.page(ModePageCode(code)));
        assert_eq!(one.pages().count(), 1);
    }
    assert_eq!(ask(&Cdb::mode_sense_6(0x19, false, 255), &unit()), Err(Sense::invalid_field(2, 5)));
}

#[test]
fn every_pages_sub_pages_are_none() {
    let mut cdb = Cdb::mode_sense_6(0x3f, false, 255);
    cdb.0[3] = 0xff;
    assert_eq!(ask(&cdb, &unit()), ask(&Cdb::mode_sense_6(0x3f, false, 255), &unit()));
    cdb.0[3] = 1;
    assert_eq!(ask(&cdb, &unit()), Err(Sense::invalid_field(3, 7)));
}

#[test]
fn the_device_says_that_it_takes_fua_and_whether_it_takes_writes() {
    assert_eq!(read(ModePageCode::ALL, 0, &unit()).device.0, 0x10);
    let read_only = LogicalUnit { read_only: true, ..unit() };
    assert_eq!(read(ModePageCode::ALL, 0, &read_only).device.0, 0x90);
    assert_eq!(read(ModePageCode::ALL, 0, &with_mode(false, true)).device.0, 0x90);
}

#[test]
fn the_cache_is_what_the_volume_has() {
    for cache_volatile in [true, false] {
        let unit = LogicalUnit { cache_volatile, ..unit() };
        let data = read(ModePageCode::CACHING, 0, &unit);
        let page = Caching::parse(data.page(ModePageCode::CACHING).expect("a page"));
        assert_eq!(page.expect("a page").flags.write_cache(), cache_volatile);
    }
}

#[test]
fn a_block_descriptor_comes_unless_it_is_not_wanted() {
    let descriptor = BlockDescriptor { blocks: 1 << 21, block_length: 512, is_long: false };
    assert_eq!(read(ModePageCode::CACHING, 0, &unit()).descriptor, Some(descriptor));
    let without = ask(&Cdb::mode_sense_6(8, true, 255), &unit()).expect("data");
    assert_eq!((without[3], without.len()), (0, 24));
    let mut long = Cdb::mode_sense_10(8, false, 255);
    long.0[1] |= 0x10;
    let data = ModeData::parse(&ask(&long, &unit()).expect("data"), ModeFormat::Ten);
    let descriptor = BlockDescriptor { is_long: true, ..descriptor };
    assert_eq!(data.expect("mode data").descriptor, Some(descriptor));
}

#[test]
fn mode_data_are_cut_and_say_how_long_they_are() {
    let whole = ask(&Cdb::mode_sense_6(0x3f, false, 255), &unit()).expect("data");
    assert_eq!(usize::from(whole[0]) + 1, whole.len());
    assert_eq!(ask(&Cdb::mode_sense_6(0x3f, false, 4), &unit()).expect("data"), whole[..4]);
    let ten = ask(&Cdb::mode_sense_10(0x3f, false, 4), &unit()).expect("data");
    assert_eq!(usize::from(ten[1]) + 2, whole.len() + 4);
}

#[test]
fn each_nexus_has_a_task_set_of_its_own_and_simple_tasks_have_no_order() {
    let flags = control(&unit(), 0).flags;
    assert_eq!((flags.task_set_type(), flags.queue_algorithm()), (1, 1));
    assert_eq!((flags.queue_error(), flags.task_aborted_status()), (0, false));
}

#[test]
fn two_bits_can_be_changed_and_nothing_is_saved() {
    let mask = read(ModePageCode::ALL, 1, &unit());
    let bits = mask.pages().map(|page| page.expect("a page").bytes[2..].to_vec());
    let ones: u32 = bits.flatten().map(u8::count_ones).sum();
    assert_eq!(ones, 2);
    let page = control(&unit(), 1).flags;
    assert!(page.descriptor_sense() && page.software_write_protect());
    let changed = with_mode(true, true);
    assert!(control(&changed, 0).flags.descriptor_sense());
    assert!(!control(&changed, 2).flags.descriptor_sense(), "the default");
    let mut saved = Cdb::mode_sense_6(0x3f, false, 255);
    saved.0[2] |= 0xc0;
    let sense = ask(&saved, &unit()).expect_err("nothing is saved");
    assert_eq!(sense.code, AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED);
}

#[test]
fn a_host_that_sends_back_what_it_read_changes_nothing() {
    for format in [ModeFormat::Six, ModeFormat::Ten] {
        let cdb = match format {
            ModeFormat::Six => Cdb::mode_sense_6(0x3f, false, 255),
            ModeFormat::Ten => Cdb::mode_sense_10(0x3f, false, 255),
        };
        let list = ask(&cdb, &unit()).expect("data");
        assert_eq!(send_list(&list, &unit(), format), Ok(Ordered::Mode(unit().mode)));
    }
}

#[test]
fn d_sense_and_swp_are_changed() {
    let flags = control(&unit(), 0).flags;
    let sent = |flags| Control { flags, ..control(&unit(), 0) }.emit();
    for format in [ModeFormat::Six, ModeFormat::Ten] {
        for (descriptor_sense, software_write_protect) in [(true, false), (false, true)] {
            let flags = flags.with_descriptor_sense(descriptor_sense);
            let flags = flags.with_software_write_protect(software_write_protect);
            let mode = ModeState { descriptor_sense, software_write_protect };
            assert_eq!(send(&sent(flags), &unit(), format), Ok(Ordered::Mode(mode)));
        }
    }
    let cleared = send(&sent(flags), &with_mode(true, true), ModeFormat::Six);
    assert_eq!(cleared, Ok(Ordered::Mode(ModeState::default())));
}

#[test]
fn a_protected_unit_refuses_writes_until_the_protection_is_taken_away() {
    let sense = judge(&Cdb::write_10(0, 1, false), &with_mode(false, true)).expect_err("protected");
    assert_eq!(sense.code, AdditionalSense::SOFTWARE_WRITE_PROTECTED);
    assert!(judge(&Cdb::read_10(0, 1), &with_mode(false, true)).is_ok());
}

#[test]
fn what_cannot_be_changed_is_refused_where_it_stands() {
    let mut page = Caching::new();
    page.flags = CachingFlags(0);
    let refused = send(&page.emit(), &unit(), ModeFormat::Six);
    assert_eq!(refused, Err(Sense::invalid_parameter(4 + 2)), "WCE");
    let flags = control(&unit(), 0).flags.with_task_set_type(0);
    let page = Control { flags, ..Control::new() }.emit();
    assert_eq!(send(&page, &unit(), ModeFormat::Ten), Err(Sense::invalid_parameter(8 + 2)));
    let mut unknown = ErrorRecovery::new().emit();
    unknown[0] = 0x19;
    assert_eq!(send(&unknown, &unit(), ModeFormat::Six), Err(Sense::invalid_parameter(4)));
    let mut wrong_length = ErrorRecovery::new().emit();
    wrong_length[1] = 8;
    let refused = send(&wrong_length[..10], &unit(), ModeFormat::Six);
    assert_eq!(refused, Err(Sense::invalid_parameter(5)));
}

#[test]
fn the_unit_cannot_be_made_larger_or_its_blocks_other() {
    let current = BlockDescriptor { blocks: 1 << 21, block_length: 512, is_long: false };
    let sent = |descriptor| {
        let pages = Vec::new();
        let device = DeviceSpecific(0);
        let data = ModeData { medium_type: 0, device, descriptor: Some(descriptor), pages };
        send_list(&data.emit(ModeFormat::Ten), &unit(), ModeFormat::Ten)
    };
    for blocks in [0, 1 << 21, u32::MAX.into()] {
        assert_eq!(sent(BlockDescriptor { blocks, ..current }), Ok(Ordered::Mode(unit().mode)));
    }
    let less = BlockDescriptor { blocks: 1 << 20, ..current };
    assert_eq!(sent(less), Err(Sense::invalid_parameter(8)));
    let larger = BlockDescriptor { block_length: 4096, ..current };
    assert_eq!(sent(larger), Err(Sense::invalid_parameter(13)));
    let long = BlockDescriptor { block_length: 4096, is_long: true, ..current };
    assert_eq!(sent(long), Err(Sense::invalid_parameter(20)));
}

#[test]
fn a_list_that_is_cut_is_refused() {
    let list = ask(&Cdb::mode_sense_6(0x3f, false, 255), &unit()).expect("data");
    for length in [1, 3, 8, 13, 20, 30] {
        let refused = send_list(&list[..length], &unit(), ModeFormat::Six).expect_err("cut");
        assert_eq!(refused.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR, "{length} bytes");
    }
    assert_eq!(judge(&Cdb::mode_select_6(0), &unit()), Ok(Work::Nothing));
    assert_eq!(parameters(&Cdb::mode_select_6(0), &list, &unit()), Ok(Ordered::Nothing));
}

#[test]
fn pages_are_neither_saved_nor_the_vendors() {
    let mut cdb = Cdb::mode_select_6(24);
    cdb.0[1] |= 1;
    assert_eq!(judge(&cdb, &unit()), Err(Sense::invalid_field(1, 0)));
    cdb.0[1] = 0;
    assert_eq!(judge(&cdb, &unit()), Err(Sense::invalid_field(1, 4)));
    let sense = judge(&Cdb::mode_select_10(513), &unit()).expect_err("too long");
    assert_eq!(sense.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
}
