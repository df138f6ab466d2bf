//! What `plateway connect` prints: what is typed on a client to use an export.
//!
//! Each protocol says it for each kind of client in its own `connect` file; here are the kinds, and
//! what an answer is, and what more than one protocol says. What stands in capitals (`SECRET`,
//! `vmhbaN`) is the reader's to fill in: secrets are never printed. What somebody chose is quoted as
//! the client's shell takes it.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use crate::config::address::HostPort;
use crate::config::export::Hosts;
use crate::protocols::host::HostConfig;

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
    /// As whom clients ask there which targets there are, if not everybody may.
    pub(crate) discovery: Option<&'a str>,
    /// The hosts that have names.
    pub(crate) hosts: &'a [HostConfig],
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

    /// For QEMU, of a protocol that it does not speak: its host has the disk as this device.
    pub(super) fn through_the_host(protocol: &str, device: &str) -> Guide {
        Guide::instead(format!(
            "QEMU has no initiator for {protocol}: connect the Linux host under it (--for linux), and give it -drive file={device},format=raw,if=virtio,cache=none"
        ))
    }

    /// For Proxmox, which makes its volumes of a disk that each node has as this device, once it
    /// typed what a Linux host does.
    pub(super) fn shared_by_nodes(on_each: Vec<String>, device: &str) -> Guide {
        let mut lines = vec!["# on each node; once, on one of them, the last two:".to_owned()];
        lines.extend(on_each);
        lines.push(format!("vgcreate NAME {device}"));
        lines.push("pvesm add lvm NAME --vgname NAME --shared 1".to_owned());
        Guide::typed(lines)
    }
}

/// A line that says which hosts are let in, where they are chosen by name, and where a host has its
/// own.
pub(super) fn who<T: fmt::Display>(hosts: &Hosts<T>, where_it_is: &str) -> Option<String> {
    match hosts {
        Hosts::Any => None,
        list => Some(format!("# the host is let in as one of: {list}; {where_it_is}")),
    }
}

/// A word as a POSIX shell takes it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_chose_is_one_word() {
        assert_eq!(quoted("iqn.2026-11.a:b"), "iqn.2026-11.a:b");
        for (word, expected) in [
            ("", "''"),
            ("a user", "'a user'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", r"'it'\''s'"),
            ("a;b", "'a;b'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
