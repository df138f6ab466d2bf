//! AoE: the interfaces of `[[listener]]` tables and the `aoe` of `[[export]]` tables.
//!
//! An export says on which interfaces it answers, and may say in which VLAN; where it does not, its interface's only listener decides, so that one word there is
//! enough. An interface without a listener gets one with the defaults, so that the rest of the program sees every link once, in one list. AoE counts in sectors of 512
//! bytes and tells initiators of no other block, so a volume of larger blocks cannot be exported: parts of blocks would be asked for.
//! Spec: AoEr11, 2.2 (shelf and slot). Nobody may use an export unless `hosts` says so. Not here: whether an interface is there (`preview`).

use std::collections::BTreeMap;

use toml::Spanned;
use wire::aoe::Address;
use wire::ethernet::MacAddress;

use super::super::file::{Low, LowAoeExport, LowExport, LowListener, LowWords};
use super::super::mistake::{Mistake, Span};
use super::super::model::{
    AoeExport, BUFFERS_DEFAULT, BUFFERS_MAX, BUFFERS_MIN, Link, LinkAccess, LinkName, SHELF_UNSET,
    VLAN_MAX, VolumeConfig,
};
use super::exports::HostWords;
use super::{Named, Names, Resolver};

/// An AoE export and where it was written.
pub(super) struct SeenAoe {
    export: AoeExport,
    at: Span,
    volume_at: Span,
}

/// What is said of stations.
const STATIONS: HostWords = HostWords {
    names: "MAC addresses",
    nobody: "no station may use it",
    host: "station",
    help: "name the MAC addresses of initiators as `ip link` shows them: hosts = [\"02:00:00:00:00:01\"], or hosts = \"any\" (as a flag: --hosts any)",
    is_one: |word| word.parse::<MacAddress>().is_ok(),
};

impl Resolver<'_> {
    /// A `[[listener]]` with `aoe`.
    pub(super) fn link(&mut self, low: &LowListener, links: &mut Vec<(Link, Span)>) {
        let Some(written) = &low.aoe else { return };
        for (key, span) in [
            ("poll_us", low.poll_us.as_ref().map(Spanned::span)),
            ("max_connections", low.max_connections.as_ref().map(Spanned::span)),
        ] {
            let Some(span) = span else { continue };
            let message = format!("{key} is for listeners of NVMe/TCP, and this one is aoe");
            let help = "frames have no connections, and are received by interrupt".to_owned();
            self.push(Mistake::error(span, message).help(help));
        }
        let access =
            low.link.as_ref().map_or(LinkAccess::default(), |word| {
                match LinkAccess::NAMES.iter().find(|(name, _)| name == word.get_ref()) {
                    Some((_, access)) => *access,
                    None => {
                        self.unknown_word(word, "link", &LinkAccess::NAMES.map(|(name, _)| name));
                        LinkAccess::default()
                    }
                }
            });
        let vlan = self.vlan(&low.vlan);
        let Some(interface) = self.interface(written) else { return };
        let name = LinkName { interface, vlan };
        if let Some((_, first)) = links.iter().find(|(link, _)| link.name == name) {
            let mistake = Mistake::error(written.span(), format!("two listeners on {name}"));
            let first = first.clone();
            return self.push(mistake.also(first, "first here"));
        }
        links.push((Link { name, access }, written.span()));
    }

    fn vlan(&mut self, low: &Low<i64>) -> Option<u16> {
        self.number(low, "vlan", 1..=u64::from(VLAN_MAX)).map(|vlan| vlan as u16)
    }

    /// The name of an interface, as the kernel takes it (`dev_valid_name`).
    fn interface(&mut self, written: &Spanned<String>) -> Option<String> {
        match super::super::uri::check_interface(written.get_ref()) {
            Ok(()) => Some(written.get_ref().clone()),
            Err(expected) => {
                let seen = written.get_ref();
                self.error(written.span(), format!("expected {expected}, seen {seen:?}"));
                None
            }
        }
    }

    /// The `aoe` of exports, and the links that they are on beside those of the listeners.
    pub(super) fn aoe_exports(
        &mut self,
        low: &[LowExport],
        volume_names: &Names,
        volumes: &[VolumeConfig],
        listeners: Vec<(Link, Span)>,
    ) -> (Vec<AoeExport>, Vec<Link>) {
        let mut seen: Vec<SeenAoe> = Vec::new();
        let mut taken = BTreeMap::new();
        let mut addresses: BTreeMap<String, usize> = BTreeMap::new();
        let volumes: BTreeMap<&str, &VolumeConfig> =
            volumes.iter().map(|volume| (volume.name.as_str(), volume)).collect();
        for one in low {
            let Some(aoe) = &one.aoe else { continue };
            let Some(volume) = &one.volume else { continue };
            if let Some(export) = self.aoe_export(aoe, volume, &listeners) {
                if volume_names.has(volume.get_ref()) {
                    self.check_sectors(&export, volumes.get(volume.get_ref().as_str()).copied());
                }
                let other = addresses.get(&export.export.volume).map(|at| &seen[*at]);
                self.compare_aoe(&export, other, &mut taken);
                addresses.entry(export.export.volume.clone()).or_insert(seen.len());
                seen.push(export);
            }
        }
        let all_are_known = seen.len() == low.iter().filter(|one| one.aoe.is_some()).count();
        for (link, span) in listeners.iter().filter(|_| all_are_known) {
            let is_used = |one: &SeenAoe| one.export.links().any(|name| name == link.name);
            if !seen.iter().any(is_used) {
                let message = format!("nothing is exported on {}", link.name);
                let help =
                    "add [[export]] aoe = { interface = ..., shelf = 7, slot = 0, hosts = ... }";
                self.push(Mistake::warning(span.clone(), message).help(help.to_owned()));
            }
        }
        let mut links: Vec<Link> = listeners.into_iter().map(|(link, _)| link).collect();
        for name in seen.iter().flat_map(|one| one.export.links()) {
            if !links.iter().any(|link| link.name == name) {
                links.push(Link { name, access: LinkAccess::default() });
            }
        }
        (seen.into_iter().map(|one| one.export).collect(), links)
    }

    fn aoe_export(
        &mut self,
        low: &LowAoeExport,
        volume: &Spanned<String>,
        listeners: &[(Link, Span)],
    ) -> Option<SeenAoe> {
        let interfaces = self.interfaces(low);
        let vlan = self.vlan(&low.vlan);
        let vlan = match (&interfaces, &low.vlan) {
            (Some(interfaces), None) => self.vlan_of(low, interfaces, listeners),
            _ => vlan,
        };
        let mut required = |written: &Low<i64>, key, most| {
            if written.is_none() {
                self.missing(&low.span, "aoe of [[export]]", key, &format!("{key} = 0"));
            }
            self.number(written, key, 0..=most)
        };
        let shelf = required(&low.shelf, "shelf", u64::from(Address::ANY_SHELF) - 1);
        let slot = required(&low.slot, "slot", u64::from(Address::ANY_SLOT) - 1);
        if let (Some(span), Some(SHELF_UNSET)) =
            (low.shelf.as_ref().map(Spanned::span), shelf.map(|shelf| shelf as u16))
        {
            let message = format!(
                "Linux refuses shelf {SHELF_UNSET}: it takes it for switches that nobody set"
            );
            let help = "any other shelf up to 65534 will do".to_owned();
            self.push(Mistake::warning(span, message).help(help));
        }
        let range = u64::from(BUFFERS_MIN)..=u64::from(BUFFERS_MAX);
        let buffers = self.number(&low.buffers, "buffers", range);
        let hosts = self.hosts(&low.hosts, &low.span, &STATIONS, Self::station);
        Some(SeenAoe {
            export: AoeExport {
                volume: volume.get_ref().clone(),
                address: Address::new(shelf? as u16, slot? as u8),
                interfaces: interfaces?,
                vlan,
                hosts,
                buffers: buffers.map_or(BUFFERS_DEFAULT, |buffers| buffers as u16),
            },
            at: low.span.clone(),
            volume_at: volume.span(),
        })
    }

    /// One or more, each once.
    fn interfaces(&mut self, low: &LowAoeExport) -> Option<Vec<String>> {
        let Some(written) = &low.interface else {
            self.missing(&low.span, "aoe of [[export]]", "interface", "interface = \"eth1\"");
            return None;
        };
        let words = match written.get_ref() {
            LowWords::Word(word) => vec![Spanned::new(written.span(), word.clone())],
            LowWords::List(words) => words.clone(),
        };
        if words.is_empty() {
            self.error(written.span(), "interface is empty: an export answers on at least one");
            return None;
        }
        let mut names: Vec<Named> = Vec::new();
        let mut is_wrong = false;
        for word in &words {
            let Some(name) = self.interface(word) else {
                is_wrong = true;
                continue;
            };
            match names.iter().find(|(other, _)| *other == name) {
                Some((_, first)) => {
                    let first = first.clone();
                    let message = format!("interface {name} is named twice");
                    self.push(Mistake::warning(word.span(), message).also(first, "first here"));
                }
                None => names.push((name, word.span())),
            }
        }
        (!is_wrong).then(|| names.into_iter().map(|(name, _)| name).collect())
    }

    /// The VLAN of an export that names none: that of the interface's only listener; frames without a tag where there is none, or one for such frames.
    fn vlan_of(
        &mut self,
        low: &LowAoeExport,
        interfaces: &[String],
        listeners: &[(Link, Span)],
    ) -> Option<u16> {
        let at = low.interface.as_ref().map_or(low.span.clone(), Spanned::span);
        let mut found: Vec<Option<u16>> = Vec::new();
        for interface in interfaces {
            let is_here = |link: &&(Link, Span)| link.0.name.interface == *interface;
            let vlans: Vec<Option<u16>> =
                listeners.iter().filter(is_here).map(|(link, _)| link.name.vlan).collect();
            found.push(match vlans.as_slice() {
                [] => None,
                [vlan] => *vlan,
                several if several.contains(&None) => None,
                several => {
                    let all: Vec<String> = several.iter().flatten().map(u16::to_string).collect();
                    let message = format!(
                        "{interface} has listeners in several VLANs: expected vlan to say which of {}",
                        all.join(", ")
                    );
                    self.error(at.clone(), message);
                    return None;
                }
            });
        }
        if found.iter().any(|vlan| *vlan != found[0]) {
            let help = "name the interfaces of the kernel's VLAN devices, such as \"eth1.5\", without vlan".to_owned();
            let message = "the interfaces of an export are in one VLAN, and their listeners are in different ones";
            self.push(Mistake::error(at, message).help(help));
        }
        found.first().copied().flatten()
    }

    fn station(&mut self, written: &Spanned<String>) -> Option<MacAddress> {
        let seen = written.get_ref();
        match seen.parse::<MacAddress>() {
            Ok(mac) if mac.is_group() => {
                let message = format!("{seen} is a group address, and no frame comes from one");
                self.error(written.span(), message);
                None
            }
            Ok(mac) => Some(mac),
            Err(_) => {
                let message =
                    format!("expected a MAC address such as 02:00:00:00:00:01, seen {seen:?}");
                let nqn = seen.starts_with("nqn.");
                let help = nqn.then(|| "NQNs are for nvme; AoE knows stations".to_owned());
                self.push(Mistake::error(written.span(), message).help(help));
                None
            }
        }
    }

    fn check_sectors(&mut self, new: &SeenAoe, volume: Option<&VolumeConfig>) {
        let Some(volume) = volume.filter(|volume| volume.block_size != 512) else { return };
        let message = format!(
            "volume {} has blocks of {} bytes, and AoE addresses sectors of 512",
            volume.name, volume.block_size
        );
        let help = "initiators would ask for parts of blocks; block_size = 512 lets both protocols serve it, where its disks take such blocks";
        self.push(Mistake::error(new.volume_at.clone(), message).help(help.to_owned()));
    }

    /// Compares an export with the first of its volume, and with those before it: `taken` has the addresses of each link.
    fn compare_aoe(
        &mut self,
        new: &SeenAoe,
        other: Option<&SeenAoe>,
        taken: &mut BTreeMap<(LinkName, Address), Span>,
    ) {
        let AoeExport { volume, address, .. } = &new.export;
        let mut collides = false;
        for link in new.export.links() {
            if let Some(first) = taken.get(&(link.clone(), *address)) {
                let message = format!("{address} is exported on {link} already");
                let mistake = Mistake::error(new.at.clone(), message);
                self.push(mistake.also(first.clone(), "first here"));
                collides = true;
                break;
            }
            taken.insert((link, *address), new.at.clone());
        }
        let Some(old) = other.filter(|_| !collides) else { return };
        let (message, is_error, help) = if old.export.address == *address {
            let message = format!("volume {volume} is {address} already");
            (
                message,
                true,
                "one export answers on several interfaces: interface = [\"eth1\", \"eth2\"]",
            )
        } else {
            let message = format!("volume {volume} is exported at two addresses");
            (
                message,
                false,
                "initiators take them for two disks, and do not see each other's writes in their caches",
            )
        };
        let mistake = match is_error {
            true => Mistake::error(new.volume_at.clone(), message),
            false => Mistake::warning(new.volume_at.clone(), message),
        };
        self.push(mistake.also(old.volume_at.clone(), "first here").help(help.to_owned()));
    }
}
