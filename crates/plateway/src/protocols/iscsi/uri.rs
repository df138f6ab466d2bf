//! `iscsi://host[:port]/IQN/LUN`: a logical unit of a remote (or our own) iSCSI target.
//!
//! `?depth=D&hdgst=0|1&ddgst=0|1&initiator=IQN&keep_alive_ms=N&deadline_s=N&quiesce_ms=N` may
//! follow. In a name, `/` is written as `%2F`. Units: what the option's name ends in.

use std::fmt;
use std::ops::Range;

use scsi::limits::LUN_MAX;
use wire::iscsi::{IscsiName, PORT};

use crate::config::address::HostPort;
use crate::config::uri::{Encoded, Parser, UriError, options};

pub(crate) const SCHEME: &str = "iscsi";

/// How to reach a logical unit over iSCSI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitUri {
    /// The target's listener.
    pub(crate) address: HostPort,
    pub(crate) target: IscsiName,
    /// The logical unit: 0 to [`LUN_MAX`].
    pub(crate) lun: u16,
    pub(crate) options: UnitOptions,
    /// Who we say we are; one is made of the machine's identity where this is `None`.
    pub(crate) initiator: Option<IscsiName>,
}

options! {
    UnitOptions {
        /// Commands in flight from each shard.
        depth: u16 = 128, 1..=1024;
        /// Whether to insist on a CRC32C of each header.
        hdgst: u8 = 1, 0..=1;
        /// Whether to insist on a CRC32C of each payload.
        ddgst: u8 = 1, 0..=1;
        /// A target that says nothing for half of it is asked for a sign of life, and given up after
        /// the whole; 0 for never. As open-iscsi: 5 s.
        keep_alive_ms: u32 = 5_000, 0..=3_600_000;
        /// How long to reconnect before requests end in an error: as long as a disk may be stuck
        /// before it is given up.
        deadline_s: u32 = 60, 1..=86_400;
        /// How long a lost session may still write where its target does not say that it is over.
        quiesce_ms: u32 = 30_000, 0..=3_600_000;
    }
}

impl UnitUri {
    /// The logical unit with every option at its default.
    pub(crate) fn new(address: HostPort, target: IscsiName, lun: u16) -> Self {
        Self { address, target, lun, options: UnitOptions::default(), initiator: None }
    }
}

impl fmt::Display for UnitUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = Encoded(self.target.as_str().as_bytes(), "/?");
        let options = self.options.to_string();
        write!(f, "{SCHEME}://{}/{target}/{}{options}", self.address, self.lun)?;
        let mark = if options.is_empty() { '?' } else { '&' };
        match &self.initiator {
            Some(name) => write!(f, "{mark}initiator={}", Encoded(name.as_str().as_bytes(), "&?")),
            None => Ok(()),
        }
    }
}

/// Parses what follows the scheme.
pub(crate) fn parse(parser: &Parser<'_>, at: Range<usize>) -> Result<UnitUri, UriError> {
    const FORM: &str = "iscsi://host:port/IQN/LUN";
    let Some(rest) = parser.uri[at.clone()].strip_prefix("//") else {
        return Err(parser.expected(at, &format!("// and a host: {FORM}")));
    };
    let start = at.end - rest.len();
    let (whole, query) = parser.split_query(start..at.end);
    let mut parts = parser.split(whole.clone(), '/');
    let address = address(parser, parts.remove(0))?;
    if parts.len() != 2 {
        return Err(parser.expected(whole, &format!("three parts: {FORM}")));
    }
    let (name_at, lun_at) = (parts[0].clone(), parts[1].clone());
    let target = name(parser, name_at)?;
    let lun = parser.number(lun_at, "a LUN", 0..=u64::from(LUN_MAX))?;
    let mut uri = UnitUri::new(address, target, u16::try_from(lun).unwrap_or(LUN_MAX));
    let keys = [UnitOptions::KEYS, &["initiator"]].concat();
    for (key, value) in parser.options(query, &keys)? {
        match key {
            "initiator" => uri.initiator = Some(name(parser, value)?),
            key => uri.options.take(parser, key, value)?,
        }
    }
    Ok(uri)
}

/// Parses whom `discover` asks: `iscsi://host[:port]`.
pub(crate) fn parse_target(parser: &Parser<'_>, at: Range<usize>) -> Result<HostPort, UriError> {
    let host = parser.uri[at.clone()].trim_end_matches('/');
    address(parser, at.start..at.start + host.len())
}

fn address(parser: &Parser<'_>, at: Range<usize>) -> Result<HostPort, UriError> {
    HostPort::parse(&parser.uri[at.clone()], Some(PORT))
        .map_err(|e| parser.fail(at.start + e.offset..at.end, e.message))
}

fn name(parser: &Parser<'_>, at: Range<usize>) -> Result<IscsiName, UriError> {
    let bytes = parser.decode(at.clone())?;
    let text = String::from_utf8(bytes)
        .map_err(|_| parser.expected(at.clone(), "an iSCSI name in UTF-8"))?;
    super::name(&text).map_err(|(message, offset)| {
        // Offsets hold only where nothing was encoded.
        let plain = !parser.uri[at.clone()].contains('%');
        let from = if plain { (at.start + offset).min(at.end) } else { at.start };
        parser.fail(from..at.end, message)
    })
}
