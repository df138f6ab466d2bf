//! `iscsi://[user@]host[:port]/IQN/LUN`: a logical unit of a remote (or our own) iSCSI target.
//!
//! `?depth=D&hdgst=0|1&ddgst=0|1&initiator=IQN&secret_file=PATH&keep_alive_ms=N&deadline_s=N`
//! `&quiesce_ms=N` may follow. In a user, `@` and `/` are written as `%XX`, in a path `&`. Units:
//! what the option's name ends in.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use scsi::limits::LUN_MAX;
use wire::iscsi::IscsiName;

use crate::config::address::HostPort;
use crate::config::uri::{Encoded, Parser, UriError, options};

pub(crate) const SCHEME: &str = "iscsi";
/// The port of iSCSI, at which every listener of ours answers discovery as well.
pub(crate) const TCP_PORT: u16 = wire::iscsi::PORT;

/// A portal, and as whom to log in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portal {
    /// The target's listener.
    pub(crate) address: HostPort,
    /// The name that CHAP proves, if it is to be proved.
    pub(crate) user: Option<String>,
    /// Where its secret is; there is a user.
    pub(crate) secret_file: Option<PathBuf>,
}

/// How to reach a logical unit over iSCSI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitUri {
    pub(crate) portal: Portal,
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
    pub(crate) fn new(portal: Portal, target: IscsiName, lun: u16) -> Self {
        Self { portal, target, lun, options: UnitOptions::default(), initiator: None }
    }
}

/// `user@host:port`
impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{}@", Encoded(user.as_bytes(), "@/?"))?;
        }
        self.address.fmt(f)
    }
}

impl fmt::Display for UnitUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = Encoded(self.target.as_str().as_bytes(), "/?");
        let options = self.options.to_string();
        write!(f, "{SCHEME}://{}/{target}/{}{options}", self.portal, self.lun)?;
        let mut mark = if options.is_empty() { '?' } else { '&' };
        if let Some(name) = &self.initiator {
            write!(f, "{mark}initiator={}", Encoded(name.as_str().as_bytes(), "&?"))?;
            mark = '&';
        }
        match &self.portal.secret_file {
            Some(path) => {
                write!(f, "{mark}secret_file={}", Encoded(path.as_os_str().as_bytes(), "&?"))
            }
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
    let portal = portal(parser, parts.remove(0))?;
    if parts.len() != 2 {
        return Err(parser.expected(whole, &format!("three parts: {FORM}")));
    }
    let (name_at, lun_at) = (parts[0].clone(), parts[1].clone());
    let target = name(parser, name_at)?;
    let lun = parser.number(lun_at, "a LUN", 0..=u64::from(LUN_MAX))?;
    let mut uri = UnitUri::new(portal, target, u16::try_from(lun).unwrap_or(LUN_MAX));
    let keys = [UnitOptions::KEYS, &["initiator", SECRET_FILE]].concat();
    for (key, value) in parser.options(query, &keys)? {
        match key {
            "initiator" => uri.initiator = Some(name(parser, value)?),
            SECRET_FILE => uri.portal.secret_file = Some(secret_file(parser, &uri.portal, value)?),
            key => uri.options.take(parser, key, value)?,
        }
    }
    Ok(uri)
}

const SECRET_FILE: &str = "secret_file";

/// Parses whom `discover` asks: `iscsi://[user@]host[:port][?secret_file=PATH]`.
pub(crate) fn parse_target(parser: &Parser<'_>, at: Range<usize>) -> Result<Portal, UriError> {
    let (host, query) = parser.split_query(at);
    let end = host.start + parser.uri[host.clone()].trim_end_matches('/').len();
    let mut portal = portal(parser, host.start..end)?;
    for (_, value) in parser.options(query, &[SECRET_FILE])? {
        portal.secret_file = Some(secret_file(parser, &portal, value)?);
    }
    Ok(portal)
}

/// `[user@]host[:port]`
fn portal(parser: &Parser<'_>, at: Range<usize>) -> Result<Portal, UriError> {
    let (mut address_at, mut user) = (at.clone(), None);
    if let Some(length) = parser.uri[at.clone()].rfind('@') {
        let user_at = at.start..at.start + length;
        address_at.start = user_at.end + 1;
        let name = String::from_utf8(parser.decode(user_at.clone())?).ok();
        let name = name.filter(|name| !name.is_empty() && !name.contains(char::is_control));
        let expected = "a user before the @, in UTF-8 and without control characters";
        user = Some(name.ok_or_else(|| parser.expected(user_at, expected))?);
    }
    let address = HostPort::parse(&parser.uri[address_at.clone()], Some(TCP_PORT))
        .map_err(|e| parser.fail(address_at.start + e.offset..address_at.end, e.message))?;
    Ok(Portal { address, user, secret_file: None })
}

fn secret_file(
    parser: &Parser<'_>,
    portal: &Portal,
    at: Range<usize>,
) -> Result<PathBuf, UriError> {
    if portal.user.is_none() {
        let mut error = parser.fail(at, "a secret is of a user, and none is named");
        error.help = Some(format!("write {SCHEME}://USER@{}", portal.address));
        return Err(error);
    }
    let bytes = parser.decode(at.clone())?;
    match bytes.is_empty() || bytes.contains(&0) {
        true => Err(parser.expected(at, "the path of a file")),
        false => Ok(PathBuf::from(OsString::from_vec(bytes))),
    }
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
