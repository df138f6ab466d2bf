//! Disk threads: what a ring cannot do, or where there is no ring, is done by a few threads of the
//! process.
//!
//! They start with the first piece of work and live as long as the reactor. In: [`Work`], owned, so
//! nothing is shared. Out: the same, carried out, in the mailbox of the shard that asked. A disk
//! that hangs holds one thread for each request that it does not answer; the others wait behind it,
//! which is the price of doing without a ring.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::disk::Work;
use crate::process::{self, lock};

/// Threads: enough to keep a few disks busy, few enough to stay in the background of two shards.
const THREADS: usize = 4;

/// Where done work goes.
pub(crate) trait Deliver: Send + Sync {
    /// Takes work back, with the number that it was given with.
    fn deliver(&self, number: u64, work: Box<Work>);
}

struct Job {
    number: u64,
    work: Box<Work>,
    to: Arc<dyn Deliver>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    started: usize,
    idle: usize,
    over: bool,
}

/// The disk threads of a reactor.
pub(crate) struct Workers {
    /// Where they may run: a thread inherits the one CPU of the shard that starts it.
    cpus: Vec<usize>,
    queue: Mutex<Queue>,
    work: Condvar,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Workers {
    /// Threads that will run on these CPUs.
    pub(crate) fn new(cpus: Vec<usize>) -> Workers {
        Workers { cpus, queue: Mutex::default(), work: Condvar::new(), threads: Mutex::default() }
    }

    /// Hands work to a thread; it comes back to `to`.
    pub(crate) fn give(self: &Arc<Self>, number: u64, work: Box<Work>, to: Arc<dyn Deliver>) {
        let mut queue = lock(&self.queue);
        queue.jobs.push_back(Job { number, work, to });
        if queue.idle < queue.jobs.len() && queue.started < THREADS {
            let workers = self.clone();
            let name = format!("disk-{}", queue.started);
            match thread::Builder::new().name(name).spawn(move || workers.run()) {
                Ok(handle) => {
                    queue.started += 1;
                    lock(&self.threads).push(handle);
                }
                // The others will do it, more slowly.
                Err(error) => assert!(queue.started > 0, "cannot start a disk thread: {error}"),
            }
        }
        drop(queue);
        self.work.notify_one();
    }

    /// Ends the threads once they have done what was given; waits for them.
    pub(crate) fn stop(&self) {
        lock(&self.queue).over = true;
        self.work.notify_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // A panic of a disk thread has ended the process already.
            let _ = thread.join();
        }
    }

    fn run(&self) {
        let _guard = process::AbortOnPanic;
        // Where this is not permitted, they stay beside the shard, which works too.
        let _ = process::pin(&self.cpus);
        while let Some(mut job) = self.next() {
            job.work.run();
            job.to.deliver(job.number, job.work);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.over {
                return None;
            }
            queue.idle += 1;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}
