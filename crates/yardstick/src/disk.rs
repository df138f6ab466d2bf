//! The disk of a load in one word, as `plateway` names disks of other targets:
//! `SCHEME://ADDRESS:PORT/NAME/NUMBER?hdgst=0&ddgst=1`. It stands in place of an address, a name, a number and two
//! flags.
//!
//! In: that word. Out: [`Disk`]. Errors: another form, other words behind the question mark.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

/// Where a disk is, and which digests it is asked with.
pub(crate) struct Disk<N> {
    pub(crate) connect: SocketAddr,
    /// The target's name: IQN or NQN.
    pub(crate) name: String,
    /// Of the unit or the namespace.
    pub(crate) number: N,
    pub(crate) hdgst: bool,
    pub(crate) ddgst: bool,
}

impl<N: FromStr> Disk<N> {
    /// Reads a URI of this scheme; `parts` is what name and number are called there.
    pub(crate) fn parse(scheme: &str, parts: &str, uri: &str) -> Result<Self> {
        let form = format!("{scheme}://ADDRESS:PORT/{parts}");
        let (path, words) = uri.split_once('?').unwrap_or((uri, ""));
        let take = || {
            let (address, rest) =
                path.strip_prefix(scheme)?.strip_prefix("://")?.split_once('/')?;
            let (name, number) = rest.split_once('/')?;
            Some((address.parse().ok()?, name.to_owned(), number.parse().ok()?))
        };
        let (connect, name, number) =
            take().with_context(|| format!("expected {form}, seen {uri:?}"))?;
        let mut disk = Self { connect, name, number, hdgst: false, ddgst: false };
        for word in words.split('&').filter(|word| !word.is_empty()) {
            match word {
                "hdgst=0" | "ddgst=0" => {}
                "hdgst=1" => disk.hdgst = true,
                "ddgst=1" => disk.ddgst = true,
                other => {
                    bail!("{uri:?}: expected hdgst=0 or 1 and ddgst=0 or 1 alone, seen {other:?}")
                }
            }
        }
        Ok(disk)
    }
}
