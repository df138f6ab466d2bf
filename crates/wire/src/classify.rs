//! By what the frames of a customer are told apart: each is of one class, for all or of none.
//!
//! In: a frame from its destination address on, out of which its outermost tag may have been taken. Out: a [`Class`] whose key says nothing to whoever
//! sorts by it, so that it knows no protocol. Units: bytes. Errors: what is cut off within its header
//! is of no class. Spec: IEEE 802.1Q (a tag with VLAN 0 is one of priority alone, so the frame is of no
//! VLAN), AoEr11 (shelf and slot).

use core::fmt;

use crate::aoe;
use crate::ethernet::{EtherType, MacAddress, Tagged, VlanTag};

/// By what frames are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classifier {
    /// The VLAN of the outermost tag.
    Vlan,
    /// The station that they are for. Those for all stations are for all.
    Destination,
    /// What stands behind the outermost tag.
    EtherType,
    /// Shelf and slot of AoE. Queries for more than one target are for all; other frames are of no
    /// class.
    Aoe,
}

/// A class of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassKey(u64);

impl fmt::Display for ClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl ClassKey {
    /// No key is below this one, ...
    pub const MIN: Self = Self(0);
    /// ... and none above this one.
    pub const MAX: Self = Self(u64::MAX);

    /// Frames of a VLAN; of none: 0.
    pub const fn vlan(vid: u16) -> Self {
        Self(vid as u64)
    }

    /// Frames for a station.
    pub const fn destination(MacAddress([a, b, c, d, e, f]): MacAddress) -> Self {
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Frames of a type.
    pub const fn ether_type(EtherType(number): EtherType) -> Self {
        Self(number as u64)
    }

    /// Frames of AoE for a target, and from it.
    pub const fn aoe(aoe::Address { shelf, slot }: aoe::Address) -> Self {
        Self((shelf as u64) << 8 | slot as u64)
    }
}

/// Where a frame belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    One(ClassKey),
    /// To all classes, once each.
    All,
    /// To none.
    Nowhere,
}

impl Classifier {
    /// The class of a frame, out of which `tag` was taken.
    #[inline]
    pub fn classify(self, tag: Option<VlanTag>, frame: &[u8]) -> Class {
        let Ok(parts) = Tagged::parse(frame) else { return Class::Nowhere };
        // One that was taken out stood before all else, and `rest` begins with what is left.
        let (outer, rest) = match tag {
            Some(tag) => (Some(tag), &frame[parts.addresses.len()..]),
            None => (parts.tag, parts.rest),
        };
        let Some((&[high, low], behind)) = rest.split_first_chunk() else { return Class::Nowhere };
        let ether_type = EtherType(u16::from_be_bytes([high, low]));
        match self {
            Self::Vlan => Class::One(ClassKey::vlan(outer.map_or(0, |tag| tag.control.vid()))),
            Self::Destination => {
                let [a, b, c, d, e, f, ..] = *parts.addresses;
                match MacAddress([a, b, c, d, e, f]) {
                    MacAddress::BROADCAST => Class::All,
                    one => Class::One(ClassKey::destination(one)),
                }
            }
            Self::EtherType => Class::One(ClassKey::ether_type(ether_type)),
            Self::Aoe if ether_type != EtherType::AOE => Class::Nowhere,
            Self::Aoe => match aoe::Header::parse(behind) {
                Err(_) => Class::Nowhere,
                Ok(header) if !header.address.is_wildcard() => {
                    Class::One(ClassKey::aoe(header.address))
                }
                Ok(header) if header.flags.is_response() => Class::Nowhere,
                Ok(_) => Class::All,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::TagControl;

    const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn frame(to: [u8; 6], behind: &[u8]) -> Vec<u8> {
        [&to[..], &[2; 6], behind, &[0; 8]].concat()
    }

    /// A frame of AoE, with these flags, shelf and slot.
    fn aoe(flags: u8, [high, low, slot]: [u8; 3]) -> Vec<u8> {
        frame(TO, &[0x88, 0xa2, 0x10 | flags, 0, high, low, slot, 0, 0, 0, 0, 0])
    }

    fn tag(ether_type: EtherType, vid: u16) -> VlanTag {
        VlanTag { ether_type, control: TagControl(0xa000).with_vid(vid) }
    }

    #[test]
    fn each_classifier_looks_at_one_thing() {
        let plain = frame(TO, &[8, 0]);
        for (classifier, key) in [
            (Classifier::Vlan, ClassKey::vlan(0)),
            (Classifier::Destination, ClassKey::destination(MacAddress(TO))),
            (Classifier::EtherType, ClassKey::ether_type(EtherType(0x800))),
        ] {
            assert_eq!(classifier.classify(None, &plain), Class::One(key), "{classifier:?}");
        }
        assert_eq!(Classifier::Aoe.classify(None, &plain), Class::Nowhere);
        let shelf = ClassKey::aoe(aoe::Address::new(0x102, 3));
        assert_eq!(Classifier::Aoe.classify(None, &aoe(0, [1, 2, 3])), Class::One(shelf));
        assert_eq!(Classifier::Aoe.classify(None, &aoe(8, [1, 2, 3])), Class::One(shelf));
    }

    #[test]
    fn a_tag_counts_whether_it_was_taken_out_or_not() {
        let inner = tag(EtherType::VLAN, 7);
        let whole = frame(TO, &[&inner.emit()[..], &[0x88, 0xa2, 0x10, 0, 0, 5, 1]].concat());
        let outer = tag(EtherType::SERVICE_VLAN, 9);
        for (taken, frame, vid) in [
            (None, &whole, 7),
            (Some(inner), &aoe(0, [0, 5, 1]), 7),
            (Some(outer), &whole, 9),
            (Some(tag(EtherType::VLAN, 0)), &aoe(0, [0, 5, 1]), 0),
        ] {
            let class = Classifier::Vlan.classify(taken, frame);
            assert_eq!(class, Class::One(ClassKey::vlan(vid)));
            // Two tags: what stands behind the outer one is a tag, and no AoE.
            let is_double = taken == Some(outer);
            let ether_type = if is_double { EtherType::VLAN } else { EtherType::AOE };
            let class = Classifier::EtherType.classify(taken, frame);
            assert_eq!(class, Class::One(ClassKey::ether_type(ether_type)));
            let class = Classifier::Aoe.classify(taken, frame);
            let one = Class::One(ClassKey::aoe(aoe::Address::new(5, 1)));
            assert_eq!(class, if is_double { Class::Nowhere } else { one });
        }
    }

    #[test]
    fn broadcasts_and_queries_for_several_targets_are_for_all() {
        let broadcast = frame([0xff; 6], &[8, 6]);
        assert_eq!(Classifier::Destination.classify(None, &broadcast), Class::All);
        let group = frame([1, 0, 0x5e, 0, 0, 1], &[8, 0]);
        let key = ClassKey::destination(MacAddress([1, 0, 0x5e, 0, 0, 1]));
        assert_eq!(Classifier::Destination.classify(None, &group), Class::One(key));
        for address in [[0xff, 0xff, 0xff], [0, 5, 0xff], [0xff, 0xff, 1]] {
            assert_eq!(Classifier::Aoe.classify(None, &aoe(0, address)), Class::All);
            // No target answers for several.
            assert_eq!(Classifier::Aoe.classify(None, &aoe(8, address)), Class::Nowhere);
        }
        // A broadcast for one target is for one.
        let mut one = aoe(0, [0, 5, 1]);
        one[..6].fill(0xff);
        let key = ClassKey::aoe(aoe::Address::new(5, 1));
        assert_eq!(Classifier::Aoe.classify(None, &one), Class::One(key));
    }

    #[test]
    fn what_is_cut_off_is_of_no_class() {
        let inner = tag(EtherType::VLAN, 7);
        let whole = frame(TO, &[&inner.emit()[..], &[0x88, 0xa2, 0x10, 0, 0, 5, 1]].concat());
        for classifier in
            [Classifier::Vlan, Classifier::Destination, Classifier::EtherType, Classifier::Aoe]
        {
            for length in 0..14 {
                assert_eq!(classifier.classify(None, &whole[..length]), Class::Nowhere);
                assert_eq!(classifier.classify(Some(inner), &whole[..length]), Class::Nowhere);
            }
            assert_ne!(classifier.classify(None, &whole), Class::Nowhere);
        }
    }
}
