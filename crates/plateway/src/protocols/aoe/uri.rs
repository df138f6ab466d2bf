//! `aoe://INTERFACE[,INTERFACE...]/SHELF.SLOT`: a target of AoE; `aoe://pw:NAME/SHELF.SLOT`: one behind
//! a pseudowire that ends in this process.
//!
//! `?window=N&vlan=N&deadline_s=N&quiesce_ms=N` may follow, `vlan` not behind a pseudowire. In the name
//! of an interface, `,` is written as `%XX`, too; none has a `:`. Units: what the option's name ends
//! in.

use std::fmt;
use std::ops::Range;

use ::aoe::limits::WINDOW_MAX;
use wire::aoe::Address;

use crate::config::link::PSEUDOWIRE_PREFIX;
use crate::config::uri::{Encoded, Parser, UriError, VLANS, check_interface, check_name, options};

pub(crate) const SCHEME: &str = "aoe";

/// How to reach a target of AoE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetUri {
    pub(crate) over: Over,
    /// Shelf and slot, no wildcard.
    pub(crate) address: Address,
    pub(crate) options: TargetOptions,
}

/// By what a target is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// One or more, each once.
    Interfaces(Vec<String>),
    /// By its name.
    Pseudowire(String),
}

options! {
    TargetOptions {
        /// Commands in flight on each shard (behind a pseudowire on all together), and together no
        /// more than the target holds: as many as the Linux driver has in flight.
        window: u16 = 64, 1..=WINDOW_MAX.into();
        /// The VLAN on all interfaces; 0 is frames without a tag.
        vlan: u16 = 0, VLANS;
        /// How long to send again before requests end in an error.
        deadline_s: u32 = 60, 1..=86_400;
        /// How long a target that did not answer may still carry out what it was sent.
        quiesce_ms: u32 = 10_000, 0..=3_600_000;
    }
}

impl fmt::Display for TargetUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aoe://{}/{}{}", self.over, self.address, self.options)
    }
}

/// `eth1,eth2` or `pw:p`
impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interfaces = match self {
            Over::Interfaces(interfaces) => interfaces,
            Over::Pseudowire(name) => return write!(f, "{PSEUDOWIRE_PREFIX}{name}"),
        };
        for (index, interface) in interfaces.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", Encoded(interface.as_bytes(), "?,"))?;
        }
        Ok(())
    }
}

/// Parses what follows the scheme.
pub(crate) fn parse(parser: &Parser<'_>, at: Range<usize>) -> Result<TargetUri, UriError> {
    const FORM: &str = "aoe://eth1/7.0";
    let Some(rest) = parser.uri[at.clone()].strip_prefix("//") else {
        return Err(parser.expected(at, &format!("// and an interface: {FORM}")));
    };
    let (whole, query) = parser.split_query(at.end - rest.len()..at.end);
    let parts = parser.split(whole.clone(), '/');
    let [names, address_at] = parts.as_slice() else {
        return Err(parser.expected(whole, &format!("an interface and shelf.slot: {FORM}")));
    };
    let over = over(parser, names.clone())?;
    let address = parser.uri[address_at.clone()].parse::<Address>().map_err(|_| {
        let what = "a shelf of 0 to 65534, a dot and a slot of 0 to 254";
        parser.expected(address_at.clone(), what)
    })?;
    let mut options = TargetOptions::default();
    for (key, value) in parser.options(query, TargetOptions::KEYS)? {
        if let ("vlan", Over::Pseudowire(_)) = (key, &over) {
            let message = "vlan is for interfaces: frames in a pseudowire have no tag that this process looks at";
            return Err(parser.fail(value, message));
        }
        options.take(parser, key, value)?;
    }
    Ok(TargetUri { over, address, options })
}

/// Parses whom `discover` asks: `aoe://INTERFACE[,INTERFACE...][?vlan=N]`.
pub(crate) fn parse_target(
    parser: &Parser<'_>,
    at: Range<usize>,
) -> Result<(Vec<String>, Option<u16>), UriError> {
    let (names, query) = parser.split_query(at);
    let names = parser.without_path(names, "aoe://INTERFACE[,INTERFACE...]")?;
    let over = over(parser, names.clone())?;
    let Over::Interfaces(interfaces) = over else {
        let message =
            "discover asks on interfaces, and a pseudowire ends in the process that has it";
        let mut error = parser.fail(names, message);
        error.help =
            Some(format!("a disk is tried by: plateway bench aoe://{over}/7.0 --config FILE"));
        return Err(error);
    };
    let mut vlan = None;
    for (key, value) in parser.options(query, &["vlan"])? {
        vlan = Some(parser.number(value, key, VLANS)? as u16);
    }
    Ok((interfaces, vlan))
}

/// A pseudowire, or interfaces.
fn over(parser: &Parser<'_>, at: Range<usize>) -> Result<Over, UriError> {
    let parts = parser.split(at.clone(), ',');
    let wire = |part: &Range<usize>| parser.uri[part.clone()].strip_prefix(PSEUDOWIRE_PREFIX);
    let Some((part, name)) = parts.iter().find_map(|part| Some((part, wire(part)?))) else {
        return Ok(Over::Interfaces(interfaces(parser, at)?));
    };
    if parts.len() > 1 {
        let message = "a pseudowire stands alone: it has second paths of its own, and interfaces are none of them";
        return Err(parser.fail(at, message));
    }
    match check_name(name) {
        Ok(()) => Ok(Over::Pseudowire(name.to_owned())),
        Err(what) => Err(parser.expected(part.end - name.len()..part.end, what)),
    }
}

/// Names of interfaces with commas between them: one at least, each once.
fn interfaces(parser: &Parser<'_>, at: Range<usize>) -> Result<Vec<String>, UriError> {
    let mut names: Vec<String> = Vec::new();
    for part in parser.split(at, ',') {
        let name = String::from_utf8(parser.decode(part.clone())?).ok();
        let Some(name) = name.filter(|name| check_interface(name).is_ok()) else {
            let what = check_interface("").err().unwrap_or_default();
            return Err(parser.expected(part, what));
        };
        if names.contains(&name) {
            return Err(parser.fail(part, format!("interface {name} is named twice")));
        }
        names.push(name);
    }
    Ok(names)
}
