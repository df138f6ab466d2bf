//! An AoE message, as it stands in a frame that is for us.

use contract::{OpenedFrame, Station};
use wire::aoe::{Address, Flags, Header};

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    /// Who sent it, and is answered.
    pub(crate) from: Station,
    /// To all stations.
    pub(crate) is_broadcast: bool,
    pub(crate) header: Header,
    /// What stands behind the AoE header.
    pub(crate) body: &'a [u8],
}

impl<'a> Received<'a> {
    /// The message of a frame of our EtherType; `None` if it ends before its header does.
    #[inline]
    pub(crate) fn parse(frame: &OpenedFrame<'a>) -> Option<Received<'a>> {
        let OpenedFrame { from, is_broadcast, payload, .. } = *frame;
        let header = Header::parse(payload).ok()?;
        Some(Received { from, is_broadcast, header, body: &payload[Header::SIZE..] })
    }
}

/// Of a response or announcement, which initiators want to hear: whose it is, and to which tag.
/// `None` for requests, and what is too short.
#[inline]
pub fn answer_of(frame: &OpenedFrame<'_>) -> Option<(Address, u32)> {
    if !Flags(frame.payload.first()? & 0xf).is_response() {
        return None;
    }
    let header = Header::parse(frame.payload).ok()?;
    Some((header.address, header.tag))
}
