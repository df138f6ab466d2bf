//! The shards as the control thread sees them: orders to all of them, each answered by all before
//! the next; accesses to volumes; and news.
//!
//! A thread of its own takes the mail: answers go to the control thread, news are told at once,
//! whatever the control thread is doing; what is to be stored goes to a third one, so that neither
//! waits for a disk. All sleep while nothing happens. Errors: an order that is not answered in time
//! names the order and the shard.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::{Extent, Outcome, ShardId, VolumeId};
use reactor::{Handle, ShardStats};
use shard::{Answer, InternalClient, Mail, News, Order, Report};

use super::access::{Access, Ended, Request};
use super::error::RunError;
use super::event_log::EventLog;
use super::store::{Job, Store};

/// How long an order may take that waits for nothing below: long, since a machine may be loaded,
/// and yet an end.
pub(super) const ORDER_LIMIT: Duration = Duration::from_secs(60);
/// How long an access may take: as long as a disk may take before it is stuck, and some more.
pub(super) const ACCESS_LIMIT: Duration = Duration::from_secs(90);

/// Who is called when a remote disk changed, in the thread of the mail.
type Listener = Arc<Mutex<Option<Box<dyn Fn() + Send>>>>;

/// Rung when something came of what was begun and is not waited for.
#[derive(Clone, Default)]
pub(super) struct Bell {
    listener: Listener,
    rung: Arc<(Mutex<bool>, Condvar)>,
}

impl Bell {
    pub(super) fn ring(&self) {
        *lock(&self.rung.0) = true;
        self.rung.1.notify_all();
        lock(&self.listener).as_ref().inspect(|call| call());
    }

    /// Waits until it was rung, or for so long.
    pub(super) fn wait(&self, limit: Duration) {
        let (rung, change) = &*self.rung;
        let waited = change.wait_timeout_while(lock(rung), limit, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// Answers to orders for which nobody waits, by the order's number and then by the shard.
type Answers = Arc<Mutex<BTreeMap<u64, Vec<Option<Answer>>>>>;

/// An order that was begun. Dropped, its answers are of no interest any more.
#[derive(Debug)]
pub(super) struct Pending {
    number: u64,
    pending: Answers,
}

impl Pending {
    /// To which nobody ever answers.
    #[cfg(test)]
    pub(super) fn unanswered() -> Pending {
        Pending { number: 0, pending: Arc::new(Mutex::new(BTreeMap::from([(0, vec![None])]))) }
    }

    /// Whether all shards have answered.
    pub(super) fn is_answered(&self) -> bool {
        lock(&self.pending)[&self.number].iter().all(Option::is_some)
    }

    /// What they answered.
    pub(super) fn answers(&self) -> Vec<Answer> {
        let mut pending = lock(&self.pending);
        pending.get_mut(&self.number).into_iter().flatten().filter_map(Option::take).collect()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        lock(&self.pending).remove(&self.number);
    }
}

/// The way to the shards.
pub(super) struct Shards {
    handle: Option<Arc<Handle<Mail>>>,
    answers: Receiver<(ShardId, u64, Answer)>,
    number: AtomicU64,
    event_log: Arc<Mutex<EventLog>>,
    bell: Bell,
    pending: Answers,
    stopping: Arc<AtomicBool>,
    mail_thread: Option<JoinHandle<()>>,
    store: Store,
    /// So many orders reach all shards; the one after them fails when the first has carried it out.
    #[cfg(test)]
    pub(super) orders_left: std::cell::Cell<Option<u32>>,
}

impl Shards {
    /// Takes over a reactor that runs.
    pub(super) fn new(handle: Handle<Mail>) -> std::io::Result<Shards> {
        let handle = Arc::new(handle);
        let event_log = Arc::new(Mutex::new(EventLog::default()));
        let stopping = Arc::new(AtomicBool::new(false));
        let bell = Bell::default();
        let pending: Answers = Arc::default();
        let (to_control, answers) = mpsc::channel();
        let (store, jobs) = Store::start(handle.clone())?;
        let mail_thread = {
            let (handle, event_log, stopping) =
                (handle.clone(), event_log.clone(), stopping.clone());
            let (bell, pending) = (bell.clone(), pending.clone());
            std::thread::Builder::new().name("mail".to_owned()).spawn(move || {
                while !stopping.load(Relaxed) {
                    let due = lock(&event_log).due();
                    let pause = due.map_or(Duration::from_secs(86_400), |due| {
                        due.saturating_duration_since(Instant::now())
                    });
                    let mail = handle.receive_mail(pause);
                    if due.is_some() {
                        lock(&event_log).tell_left_out();
                    }
                    match mail {
                        Some((from, Mail::Answer { number, answer })) => {
                            if let Some(answers) = lock(&pending).get_mut(&number) {
                                answers[from.index()] = Some(*answer);
                                if answers.iter().all(Option::is_some) {
                                    bell.ring();
                                }
                                continue;
                            }
                            let _ = to_control.send((from, number, *answer));
                        }
                        Some((from, Mail::News(news))) => {
                            if let News::Store { key, version, value } = *news {
                                let _ = jobs.send(Job { from, key, version, value });
                                continue;
                            }
                            let mut event_log = lock(&event_log);
                            event_log.tell(from, &news);
                            let follows = match *news {
                                News::DiskChanged(disk, facts) => {
                                    event_log.note_remote(disk, from, facts);
                                    true
                                }
                                News::DiskProtected(..) => true,
                                _ => false,
                            };
                            drop(event_log);
                            if follows {
                                bell.ring();
                            }
                        }
                        // What shards write to each other is not for us.
                        Some(_) | None => {}
                    }
                }
            })?
        };
        let number = AtomicU64::new(0);
        let (handle, mail_thread) = (Some(handle), Some(mail_thread));
        Ok(Shards {
            handle,
            answers,
            number,
            event_log,
            bell,
            pending,
            stopping,
            mail_thread,
            store,
            #[cfg(test)]
            orders_left: std::cell::Cell::default(),
        })
    }

    /// The reactor.
    pub(super) fn handle(&self) -> &Handle<Mail> {
        self.handle.as_deref().expect("it is taken only at the end")
    }

    /// Where values of exports are stored.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// What is known of disks from news, and their names.
    pub(super) fn event_log(&self) -> MutexGuard<'_, EventLog> {
        lock(&self.event_log)
    }

    /// Has `call` called, in another thread, whenever a remote disk changed.
    pub(super) fn when_a_disk_changes(&self, call: impl Fn() + Send + 'static) {
        *lock(&self.bell.listener) = Some(Box::new(call));
    }

    /// What is rung when an order that was begun is answered.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Sends an order to every shard and waits for every answer, in the order of the shards. A
    /// refusal is an error.
    pub(super) fn order(
        &self,
        what: &str,
        limit: Duration,
        order: impl Fn() -> Order,
    ) -> Result<Vec<Answer>, RunError> {
        self.order_with(what, limit, limit, || {}, order)
    }

    /// The same; `waits` is called once, where not all have answered after `patience`.
    pub(super) fn order_with(
        &self,
        what: &str,
        limit: Duration,
        patience: Duration,
        waits: impl FnOnce(),
        order: impl Fn() -> Order,
    ) -> Result<Vec<Answer>, RunError> {
        let number = self.number.fetch_add(1, Relaxed);
        #[cfg(test)]
        if let Some(left) = self.orders_left.get() {
            self.orders_left.set(left.checked_sub(1));
            if left == 0 {
                let mail = Mail::Order { number, order: Box::new(order()) };
                self.handle().send(ShardId(0), mail);
                while self.answers.recv().is_ok_and(|(_, of, _)| of != number) {}
                return Err(RunError::new(format!("{what}: a shard was made not to answer")));
            }
        }
        let count = self.handle().shards();
        for shard in (0..count).map(ShardId) {
            self.handle().send(shard, Mail::Order { number, order: Box::new(order()) });
        }
        let until = Instant::now() + limit;
        let mut waits = (patience < limit).then_some((Instant::now() + patience, waits));
        let mut answers: Vec<Option<Answer>> = (0..count).map(|_| None).collect();
        while answers.iter().any(Option::is_none) {
            let next = waits.as_ref().map_or(until, |(at, _)| *at);
            match self.answers.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok((from, of, answer)) if of == number => answers[from.index()] = Some(answer),
                // Of an order that was given up before.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if waits.is_some() => {
                    let (_, waits) = waits.take().expect("as was seen");
                    waits();
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let silent = (0..).zip(&answers).filter(|(_, answer)| answer.is_none());
                    let silent: Vec<String> =
                        silent.map(|(shard, _): (u16, _)| shard.to_string()).collect();
                    return Err(RunError::new(format!(
                        "{what}: no answer within {} s of shard {}",
                        limit.as_secs(),
                        silent.join(", ")
                    )));
                }
            }
        }
        let answers = answers.into_iter().flatten().map(|answer| match answer {
            Answer::Refused(why) => Err(RunError::new(format!("{what}: {why}"))),
            answer => Ok(answer),
        });
        answers.collect()
    }

    /// Sends an order to every shard and waits for none: whoever listens for disks that change is
    /// called when all have answered.
    pub(super) fn begin_order(&self, order: impl Fn() -> Order) -> Pending {
        let number = self.number.fetch_add(1, Relaxed);
        let count = self.handle().shards();
        lock(&self.pending).insert(number, (0..count).map(|_| None).collect());
        for shard in (0..count).map(ShardId) {
            self.handle().send(shard, Mail::Order { number, order: Box::new(order()) });
        }
        Pending { number, pending: self.pending.clone() }
    }

    /// How things are on each shard.
    pub(super) fn reports(&self) -> Result<Vec<Report>, RunError> {
        let answers = self.order("report", ORDER_LIMIT, || Order::Report)?;
        let reports = answers.into_iter().filter_map(|answer| match answer {
            Answer::Report(report) => Some(*report),
            _ => None,
        });
        Ok(reports.collect())
    }

    /// Bytes of a volume.
    pub(super) fn read(&self, volume: VolumeId, extent: Extent) -> Result<Vec<u8>, String> {
        self.access(volume, Request::Read(extent), ACCESS_LIMIT)
    }

    /// Puts bytes to a volume, durably.
    pub(super) fn write(&self, volume: VolumeId, at: u64, bytes: Vec<u8>) -> Result<(), String> {
        self.access(volume, Request::Write(at, bytes), ACCESS_LIMIT).map(drop)
    }

    /// Makes durable what a volume was given.
    pub(super) fn flush(&self, volume: VolumeId, limit: Duration) -> Result<(), String> {
        self.access(volume, Request::Flush, limit).map(drop)
    }

    /// The same of several, all at once; each with what came of it.
    pub(super) fn flush_all<T>(
        &self,
        volumes: impl IntoIterator<Item = (VolumeId, T)>,
        limit: Duration,
    ) -> Vec<(T, Result<(), String>)> {
        let begun = volumes.into_iter().map(|(id, it)| (it, self.begin(id, Request::Flush)));
        let begun: Vec<_> = begun.collect();
        let until = Instant::now() + limit;
        begun.into_iter().map(|(it, told)| (it, end(&told, until, limit).map(drop))).collect()
    }

    /// Lets an internal client work on a shard; what it comes to it tells by itself.
    pub(super) fn add_client(&self, shard: ShardId, client: impl InternalClient + 'static) {
        let number = self.number.fetch_add(1, Relaxed);
        let order = Box::new(Order::AddClient(Box::new(client)));
        self.handle().send(shard, Mail::Order { number, order });
    }

    /// What tells a shard, from any thread, that one of its internal clients has something to look for.
    pub(super) fn knock(&self, shard: ShardId) -> impl Fn() + Send + Sync + 'static {
        // Whoever has this does not keep the shards.
        let handle = self.handle.as_ref().map(Arc::downgrade).unwrap_or_default();
        move || {
            if let Some(handle) = handle.upgrade() {
                handle.send(shard, Mail::Knock);
            }
        }
    }

    /// What looks at what the shards have done, from any thread.
    pub(super) fn watch(&self) -> impl Fn() -> Vec<ShardStats> + Send + 'static {
        // Whoever has this does not keep the shards.
        let handle = self.handle.as_ref().map(Arc::downgrade).unwrap_or_default();
        move || handle.upgrade().map(|handle| handle.stats()).unwrap_or_default()
    }

    fn access(
        &self,
        volume: VolumeId,
        request: Request,
        limit: Duration,
    ) -> Result<Vec<u8>, String> {
        end(&self.begin(volume, request), Instant::now() + limit, limit)
    }

    /// Begins an access.
    fn begin(&self, volume: VolumeId, request: Request) -> Receiver<Ended> {
        let (answer, told) = mpsc::channel();
        self.add_client(ShardId(0), Access::new(volume, request, answer));
        told
    }

    /// Ends the threads of the shards.
    pub(super) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        self.stopping.store(true, Relaxed);
        // An answer wakes the thread of the mail, which then sees that it is over.
        handle.send(ShardId(0), Mail::Order { number: u64::MAX, order: Box::new(Order::Report) });
        if let Some(mail_thread) = self.mail_thread.take() {
            let _ = mail_thread.join();
        }
        // That thread alone gave it work.
        self.store.join();
        if let Some(handle) = Arc::into_inner(handle) {
            handle.stop();
        }
    }
}

/// What came of an access that has `until` to end, `limit` after it began.
fn end(told: &Receiver<Ended>, until: Instant, limit: Duration) -> Result<Vec<u8>, String> {
    match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok((Outcome::Done, bytes)) => Ok(bytes),
        Ok((outcome, _)) => Err(outcome.to_string()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
