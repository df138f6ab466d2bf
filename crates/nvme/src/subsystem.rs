//! What is exported: subsystems, their namespaces and the hosts that may use them.
//!
//! Plain values that the configuration makes; each shard holds a copy, and
//! [`Controllers`](crate::controllers::Controllers) is told of changes. Units: `blocks` counts
//! logical blocks of `block_size`; the physical block is in bytes. Identifiers that hosts see are
//! derived from the volume's UUID, so that they survive restarts and are the same through every
//! controller. Spec: NVMe base, "NVM Subsystem" and "Identify"; "Namespace Globally Unique
//! Identifier", "IEEE Extended Unique Identifier".

use block::random::mix;
use block::{BlockCount, BlockSize, VolumeId};
use wire::nvme::Nqn;

/// Model number of every subsystem, in ASCII.
pub const MODEL: &str = "Plateway";

/// A subsystem: a name, its namespaces and who may use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// SUBNQN.
    pub nqn: Nqn,
    /// Serial number: 20 ASCII characters.
    pub serial: [u8; 20],
    /// The hosts that may connect.
    pub hosts: Hosts,
    /// Namespaces in ascending order of their NSIDs, which are 1 to
    /// [`crate::limits::NAMESPACES_MAX`].
    pub namespaces: Vec<Namespace>,
}

/// Which hosts may use a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every host.
    Any,
    /// These HOSTNQNs and no other; an empty list admits nobody.
    List(Vec<Nqn>),
}

impl Hosts {
    /// The host, if a list names it.
    pub(crate) fn listed(&self, host: &Nqn) -> Option<Nqn> {
        matches!(self, Hosts::List(hosts) if hosts.contains(host)).then(|| host.clone())
    }

    /// Whether the host of this name may connect.
    pub fn allow(&self, host: &Nqn) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::List(hosts) => hosts.contains(host),
        }
    }
}

/// A namespace: a volume under a number, with the facts that hosts are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// NSID, 1 to [`crate::limits::NAMESPACES_MAX`].
    pub nsid: u32,
    /// The volume that holds the blocks.
    pub volume: VolumeId,
    /// The volume's UUID: the identity of the blocks.
    pub uuid: [u8; 16],
    /// Size of a logical block.
    pub block_size: BlockSize,
    /// Size in logical blocks.
    pub blocks: BlockCount,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether a completed write may be lost until a flush.
    pub cache_volatile: bool,
    /// Whether a deallocated range gives space back.
    pub discards: bool,
    /// Whether deallocated ranges read as zeros.
    pub discard_zeroes: bool,
    /// What is written best and atomically, in bytes; at least the logical block.
    pub physical_block: u32,
}

/// Whose blocks they are and how they are counted: while this is the same, an LBA names the same
/// place. Not the volume's number, which is a new one when a removal is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceIdentity {
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Size of a logical block.
    pub block_size: BlockSize,
}

impl Namespace {
    /// Which namespace it is, whatever its NSID.
    pub fn identity(&self) -> NamespaceIdentity {
        NamespaceIdentity { uuid: self.uuid, block_size: self.block_size }
    }

    /// NGUID: the UUID itself, which is as unique as an NGUID has to be.
    pub fn nguid(&self) -> [u8; 16] {
        self.uuid
    }

    /// EUI-64: 64 bits hashed from the UUID, marked as locally administered. Never zero, which
    /// would mean "none".
    pub fn eui64(&self) -> [u8; 8] {
        let mut bytes = mix(&self.uuid).to_be_bytes();
        // Bit 1 of the first byte: not from an IEEE registry; bit 0: no group address.
        bytes[0] = bytes[0] & !1 | 2;
        bytes
    }
}

impl Subsystem {
    /// A subsystem without namespaces, whose serial number follows from its name.
    pub fn new(nqn: Nqn, hosts: Hosts) -> Self {
        let serial = serial(&nqn);
        Subsystem { nqn, serial, hosts, namespaces: Vec::new() }
    }

    /// With this namespace added, or put in the place of one with the same NSID.
    pub fn with_namespace(mut self, namespace: Namespace) -> Self {
        match self.namespaces.binary_search_by_key(&namespace.nsid, |other| other.nsid) {
            Ok(at) => self.namespaces[at] = namespace,
            Err(at) => self.namespaces.insert(at, namespace),
        }
        self
    }
}

/// The serial number of a subsystem: `PW` and 18 digits hashed from its name. A subsystem keeps its
/// name over restarts, so it keeps its serial number, and two names give two numbers.
pub fn serial(nqn: &Nqn) -> [u8; 20] {
    let mut serial = *b"PW000000000000000000";
    let mut rest = mix(nqn.as_str().as_bytes());
    for digit in serial[2..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    serial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::nqn;

    #[test]
    fn a_serial_number_is_twenty_ascii_characters_that_follow_from_the_name() {
        let a = serial(&nqn("nqn.2026-11.net.plateway:a"));
        let b = serial(&nqn("nqn.2026-11.net.plateway:b"));
        assert!(a.iter().all(u8::is_ascii_alphanumeric));
        assert_ne!(a, b);
        assert_eq!(a, serial(&nqn("nqn.2026-11.net.plateway:a")));
    }

    #[test]
    fn an_empty_list_of_hosts_admits_nobody() {
        let host = nqn("nqn.2014-08.org.nvmexpress:uuid:1");
        assert!(!Hosts::List(Vec::new()).allow(&host));
        assert!(Hosts::List(vec![host.clone()]).allow(&host));
        assert!(Hosts::Any.allow(&host));
    }
}
