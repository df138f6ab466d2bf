//! The io_uring engine: one ring for one thread, single issuer, deferred task work, registered ring
//! descriptor and socket table.
//!
//! A turn costs one `io_uring_enter`, which submits what was started and waits. Whether something
//! has ended shows without a call: in the completion queue, or by the flag that says that task work
//! waits. Moments that are due wake the thread by one timeout that stays in the ring: a limit to
//! each wait would have the kernel set a timer up and take it down again in every turn. Sockets are
//! blocking ones: for a non-blocking one the kernel would answer EAGAIN instead of waiting. Errors:
//! those of the ring's set-up; later ones end the shard.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::lending::{COUNT, GROUP, Lending};
use super::{Done, Engine, Key, Kind, LENT_MAX, Lent, NOW, Op, Socket};
use crate::disk::Call;

/// Entries of the submission queue: a turn that starts more enters the kernel in between.
const ENTRIES: u32 = 1024;
/// Entries of the completion queue; when it runs over, the kernel keeps what does not fit.
const COMPLETIONS: u32 = 8192;
/// Sockets in the ring's own table; those beyond go by their descriptors.
const TABLE: u32 = 8192;

/// The timeout's name.
const ALARM: Key = Key(1);
/// IORING_RECVSEND_POLL_FIRST: wait for readiness before the first try.
const POLL_FIRST: u16 = 1;

/// A ring, its socket table and what it lends.
///
/// Fields are dropped in order: the ring before what it lends.
pub(crate) struct Uring {
    ring: IoUring,
    /// None where the kernel refuses it: quiet connections are watched then, and receive when
    /// something has come.
    lending: Option<Lending>,
    table: u32,
    wake: RawFd,
    /// Ended, and not told yet: what was taken out of a full completion queue.
    early: Vec<Done>,
    /// A send has been tried since the ring was last entered.
    tried: bool,
    /// When the timeout that is in the ring ends.
    alarm: Option<Instant>,
    /// How long it is to last, where the kernel finds it.
    alarm_time: Box<types::Timespec>,
    system_calls: u64,
}

impl Uring {
    /// Sets a ring up for the calling thread; `wake` is the shard's event descriptor and outlives
    /// it.
    pub(crate) fn new(wake: RawFd) -> io::Result<Uring> {
        Uring::lending(wake, COUNT)
    }

    /// The same with so many buffers to lend; 0: none, as where the kernel refuses it.
    fn lending(wake: RawFd, count: u16) -> io::Result<Uring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .dontfork()
            .build(ENTRIES)?;
        let lending = if count > 0 { Lending::register(&ring, count).ok() } else { None };
        let mut engine = Uring {
            ring,
            lending,
            table: 0,
            wake,
            early: Vec::new(),
            tried: false,
            alarm: None,
            alarm_time: Box::default(),
            system_calls: 4,
        };
        // The table may hold as many as the process may open; without it, descriptors are used.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let table = limit.map_or(TABLE, |limit| TABLE.min(u32::try_from(limit).unwrap_or(TABLE)));
        if engine.ring.submitter().register_files_sparse(table).is_ok() {
            engine.table = table;
        }
        // Saves a look-up per call; a kernel that refuses it works as well.
        let _ = engine.ring.submitter().register_ring_fd();
        engine.watch_wake();
        Ok(engine)
    }

    /// A multishot poll: an event descriptor that is never read tells each write to it once.
    fn watch_wake(&mut self) {
        let entry = opcode::PollAdd::new(types::Fd(self.wake), libc::POLLIN as u32).multi(true);
        // SAFETY: a poll points at no memory.
        unsafe { self.push(entry.build().user_data(Key::WAKE.0)) };
    }

    /// # Safety
    /// As for [`Engine::start`].
    unsafe fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: the caller vouches for what the entry points at.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.submit();
            if self.ring.submission().is_full() {
                // The kernel takes no more before completions are read.
                let mut early = std::mem::take(&mut self.early);
                self.reap(&mut early);
                self.early = early;
            }
        }
    }

    /// Moves all completions there are to `done`.
    fn reap(&mut self, done: &mut Vec<Done>) {
        let mut wake_ended = false;
        for entry in self.ring.completion() {
            let key = Key(entry.user_data());
            match key.kind() {
                Kind::Ignored => {
                    if key == ALARM {
                        self.alarm = None;
                    }
                    continue;
                }
                Kind::Wake => wake_ended |= !cqueue::more(entry.flags()),
                _ => {}
            }
            let lent = cqueue::buffer_select(entry.flags()).map(Lent);
            done.push(Done { key, result: entry.result(), lent });
        }
        if wake_ended {
            self.watch_wake();
        }
    }

    /// An entry for a socket, addressed by its slot in the table where it has one.
    #[inline]
    fn on(&self, socket: Socket, entry: impl FnOnce(types::Fd) -> squeue::Entry) -> squeue::Entry {
        if socket.slot < self.table {
            entry(types::Fd(socket.slot as RawFd)).flags(squeue::Flags::FIXED_FILE)
        } else {
            entry(types::Fd(socket.fd))
        }
    }

    fn entry(&self, op: Op) -> squeue::Entry {
        match op {
            Op::Readable(socket) => {
                let events = (libc::POLLIN | libc::POLLRDHUP) as u32;
                self.on(socket, |fd| opcode::PollAdd::new(fd, events).build())
            }
            Op::Hangup(socket) => {
                self.on(socket, |fd| opcode::PollAdd::new(fd, libc::POLLRDHUP as u32).build())
            }
            Op::Receive { socket, into, length, drained } => {
                let first = if drained { POLL_FIRST } else { 0 };
                self.on(socket, |fd| opcode::Recv::new(fd, into, length).ioprio(first).build())
            }
            Op::ReceiveLent { socket, length, drained } => {
                let first = if drained { POLL_FIRST } else { 0 };
                let (into, length) = (std::ptr::null_mut(), length.min(LENT_MAX));
                let entry = self.on(socket, |fd| {
                    opcode::Recv::new(fd, into, length).ioprio(first).buf_group(GROUP).build()
                });
                entry.flags(squeue::Flags::BUFFER_SELECT)
            }
            Op::ReceiveMessage { socket, message, whole } => {
                // The kernel goes on by itself until all is there, instead of waking us for every
                // piece.
                let wait = if whole { libc::MSG_WAITALL as u32 } else { 0 };
                self.on(socket, |fd| opcode::RecvMsg::new(fd, message).flags(wait).build())
            }
            Op::Discard { socket, length } => self.on(socket, |fd| {
                opcode::Recv::new(fd, std::ptr::null_mut(), length).flags(libc::MSG_TRUNC).build()
            }),
            Op::Send { socket, message } => {
                let quiet = libc::MSG_NOSIGNAL as u32;
                self.on(socket, |fd| opcode::SendMsg::new(fd, message).flags(quiet).build())
            }
            Op::Connect { socket, address, length } => {
                self.on(socket, |fd| opcode::Connect::new(fd, address, length).build())
            }
            Op::Acceptable(fd) | Op::Frames(fd) => {
                opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build()
            }
            Op::Room(fd) => opcode::PollAdd::new(types::Fd(fd), libc::POLLOUT as u32).build(),
        }
    }

    /// Has the timeout in the ring end no later than `limit` from now. An earlier end is only an
    /// idle turn, but one that is near is a wake-up for nothing: it is put off, which costs less. Who
    /// comes again and again does that twice a limit at most.
    fn set_alarm(&mut self, limit: Option<Duration>) {
        let entry = match (limit, self.alarm) {
            (None, None) => return,
            (None, Some(_)) => {
                opcode::TimeoutRemove::new(ALARM.0).build().user_data(Key::IGNORED.0)
            }
            (Some(limit), set) => {
                let now = Instant::now();
                let until = now + limit;
                if set.is_some_and(|set| is_kept(set, now, limit)) {
                    return;
                }
                *self.alarm_time =
                    types::Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos());
                self.alarm = Some(until);
                let time = &raw const *self.alarm_time;
                match set {
                    None => opcode::Timeout::new(time).build().user_data(ALARM.0),
                    // If it has just ended, this comes to nothing, and its end is told. That it has
                    // been put off is not: it would end the wait.
                    Some(_) => opcode::TimeoutUpdate::new(ALARM.0, time)
                        .build()
                        .user_data(Key::IGNORED.0)
                        .flags(squeue::Flags::SKIP_SUCCESS),
                }
            }
        };
        // SAFETY: the kernel reads the time when the entry is submitted, by the call that follows;
        // the engine keeps it until then.
        unsafe { self.push(entry) };
    }

    fn enter(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let waits = limit != NOW;
        if waits {
            self.set_alarm(limit);
        }
        self.system_calls += 1;
        self.tried = false;
        let submitter = self.ring.submitter();
        let result = if waits { submitter.submit_and_wait(1) } else { submitter.submit() };
        match result {
            Ok(_) => Ok(()),
            // A signal came, or the completion queue is full and wants to be read first.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Engine for Uring {
    const POLLS_FIRST: bool = false;
    const FILES: bool = true;

    fn attach(&mut self, socket: Socket) -> io::Result<()> {
        if socket.slot < self.table {
            self.system_calls += 1;
            self.ring.submitter().register_files_update(socket.slot, &[socket.fd])?;
        }
        Ok(())
    }

    fn detach(&mut self, socket: Socket) {
        if socket.slot < self.table {
            self.system_calls += 1;
            self.ring
                .submitter()
                .register_files_update(socket.slot, &[-1])
                .expect("a slot of the socket table can be emptied");
        }
    }

    unsafe fn start(&mut self, key: Key, op: Op) {
        let entry = self.entry(op).user_data(key.0);
        // SAFETY: passed on to the caller.
        unsafe { self.push(entry) };
    }

    unsafe fn start_file(&mut self, key: Key, file: BorrowedFd<'_>, call: Call<'_>) {
        let fd = types::Fd(file.as_raw_fd());
        let entry = match call {
            Call::Read { offset, iovecs } => {
                opcode::Readv::new(fd, iovecs.as_ptr(), iovecs.len() as u32).offset(offset).build()
            }
            Call::Write { offset, iovecs, durable } => {
                let entry = opcode::Writev::new(fd, iovecs.as_ptr(), iovecs.len() as u32);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                entry.offset(offset).rw_flags(flags).build()
            }
            Call::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Call::Allocate { mode, offset, length } => {
                let entry = opcode::Fallocate::new(fd, length);
                entry.offset(offset).mode(mode.bits() as i32).build()
            }
            Call::Blocking | Call::Finished => unreachable!("{call:?} is no call"),
        };
        // SAFETY: passed on to the caller.
        unsafe { self.push(entry.user_data(key.0)) };
    }

    fn set_file_workers(&mut self, count: u32) {
        self.system_calls += 1;
        // Workers for files are the first of the two kinds; 0 leaves the other one as it is. A
        // kernel before 5.15 has few: a disk that hangs may then delay the calls of another one.
        let _ = self.ring.submitter().register_iowq_max_workers(&mut [count, 0]);
    }

    #[inline]
    fn lends(&self) -> bool {
        self.lending.is_some()
    }

    #[inline]
    fn lent(&self, lent: Lent, length: u32) -> &[u8] {
        self.lending.as_ref().expect("it has lent").bytes(lent, length)
    }

    #[inline]
    fn take_back(&mut self, lent: Lent) {
        self.lending.as_mut().expect("it has lent").take_back(lent);
    }

    unsafe fn send_now(&mut self, socket: Socket, message: *const libc::msghdr) -> Option<i32> {
        if std::mem::replace(&mut self.tried, true) {
            return None;
        }
        self.system_calls += 1;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the caller vouches for the message and its vectors.
        let result = unsafe { libc::sendmsg(socket.fd, message, flags) };
        (result > 0).then(|| i32::try_from(result).unwrap_or(i32::MAX))
    }

    fn cancel(&mut self, key: Key) {
        let entry = opcode::AsyncCancel::new(key.0).build().user_data(Key::IGNORED.0);
        // SAFETY: a cancellation points at no memory.
        unsafe { self.push(entry) };
    }

    fn submit(&mut self) {
        if self.ring.submission().is_empty() {
            return;
        }
        if let Err(error) = self.enter(NOW) {
            // Nothing that was started can be taken back: its memory is lent to the kernel.
            panic!("io_uring_enter failed: {error}");
        }
    }

    #[inline]
    fn has_ended(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().taskrun()
    }

    fn wait(&mut self, limit: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        done.append(&mut self.early);
        let only_look = limit == NOW || !done.is_empty();
        let nothing = self.ring.completion().is_empty();
        let unsubmitted = !self.ring.submission().is_empty();
        if nothing && !only_look {
            self.enter(limit)?;
        } else if unsubmitted || self.ring.submission().taskrun() {
            self.enter(NOW)?;
        }
        self.reap(done);
        Ok(())
    }

    fn system_calls(&self) -> u64 {
        self.system_calls
    }
}

/// Whether an alarm that is set serves a wait of at most `limit`: it ends in time, and not soon.
#[inline]
fn is_kept(set: Instant, now: Instant, limit: Duration) -> bool {
    set <= now + limit && set >= now + limit / 2
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    /// An engine that lends so many buffers, and what wakes it; none where there is no io_uring.
    fn engine(count: u16) -> Option<(Uring, OwnedFd)> {
        if let Err(why) = super::super::choice::probe() {
            eprintln!("skipped: {why}");
            return None;
        }
        let flags = rustix::event::EventfdFlags::empty();
        let wake = rustix::event::eventfd(0, flags).unwrap();
        Some((Uring::lending(wake.as_raw_fd(), count).unwrap(), wake))
    }

    /// Starts a lent receive on a slot.
    fn receive(engine: &mut Uring, slot: u32, stream: &UnixStream, length: u32) {
        let socket = Socket { slot, fd: stream.as_raw_fd() };
        let op = Op::ReceiveLent { socket, length, drained: false };
        // SAFETY: its memory is the engine's own.
        unsafe { engine.start(Key::new(Kind::Input, slot, 0), op) };
    }

    /// Ends of so many operations, by slot.
    fn ends(engine: &mut Uring, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        while done.len() < count {
            engine.wait(None, &mut done).unwrap();
        }
        done.sort_by_key(|done| done.key.slot());
        done
    }

    #[test]
    fn a_receive_is_lent_its_buffer_and_fails_where_none_is_left() {
        let Some((mut engine, _wake)) = engine(2) else { return };
        let mut pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        for (slot, (ours, _)) in (0..).zip(&pairs) {
            engine.attach(Socket { slot, fd: ours.as_raw_fd() }).unwrap();
            receive(&mut engine, slot, ours, u32::MAX);
        }
        engine.submit();
        assert!(!engine.has_ended(), "they wait for something to come");
        for (slot, (_, theirs)) in (0..).zip(&mut pairs) {
            theirs.write_all(&[slot; 5]).unwrap();
        }
        let done = ends(&mut engine, 3);
        let lent: Vec<_> = done.iter().filter_map(|done| done.lent).collect();
        assert_eq!(lent.len(), 2, "{done:?}");
        let refused = done.iter().find(|done| done.lent.is_none()).unwrap();
        assert_eq!(refused.result, -libc::ENOBUFS);
        for done in done.iter().filter(|done| done.lent.is_some()) {
            assert_eq!(done.result, 5);
            assert_eq!(engine.lent(done.lent.unwrap(), 5), [done.key.slot() as u8; 5]);
        }
        // With one given back the third has what waited for it all the time.
        engine.take_back(lent[1]);
        let slot = refused.key.slot();
        receive(&mut engine, slot, &pairs[slot as usize].0, u32::MAX);
        let again = ends(&mut engine, 1)[0];
        assert_eq!((again.result, again.lent), (5, Some(lent[1])));
        assert_eq!(engine.lent(lent[1], 5), [slot as u8; 5]);
    }

    #[test]
    fn a_lent_buffer_holds_no_more_than_was_asked_for() {
        let Some((mut engine, _wake)) = engine(2) else { return };
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        engine.attach(Socket { slot: 0, fd: ours.as_raw_fd() }).unwrap();
        theirs.write_all(&[7; 5000]).unwrap();
        for (asked, got) in [(u32::MAX, LENT_MAX), (100, 100), (1, 1), (u32::MAX, LENT_MAX)] {
            receive(&mut engine, 0, &ours, asked);
            let done = ends(&mut engine, 1)[0];
            assert_eq!(done.result, got as i32);
            engine.take_back(done.lent.unwrap());
        }
        drop(theirs);
        receive(&mut engine, 0, &ours, u32::MAX);
        assert_eq!(ends(&mut engine, 1)[0].result, 5000 - 2 * LENT_MAX as i32 - 101);
    }

    #[test]
    fn a_cancelled_receive_takes_no_buffer() {
        let Some((mut engine, _wake)) = engine(1) else { return };
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        engine.attach(Socket { slot: 0, fd: ours.as_raw_fd() }).unwrap();
        receive(&mut engine, 0, &ours, u32::MAX);
        engine.cancel(Key::new(Kind::Input, 0, 0));
        let done = ends(&mut engine, 1)[0];
        assert_eq!((done.result, done.lent), (-libc::ECANCELED, None));
        theirs.write_all(b"x").unwrap();
        receive(&mut engine, 0, &ours, u32::MAX);
        assert_eq!(ends(&mut engine, 1)[0].result, 1);
    }

    #[test]
    fn an_alarm_is_kept_that_ends_in_time_and_not_soon() {
        let now = Instant::now();
        assert!(is_kept(now + LONG, now, LONG) && is_kept(now + LONG / 2, now, LONG));
        assert!(!is_kept(now + LONG, now, LONG / 2), "too late");
        assert!(!is_kept(now + LONG / 3, now, LONG), "a wake-up for nothing");
    }

    #[test]
    fn an_alarm_that_is_put_off_ends_no_wait() {
        let Some((mut engine, _wake)) = engine(0) else { return };
        for limit in [LONG, LONG * 3, LONG] {
            engine.set_alarm(Some(limit));
            let left = engine.alarm.unwrap().duration_since(Instant::now());
            assert!(left <= limit && left > limit / 2, "{left:?} of {limit:?}");
            engine.submit();
            assert!(!engine.has_ended(), "{limit:?}");
        }
    }
}
