//! Mailboxes: how shards and the control thread hand things to a shard.
//!
//! One queue a receiver, first in first out, so the order of each sender is kept. A sender writes
//! to the receiver's event descriptor only when the receiver sleeps or is about to; a receiver that
//! is awake looks at one flag a turn. What does not live here: who answers what.

use std::os::fd::{AsFd, OwnedFd};
#[cfg(not(test))]
use std::sync::atomic::AtomicBool as Flag;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::{io, mem};

use block::ShardId;
use contract::{DiskId, ListenerId, Poll};
use rustix::event::{EventfdFlags, eventfd};

use crate::accept::{Arrival, ListenOptions, Listener};
use crate::disk::{Disk, Work};
use crate::engine::workers::Deliver;
use crate::link::supervisor::{LinkCommand, LinkMailbox};
use crate::process::lock;
#[cfg(test)]
use tests::Flag;

/// What can be in a shard's mailbox.
pub(crate) enum Delivery<M> {
    /// Mail for the machine.
    Mail { from: ShardId, mail: M },
    /// A connection, accepted by shard 0, that lives here from now on.
    Arrival(Arrival),
    /// A listening socket; for shard 0.
    Listen(Listener),
    /// Accept no more there; for shard 0.
    Unlisten(ListenerId, Sender<()>),
    /// A listener grants something else from now on; for shard 0, which says when that is so.
    ChangeListener(ListenerId, ListenOptions, Sender<()>),
    /// Connections of a listener are looked for so from now on. From shard 0, behind the
    /// connections that it dealt out before.
    Poll(ListenerId, Poll),
    /// A connection was closed while descriptors had run out; for shard 0.
    AcceptAgain,
    /// A disk.
    AddDisk(DiskId, Arc<Disk>, Poll),
    /// What comes back from a disk is looked for so from now on.
    PollDisk(DiskId, Poll),
    /// Forget a disk and say when that is done.
    RemoveDisk(DiskId, Sender<()>),
    /// What to do with a link.
    Link(LinkCommand),
    /// A disk thread has done its work; the number is the one it was given with.
    Worked(u64, Box<Work>),
    /// Close everything and end.
    Stop,
}

/// A shard's mailbox.
pub(crate) struct Inbox<M> {
    queue: Mutex<Vec<Delivery<M>>>,
    filled: Flag,
    sleeping: Flag,
    wake: OwnedFd,
}

impl<M> Inbox<M> {
    pub(crate) fn new() -> io::Result<Inbox<M>> {
        Ok(Inbox {
            queue: Mutex::default(),
            filled: Flag::new(false),
            sleeping: Flag::new(false),
            wake: event_descriptor()?,
        })
    }

    /// The descriptor that wakes the receiver.
    pub(crate) fn wake_descriptor(&self) -> &OwnedFd {
        &self.wake
    }

    /// Puts one thing in.
    pub(crate) fn post(&self, delivery: Delivery<M>) {
        lock(&self.queue).push(delivery);
        self.notify();
    }

    /// Puts many in, and empties `deliveries`.
    pub(crate) fn post_all(&self, deliveries: &mut Vec<Delivery<M>>) {
        lock(&self.queue).append(deliveries);
        self.notify();
    }

    /// Wakes the receiver, for whom there is nothing new.
    pub(crate) fn nudge(&self) {
        self.notify();
    }

    /// Takes everything out, into `into`, which must be empty.
    #[inline]
    pub(crate) fn take(&self, into: &mut Vec<Delivery<M>>) {
        debug_assert!(into.is_empty(), "mail would change its order");
        if self.filled.load(SeqCst) && self.filled.swap(false, SeqCst) {
            mem::swap(&mut *lock(&self.queue), into);
        }
    }

    /// Whether there is something in it.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(SeqCst)
    }

    /// Says that the receiver is about to sleep; `false`: there is something for it, it must not.
    ///
    /// Both sides first write their flag and then read the other's, in one total order: either the
    /// receiver sees that it was filled, or the sender sees that it sleeps.
    #[inline]
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        if self.filled.load(SeqCst) {
            self.sleeping.store(false, SeqCst);
            return false;
        }
        true
    }

    /// Says that the receiver is awake.
    #[inline]
    pub(crate) fn wake_up(&self) {
        self.sleeping.store(false, SeqCst);
    }

    /// Whether the receiver sleeps, or is about to.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.sleeping.load(SeqCst)
    }

    fn notify(&self) {
        self.filled.store(true, SeqCst);
        if self.sleeping.load(SeqCst) && self.sleeping.swap(false, SeqCst) {
            ring(&self.wake);
        }
    }
}

impl<M: Send> Deliver for Inbox<M> {
    fn deliver(&self, number: u64, work: Box<Work>) {
        self.post(Delivery::Worked(number, work));
    }
}

impl<M: Send> LinkMailbox for Inbox<M> {
    fn command(&self, command: LinkCommand) {
        self.post(Delivery::Link(command));
    }
}

/// Wakes whoever waits for an event descriptor.
pub(crate) fn ring(fd: impl AsFd) {
    // It can only fail when the counter is full, and then the receiver has been woken already.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// A descriptor that [`ring`] makes ready.
pub(crate) fn event_descriptor() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn mail(number: u32) -> Delivery<u32> {
        Delivery::Mail { from: ShardId(0), mail: number }
    }

    fn numbers(deliveries: &mut Vec<Delivery<u32>>) -> Vec<u32> {
        deliveries
            .drain(..)
            .map(|delivery| match delivery {
                Delivery::Mail { mail, .. } => mail,
                _ => panic!("only mail was sent"),
            })
            .collect()
    }

    #[test]
    fn mail_keeps_its_order() {
        let inbox = Inbox::new().unwrap();
        inbox.post(mail(1));
        inbox.post_all(&mut vec![mail(2), mail(3)]);
        let mut taken = Vec::new();
        inbox.take(&mut taken);
        assert_eq!(numbers(&mut taken), [1, 2, 3]);
        inbox.take(&mut taken);
        assert!(taken.is_empty());
    }

    #[test]
    fn a_filled_mailbox_keeps_its_receiver_awake() {
        let inbox = Inbox::new().unwrap();
        inbox.post(mail(1));
        assert!(!inbox.fall_asleep());
        inbox.take(&mut Vec::new());
        assert!(inbox.fall_asleep());
    }

    /// A flag before each use of which something else may happen, as if on another thread.
    pub(super) struct Flag(AtomicBool);

    type Interruption = (u32, Box<dyn FnOnce()>);

    thread_local! {
        /// What is to happen before which use of a flag from now on.
        static NEXT: RefCell<Option<Interruption>> = const { RefCell::new(None) };
    }

    fn interrupt() {
        let due = NEXT.with_borrow_mut(|next| match next {
            Some((0, _)) => next.take(),
            Some((uses, _)) => {
                *uses -= 1;
                None
            }
            None => None,
        });
        if let Some((_, happen)) = due {
            happen();
        }
    }

    impl Flag {
        pub(super) fn new(value: bool) -> Flag {
            Flag(AtomicBool::new(value))
        }

        pub(super) fn load(&self, order: Ordering) -> bool {
            interrupt();
            self.0.load(order)
        }

        pub(super) fn store(&self, value: bool, order: Ordering) {
            interrupt();
            self.0.store(value, order);
        }

        pub(super) fn swap(&self, value: bool, order: Ordering) -> bool {
            interrupt();
            self.0.swap(value, order)
        }
    }

    /// Whatever step of one side the other comes between, and behind the last one.
    fn no_mail_is_slept_over(first: fn(&Inbox<u32>) -> bool, second: fn(&Inbox<u32>) -> bool) {
        for uses in 0.. {
            let inbox = Arc::new(Inbox::new().unwrap());
            let sleeps = Arc::new(AtomicBool::new(false));
            let (other, told) = (inbox.clone(), sleeps.clone());
            let happen = move || told.store(second(&other), SeqCst);
            NEXT.set(Some((uses, Box::new(happen))));
            let first_sleeps = first(&inbox);
            let rest = NEXT.take();
            let is_last = rest.is_some();
            if let Some((_, happen)) = rest {
                happen();
            }
            let woken = rustix::io::read(inbox.wake_descriptor(), &mut [0u8; 8]).is_ok();
            assert!(woken || !(first_sleeps || sleeps.load(SeqCst)), "before use {uses} of a flag");
            if is_last {
                break;
            }
        }
    }

    #[test]
    fn mail_that_meets_a_receiver_falling_asleep_keeps_it_awake_or_wakes_it() {
        let post = |inbox: &Inbox<u32>| {
            inbox.post(mail(1));
            false
        };
        no_mail_is_slept_over(Inbox::fall_asleep, post);
        no_mail_is_slept_over(post, Inbox::fall_asleep);
    }

    #[test]
    fn only_a_sleeper_is_woken() {
        let inbox = Inbox::new().unwrap();
        let mut count = [0u8; 8];
        let fd = inbox.wake_descriptor();
        inbox.post(mail(1));
        assert!(rustix::io::read(fd, &mut count).is_err(), "nobody slept");
        inbox.take(&mut Vec::new());
        assert!(inbox.fall_asleep());
        inbox.post(mail(2));
        inbox.post(mail(3));
        assert_eq!(rustix::io::read(fd, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 1, "one write wakes once");
    }
}
