//! `iscsi://[user@]host[:port]/IQN/LUN`: a logical unit of a remote (or our own) iSCSI target.
//!
//! `?sessions=N&depth=D&hdgst=0|1&ddgst=0|1&initiator=IQN&secret_file=PATH&mutual_user=USER`
//! `&mutual_secret_file=PATH&keep_alive_ms=N&deadline_s=N&quiesce_ms=N` may follow. In a user, `@`
//! and `/` are written as `%XX`, in a path `&`. Units: what the option's name ends in.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use ::iscsi::limits::{INITIATOR_DEPTH_MAX, INITIATOR_SESSIONS_MAX};
use scsi::limits::LUN_MAX;
use wire::iscsi::IscsiName;

use super::chap;
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
    /// As whom the target has to prove itself in return; there is a user. Few have one.
    pub(crate) mutual: Option<Box<Mutual>>,
}

/// As whom a target has to prove itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutual {
    pub(crate) user: String,
    /// Where its secret is.
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
        /// Sessions from each shard, one connection each.
        sessions: u16 = 1, 1..=INITIATOR_SESSIONS_MAX.into();
        /// Commands in flight on a session.
        depth: u16 = 128, 1..=INITIATOR_DEPTH_MAX.into();
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

impl Portal {
    /// Where its user's secret is, as the address of a discovery has it.
    pub(super) fn proof(&self) -> String {
        let path = self.secret_file.as_ref().map(|path| path.as_os_str().as_bytes());
        path.map_or_else(String::new, |path| format!("?{SECRET_FILE}={}", Encoded(path, "&?")))
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
        let Portal { secret_file, mutual, .. } = &self.portal;
        let mutual = mutual.as_deref();
        let path = |path: &'_ PathBuf| path.as_os_str().as_bytes().to_vec();
        for (key, value) in [
            ("initiator", self.initiator.as_ref().map(|name| name.as_str().as_bytes().to_vec())),
            (SECRET_FILE, secret_file.as_ref().map(path)),
            (MUTUAL_USER, mutual.map(|mutual| mutual.user.as_bytes().to_vec())),
            (MUTUAL_SECRET_FILE, mutual.and_then(|one| one.secret_file.as_ref()).map(path)),
        ] {
            if let Some(value) = value {
                write!(f, "{mark}{key}={}", Encoded(&value, "&?"))?;
                mark = '&';
            }
        }
        Ok(())
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
    let keys = [UnitOptions::KEYS, &["initiator"], &PROOF_KEYS].concat();
    let options = parser.options(query, &keys)?;
    for (key, value) in &options {
        match *key {
            "initiator" => uri.initiator = Some(name(parser, value.clone())?),
            key if PROOF_KEYS.contains(&key) => {}
            key => uri.options.take(parser, key, value.clone())?,
        }
    }
    proofs(parser, &mut uri.portal, options)?;
    Ok(uri)
}

const SECRET_FILE: &str = "secret_file";
const MUTUAL_USER: &str = "mutual_user";
const MUTUAL_SECRET_FILE: &str = "mutual_secret_file";
/// The options that say how both ends prove who they are.
const PROOF_KEYS: [&str; 3] = [SECRET_FILE, MUTUAL_USER, MUTUAL_SECRET_FILE];

/// Parses whom `discover` asks: `iscsi://[user@]host[:port]`, with the options of proofs.
pub(crate) fn parse_target(parser: &Parser<'_>, at: Range<usize>) -> Result<Portal, UriError> {
    let (host, query) = parser.split_query(at);
    let host = parser.without_path(host, "iscsi://[USER@]HOST[:PORT]")?;
    let mut portal = portal(parser, host)?;
    let options = parser.options(query, &PROOF_KEYS)?;
    proofs(parser, &mut portal, options)?;
    Ok(portal)
}

/// `[user@]host[:port]`
fn portal(parser: &Parser<'_>, at: Range<usize>) -> Result<Portal, UriError> {
    let (mut address_at, mut user) = (at.clone(), None);
    if let Some(length) = parser.uri[at.clone()].rfind('@') {
        let user_at = at.start..at.start + length;
        address_at.start = user_at.end + 1;
        user = Some(user_of(parser, user_at, "a user before the @")?);
    }
    let address = HostPort::parse(&parser.uri[address_at.clone()], Some(TCP_PORT))
        .map_err(|e| parser.fail(address_at.start + e.offset..address_at.end, e.message))?;
    Ok(Portal { address, user, secret_file: None, mutual: None })
}

/// Takes what options say of proofs, and passes over others. None is there without a user.
fn proofs(
    parser: &Parser<'_>,
    portal: &mut Portal,
    options: Vec<(&str, Range<usize>)>,
) -> Result<(), UriError> {
    let no_user = |at: Range<usize>, message, help: String| {
        let mut error = parser.fail(at, message);
        error.help = Some(help);
        Err(error)
    };
    let (mut mutual_user, mut mutual_file) = (None, None);
    for (key, at) in options.into_iter().filter(|(key, _)| PROOF_KEYS.contains(key)) {
        if portal.user.is_none() {
            let message = match key {
                SECRET_FILE => "a secret is of a user, and none is named",
                _ => "a target proves who it is to a user, and none is named",
            };
            return no_user(at, message, format!("write {SCHEME}://USER@{}", portal.address));
        }
        match key {
            SECRET_FILE => portal.secret_file = Some(secret_file(parser, at)?),
            MUTUAL_USER => mutual_user = Some(user_of(parser, at, "a user")?),
            _ => mutual_file = Some((secret_file(parser, at.clone())?, at)),
        }
    }
    match (mutual_user, mutual_file) {
        (None, Some((_, at))) => {
            let message = "a secret is of a user, and none is named for the target";
            return no_user(at, message, format!("add {MUTUAL_USER}=USER"));
        }
        (None, None) => {}
        (Some(user), file) => {
            let secret_file = file.map(|(path, _)| path);
            portal.mutual = Some(Box::new(Mutual { user, secret_file }));
        }
    }
    Ok(())
}

fn user_of(parser: &Parser<'_>, at: Range<usize>, what: &str) -> Result<String, UriError> {
    let name =
        String::from_utf8(parser.decode(at.clone())?).ok().filter(|name| chap::is_user(name));
    name.ok_or_else(|| {
        parser.expected(at, &format!("{what}, in UTF-8 and without control characters"))
    })
}

fn secret_file(parser: &Parser<'_>, at: Range<usize>) -> Result<PathBuf, UriError> {
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
