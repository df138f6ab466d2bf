//! `nvme+tcp://host[:port]/NQN/NSID`: a namespace of a remote (or our own) NVMe/TCP target.
//!
//! `?queues=N&depth=D&hdgst=0|1&ddgst=0|1&host_nqn=NQN&keep_alive_ms=N&deadline_s=N&quiesce_ms=N`
//! may follow. In an NQN, `/` and `&` are written as `%XX`, too. Units: what the option's name ends
//! in.

use std::fmt;
use std::ops::Range;

use ::nvme::limits::{IO_QUEUES_MAX, QUEUE_DEPTH_MAX};

use super::nqn::{Nqn, NqnError};
use crate::config::address::HostPort;
use crate::config::uri::{Encoded, Parser, UriError, options};

pub(crate) const SCHEME: &str = "nvme+tcp";
/// The port of NVMe/TCP, which every listener of ours answers discovery on as well.
pub(crate) const TCP_PORT: u16 = wire::nvme_tcp::PORT;

/// How to reach a namespace over NVMe/TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceUri {
    /// The target's listener.
    pub(crate) address: HostPort,
    /// The subsystem to connect to.
    pub(crate) subsystem: Nqn,
    /// The namespace: 1 to FFFFFFFEh.
    pub(crate) nsid: u32,
    pub(crate) options: NamespaceOptions,
    /// Who we say we are; one is made of the machine's identity where this is `None`.
    pub(crate) host_nqn: Option<Nqn>,
}

options! {
    NamespaceOptions {
        /// I/O queues, one connection each.
        queues: u16 = 1, 1..=IO_QUEUES_MAX.into();
        /// Commands in flight on a queue.
        depth: u16 = 128, 1..=QUEUE_DEPTH_MAX.into();
        /// Whether to ask for a CRC32C of each header.
        hdgst: u8 = 1, 0..=1;
        /// Whether to ask for a CRC32C of each payload.
        ddgst: u8 = 1, 0..=1;
        /// Keep-alive timeout asked for at Connect. What Linux asks for (`nvme_core.admin_timeout`
        /// aside): 5 s.
        keep_alive_ms: u32 = 5_000, 100..=3_600_000;
        /// How long to reconnect before requests end in an error: as long as a disk may be stuck
        /// before it is given up.
        deadline_s: u32 = 60, 1..=86_400;
        /// Beyond the keep-alive timeout, how long a lost association may still write. A disk is
        /// slow after 5 s; a target that lost us should have drained by then.
        quiesce_ms: u32 = 5_000, 0..=3_600_000;
    }
}

impl NamespaceUri {
    /// The namespace with every option at its default.
    pub(crate) fn new(address: HostPort, subsystem: Nqn, nsid: u32) -> Self {
        let options = NamespaceOptions::default();
        Self { address, subsystem, nsid, options, host_nqn: None }
    }
}

impl fmt::Display for NamespaceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subsystem = Encoded(self.subsystem.as_str().as_bytes(), "/?");
        let options = self.options.to_string();
        write!(f, "{SCHEME}://{}/{subsystem}/{}{options}", self.address, self.nsid)?;
        let mark = if options.is_empty() { '?' } else { '&' };
        match &self.host_nqn {
            Some(nqn) => write!(f, "{mark}host_nqn={}", Encoded(nqn.as_str().as_bytes(), "&?")),
            None => Ok(()),
        }
    }
}

/// Parses what follows the scheme.
pub(crate) fn parse(parser: &Parser<'_>, at: Range<usize>) -> Result<NamespaceUri, UriError> {
    const FORM: &str = "nvme+tcp://host:port/NQN/NSID";
    let Some(rest) = parser.uri[at.clone()].strip_prefix("//") else {
        return Err(parser.expected(at, &format!("// and a host: {FORM}")));
    };
    let start = at.end - rest.len();
    let (whole, query) = parser.split_query(start..at.end);
    let mut parts = parser.split(whole.clone(), '/');
    let address = address(parser, parts.remove(0))?;
    if parts.len() != 2 {
        let mut error = parser.expected(whole, &format!("three parts: {FORM}"));
        error.help = (parts.len() > 2).then(|| "write a / in an NQN as %2F".to_owned());
        return Err(error);
    }
    let (nqn_at, nsid_at) = (parts[0].clone(), parts[1].clone());
    let subsystem = nqn(parser, nqn_at)?;
    let nsid =
        u32::try_from(parser.number(nsid_at, "a namespace", 1..=0xffff_fffe)?).unwrap_or(u32::MAX);
    let mut uri = NamespaceUri::new(address, subsystem, nsid);
    let keys = [NamespaceOptions::KEYS, &["host_nqn"]].concat();
    for (key, value) in parser.options(query, &keys)? {
        match key {
            "host_nqn" => uri.host_nqn = Some(nqn(parser, value)?),
            key => uri.options.take(parser, key, value)?,
        }
    }
    Ok(uri)
}

/// Parses whom `discover` asks: `nvme+tcp://host[:port]`.
pub(crate) fn parse_target(parser: &Parser<'_>, at: Range<usize>) -> Result<HostPort, UriError> {
    let host = parser.without_path(at, "nvme+tcp://HOST[:PORT]")?;
    address(parser, host)
}

/// What may be meant by a target without a scheme.
pub(crate) fn guess_target(text: &str) -> Option<String> {
    let address = HostPort::parse(text, Some(TCP_PORT)).ok()?;
    Some(format!("write nvme+tcp://{address}"))
}

fn address(parser: &Parser<'_>, at: Range<usize>) -> Result<HostPort, UriError> {
    HostPort::parse(&parser.uri[at.clone()], Some(TCP_PORT))
        .map_err(|e| parser.fail(at.start + e.offset..at.end, e.message))
}

fn nqn(parser: &Parser<'_>, at: Range<usize>) -> Result<Nqn, UriError> {
    let bytes = parser.decode(at.clone())?;
    let text =
        String::from_utf8(bytes).map_err(|_| parser.expected(at.clone(), "an NQN in UTF-8"))?;
    text.parse().map_err(|e: NqnError| {
        // Offsets hold only where nothing was encoded.
        let plain = !parser.uri[at.clone()].contains('%');
        let from = if plain { (at.start + e.offset).min(at.end) } else { at.start };
        parser.fail(from..at.end, e.message)
    })
}
