//! A received frame, taken apart: Ethernet header and VLAN tag read once, and checked against the
//! link that the frame came on, before any protocol sees it.

use block::IdMap;
use wire::ethernet::{EtherType, HEADER_SIZE, MacAddress, TagControl, VLAN_TAG_SIZE, VlanTag};

use super::{InFrame, LinkFacts, LinkId, Station};
use crate::counters;

/// A frame that is for this station on this link. Lent for one call.
#[derive(Clone, Copy, Debug)]
pub struct OpenedFrame<'a> {
    /// Where it came from, which is where an answer goes.
    pub from: Station,
    /// To all stations.
    pub is_broadcast: bool,
    pub ether_type: EtherType,
    /// What stands behind the EtherType, padding included.
    pub payload: &'a [u8],
}

/// Why a frame is not for this station on this link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// It ends before its header does.
    Runt,
    /// Of another VLAN, tagged where the link is not, with a tag that is not of 802.1Q, or with two
    /// tags.
    OtherVlan,
    /// To another station (an interface that hears all), or to a group that is not all.
    OtherStation,
    /// From a group address, which no station has.
    GroupSource,
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Opens a frame that came on a link of which this is known. What its EtherType means is looked at
/// by whoever takes it.
#[inline]
pub fn open<'a>(facts: &LinkFacts, frame: &InFrame<'a>) -> Result<OpenedFrame<'a>, Misfit> {
    let InFrame { link, mut tag, bytes, .. } = *frame;
    let Some((header, mut payload)) = bytes.split_first_chunk::<HEADER_SIZE>() else {
        return Err(Misfit::Runt);
    };
    let mut ether_type = EtherType(word_at(header, 12));
    if ether_type == EtherType::VLAN || ether_type == EtherType::SERVICE_VLAN {
        let Some((inside, behind)) = payload.split_first_chunk::<VLAN_TAG_SIZE>() else {
            return Err(Misfit::Runt);
        };
        if tag.is_some() {
            return Err(Misfit::OtherVlan);
        }
        tag = Some(VlanTag { ether_type, control: TagControl(word_at(inside, 0)) });
        (ether_type, payload) = (EtherType(word_at(inside, 2)), behind);
    }
    let control = match tag {
        None => TagControl(0),
        Some(VlanTag { ether_type: EtherType::VLAN, control }) => control,
        // The numbers of 802.1ad are those of other VLANs.
        Some(_) => return Err(Misfit::OtherVlan),
    };
    // A tag of VLAN 0 only tells a priority.
    if control.vid() != facts.vlan.unwrap_or(0) {
        return Err(Misfit::OtherVlan);
    }
    let [a, b, c, d, e, f, source @ .., _, _] = *header;
    let destination = [a, b, c, d, e, f];
    let is_broadcast = destination == MacAddress::BROADCAST.0;
    if destination != facts.mac && !is_broadcast {
        return Err(Misfit::OtherStation);
    }
    let mac = MacAddress(source);
    if mac.is_group() {
        return Err(Misfit::GroupSource);
    }
    let from = Station { link, mac, priority: control.priority() as u8 };
    Ok(OpenedFrame { from, is_broadcast, ether_type, payload })
}

counters! {
    /// Frames that nobody took, by reason.
    pub struct Misfits {
        /// Ended before their header did.
        runt: Frames,
        /// Of another VLAN.
        other_vlan: Frames,
        /// To another station.
        other_station: Frames,
        /// From a group address.
        group_source: Frames,
        /// Of a type that nobody on the link takes.
        other_type: Frames,
        /// Of a link that is not up.
        link_down: Frames,
    }
}

/// The links that are up: what is known of each, and what came on them for nobody.
#[derive(Debug, Default)]
pub struct Links {
    facts: IdMap<LinkFacts>,
    pub misfits: Misfits,
}

impl Links {
    /// A link is up or not what it was; `None`: it is down.
    pub fn set(&mut self, link: LinkId, facts: Option<LinkFacts>) {
        match facts {
            Some(facts) => self.facts.insert(link.0, facts),
            None => self.facts.remove(link.0),
        };
    }

    /// What is known of a link; `None` while it is down.
    #[inline]
    pub fn get(&self, link: LinkId) -> Option<&LinkFacts> {
        self.facts.get(link.0)
    }

    /// Those that are up, by number.
    pub fn iter(&self) -> impl Iterator<Item = (LinkId, &LinkFacts)> {
        self.facts.iter().map(|(link, facts)| (LinkId(link), facts))
    }

    /// Opens a frame; `None` and counted if it is not for us.
    #[inline]
    pub fn open<'a>(&mut self, frame: &InFrame<'a>) -> Option<OpenedFrame<'a>> {
        let Some(facts) = self.facts.get(frame.link.0) else {
            self.misfits.link_down += 1;
            return None;
        };
        match open(facts, frame) {
            Ok(frame) => Some(frame),
            Err(misfit) => {
                self.misfits.count(misfit);
                None
            }
        }
    }
}

impl Misfits {
    #[cold]
    fn count(&mut self, misfit: Misfit) {
        *match misfit {
            Misfit::Runt => &mut self.runt,
            Misfit::OtherVlan => &mut self.other_vlan,
            Misfit::OtherStation => &mut self.other_station,
            Misfit::GroupSource => &mut self.group_source,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const PLAIN: LinkFacts =
        LinkFacts { mac: OWN, mtu: 1500, vlan: None, ring_frames: 64, is_shared: true };
    const TAGGED: LinkFacts = LinkFacts { vlan: Some(100), ..PLAIN };
    const MPLS: [u8; 2] = [0x88, 0x47];

    fn frame(to: [u8; 6], middle: &[u8]) -> Vec<u8> {
        [&to[..], &[2, 0, 0, 0, 0, 1], middle, &[0x18, 7, 8]].concat()
    }

    fn opened<'a>(
        facts: &LinkFacts,
        tag: Option<u16>,
        bytes: &'a [u8],
    ) -> Result<OpenedFrame<'a>, Misfit> {
        open(facts, &InFrame::new(LinkId(4), tag.map(vlan), bytes))
    }

    fn vlan(control: u16) -> VlanTag {
        VlanTag { ether_type: EtherType::VLAN, control: TagControl(control) }
    }

    #[test]
    fn a_frame_is_taken_apart() {
        let bytes = frame(OWN, &MPLS);
        let frame = opened(&PLAIN, None, &bytes).unwrap();
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        assert_eq!(frame.from, Station { link: LinkId(4), mac, priority: 0 });
        assert_eq!((frame.is_broadcast, frame.ether_type), (false, EtherType::MPLS));
        assert_eq!(frame.payload, [0x18, 7, 8]);
        assert_eq!(opened(&PLAIN, None, &bytes[..14]).unwrap().payload, [0; 0]);
        assert_eq!(opened(&PLAIN, None, &bytes[..13]).unwrap_err(), Misfit::Runt);
    }

    #[test]
    fn own_and_broadcast_frames_of_stations_are_for_us() {
        let to =
            |to: [u8; 6]| opened(&PLAIN, None, &frame(to, &MPLS)).map(|seen| seen.is_broadcast);
        assert_eq!((to(OWN), to([0xff; 6])), (Ok(false), Ok(true)));
        assert_eq!(to([2, 0, 0, 0, 0, 8]), Err(Misfit::OtherStation));
        assert_eq!(to([1, 0, 0, 0, 0, 9]), Err(Misfit::OtherStation), "a group");
        let mut forged = frame(OWN, &MPLS);
        forged[6] |= 1;
        assert_eq!(opened(&PLAIN, None, &forged).unwrap_err(), Misfit::GroupSource);
    }

    #[test]
    fn a_tag_is_read_in_the_frame_or_beside_it_and_must_be_the_link_s() {
        let plain = frame(OWN, &MPLS);
        let inside = frame(OWN, &[0x81, 0, 0xa0, 100, 0x88, 0x47]);
        for (tag, bytes) in [(Some(0xa064), &plain), (None, &inside)] {
            let seen = opened(&TAGGED, tag, bytes).unwrap();
            assert_eq!((seen.from.priority, seen.ether_type), (5, EtherType::MPLS));
            assert_eq!(seen.payload, [0x18, 7, 8]);
            assert_eq!(opened(&PLAIN, tag, bytes).unwrap_err(), Misfit::OtherVlan);
        }
        assert_eq!(opened(&TAGGED, None, &plain).unwrap_err(), Misfit::OtherVlan);
        assert_eq!(opened(&TAGGED, Some(101), &plain).unwrap_err(), Misfit::OtherVlan);
        assert_eq!(opened(&TAGGED, Some(100), &inside).unwrap_err(), Misfit::OtherVlan, "two");
        assert_eq!(opened(&PLAIN, None, &inside[..17]).unwrap_err(), Misfit::Runt);
        // Only a priority, which a link without VLAN takes too.
        assert_eq!(opened(&PLAIN, Some(0xe000), &plain).unwrap().from.priority, 7);
    }

    #[test]
    fn a_tag_of_802_1ad_is_of_another_vlan_whatever_its_number() {
        let plain = frame(OWN, &MPLS);
        let inside = |control: u8| frame(OWN, &[0x88, 0xa8, 0, control, 0x88, 0x47]);
        for (facts, number) in [(&TAGGED, 100), (&PLAIN, 0)] {
            let ether_type = EtherType::SERVICE_VLAN;
            let tag = Some(VlanTag { ether_type, control: TagControl(number.into()) });
            let beside = open(facts, &InFrame::new(LinkId(4), tag, &plain));
            assert_eq!(beside.unwrap_err(), Misfit::OtherVlan);
            assert_eq!(opened(facts, None, &inside(number)).unwrap_err(), Misfit::OtherVlan);
        }
        assert_eq!(opened(&PLAIN, None, &inside(0)[..17]).unwrap_err(), Misfit::Runt);
        // Around the link's own tag, too.
        let both = inside(100);
        assert_eq!(opened(&TAGGED, Some(100), &both).unwrap_err(), Misfit::OtherVlan);
    }

    #[test]
    fn what_nobody_takes_is_counted() {
        let mut links = Links::default();
        links.set(LinkId(4), Some(PLAIN));
        let bytes = frame(OWN, &MPLS);
        let mut come = |link, tag: Option<u16>, bytes: &[u8]| {
            let frame = InFrame::new(LinkId(link), tag.map(vlan), bytes);
            links.open(&frame).is_some()
        };
        assert!(come(4, None, &bytes));
        assert!(!come(4, None, &bytes[..9]) && !come(4, Some(9), &bytes));
        assert!(!come(3, None, &bytes) && !come(5, None, &bytes));
        let Misfits { runt, other_vlan, link_down, .. } = links.misfits;
        assert_eq!((runt, other_vlan, link_down), (1, 1, 2));
        assert_eq!(links.iter().collect::<Vec<_>>(), [(LinkId(4), &PLAIN)]);
        links.set(LinkId(4), None);
        assert_eq!((links.get(LinkId(4)), links.iter().count()), (None, 0));
    }
}
