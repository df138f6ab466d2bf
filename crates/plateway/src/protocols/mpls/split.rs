//! `split` of `[[circuit]]` and `class` of `[[pseudowire]]`: a circuit whose frames go several ways,
//! each by what its class of frames goes by. Both together are the FEC.
//!
//! A class is written as what tells its frames apart is usually written. Errors are pushed as
//! mistakes at what was written.

use std::fmt;

use toml::Spanned;
use wire::aoe;
use wire::classify::{ClassKey, Classifier};
use wire::ethernet::{EtherType, MacAddress};

use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::Resolver;

/// The ways to split a circuit, in the order of the documentation, each with an example of a class.
const SPLIT: [(&str, Classifier, &str); 4] = [
    ("vlan", Classifier::Vlan, "class = \"7\", a VLAN, or \"none\" for frames without a tag"),
    (
        "mac",
        Classifier::Destination,
        "class = \"02:00:00:00:00:07\", the station that frames are for",
    ),
    ("ethertype", Classifier::EtherType, "class = \"0x88a2\", what frames carry"),
    ("aoe", Classifier::Aoe, "class = \"7.0\", the shelf and slot of a target"),
];
/// The words for them.
pub(crate) const SPLITS: [&str; 4] = [SPLIT[0].0, SPLIT[1].0, SPLIT[2].0, SPLIT[3].0];
pub(super) const SPLIT_WORD: &str = "\"vlan\", \"mac\", \"ethertype\" or \"aoe\"";
pub(super) const CLASS_WORD: &str = "a class in quotes, such as \"7\"";

fn row(classifier: Classifier) -> &'static (&'static str, Classifier, &'static str) {
    SPLIT.iter().find(|(_, one, _)| *one == classifier).expect("each is in the list")
}

/// The word for it.
pub(super) fn split_word(split: Option<Classifier>) -> &'static str {
    split.map_or("none", |split| row(split).0)
}

/// A class of a split circuit's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClassConfig {
    /// 0 has frames without a tag.
    Vlan(u16),
    Destination(MacAddress),
    EtherType(u16),
    Aoe(aoe::Address),
}

impl ClassConfig {
    fn parse(split: Classifier, text: &str) -> Option<Self> {
        Some(match split {
            Classifier::Vlan if text == "none" => Self::Vlan(0),
            Classifier::Vlan => {
                Self::Vlan(text.parse().ok().filter(|vid| (1..=4094).contains(vid))?)
            }
            Classifier::Destination => {
                // What is for all goes to each class.
                let mac = text.parse().ok().filter(|mac| *mac != MacAddress::BROADCAST);
                Self::Destination(mac?)
            }
            Classifier::EtherType => {
                let number = u16::from_str_radix(text.strip_prefix("0x")?, 16).ok();
                // Less is the length of a frame of IEEE 802.3.
                Self::EtherType(number.filter(|number| *number >= 0x600)?)
            }
            Classifier::Aoe => Self::Aoe(text.parse().ok()?),
        })
    }

    /// What the router knows it by.
    pub(crate) fn key(self) -> ClassKey {
        match self {
            Self::Vlan(vid) => ClassKey::vlan(vid),
            Self::Destination(mac) => ClassKey::destination(mac),
            Self::EtherType(number) => ClassKey::ether_type(EtherType(number)),
            Self::Aoe(address) => ClassKey::aoe(address),
        }
    }
}

impl fmt::Display for ClassConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vlan(0) => f.write_str("none"),
            Self::Vlan(vid) => vid.fmt(f),
            Self::Destination(mac) => mac.fmt(f),
            Self::EtherType(number) => write!(f, "{number:#06x}"),
            Self::Aoe(address) => address.fmt(f),
        }
    }
}

impl Resolver<'_> {
    pub(super) fn split(&mut self, written: &Spanned<String>) -> Option<Classifier> {
        let found = SPLIT.iter().find(|(word, ..)| word == written.get_ref());
        if found.is_none() {
            self.unknown_word(written, "split", &SPLITS);
        }
        found.map(|(_, split, _)| *split)
    }

    /// The class of what goes by a circuit, which is split so. `None`: it is wrong, or missing.
    pub(super) fn class(
        &mut self,
        written: Option<&Spanned<String>>,
        (circuit, split): (Option<&str>, Option<Classifier>),
        (at, title): (&Span, &str),
    ) -> Option<Option<ClassConfig>> {
        match (written, split) {
            (None, None) => Some(None),
            (None, Some(split)) => {
                self.missing(at, title, "class", row(split).2);
                None
            }
            (Some(written), None) => {
                let (message, help) = match circuit {
                    Some(circuit) => (
                        format!(
                            "class: circuit {circuit} is not split, and all its frames go one way"
                        ),
                        "split = \"vlan\", \"mac\", \"ethertype\" or \"aoe\" in its [[circuit]]",
                    ),
                    None => (
                        "class: what ends in this process has one kind of frames, its own"
                            .to_owned(),
                        "take it away, or name a circuit that is split",
                    ),
                };
                self.push(Mistake::error(written.span(), message).help(help));
                None
            }
            (Some(written), Some(split)) => {
                let class = ClassConfig::parse(split, written.get_ref());
                if class.is_none() {
                    let seen = written.get_ref();
                    let message = format!("class: expected {}, seen {seen:?}", row(split).2);
                    self.error(written.span(), message);
                }
                class.map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_written_as_usual_and_read_back_as_they_are_shown() {
        for (split, good, wrong) in [
            (Classifier::Vlan, &["7", "4094", "none"][..], &["0", "4095", "", "x", "-1"][..]),
            (
                Classifier::Destination,
                &["02:00:00:00:00:07", "01:00:5e:00:00:01"],
                &["ff:ff:ff:ff:ff:ff", "7", ""],
            ),
            (Classifier::EtherType, &["0x88a2", "0x0800"], &["88a2", "0x5ff", "0x", "0x10000"]),
            (Classifier::Aoe, &["7.0", "65534.254"], &["7", "65535.0", "7.255", "*.*"]),
        ] {
            for text in good {
                assert_eq!(ClassConfig::parse(split, text).unwrap().to_string(), *text);
            }
            for text in wrong {
                assert_eq!(ClassConfig::parse(split, text), None, "{split:?}: {text}");
            }
        }
    }
}
