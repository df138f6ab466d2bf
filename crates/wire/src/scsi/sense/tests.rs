//! Vectors of both formats, and data that are cut.

use super::*;

#[test]
fn the_fixed_format_both_ways() {
    let sense = Sense::invalid_field(1, 7);
    let bytes = sense.emit(false);
    let expected = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcf, 0, 1];
    assert_eq!(bytes, expected);
    assert_eq!(Sense::parse(&bytes), Ok(sense));
}

#[test]
fn the_descriptor_format_both_ways() {
    let sense = Sense::invalid_parameter(12).with_information(1 << 40);
    let bytes = sense.emit(true);
    assert_eq!(bytes[..8], [0x72, 5, 0x26, 0, 0, 0, 0, 20]);
    assert_eq!(bytes[8..20], [0, 10, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[20..], [2, 6, 0, 0, 0x80, 0, 12, 0]);
    assert_eq!(Sense::parse(&bytes), Ok(sense));
    assert_eq!(bytes.len(), Sense::SIZE_MAX - 12);
    let plain = Sense::attention(AdditionalSense::POWER_ON);
    assert_eq!(plain.emit(true), [0x72, 6, 0x29, 1, 0, 0, 0, 0]);
}

#[test]
fn a_copy_that_was_aborted_says_at_which_segment() {
    let sense = Sense::copy_aborted(AdditionalSense::UNREACHABLE_COPY_TARGET, 0x0102);
    let fixed = [0x70, 0, 0xa, 0, 0, 0, 0, 10, 0, 0, 1, 2, 8, 4, 0, 0, 0, 0];
    assert_eq!(sense.emit(false), fixed);
    let descriptors = [0x72, 0xa, 8, 4, 0, 0, 0, 12, 1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
    assert_eq!(sense.emit(true), descriptors);
    assert_eq!([false, true].map(|format| Sense::parse(&sense.emit(format))), [Ok(sense); 2]);
    let expected = "copy aborted: unreachable copy target (08/04), segment 258";
    assert_eq!(sense.to_string(), expected);
    // Of other keys these bytes mean something else.
    let mut bytes = sense.emit(false);
    bytes[2] = 5;
    assert_eq!(Sense::parse(&bytes).expect("an illegal request").segment, None);
}

#[test]
fn information_that_does_not_fit_is_left_out_of_the_fixed_format() {
    let code = AdditionalSense::MISCOMPARE_DURING_VERIFY;
    let small = Sense::new(SenseKey::MISCOMPARE, code).with_information(0x0102);
    assert_eq!(small.emit(false)[..7], [0xf0, 0, 0x0e, 0, 0, 1, 2]);
    assert_eq!(Sense::parse(&small.emit(false)), Ok(small));
    let large = small.with_information(1 << 32);
    assert_eq!(large.emit(false)[..7], [0x70, 0, 0x0e, 0, 0, 0, 0]);
}

#[test]
fn data_that_are_cut_say_what_is_there() {
    let sense = Sense::invalid_field(1, 7).with_information(3);
    let bytes = sense.emit(false);
    let key = Sense::parse(&bytes[..8]).expect("a key").key;
    assert_eq!(key, SenseKey::ILLEGAL_REQUEST);
    assert_eq!(Sense::parse(&bytes[..14]).expect("a code").code, sense.code);
    assert!(Sense::parse(&bytes[..7]).is_err() && Sense::parse(&[]).is_err());
    let bytes = sense.emit(true);
    let cut = Sense::parse(&bytes[..19]).expect("a header");
    assert_eq!((cut.code, cut.information), (sense.code, None));
    assert!(Sense::parse(&[0x72, 5]).is_err());
}

#[test]
fn deferred_errors_are_read_and_other_codes_refused() {
    let mut bytes = Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE).emit(false);
    bytes[0] = 0x71;
    assert_eq!(Sense::parse(&bytes).expect("deferred").code, AdditionalSense::LBA_OUT_OF_RANGE);
    bytes[0] = 0x7f;
    assert_eq!(Sense::parse(&bytes).expect_err("vendor specific").field, "RESPONSE CODE");
}

#[test]
fn a_pointer_is_an_illegal_requests() {
    // Of NOT READY the same bytes are a progress indication.
    let mut bytes = Sense::invalid_field(1, 7).emit(false);
    bytes[2] = 2;
    assert_eq!(Sense::parse(&bytes).expect("not ready").pointer, None);
}

#[test]
fn a_line_says_what_is_wrong() {
    assert_eq!(
        Sense::invalid_field(1, 7).to_string(),
        "illegal request: invalid field in CDB (24/00), command byte 1 bit 7"
    );
    let code = AdditionalSense::MISCOMPARE_DURING_VERIFY;
    assert_eq!(
        Sense::new(SenseKey::MISCOMPARE, code).with_information(16).to_string(),
        "miscompare: miscompare during verify operation (1d/00), information 0x10"
    );
    assert_eq!(
        Sense::new(SenseKey(9), AdditionalSense(0x8001)).to_string(),
        "vendor specific: code 80/01"
    );
    assert_eq!(Sense::NONE.to_string(), "no sense: no additional sense information (00/00)");
}
