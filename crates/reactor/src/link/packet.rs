//! Packet sockets (packet(7)): opened so that none receives a frame before it may.
//!
//! ```text
//!   socket, protocol 0      receives nothing
//!   filter, ring            what it will take, if a filter has to say that, and where to
//!   bind                    interface and protocol: from here on it receives
//! ```
//! It receives and is watched, and another one, bound to no protocol, sends
//! ([0030](../../../../docs/decisions/0030-who-sends-is-not-who-is-watched.md)).
//!
//! Sockets that share a link's frames ([`Spread::Steered`]) are a fanout group, which only bound
//! sockets can join: they are bound with a filter that takes nothing, join in the order of their
//! shards, which is the order in which the group counts them, and then get their own filter.
//!
//! A circuit ([`Takes::Whole`]) hears every station of its interface: the kernel makes the interface
//! promiscuous for as long as one socket asks for it, and that ends with the socket, however the
//! process ends. Errors: what the system refuses, with the right that is missing.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use block::ShardId;
use contract::{Instruction, LinkId, Spread, Takes};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::LinkOptions;
use super::counters::{Counters, Source};
use super::filter::{self, NOTHING, Station};
use super::interface::Interface;
use super::ring::{Geometry, Ring};
use super::socket::{LinkSocket, Way};

/// What the kernel may hold of sent frames until the interface has them; it doubles the number to
/// cover its bookkeeping. Without CAP_NET_ADMIN it grants `net.core.wmem_max` at most, by default
/// room for some 30 frames of MTU 9000: then batches wait for room more often.
const SEND_BUFFER: libc::c_int = 2 << 20;

/// Opens a link's sockets, one for each shard that it concerns.
pub(super) fn open(
    link: LinkId,
    options: &LinkOptions,
    interface: &Interface,
    counters: &[(ShardId, Arc<Counters>)],
) -> io::Result<Vec<(ShardId, Box<LinkSocket>)>> {
    let station = Station::new(interface, options);
    let steering = match &options.intake.spread {
        Spread::Steered(_, steering) if counters.len() > 1 => Some(filter::for_fanout(steering)?),
        _ => None,
    };
    let mut filters = Vec::new();
    let mut opened: Vec<(ShardId, Box<LinkSocket>)> = Vec::new();
    for (index, (shard, counters)) in counters.iter().enumerate() {
        let filter = station.filter(program(&options.intake.spread, index))?;
        let socket = new_socket()?;
        let fd = socket.as_raw_fd();
        if steering.is_some() {
            filter::attach(fd, &NOTHING)?;
        } else if filter.is_needed {
            filter::attach(fd, &filter.program)?;
        }
        let ring = prepare(&socket, interface.mtu, options.forwards, station.others())?;
        if station.takes == Takes::Whole {
            hear_all(fd, interface.index)?;
        }
        bind(fd, interface.index, station.protocol())?;
        let socket = Arc::new(socket);
        let source = Source::Packet(Arc::downgrade(&socket));
        let way = Way::Ring(ring, new_sender(interface)?);
        let forwarded_max = options.forwarded_max(interface);
        let socket = LinkSocket::new(link, socket, way, source, forwarded_max, counters.clone());
        opened.push((*shard, socket));
        filters.push(filter);
    }
    if let Some(steering) = steering {
        let sockets: Vec<RawFd> = opened.iter().map(|(_, one)| one.descriptor()).collect();
        join(&sockets, &steering)?;
        for (fd, filter) in sockets.iter().zip(&filters) {
            match filter.is_needed {
                true => filter::attach(*fd, &filter.program)?,
                false => filter::detach(*fd)?,
            }
        }
    }
    for ((_, socket), filter) in opened.iter_mut().zip(filters) {
        if !filter.is_needed {
            socket.keep_out_later(filter.program);
        }
    }
    Ok(opened)
}

/// A socket that hears and sends every frame of an interface, with a ring of this geometry.
pub(super) fn open_whole(interface: &Interface, geometry: Geometry) -> io::Result<(OwnedFd, Ring)> {
    let socket = new_socket()?;
    let fd = socket.as_raw_fd();
    set_send_buffer(fd)?;
    let ring = Ring::new(&socket, geometry, false, libc::PACKET_OUTGOING.into())?;
    hear_all(fd, interface.index)?;
    bind(fd, interface.index, libc::ETH_P_ALL as u16)?;
    Ok((socket, ring))
}

/// Whether packet sockets may be had at all.
pub(super) fn probe() -> io::Result<()> {
    new_socket().map(drop)
}

/// Whether another MTU asks for other memory.
pub(super) fn is_cut_alike(one: u32, other: u32) -> bool {
    Geometry::for_mtu(one) == Geometry::for_mtu(other)
}

/// The program of the socket with this number.
pub(super) fn program(spread: &Spread, index: usize) -> &[Instruction] {
    match spread {
        Spread::One(_, program) | Spread::Steered(program, _) => program,
        Spread::Each(programs) => &programs[index],
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).map_err(explain)
}

fn explain(errno: Errno) -> io::Error {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            let program = std::env::current_exe().unwrap_or_else(|_| "PROGRAM".into());
            let program = program.display();
            let text = format!(
                "raw Ethernet needs CAP_NET_RAW, which this process does not have; grant it with \
                 `setcap cap_net_raw+ep {program}`, or in a systemd unit with \
                 AmbientCapabilities=CAP_NET_RAW"
            );
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        }
        Errno::AFNOSUPPORT => {
            let text = "this kernel has no packet sockets (CONFIG_PACKET)";
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        errno => errno.into(),
    }
}

/// A socket that sends by an interface and receives nothing, since it is bound to no protocol.
fn new_sender(interface: &Interface) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    set_send_buffer(socket.as_raw_fd())?;
    bind(socket.as_raw_fd(), interface.index, 0)?;
    Ok(socket)
}

/// The ring by which a socket will receive what is not for others, and lend what is sent on.
fn prepare(socket: &OwnedFd, mtu: u32, lends: bool, others: u32) -> io::Result<Ring> {
    let fd = socket.as_raw_fd();
    // Frames that we send ourselves: the filter refuses them as well, but so they cost nothing.
    // Kernels before 4.20 lack it.
    let _ = set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1);
    let geometry = Geometry::for_mtu(mtu);
    Ring::new(socket, geometry, lends, others).map_err(|error| {
        let room = geometry.bytes() >> 10;
        io::Error::new(error.kind(), format!("no receive ring of {room} KiB: {error}"))
    })
}

/// Has a socket's interface let in every frame of its wire, and the socket none that the host sends.
fn hear_all(fd: RawFd, interface: i32) -> io::Result<()> {
    // A link of one type can do without: its filter refuses them. Of a circuit each frame would be
    // copied once more, only to be thrown away, and a kernel that lacks this lacks much else.
    set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOPROTOOPT) => {
                let text = "a circuit needs Linux 4.20 or later, whose packet sockets can leave out what the host itself sends (PACKET_IGNORE_OUTGOING)";
                io::Error::new(io::ErrorKind::Unsupported, text)
            }
            _ => error,
        }
    })?;
    let membership = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Lets the kernel hold as much of what a socket sends as it grants.
pub(super) fn set_send_buffer(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER))
}

fn bind(fd: RawFd, interface: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: an address of zeros is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives until the call returns and has this length.
    let result = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a group of bound sockets, each frame for one of them: the program's number modulo their
/// count.
fn join(sockets: &[RawFd], steering: &[Instruction]) -> io::Result<()> {
    let kind = libc::PACKET_FANOUT_CBPF << 16;
    let unique = libc::PACKET_FANOUT_FLAG_UNIQUEID << 16;
    let (first, others) = sockets.split_first().expect("a link has a socket");
    set_option(*first, libc::SOL_PACKET, libc::PACKET_FANOUT, &(kind | unique))?;
    let group = option::<u32>(*first, libc::SOL_PACKET, libc::PACKET_FANOUT)? & 0xffff;
    for fd in others {
        set_option(*fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &(kind | group))?;
    }
    filter::attach_fanout(*first, steering)
}

/// Takes what the kernel counted as dropped on a socket since it was last asked.
pub(super) fn take_drops(socket: &OwnedFd) -> u64 {
    // Packets, and drops (`struct tpacket_stats`).
    let counts: io::Result<[u32; 2]> =
        option(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
    counts.map_or(0, |[_, drops]| drops.into())
}

/// Sets an option of a socket to a plain structure of the kernel's.
pub(super) fn set_option<T>(fd: RawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, those of the value.
    let result =
        unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Of messages about paths, which go before data where an interface's queue has classes. The kernel lets
/// 7 be set with CAP_NET_ADMIN.
const PRIORITIES: [libc::c_int; 2] = [7, 6];

/// What a socket sends from now on goes before all else that waits with its interface, or as all else
/// does.
pub(super) fn set_urgent(fd: RawFd, is_urgent: bool) {
    let priorities = if is_urgent { &PRIORITIES[..] } else { &[0] };
    let mut tries = priorities.iter();
    while let Some(priority) = tries.next()
        && set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority).is_err()
    {}
}

/// An option of a socket that is a number or several.
pub(super) fn option<T: Default>(fd: RawFd, level: i32, name: i32) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `length` bytes, those of a local.
    let result =
        unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
