//! The epoll engine: tries an operation at once and, where the socket is not ready, waits for its
//! edge.
//!
//! Each socket is registered once, edge-triggered, for both directions; what is known of its
//! readiness is kept beside it. A receive that got less than it asked for has emptied the socket,
//! so the next one waits for an edge without trying (epoll(7), question 9); a socket whose other
//! side has closed stays readable. Links are watched by their descriptors, for frames by edges from
//! the first watch on; for room to send only while a watch is out, since every frame that leaves
//! makes an edge. An edge that comes while no watch is out is dropped: whoever starts one has
//! looked just before. Files are none of its business: they go to the disk threads. Errors: those
//! of epoll's set-up and waiting.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{Done, Engine, Key, Kind, NOW, Op, Socket};

/// Events taken by one call.
const EVENTS: usize = 512;
/// So often may ends that are already known be told before sockets are looked at again.
const LOCAL_ROUNDS: u32 = 4;

/// What is known of a socket, and what it is asked to do.
#[derive(Default)]
struct Watch {
    registered: bool,
    readable: bool,
    writable: bool,
    /// The other side has closed, or the connection is broken: there will be no edge any more.
    over: bool,
    input: Option<(Key, Op)>,
    output: Option<(Key, Op)>,
    hangup: Option<Key>,
}

/// A link's socket and its watches.
struct LinkWatch {
    fd: RawFd,
    /// The first of its keys, by which the kernel tells of it.
    name: Key,
    frames: Option<Key>,
    room: Option<Key>,
}

/// An epoll instance and its sockets.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    watches: Vec<Watch>,
    listeners: Vec<(Key, RawFd)>,
    links: Vec<LinkWatch>,
    /// Ended, and not told yet.
    ended: VecDeque<Done>,
    rounds: u32,
    events: Vec<libc::epoll_event>,
    coarse: bool,
    system_calls: u64,
}

impl Epoll {
    /// Sets an epoll instance up; `wake` is the shard's event descriptor.
    pub(crate) fn new(wake: RawFd) -> io::Result<Epoll> {
        let mut engine = Epoll {
            epoll: rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?,
            watches: Vec::new(),
            listeners: Vec::new(),
            links: Vec::new(),
            ended: VecDeque::new(),
            rounds: 0,
            events: Vec::with_capacity(EVENTS),
            coarse: false,
            system_calls: 2,
        };
        // Edge-triggered and never read: each write to it is told once.
        let edges = (libc::EPOLLIN | libc::EPOLLET) as u32;
        engine.control(libc::EPOLL_CTL_ADD, wake, edges, Key::WAKE)?;
        Ok(engine)
    }

    fn control(&mut self, what: i32, fd: RawFd, events: u32, key: Key) -> io::Result<()> {
        self.system_calls += 1;
        let mut event = libc::epoll_event { events, u64: key.0 };
        // SAFETY: the event lives until the call returns.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn watch(&mut self, socket: Socket) -> &mut Watch {
        &mut self.watches[socket.slot as usize]
    }

    fn end(&mut self, key: Key, result: i32) {
        self.ended.push_back(Done { key, result, lent: None });
    }

    /// Registers a socket at its first operation: an unconnected one would be told as broken at
    /// once.
    fn register(&mut self, socket: Socket, key: Key) -> bool {
        if self.watch(socket).registered {
            return true;
        }
        let edges = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
        let name = Key::new(Kind::Input, socket.slot, 0);
        match self.control(libc::EPOLL_CTL_ADD, socket.fd, edges, name) {
            Ok(()) => {
                self.watch(socket).registered = true;
                true
            }
            Err(error) => {
                self.end(key, -error.raw_os_error().unwrap_or(libc::EIO));
                false
            }
        }
    }

    /// Tries the socket's input operation if it may succeed.
    fn try_input(&mut self, slot: u32) {
        let watch = &mut self.watches[slot as usize];
        let Some((key, op)) = watch.input else { return };
        if !watch.readable && !watch.over {
            return;
        }
        let (result, wanted) = match op {
            Op::Receive { socket, into, length, .. } => {
                self.system_calls += 1;
                // SAFETY: the driver keeps the memory valid until the operation has ended.
                let result = unsafe {
                    libc::recv(socket.fd, into.cast(), length as usize, libc::MSG_DONTWAIT)
                };
                (outcome(result), i32::try_from(length).unwrap_or(i32::MAX))
            }
            Op::ReceiveMessage { socket, message, .. } => {
                self.system_calls += 1;
                // SAFETY: as above; the vectors' total is computed from the driver's own message.
                unsafe {
                    let result = libc::recvmsg(socket.fd, message, libc::MSG_DONTWAIT);
                    (outcome(result), total(&*message))
                }
            }
            Op::Discard { socket, length } => {
                self.system_calls += 1;
                let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
                // SAFETY: with MSG_TRUNC, TCP drops the bytes and touches no memory (tcp(7)).
                let result =
                    unsafe { libc::recv(socket.fd, std::ptr::null_mut(), length as usize, flags) };
                (outcome(result), i32::try_from(length).unwrap_or(i32::MAX))
            }
            _ => (i32::from(libc::POLLIN), 0),
        };
        if result == -libc::EAGAIN {
            watch.readable = false;
            if !watch.over {
                return;
            }
        } else if result < wanted {
            watch.readable = false;
        }
        watch.input = None;
        self.end(key, result);
    }

    /// Tries the socket's output operation if it may succeed.
    fn try_output(&mut self, slot: u32) {
        let watch = &mut self.watches[slot as usize];
        let Some((key, op)) = watch.output else { return };
        if !watch.writable && !watch.over {
            return;
        }
        let result = match op {
            Op::Send { socket, message } => {
                self.system_calls += 1;
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                // SAFETY: the driver keeps the message and its vectors valid until the end.
                outcome(unsafe { libc::sendmsg(socket.fd, message, flags) })
            }
            // A connect that is under way ends with writability.
            Op::Connect { socket, .. } => -crate::sockets::error_of(socket.fd),
            _ => 0,
        };
        if result == -libc::EAGAIN {
            watch.writable = false;
            return;
        }
        watch.output = None;
        self.end(key, result);
    }

    fn connect(&mut self, key: Key, op: Op) {
        let Op::Connect { socket, address, length } = op else { return };
        self.system_calls += 2;
        // SAFETY: the driver keeps the address valid until the operation has ended.
        let result = unsafe {
            let flags = libc::fcntl(socket.fd, libc::F_GETFL);
            libc::fcntl(socket.fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            outcome(libc::connect(socket.fd, address, length) as isize)
        };
        if result != -libc::EINPROGRESS {
            self.end(key, result);
            return;
        }
        if self.register(socket, key) {
            let watch = self.watch(socket);
            watch.writable = false;
            watch.output = Some((key, op));
        }
    }

    fn listen(&mut self, key: Key, fd: RawFd) {
        let events = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;
        let known = self.listeners.iter().any(|(_, other)| *other == fd);
        let what = if known { libc::EPOLL_CTL_MOD } else { libc::EPOLL_CTL_ADD };
        match self.control(what, fd, events, key) {
            Ok(()) if !known => self.listeners.push((key, fd)),
            Ok(()) => {}
            Err(error) => self.end(key, -error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    /// Watches a link's socket.
    fn watch_link(&mut self, key: Key, fd: RawFd) {
        let index = self.links.iter().position(|link| link.fd == fd);
        let is_known = index.is_some();
        let index = index.unwrap_or_else(|| {
            // That of whoever asked first, since a link may receive by one socket and send by another.
            let name = Key::new(key.kind(), key.slot(), key.generation());
            self.links.push(LinkWatch { fd, name, frames: None, room: None });
            self.links.len() - 1
        });
        let link = &mut self.links[index];
        if key.kind() == Kind::Room {
            link.room = Some(key);
        } else {
            link.frames = Some(key);
            if is_known {
                return;
            }
        }
        self.set_link_events(index, is_known);
    }

    /// Tells the kernel what a link's socket is watched for.
    fn set_link_events(&mut self, index: usize, is_known: bool) {
        let LinkWatch { fd, name, room, .. } = self.links[index];
        let room = if room.is_some() { libc::EPOLLOUT } else { 0 };
        let events = (libc::EPOLLIN | libc::EPOLLET | room) as u32;
        let what = if is_known { libc::EPOLL_CTL_MOD } else { libc::EPOLL_CTL_ADD };
        if let Err(error) = self.control(what, fd, events, name) {
            let result = -error.raw_os_error().unwrap_or(libc::EIO);
            let link = &mut self.links[index];
            let ended = [link.frames.take(), link.room.take()];
            ended.into_iter().flatten().for_each(|key| self.end(key, result));
            if !is_known {
                self.links.swap_remove(index);
            }
        }
    }

    fn link_event(&mut self, name: Key, events: u32) {
        let Some(index) = self.links.iter().position(|link| link.name == name) else { return };
        let broken = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
        let link = &mut self.links[index];
        let frames = link.frames.take_if(|_| events & (libc::EPOLLIN as u32 | broken) != 0);
        let room = link.room.take_if(|_| events & (libc::EPOLLOUT as u32 | broken) != 0);
        if let Some(key) = frames {
            self.end(key, events as i32);
        }
        if let Some(key) = room {
            self.end(key, events as i32);
            let LinkWatch { fd, ref frames, .. } = self.links[index];
            if name.kind() == Kind::Room && frames.is_none() {
                // It only sends: nobody is to be looked for at each frame that it has sent.
                self.forget(fd);
            } else {
                self.set_link_events(index, true);
            }
        }
    }

    /// One `epoll_pwait2`; where the kernel lacks it, whole milliseconds rounded up.
    fn poll(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.system_calls += 1;
        self.events.clear();
        let (epoll, into) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        let count = if self.coarse || limit.is_none_or(|limit| limit.is_zero()) {
            let millis = match limit {
                None => -1,
                Some(limit) => {
                    i32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
                }
            };
            // SAFETY: room for EVENTS events was reserved.
            unsafe { libc::epoll_wait(epoll, into, EVENTS as i32, millis) }
        } else {
            let limit = limit.unwrap_or_default();
            let time = libc::timespec {
                tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: limit.subsec_nanos().into(),
            };
            // SAFETY: as above; the time lives until the call returns. By number, since not every C
            // library has the function. The last argument is the size of a signal set that is not
            // given.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    epoll,
                    into,
                    EVENTS as i32,
                    &raw const time,
                    std::ptr::null::<libc::sigset_t>(),
                    8usize,
                )
            };
            result as i32
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EINTR) => Ok(()),
                Some(libc::ENOSYS | libc::EPERM) if !self.coarse => {
                    self.coarse = true;
                    self.poll(limit)
                }
                _ => Err(error),
            };
        }
        // SAFETY: the kernel has filled so many.
        unsafe { self.events.set_len(count as usize) };
        self.take_events();
        Ok(())
    }

    fn take_events(&mut self) {
        for index in 0..self.events.len() {
            let event = self.events[index];
            let key = Key(event.u64);
            match key.kind() {
                Kind::Wake => self.end(Key::WAKE, 0),
                Kind::Listener => self.end(key, i32::from(libc::POLLIN)),
                Kind::Frames | Kind::Room => self.link_event(key, event.events),
                _ => self.socket_event(key.slot(), event.events),
            }
        }
    }

    fn socket_event(&mut self, slot: u32, events: u32) {
        let watch = &mut self.watches[slot as usize];
        let broken = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
        let closed = broken | libc::EPOLLRDHUP as u32;
        if events & (libc::EPOLLIN as u32 | closed) != 0 {
            watch.readable = true;
        }
        if events & (libc::EPOLLOUT as u32 | broken) != 0 {
            watch.writable = true;
        }
        if events & closed != 0 {
            watch.over = true;
            if let Some(key) = watch.hangup.take() {
                self.end(key, i32::from(libc::POLLHUP));
            }
        }
        self.try_input(slot);
        self.try_output(slot);
    }
}

impl Engine for Epoll {
    const POLLS_FIRST: bool = true;
    const FILES: bool = false;

    fn attach(&mut self, socket: Socket) -> io::Result<()> {
        let needed = socket.slot as usize + 1;
        if self.watches.len() < needed {
            self.watches.resize_with(needed, Watch::default);
        }
        // A fresh connection can be written to; whether it can be read from, registration tells.
        *self.watch(socket) = Watch { writable: true, ..Watch::default() };
        Ok(())
    }

    fn detach(&mut self, socket: Socket) {
        if self.watch(socket).registered {
            // It can only fail for a descriptor that was closed before, which would be our mistake.
            self.control(libc::EPOLL_CTL_DEL, socket.fd, 0, Key::IGNORED)
                .expect("a registered socket can be removed");
        }
        *self.watch(socket) = Watch::default();
    }

    fn forget(&mut self, fd: RawFd) {
        if let Some(index) = self.links.iter().position(|link| link.fd == fd) {
            self.links.swap_remove(index);
            self.control(libc::EPOLL_CTL_DEL, fd, 0, Key::IGNORED)
                .expect("a socket that is watched can be removed");
        }
    }

    unsafe fn start(&mut self, key: Key, op: Op) {
        match op {
            Op::Acceptable(fd) => self.listen(key, fd),
            Op::Frames(fd) | Op::Room(fd) => self.watch_link(key, fd),
            Op::Connect { .. } => self.connect(key, op),
            Op::Hangup(socket) => {
                if self.register(socket, key) {
                    if self.watch(socket).over {
                        self.end(key, i32::from(libc::POLLHUP));
                    } else {
                        self.watch(socket).hangup = Some(key);
                    }
                }
            }
            Op::Send { socket, .. } => {
                if self.register(socket, key) {
                    self.watch(socket).output = Some((key, op));
                    self.try_output(socket.slot);
                }
            }
            Op::ReceiveLent { .. } => unreachable!("epoll lends nothing (Engine::lends)"),
            Op::Readable(socket)
            | Op::Receive { socket, .. }
            | Op::ReceiveMessage { socket, .. }
            | Op::Discard { socket, .. } => {
                if self.register(socket, key) {
                    self.watch(socket).input = Some((key, op));
                    self.try_input(socket.slot);
                }
            }
        }
    }

    fn cancel(&mut self, key: Key) {
        let found = match key.kind() {
            Kind::Listener => {
                let Some(at) = self.listeners.iter().position(|(other, _)| *other == key) else {
                    return;
                };
                let (_, fd) = self.listeners.swap_remove(at);
                // Its one shot may be spent, which is no error.
                let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, Key::IGNORED);
                true
            }
            Kind::Input | Kind::Output | Kind::Hangup => {
                let watch = &mut self.watches[key.slot() as usize];
                match key.kind() {
                    Kind::Input => watch.input.take().is_some(),
                    Kind::Output => watch.output.take().is_some(),
                    _ => watch.hangup.take().is_some(),
                }
            }
            Kind::Frames | Kind::Room => {
                let is_its = |watch: &&mut Option<Key>| **watch == Some(key);
                let mut watches =
                    self.links.iter_mut().flat_map(|link| [&mut link.frames, &mut link.room]);
                watches.find(is_its).is_some_and(|watch| watch.take().is_some())
            }
            Kind::File | Kind::Wake | Kind::Ignored => false,
        };
        if found {
            self.end(key, -libc::ECANCELED);
        }
    }

    fn submit(&mut self) {}

    fn has_ended(&mut self) -> bool {
        // What fails here fails when it waits, too.
        let failed = self.ended.is_empty() && self.poll(NOW).is_err();
        failed || !self.ended.is_empty()
    }

    fn wait(&mut self, limit: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        if !self.ended.is_empty() && self.rounds < LOCAL_ROUNDS {
            self.rounds += 1;
        } else {
            self.rounds = 0;
            self.poll(if self.ended.is_empty() { limit } else { NOW })?;
        }
        done.extend(self.ended.drain(..));
        Ok(())
    }

    fn system_calls(&self) -> u64 {
        self.system_calls
    }
}

/// A system call's count, or its error number as a negative one.
fn outcome(result: isize) -> i32 {
    if result >= 0 {
        return i32::try_from(result).unwrap_or(i32::MAX);
    }
    -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Bytes that a message's vectors hold.
///
/// # Safety
/// The message's vectors are valid.
unsafe fn total(message: &libc::msghdr) -> i32 {
    // SAFETY: the caller vouches for the vectors.
    let vectors = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
    let sum: usize = vectors.iter().map(|vector| vector.iov_len).sum();
    i32::try_from(sum).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::mailbox::event_descriptor;

    #[test]
    fn a_socket_that_sends_is_watched_only_while_it_has_no_room() {
        let wake = event_descriptor().unwrap();
        let mut epoll = Epoll::new(wake.as_raw_fd()).unwrap();
        let (sender, _other) = UnixDatagram::pair().unwrap();
        let [room, frames] = [Kind::Room, Kind::Frames].map(|kind| Key::new(kind, 3, 1));
        let mut done = Vec::new();
        for _ in 0..2 {
            // SAFETY: a watch points at no memory.
            unsafe { epoll.start(room, Op::Room(sender.as_raw_fd())) };
            assert_eq!(epoll.links.len(), 1);
            epoll.wait(None, &mut done).unwrap();
            assert!(done.drain(..).map(|done| done.key).eq([room]) && epoll.links.is_empty());
        }
        // One that receives as well stays watched for that.
        // SAFETY: as above.
        unsafe {
            epoll.start(frames, Op::Frames(sender.as_raw_fd()));
            epoll.start(room, Op::Room(sender.as_raw_fd()));
        }
        epoll.wait(None, &mut done).unwrap();
        assert!(done.drain(..).map(|done| done.key).eq([room]) && epoll.links.len() == 1);
    }
}
