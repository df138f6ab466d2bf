//! What stands around an AoE message: Ethernet header and VLAN tag, checked against the link that the frame came on.

use contract::{InFrame, LinkFacts};
use wire::aoe::{Address, Flags, Header};
use wire::ethernet::{EtherType, MacAddress};

/// A frame that is for AoE on this link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'a> {
    /// The tag control information, if it had a tag.
    pub(crate) tag: Option<u16>,
    pub(crate) source: MacAddress,
    /// To all stations.
    pub(crate) is_broadcast: bool,
    pub(crate) header: Header,
    /// What stands behind the AoE header.
    pub(crate) body: &'a [u8],
}

/// Why a frame is not for AoE on this link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It ends before its AoE header does.
    Runt,
    /// Another EtherType.
    OtherType,
    /// Another VLAN, or tagged where the link is not.
    OtherVlan,
    /// To another station, or to a group that is not all.
    OtherStation,
    /// From a group address.
    GroupSource,
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Of a response or announcement, which initiators want to hear: whose it is, and to which tag. `None` for requests, and what is too short.
#[inline]
#[must_use]
pub fn answer_of(bytes: &[u8]) -> Option<(Address, u32)> {
    let is_tagged = bytes.len() > 18 && word_at(bytes, 12) == EtherType::VLAN.0;
    let at = if is_tagged { 18 } else { 14 };
    if !Flags(bytes.get(at)? & 0xf).is_response() {
        return None;
    }
    let header = Header::parse(&bytes[at..]).ok()?;
    Some((header.address, header.tag))
}

/// Opens a frame.
#[inline]
pub(crate) fn open<'a>(facts: &LinkFacts, frame: &InFrame<'a>) -> Result<Envelope<'a>, Misfit> {
    let bytes = frame.bytes;
    let Some(addresses) = bytes.first_chunk::<12>().filter(|_| bytes.len() >= 14 + Header::SIZE)
    else {
        return Err(Misfit::Runt);
    };
    let (mut at, mut tag, mut ether_type) = (14, frame.tag, word_at(bytes, 12));
    if ether_type == EtherType::VLAN.0 {
        if bytes.len() < 18 + Header::SIZE {
            return Err(Misfit::Runt);
        }
        (at, tag, ether_type) = (18, Some(word_at(bytes, 14)), word_at(bytes, 16));
    }
    if ether_type != EtherType::AOE.0 {
        return Err(Misfit::OtherType);
    }
    // A tag of VLAN 0 only tells a priority.
    if tag.map_or(0, |tag| tag & 0xfff) != facts.vlan.unwrap_or(0) {
        return Err(Misfit::OtherVlan);
    }
    let [a, b, c, d, e, f, source @ ..] = *addresses;
    let destination = [a, b, c, d, e, f];
    let is_broadcast = destination == MacAddress::BROADCAST.0;
    if destination != facts.mac && !is_broadcast {
        return Err(Misfit::OtherStation);
    }
    let source = MacAddress(source);
    if source.is_group() {
        return Err(Misfit::GroupSource);
    }
    let Ok(header) = Header::parse(&bytes[at..]) else { return Err(Misfit::Runt) };
    let body = &bytes[at + Header::SIZE..];
    Ok(Envelope { tag, source, is_broadcast, header, body })
}
