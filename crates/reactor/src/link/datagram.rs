//! Links through IP: what goes between this host and one other, as payloads of datagrams that the
//! kernel routes.
//!
//! ```text
//!   frame of the link                          what the kernel puts around it
//!   UDP:   a payload                           IP | UDP
//!   GRE:   from GRE's own header on            IP, protocol 47
//! ```
//! Routes, neighbours and path MTU are the kernel's. Nothing is fragmented: DF is set, and what is
//! larger than the path takes is refused when it is sent. The sockets are connected, so that the
//! kernel shows what the peer sent alone, and tells what it learns of the path. Where peers receive
//! on one port and send from another (MPLS in UDP, BFD), a socket for each direction does so, too.
//!
//! In: [`PeerOptions`]. Out: the path to the peer, sockets, the payloads that came, each looked at
//! where the kernel copied it to. A system call takes up to [`BATCH`] of them, and one before the
//! shard sleeps says that there are no more. The path back may take more than ours, and the kernel
//! puts fragments of the peer's together: one that is longer than any before comes cut, is counted,
//! and the next finds room.
//!
//! Units: bytes of payloads. Errors: no route is no path, and no error; an answer of ICMP costs the
//! frame that learns of it. Spec: RFC 768, RFC 2784 over RFC 791 and RFC 8200; RFC 1191 and RFC 8201
//! (path MTU); RFC 5082 (hop limits); RFC 7510 clause 3 and RFC 5881 clause 4 (source ports).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use block::ShardId;
use contract::{Instruction, LinkId, Poll};
use libc::{iovec, mmsghdr};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::counters::{Counters, Source};
use super::filter::{self, NOTHING};
use super::packet::{option, set_option, set_send_buffer, set_urgent};
use super::ring::Slot;
use super::socket::{LinkSocket, Way};
use crate::mailbox::ring;

/// Payloads that a call takes out of the kernel.
const BATCH: usize = 32;
/// What the kernel may hold of what came, in its own bytes; as `SEND_BUFFER`.
const RECEIVE_BUFFER: libc::c_int = 2 << 20;
/// What the kernel needs for a frame beside its bytes, about.
const PER_FRAME: u32 = 768;
/// Source ports that are nobody's service, of which both RFC 7510 and RFC 5881 want one.
const DYNAMIC_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// What a neighbour sends, and nobody beyond it can (RFC 5082).
const HOP_LIMIT: u32 = 255;
/// Any port.
const ANY: u16 = 0;

/// Which datagrams a link's frames are the payloads of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagrams {
    /// UDP between these ports.
    Udp { local_port: u16, peer_port: u16 },
    /// UDP that both ends receive on this port, and send from another one.
    UdpTo { port: u16 },
    /// GRE. Needs CAP_NET_RAW.
    Gre,
}

/// A link through IP, for one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerOptions {
    /// The other host.
    pub peer: IpAddr,
    /// Our address, of the same family; `None`: the one that the kernel chooses for that peer.
    pub local: Option<IpAddr>,
    pub datagrams: Datagrams,
    /// The peer is a neighbour on this interface: nothing else is taken, nor anything that came over
    /// a router (by its hop limit), and what is sent there goes first.
    pub neighbour_on: Option<String>,
    /// Who has it.
    pub shard: ShardId,
    /// How long the shard looks for more frames before it sleeps.
    pub poll: Poll,
}

impl PeerOptions {
    /// For people.
    pub(super) fn name(&self) -> String {
        match self.datagrams {
            Datagrams::Gre => format!("GRE to {}", self.peer),
            Datagrams::Udp { peer_port: port, .. } | Datagrams::UdpTo { port } => {
                format!("UDP to {}", SocketAddr::new(self.peer, port))
            }
        }
    }

    /// Refuses what no host could make right.
    pub(super) fn check(&self, shards: usize) -> io::Result<()> {
        let refuse = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.local.is_some_and(|local| local.is_ipv4() != self.peer.is_ipv4()) {
            return refuse("expected two addresses of IPv4 or two of IPv6".to_owned());
        }
        for seen in [Some(self.peer), self.local].into_iter().flatten() {
            if !is_of_a_host(seen) {
                return refuse(format!("expected the address of a host, seen {seen}"));
            }
            if is_of_a_link(seen) && self.neighbour_on.is_none() {
                let text = format!("{seen} means another host on each interface");
                return refuse(format!("{text}: expected an address that is routed"));
            }
        }
        if self.shard.index() >= shards {
            let seen = self.shard.index();
            return refuse(format!("expected one of {shards} shards, seen number {seen}"));
        }
        Ok(())
    }

    /// Bytes of the headers that the kernel puts in front.
    fn around(&self) -> u32 {
        let ip = if self.peer.is_ipv4() { 20 } else { 40 };
        let udp = if self.datagrams == Datagrams::Gre { 0 } else { 8 };
        ip + udp
    }
}

/// Whether an address may be one host's. One of IPv4 that is written as one of IPv6 would go by IPv4,
/// whose headers are others.
pub fn is_of_a_host(address: IpAddr) -> bool {
    let is_of_many = address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !is_of_many && address.to_canonical() == address
}

/// Whether an address has a meaning on one link alone, and needs its interface (RFC 4007).
pub fn is_of_a_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if six.is_unicast_link_local())
}

/// Whether we may open such sockets at all, with a path or without.
pub(super) fn probe(options: &PeerOptions) -> io::Result<()> {
    match options.datagrams {
        Datagrams::Gre => gre_socket(options).map(drop),
        Datagrams::Udp { .. } | Datagrams::UdpTo { .. } => Ok(()),
    }
}

fn gre_socket(options: &PeerOptions) -> io::Result<Socket> {
    new_socket(options, Type::RAW, Protocol::from(libc::IPPROTO_GRE)).map_err(explain)
}

/// The path to a peer, as the kernel knows it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// Our address on it.
    local: IpAddr,
    /// Bytes of a payload that it takes.
    pub(super) mtu: u32,
}

impl Path {
    /// Whether sockets that were opened on this path serve the other, with room for what it takes.
    pub(super) fn serves(&self, other: &Self) -> bool {
        self.local == other.local && self.mtu >= other.mtu
    }
}

/// Looks for the path to a peer; `None`: there is none now.
pub(super) fn find(options: &PeerOptions) -> io::Result<Option<Path>> {
    // Whichever datagrams go there, the kernel routes them alike.
    let look = || {
        let socket = new_socket(options, Type::DGRAM, Protocol::UDP)?;
        connect(&socket, options, options.local, (ANY, DISCARD))?;
        let local = socket.local_addr()?.as_socket();
        let local = local.ok_or(io::ErrorKind::AddrNotAvailable)?.ip();
        let (level, name) = match options.peer {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let mtu = option::<u32>(socket.as_raw_fd(), level, name)?;
        Ok(Path { local, mtu: mtu.saturating_sub(options.around()) })
    };
    match look() {
        Ok(path) => Ok(Some(path)),
        Err(error) if is_for_now(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The port of a service that takes what comes: nothing is sent there.
const DISCARD: u16 = 9;

/// Whether there may be a path later: no route, no such address or interface of ours now.
fn is_for_now(error: &io::Error) -> bool {
    let now = [
        Errno::NETUNREACH,
        Errno::HOSTUNREACH,
        Errno::NETDOWN,
        Errno::ADDRNOTAVAIL,
        Errno::NODEV,
        // A route that prohibits, or is a black hole.
        Errno::ACCESS,
    ];
    error.raw_os_error().is_some_and(|code| now.iter().any(|one| one.raw_os_error() == code))
}

/// Opens a link's sockets on a path. `again` is rung when the path is to be looked at.
pub(super) fn open(
    link: LinkId,
    options: &PeerOptions,
    path: &Path,
    counters: Arc<Counters>,
    again: &Arc<OwnedFd>,
) -> io::Result<Box<LinkSocket>> {
    let local = Some(path.local);
    let (receive, send) = match options.datagrams {
        Datagrams::Gre => {
            let socket = gre_socket(options)?;
            connect(&socket, options, local, (ANY, ANY))?;
            (socket, None)
        }
        Datagrams::Udp { local_port, peer_port } => {
            let socket = new_socket(options, Type::DGRAM, Protocol::UDP)?;
            connect(&socket, options, local, (local_port, peer_port))?;
            (socket, None)
        }
        Datagrams::UdpTo { port } => {
            let socket = new_socket(options, Type::DGRAM, Protocol::UDP)?;
            // From any port of the peer's.
            connect(&socket, options, local, (port, ANY))?;
            (socket, Some(from_a_dynamic_port(options, local, port)?))
        }
    };
    let frames = room(&receive, path.mtu)?;
    filter::attach(receive.as_raw_fd(), &taken(options))?;
    set_send_buffer(send.as_ref().unwrap_or(&receive).as_raw_fd())?;
    let strips_ip = options.datagrams == Datagrams::Gre && options.peer.is_ipv4();
    let way = Datagram {
        send: send.map(OwnedFd::from),
        frame: path.mtu as usize + if strips_ip { IPV4_MAX } else { 0 },
        buffers: Vec::new(),
        strips_ip,
        may_have_more: true,
        frames,
        again: again.clone(),
        system_calls: 0,
    };
    let receive = Arc::new(OwnedFd::from(receive));
    let source = Source::Datagram { socket: Arc::downgrade(&receive), seen: 0 };
    let way = Way::Datagram(Box::new(way));
    let mut socket = LinkSocket::new(link, receive, way, source, None, counters);
    if options.neighbour_on.is_some() {
        socket.keep_urgency();
    }
    Ok(socket)
}

/// Of what the peer sends: all, or what came over no router.
fn taken(options: &PeerOptions) -> Vec<Instruction> {
    let take = Instruction::ret(u32::MAX);
    if options.neighbour_on.is_none() {
        return vec![take];
    }
    // TTL, and hop limit. The kernel's own options for that (IP_MINTTL) concern TCP alone.
    let at = NETWORK_LAYER + if options.peer.is_ipv4() { 8 } else { 7 };
    let load = Instruction { code: LOAD_BYTE, operand: at, ..Instruction::ret(0) };
    vec![load, Instruction::if_equal(HOP_LIMIT, 0, 1), take, Instruction::ret(0)]
}

/// Loads from here on count from the header of IP (`SKF_NET_OFF`, -0x100000).
const NETWORK_LAYER: u32 = 0xfff0_0000;
const LOAD_BYTE: u16 = 0x30;

/// The longest header of IPv4.
const IPV4_MAX: usize = 60;
/// The longest packet, or payload of one of IPv6: their lengths have 16 bits.
const PACKET_MAX: usize = 65_535;

/// A socket for such datagrams, that sends nothing in fragments.
fn new_socket(options: &PeerOptions, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let domain = if options.peer.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    // Before it is connected it would take what anybody sends.
    filter::attach(socket.as_raw_fd(), &NOTHING)?;
    // Neighbours on one interface have sockets of one port.
    socket.set_reuse_address(true)?;
    let fd = socket.as_raw_fd();
    match options.peer {
        IpAddr::V4(_) => {
            let name = libc::IP_MTU_DISCOVER;
            set_option(fd, libc::IPPROTO_IP, name, &libc::IP_PMTUDISC_DO)?;
        }
        IpAddr::V6(_) => {
            let name = libc::IPV6_MTU_DISCOVER;
            set_option(fd, libc::IPPROTO_IPV6, name, &libc::IPV6_PMTUDISC_DO)?;
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, &1)?;
        }
    }
    if let Some(interface) = &options.neighbour_on {
        socket.bind_device(Some(interface.as_bytes()))?;
        match options.peer {
            IpAddr::V4(_) => socket.set_ttl_v4(HOP_LIMIT)?,
            IpAddr::V6(_) => socket.set_unicast_hops_v6(HOP_LIMIT)?,
        }
        // Nothing but messages about the link is sent there.
        set_urgent(fd, true);
    }
    Ok(socket)
}

/// Has a socket send from a port of ours to a port of the peer's, and receive from there alone.
fn connect(
    socket: &Socket,
    options: &PeerOptions,
    local: Option<IpAddr>,
    (local_port, peer_port): (u16, u16),
) -> io::Result<()> {
    let any: IpAddr = match options.peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    if local.is_some() || local_port != ANY {
        let local = SocketAddr::new(local.unwrap_or(any), local_port);
        socket.bind(&local.into()).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                let text = format!("port {local_port} of {} is another's", local.ip());
                io::Error::new(error.kind(), text)
            }
            _ => error,
        })?;
    }
    // An address of a link is of the one that the socket is bound to.
    let peer = SocketAddr::new(options.peer, peer_port);
    socket.connect(&peer.into())
}

/// A socket that sends to a port of the peer's, from one that nobody else has.
fn from_a_dynamic_port(
    options: &PeerOptions,
    local: Option<IpAddr>,
    port: u16,
) -> io::Result<Socket> {
    let count = u32::from(DYNAMIC_PORTS.end() - DYNAMIC_PORTS.start()) + 1;
    let begin = std::process::id().wrapping_mul(0x9e37);
    for step in 0..count {
        let source = DYNAMIC_PORTS.start() + (begin.wrapping_add(step) % count) as u16;
        let socket = new_socket(options, Type::DGRAM, Protocol::UDP)?;
        // Each has its own: a peer tells sessions by it.
        socket.set_reuse_address(false)?;
        match connect(&socket, options, local, (source, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            tried => return tried.map(|()| socket),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port from 49152 on is free"))
}

/// Lets the kernel hold as much of what comes as it grants; for how many frames that is.
fn room(socket: &Socket, mtu: u32) -> io::Result<u32> {
    let fd = socket.as_raw_fd();
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER))?;
    let granted = SockRef::from(socket).recv_buffer_size()?;
    Ok((granted as u32 / (mtu.next_power_of_two() + PER_FRAME)).max(1))
}

fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), "GRE needs CAP_NET_RAW, which this process does not have")
        }
        _ => error,
    }
}

/// Drops that the kernel counted on a socket since it was opened (`SK_MEMINFO_DROPS`).
pub(super) fn drops(socket: &OwnedFd) -> u64 {
    let all = option::<[u32; 9]>(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO);
    all.map_or(0, |all| all[8].into())
}

/// How payloads come and go.
pub(super) struct Datagram {
    /// By which they leave, if not by the one by which they come.
    send: Option<OwnedFd>,
    /// Room for one, with what is stripped; more once a longer one came.
    frame: usize,
    /// [`BATCH`] of them, once something came.
    buffers: Vec<u8>,
    /// The kernel shows the header of IPv4 in front.
    strips_ip: bool,
    /// The last call took as many as it could.
    may_have_more: bool,
    frames: u32,
    /// Has the supervisor look at the path again.
    again: Arc<OwnedFd>,
    pub(super) system_calls: u64,
}

impl Datagram {
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }

    #[inline]
    pub(super) fn has_frame(&self) -> bool {
        self.may_have_more
    }

    /// Whether something waits, asked of the kernel.
    pub(super) fn ask_for_frames(&mut self, socket: RawFd) -> bool {
        if !self.may_have_more {
            let mut watched = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
            self.system_calls += 1;
            // SAFETY: there is one such structure, which lives until the call returns.
            let ready = unsafe { libc::poll(&raw mut watched, 1, 0) };
            self.may_have_more = ready > 0;
        }
        self.may_have_more
    }

    /// By which payloads leave.
    pub(super) fn sender(&self) -> Option<RawFd> {
        self.send.as_ref().map(OwnedFd::as_raw_fd)
    }

    /// The path takes less than was thought.
    pub(super) fn look_again(&self) {
        ring(&self.again);
    }

    /// Shows at most so many payloads. Returns how many.
    pub(super) fn receive(
        &mut self,
        socket: RawFd,
        most: u32,
        mut show: impl FnMut(Slot<'_>),
    ) -> u32 {
        let mut count = 0;
        while count < most {
            let wanted = BATCH.min((most - count) as usize);
            match self.take(socket, wanted, &mut show) {
                Ok(came) => {
                    count += came as u32;
                    self.may_have_more = came == wanted;
                    if !self.may_have_more {
                        return count;
                    }
                }
                // Nothing waits.
                Err(libc::EAGAIN) => {
                    self.may_have_more = false;
                    return count;
                }
                // What ICMP said of something that was sent: taken with this. One of it counts as
                // shown, so that whoever sends many does not hold up all else.
                Err(error) => {
                    count += 1;
                    if error == libc::EMSGSIZE {
                        self.look_again();
                    }
                }
            }
        }
        count
    }

    /// Takes payloads out of the kernel, and shows them.
    fn take(
        &mut self,
        socket: RawFd,
        wanted: usize,
        show: &mut impl FnMut(Slot<'_>),
    ) -> Result<usize, i32> {
        if self.buffers.is_empty() {
            self.buffers.resize(BATCH * self.frame, 0);
        }
        let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut vectors = [none; BATCH];
        for (vector, buffer) in vectors.iter_mut().zip(self.buffers.chunks_exact_mut(self.frame)) {
            *vector = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        }
        // SAFETY: headers of zeros name nothing, which is valid.
        let mut messages: [mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (message, vector) in messages.iter_mut().zip(&mut vectors) {
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        self.system_calls += 1;
        // SAFETY: the first `wanted` headers, which are no more than there are, each name one vector
        // that names a buffer of its own; all of them live and are used by nobody else until the call
        // returns.
        let came = unsafe {
            // The second has the kernel tell how long what it cuts was.
            let flags = (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as _;
            libc::recvmmsg(
                socket,
                messages.as_mut_ptr(),
                wanted as libc::c_uint,
                flags,
                std::ptr::null_mut(),
            )
        };
        let came = usize::try_from(came)
            .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))?;
        let buffers = self.buffers.chunks_exact(self.frame);
        let mut longest = 0;
        for (message, buffer) in messages[..came].iter().zip(buffers) {
            let length = message.msg_len as usize;
            longest = longest.max(length);
            let bytes = &buffer[..length.min(buffer.len())];
            let payload = if self.strips_ip { behind_ipv4(bytes) } else { Some(bytes) };
            let stripped = payload.map_or(0, |payload| bytes.len() - payload.len());
            let (bytes, length) = (payload.unwrap_or_default(), (length - stripped) as u32);
            show(Slot::plain(bytes, length));
        }
        if longest > self.frame {
            // By doubling, so that few are cut, whatever their lengths.
            self.frame = longest.max(self.frame * 2).min(PACKET_MAX);
            self.buffers = Vec::new();
        }
        Ok(came)
    }
}

/// What stands behind a header of IPv4.
fn behind_ipv4(packet: &[u8]) -> Option<&[u8]> {
    let length = usize::from(packet.first()? & 0xf) * 4;
    packet.get(length.max(20)..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::event_descriptor;

    #[test]
    fn the_header_of_ipv4_ends_where_it_says() {
        let packet: Vec<u8> = [0x45].into_iter().chain(1..60).collect();
        assert_eq!(behind_ipv4(&packet), Some(&packet[20..]));
        assert_eq!(behind_ipv4(&[&[0x47], &packet[1..]].concat()), Some(&packet[28..]));
        // None that the kernel has let in is shorter.
        assert_eq!(behind_ipv4(&[&[0x41], &packet[1..]].concat()), Some(&packet[20..]));
        assert_eq!(behind_ipv4(&packet[..19]), None);
        assert_eq!(behind_ipv4(&[]), None);
    }

    fn to_this_host(datagrams: Datagrams) -> PeerOptions {
        PeerOptions {
            peer: Ipv4Addr::LOCALHOST.into(),
            local: None,
            datagrams,
            neighbour_on: None,
            shard: ShardId(0),
            poll: Poll::default(),
        }
    }

    #[test]
    fn what_does_not_fit_has_the_path_looked_at() {
        let options = to_this_host(Datagrams::Udp { local_port: ANY, peer_port: DISCARD });
        let path = Path { local: options.peer, mtu: 1472 };
        let again = Arc::new(event_descriptor().unwrap());
        let mut socket = open(LinkId(1), &options, &path, Arc::default(), &again).unwrap();
        // The first is longer than any datagram.
        for (length, result) in [(PACKET_MAX, Err(libc::EMSGSIZE)), (PACKET_MAX - 28, Ok(1))] {
            let payload = vec![0u8; length];
            let mut vector =
                iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: length };
            // SAFETY: a message of zeros names nothing, which is valid; this one then names a vector
            // and its bytes, both of which live until the call returns.
            let sent = unsafe {
                let mut message: mmsghdr = std::mem::zeroed();
                message.msg_hdr.msg_iov = &raw mut vector;
                message.msg_hdr.msg_iovlen = 1;
                socket.send(&mut [message])
            };
            assert_eq!(sent, result);
            let rung = rustix::io::read(&*again, &mut [0; 8]);
            assert_eq!(rung.is_ok(), result.is_err(), "{length} bytes: {rung:?}");
        }
    }

    #[test]
    fn what_no_host_could_make_right_is_refused() {
        let options = to_this_host(Datagrams::Gre);
        let refused = |options: PeerOptions| options.check(1).unwrap_err().to_string();
        assert!(options.check(1).is_ok());
        let six = Some(Ipv6Addr::LOCALHOST.into());
        let text = refused(PeerOptions { local: six, ..options.clone() });
        assert_eq!(text, "expected two addresses of IPv4 or two of IPv6");
        let local = Some(Ipv4Addr::UNSPECIFIED.into());
        let text = refused(PeerOptions { local, ..options.clone() });
        assert_eq!(text, "expected the address of a host, seen 0.0.0.0");
        for peer in ["224.0.0.1", "255.255.255.255", "0.0.0.0", "ff02::1", "::", "::ffff:10.0.0.1"]
        {
            let text = refused(PeerOptions { peer: peer.parse().unwrap(), ..options.clone() });
            assert_eq!(text, format!("expected the address of a host, seen {peer}"));
        }
        let far = PeerOptions { peer: "fe80::1".parse().unwrap(), ..options.clone() };
        let near = PeerOptions { neighbour_on: Some("eth0".to_owned()), ..far.clone() };
        assert!(near.check(1).is_ok());
        let text = refused(far);
        assert!(text.starts_with("fe80::1 means another host on each interface"), "{text}");
        let text = refused(PeerOptions { shard: ShardId(1), ..options });
        assert!(text.starts_with("expected one of 1 shards"), "{text}");
    }
}
