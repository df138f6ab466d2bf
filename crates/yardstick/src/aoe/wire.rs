//! The bytes of AoE that the yardsticks need: where fields lie, requests read, heads written.
//!
//! Offsets count from the first byte of an untagged Ethernet frame. Everything is big-endian but
//! the LBA and the words of IDENTIFY. Errors: what is too short or no AoE request is `None`, and
//! then nobody answers. Spec: AoEr11; ATA-8 for IDENTIFY.

use anyhow::{Context as _, Result};

use crate::packet::Mac;

/// EtherType of AoE.
pub(super) const ETHER_TYPE: u16 = 0x88a2;
/// Bytes of a sector.
pub(super) const SECTOR: usize = 512;
/// Ethernet, AoE and ATA headers: data begin here.
pub(super) const ATA_HEAD: usize = 36;
/// Ethernet, AoE and Query/Config headers: the configuration string begins here.
pub(super) const CONFIG_HEAD: usize = 32;
/// The shortest frame, without its check sequence.
pub(super) const FRAME_MIN: usize = 60;

/// Flag of a response.
pub(super) const RESPONSE: u8 = 0x08;
/// Flag of an error.
pub(super) const ERROR: u8 = 0x04;
/// The ATA command has a 48-bit address.
const EXTENDED: u8 = 0x40;
/// The request brings data.
const WRITES: u8 = 0x01;

/// The AoE commands.
const COMMAND_ATA: u8 = 0;
const COMMAND_CONFIG: u8 = 1;

/// The ATA commands.
const READ: u8 = 0x20;
const READ_EXT: u8 = 0x24;
const WRITE: u8 = 0x30;
const WRITE_EXT: u8 = 0x34;
const IDENTIFY: u8 = 0xec;
/// Status: ready, nothing wrong.
const READY: u8 = 0x40;
/// Status bits of which none is set after success: BSY, DF, DRQ, ERR.
const FAILED: u8 = 0xa9;

/// Everybody.
pub(super) const BROADCAST: Mac = [0xff; 6];
/// A head with room for its padding.
pub(super) type Head = [u8; FRAME_MIN];

/// A shelf and a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Major.
    pub(crate) shelf: u16,
    /// Minor.
    pub(crate) slot: u8,
}

impl Address {
    /// Reads `7.0`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (shelf, slot) = text.split_once('.').context("an address looks like 7.0")?;
        let shelf = shelf.parse().with_context(|| format!("no shelf: {shelf:?}"))?;
        let slot = slot.parse().with_context(|| format!("no slot: {slot:?}"))?;
        Ok(Self { shelf, slot })
    }

    fn at(frame: &[u8]) -> Self {
        Self { shelf: u16::from_be_bytes([frame[16], frame[17]]), slot: frame[18] }
    }

    /// Whether a frame with this destination is for `own`.
    fn means(self, own: Self) -> bool {
        (self.shelf == own.shelf || self.shelf == 0xffff)
            && (self.slot == own.slot || self.slot == 0xff)
    }
}

/// What a frame asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Sectors from an address.
    Read { lba: u64, sectors: usize },
    /// Sectors to an address; their data begin at [`ATA_HEAD`].
    Write { lba: u64, sectors: usize },
    /// What the disk is.
    Identify,
    /// Any other ATA command.
    Other,
    /// The configuration.
    Config,
}

/// What a frame asks `own`, or nothing when it does not.
#[inline]
pub(super) fn request(frame: &[u8], own: Address) -> Option<Asks> {
    if frame.len() < CONFIG_HEAD
        || frame[12..14] != ETHER_TYPE.to_be_bytes()
        || frame[14] & RESPONSE != 0
        || !Address::at(frame).means(own)
    {
        return None;
    }
    match frame[19] {
        COMMAND_CONFIG => Some(Asks::Config),
        COMMAND_ATA if frame.len() >= ATA_HEAD => Some(ata(frame)),
        _ => None,
    }
}

#[inline]
fn ata(frame: &[u8]) -> Asks {
    let low = u32::from_le_bytes([frame[28], frame[29], frame[30], frame[31]]);
    let lba = if frame[24] & EXTENDED != 0 {
        u64::from(low) | u64::from(frame[32]) << 32 | u64::from(frame[33]) << 40
    } else {
        u64::from(low & 0x0fff_ffff)
    };
    let sectors = usize::from(frame[26]);
    match frame[27] {
        READ | READ_EXT => Asks::Read { lba, sectors },
        WRITE | WRITE_EXT => Asks::Write { lba, sectors },
        IDENTIFY => Asks::Identify,
        _ => Asks::Other,
    }
}

/// Turns the head of a request (at least [`ATA_HEAD`] bytes) into that of its answer.
#[inline]
fn answer(head: &mut Head, request: &[u8], own: Address, mac: Mac) {
    head[..6].copy_from_slice(&request[6..12]);
    head[6..12].copy_from_slice(&mac);
    head[12..24].copy_from_slice(&request[12..24]);
    head[14] = 0x10 | RESPONSE;
    head[15] = 0;
    head[16..18].copy_from_slice(&own.shelf.to_be_bytes());
    head[18] = own.slot;
}

/// The answer to an ATA command that went well, or that was aborted.
#[inline]
pub(super) fn ata_answer(head: &mut Head, request: &[u8], own: Address, mac: Mac, done: bool) {
    answer(head, request, own, mac);
    head[24..36].copy_from_slice(&request[24..36]);
    let (status, error) = if done { (READY, 0) } else { (READY | 0x01, 0x04) };
    head[25] = error;
    head[26] = 0;
    head[27] = status;
    head[36..].fill(0);
}

/// The answer to a query: `buffers` commands may be outstanding, of `sectors` each; no string.
pub(super) fn config_answer(
    head: &mut Head,
    request: &[u8],
    own: Address,
    mac: Mac,
    buffers: u16,
    sectors: u8,
) {
    answer(head, request, own, mac);
    head[24..].fill(0);
    head[24..26].copy_from_slice(&buffers.to_be_bytes());
    head[28] = sectors;
    head[29] = 0x10 | request[29] & 0x0f;
}

/// IDENTIFY DEVICE of a disk of that many sectors: 48-bit addresses and a size, little more.
pub(super) fn identify(sectors: u64) -> [u8; SECTOR] {
    let mut data = [0; SECTOR];
    let mut word = |at: usize, value: u16| {
        data[at * 2..at * 2 + 2].copy_from_slice(&value.to_le_bytes());
    };
    word(47, 0x8000);
    word(49, 0x0200);
    word(50, 0x4000);
    let short = sectors.min(0x0fff_ffff);
    word(60, short as u16);
    word(61, (short >> 16) as u16);
    word(83, 0x5400);
    word(84, 0x4000);
    word(86, 0x1400);
    word(87, 0x4000);
    word(93, 0x400b);
    for at in 0..4 {
        word(100 + at, (sectors >> (16 * at)) as u16);
    }
    data
}

/// The size in sectors that an IDENTIFY DEVICE names.
pub(super) fn identified(data: &[u8]) -> Option<u64> {
    let bytes = data.get(200..208)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The part of a request's head that is the same for all of a client's.
pub(super) fn request_head(target: Mac, own: Mac, address: Address) -> Head {
    let mut head = [0; FRAME_MIN];
    head[..6].copy_from_slice(&target);
    head[6..12].copy_from_slice(&own);
    head[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    head[14] = 0x10;
    head[16..18].copy_from_slice(&address.shelf.to_be_bytes());
    head[18] = address.slot;
    head
}

/// Makes `head` a query of the configuration.
pub(super) fn ask_config(head: &mut Head) {
    head[19] = COMMAND_CONFIG;
}

/// Makes `head` an IDENTIFY DEVICE.
pub(super) fn ask_identify(head: &mut Head, tag: u32) {
    head[19] = COMMAND_ATA;
    head[20..24].copy_from_slice(&tag.to_be_bytes());
    head[26] = 1;
    head[27] = IDENTIFY;
    head[31] = 0xa0;
}

/// Makes `head` a read or a write with a 48-bit address.
#[inline]
pub(super) fn ask_transfer(head: &mut Head, tag: u32, write: bool, lba: u64, sectors: u8) {
    head[20..24].copy_from_slice(&tag.to_be_bytes());
    head[24] = if write { EXTENDED | WRITES } else { EXTENDED };
    head[26] = sectors;
    head[27] = if write { WRITE_EXT } else { READ_EXT };
    head[28..34].copy_from_slice(&lba.to_le_bytes()[..6]);
}

/// A frame that answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer<'a> {
    /// The request's.
    pub(super) tag: u32,
    /// Neither the E flag nor a bad status.
    pub(super) success: bool,
    /// Who answers.
    pub(super) from: Mac,
    /// What answers, and the rest of its frame.
    pub(super) body: Body<'a>,
}

/// What an answer brings.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// Data and padding.
    Ata(&'a [u8]),
    /// Commands that may be outstanding, and sectors of each.
    Config { buffers: u16, sectors: u8 },
}

/// The answer in a frame, if it is one.
#[inline]
pub(super) fn response(frame: &[u8]) -> Option<Answer<'_>> {
    if frame.len() < CONFIG_HEAD
        || frame[12..14] != ETHER_TYPE.to_be_bytes()
        || frame[14] & RESPONSE == 0
    {
        return None;
    }
    let mut success = frame[14] & ERROR == 0;
    let body = match frame[19] {
        COMMAND_CONFIG => {
            Body::Config { buffers: u16::from_be_bytes([frame[24], frame[25]]), sectors: frame[28] }
        }
        COMMAND_ATA if frame.len() >= ATA_HEAD => {
            success &= frame[27] & FAILED == 0;
            Body::Ata(&frame[ATA_HEAD..])
        }
        _ => return None,
    };
    let tag = u32::from_be_bytes([frame[20], frame[21], frame[22], frame[23]]);
    Some(Answer { tag, success, from: frame[6..12].try_into().ok()?, body })
}

/// Sectors of the largest frame on a link of that MTU.
pub(super) fn sectors_of(mtu: usize) -> u8 {
    u8::try_from(mtu.saturating_sub(ATA_HEAD) / SECTOR).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Address = Address { shelf: 7, slot: 3 };
    const HERE: Mac = [2, 0, 0, 0, 0, 1];
    const THERE: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn addresses_are_read_as_shelf_and_slot() {
        assert_eq!(Address::parse("7.3").ok(), Some(OWN));
        for wrong in ["7", "7.", ".3", "70000.1", "7.256", "a.b"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_the_client_asks_is_what_the_responder_reads() {
        let mut head = request_head(THERE, HERE, OWN);
        let lba = 0x1234_5678_9abc;
        ask_transfer(&mut head, 0xdead_beef, false, lba, 17);
        assert_eq!(request(&head, OWN), Some(Asks::Read { lba, sectors: 17 }));
        ask_transfer(&mut head, 1, true, 5, 2);
        assert_eq!(request(&head, OWN), Some(Asks::Write { lba: 5, sectors: 2 }));
        ask_identify(&mut head, 9);
        assert_eq!(request(&head, OWN), Some(Asks::Identify));
        ask_config(&mut head);
        assert_eq!(request(&head, OWN), Some(Asks::Config));
    }

    #[test]
    fn short_addresses_lose_what_is_the_device_register() {
        let mut head = request_head(THERE, HERE, OWN);
        ask_transfer(&mut head, 1, false, 0xefff_ffff, 1);
        head[24] = 0;
        head[27] = READ;
        assert_eq!(request(&head, OWN), Some(Asks::Read { lba: 0x0fff_ffff, sectors: 1 }));
    }

    #[test]
    fn frames_for_others_answers_and_runts_are_left_alone() {
        let other = Address { shelf: 7, slot: 4 };
        let mut head = request_head(THERE, HERE, other);
        assert_eq!(request(&head, OWN), None);
        head[16..19].fill(0xff);
        assert!(request(&head, OWN).is_some());
        assert_eq!(request(&head[..CONFIG_HEAD - 1], OWN), None);
        head[14] |= RESPONSE;
        assert_eq!(request(&head, OWN), None);
    }

    #[test]
    fn answers_come_back_with_tag_address_and_outcome() {
        let mut asked = request_head(THERE, HERE, OWN);
        ask_transfer(&mut asked, 0xdead_beef, false, 1, 1);
        let mut head = [0xee; FRAME_MIN];
        ata_answer(&mut head, &asked, OWN, THERE, true);
        assert_eq!(head[..6], HERE);
        let seen = response(&head).expect("an answer");
        assert_eq!((seen.tag, seen.success, seen.from), (0xdead_beef, true, THERE));
        assert_eq!(seen.body, Body::Ata(&[0; 24]));
        ata_answer(&mut head, &asked, OWN, THERE, false);
        assert!(!response(&head).expect("an answer").success);
        assert_eq!(response(&asked), None);
    }

    #[test]
    fn a_query_tells_buffers_and_sectors_under_the_own_address() {
        let mut asked = request_head(BROADCAST, HERE, Address { shelf: 0xffff, slot: 0xff });
        ask_config(&mut asked);
        let mut head = [0xee; FRAME_MIN];
        config_answer(&mut head, &asked, OWN, THERE, 256, 17);
        assert_eq!(Address::at(&head), OWN);
        let seen = response(&head).expect("an answer");
        assert_eq!(seen.body, Body::Config { buffers: 256, sectors: 17 });
    }

    #[test]
    fn identify_names_the_size_in_both_ways() {
        let data = identify(0x1_0000_0001);
        assert_eq!(identified(&data), Some(0x1_0000_0001));
        assert_eq!(u32::from_le_bytes([data[120], data[121], data[122], data[123]]), 0x0fff_ffff);
        assert_eq!(identified(&data[..100]), None);
    }

    #[test]
    fn full_frames_follow_the_mtu() {
        assert_eq!([1500, 9000, 30, 65535].map(sectors_of), [2, 17, 0, 127]);
    }
}
