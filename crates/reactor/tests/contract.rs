//! The driver contract against both engines: polling as they
//! see fit, asleep with one large receive buffer, and polling all the time.
//!
//! Peers are ordinary blocking sockets on loopback.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use block::ShardId;
use contract::{DiskId, ListenerId, Poll};
use reactor::disk::{Disk, OpenSpec};
use reactor::{Config, Handle, ListenOptions, Preference};
use testkit::suite::{self, Command, Harness, Note, Peer, PeerEnd, Report};

use common::{HANG, on_each_engine, two_shards};

struct Real {
    handle: Handle<Note>,
    address: SocketAddr,
    listener: TcpListener,
    peers: Vec<Option<TcpStream>>,
}

impl Real {
    fn new(driver: Preference, receive_buffers: usize, poll: Poll) -> Real {
        let config = Config { driver, receive_buffers, ..two_shards() };
        let (handle, arena) = common::start(&config);
        let disk = Arc::new(Disk::open(&OpenSpec::Ram { bytes: 1 << 20 }, &arena).unwrap());
        handle.add_disk(DiskId(3), &disk, poll);
        let options = ListenOptions { poll, ..ListenOptions::default() };
        let any = "127.0.0.1:0".parse().unwrap();
        let address = handle.listen(any, ListenerId(1), options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Real { handle, address, listener, peers: Vec::new() }
    }

    fn add(&mut self, stream: TcpStream) -> Peer {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        self.peers.push(Some(stream));
        Peer(self.peers.len() - 1)
    }

    fn peer(&mut self, peer: Peer) -> &mut TcpStream {
        self.peers[peer.0].as_mut().expect("the peer has not reset its connection")
    }
}

impl Harness for Real {
    fn connect(&mut self) -> Peer {
        let stream = TcpStream::connect(self.address).unwrap();
        self.add(stream)
    }

    fn refusing_address(&mut self) -> SocketAddr {
        // Bound, so that nobody else gets the port, and never listening. It stays so until the
        // process ends.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        std::mem::forget(socket);
        address
    }

    fn listening_address(&mut self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn accept(&mut self) -> Peer {
        let (stream, _) = self.listener.accept().unwrap();
        self.add(stream)
    }

    fn send(&mut self, peer: Peer, bytes: &[u8]) {
        self.peer(peer).write_all(bytes).unwrap();
    }

    fn receive(&mut self, peer: Peer, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.peer(peer).read_exact(&mut bytes).unwrap();
        bytes
    }

    fn receive_end(&mut self, peer: Peer) -> PeerEnd {
        match read(self.peer(peer)) {
            Err(end) => end,
            Ok(count) => panic!("{count} bytes came before the end"),
        }
    }

    fn drain(&mut self, peer: Peer) -> PeerEnd {
        loop {
            if let Err(end) = read(self.peer(peer)) {
                return end;
            }
        }
    }

    fn finish(&mut self, peer: Peer) {
        self.peer(peer).shutdown(std::net::Shutdown::Write).unwrap();
    }

    fn reset(&mut self, peer: Peer) {
        let stream = self.peers[peer.0].take().expect("it was not reset before");
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn disk(&mut self) -> DiskId {
        DiskId(3)
    }

    fn command(&mut self, to: ShardId, command: Command) {
        self.handle.send(to, Note::Command(command));
    }

    fn report(&mut self) -> (ShardId, Report) {
        common::report(&self.handle)
    }
}

/// Reads once: how many bytes came, or how the stream ended. The kernel interrupts this thread when
/// it takes down the ring by which io_uring was tried at start, some time after that.
fn read(stream: &mut TcpStream) -> Result<usize, PeerEnd> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Err(PeerEnd::EndOfStream),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(PeerEnd::Reset),
            Err(error) => panic!("the end did not come: {error}"),
        }
    }
}

fn run(receive_buffers: usize, poll: Poll) {
    on_each_engine(|driver| suite::run(|| Real::new(driver, receive_buffers, poll)));
}

#[test]
fn the_contract_is_kept() {
    run(32, Poll::Auto);
}

#[test]
fn the_contract_is_kept_with_one_receive_buffer() {
    run(1, Poll::Never);
}

#[test]
fn the_contract_is_kept_while_polling() {
    run(32, Poll::Fixed(200));
}
