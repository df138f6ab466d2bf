//! One io_uring for one thread: single issuer, deferred task work, registered files.
//!
//! In: receives, polls, accepts. Out: completions as (key, result). Waiting is one system call that
//! also submits; with a spin budget the thread first looks at the flag by which the kernel says
//! that task work waits, without a call. Errors: those of ring set-up and of `io_uring_enter`.

use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

/// Slots for connections.
pub(crate) const SLOTS: u32 = 16 * 1024;

/// A ring and what has completed on it.
pub(crate) struct Ring {
    ring: IoUring,
    spin: Duration,
    /// The alarm of `wait_at_most` is armed, with this time: at an address that stays, since the
    /// kernel reads it when the entry is submitted.
    alarm: bool,
    limit: Box<types::Timespec>,
}

impl Ring {
    /// Sets a ring up; `spin` is how long a wait looks before it sleeps.
    pub(crate) fn new(spin: Duration) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(32 * 1024)
            .build(1024)?;
        ring.submitter().register_files_sparse(SLOTS)?;
        Ok(Self { ring, spin, alarm: false, limit: Box::default() })
    }

    /// Puts a descriptor into a slot of the file table (-1 empties it).
    pub(crate) fn register(&mut self, slot: u32, fd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_files_update(slot, &[fd])?;
        Ok(())
    }

    /// Queues an entry.
    ///
    /// # Safety
    /// What the entry points at stays valid until its completion.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry, key: u64) -> io::Result<()> {
        let entry = entry.user_data(key);
        loop {
            // SAFETY: the caller vouches for the entry.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    /// Queues a receive of at most `len` bytes at `into` from a registered socket.
    ///
    /// # Safety
    /// The memory stays valid and untouched until the completion.
    pub(crate) unsafe fn receive(
        &mut self,
        slot: u32,
        into: *mut u8,
        len: usize,
        key: u64,
    ) -> io::Result<()> {
        let entry = opcode::Recv::new(types::Fixed(slot), into, len as u32).build();
        // SAFETY: passed on to the caller.
        unsafe { self.push(entry, key) }
    }

    /// Queues a receive into two places from a registered socket: the second takes what the first has no
    /// room for.
    ///
    /// # Safety
    /// The list and the memory that it names stay valid and untouched until the completion.
    pub(crate) unsafe fn receive_in_two(
        &mut self,
        slot: u32,
        into: &[libc::iovec; 2],
        key: u64,
    ) -> io::Result<()> {
        let entry = opcode::Readv::new(types::Fixed(slot), into.as_ptr(), 2).build();
        // SAFETY: passed on to the caller.
        unsafe { self.push(entry, key) }
    }

    /// Queues a one-shot poll.
    pub(crate) fn poll(&mut self, slot: u32, events: i16, key: u64) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fixed(slot), events as u32).build();
        // SAFETY: a poll points at no memory.
        unsafe { self.push(entry, key) }
    }

    /// Submits, waits for at least one completion, and moves all there are into `done`.
    pub(crate) fn wait(&mut self, done: &mut Vec<(u64, i32)>) -> io::Result<()> {
        done.clear();
        if !self.spin.is_zero() {
            self.spin()?;
        }
        if self.ring.completion().is_empty() || !self.ring.submission().is_empty() {
            let want = usize::from(self.ring.completion().is_empty());
            match self.ring.submit_and_wait(want) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        done.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        Ok(())
    }

    /// Like [`Ring::wait`], but for `limit` at most; false if nothing has completed. The limit is
    /// a timeout entry that stays armed across calls, so that waiting costs no timer each time: a
    /// wait may end sooner than its own limit, never later than the first one.
    pub(crate) fn wait_at_most(
        &mut self,
        done: &mut Vec<(u64, i32)>,
        alarm: u64,
        limit: Duration,
    ) -> io::Result<bool> {
        if !self.alarm {
            *self.limit = types::Timespec::from(limit);
            let entry = opcode::Timeout::new(&raw const *self.limit).build();
            // SAFETY: the time is boxed, lives as long as the ring, and is written only when no
            // entry that points at it is armed.
            unsafe { self.push(entry, alarm) }?;
            self.alarm = true;
        }
        self.wait(done)?;
        let before = done.len();
        done.retain(|(key, _)| *key != alarm);
        self.alarm = done.len() == before;
        Ok(!done.is_empty())
    }

    /// Submits, then looks for completions until there is one or the budget is spent.
    fn spin(&mut self) -> io::Result<()> {
        if !self.ring.submission().is_empty() {
            self.ring.submit()?;
        }
        let start = Instant::now();
        loop {
            if !self.ring.completion().is_empty() {
                return Ok(());
            }
            if self.ring.submission().taskrun() {
                // `submit` sees the flag and asks for the task work to be run.
                self.ring.submit()?;
                continue;
            }
            if start.elapsed() >= self.spin {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }
}
