//! What tables of routers have in common: labels, the next router, and how long a quarantine is.
//!
//! Units: labels as numbers, times in seconds or milliseconds as their word says. Errors are pushed
//! as mistakes at what was written. Spec: RFC 3032 (labels, and those that are special).

use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use mpls::limits::LABELS_MAX;
use mpls::{Labels, Via};
use reactor::{is_of_a_host, is_of_a_link};
use toml::Spanned;
use wire::ethernet::MacAddress;
use wire::mpls::Label;

use crate::config::file::Low;
use crate::config::link::Links;
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::{Names, Resolver};

pub(super) const ADDRESS: &str = "an IP address in quotes, such as \"192.0.2.2\"";
pub(super) const LABEL: &str = "a label, 16 to 1048575";
pub(super) const LABELS: &str = "a list of labels such as [100]";
pub(super) const LINK: &str = "the name of a link in quotes";
pub(super) const MAC: &str = "a MAC address in quotes, such as \"02:00:00:00:00:02\"";
pub(super) const NEXT_HOP: &str = "an address in quotes, of IP such as \"10.0.1.2\", or a MAC address such as \"02:00:00:00:00:02\"";
pub(super) const ROUTER: &str = "the name of a router in quotes";
pub(super) const YES: &str = "true or false";

/// The next router of a path, and the labels that it wants on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The link towards it, which is a port.
    pub(crate) link: String,
    /// Which one there; `None` where the link is in UDP, and leads to one router.
    pub(crate) next_hop: Option<Via>,
    /// From the top; none where it is the last one.
    pub(crate) labels: Labels,
}

impl Hop {
    /// What a change tells.
    pub(super) fn values(&self) -> [(&'static str, String); 3] {
        let labels = shown(&self.labels);
        let next_hop = self.next_hop.map_or_else(|| "none".to_owned(), |via| via.to_string());
        [("link", self.link.clone()), ("next_hop", next_hop), ("labels", labels)]
    }

    /// As a file has it.
    pub(super) fn text(&self) -> String {
        let (link, labels) = (crate::config::text::quoted(&self.link), shown(&self.labels));
        let next_hop = self.next_hop.map(|via| format!("next_hop = \"{via}\"\n"));
        format!("link = {link}\n{}labels = {labels}\n", next_hop.unwrap_or_default())
    }

    /// Where it leads, in a few words.
    pub(super) fn where_to(&self) -> String {
        match self.next_hop {
            Some(via) => format!("to {via} on {}", self.link),
            None => format!("by {}", self.link),
        }
    }
}

/// Labels as a file has them.
pub(crate) fn shown(labels: &Labels) -> String {
    let labels: Vec<String> =
        labels.as_slice().iter().map(|label| label.get().to_string()).collect();
    format!("[{}]", labels.join(", "))
}

/// The units of times, in microseconds.
const UNITS: [(&str, u64); 4] = [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000)];
/// The longest quarantine, and wait before frames move back: longer than anybody waits for them.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// A time as people write it.
fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(Duration::from_micros(number.parse::<u64>().ok()?.checked_mul(*factor)?))
}

/// A time as [`parse_time`] reads it.
pub(crate) fn time(time: Duration) -> String {
    match (time.as_secs(), time.subsec_micros()) {
        (seconds, 0) => format!("{seconds}s"),
        (_, micros) if micros % 1000 == 0 => format!("{}ms", time.as_millis()),
        _ => format!("{}us", time.as_micros()),
    }
}

impl Resolver<'_> {
    /// A time of a range.
    pub(super) fn time(
        &mut self,
        written: &Spanned<String>,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let seen = written.get_ref();
        let found = parse_time(seen).filter(|time| range.contains(time));
        if found.is_none() {
            let (least, most) = (time(*range.start()), time(*range.end()));
            let message = format!(
                "{key}: expected a time such as \"60s\" or \"500ms\", {least} to {most}; seen {seen:?}"
            );
            self.error(written.span(), message);
        }
        found
    }

    /// A label that somebody may have: no special one.
    pub(super) fn label(&mut self, written: &Low<i64>, key: &str) -> Option<Label> {
        let written = written.as_ref()?;
        let label = number(written);
        if let Some(label) = label.filter(|label| !label.is_special()) {
            return Some(label);
        }
        let (least, most) = (Label::FIRST_ORDINARY.get(), Label::MAX.get());
        let null = if key == "tunnel" { ", or 0 or 2 for explicit null" } else { "" };
        let seen = written.get_ref();
        let message = format!("{key}: expected {least} to {most}{null}, seen {seen}");
        let help = label.map(|_| "0 to 15 mean the same on every router, and are nobody's".into());
        self.push(Mistake::error(written.span(), message).meant(help));
        None
    }

    /// The labels that a packet gets on top.
    pub(super) fn labels(&mut self, written: &Spanned<Vec<Spanned<i64>>>) -> Option<Labels> {
        let (list, mut labels) = (written.get_ref(), Vec::new());
        if list.len() > LABELS_MAX {
            let message = format!("labels: expected at most {LABELS_MAX}, seen {}", list.len());
            self.error(written.span(), message);
            return None;
        }
        for one in list {
            match number(one).map(|label| (label, Labels::new(&[label]))) {
                Some((label, Ok(_))) => labels.push(label),
                Some((label, Err(_))) => {
                    let message = format!(
                        "labels: expected 16 to 1048575, or 0 or 2 for explicit null, seen {}",
                        label.get()
                    );
                    let help = (label == Label::IMPLICIT_NULL).then(|| {
                        "3 is implicit null, which is never sent: leave it out (labels = [])".into()
                    });
                    self.push(Mistake::error(one.span(), message).meant(help));
                }
                None => {
                    let message =
                        format!("labels: expected at most 1048575, seen {}", one.get_ref());
                    self.error(one.span(), message);
                }
            }
        }
        (labels.len() == list.len()).then(|| Labels::new(&labels).expect("each was looked at"))
    }

    /// The address of one station.
    pub(super) fn one_station(
        &mut self,
        written: &Spanned<String>,
        key: &str,
    ) -> Option<MacAddress> {
        let seen = written.get_ref();
        let mac = seen.parse::<MacAddress>().ok();
        if let Some(mac) = mac.filter(|mac| !mac.is_group() && mac.to_u64() > 0) {
            return Some(mac);
        }
        let mut message =
            format!("{key}: expected a MAC address such as 02:00:00:00:00:02, seen {seen:?}");
        if mac.is_some() {
            let _ = write!(message, ", which is no station's");
        }
        self.error(written.span(), message);
        None
    }

    /// The next router on the link of a table, by an address of Ethernet or of IP.
    pub(super) fn via(
        &mut self,
        next_hop: &Spanned<String>,
        link: &Low<String>,
        links: &Links,
    ) -> Option<Via> {
        let seen = next_hop.get_ref();
        let Ok(address) = seen.parse::<IpAddr>() else {
            if seen.parse::<MacAddress>().is_ok() {
                return self.one_station(next_hop, "next_hop").map(Via::Mac);
            }
            let message = format!(
                "next_hop: expected an IP address such as 10.0.1.2, or a MAC address such as 02:00:00:00:00:02, seen {seen:?}"
            );
            self.error(next_hop.span(), message);
            return None;
        };
        if !is_of_a_host(address) {
            let message = format!("next_hop: expected the IP address of a host, seen {seen:?}");
            self.error(next_hop.span(), message);
            return None;
        }
        // The kernel's IP has a device of its own for a VLAN, whose name is not known here.
        let name = link.as_ref().map(|link| link.get_ref().as_str()).unwrap_or_default();
        if let Some(vlan) = links.named(name).and_then(|link| link.ethernet.vlan) {
            let message = format!(
                "next_hop: link {name} is VLAN {vlan} of an interface, and an IP address is found on one that has IP addresses"
            );
            let help = format!("write its MAC address, or {}", own_device(vlan));
            self.push(Mistake::error(next_hop.span(), message).help(help));
            return None;
        }
        Some(Via::Ip(address))
    }

    /// The IP address of a host.
    pub(super) fn address(&mut self, written: &Low<String>, key: &str) -> Option<IpAddr> {
        let written = written.as_ref()?;
        let seen = written.get_ref();
        let address = seen.parse::<IpAddr>().ok();
        let address = address.filter(|ip| is_of_a_host(*ip));
        if address.is_none() {
            let message = format!("{key}: expected the IP address of a host, seen {seen:?}");
            self.error(written.span(), message);
        }
        address
    }

    /// The hosts at both ends of what goes through IP: the peer, and our address if that is said.
    pub(super) fn peers(
        &mut self,
        peer: &Low<String>,
        local: &Low<String>,
    ) -> Option<(IpAddr, Option<IpAddr>)> {
        let there = self.routed_address(peer, "peer");
        let Some(written) = local else { return there.map(|peer| (peer, None)) };
        let (here, peer) = (self.routed_address(local, "local")?, there?);
        if peer.is_ipv4() != here.is_ipv4() {
            let message =
                format!("local: expected an address of the same family as {peer}, seen {here}");
            self.error(written.span(), message);
            return None;
        }
        Some((peer, Some(here)))
    }

    /// The address of a host to which packets are routed.
    fn routed_address(&mut self, written: &Low<String>, key: &str) -> Option<IpAddr> {
        let address = self.address(written, key)?;
        if is_of_a_link(address) {
            let message = format!(
                "{key}: {address} means another host on each link; expected one that is routed"
            );
            self.error(written.as_ref()?.span(), message);
            return None;
        }
        Some(address)
    }

    /// Something that a table refers to by its name, which is there.
    pub(super) fn known<'w>(
        &mut self,
        written: &'w Spanned<String>,
        what: &str,
        names: &Names,
    ) -> Option<&'w str> {
        if names.has(written.get_ref()) {
            return Some(written.get_ref());
        }
        self.unknown_name(written, what, names);
        None
    }

    /// That what two keys name belongs to different routers.
    pub(super) fn across_routers(&mut self, at: Span, what: [(&str, &str); 2]) {
        let [(one, of), (other, of_other)] = what;
        let message = format!("{one} is of router {of}, and {other} of router {of_other}");
        let help = "what belongs together is on one router; packets go from one to another by a link between them";
        self.push(Mistake::error(at, message).help(help));
    }
}

/// What a VLAN's link may be instead, where addresses of IP are needed.
pub(super) fn own_device(vlan: u16) -> String {
    format!(
        "name the kernel's own device of that VLAN, such as eth1.{vlan}, as ethernet of a [[link]] without vlan"
    )
}

fn number(written: &Spanned<i64>) -> Option<Label> {
    u32::try_from(*written.get_ref()).ok().and_then(Label::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_shown() {
        for (text, shown) in [
            ("60s", "60s"),
            ("1500 ms", "1500ms"),
            ("2min", "120s"),
            ("3300us", "3300us"),
            ("0s", "0s"),
        ] {
            let read = parse_time(text).expect(text);
            assert_eq!(time(read), shown);
            assert_eq!(parse_time(shown), Some(read));
        }
        for text in ["", "60", "s", "-1s", "1h", "99999999999999999999s"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
