//! What `plateway connect` prints: what is typed on a client to use an export.
//!
//! Each protocol says it for each kind of client in its own `connect` file; here are the kinds, and
//! what an answer is. What stands in capitals (`SECRET`, `vmhbaN`) is the reader's to fill in:
//! secrets are never printed.

use clap::ValueEnum;
use serde::Serialize;

use crate::config::address::HostPort;

/// Who wants to use an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientKind {
    /// A Linux host
    Linux,
    /// QEMU, and libvirt above it
    Qemu,
    /// Windows and Windows Server
    Windows,
    /// VMware ESXi
    Esxi,
    /// Proxmox VE
    Proxmox,
    /// iPXE, to boot
    Ipxe,
}

/// An export as it is reached.
pub(crate) struct Reached<'a> {
    /// The address by which clients come; none where the protocol has none.
    pub(crate) at: Option<&'a HostPort>,
    /// The UUID of its volume.
    pub(crate) uuid: &'a str,
}

/// What is typed, or why there is nothing to type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Guide {
    /// In this order. Lines that begin with `#` are for people.
    pub(crate) commands: Vec<String>,
    /// Why this client does not come by this protocol, and what does instead.
    pub(crate) instead: Option<String>,
}

impl Guide {
    pub(super) fn typed(commands: Vec<String>) -> Guide {
        Guide { commands, instead: None }
    }

    pub(super) fn instead(why: impl Into<String>) -> Guide {
        Guide { commands: Vec::new(), instead: Some(why.into()) }
    }
}
