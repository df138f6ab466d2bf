//! `[[pseudowire]]`: a wire between a circuit here and one elsewhere, or between this process and a
//! circuit elsewhere.
//!
//! One without a circuit ends in this process: exports name it as a link, by `pw:` and its name.
//! Spec: RFC 3985, RFC 4448; both labels are configured, no protocol tells them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mpls::Sequencing;
use mpls::limits::ORIGINS_MAX;
use toml::Spanned;
use wire::classify::{ClassKey, Classifier};
use wire::ethernet::MacAddress;
use wire::mpls::Label;

use super::circuit::circuit_title;
use super::ilm::{Ilms, written_label};
use super::port::Ports;
use super::router::router_title;
use super::split::{CLASS_WORD, ClassConfig};
use super::watch::{BfdConfig, LowBfd};
use super::words::{LABEL, LINK, MAC, YES};
use super::{Routed, routed};
use crate::config::file::{Low, LowArgs, NAME, TableReader, Written, table};
use crate::config::link::Links;
use crate::config::mistake::{Mistake, Span};
use crate::config::plan::Refused;
use crate::config::resolve::{Names, Resolver};
use crate::config::text::quoted;
use crate::config::thing::{Change, Configured, Thing};

table! {
    LowWay = "from of [[pseudowire]]" {
        link: String = LINK,
        tunnel: i64 = LABEL,
        backup: bool = YES,
    }
}

/// `[[pseudowire]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowPseudowire {
    pub(crate) span: Span,
    pub(crate) name: Low<String>,
    pub(crate) circuit: Low<String>,
    pub(crate) class: Low<String>,
    pub(crate) mac: Low<String>,
    pub(crate) label_in: Low<i64>,
    pub(crate) label_out: Low<i64>,
    pub(crate) lsp: Low<String>,
    pub(crate) backup: Low<String>,
    pub(crate) bfd: Option<LowBfd>,
    /// `None` where nothing was written; with where it was.
    pub(crate) from: Option<(Span, Vec<LowWay>)>,
    pub(crate) control_word: Low<bool>,
    pub(crate) sequence: Low<String>,
    pub(crate) clamp: Low<bool>,
}

impl Written for LowPseudowire {
    const TITLE: &'static str = "[[pseudowire]]";
    const KEYS: &'static [&'static str] = &[
        "name",
        "circuit",
        "class",
        "mac",
        "label_in",
        "label_out",
        "lsp",
        "backup",
        "bfd",
        "from",
        "control_word",
        "sequence",
        "clamp",
    ];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            name: table.take("name", NAME),
            circuit: table.take("circuit", "the name of a circuit in quotes"),
            class: table.take("class", CLASS_WORD),
            mac: table.take("mac", MAC),
            label_in: table.take("label_in", LABEL),
            label_out: table.take("label_out", LABEL),
            lsp: table.take("lsp", "the name of an lsp in quotes"),
            backup: table.take("backup", "the name of an lsp in quotes"),
            bfd: table.table("bfd"),
            from: table
                .table_or_tables("from", "{ link = \"eth1\", tunnel = 300 }, or a list of such"),
            control_word: table.take("control_word", YES),
            sequence: table.take("sequence", SEQUENCE),
            clamp: table.take("clamp", YES),
        }
    }
}

/// What is done with sequence numbers, in the order of the documentation.
const SEQUENCING: [(&str, Sequencing); 3] =
    [("off", Sequencing::Off), ("drop", Sequencing::Drop), ("reorder", Sequencing::Reorder)];
/// The words for it.
pub(crate) const SEQUENCES: [&str; 3] = [SEQUENCING[0].0, SEQUENCING[1].0, SEQUENCING[2].0];
pub(super) const SEQUENCE: &str = "\"off\", \"drop\" or \"reorder\"";

/// `[[pseudowire]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PseudowireConfig {
    pub(crate) name: String,
    /// That of its lsp.
    pub(crate) router: String,
    /// `None`: it ends in this process, ...
    pub(crate) circuit: Option<String>,
    /// Its frames among those of its circuit; `None`: all.
    pub(crate) class: Option<ClassConfig>,
    /// ... which has this address there, or else one that it makes of its names.
    pub(crate) mac: Option<MacAddress>,
    /// Ours, with which packets come.
    pub(crate) label_in: Label,
    /// The other end's.
    pub(crate) label_out: Label,
    /// By which they are sent.
    pub(crate) lsp: String,
    /// By which they are sent while that one fails; another one.
    pub(crate) backup: Option<String>,
    /// How its paths are watched; it has a control word then.
    pub(crate) bfd: Option<BfdConfig>,
    /// All ways by which packets come; one or more.
    pub(crate) from: Vec<Way>,
    /// `None` has no control word.
    pub(crate) control_word: Option<Sequencing>,
    /// Whether targets of AoE behind it offer no more sectors than its frames carry.
    pub(crate) clamp: bool,
}

/// A way by which packets come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The link, which is a port.
    pub(crate) link: String,
    /// The label above the pseudowire's; `None` where the router before takes it off.
    pub(crate) tunnel: Option<Label>,
    /// Whether it is by the other end's backup.
    pub(crate) backup: bool,
}

impl Way {
    fn text(&self) -> String {
        let tunnel = self.tunnel.map(|label| format!(", tunnel = {}", label.get()));
        let backup = if self.backup { ", backup = true" } else { "" };
        format!("{{ link = {}{}{backup} }}", quoted(&self.link), tunnel.unwrap_or_default())
    }
}

/// The word for it.
pub(crate) fn sequence_word(sequencing: Sequencing) -> &'static str {
    let found = SEQUENCING.iter().find(|(_, one)| *one == sequencing);
    found.expect("each is in the list").0
}

impl PseudowireConfig {
    pub(crate) fn sequence(&self) -> &'static str {
        self.control_word.map_or("none", sequence_word)
    }

    /// Whether its label may be on top of packets that come: where the router before takes off the
    /// tunnel's.
    pub(crate) fn is_on_top(&self) -> bool {
        self.from.iter().any(|way| way.tunnel.is_none())
    }

    /// Whose frames come by its label, in words.
    pub(crate) fn whose(&self) -> String {
        match &self.circuit {
            Some(circuit) => format!("{} of circuit {circuit}", self.title()),
            None => self.title(),
        }
    }

    /// Whether both carry the same frames to the same customer.
    pub(super) fn is_for_the_same(&self, other: &Self) -> bool {
        self.name == other.name && self.circuit == other.circuit
    }
}

pub(crate) fn pseudowire_title(name: &str) -> String {
    format!("pseudowire {name}")
}

impl Configured for PseudowireConfig {
    fn title(&self) -> String {
        pseudowire_title(&self.name)
    }

    fn details(&self) -> String {
        let end = match &self.circuit {
            Some(circuit) => {
                let class = self.class.map(|class| format!(" class {class}"));
                format!("circuit {circuit}{}", class.unwrap_or_default())
            }
            None => "ends here".to_owned(),
        };
        let Self { label_in, label_out, lsp, .. } = self;
        format!(": {end}, in {label_in}, out {label_out} by {lsp}")
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let from: Vec<String> = self.from.iter().map(Way::text).collect();
        vec![
            ("circuit", self.circuit.clone().unwrap_or_else(|| "none".to_owned())),
            ("class", self.class.map_or_else(|| "all".to_owned(), |one| one.to_string())),
            ("mac", self.mac.map_or_else(|| "made".to_owned(), |mac| mac.to_string())),
            ("label_in", self.label_in.to_string()),
            ("label_out", self.label_out.to_string()),
            ("lsp", self.lsp.clone()),
            ("backup", self.backup.clone().unwrap_or_else(|| "none".to_owned())),
            ("bfd", self.bfd.map_or_else(|| "none".to_owned(), |bfd| bfd.text())),
            ("from", from.join(", ")),
            ("control_word", self.control_word.is_some().to_string()),
            ("sequence", self.sequence().to_owned()),
            ("clamp", self.clamp.to_string()),
        ]
    }

    /// What it is sent by, and what it comes by, may be another without its going.
    fn stands_on(&self) -> Vec<String> {
        let circuit = self.circuit.as_ref().map(|circuit| circuit_title(circuit));
        [router_title(&self.router)].into_iter().chain(circuit).collect()
    }

    fn excludes(&self, other: &Thing) -> bool {
        if let Some(Routed::Tunnel(_)) = routed(other) {
            return other.excludes(&Thing::Routed(Routed::Pseudowire(self.clone())));
        }
        let Some(Routed::Pseudowire(other)) = routed(other) else { return false };
        // Of a circuit whose split changes, one that had all of it and one that has a class.
        let meet = self.class == other.class || self.class.is_none() || other.class.is_none();
        self.name == other.name || self.circuit.is_some() && self.circuit == other.circuit && meet
    }

    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let Some(Routed::Pseudowire(to)) = routed(to) else { return Ok(Change::Replace) };
        let stays = self.router == to.router
            // Another circuit, or class, may be free only once another pseudowire has left it.
            && self.circuit == to.circuit
            && self.class == to.class
            && self.mac == to.mac;
        Ok(if stays { Change::Aside } else { Change::Replace })
    }

    fn text(&self) -> String {
        let mut text = format!("[[pseudowire]]\nname = {}\n", quoted(&self.name));
        text.extend(self.circuit.as_ref().map(|one| format!("circuit = {}\n", quoted(one))));
        text.extend(self.class.map(|one| format!("class = \"{one}\"\n")));
        text.extend(self.mac.map(|mac| format!("mac = \"{mac}\"\n")));
        let (label_in, label_out) = (self.label_in.get(), self.label_out.get());
        let from: Vec<String> = self.from.iter().map(Way::text).collect();
        let (lsp, from, word) = (quoted(&self.lsp), from.join(", "), self.control_word.is_some());
        let _ = write!(
            text,
            "label_in = {label_in}\nlabel_out = {label_out}\nlsp = {lsp}\nfrom = [{from}]\ncontrol_word = {word}\n"
        );
        text.extend(self.backup.as_ref().map(|lsp| format!("backup = {}\n", quoted(lsp))));
        text.extend(self.bfd.map(|bfd| format!("bfd = {}\n", bfd.text())));
        if word {
            let _ = writeln!(text, "sequence = \"{}\"", self.sequence());
        }
        if self.clamp {
            text.push_str("clamp = true\n");
        }
        text
    }
}

/// What pseudowires refer to.
pub(super) struct Around<'a> {
    pub(super) ports: &'a Ports,
    pub(super) links: &'a Links,
    pub(super) circuit_names: &'a Names,
    /// The routers of circuits, and of paths, by name.
    pub(super) circuits: BTreeMap<&'a str, &'a str>,
    /// By what the frames of circuits are told apart.
    pub(super) splits: BTreeMap<&'a str, Classifier>,
    pub(super) ilms: Ilms<'a>,
    pub(super) lsp_names: &'a Names,
    pub(super) lsps: BTreeMap<&'a str, &'a str>,
}

const TITLE: &str = LowPseudowire::TITLE;

impl Resolver<'_> {
    /// The pseudowires, each with where its label was written, and the names of all.
    pub(super) fn pseudowires(
        &mut self,
        low: &LowArgs,
        around: &Around<'_>,
    ) -> (Vec<(PseudowireConfig, Span)>, Names) {
        let named = low.pseudowires.iter().map(|one| (&one.name, &one.span));
        let names = self.names("pseudowire", named);
        let mut all: Vec<(PseudowireConfig, Span)> = Vec::new();
        let mut by_circuit: BTreeMap<(String, Option<ClassKey>), String> = BTreeMap::new();
        for one in &low.pseudowires {
            let Some(new) = self.pseudowire(one, around) else { continue };
            if let (Some(written), Some(circuit)) = (&one.circuit, &new.0.circuit) {
                let class = new.0.class;
                let key = (circuit.clone(), class.map(ClassConfig::key));
                if let Some(other) = by_circuit.get(&key) {
                    let class = class.map(|class| format!(" class {class}"));
                    let class = class.unwrap_or_default();
                    let message = format!("circuit {circuit}{class} goes by {other} already");
                    let first = self.place_of(other, "circuit");
                    self.push(Mistake::error(written.span(), message).first(&first));
                } else {
                    by_circuit.insert(key, new.0.title());
                }
            }
            all.push(new);
        }
        (all, names)
    }

    fn pseudowire(
        &mut self,
        low: &LowPseudowire,
        around: &Around<'_>,
    ) -> Option<(PseudowireConfig, Span)> {
        for (written, key, example) in [
            (low.label_in.as_ref().map(Spanned::span), "label_in", "label_in = 1001"),
            (low.label_out.as_ref().map(Spanned::span), "label_out", "label_out = 2001"),
            (low.lsp.as_ref().map(Spanned::span), "lsp", "lsp = the name of an [[lsp]]"),
            (
                low.from.as_ref().map(|(span, _)| span.clone()),
                "from",
                "from = { link = \"eth1\", tunnel = 300 }, the link and the label of the tunnel by which packets come",
            ),
        ] {
            if written.is_none() {
                self.missing(&low.span, TITLE, key, example);
            }
        }
        let label_in = self.label(&low.label_in, "label_in");
        let label_out = self.label(&low.label_out, "label_out");
        let circuit = low
            .circuit
            .as_ref()
            .map(|written| self.known(written, "circuit", around.circuit_names).map(str::to_owned));
        let class = self.class_of(low, around);
        let lsp = low.lsp.as_ref();
        let lsp = lsp.and_then(|written| self.known(written, "lsp", around.lsp_names));
        let mac = low.mac.as_ref().map(|written| self.one_station(written, "mac"));
        if let (Some(written), Some(_)) = (&low.mac, &low.circuit) {
            let message =
                "mac is for a pseudowire that ends in this process, and this one has a circuit";
            self.error(written.span(), message);
        }
        let clamp = low.clamp.as_ref().is_some_and(|yes| *yes.get_ref());
        if let (true, Some(written), None) = (clamp, &low.clamp, &low.circuit) {
            let message = "clamp: this pseudowire ends in this process, where exports offer what it carries by themselves";
            self.error(written.span(), message);
        }
        let control_word = self.control_word(low);
        let bfd = low.bfd.as_ref().map(|bfd| {
            if control_word.is_none() {
                let message = "bfd: its packets go beside frames by the control word, and this pseudowire has none";
                let help = "control_word = true at both ends";
                self.push(Mistake::error(bfd.span.clone(), message).help(help));
            }
            self.bfd(bfd)
        });
        // Whose it is its lsp says.
        let router = lsp.and_then(|lsp| around.lsps.get(lsp)).copied();
        let from = self.ways(low, router, around);
        let backup = low.backup.as_ref().map(|written| {
            let name = self.known(written, "lsp", around.lsp_names)?;
            self.check_backup(written, low, from.as_deref());
            let other = around.lsps.get(name).filter(|other| Some(**other) != router);
            if let (Some(other), Some(router)) = (other, router) {
                self.across_routers(written.span(), [("its lsp", router), ("its backup", other)]);
            }
            Some(name.to_owned())
        });
        if let (Some(router), Some(written)) = (router, &low.circuit)
            && let Some(other) = around.circuits.get(written.get_ref().as_str())
            && *other != router
        {
            let name = format!("circuit {}", written.get_ref());
            self.across_routers(written.span(), [("its lsp", router), (&name, other)]);
        }
        let written = low.name.as_ref()?;
        let name = written.get_ref().clone();
        let pseudowire = PseudowireConfig {
            name,
            router: router?.to_owned(),
            circuit: match circuit {
                Some(circuit) => Some(circuit?),
                None => None,
            },
            class: class?,
            mac: mac.flatten(),
            label_in: label_in?,
            label_out: label_out?,
            lsp: lsp?.to_owned(),
            backup: match backup {
                Some(backup) => Some(backup?),
                None => None,
            },
            bfd: match bfd {
                Some(bfd) => Some(bfd?),
                None => None,
            },
            from: from?,
            control_word,
            clamp,
        };
        self.place(pseudowire.title(), "", written.span());
        if let Some(circuit) = &low.circuit {
            self.place(pseudowire.title(), "circuit", circuit.span());
        }
        Some((pseudowire, low.label_in.as_ref()?.span()))
    }

    /// Its class, where it has a circuit that is there.
    fn class_of(
        &mut self,
        low: &LowPseudowire,
        around: &Around<'_>,
    ) -> Option<Option<ClassConfig>> {
        let circuit = low.circuit.as_ref().map(|circuit| circuit.get_ref().as_str());
        if circuit.is_some_and(|circuit| !around.circuits.contains_key(circuit)) {
            return Some(None);
        }
        let split = circuit.and_then(|circuit| around.splits.get(circuit)).copied();
        self.class(low.class.as_ref(), (circuit, split), (&low.span, TITLE))
    }

    /// The ways by which packets come, each of a port of this router and of a tunnel that ends here.
    fn ways(
        &mut self,
        low: &LowPseudowire,
        router: Option<&str>,
        around: &Around<'_>,
    ) -> Option<Vec<Way>> {
        let (span, list) = low.from.as_ref()?;
        if !(1..=ORIGINS_MAX).contains(&list.len()) {
            let message = format!("from: expected 1 to {ORIGINS_MAX} ways, seen {}", list.len());
            self.error(span.clone(), message);
            return None;
        }
        let ways: Vec<Option<Way>> =
            list.iter().map(|one| self.way(low, one, router, around)).collect();
        ways.into_iter().collect()
    }

    fn way(
        &mut self,
        low: &LowPseudowire,
        way: &LowWay,
        router: Option<&str>,
        around: &Around<'_>,
    ) -> Option<Way> {
        const TITLE: &str = "from of [[pseudowire]]";
        let Some(written) = &way.link else {
            self.missing(&way.span, TITLE, "link", "link = \"eth1\"");
            return None;
        };
        let port = self.port(written, around.ports, around.links)?;
        if let Some(router) = router.filter(|router| **router != port.router) {
            let name = format!("link {}", port.link);
            let what = [("its lsp", router), (name.as_str(), port.router.as_str())];
            self.across_routers(written.span(), what);
        }
        let link = port.link.clone();
        let backup = way.backup.as_ref().is_some_and(|yes| *yes.get_ref());
        let Some(tunnel) = &way.tunnel else {
            if !self.is_reported(&way.span, TITLE, "tunnel") {
                let name = low.name.as_ref().map_or("it", |name| name.get_ref().as_str());
                let who = match port.udp {
                    Some(_) => "send packets with its peer's address",
                    None => "send frames there",
                };
                let message = format!(
                    "pseudowire {name} takes what comes by {link} in no tunnel: whoever can {who} can send it some"
                );
                let help = "have the router before leave the tunnel's label on (no PHP), pop it here ([[ilm]] pop = true) and name it: tunnel = 300; or know who is on that link";
                self.push(Mistake::warning(way.span.clone(), message).help(help));
            }
            return Some(Way { link, tunnel: None, backup });
        };
        let null = written_label(&way.tunnel).filter(|label| {
            matches!(*label, Label::IPV4_EXPLICIT_NULL | Label::IPV6_EXPLICIT_NULL)
        });
        if let Some(label) = null {
            if !port.explicit_null {
                let message = format!(
                    "tunnel: {} is explicit null, by which no tunnel ends on {link}",
                    label.get()
                );
                let help = format!("add explicit_null = true to [[link]] {link}");
                self.push(Mistake::error(tunnel.span(), message).help(help));
            }
            return Some(Way { link, tunnel: null, backup });
        }
        let label = self.label(&way.tunnel, "tunnel")?;
        match around.ilms.pops(port, label) {
            Some(true) => {}
            Some(false) => {
                let message = format!("tunnel {label} does not end here: its [[ilm]] sends it on");
                let help = "name the label of the tunnel that ends here, which is popped";
                self.push(Mistake::error(tunnel.span(), message).help(help));
            }
            None => {
                let message =
                    format!("tunnel {label} does not end here: no [[ilm]] pops it on {link}");
                let help = format!("add [[ilm]] label = {label} and pop = true");
                self.push(Mistake::error(tunnel.span(), message).help(help));
            }
        }
        Some(Way { link, tunnel: Some(label), backup })
    }

    /// That a backup can be taken, and come back by.
    fn check_backup(
        &mut self,
        written: &Spanned<String>,
        low: &LowPseudowire,
        from: Option<&[Way]>,
    ) {
        if low.lsp.as_ref().is_some_and(|lsp| lsp.get_ref() == written.get_ref()) {
            let message = format!("backup: lsp {} is the path that it backs up", written.get_ref());
            self.error(written.span(), message);
        }
        if low.bfd.is_none() && !self.is_reported(&low.span, TITLE, "bfd") {
            let message = "backup: nothing tells when it is to be taken";
            let help = "add bfd = {}, at both ends, which watches both paths";
            self.push(Mistake::error(written.span(), message).help(help));
        }
        if from.is_some_and(|from| !from.iter().any(|way| way.backup)) {
            let message = "backup: nothing comes by the other end's, so that it would never be up";
            let help = "say in from by which link and tunnel: { link = \"eth3\", tunnel = 301, backup = true }";
            self.push(Mistake::error(written.span(), message).help(help));
        }
    }

    /// What is done with sequence numbers.
    pub(super) fn sequence(&mut self, written: &Low<String>) -> Sequencing {
        let Some(written) = written else { return Sequencing::default() };
        let found = SEQUENCING.iter().find(|(word, _)| word == written.get_ref());
        if found.is_none() {
            self.unknown_word(written, "sequence", &SEQUENCES);
        }
        found.map(|(_, one)| *one).unwrap_or_default()
    }

    /// Whether frames have a control word, and what is done with its sequence numbers.
    fn control_word(&mut self, low: &LowPseudowire) -> Option<Sequencing> {
        let sequence = self.sequence(&low.sequence);
        if low.control_word.as_ref().is_none_or(|word| *word.get_ref()) {
            return Some(sequence);
        }
        if let Some(written) = low.sequence.as_ref().filter(|word| word.get_ref() != "off") {
            let message = "sequence: without a control word there are no sequence numbers";
            let help = "control_word = true at both ends, or sequence = \"off\"";
            self.push(Mistake::error(written.span(), message).help(help));
        }
        None
    }
}
