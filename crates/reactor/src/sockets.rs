//! Sockets: making, accepting and shutting them, with the options that every connection has.
//!
//! Connections are blocking sockets, which io_uring needs to wait by itself; the epoll engine says
//! MSG_DONTWAIT with each call. Buffers are bounded by `limits::SOCKET_BUFFER` where the system
//! grants as much to an ordinary user (net.core.rmem_max, wmem_max); where it would grant less, a
//! fixed buffer would be smaller than what the kernel's own tuning reaches, and its bound
//! (tcp_rmem, tcp_wmem) stands. Errors: those of the system.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;

use block::limits;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// A silent peer is asked after so long, and then every `KEEPALIVE_EVERY`, `KEEPALIVE_TRIES` times.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TRIES: u32 = 6;

/// Opens a listening socket; returns it with its address, whose port the system may have chosen.
pub(crate) fn listen(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = new_socket(address)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // An IPv4 address has a listener of its own.
        socket.set_only_v6(true)?;
    }
    // Accepted sockets inherit the buffers; set before, so that the window scale fits them.
    bound_buffers(&socket);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let local = address_of(socket.local_addr()?)?;
    Ok((socket.into(), local))
}

/// Accepts one connection; `WouldBlock` when none waits.
pub(crate) fn accept(listener: RawFd) -> io::Result<(OwnedFd, SocketAddr)> {
    // SAFETY: the caller's descriptor stays open during the call.
    let listener = unsafe { BorrowedFd::borrow_raw(listener) };
    let (socket, peer) = SockRef::from(&listener).accept()?;
    Ok((socket.into(), address_of(peer)?))
}

/// A socket to connect with.
pub(crate) fn for_connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = new_socket(address)?;
    bound_buffers(&socket);
    Ok(socket.into())
}

/// Sets the options of a connection; returns the address on our side.
pub(crate) fn prepare(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let socket = SockRef::from(fd);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_TRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    address_of(socket.local_addr()?)
}

/// Says to the other side that nothing more will be sent.
pub(crate) fn finish_sending(fd: &OwnedFd) {
    // A connection that is broken already needs no farewell.
    let _ = SockRef::from(fd).shutdown(std::net::Shutdown::Write);
}

/// Has the closing of the socket reset the connection, and drop what has not left.
pub(crate) fn reset_when_closed(fd: &OwnedFd) {
    // A connection that is broken already is closed either way.
    let _ = SockRef::from(fd).set_linger(Some(Duration::ZERO));
}

/// The error that waits on a socket, or 0; takes it.
pub(crate) fn error_of(fd: RawFd) -> i32 {
    // SAFETY: the caller's descriptor stays open during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    match SockRef::from(&fd).take_error() {
        Ok(None) => 0,
        Ok(Some(error)) | Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// Bytes that a connection's socket may make the kernel hold in each direction, where this system
/// lets us bound them; `None`: the kernel's own tuning and its bounds apply.
pub fn buffer_bound() -> Option<u32> {
    static BOUND: OnceLock<Option<u32>> = OnceLock::new();
    *BOUND.get_or_init(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).ok()?;
        let wanted = limits::SOCKET_BUFFER as usize;
        socket.set_recv_buffer_size(wanted).ok()?;
        socket.set_send_buffer_size(wanted).ok()?;
        let granted = socket.recv_buffer_size().ok()?.min(socket.send_buffer_size().ok()?);
        // The kernel doubles what it grants.
        (granted >= 2 * wanted).then_some(limits::SOCKET_BUFFER)
    })
}

fn bound_buffers(socket: &Socket) {
    if let Some(bytes) = buffer_bound() {
        // It was granted once; should that have changed, the kernel's bounds apply.
        let _ = socket.set_recv_buffer_size(bytes as usize);
        let _ = socket.set_send_buffer_size(bytes as usize);
    }
}

fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
}

fn address_of(address: SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| io::Error::other("a peer without an IP address"))
}
