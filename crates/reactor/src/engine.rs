//! Engines: how operations on sockets and files are started, and how their ends are learnt.
//!
//! The driver (`driver.rs`) holds all meaning and is written once, against operations that are
//! started and later end, exactly once each. Two engines carry them out: `uring`, where the kernel
//! works that way itself, and `epoll`, which tries at once and waits for readiness. Results are
//! those of the system calls: a count, or a negative error number.
//!
//! Pointers in an [`Op`] belong to the driver. It keeps what they point at in place and untouched
//! until the operation's [`Done`] has been told; a cancelled operation is told too.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use crate::disk::Call;

pub(crate) mod choice;
pub(crate) mod epoll;
mod lending;
pub(crate) mod uring;
pub(crate) mod workers;

/// Vectors of one call at most; the kernel takes no more (IOV_MAX).
pub(crate) const VECTORS_MAX: usize = 1024;

/// Bytes that a lent buffer holds: any command without data, and a Connect with its own.
pub(crate) const LENT_MAX: u32 = 2048;

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nobody wants to know that it ended.
    Ignored = 0,
    /// A connection's receiving side: at most one at a time.
    Input = 1,
    /// A connection's sending side, or its connect: at most one at a time.
    Output = 2,
    /// A connection's watch for the other side's end.
    Hangup = 3,
    /// A listening socket.
    Listener = 4,
    /// A file.
    File = 5,
    /// The shard was woken.
    Wake = 6,
    /// A link's watch for frames.
    Frames = 7,
    /// A link's watch for room to send.
    Room = 8,
}

/// The name of an operation: kind, slot (24 bits) and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    pub(crate) const WAKE: Key = Key((Kind::Wake as u64) << 56);
    pub(crate) const IGNORED: Key = Key(0);

    #[inline]
    pub(crate) fn new(kind: Kind, slot: u32, generation: u32) -> Key {
        debug_assert!(slot < 1 << 24, "slot {slot} needs more than 24 bits");
        Key((kind as u64) << 56 | u64::from(slot) << 32 | u64::from(generation))
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match (self.0 >> 56) as u8 {
            1 => Kind::Input,
            2 => Kind::Output,
            3 => Kind::Hangup,
            4 => Kind::Listener,
            5 => Kind::File,
            6 => Kind::Wake,
            7 => Kind::Frames,
            8 => Kind::Room,
            _ => Kind::Ignored,
        }
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        (self.0 >> 32) as u32 & 0x00ff_ffff
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        self.0 as u32
    }
}

/// A connection's socket: the slot it is attached at, and its descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Socket {
    pub(crate) slot: u32,
    pub(crate) fd: RawFd,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Ends when there is something to receive, be it the end of the stream.
    Readable(Socket),
    /// Ends when the other side has closed or the connection is broken; bytes may still wait before
    /// it.
    Hangup(Socket),
    /// Receives up to `length` bytes. `drained`: the receive before took all there was, and no more
    /// has come since, as far as can be told, so trying at once is likely vain.
    Receive { socket: Socket, into: *mut u8, length: u32, drained: bool },
    /// Receives up to `length` bytes into memory that the engine lends once something has come, up
    /// to [`LENT_MAX`] bytes; `-ENOBUFS`: it had none left, and what came still waits. Only where
    /// the engine [lends](Engine::lends).
    ReceiveLent { socket: Socket, length: u32, drained: bool },
    /// Receives into the message's vectors; `whole`: ends only when they are full, where the engine
    /// can wait for that without a wake-up for each piece, else with what there is.
    ReceiveMessage { socket: Socket, message: *mut libc::msghdr, whole: bool },
    /// Receives up to `length` bytes and drops them.
    Discard { socket: Socket, length: u32 },
    /// Sends from the message's vectors; may send less.
    Send { socket: Socket, message: *const libc::msghdr },
    /// Connects; ends with 0.
    Connect { socket: Socket, address: *const libc::sockaddr, length: libc::socklen_t },
    /// Ends when a connection waits to be accepted.
    Acceptable(RawFd),
    /// Ends when a link's socket has frames or an error, with the events. It must have been looked
    /// at just before: what came until then is not told.
    Frames(RawFd),
    /// Ends when a link's socket has room to send, or an error.
    Room(RawFd),
}

/// An operation's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) key: Key,
    pub(crate) result: i32,
    /// Where an [`Op::ReceiveLent`] has put what it received. Whoever takes the end gives it back
    /// ([`Engine::take_back`]), whatever the result is.
    pub(crate) lent: Option<Lent>,
}

/// A buffer that the engine has lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent(u16);

/// The limit of a wait that only looks.
pub(crate) const NOW: Option<Duration> = Some(Duration::ZERO);

/// One thread's way to start operations and to learn their ends.
pub(crate) trait Engine {
    /// Whether a receive should be started only once there is something to receive: true where
    /// trying costs a system call, false where a receive waits by itself.
    const POLLS_FIRST: bool;

    /// Whether it carries out calls to files; else the disk threads do all that files need.
    const FILES: bool;

    /// Makes a socket known, before its first operation.
    fn attach(&mut self, socket: Socket) -> io::Result<()>;

    /// Forgets a socket, after its last operation has ended and before it is closed.
    fn detach(&mut self, socket: Socket);

    /// Forgets a link's socket, after its last operation has ended and before it is closed.
    fn forget(&mut self, _fd: RawFd) {}

    /// Starts an operation; it may begin only at the next [`submit`](Engine::submit) or
    /// [`wait`](Engine::wait).
    ///
    /// # Safety
    /// What the operation points at stays valid, in place and untouched until its [`Done`] has been
    /// told.
    unsafe fn start(&mut self, key: Key, op: Op);

    /// Starts a call to a file, which is not [`Call::Blocking`] or [`Call::Finished`], where the
    /// engine carries these out.
    ///
    /// # Safety
    /// As for [`start`](Engine::start), and the file stays open.
    unsafe fn start_file(&mut self, _key: Key, _file: BorrowedFd<'_>, _call: Call<'_>) {
        unreachable!("files go to the disk threads (Engine::FILES)")
    }

    /// So many calls to files may sleep at once: where the kernel makes them with workers of its
    /// own, it is to have that many.
    fn set_file_workers(&mut self, _count: u32) {}

    /// Whether receives can be lent their memory ([`Op::ReceiveLent`]).
    fn lends(&self) -> bool {
        false
    }

    /// The first bytes of a buffer that is lent.
    fn lent(&self, lent: Lent, _length: u32) -> &[u8] {
        unreachable!("{lent:?} of an engine that lends nothing")
    }

    /// Takes a buffer back that was lent.
    fn take_back(&mut self, lent: Lent) {
        unreachable!("{lent:?} of an engine that lends nothing")
    }

    /// Sends from the message's vectors at once, if that is the cheapest way and possible; returns
    /// how much left. `None`: nothing happened, a send is to be started. Between two waits it works
    /// once at most, so that whoever always has more to send comes to wait.
    ///
    /// # Safety
    /// The message and its vectors must be valid.
    unsafe fn send_now(&mut self, _socket: Socket, _message: *const libc::msghdr) -> Option<i32> {
        None
    }

    /// Asks for an operation to end soon. It still ends once, with what it achieved or
    /// `-ECANCELED`. Files are not cancelled.
    fn cancel(&mut self, key: Key);

    /// Lets what was started begin.
    fn submit(&mut self);

    /// Whether an operation has ended, or may have; [`wait`](Engine::wait) tells which. For whoever
    /// looks many times in a row: costs no system call where that can be known without.
    fn has_ended(&mut self) -> bool;

    /// Waits for ends, at most so long ([`NOW`]: only looks; `None`: until something happens), and
    /// appends them to `done`. A wake-up by the shard's event descriptor shows as [`Key::WAKE`].
    fn wait(&mut self, limit: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()>;

    /// System calls made so far.
    fn system_calls(&self) -> u64;
}
