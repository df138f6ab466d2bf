//! What is lowered in a frame on its way, so that those that it asks for fit: the sector count of
//! AoE's Config responses, as routers of IP lower the MSS of TCP.
//!
//! In: a frame from its destination address on, out of which its outermost tag may have been taken, and
//! how large a frame may be. Out: which byte of it is another. Whoever carries frames of others knows
//! no more of it. Only good responses of the version that everybody speaks are touched, a count is
//! never raised, and 0, which leaves it to the initiator, stays.
//! Units: bytes. Errors: what is cut off within its headers, or behind more than two tags, stays as it
//! is. Spec: AoEr11 (query config information).

use crate::aoe::{AtaArgument, Command, ConfigArgument, Header, SECTOR, VERSION};
use crate::ethernet::{EtherType, HEADER_SIZE, VLAN_TAG_SIZE, VlanTag};
use crate::field::be16;

/// Tags that are looked behind.
const TAGS_MAX: usize = 2;
/// Where the sector count is, behind the header of the frame.
const SECTOR_COUNT: usize = Header::SIZE + 4;
/// Bytes of a frame, with all of its tags, from the first to the last that may be another.
pub const HEAD_MAX: usize = HEADER_SIZE + TAGS_MAX * VLAN_TAG_SIZE + SECTOR_COUNT + 1;

/// What is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clamp {
    /// How many sectors a target of AoE says that its frames may carry.
    AoeSectors,
}

/// A byte of a frame that is to be another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// Its place in the frame, without a tag that was taken out.
    pub at: usize,
    pub value: u8,
}

impl Clamp {
    /// What is to be another in a frame, out of which `tag` was taken. `fits` says how large the
    /// largest frame may be, without a check sequence and with its tags, and is asked only where there
    /// may be something to lower; `None`: that is not known.
    #[inline]
    pub fn lower(
        self,
        tag: Option<VlanTag>,
        frame: &[u8],
        fits: impl FnOnce() -> Option<u32>,
    ) -> Option<Lowered> {
        let Self::AoeSectors = self;
        let (mut begins, mut tags) = (HEADER_SIZE, usize::from(tag.is_some()));
        while begins <= frame.len() {
            match EtherType(be16(frame, begins - 2)) {
                EtherType::AOE => return lower_sectors(begins, tags, frame, fits),
                EtherType::VLAN | EtherType::SERVICE_VLAN if tags < TAGS_MAX => tags += 1,
                _ => return None,
            }
            begins += VLAN_TAG_SIZE;
        }
        None
    }
}

/// Lowers the count of a message of AoE that begins there, in a frame with so many tags.
fn lower_sectors(
    begins: usize,
    tags: usize,
    frame: &[u8],
    fits: impl FnOnce() -> Option<u32>,
) -> Option<Lowered> {
    let message = frame.get(begins..)?;
    let header = Header::parse(message).ok()?;
    let is_good = header.flags.is_response() && !header.flags.is_error();
    if !is_good || header.version != VERSION || header.command != Command::CONFIG {
        return None;
    }
    let ConfigArgument { sector_count, .. } =
        ConfigArgument::parse(&message[Header::SIZE..]).ok()?;
    let around = HEADER_SIZE + tags * VLAN_TAG_SIZE + Header::SIZE + AtaArgument::SIZE;
    let sectors = (fits()? as usize).saturating_sub(around) / SECTOR;
    // Where not even one fits, a smaller count than the target's helps nobody.
    let is_lower = sectors > 0 && sectors < usize::from(sector_count);
    is_lower.then_some(Lowered { at: begins + SECTOR_COUNT, value: sectors as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aoe::{Address, ConfigCommand, ErrorCode};
    use crate::ethernet::TagControl;

    fn tag(ether_type: EtherType) -> VlanTag {
        VlanTag { ether_type, control: TagControl(0).with_vid(7) }
    }

    /// A Config response with so many sectors and a string, behind these tags.
    fn response(tags: &[VlanTag], sectors: u8) -> Vec<u8> {
        let request = Header::request(Address::ANY, Command::CONFIG, 0x1234);
        message(tags, &request.response(Address::new(7, 0)), sectors)
    }

    fn message(tags: &[VlanTag], header: &Header, sectors: u8) -> Vec<u8> {
        let mut argument = ConfigArgument::request(ConfigCommand::READ, 4);
        argument.sector_count = sectors;
        let tags: Vec<u8> = tags.iter().flat_map(VlanTag::emit).collect();
        let parts = [
            &[2; 12][..],
            &tags,
            &EtherType::AOE.0.to_be_bytes(),
            &header.emit(),
            &argument.emit(),
            b"name",
            &[0; 24],
        ];
        parts.concat()
    }

    fn lower(frame: &[u8], fits: u32) -> Option<Lowered> {
        Clamp::AoeSectors.lower(None, frame, || Some(fits))
    }

    #[test]
    fn a_count_is_lowered_to_what_fits_and_never_raised() {
        // 14 Ethernet, 10 AoE and 12 ATA around sectors.
        let at = 28;
        for (count, fits, lowered) in [
            (17, 36 + 17 * 512, None),
            (17, 36 + 17 * 512 - 1, Some(16)),
            (17, 1514, Some(2)),
            (17, 36 + 512, Some(1)),
            (17, 36 + 511, None),
            (17, 0, None),
            (2, 1514, None),
            (1, 1514, None),
            (0, 1514, None),
            (255, 66_000, Some(128)),
            (255, u32::MAX, None),
        ] {
            let seen = lower(&response(&[], count), fits);
            let wanted = lowered.map(|value| Lowered { at, value });
            assert_eq!(seen, wanted, "{count} sectors, {fits} bytes");
        }
        assert_eq!(Clamp::AoeSectors.lower(None, &response(&[], 17), || None), None);
    }

    #[test]
    fn tags_count_as_bytes_wherever_they_are() {
        let (outer, inner) = (tag(EtherType::SERVICE_VLAN), tag(EtherType::VLAN));
        let fits = 36 + 4 + 2 * 512;
        for (taken, tags, lowered) in [
            (None, &[][..], Lowered { at: 28, value: 2 }),
            (Some(inner), &[], Lowered { at: 28, value: 2 }),
            (None, &[inner], Lowered { at: 32, value: 2 }),
            (Some(outer), &[inner], Lowered { at: 32, value: 1 }),
            (None, &[outer, inner], Lowered { at: 36, value: 1 }),
        ] {
            let frame = response(tags, 17);
            let seen = Clamp::AoeSectors.lower(taken, &frame, || Some(fits));
            assert_eq!(seen, Some(lowered), "{taken:?} {tags:?}");
            assert!(seen.is_none_or(|seen| seen.at < HEAD_MAX && frame[seen.at] == 17));
        }
        let three = response(&[outer, outer, inner], 17);
        assert_eq!(lower(&three, 1514), None);
        let two = response(&[outer, inner], 17);
        assert_eq!(Clamp::AoeSectors.lower(Some(outer), &two, || Some(1514)), None);
    }

    #[test]
    fn nothing_but_good_config_responses_is_touched() {
        let request = Header::request(Address::new(7, 0), Command::CONFIG, 1);
        let answer = request.response(Address::new(7, 0));
        assert!(lower(&message(&[], &answer, 17), 1514).is_some());
        for other in [
            request,
            answer.refused(ErrorCode::CONFIG_PRESENT),
            Header { version: 2, ..answer },
            Header { command: Command::ATA, ..answer },
            Header { command: Command::MAC_MASK, ..answer },
            Header { command: Command::RESERVE, ..answer },
        ] {
            let fits = || panic!("{other} is no Config response");
            let seen = Clamp::AoeSectors.lower(None, &message(&[], &other, 17), fits);
            assert_eq!(seen, None);
        }
        let mut ip = response(&[], 17);
        ip[12..14].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        assert_eq!(lower(&ip, 1514), None);
    }

    #[test]
    fn what_is_cut_off_within_its_headers_stays_as_it_is() {
        for tags in [&[][..], &[tag(EtherType::VLAN)]] {
            let frame = response(tags, 17);
            let whole = 14 + 4 * tags.len() + 18;
            for length in 0..frame.len() {
                let is_lowered = lower(&frame[..length], 1514).is_some();
                assert_eq!(is_lowered, length >= whole, "{length} bytes");
            }
        }
    }
}
