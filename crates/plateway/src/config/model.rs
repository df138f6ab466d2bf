//! What a configuration means: every default filled in, every name resolved.
//!
//! [`HiArgs`] is the second of two types (see [`super::file::LowArgs`]); only this one reaches the rest
//! of the program. It comes from a file, from the flags of `serve`, or from both, and it is always
//! consistent: names refer to things that exist, no disk is used twice, no two listeners share an
//! address. Units: bytes, microseconds, counts, as the names say. How it is checked: `resolve.rs`.

use std::fmt;
use std::path::PathBuf;

use uuid::Uuid;
use uuid::fmt::Hyphenated;
use wire::aoe::Address;
use wire::ethernet::MacAddress;

use super::address::HostPort;
use super::nqn::Nqn;
use super::size::Size;
use super::uri::DiskUri;

/// The least memory of the data path for each shard.
pub(crate) const MEMORY_PER_SHARD_MIN: u64 = 16 << 20;
/// `memory` where none is given.
pub(crate) const MEMORY_DEFAULT: u64 = 256 << 20;
/// `max_connections` where none is given: room for ten thousand idle hosts.
pub(crate) const CONNECTIONS_DEFAULT: u32 = 16_384;
/// The most that `max_connections` may ask for; each takes a descriptor.
pub(crate) const CONNECTIONS_LIMIT: u32 = 1 << 20;
/// `chunk` where none is given.
pub(crate) const CHUNK_DEFAULT: u64 = 64 << 10;
/// The smallest chunk: a page, so that no page of a transfer is split between members.
pub(crate) const CHUNK_MIN: u64 = 4096;
/// The largest chunk.
pub(crate) const CHUNK_MAX: u64 = 64 << 20;
/// `block_size` where none is given.
pub(crate) const BLOCK_SIZE_DEFAULT: u32 = 512;
/// The largest namespace number that an export may have.
pub(crate) const NSID_MAX: u32 = 1024;
/// The largest VLAN: 0 and 4095 are none (802.1Q).
pub(crate) const VLAN_MAX: u16 = 4094;
/// The shelf that Linux initiators take for switches that nobody has set, and refuse.
pub(crate) const SHELF_UNSET: u16 = 0x0fff;
/// The fewest commands that an AoE export may hold: Linux divides the number by two.
pub(crate) const BUFFERS_MIN: u16 = 2;
/// `buffers` where none is given: Linux uses no more.
pub(crate) const BUFFERS_DEFAULT: u16 = 64;
/// The most commands that an AoE export may hold.
pub(crate) const BUFFERS_MAX: u16 = 1024;
/// The longest busy poll of a listener; beyond it the processor is simply not shared.
pub(crate) const POLL_US_MAX: u32 = 10_000;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HiArgs {
    /// What cannot change while the server runs.
    pub(crate) server: Server,
    /// In the order of the file.
    pub(crate) disks: Vec<DiskConfig>,
    /// In the order of the file.
    pub(crate) volumes: Vec<VolumeConfig>,
    /// Where NVMe/TCP is answered, in the order of the file.
    pub(crate) listeners: Vec<Listener>,
    /// Where AoE is answered, in the order of the file; those that only exports name come last.
    pub(crate) links: Vec<Link>,
    /// Namespaces, in the order of the file.
    pub(crate) exports: Vec<Export>,
    /// AoE targets, in the order of the file.
    pub(crate) aoe_exports: Vec<AoeExport>,
}

/// `[server]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// The CPUs to pin shards to, one shard each; never empty.
    pub(crate) shards: Vec<u32>,
    /// The budget of the data path, for all shards together.
    pub(crate) memory_bytes: u64,
    /// The control socket.
    pub(crate) control: PathBuf,
    /// The directory of identities.
    pub(crate) state: PathBuf,
    /// How effects are performed.
    pub(crate) driver: DriverChoice,
    /// Connections of all listeners together.
    pub(crate) connections_max: u32,
    /// Connections from one remote address.
    pub(crate) connections_per_host_max: u32,
}

/// Which driver performs effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DriverChoice {
    /// io_uring where it works, else epoll; the choice is said at start.
    #[default]
    Auto,
    /// io_uring, or an error.
    #[value(name = "io_uring")]
    IoUring,
    /// epoll and a pool of disk threads.
    Epoll,
}

impl DriverChoice {
    /// Every spelling, in the order of the documentation.
    pub(crate) const NAMES: [(&str, DriverChoice); 3] = [
        ("auto", DriverChoice::Auto),
        ("io_uring", DriverChoice::IoUring),
        ("epoll", DriverChoice::Epoll),
    ];
}

impl fmt::Display for DriverChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Self::NAMES.iter().find(|(_, choice)| choice == self).map_or("auto", |(name, _)| name);
        f.write_str(name)
    }
}

/// `[[disk]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskConfig {
    /// Unique among disks.
    pub(crate) name: String,
    /// Where its blocks are; never a `volume:`.
    pub(crate) uri: DiskUri,
}

/// `[[volume]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeConfig {
    /// Unique among volumes.
    pub(crate) name: String,
    /// Which disks, and how.
    pub(crate) layout: Layout,
    /// 512 or 4096.
    pub(crate) block_size: u32,
    /// The identity to use in place of the stored or drawn one.
    pub(crate) uuid: Option<Uuid>,
    /// The size to cut the volume to, a multiple of `block_size`; all of its disks where `None`.
    pub(crate) size_bytes: Option<u64>,
}

/// How a volume lies on its disks, which are named and exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One disk as it is, without a label.
    Single {
        /// The disk.
        disk: String,
    },
    /// Disks end to end.
    Concat {
        /// One or more.
        disks: Vec<String>,
    },
    /// Chunks in turn.
    Stripe {
        /// One or more.
        disks: Vec<String>,
        /// A power of two between [`CHUNK_MIN`] and [`CHUNK_MAX`].
        chunk_bytes: u64,
    },
}

impl Layout {
    /// The disks in order.
    pub(crate) fn disks(&self) -> &[String] {
        match self {
            Layout::Single { disk } => std::slice::from_ref(disk),
            Layout::Concat { disks } | Layout::Stripe { disks, .. } => disks,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Single { disk } => write!(f, "single on {disk}"),
            Layout::Concat { disks } => write!(f, "concat of {}", disks.join(" ")),
            Layout::Stripe { disks, chunk_bytes } => {
                write!(f, "stripe over {}, chunk {}", disks.join(" "), Size(*chunk_bytes))
            }
        }
    }
}

/// `[[listener]]` with `nvme`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Where NVMe/TCP is answered.
    pub(crate) address: HostPort,
    /// How long a shard spins on a quiet connection before it sleeps; 0 never spins.
    pub(crate) poll_us: u32,
    /// Connections of this listener; at most the server's.
    pub(crate) connections_max: u32,
}

/// An interface, or a VLAN of it: the name of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkName {
    /// As `ip link` shows it.
    pub(crate) interface: String,
    /// 1 to [`VLAN_MAX`]; `None` is frames without a tag.
    pub(crate) vlan: Option<u16>,
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.interface)?;
        self.vlan.map_or(Ok(()), |vlan| write!(f, " vlan {vlan}"))
    }
}

/// How frames of a link are received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkAccess {
    /// A packet socket with a ring.
    #[default]
    Packet,
    /// AF_XDP.
    Xdp,
}

impl LinkAccess {
    /// Every spelling, in the order of the documentation.
    pub(crate) const NAMES: [(&str, LinkAccess); 2] =
        [("packet", LinkAccess::Packet), ("xdp", LinkAccess::Xdp)];
}

impl fmt::Display for LinkAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == LinkAccess::Xdp { "xdp" } else { "packet" })
    }
}

/// `[[listener]]` with `aoe`, or an interface that only exports name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where frames come and go; unique.
    pub(crate) name: LinkName,
    /// How.
    pub(crate) access: LinkAccess,
}

/// `aoe` of an `[[export]]`: a volume at a shelf.slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AoeExport {
    /// The volume, which exists and has blocks of 512 bytes.
    pub(crate) volume: String,
    /// No wildcard; unique on each of its links.
    pub(crate) address: Address,
    /// One or more, each once; each has a [`Link`] with this `vlan`.
    pub(crate) interfaces: Vec<String>,
    /// The VLAN on all of them.
    pub(crate) vlan: Option<u16>,
    /// Who may use it.
    pub(crate) hosts: Hosts<MacAddress>,
    /// The commands that it holds at once.
    pub(crate) buffers: u16,
}

impl AoeExport {
    /// The links on which it answers.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkName> + '_ {
        let name = |interface: &String| LinkName { interface: interface.clone(), vlan: self.vlan };
        self.interfaces.iter().map(name)
    }
}

/// `[[export]]`: a volume as a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// The volume, which exists.
    pub(crate) volume: String,
    /// The subsystem; never the discovery subsystem.
    pub(crate) subsystem: Nqn,
    /// 1 to [`NSID_MAX`], unique in its subsystem.
    pub(crate) nsid: u32,
    /// Who may connect; the same for every export of a subsystem.
    pub(crate) hosts: Hosts,
}

/// Who may use an export: hosts are NQNs to a subsystem, stations are MAC addresses to AoE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hosts<T = Nqn> {
    /// Every host: it must have been written.
    Any,
    /// These hosts; nobody where empty.
    List(Vec<T>),
}

impl<T: fmt::Display> fmt::Display for Hosts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hosts::Any => f.write_str("any"),
            Hosts::List(list) if list.is_empty() => f.write_str("none"),
            Hosts::List(list) => {
                let names: Vec<String> = list.iter().map(T::to_string).collect();
                f.write_str(&names.join(", "))
            }
        }
    }
}

/// Reads a UUID as RFC 9562 writes it; the error is what was expected.
pub(crate) fn parse_uuid(text: &str) -> Result<Uuid, &'static str> {
    match text.parse::<Hyphenated>() {
        Ok(uuid) if uuid.as_uuid().is_nil() => Err("a UUID that is not all zeros"),
        Ok(uuid) => Ok(uuid.into_uuid()),
        Err(_) => Err("a UUID such as f81d4fae-7dec-41d0-a765-00a0c91e6bf6"),
    }
}

#[cfg(test)]
impl HiArgs {
    /// The disk of this name.
    pub(crate) fn disk(&self, name: &str) -> Option<&DiskConfig> {
        self.disks.iter().find(|disk| disk.name == name)
    }

    /// The volume of this name.
    pub(crate) fn volume(&self, name: &str) -> Option<&VolumeConfig> {
        self.volumes.iter().find(|volume| volume.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_round_trip_and_nil_is_refused() {
        let text = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6";
        assert_eq!(parse_uuid(text).unwrap().to_string(), text);
        for wrong in [
            "",
            "f81d4fae7dec41d0a76500a0c91e6bf6",
            "00000000-0000-0000-0000-000000000000",
            "f81d4fae-7dec-41d0-a765-00a0c91e6bfg",
        ] {
            assert!(parse_uuid(wrong).is_err(), "{wrong}");
        }
    }
}
