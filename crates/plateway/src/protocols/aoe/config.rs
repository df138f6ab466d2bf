//! The AoE targets of a configuration: `aoe` of an `[[export]]`.
//!
//! An export says on which links it answers. It may name interfaces instead, and their VLAN; where
//! it does not, the interface's only link decides, so that one word there is enough, and an
//! interface without a link gets one with the defaults. AoE counts in sectors of 512 bytes and
//! tells initiators of no other block, so a volume of larger blocks cannot be exported: parts of
//! blocks would be asked for. Spec: AoEr11, 2.2 (shelf and slot). Not here: whether an interface is
//! there.

use std::collections::BTreeMap;

use ::aoe::limits::{BUFFERS_DEFAULT, BUFFERS_MAX, BUFFERS_MIN};
use toml::Spanned;
use wire::aoe::Address;
use wire::ethernet::MacAddress;

use crate::config::export::{HostWords, Hosts};
use crate::config::file::{Low, LowArgs, LowWords, NUMBER, table};
use crate::config::link::{Ethernet, LinkConfig, Links, link_title, pseudowire_link};
use crate::config::mistake::{Mistake, Span};
use crate::config::plan::Refused;
use crate::config::resolve::Resolver;
use crate::config::text::{list, quoted};
use crate::config::thing::{Change, Configured, Thing};
use crate::config::volume::{VolumeConfig, volume_title};
use crate::protocols::ExportConfig;

pub(crate) const EXAMPLE: &str =
    "aoe = { interface = \"eth1\", shelf = 7, slot = 0, hosts = \"any\" }";
/// The shelf that Linux initiators take for switches that nobody has set, and refuse.
const SHELF_UNSET: u16 = 0x0fff;

table! {
    LowTarget = "aoe of [[export]]" {
        link: LowWords = "the name of a link, or a list of names",
        interface: LowWords = "the name of an interface, or a list of names",
        vlan: i64 = NUMBER,
        shelf: i64 = NUMBER,
        slot: i64 = NUMBER,
        hosts: LowWords = "\"any\" or a list of MAC addresses",
        buffers: i64 = NUMBER,
    }
}

/// A volume at a shelf.slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetConfig {
    /// The volume, which exists and has blocks of 512 bytes.
    pub(crate) volume: String,
    /// No wildcard; unique on each of its links.
    pub(crate) address: Address,
    /// The names of one or more, each once.
    pub(crate) links: Vec<String>,
    /// Who may use it.
    pub(crate) hosts: Hosts<MacAddress>,
    /// The commands that it holds at once.
    pub(crate) buffers: u16,
}

impl Configured for TargetConfig {
    fn title(&self) -> String {
        format!("export {}: aoe {}", self.volume, self.address)
    }

    fn details(&self) -> String {
        format!(" on {}", self.links.join(" "))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        vec![("hosts", self.hosts.to_string()), ("buffers", self.buffers.to_string())]
    }

    fn stands_on(&self) -> Vec<String> {
        let links = self.links.iter().map(|link| link_title(link));
        [volume_title(&self.volume)].into_iter().chain(links).collect()
    }

    /// What initiators set of it (its config string, its mask) is kept by address and volume, and
    /// so is the export.
    fn excludes(&self, other: &Thing) -> bool {
        match other {
            Thing::Export(ExportConfig::Aoe(other)) => {
                let shares = self.links.iter().any(|link| other.links.contains(link));
                self.address == other.address && (self.volume == other.volume || shares)
            }
            // A pseudowire has one of them at its end.
            Thing::Disk(disk) => {
                disk.pseudowire().is_some_and(|name| self.links.contains(&pseudowire_link(name)))
            }
            _ => false,
        }
    }

    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let stays = matches!(to, Thing::Export(ExportConfig::Aoe(to)) if self.links == to.links);
        Ok(if stays { Change::InPlace } else { Change::Replace })
    }

    fn text(&self) -> String {
        let (volume, links, hosts) = (quoted(&self.volume), list(&self.links), self.hosts.text());
        let (Address { shelf, slot }, buffers) = (self.address, self.buffers);
        format!(
            "[[export]]\nvolume = {volume}\naoe = {{ link = {links}, shelf = {shelf}, slot = {slot}, hosts = {hosts}, buffers = {buffers} }}\n"
        )
    }
}

/// An export and where it was written.
struct Seen {
    export: TargetConfig,
    at: Span,
    volume_at: Span,
}

/// What is said of stations.
const STATIONS: HostWords = HostWords {
    names: "MAC addresses",
    key: "aoe",
    nobody: "no host may use it",
    host: "MAC address",
    help: "name the MAC addresses of initiators as `ip link` shows them: hosts = [\"02:00:00:00:00:01\"], or hosts = \"any\" (as a flag: --hosts any)",
    is_one: |word| word.parse::<MacAddress>().is_ok(),
};

/// The targets, in order; links that nobody wrote are added to the others.
pub(crate) fn resolve(
    resolver: &mut Resolver<'_>,
    low: &LowArgs,
    volumes: &[VolumeConfig],
    links: &mut Links,
) -> Vec<TargetConfig> {
    let mut seen: Vec<Seen> = Vec::new();
    let mut taken = BTreeMap::new();
    let mut exports_of: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let volumes: BTreeMap<&str, &VolumeConfig> =
        volumes.iter().map(|volume| (volume.name.as_str(), volume)).collect();
    // What is written in links decides the VLAN of interfaces; what exports name does not.
    let written = links.list.len();
    let mut all_are_known = true;
    for one in &low.exports {
        let Some(aoe) = &one.by.aoe else { continue };
        let export = one.volume.as_ref().and_then(|volume| {
            let export = resolver.target(aoe, volume, written, links)?;
            resolver.check_sectors(&export, volumes.get(&**volume.get_ref()).copied());
            Some(export)
        });
        let Some(export) = export else {
            all_are_known = false;
            continue;
        };
        let of_volume = exports_of.entry(export.export.volume.clone()).or_default();
        let others: Vec<&Seen> = of_volume.iter().map(|at| &seen[*at]).collect();
        resolver.compare_targets(&export, &others, &mut taken);
        of_volume.push(seen.len());
        seen.push(export);
    }
    for (link, span) in links.list.iter().filter(|_| all_are_known) {
        if !links.carriers.contains(&link.name)
            && !seen.iter().any(|one| one.export.links.contains(&link.name))
        {
            let message = format!("nothing is exported on {}", link.name);
            let help = "add [[export]] aoe = { interface = ..., shelf = 7, slot = 0, hosts = ... }";
            resolver.push(Mistake::warning(span.clone(), message).help(help));
        }
    }
    seen.into_iter().map(|one| one.export).collect()
}

impl Resolver<'_> {
    fn target(
        &mut self,
        low: &LowTarget,
        volume: &Spanned<String>,
        written: usize,
        known: &mut Links,
    ) -> Option<Seen> {
        let links = match &low.link {
            Some(words) => self.target_links(low, words, known),
            None => self.target_interfaces(low, written, known),
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
            let help = "any other shelf up to 65534 will do";
            self.push(Mistake::warning(span, message).help(help));
        }
        let range = u64::from(BUFFERS_MIN)..=u64::from(BUFFERS_MAX);
        let buffers = self.number(&low.buffers, "buffers", range);
        let hosts = self.hosts(&low.hosts, &low.span, &STATIONS, Self::station);
        Some(Seen {
            export: TargetConfig {
                volume: volume.get_ref().clone(),
                address: Address::new(shelf? as u16, slot? as u8),
                links: links?,
                hosts,
                buffers: buffers.map_or(BUFFERS_DEFAULT, |buffers| buffers as u16),
            },
            at: low.span.clone(),
            volume_at: volume.span(),
        })
    }

    /// Links by their names.
    fn target_links(
        &mut self,
        low: &LowTarget,
        words: &Spanned<LowWords>,
        known: &Links,
    ) -> Option<Vec<String>> {
        let other = low.interface.as_ref().map(Spanned::span);
        if let Some(span) = other.or(low.vlan.as_ref().map(Spanned::span)) {
            let message = "a link has an interface and a VLAN already";
            let help = "name either links, or interfaces and their VLAN";
            self.push(Mistake::error(span, message).help(help).also(&words.span(), "and this"));
        }
        self.links_by(words, "link", |resolver, word| {
            if known.in_udp.has(word.get_ref()) {
                let message = format!("link {} is in UDP, and AoE needs Ethernet", word.get_ref());
                let help = "name a link with ethernet, or a pseudowire by it: link = \"pw:NAME\"";
                resolver.push(Mistake::error(word.span(), message).help(help));
                return None;
            }
            if known.wired.has(word.get_ref()) {
                resolver.ends_elsewhere(word.span(), word.get_ref());
                return None;
            }
            if !known.has(word.get_ref()) {
                resolver.unknown_name(word, "link", &known.names_for_exports());
                return None;
            }
            Some(word.get_ref().clone())
        })
    }

    /// Links by their interfaces.
    fn target_interfaces(
        &mut self,
        low: &LowTarget,
        written: usize,
        known: &mut Links,
    ) -> Option<Vec<String>> {
        let Some(words) = &low.interface else {
            let example = "interface = \"eth1\", or link = the name of a [[link]]";
            self.missing(&low.span, "aoe of [[export]]", "interface", example);
            return None;
        };
        let interfaces = self.links_by(words, "interface", Self::interface);
        let vlan = self.vlan(&low.vlan);
        let interfaces = interfaces?;
        let vlan = match &low.vlan {
            Some(_) => vlan,
            None => self.vlan_of(&interfaces, words.span(), &known.list[..written]),
        };
        let named: Vec<Ethernet> = Ethernet::each(&interfaces, vlan).collect();
        Some(named.into_iter().map(|one| self.link_on(one, words.span(), known)).collect())
    }

    /// One or more, each once; `read` takes one.
    fn links_by(
        &mut self,
        written: &Spanned<LowWords>,
        what: &str,
        read: impl FnMut(&mut Self, &Spanned<String>) -> Option<String>,
    ) -> Option<Vec<String>> {
        let words = match written.get_ref() {
            LowWords::Word(word) => &[Spanned::new(written.span(), word.clone())][..],
            LowWords::List(words) => words,
        };
        if words.is_empty() {
            let message = format!("{what} is empty: an export answers on at least one");
            self.error(written.span(), message);
        }
        let names = self.each_once(words, what, read);
        (!words.is_empty()).then_some(names?)
    }

    /// The VLAN of an export that names none: that of the interface's only link; frames without a
    /// tag where there is none, or one for such frames.
    fn vlan_of(
        &mut self,
        interfaces: &[String],
        at: Span,
        links: &[(LinkConfig, Span)],
    ) -> Option<u16> {
        let mut found: Vec<Option<u16>> = Vec::new();
        for interface in interfaces {
            let here = links.iter().map(|(link, _)| &link.ethernet);
            let here = here.filter(|ethernet| ethernet.interface == *interface);
            let vlans: Vec<Option<u16>> = here.map(|ethernet| ethernet.vlan).collect();
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
            let help = "name the interfaces of the kernel's VLAN devices, such as \"eth1.5\", without vlan";
            let message = "the interfaces of an export are in one VLAN, and their listeners are in different ones";
            self.push(Mistake::error(at, message).help(help));
        }
        found.first().copied().flatten()
    }

    pub(in crate::protocols) fn station(
        &mut self,
        written: &Spanned<String>,
    ) -> Option<MacAddress> {
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
                let help = nqn.then(|| "NQNs are for nvme; AoE knows MAC addresses".to_owned());
                self.push(Mistake::error(written.span(), message).meant(help));
                None
            }
        }
    }

    fn check_sectors(&mut self, new: &Seen, volume: Option<&VolumeConfig>) {
        let Some(volume) = volume.filter(|volume| volume.block_size != 512) else { return };
        let message = format!(
            "volume {} has blocks of {} bytes, and AoE addresses sectors of 512",
            volume.name, volume.block_size
        );
        let help = "initiators would ask for parts of blocks; block_size = 512 lets both protocols serve it, where its disks take such blocks";
        self.push(Mistake::error(new.volume_at.clone(), message).help(help));
    }

    /// Compares an export with those before it: `others` are of its volume, `taken` has the
    /// addresses of each link.
    fn compare_targets(
        &mut self,
        new: &Seen,
        others: &[&Seen],
        taken: &mut BTreeMap<(String, Address), Span>,
    ) {
        let TargetConfig { volume, address, links, .. } = &new.export;
        for link in links {
            if let Some(first) = taken.get(&(link.clone(), *address)) {
                let message = format!("{address} is exported on {link} already");
                return self.push(Mistake::error(new.at.clone(), message).first(first));
            }
            taken.insert((link.clone(), *address), new.at.clone());
        }
        // What initiators set of an export is stored by volume and address: one must own it.
        let same = others.iter().find(|other| other.export.address == *address);
        let (Some(old), at) = (same.or(others.first()), new.volume_at.clone()) else { return };
        let mistake = if old.export.address == *address {
            Mistake::error(at, format!("volume {volume} is {address} already"))
                .help("one export answers on several interfaces: interface = [\"eth1\", \"eth2\"]")
        } else {
            Mistake::warning(at, format!("volume {volume} is exported at two addresses")).help(
                "initiators take them for two disks, and do not see each other's writes in their caches",
            )
        };
        self.push(mistake.first(&old.volume_at));
    }
}
