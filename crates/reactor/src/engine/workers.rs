//! Disk threads: what a ring cannot do, or where there is no ring, is done by threads of the
//! process.
//!
//! They start with the work that needs them and live as long as the reactor. In: [`Work`], owned,
//! so nothing is shared. Out: the same, carried out, in the mailbox of the shard that asked. Work
//! waits in a lane of its disk. Each disk has threads that are its own, and a few more are shared
//! by all, lane by lane in turn: a disk that hangs keeps those that it has, and what waits for a
//! disk waits for that disk alone. So there are as many threads as are shared and as the disks that
//! were asked have of their own, and no more (`docs/decisions/0010-lanes.md`).
//!
//! Errors: work that is given while no thread runs and none can be started ends with
//! [`Failure::NotReady`]. Where some run, it waits for one of them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use block::Failure;
use contract::DiskId;

use crate::disk::Work;
use crate::process::{self, lock};

/// Threads of each disk's own.
const OWN: usize = 1;
/// The same, of a disk whose calls are never handed to a ring: so many are its depth.
const OWN_OF_SLEEPER: usize = 16;
/// Threads that all disks share: with its own, enough to keep a disk busy, and few enough to stay
/// in the background of two shards.
const SHARED: usize = 3;
/// Bytes of a thread's stack: what is large lies on the heap.
const STACK: usize = 256 << 10;

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

/// What waits for a disk, and how much of it is being done.
struct Lane<J> {
    own: usize,
    waiting: VecDeque<J>,
    running: usize,
}

impl<J> Lane<J> {
    /// How many of its waiting jobs its own threads may begin now.
    fn ready(&self) -> usize {
        self.waiting.len().min(self.own.saturating_sub(self.running))
    }
}

/// Whom a new job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Somebody is on the way, or it has to wait for its disk.
    Nobody,
    Sleeper,
    NewThread,
}

/// Jobs by their disks, and the threads that look for them.
///
/// At any time as many threads are on their way to look (woken, or started) as jobs may begin: a
/// push calls one, and an end lets one job begin at most, which the thread that ended takes.
struct Queue<J> {
    /// By the disks' numbers.
    lanes: Vec<Lane<J>>,
    /// Disks for which something waits, the next to have its turn first.
    turns: VecDeque<DiskId>,
    /// Jobs that run beyond their disks' own threads.
    shared: usize,
    /// Threads that sleep.
    idle: usize,
    /// Threads that were started and have not looked yet.
    starting: usize,
}

impl<J> Queue<J> {
    const fn new() -> Queue<J> {
        Queue { lanes: Vec::new(), turns: VecDeque::new(), shared: 0, idle: 0, starting: 0 }
    }

    /// Adds a job for a disk that has so many threads of its `own`.
    fn push(&mut self, disk: DiskId, own: usize, job: J) -> Call {
        let index = disk.0 as usize;
        if self.lanes.len() <= index {
            let empty = || Lane { own: 0, waiting: VecDeque::new(), running: 0 };
            self.lanes.resize_with(index + 1, empty);
        }
        let lane = &mut self.lanes[index];
        if lane.waiting.is_empty() {
            self.turns.push_back(disk);
            if lane.running == 0 {
                lane.own = own;
            }
        }
        lane.waiting.push_back(job);
        match self.ready() {
            0 => Call::Nobody,
            ready if ready > self.idle + self.starting => Call::NewThread,
            _ if self.idle > 0 => Call::Sleeper,
            _ => Call::Nobody,
        }
    }

    /// How many jobs may begin now.
    fn ready(&self) -> usize {
        let waiting = self.turns.iter().map(|disk| &self.lanes[disk.0 as usize]);
        let (own, rest) = waiting.fold((0, 0), |(own, rest), lane| {
            (own + lane.ready(), rest + lane.waiting.len() - lane.ready())
        });
        own + rest.min(SHARED - self.shared)
    }

    /// The next job that may begin, and its disk, for [`ended`](Self::ended).
    fn begin(&mut self) -> Option<(DiskId, J)> {
        let may_begin =
            |disk: &DiskId| self.shared < SHARED || self.lanes[disk.0 as usize].ready() > 0;
        let turn = self.turns.iter().position(may_begin)?;
        let disk = self.turns.remove(turn)?;
        let lane = &mut self.lanes[disk.0 as usize];
        self.shared += usize::from(lane.ready() == 0);
        let job = lane.waiting.pop_front()?;
        lane.running += 1;
        if !lane.waiting.is_empty() {
            self.turns.push_back(disk);
        }
        Some((disk, job))
    }

    fn ended(&mut self, disk: DiskId) {
        let lane = &mut self.lanes[disk.0 as usize];
        lane.running -= 1;
        self.shared -= usize::from(lane.running >= lane.own);
    }
}

struct State {
    queue: Queue<Job>,
    threads: Vec<thread::JoinHandle<()>>,
    /// Threads that have not ended.
    alive: usize,
    over: bool,
}

/// The disk threads of a reactor.
pub(crate) struct Workers {
    /// Where they may run: a thread inherits the one CPU of the shard that starts it.
    cpus: Vec<usize>,
    stack: usize,
    state: Mutex<State>,
    work: Condvar,
    /// A thread ended.
    ended: Condvar,
}

impl Workers {
    /// Threads that will run on these CPUs.
    pub(crate) fn new(cpus: Vec<usize>) -> Workers {
        let state = State { queue: Queue::new(), threads: Vec::new(), alive: 0, over: false };
        let (state, work, ended) = (Mutex::new(state), Condvar::new(), Condvar::new());
        Workers { cpus, stack: STACK, state, work, ended }
    }

    /// Hands work for a disk to a thread; it comes back to `to`.
    pub(crate) fn give(
        self: &Arc<Self>,
        number: u64,
        disk: DiskId,
        work: Box<Work>,
        to: Arc<dyn Deliver>,
    ) {
        let own = if work.sleeps() { OWN_OF_SLEEPER } else { OWN };
        let mut state = lock(&self.state);
        match state.queue.push(disk, own, Job { number, work, to }) {
            Call::Nobody => {}
            Call::Sleeper => {
                drop(state);
                self.work.notify_one();
            }
            Call::NewThread => {
                let workers = self.clone();
                let name = format!("disk-{}", state.threads.len());
                let builder = thread::Builder::new().name(name).stack_size(self.stack);
                match builder.spawn(move || workers.run()) {
                    Ok(thread) => {
                        state.queue.starting += 1;
                        state.alive += 1;
                        state.threads.push(thread);
                    }
                    // Those there are will do it, more slowly.
                    Err(_) if !state.threads.is_empty() => {}
                    Err(_) => {
                        let (disk, mut job) = state.queue.begin().expect("it was just pushed");
                        state.queue.ended(disk);
                        drop(state);
                        job.work.give_up(Failure::NotReady);
                        job.to.deliver(job.number, job.work);
                    }
                }
            }
        }
    }

    /// Ends the threads once they have done what was given, and waits for them, but not for longer
    /// than `grace`: one whose disk does not answer is left to it, with the memory that it holds.
    pub(crate) fn stop(&self, grace: Duration) {
        let mut state = lock(&self.state);
        state.over = true;
        let threads = std::mem::take(&mut state.threads);
        self.work.notify_all();
        let waited = self.ended.wait_timeout_while(state, grace, |state| state.alive > 0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let all_ended = state.alive == 0;
        drop(state);
        for thread in threads.into_iter().filter(|_| all_ended) {
            // A panic of a disk thread has ended the process already.
            let _ = thread.join();
        }
    }

    fn run(&self) {
        let _guard = process::AbortOnPanic;
        // Where this is not permitted, they stay beside the shard, which works too.
        let _ = process::pin(&self.cpus);
        let mut state = lock(&self.state);
        state.queue.starting -= 1;
        loop {
            if let Some((disk, mut job)) = state.queue.begin() {
                drop(state);
                job.work.run();
                job.to.deliver(job.number, job.work);
                state = lock(&self.state);
                state.queue.ended(disk);
            } else if state.over {
                state.alive -= 1;
                return self.ended.notify_one();
            } else {
                state.queue.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    use block::{Completion, Extent, Operation, Outcome, Request, Ticket};

    use crate::disk::{Disk, OpenSpec, Submitted, Tail};
    use crate::memory::{Arena, ShardMemory};

    const HUNG: DiskId = DiskId(1);
    const OTHERS: [DiskId; 3] = [DiskId(0), DiskId(2), DiskId(3)];

    #[test]
    fn a_disk_that_hangs_at_full_depth_leaves_every_other_disk_its_threads() {
        for own in [OWN, OWN_OF_SLEEPER] {
            let mut queue = Queue::new();
            for job in 0..64 {
                queue.push(HUNG, own, job);
            }
            let begun = std::iter::from_fn(|| queue.begin()).count();
            assert_eq!(begun, own + SHARED, "one disk takes its own and what is shared");
            for disk in OTHERS {
                assert_eq!(queue.push(disk, OWN, 100), Call::NewThread, "{disk:?}");
                queue.starting = 1;
                assert_eq!(queue.push(disk, OWN, 101), Call::Nobody, "it waits for its disk");
                queue.starting = 0;
                assert_eq!(queue.begin(), Some((disk, 100)));
                assert_eq!(queue.begin(), None, "the second waits for the first");
                queue.ended(disk);
                assert_eq!(queue.begin(), Some((disk, 101)));
                queue.ended(disk);
            }
        }
    }

    #[test]
    fn disks_take_turns() {
        let mut queue = Queue::new();
        for job in 0..3 {
            for disk in OTHERS {
                queue.push(disk, OWN, job);
            }
        }
        let order: Vec<_> = std::iter::from_fn(|| {
            let (disk, job) = queue.begin()?;
            queue.ended(disk);
            Some((disk, job))
        })
        .collect();
        let expected = (0..3).flat_map(|job| OTHERS.map(|disk| (disk, job)));
        assert_eq!(order, expected.collect::<Vec<_>>());
    }

    /// Threads as [`Workers::run`] has them, each step of one drawn by chance.
    #[test]
    fn whatever_waits_waits_for_its_own_disk() {
        let mut random = 1u64;
        let mut draw = move |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        for round in 0..2_000 {
            let mut queue = Queue::new();
            // Sleepers that were woken, and jobs that run.
            let (mut woken, mut running) = (0, Vec::new());
            let hung = draw(4);
            let look = |queue: &mut Queue<()>, running: &mut Vec<DiskId>| match queue.begin() {
                Some((disk, ())) => running.push(disk),
                None => queue.idle += 1,
            };
            let ends = |disk: &DiskId| disk.0 as usize >= hung;
            for step in 0.. {
                let pushing = step < 60;
                match draw(if pushing { 4 } else { 3 }) {
                    0 if woken > 0 => {
                        (woken, queue.idle) = (woken - 1, queue.idle - 1);
                        look(&mut queue, &mut running);
                    }
                    1 if queue.starting > 0 => {
                        queue.starting -= 1;
                        look(&mut queue, &mut running);
                    }
                    2 => {
                        let at = draw(running.len().max(1));
                        if running.get(at).is_some_and(ends) {
                            queue.ended(running.swap_remove(at));
                            look(&mut queue, &mut running);
                        }
                    }
                    3 => match queue.push(DiskId(draw(6) as u32), 1 + draw(2), ()) {
                        Call::Nobody => {}
                        Call::Sleeper => woken = queue.idle.min(woken + 1),
                        Call::NewThread => queue.starting += 1,
                    },
                    _ => {}
                }
                let over = !pushing && woken + queue.starting == 0 && !running.iter().any(ends);
                assert!(queue.ready() <= woken + queue.starting, "round {round}, step {step}");
                let beyond = |lane: &Lane<()>| lane.running.saturating_sub(lane.own);
                assert_eq!(queue.shared, queue.lanes.iter().map(beyond).sum::<usize>());
                assert!(queue.shared <= SHARED);
                if over {
                    break;
                }
            }
            assert!(queue.turns.iter().all(|disk| !ends(disk)), "round {round}");
        }
    }

    impl Deliver for Mutex<Sender<Completion>> {
        fn deliver(&self, _: u64, work: Box<Work>) {
            let _ = lock(self).send(work.finish().completion);
        }
    }

    #[test]
    fn work_that_no_thread_can_be_started_for_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let arena = Arc::new(Arena::new(1).unwrap());
        let mut memory = ShardMemory::new(&arena, 64).unwrap();
        let disk =
            Disk::open(&OpenSpec::File { path, create: Some(4096), tail: Tail::Refuse }, &arena)
                .unwrap();
        let mut verify = |workers: &Arc<Workers>| {
            let operation = Operation::Verify { extent: Extent::new(0, 4096) };
            let request = Request { ticket: Ticket::default(), operation };
            let Submitted::Work(work) = disk.submit(&mut memory, || block::Instant::ZERO, request)
            else {
                panic!("a file is asked by work")
            };
            let (to, answers) = channel();
            workers.give(0, DiskId(0), work, Arc::new(Mutex::new(to)));
            answers.recv().unwrap().outcome
        };
        let workers = Arc::new(Workers { stack: isize::MAX as usize / 2, ..Workers::new(vec![]) });
        let not_ready = Outcome::NotDone(Failure::NotReady);
        assert_eq!(verify(&workers), not_ready);
        assert_eq!(verify(&workers), not_ready, "and the next is tried again");
        let workers = Arc::new(Workers::new(process::allowed_cpus()));
        assert_eq!(verify(&workers), Outcome::Done);
        workers.stop(Duration::MAX);
    }
}
