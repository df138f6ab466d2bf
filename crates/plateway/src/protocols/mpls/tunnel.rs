//! `[[tunnel]]`: another way for a circuit's frames to reach the circuit at the other end, in GRE or
//! in L2TPv3, through IP as the kernel routes it.
//!
//! Both ends are configured, no protocol negotiates them. Several tunnels to one host share a port,
//! which is there as long as one of them is. Units: none. Errors are pushed as mistakes at what was
//! written. Spec: RFC 2784, RFC 2890; RFC 3931, RFC 4719.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::NonZeroU32;

use mpls::{Sequencing, Session, SessionKey, TunnelPort};
use toml::Spanned;
use wire::classify::{ClassKey, Classifier};
use wire::l2tp::{self, Cookie};

use super::circuit::circuit_title;
use super::pseudowire::{SEQUENCE, sequence_word};
use super::router::router_title;
use super::split::{CLASS_WORD, ClassConfig};
use super::words::{ADDRESS, YES};
use super::{Routed, routed};
use crate::config::file::{Low, LowArgs, NAME, NUMBER, TableReader, Written, table};
use crate::config::mistake::{Mistake, Span};
use crate::config::plan::Refused;
use crate::config::resolve::{Names, Resolver};
use crate::config::text::quoted;
use crate::config::thing::{Change, Configured, Thing};

const COOKIE: &str = "8 or 16 hexadecimal digits in quotes, such as \"5eed1234\"";

table! {
    LowGre = "gre of [[tunnel]]" {
        key: i64 = NUMBER,
        key_in: i64 = NUMBER,
        key_out: i64 = NUMBER,
    }
}

table! {
    LowL2tp = "l2tp of [[tunnel]]" {
        session_in: i64 = NUMBER,
        session_out: i64 = NUMBER,
        cookie_in: String = COOKIE,
        cookie_out: String = COOKIE,
        sublayer: bool = YES,
        local_port: i64 = NUMBER,
        peer_port: i64 = NUMBER,
    }
}

/// `[[tunnel]]` as written.
#[derive(Debug, Default)]
pub(crate) struct LowTunnel {
    pub(crate) span: Span,
    pub(crate) name: Low<String>,
    pub(crate) circuit: Low<String>,
    pub(crate) class: Low<String>,
    pub(crate) peer: Low<String>,
    pub(crate) local: Low<String>,
    pub(crate) gre: Option<LowGre>,
    pub(crate) l2tp: Option<LowL2tp>,
    pub(crate) sequence: Low<String>,
}

impl Written for LowTunnel {
    const TITLE: &'static str = "[[tunnel]]";
    const KEYS: &'static [&'static str] =
        &["name", "circuit", "class", "peer", "local", "gre", "l2tp", "sequence"];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            name: table.take("name", NAME),
            circuit: table.take("circuit", "the name of a circuit in quotes"),
            class: table.take("class", CLASS_WORD),
            peer: table.take("peer", ADDRESS),
            local: table.take("local", ADDRESS),
            gre: table.table("gre"),
            l2tp: table.table("l2tp"),
            sequence: table.take("sequence", SEQUENCE),
        }
    }
}

/// `[[tunnel]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TunnelConfig {
    pub(crate) name: String,
    /// That of its circuit.
    pub(crate) router: String,
    pub(crate) circuit: String,
    /// Its frames among those of its circuit; `None`: all.
    pub(crate) class: Option<ClassConfig>,
    pub(crate) way: TunnelWay,
    pub(crate) session: Session,
    pub(crate) sequence: Sequencing,
}

/// Where a tunnel leads: those of one way share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelWay {
    pub(crate) peer: IpAddr,
    /// `None`: what the kernel chooses.
    pub(crate) local: Option<IpAddr>,
    /// The ports of UDP, ours and the peer's, of one of L2TPv3; `None` is GRE.
    pub(crate) ports: Option<(u16, u16)>,
}

impl TunnelWay {
    /// What its port is called.
    pub(crate) fn title(&self) -> String {
        match self.ports {
            None => format!("GRE to {}", self.peer),
            Some((local, peer)) => format!("L2TP {local} to {} {peer}", self.peer),
        }
    }

    pub(crate) fn kind(&self) -> TunnelPort {
        if self.ports.is_none() { TunnelPort::Gre } else { TunnelPort::L2tp }
    }
}

fn tunnel_title(name: &str) -> String {
    format!("tunnel {name}")
}

fn cookie_text(cookie: &Cookie) -> String {
    cookie.bytes().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// How much of a cookie people are shown: it is a secret of the two ends.
fn cookie_shown(cookie: &Cookie) -> String {
    match cookie.bytes() {
        [] => "none".to_owned(),
        [first, ..] => format!("{first:02x}..."),
    }
}

fn key_text(key: Option<u32>) -> String {
    key.map_or_else(|| "none".to_owned(), |key| key.to_string())
}

impl TunnelConfig {
    /// What goes by it, in words.
    pub(crate) fn of_circuit(&self) -> String {
        let class = self.class.map(|class| format!(" class {class}")).unwrap_or_default();
        format!("circuit {}{class}", self.circuit)
    }

    /// By what it is told from others between the same hosts: what comes, and what is sent.
    pub(crate) fn session_words(&self) -> [String; 2] {
        match self.session {
            Session::Gre { key_in, key_out } => {
                [key_in, key_out].map(|key| format!("key {}", key_text(key)))
            }
            Session::L2tp { session_in, session_out, .. } => {
                [session_in, session_out].map(|id| format!("session {id}"))
            }
        }
    }
}

impl Configured for TunnelConfig {
    fn title(&self) -> String {
        tunnel_title(&self.name)
    }

    fn details(&self) -> String {
        let [comes, goes] = self.session_words();
        format!(": {}, {}, in {comes}, out {goes}", self.of_circuit(), self.way.title())
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let local = self.way.local.map_or_else(|| "the kernel's".to_owned(), |ip| ip.to_string());
        let mut values = vec![
            ("circuit", self.circuit.clone()),
            ("class", self.class.map_or_else(|| "all".to_owned(), |one| one.to_string())),
            ("peer", self.way.title()),
            ("local", local),
            ("sequence", sequence_word(self.sequence).to_owned()),
        ];
        match &self.session {
            Session::Gre { key_in, key_out } => {
                values.extend([("key_in", key_text(*key_in)), ("key_out", key_text(*key_out))]);
            }
            Session::L2tp { session_in, cookie_in, session_out, cookie_out, has_sublayer } => {
                values.extend([
                    ("session_in", session_in.to_string()),
                    ("session_out", session_out.to_string()),
                    ("cookie_in", cookie_shown(cookie_in)),
                    ("cookie_out", cookie_shown(cookie_out)),
                    ("sublayer", has_sublayer.to_string()),
                ]);
            }
        }
        values
    }

    fn stands_on(&self) -> Vec<String> {
        vec![router_title(&self.router), circuit_title(&self.circuit)]
    }

    fn excludes(&self, other: &Thing) -> bool {
        let same_frames = |circuit: Option<&String>, class: Option<ClassConfig>| {
            let meet = self.class == class || self.class.is_none() || class.is_none();
            circuit == Some(&self.circuit) && meet
        };
        match routed(other) {
            Some(Routed::Tunnel(other)) => {
                let same_session =
                    self.way == other.way && self.session.key() == other.session.key();
                other.name == self.name
                    || same_session
                    || same_frames(Some(&other.circuit), other.class)
            }
            Some(Routed::Pseudowire(other)) => same_frames(other.circuit.as_ref(), other.class),
            _ => false,
        }
    }

    fn change(&self, to: &Thing) -> Result<Change, Refused> {
        let Some(Routed::Tunnel(to)) = routed(to) else { return Ok(Change::Replace) };
        let stays = self.router == to.router
            // Another circuit, class or key may be free only once another tunnel has left it.
            && (&self.circuit, self.class) == (&to.circuit, to.class)
            && (self.way, self.session.key()) == (to.way, to.session.key());
        Ok(if stays { Change::Aside } else { Change::Replace })
    }

    fn text(&self) -> String {
        let (name, circuit) = (quoted(&self.name), quoted(&self.circuit));
        let mut text = format!("[[tunnel]]\nname = {name}\ncircuit = {circuit}\n");
        text.extend(self.class.map(|one| format!("class = \"{one}\"\n")));
        let _ = writeln!(text, "peer = \"{}\"", self.way.peer);
        text.extend(self.way.local.map(|local| format!("local = \"{local}\"\n")));
        let mut keys = Vec::new();
        let table = match &self.session {
            Session::Gre { key_in, key_out } => {
                keys.extend(key_in.map(|key| format!("key_in = {key}")));
                keys.extend(key_out.map(|key| format!("key_out = {key}")));
                "gre"
            }
            Session::L2tp { session_in, cookie_in, session_out, cookie_out, has_sublayer } => {
                keys.push(format!("session_in = {session_in}, session_out = {session_out}"));
                for (key, cookie) in [("cookie_in", cookie_in), ("cookie_out", cookie_out)] {
                    if *cookie != Cookie::None {
                        keys.push(format!("{key} = \"{}\"", cookie_text(cookie)));
                    }
                }
                keys.push(format!("sublayer = {has_sublayer}"));
                if let Some((local, peer)) = self.way.ports {
                    keys.push(format!("local_port = {local}, peer_port = {peer}"));
                }
                "l2tp"
            }
        };
        let keys = keys.join(", ");
        text + &format!("{table} = {{ {keys} }}\nsequence = \"{}\"\n", sequence_word(self.sequence))
    }
}

const TITLE: &str = LowTunnel::TITLE;
const NUMBERS_U32: std::ops::RangeInclusive<u64> = 0..=u32::MAX as u64;

/// What tunnels refer to.
pub(super) struct Circuits<'a> {
    pub(super) names: &'a Names,
    /// Their routers, and by what their frames are told apart.
    pub(super) routers: BTreeMap<&'a str, &'a str>,
    pub(super) splits: BTreeMap<&'a str, Classifier>,
    /// What goes by pseudowires already.
    pub(super) taken: BTreeMap<(&'a str, Option<ClassKey>), String>,
}

/// The hosts of a tunnel: the peer, and the ports of UDP.
type Hosts = (IpAddr, Option<(u16, u16)>);

/// Tunnels further up in the file, by what another one may not have: the first of each.
#[derive(Default)]
struct Earlier {
    by_frames: BTreeMap<(String, Option<ClassKey>), usize>,
    by_session: BTreeMap<(Hosts, SessionKey), usize>,
    by_hosts: BTreeMap<Hosts, usize>,
}

impl Earlier {
    fn put(&mut self, tunnel: &TunnelConfig, at: usize) {
        let frames = (tunnel.circuit.clone(), tunnel.class.map(ClassConfig::key));
        let hosts = (tunnel.way.peer, tunnel.way.ports);
        self.by_frames.entry(frames).or_insert(at);
        self.by_session.entry((hosts, tunnel.session.key())).or_insert(at);
        self.by_hosts.entry(hosts).or_insert(at);
    }
}

impl Resolver<'_> {
    /// The tunnels.
    pub(super) fn tunnels(&mut self, low: &LowArgs, circuits: &Circuits<'_>) -> Vec<TunnelConfig> {
        self.names("tunnel", low.tunnels.iter().map(|one| (&one.name, &one.span)));
        let mut all: Vec<TunnelConfig> = Vec::new();
        let mut earlier = Earlier::default();
        for one in &low.tunnels {
            let Some(new) = self.tunnel(one, circuits) else { continue };
            let key = (new.circuit.as_str(), new.class.map(ClassConfig::key));
            let before = earlier.by_frames.get(&(new.circuit.clone(), key.1));
            let other = before.map(|at| all[*at].title());
            if let Some(other) = other.or_else(|| circuits.taken.get(&key).cloned()) {
                let message = format!("{} goes by {other} already", new.of_circuit());
                let first = self.place_of(&other, "circuit");
                let at = one.circuit.as_ref().map_or(one.span.clone(), Spanned::span);
                self.push(Mistake::error(at, message).first(&first));
            }
            let hosts = (new.way.peer, new.way.ports);
            if let Some(at) = earlier.by_session.get(&(hosts, new.session.key())) {
                let (key, peer, other) = (new.session.key(), new.way.peer, all[*at].title());
                let message = format!("{key} to {peer} is that of {other}");
                let first = self.place_of(&other, "");
                self.push(Mistake::error(one.span.clone(), message).first(&first));
            }
            // Each of their ports would hear what is for the other one.
            let before = earlier.by_hosts.get(&hosts).map(|at| &all[*at]);
            if let Some(other) = before.filter(|other| other.way != new.way) {
                let message = format!(
                    "{} and {} are to the same peer, and have another local address",
                    other.title(),
                    new.title()
                );
                let first = self.place_of(&other.title(), "");
                let help = "give all tunnels of a kind to one peer the same local, or none";
                self.push(Mistake::error(one.span.clone(), message).first(&first).help(help));
            }
            earlier.put(&new, all.len());
            all.push(new);
        }
        all
    }

    fn tunnel(&mut self, low: &LowTunnel, circuits: &Circuits<'_>) -> Option<TunnelConfig> {
        for (written, key, example) in [
            (low.circuit.is_some(), "circuit", "circuit = the name of a [[circuit]]"),
            (low.peer.is_some(), "peer", "peer = \"192.0.2.2\", the host where it ends"),
        ] {
            if !written {
                self.missing(&low.span, TITLE, key, example);
            }
        }
        let circuit = low.circuit.as_ref();
        let circuit = circuit.and_then(|written| self.known(written, "circuit", circuits.names));
        let class = match circuit.filter(|circuit| circuits.routers.contains_key(circuit)) {
            Some(circuit) => {
                let split = circuits.splits.get(circuit).copied();
                self.class(low.class.as_ref(), (Some(circuit), split), (&low.span, TITLE))
            }
            None => None,
        };
        let hosts = self.peers(&low.peer, &low.local);
        let sequence = self.sequence(&low.sequence);
        let (session, ports) = match (&low.gre, &low.l2tp) {
            (Some(gre), None) => (self.gre(gre), None),
            (None, Some(l2tp)) => (self.l2tp(l2tp, sequence), self.l2tp_ports(l2tp)),
            (None, None) => {
                let example = "gre = { key = 7 }, or l2tp = { session_in = 7, session_out = 8 }";
                self.missing(&low.span, TITLE, "gre and no l2tp", example);
                return None;
            }
            (Some(gre), Some(_)) => {
                self.error(gre.span.clone(), "a tunnel is one of gre and l2tp, not both");
                return None;
            }
        };
        if low.l2tp.is_some() && ports.is_none() {
            return None;
        }
        let written = low.name.as_ref()?;
        let (circuit, (peer, local)) = (circuit?, hosts?);
        let tunnel = TunnelConfig {
            name: written.get_ref().clone(),
            router: (*circuits.routers.get(circuit)?).to_owned(),
            circuit: circuit.to_owned(),
            class: class?,
            way: TunnelWay { peer, local, ports },
            session: session?,
            sequence,
        };
        self.place(tunnel.title(), "", written.span());
        if let Some(circuit) = &low.circuit {
            self.place(tunnel.title(), "circuit", circuit.span());
        }
        Some(tunnel)
    }

    fn gre(&mut self, low: &LowGre) -> Option<Session> {
        for (key, written) in [("key_in", &low.key_in), ("key_out", &low.key_out)] {
            if let (Some(_), Some(written)) = (&low.key, written) {
                let message = format!("{key}: key has both directions already");
                self.error(written.span(), message);
            }
        }
        let mut key = |written: &Low<i64>, key: &str| match written {
            Some(_) => self.number(written, key, NUMBERS_U32).map(Some),
            None => Some(None),
        };
        let both = key(&low.key, "key")?;
        let (key_in, key_out) = (key(&low.key_in, "key_in")?, key(&low.key_out, "key_out")?);
        Some(Session::Gre { key_in: key_in.or(both), key_out: key_out.or(both) })
    }

    fn l2tp(&mut self, low: &LowL2tp, sequence: Sequencing) -> Option<Session> {
        for (written, key) in [(&low.session_in, "session_in"), (&low.session_out, "session_out")] {
            if written.is_none() {
                let example = format!("{key} = 7, as the receiving end calls the session");
                self.missing(&low.span, LowL2tp::TITLE, key, &example);
            }
        }
        let id = |resolver: &mut Self, written: &Low<i64>, key: &str| {
            let id = resolver.number(written, key, 1..=u32::MAX.into());
            id.and_then(NonZeroU32::new)
        };
        let session_in = id(self, &low.session_in, "session_in");
        let session_out = id(self, &low.session_out, "session_out");
        let cookie_in = self.cookie(&low.cookie_in, "cookie_in");
        let cookie_out = self.cookie(&low.cookie_out, "cookie_out");
        let has_sublayer = low.sublayer.as_ref().is_none_or(|yes| *yes.get_ref());
        if let Some(written) = low.sublayer.as_ref().filter(|_| !has_sublayer)
            && sequence != Sequencing::Off
        {
            let message = "sublayer: without it there are no sequence numbers";
            let help = "sublayer = true at both ends, or sequence = \"off\"";
            self.push(Mistake::error(written.span(), message).help(help));
            return None;
        }
        Some(Session::L2tp {
            session_in: session_in?,
            cookie_in: cookie_in?,
            session_out: session_out?,
            cookie_out: cookie_out?,
            has_sublayer,
        })
    }

    fn l2tp_ports(&mut self, low: &LowL2tp) -> Option<(u16, u16)> {
        let mut port = |written: &Low<i64>, key: &str| match written {
            Some(_) => self.number(written, key, 1..=65_535).map(|port| port as u16),
            None => Some(l2tp::UDP_PORT),
        };
        let (local, peer) =
            (port(&low.local_port, "local_port"), port(&low.peer_port, "peer_port"));
        local.zip(peer)
    }

    fn cookie(&mut self, written: &Low<String>, key: &str) -> Option<Cookie> {
        let Some(written) = written else { return Some(Cookie::None) };
        let text = written.get_ref();
        let is_hex = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        let cookie = match (text.len(), number) {
            (8, Some(number)) => Some(Cookie::Short((number as u32).to_be_bytes())),
            (16, Some(number)) => Some(Cookie::Long(number.to_be_bytes())),
            _ => None,
        };
        if cookie.is_none() {
            let message = format!("{key}: expected {COOKIE}, seen {text:?}");
            self.error(written.span(), message);
        }
        cookie
    }
}
