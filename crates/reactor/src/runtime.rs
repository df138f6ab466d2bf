//! The runtime: starts the shard threads, and the control thread's [`Handle`] to them.
//!
//! Units: CPUs by the system's numbers, pages of 4096 bytes. Errors: those of the system at start
//! and when listening; a shard that panics later ends the process, after the message of the panic,
//! because its connections and disks would be without an answer for ever.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{self, Duration};

use block::{ShardId, limits};
use contract::{DiskId, LinkId, ListenerId, Machine, Poll};

use crate::accept::{Admission, ConnectionLimits, ListenOptions, Listener};
use crate::disk::Disk;
use crate::driver::{Driver, Shared};
use crate::engine::Engine;
use crate::engine::choice::{Choice, EngineKind, Preference, choose};
use crate::engine::epoll::Epoll;
use crate::engine::uring::Uring;
use crate::engine::workers::Workers;
use crate::link::supervisor::{LinkMailbox, LinkSupervisor};
use crate::link::{AddedLink, LinkOptions, LinkStats, PeerOptions};
use crate::mailbox::{Delivery, Inbox};
use crate::memory::{Arena, ShardMemory};
use crate::process::{self, AbortOnPanic, lock};
use crate::sockets;
use crate::stats::{ShardCells, ShardStats};

/// How a reactor is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// One shard for each entry, kept on that CPU; `None`: wherever the system puts it.
    pub cpus: Vec<Option<usize>>,
    /// Which engine.
    pub driver: Preference,
    /// Pages that the pool of each shard may use; the arena grows by them.
    pub pool_pages: u32,
    /// Large receive buffers of each shard.
    pub receive_buffers: usize,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
}

impl Default for Config {
    /// One shard, not pinned, on the better engine, with the bounds of `block::limits`.
    fn default() -> Self {
        Config {
            cpus: vec![None],
            driver: Preference::Auto,
            pool_pages: limits::POOL_PAGES_MIN,
            receive_buffers: limits::RECEIVE_BUFFERS,
            connections: ConnectionLimits::default(),
        }
    }
}

/// How long disk threads may take to end after the shards, which have waited for their work.
const WORKERS_GRACE: Duration = Duration::from_secs(1);

/// Starts reactors.
#[derive(Debug)]
pub struct Reactor;

/// Whether the shards turn, as any thread may see it. It keeps nothing running.
pub struct Pulse<M: Send + 'static> {
    shared: Arc<Shared<M>>,
}

impl<M: Send + 'static> Pulse<M> {
    /// Turns of each shard's loop so far.
    pub fn turns(&self) -> Vec<u64> {
        self.shared.counters.iter().map(|cells| cells.look().turns).collect()
    }

    /// Wakes every shard that sleeps: it takes one turn at least.
    pub fn nudge(&self) {
        self.shared.inboxes.iter().for_each(|inbox| inbox.nudge());
    }
}

/// The control thread's way to the shards. Dropping it stops them.
pub struct Handle<M: Send + 'static> {
    shared: Arc<Shared<M>>,
    links: Arc<LinkSupervisor>,
    mail: Mutex<Receiver<(ShardId, M)>>,
    threads: Vec<JoinHandle<()>>,
    choice: Choice,
    warnings: Vec<String>,
}

impl Reactor {
    /// Starts a thread for each shard, which makes its machine by calling `machine` with the
    /// shard's number and runs it until [`Handle::stop`]. Raises the soft limit of descriptors to
    /// the hard one.
    pub fn start<M, F>(
        config: &Config,
        arena: &Arc<Arena>,
        machine: F,
    ) -> io::Result<Handle<M::Mail>>
    where
        M: Machine + 'static,
        F: Fn(ShardId) -> M + Send + Sync + 'static,
    {
        let shards = config.cpus.len();
        if shards == 0 || shards > limits::SHARDS_MAX {
            let most = limits::SHARDS_MAX;
            return Err(io::Error::other(format!("{shards} shards: expected 1 to {most}")));
        }
        let choice = choose(config.driver)?;
        process::raise_descriptor_limit();
        let inboxes: Vec<_> =
            (0..shards).map(|_| Inbox::new().map(Arc::new)).collect::<io::Result<_>>()?;
        let (control, mail) = mpsc::channel();
        let admission = Admission::new(config.connections);
        let accepting = inboxes[0].clone();
        admission.when_freed(move || accepting.post(Delivery::AcceptAgain));
        let shared = Arc::new(Shared {
            inboxes,
            counters: (0..shards).map(|_| ShardCells::default()).collect(),
            control,
            admission,
            workers: Arc::new(Workers::new(process::allowed_cpus())),
            origin: time::Instant::now(),
            receive_buffers: config.receive_buffers,
        });
        let shards =
            shared.inboxes.iter().map(|inbox| inbox.clone() as Arc<dyn LinkMailbox>).collect();
        let mut handle = Handle {
            shared: shared.clone(),
            links: LinkSupervisor::new(shards)?,
            mail: Mutex::new(mail),
            threads: Vec::new(),
            choice: choice.clone(),
            warnings: Vec::new(),
        };
        let machine = Arc::new(machine);
        for (index, cpu) in config.cpus.iter().enumerate() {
            let start = Start {
                shard: ShardId(index as u16),
                kind: choice.kind,
                cpu: *cpu,
                memory: ShardMemory::new(arena, config.pool_pages).map_err(io::Error::other)?,
                shared: shared.clone(),
            };
            let (told, started) = mpsc::channel();
            let machine = machine.clone();
            let thread = thread::Builder::new()
                .name(format!("shard-{index}"))
                .spawn(move || start.run(&*machine, &told))?;
            handle.threads.push(thread);
            match started.recv() {
                Ok(Ok(warning)) => handle.warnings.extend(warning),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(io::Error::other(format!("shard {index} did not start"))),
            }
        }
        Ok(handle)
    }
}

/// What a shard's thread begins with.
struct Start<M> {
    shard: ShardId,
    kind: EngineKind,
    cpu: Option<usize>,
    memory: ShardMemory,
    shared: Arc<Shared<M>>,
}

impl<T: Send + 'static> Start<T> {
    fn run<M: Machine<Mail = T>>(
        self,
        machine: &(dyn Fn(ShardId) -> M + Send + Sync),
        told: &Sender<io::Result<Option<String>>>,
    ) {
        let _guard = AbortOnPanic;
        let warning = self.cpu.and_then(|cpu| {
            let error = process::pin(&[cpu]).err()?;
            Some(format!("shard {} is not kept on CPU {cpu}: {error}", self.shard.0))
        });
        let wake = self.shared.inboxes[self.shard.index()].wake_descriptor().as_raw_fd();
        match self.kind {
            EngineKind::Uring => self.drive(Uring::new(wake), machine, told, warning),
            EngineKind::Epoll => self.drive(Epoll::new(wake), machine, told, warning),
        }
    }

    fn drive<M: Machine<Mail = T>, E: Engine>(
        self,
        engine: io::Result<E>,
        machine: &dyn Fn(ShardId) -> M,
        told: &Sender<io::Result<Option<String>>>,
        warning: Option<String>,
    ) {
        let engine = match engine {
            Ok(engine) => engine,
            Err(error) => return drop(told.send(Err(error))),
        };
        let Start { shard, memory, shared, .. } = self;
        let driver = Driver::new(shard, engine, machine(shard), memory, shared);
        let _ = told.send(Ok(warning));
        driver.run();
    }
}

impl<M: Send + 'static> Handle<M> {
    /// What runs, and why, in one line.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// What could not be had at start and is done without, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.shared.inboxes.len() as u16
    }

    /// Listens at an address (port 0: any) and deals the connections out to the shards. Returns the
    /// address.
    pub fn listen(
        &self,
        address: SocketAddr,
        id: ListenerId,
        options: ListenOptions,
    ) -> io::Result<SocketAddr> {
        let (fd, local) = sockets::listen(address)?;
        self.shared.inboxes[0].post(Delivery::Listen(Listener { id, fd, options }));
        Ok(local)
    }

    /// Grants connections of a listener something else, without touching its socket: those that are
    /// accepted once it returns all of it, those that stand the new `poll` soon. Those that are
    /// more than `max_connections` stay.
    pub fn change_listener(&self, id: ListenerId, options: ListenOptions) {
        self.ask_accepting(|told| Delivery::ChangeListener(id, options, told));
    }

    /// Stops listening; returns once the socket is closed. Its connections stay: the machines close
    /// them.
    pub fn unlisten(&self, id: ListenerId) {
        self.ask_accepting(|told| Delivery::Unlisten(id, told));
    }

    /// Has the shard that accepts do something, and waits until it has.
    fn ask_accepting(&self, order: impl FnOnce(Sender<()>) -> Delivery<M>) {
        let (told, done) = mpsc::channel();
        self.shared.inboxes[0].post(order(told));
        let _ = done.recv();
    }

    /// Makes a disk known to all shards, before any mail that is sent later. `poll`: how long a shard
    /// looks for what the kernel does for it.
    pub fn add_disk(&self, id: DiskId, disk: &Arc<Disk>, poll: Poll) {
        for inbox in &self.shared.inboxes {
            inbox.post(Delivery::AddDisk(id, disk.clone(), poll));
        }
    }

    /// Has all shards look for what the kernel does for a disk in another way.
    pub fn poll_disk(&self, id: DiskId, poll: Poll) {
        self.shared.inboxes.iter().for_each(|inbox| inbox.post(Delivery::PollDisk(id, poll)));
    }

    /// Makes all shards forget a disk once what it was asked before has come back; requests that
    /// come later are answered with `Removed`. Waits for that at most so long; `false`: it is still
    /// held by a request that does not come back.
    pub fn remove_disk(&self, id: DiskId, limit: Duration) -> bool {
        let until = time::Instant::now() + limit;
        let (told, done) = mpsc::channel();
        for inbox in &self.shared.inboxes {
            inbox.post(Delivery::RemoveDisk(id, told.clone()));
        }
        drop(told);
        self.shared.inboxes.iter().all(|_| {
            let left = until.saturating_duration_since(time::Instant::now());
            done.recv_timeout(left).is_ok()
        })
    }

    /// Takes frames of an interface and sends some there. Once its sockets are open each shard that
    /// is concerned is told that the link is up, now or when the interface is; what is known of it
    /// is returned either way (`ring_frames` is 0 while it is down). What was asked for and cannot
    /// be is an error that says what to do: no such interface, no Ethernet, no right. Frames may be
    /// sent and received by the shards of its [`Intake`](contract::Intake) alone.
    pub fn add_link(&self, id: LinkId, options: &LinkOptions) -> io::Result<AddedLink> {
        self.links.add(id, options)
    }

    /// Takes what another host sends through IP and sends some there, as frames of a link without
    /// Ethernet: whole payloads, none larger than the MTU that is told, which is 0 while there is no
    /// path. The shard is told when there is one, and whenever it takes more or less. Errors: options
    /// that contradict each other, no right, a port that is another's.
    pub fn add_peer(&self, id: LinkId, options: &PeerOptions) -> io::Result<AddedLink> {
        self.links.add_peer(id, options)
    }

    /// Has shards look for a link's frames in another way.
    pub fn poll_link(&self, id: LinkId, poll: Poll) {
        self.links.poll(id, poll);
    }

    /// Forgets a link; returns once its sockets are closed. The machines were told that it is down,
    /// if it was up.
    pub fn remove_link(&self, id: LinkId) {
        self.links.remove(id);
    }

    /// What the links have carried, for each and each of its shards, in the order in which they
    /// were added.
    pub fn link_stats(&self) -> Vec<LinkStats> {
        self.links.stats()
    }

    /// Sends mail to a shard, from [`ShardId::CONTROL`].
    pub fn send(&self, to: ShardId, mail: M) {
        self.shared.inboxes[to.index()].post(Delivery::Mail { from: ShardId::CONTROL, mail });
    }

    /// The next mail to the control thread, waiting at most so long.
    pub fn receive_mail(&self, limit: Duration) -> Option<(ShardId, M)> {
        let mail = lock(&self.mail);
        mail.recv_timeout(limit).ok()
    }

    /// What the shards have done so far.
    pub fn stats(&self) -> Vec<ShardStats> {
        self.shared.counters.iter().map(ShardCells::look).collect()
    }

    /// A look at the shards for a thread that sees whether they turn.
    pub fn pulse(&self) -> Pulse<M> {
        Pulse { shared: self.shared.clone() }
    }

    /// Whether all shards sleep.
    pub fn is_asleep(&self) -> bool {
        self.shared.inboxes.iter().all(|inbox| inbox.is_sleeping())
    }

    /// Closes all connections without a word, waits for what is with the kernel and with disk
    /// threads (a few seconds at most), and ends the threads; those of a disk that hangs are left
    /// alone. Whoever wants to drain asks the machines to, before.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.links.stop();
        for inbox in &self.shared.inboxes {
            inbox.post(Delivery::Stop);
        }
        for thread in self.threads.drain(..) {
            // A panic has ended the process already.
            let _ = thread.join();
        }
        self.links.leave_interfaces();
        self.shared.workers.stop(WORKERS_GRACE);
    }
}

impl<M: Send + 'static> Drop for Handle<M> {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.end();
        }
    }
}
