//! What the bare target says of its disk: the SCSI commands that move no blocks.
//!
//! In: a command descriptor block and a unit's number. Out: the data of a good answer, or sense.
//! Every unit below [`UNITS`] is the same disk of 512-byte blocks; only unit 0 is reported, so that
//! an operating system that looks sees one. Units: bytes, blocks. Spec: SPC-4, SBC-3.

use super::pdu::{self, at};
use crate::bytes::put;

/// Bytes of a block.
pub(super) const BLOCK: usize = 512;
/// Units that answer.
pub(super) const UNITS: u16 = 16;

/// Operation codes.
pub(super) mod operation {
    pub(crate) const TEST_UNIT_READY: u8 = 0x00;
    pub(crate) const INQUIRY: u8 = 0x12;
    pub(crate) const MODE_SENSE_6: u8 = 0x1a;
    pub(crate) const READ_CAPACITY_10: u8 = 0x25;
    pub(crate) const READ_10: u8 = 0x28;
    pub(crate) const WRITE_10: u8 = 0x2a;
    pub(crate) const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub(crate) const READ_16: u8 = 0x88;
    pub(crate) const WRITE_16: u8 = 0x8a;
    pub(crate) const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub(crate) const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub(crate) const REPORT_LUNS: u8 = 0xa0;
    /// The service action of READ CAPACITY (16).
    pub(crate) const CAPACITY: u8 = 0x10;
}

/// Status codes.
pub(super) mod status {
    pub(crate) const GOOD: u8 = 0x00;
    pub(crate) const CHECK_CONDITION: u8 = 0x02;
}

/// Sense: key, additional code, its qualifier.
pub(super) type Sense = [u8; 3];
const INVALID_OPERATION: Sense = [5, 0x20, 0];
pub(super) const OUT_OF_RANGE: Sense = [5, 0x21, 0];
const INVALID_FIELD: Sense = [5, 0x24, 0];
pub(super) const NO_SUCH_UNIT: Sense = [5, 0x25, 0];

/// The data segment of a response with sense: its length, then fixed format.
pub(super) fn sense_data([key, code, qualifier]: Sense) -> [u8; 20] {
    let mut data = [0; 20];
    data[1] = 18;
    data[2] = 0x70;
    data[4] = key;
    data[9] = 10;
    data[14..16].copy_from_slice(&[code, qualifier]);
    data
}

/// The unit that eight bytes name, by peripheral device or by flat space addressing.
#[inline]
pub(super) fn unit(bhs: &[u8]) -> u16 {
    match pdu::u16_at(bhs, at::LUN) {
        peripheral @ ..=0x00ff => peripheral,
        flat @ 0x4000..=0x7fff => flat & 0x3fff,
        _ => u16::MAX,
    }
}

/// First block and number of blocks of a READ or WRITE.
#[inline]
pub(super) fn range(cdb: &[u8]) -> (u64, u32) {
    match cdb[0] {
        operation::READ_10 | operation::WRITE_10 => {
            (pdu::u32_at(cdb, 2).into(), pdu::u16_at(cdb, 7).into())
        }
        _ => (pdu::u64_at(cdb, 2), pdu::u32_at(cdb, 10)),
    }
}

/// Answers a command that moves no blocks; `capacity` is the disk's, in bytes.
pub(super) fn answer(cdb: &[u8], unit: u16, capacity: usize) -> Result<Vec<u8>, Sense> {
    let last = (capacity / BLOCK) as u64 - 1;
    match cdb[0] {
        operation::INQUIRY => {
            let allocated = usize::from(pdu::u16_at(cdb, 3));
            inquiry(cdb, unit).map(|data| cut(data, allocated))
        }
        operation::REPORT_LUNS => {
            let mut data = vec![0; 16];
            data[3] = 8;
            Ok(cut(data, pdu::u32_at(cdb, 6) as usize))
        }
        _ if unit >= UNITS => Err(NO_SUCH_UNIT),
        operation::TEST_UNIT_READY
        | operation::SYNCHRONIZE_CACHE_10
        | operation::SYNCHRONIZE_CACHE_16 => Ok(Vec::new()),
        operation::READ_CAPACITY_10 => {
            let mut data = vec![0; 8];
            pdu::put_u32(&mut data, 0, last.min(u64::from(u32::MAX)) as u32);
            pdu::put_u32(&mut data, 4, BLOCK as u32);
            Ok(data)
        }
        operation::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == operation::CAPACITY => {
            let mut data = vec![0; 32];
            put(&mut data, 0, &last.to_be_bytes());
            pdu::put_u32(&mut data, 8, BLOCK as u32);
            Ok(cut(data, pdu::u32_at(cdb, 10) as usize))
        }
        operation::MODE_SENSE_6 => mode(cdb[2]).map(|data| cut(data, usize::from(cdb[4]))),
        _ => Err(INVALID_OPERATION),
    }
}

fn cut(mut data: Vec<u8>, allocated: usize) -> Vec<u8> {
    data.truncate(allocated);
    data
}

/// INQUIRY: the standard data, or one of three vital product data pages.
fn inquiry(cdb: &[u8], unit: u16) -> Result<Vec<u8>, Sense> {
    // Of a unit that is not there: neither now nor ever, and of no type.
    let peripheral = if unit < UNITS { 0x00 } else { 0x7f };
    let page = |number: u8, body: &[u8]| {
        let mut data = vec![peripheral, number, 0, body.len() as u8];
        data.extend_from_slice(body);
        data
    };
    match (cdb[1] & 1, cdb[2]) {
        (0, 0) => {
            let mut data = vec![0; 36];
            // SPC-4, response data format 2, commands are queued.
            data[..8].copy_from_slice(&[peripheral, 0, 6, 0x02, 31, 0, 0, 0x02]);
            put(&mut data, 8, b"YARDSTCKPlateway ceiling1   ");
            Ok(data)
        }
        (1, 0x00) => Ok(page(0x00, &[0x00, 0x80, 0x83])),
        (1, 0x80) => Ok(page(0x80, format!("plateway-ceiling-{unit}").as_bytes())),
        // One designator: of the unit, locally assigned NAA, the unit's number at its end.
        (1, 0x83) => {
            let name = [0x01, 0x03, 0, 8, 0x30, 0x79, 0x61, 0x72, 0x64, 0, 0, unit as u8];
            Ok(page(0x83, &name))
        }
        _ => Err(INVALID_FIELD),
    }
}

/// MODE SENSE (6): no block descriptor; the caching page, without a write cache, if it is asked for.
fn mode(page: u8) -> Result<Vec<u8>, Sense> {
    let mut data = vec![3, 0, 0, 0];
    if [0x08, 0x3f].contains(&(page & 0x3f)) {
        let mut caching = [0; 20];
        caching[..2].copy_from_slice(&[0x08, 18]);
        data.extend_from_slice(&caching);
        data[0] = data.len() as u8 - 1;
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(bytes: &[u8]) -> Result<Vec<u8>, Sense> {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        answer(&cdb, 0, 1 << 20)
    }

    #[test]
    fn both_capacities_name_the_last_block() {
        assert_eq!(ask(&[0x25]).expect("good"), [0, 0, 7, 255, 0, 0, 2, 0]);
        let long = ask(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32]).expect("good");
        assert_eq!((pdu::u64_at(&long, 0), pdu::u32_at(&long, 8), long.len()), (2047, 512, 32));
    }

    #[test]
    fn no_answer_is_longer_than_what_was_allocated() {
        assert_eq!(ask(&[0x12, 0, 0, 0, 5]).expect("good").len(), 5);
        assert_eq!(ask(&[0x12, 0, 0, 0, 255]).expect("good").len(), 36);
        assert_eq!(ask(&[0x1a, 0, 0x3f, 0, 4]).expect("good"), [23, 0, 0, 0]);
        assert_eq!(ask(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 255]).expect("good").len(), 16);
    }

    #[test]
    fn every_page_in_the_list_can_be_read_and_no_other() {
        let list = ask(&[0x12, 1, 0, 0, 255]).expect("good");
        for page in &list[4..] {
            let data = ask(&[0x12, 1, *page, 0, 255]).expect("a page of the list");
            assert_eq!((data[1], usize::from(data[3])), (*page, data.len() - 4));
        }
        assert_eq!(ask(&[0x12, 1, 0xb0, 0, 255]), Err(INVALID_FIELD));
    }

    #[test]
    fn a_unit_beyond_the_last_is_only_known_to_be_absent() {
        let absent = |cdb: &[u8; 16]| answer(cdb, UNITS, 1 << 20);
        assert_eq!(absent(&[0; 16]), Err(NO_SUCH_UNIT));
        let mut cdb = [0; 16];
        (cdb[0], cdb[4]) = (operation::INQUIRY, 36);
        assert_eq!(absent(&cdb).expect("good")[0], 0x7f);
        assert_eq!(ask(&[0xff]), Err(INVALID_OPERATION));
    }

    #[test]
    fn a_unit_is_named_in_two_ways() {
        let mut bhs = [0; pdu::BHS_LEN];
        put(&mut bhs, at::LUN, &pdu::lun(9));
        assert_eq!(unit(&bhs), 9);
        put(&mut bhs, at::LUN, &[0x40, 9]);
        assert_eq!(unit(&bhs), 9);
        put(&mut bhs, at::LUN, &[0x80, 9]);
        assert!(unit(&bhs) >= UNITS);
    }
}
