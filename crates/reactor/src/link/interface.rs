//! Interfaces: what the system says of them now.
//!
//! In: a name. Out: index, address, MTU, and whether frames can come and go. Errors name the
//! interface, what was expected, and the Ethernet interfaces that there are. Looked at by ioctl,
//! which needs no right (to switch something on or off needs CAP_NET_ADMIN); what has changed is
//! looked at anew rather than read from the messages that tell of the change, so that a lost message
//! loses nothing.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// An Ethernet interface, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The system's number for it. An interface that was deleted and made again has another one.
    pub index: i32,
    pub mac: [u8; 6],
    /// Bytes behind the Ethernet header that a frame may have.
    pub mtu: u32,
    /// It was set up, and is ready to carry frames.
    pub up: bool,
    /// It takes VLAN tags off frames (`rx-vlan-hw-parse`) before a program at its door sees them.
    pub strips_tags: bool,
}

/// Looks at an interface; `None`: there is none of this name. An error if it carries no Ethernet.
pub(super) fn find(name: &str) -> io::Result<Option<Interface>> {
    let asker = Asker::new()?;
    let Some(answer) = asker.ask(name, libc::SIOCGIFINDEX)? else { return Ok(None) };
    // SAFETY: the call has filled this member of the union.
    let index = unsafe { answer.ifru_ifindex };
    let Some(answer) = asker.ask(name, libc::SIOCGIFHWADDR)? else { return Ok(None) };
    // SAFETY: as above.
    let address = unsafe { answer.ifru_hwaddr };
    if address.sa_family != libc::ARPHRD_ETHER {
        return Err(not_ethernet(address.sa_family, &asker));
    }
    let mac = std::array::from_fn(|at| address.sa_data[at] as u8);
    let Some(answer) = asker.ask(name, libc::SIOCGIFMTU)? else { return Ok(None) };
    // SAFETY: as above.
    let mtu = unsafe { answer.ifru_mtu };
    let Some(answer) = asker.ask(name, libc::SIOCGIFFLAGS)? else { return Ok(None) };
    // SAFETY: as above.
    let flags = i32::from(unsafe { answer.ifru_flags });
    let ready = libc::IFF_UP | libc::IFF_RUNNING;
    let mtu = u32::try_from(mtu).unwrap_or(0);
    // What does not say is not trusted.
    let strips_tags = asker.features(name).map_or(true, |features| features & STRIPS_TAGS != 0);
    Ok(Some(Interface { index, mac, mtu, up: flags & ready == ready, strips_tags }))
}

/// What the interface with this number is called now; `None`: it is gone.
pub(super) fn name_of(index: i32) -> Option<String> {
    index_to_name(Asker::new().ok()?.0, index.try_into().ok()?).ok()
}

/// Has an interface leave VLAN tags in frames, for all who use it, until somebody changes that.
pub(super) fn leave_tags(name: &str) -> io::Result<()> {
    let asker = Asker::new()?;
    let switched = asker.features(name).and_then(|features| {
        asker.set_features(name, features & !STRIPS_TAGS)?;
        asker.features(name)
    });
    let seen = match switched {
        Ok(features) if features & STRIPS_TAGS == 0 => return Ok(()),
        Ok(_) => "it stays on".to_owned(),
        Err(error) => error.to_string(),
    };
    let text = format!(
        "it takes VLAN tags off frames, so that AF_XDP cannot tell of which VLAN one is, and that cannot be switched off ({seen}): try `ethtool -K {name} rxvlan off`, or use packet sockets"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// `ETH_FLAG_RXVLAN`.
const STRIPS_TAGS: u32 = 1 << 8;
/// `ETH_FLAG_LRO`.
const MERGES: u32 = 1 << 15;

/// Who makes one long frame of several that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merging {
    /// The kernel's stack (GRO).
    Stack,
    /// The interface's driver or hardware (LRO).
    Interface,
}

/// Whether frames of an interface are merged so. One that does not say, or is gone, merges none.
pub(super) fn merges(name: &str, by: Merging) -> io::Result<bool> {
    /// ETHTOOL_GGRO.
    const GET: u32 = 0x2b;
    let asker = Asker::new()?;
    Ok(match by {
        Merging::Stack => asker.word(name, GET, 0).is_ok_and(|seen| seen != 0),
        Merging::Interface => asker.features(name).is_ok_and(|features| features & MERGES != 0),
    })
}

/// Has frames of an interface be merged or not, for all who use it.
pub(super) fn set_merging(name: &str, by: Merging, on: bool) -> io::Result<()> {
    /// ETHTOOL_SGRO.
    const SET: u32 = 0x2c;
    let asker = Asker::new()?;
    match by {
        Merging::Stack => asker.word(name, SET, on.into()).map(drop),
        Merging::Interface => {
            let others = asker.features(name)? & !MERGES;
            asker.set_features(name, if on { others | MERGES } else { others })
        }
    }
}

/// How many queues an interface receives on, as its driver says.
pub(super) fn receive_queues(name: &str) -> io::Result<u32> {
    /// `struct ethtool_channels`.
    #[repr(C)]
    #[derive(Default)]
    struct Channels {
        command: u32,
        max: [u32; 4],
        receive: u32,
        send: u32,
        other: u32,
        combined: u32,
    }
    /// ETHTOOL_GCHANNELS.
    const GET: u32 = 0x3c;
    let mut channels = Channels { command: GET, ..Channels::default() };
    let asker = Asker::new()?;
    let ifru_data = (&raw mut channels).cast();
    match asker.ask_with(name, libc::SIOCETHTOOL, Argument { ifru_data }) {
        Ok(Some(_)) => Ok((channels.receive + channels.combined).max(1)),
        Ok(None) => Err(missing()),
        // A driver that does not say has one.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(error),
    }
}

/// There is no interface of this name.
pub(super) fn missing() -> io::Error {
    let there = match Asker::new() {
        Ok(asker) => asker.ethernet_names(),
        Err(_) => Vec::new(),
    };
    let text = format!("expected an Ethernet interface; none has this name {}", list(&there));
    io::Error::new(io::ErrorKind::NotFound, text)
}

fn not_ethernet(seen: u16, asker: &Asker) -> io::Error {
    let seen = if seen == libc::ARPHRD_LOOPBACK {
        "a loopback interface, which leads to no other machine".to_owned()
    } else {
        format!("an interface of another kind (ARPHRD {seen})")
    };
    let text =
        format!("expected an Ethernet interface, found {seen} {}", list(&asker.ethernet_names()));
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "(this system has no Ethernet interface)".to_owned()
    } else {
        format!("(there are: {})", names.join(", "))
    }
}

/// What a request brings, and the answer to it.
type Argument = libc::__c_anonymous_ifr_ifru;

/// A socket to ask with.
struct Asker(OwnedFd);

impl Asker {
    fn new() -> io::Result<Asker> {
        let open = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        // A kernel without IPv4 answers on any other kind.
        Ok(Asker(open(AddressFamily::INET).or_else(|_| open(AddressFamily::UNIX))?))
    }

    /// `None`: there is no such interface (any more).
    fn ask(&self, name: &str, what: libc::Ioctl) -> io::Result<Option<Argument>> {
        // SAFETY: of zeros it is valid.
        self.ask_with(name, what, unsafe { std::mem::zeroed() })
    }

    fn ask_with(
        &self,
        name: &str,
        what: libc::Ioctl,
        argument: Argument,
    ) -> io::Result<Option<Argument>> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Ok(None);
        }
        // SAFETY: a request of zeros is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru = argument;
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: these requests read the name, which ends with a zero, and fill the union, or what
        // its pointer names, which the caller has.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), what, &raw mut request) };
        if result == 0 {
            return Ok(Some(request.ifr_ifru));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Ok(None),
            _ => Err(error),
        }
    }

    /// What an interface does beside carrying frames (`ETH_FLAG_*`).
    fn features(&self, name: &str) -> io::Result<u32> {
        /// ETHTOOL_GFLAGS.
        const GET: u32 = 0x25;
        self.word(name, GET, 0)
    }

    fn set_features(&self, name: &str, features: u32) -> io::Result<()> {
        /// ETHTOOL_SFLAGS.
        const SET: u32 = 0x26;
        self.word(name, SET, features).map(drop)
    }

    /// What a command of ethtool that takes a number answers (`struct ethtool_value`).
    fn word(&self, name: &str, command: u32, value: u32) -> io::Result<u32> {
        let mut word = [command, value];
        let ifru_data = (&raw mut word).cast();
        let asked = self.ask_with(name, libc::SIOCETHTOOL, Argument { ifru_data })?;
        asked.map(|_| word[1]).ok_or_else(missing)
    }

    fn ethernet_names(&self) -> Vec<String> {
        let is_ethernet = |name: &String| match self.ask(name, libc::SIOCGIFHWADDR) {
            // SAFETY: the call has filled this member of the union.
            Ok(Some(answer)) => unsafe { answer.ifru_hwaddr.sa_family == libc::ARPHRD_ETHER },
            _ => false,
        };
        // Two lines of headings, then `NAME: counters`. Without /proc none is named.
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
        names.map(|(name, _)| name.trim().to_owned()).filter(is_ethernet).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_refused_by_name() {
        // Without a loopback interface it is missing instead, which is an answer as well.
        match find("lo") {
            Err(error) => assert!(error.to_string().contains("loopback"), "{error}"),
            Ok(found) => assert_eq!(found, None),
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_none() {
        for name in ["", "no-such-if0", "a-name-that-is-too-long", "nul\0"] {
            assert_eq!(find(name).unwrap(), None, "{name:?}");
        }
        assert_eq!([name_of(0), name_of(i32::MAX)], [None, None]);
        assert!(missing().to_string().contains("none has this name"));
    }
}
