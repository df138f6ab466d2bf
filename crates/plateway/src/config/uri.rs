//! Disk URIs: one spelling for anything that holds blocks, local or remote.
//!
//! ```text
//! ram:SIZE    null:SIZE    file:PATH[?create=SIZE]    /dev/...    volume:NAME
//! delay:US,URI    faulty:SEED,URI
//! nvme+tcp://host[:port]/NQN/NSID[?queues=N&depth=D&hdgst=0|1&ddgst=0|1&host_nqn=NQN
//!                                  &keep_alive_ms=N&deadline_s=N&quiesce_ms=N]
//! aoe://INTERFACE[,INTERFACE...]/SHELF.SLOT[?window=N&vlan=N&deadline_s=N&quiesce_ms=N]
//! ```
//!
//! Odd characters: in a path, an NQN or the name of an interface, `%XX` is the byte XX. `%` and `?` must be written so (in an NQN
//! also `/` and `&`, in an interface also `,`); everything else may stand as it is, blanks and commas included, since `delay:` and
//! `faulty:` end at their first comma and their inner URI takes the rest.
//! `Display` is the canonical spelling, which parses back to the same value; options at their default
//! are left out. Units: bytes, microseconds, or what the option's name ends in.
//! Errors: what was expected, what was seen, and the column. Parsing is in `uri/parse.rs`. Not here: opening a disk.

mod parse;

use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use wire::aoe::Address;

use super::address::HostPort;
use super::model::LinkName;
use super::nqn::Nqn;
use super::size::Size;

pub(crate) use parse::parse_target;

/// The port of NVMe/TCP, which every listener of ours answers discovery on as well.
pub(crate) const NVME_TCP_PORT: u16 = 4420;

/// A disk, as a command or a configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskUri {
    /// Memory of this process.
    Ram {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
    /// Discards writes and reads as zeros: the instrument that measures everything above it.
    Null {
        /// Its size, a multiple of 512.
        bytes: u64,
    },
    /// A regular file.
    File {
        /// Relative to the working directory of the process unless absolute.
        path: PathBuf,
        /// Size of the sparse file to create where there is none.
        create_bytes: Option<u64>,
    },
    /// A block device, by its absolute path.
    BlockDevice {
        /// Such as `/dev/nvme0n1` or a link below `/dev/disk/by-id`.
        path: PathBuf,
    },
    /// A disk whose completions come later.
    Delay {
        /// Added to each completion, in microseconds.
        delay_us: u64,
        /// The disk that does the work.
        inner: Box<DiskUri>,
    },
    /// A disk that fails by a seed.
    Faulty {
        /// Draws the faults; the same seed and requests give the same faults.
        seed: u64,
        /// The disk that does the work.
        inner: Box<DiskUri>,
    },
    /// A namespace of a remote (or our own) NVMe/TCP target.
    NvmeTcp(NvmeTcpUri),
    /// A target of AoE.
    Aoe(AoeUri),
    /// A volume of the configuration given with `--config`, opened without a network.
    Volume {
        /// The `name` of a `[[volume]]`.
        name: String,
    },
}

/// How to reach a namespace over NVMe/TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NvmeTcpUri {
    /// The target's listener.
    pub(crate) address: HostPort,
    /// The subsystem to connect to.
    pub(crate) subsystem: Nqn,
    /// The namespace: 1 to FFFFFFFEh.
    pub(crate) nsid: u32,
    /// I/O queues, one connection each: 1 to 128.
    pub(crate) queues: u16,
    /// Commands in flight on a queue: 1 to 1024.
    pub(crate) depth: u16,
    /// Whether to ask for a CRC32C of each header.
    pub(crate) header_digest: bool,
    /// Whether to ask for a CRC32C of each payload.
    pub(crate) data_digest: bool,
    /// Who we say we are; one is made of the machine's identity where this is `None`.
    pub(crate) host_nqn: Option<Nqn>,
    /// Keep-alive timeout asked for at Connect, in milliseconds.
    pub(crate) keep_alive_ms: u32,
    /// How long to reconnect before requests end in an error, in seconds.
    pub(crate) deadline_s: u32,
    /// Beyond the keep-alive timeout, how long a lost association may still write, in milliseconds.
    pub(crate) quiesce_ms: u32,
}

impl NvmeTcpUri {
    /// I/O queues where the URI names none.
    pub(crate) const QUEUES_DEFAULT: u16 = 1;
    /// Depth of a queue where the URI names none.
    pub(crate) const DEPTH_DEFAULT: u16 = 128;
    /// What Linux asks for (`nvme_core.admin_timeout` aside): 5 s.
    pub(crate) const KEEP_ALIVE_MS_DEFAULT: u32 = 5_000;
    /// Reconnect for a minute, as long as a disk may be stuck before it is given up.
    pub(crate) const DEADLINE_S_DEFAULT: u32 = 60;
    /// A disk is slow after 5 s; a target that lost us should have drained by then.
    pub(crate) const QUIESCE_MS_DEFAULT: u32 = 5_000;

    /// The namespace with every option at its default.
    pub(crate) fn new(address: HostPort, subsystem: Nqn, nsid: u32) -> Self {
        Self {
            address,
            subsystem,
            nsid,
            queues: Self::QUEUES_DEFAULT,
            depth: Self::DEPTH_DEFAULT,
            header_digest: true,
            data_digest: true,
            host_nqn: None,
            keep_alive_ms: Self::KEEP_ALIVE_MS_DEFAULT,
            deadline_s: Self::DEADLINE_S_DEFAULT,
            quiesce_ms: Self::QUIESCE_MS_DEFAULT,
        }
    }
}

/// How to reach a target of AoE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AoeUri {
    /// The interfaces on which it is; one or more, each once.
    pub(crate) interfaces: Vec<String>,
    /// The VLAN on all of them.
    pub(crate) vlan: Option<u16>,
    /// Shelf and slot, no wildcard.
    pub(crate) address: Address,
    /// Commands in flight on each shard: 1 to 1024, and together no more than the target holds.
    pub(crate) window: u16,
    /// How long to send again before requests end in an error, in seconds.
    pub(crate) deadline_s: u32,
    /// How long a target may still carry out what it was sent, in milliseconds.
    pub(crate) quiesce_ms: u32,
}

impl AoeUri {
    /// As many commands as the Linux driver has in flight.
    pub(crate) const WINDOW_DEFAULT: u16 = 64;
    /// As for NVMe/TCP.
    pub(crate) const DEADLINE_S_DEFAULT: u32 = 60;
    /// A target that did not answer has done what it does after so long.
    pub(crate) const QUIESCE_MS_DEFAULT: u32 = 10_000;

    /// The target with every option at its default.
    pub(crate) fn new(interfaces: Vec<String>, address: Address) -> Self {
        Self {
            interfaces,
            vlan: None,
            address,
            window: Self::WINDOW_DEFAULT,
            deadline_s: Self::DEADLINE_S_DEFAULT,
            quiesce_ms: Self::QUIESCE_MS_DEFAULT,
        }
    }

    /// The links on which it may be.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkName> + '_ {
        let name = |interface: &String| LinkName { interface: interface.clone(), vlan: self.vlan };
        self.interfaces.iter().map(name)
    }
}

/// Whom `discover` asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiscoveryTarget {
    /// `nvme+tcp://host[:port]`
    NvmeTcp(HostPort),
    /// `aoe://INTERFACE[,INTERFACE...][?vlan=N]`
    Aoe {
        /// One or more, each once.
        interfaces: Vec<String>,
        /// The VLAN on all of them.
        vlan: Option<u16>,
    },
}

impl fmt::Display for DiscoveryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiscoveryTarget::NvmeTcp(address) => write!(f, "nvme+tcp://{address}"),
            DiscoveryTarget::Aoe { interfaces, vlan } => {
                write_interfaces(f, interfaces)?;
                vlan.map_or(Ok(()), |vlan| write!(f, "?vlan={vlan}"))
            }
        }
    }
}

/// A text that is no disk URI; `Display` says where and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UriError {
    /// The whole text.
    pub(crate) uri: String,
    /// The bytes of `uri` that are wrong; empty where something is missing.
    pub(crate) at: Range<usize>,
    /// What is wrong, in full, without the position.
    pub(crate) message: String,
    /// What to write instead, where that can be guessed.
    pub(crate) help: Option<String>,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.uri[..self.at.start].chars().count() + 1;
        write!(f, "{:?}, column {column}: {}", self.uri, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UriError {}

impl DiskUri {
    /// The disk inside all instruments: itself, unless it is a `delay:` or `faulty:`.
    pub(crate) fn innermost(&self) -> &DiskUri {
        match self {
            DiskUri::Delay { inner, .. } | DiskUri::Faulty { inner, .. } => inner.innermost(),
            other => other,
        }
    }

    /// Whether two URIs lead to the same bytes, so that only one disk may own them.
    pub(crate) fn same_backing(&self, other: &DiskUri) -> bool {
        match (self.innermost(), other.innermost()) {
            (
                DiskUri::File { path: a, .. } | DiskUri::BlockDevice { path: a },
                DiskUri::File { path: b, .. } | DiskUri::BlockDevice { path: b },
            ) => a == b,
            (DiskUri::NvmeTcp(a), DiskUri::NvmeTcp(b)) => {
                a.address == b.address && a.subsystem == b.subsystem && a.nsid == b.nsid
            }
            // Two interfaces may lead to one station, and then only one initiator may think that it owns the disk.
            (DiskUri::Aoe(a), DiskUri::Aoe(b)) => {
                let shares = a.interfaces.iter().any(|name| b.interfaces.contains(name));
                a.address == b.address && a.vlan == b.vlan && shares
            }
            (DiskUri::Volume { name: a }, DiskUri::Volume { name: b }) => a == b,
            _ => false,
        }
    }
}

/// Checks the name of a disk or volume; the error is what was expected.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if starts_well && name.len() <= 64 && name.bytes().all(legal) {
        Ok(())
    } else {
        Err("a name of 1 to 64 letters, digits, -, _ or . that begins with a letter or digit")
    }
}

/// Checks the name of an interface as the kernel does (`dev_valid_name`, up to `IFNAMSIZ`); the error is what was expected.
pub(crate) fn check_interface(name: &str) -> Result<(), &'static str> {
    let illegal = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    match (1..=15).contains(&name.len()) && name != "." && name != ".." && !name.contains(illegal) {
        true => Ok(()),
        false => Err("the name of an interface, of 1 to 15 bytes without blanks, / and :"),
    }
}

/// Bytes with every one of `special`, control characters and what is not UTF-8 written as `%XX`.
struct Encoded<'a>(&'a [u8], &'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c == '%' || c.is_ascii_control() || self.1.contains(c) {
                    write!(f, "%{:02X}", u32::from(c))?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

fn write_path(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    write!(f, "{}", Encoded(path.as_os_str().as_bytes(), "?"))
}

impl fmt::Display for DiskUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskUri::Ram { bytes } => write!(f, "ram:{}", Size(*bytes)),
            DiskUri::Null { bytes } => write!(f, "null:{}", Size(*bytes)),
            DiskUri::File { path, create_bytes } => {
                f.write_str("file:")?;
                // A path that begins with two slashes would read as the form with a host.
                if path.as_os_str().as_bytes().starts_with(b"//") {
                    f.write_str("//")?;
                }
                write_path(f, path)?;
                create_bytes.map_or(Ok(()), |bytes| write!(f, "?create={}", Size(bytes)))
            }
            DiskUri::BlockDevice { path } => write_path(f, path),
            DiskUri::Delay { delay_us, inner } => write!(f, "delay:{delay_us},{inner}"),
            DiskUri::Faulty { seed, inner } => write!(f, "faulty:{seed},{inner}"),
            DiskUri::NvmeTcp(uri) => uri.fmt(f),
            DiskUri::Aoe(uri) => uri.fmt(f),
            DiskUri::Volume { name } => write!(f, "volume:{name}"),
        }
    }
}

impl fmt::Display for NvmeTcpUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subsystem = Encoded(self.subsystem.as_str().as_bytes(), "/?");
        write!(f, "nvme+tcp://{}/{subsystem}/{}", self.address, self.nsid)?;
        let numbers = [
            ("queues", u32::from(self.queues), u32::from(Self::QUEUES_DEFAULT)),
            ("depth", u32::from(self.depth), u32::from(Self::DEPTH_DEFAULT)),
            ("hdgst", u32::from(self.header_digest), 1),
            ("ddgst", u32::from(self.data_digest), 1),
            ("keep_alive_ms", self.keep_alive_ms, Self::KEEP_ALIVE_MS_DEFAULT),
            ("deadline_s", self.deadline_s, Self::DEADLINE_S_DEFAULT),
            ("quiesce_ms", self.quiesce_ms, Self::QUIESCE_MS_DEFAULT),
        ];
        let mut mark = '?';
        for (key, value, _) in numbers.into_iter().filter(|(_, value, default)| value != default) {
            write!(f, "{mark}{key}={value}")?;
            mark = '&';
        }
        match &self.host_nqn {
            Some(nqn) => write!(f, "{mark}host_nqn={}", Encoded(nqn.as_str().as_bytes(), "&?")),
            None => Ok(()),
        }
    }
}

impl fmt::Display for AoeUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_interfaces(f, &self.interfaces)?;
        write!(f, "/{}", self.address)?;
        let numbers = [
            ("window", u32::from(self.window), u32::from(Self::WINDOW_DEFAULT)),
            ("vlan", self.vlan.unwrap_or(0).into(), 0),
            ("deadline_s", self.deadline_s, Self::DEADLINE_S_DEFAULT),
            ("quiesce_ms", self.quiesce_ms, Self::QUIESCE_MS_DEFAULT),
        ];
        let changed = numbers.into_iter().filter(|(_, value, default)| value != default);
        for (index, (key, value, _)) in changed.enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// `aoe://eth1,eth2`
fn write_interfaces(f: &mut fmt::Formatter<'_>, interfaces: &[String]) -> fmt::Result {
    f.write_str("aoe://")?;
    for (index, interface) in interfaces.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{}", Encoded(interface.as_bytes(), "?,"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
