//! Vectors of copy lists and results, both ways, and lists that do not hold what they say.

use super::*;
use crate::scsi::ScsiStatus;

fn list() -> CopyList {
    let place = CopyPlace::Identification {
        device_type: 0,
        null: false,
        relative_initiator_port: 0,
        code_set: CodeSet::BINARY,
        association: Association::LOGICAL_UNIT,
        kind: DesignatorKind::NAA,
        designator: vec![0x31, 2, 3, 4, 5, 6, 7, 8],
        block_length: 512,
        pad: true,
    };
    let segment = CopySegment::Blocks {
        destination_counts: true,
        concatenate: false,
        source: 0,
        destination: 1,
        blocks: 0x800,
        source_lba: 1 << 33,
        destination_lba: 9,
    };
    CopyList {
        id: 5,
        id_usage: 2,
        priority: 1,
        places: vec![place, CopyPlace::Other(0xe2, [7; 31])],
        segments: vec![segment, CopySegment::Other(0x04, vec![1, 2, 3])],
        inline: vec![9, 9],
    }
}

#[test]
fn a_list_both_ways() {
    let bytes = list().emit();
    assert_eq!(bytes[..16], [5, 0x11, 0, 64, 0, 0, 0, 0, 0, 0, 0, 35, 0, 0, 0, 2]);
    assert_eq!(bytes[16..28], [0xe4, 0, 0, 0, 1, 3, 0, 8, 0x31, 2, 3, 4]);
    assert_eq!(bytes[44..48], [4, 0, 2, 0]);
    assert_eq!(bytes[80..92], [2, 2, 0, 0x18, 0, 0, 0, 1, 0, 0, 8, 0]);
    assert_eq!(bytes[92..108], [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    assert_eq!(CopyList::parse(&bytes), Ok(list()));
}

#[test]
fn a_list_that_does_not_hold_what_it_says_is_refused() {
    let bytes = list().emit();
    for (end, field) in [
        (15, "length"),
        (79, "CSCD DESCRIPTOR LIST LENGTH"),
        (114, "SEGMENT DESCRIPTOR LIST LENGTH"),
        (116, "INLINE DATA LENGTH"),
    ] {
        assert_eq!(CopyList::parse(&bytes[..end]).expect_err("cut").field, field, "{end} bytes");
    }
    let mut odd = bytes.clone();
    odd[3] = 63;
    assert_eq!(CopyList::parse(&odd).expect_err("odd").field, "CSCD DESCRIPTOR LIST LENGTH");
    let mut long = bytes;
    long[83] = 0xff;
    assert_eq!(CopyList::parse(&long).expect_err("long").field, "DESCRIPTOR LENGTH");
}

#[test]
fn limits_both_ways() {
    let limits = CopyOperatingParameters {
        needs_no_id: true,
        places_max: 2,
        segments_max: 0x100,
        list_max: 0x1000,
        segment_max: 1 << 20,
        total_copies_max: 4,
        copies_max: 3,
        granularity: 9,
        types: vec![0x02, 0xe4],
        ..CopyOperatingParameters::default()
    };
    let bytes = limits.emit();
    assert_eq!(bytes[..12], [0, 0, 0, 42, 1, 0, 0, 0, 0, 2, 1, 0]);
    assert_eq!(bytes[34..38], [0, 4, 3, 9]);
    assert_eq!(bytes[43..], [2, 0x02, 0xe4]);
    assert_eq!(CopyOperatingParameters::parse(&bytes), Ok(limits));
    assert!(CopyOperatingParameters::parse(&bytes[..45]).is_err());
    let status = CopyStatus {
        available: 8,
        status: CopyStatusCode::COMPLETED,
        segments: 1,
        units: 0xf1,
        transferred: 7,
    };
    assert_eq!(status.emit(), [0, 0, 0, 8, 1, 0, 1, 0xf1, 0, 0, 0, 7]);
    let details = CopyFailureDetails { status: ScsiStatus::CHECK_CONDITION, sense: vec![7; 18] };
    let bytes = details.emit();
    assert_eq!(
        (bytes.len(), &bytes[..5], &bytes[55..61]),
        (78, &[0, 0, 0, 74, 0][..], &[0, 2, 0, 0, 18, 7][..])
    );
    assert_eq!(CopyFailureDetails::parse(&bytes), Ok(details));
    assert!(CopyFailureDetails::parse(&bytes[..77]).is_err());
    assert!(CopyFailureDetails::parse(&bytes[..59]).is_err());
}
