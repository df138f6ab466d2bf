//! The barest responder over TCP: what kernel sockets and a ring allow at best, whatever it speaks.
//!
//! One thread. A turn: one receive takes everything there is, every PDU in it is handled, all
//! replies leave in one `sendmsg` with vectors into the RAM area; then one wait. Data of a large
//! write are received straight into the RAM area when they have not arrived yet. No checks but
//! those that keep memory safe. Start with [`run`]; what a connection does with its bytes is in
//! `responder/stream.rs`, and what they mean is for its [`Speaker`], of which each protocol has
//! one: `nvme/ceiling.rs`, `iscsi/ceiling.rs`.

mod stream;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use io_uring::{opcode, types};
use serde_json::json;

use crate::memory::Area;
use crate::ring::{Ring, SLOTS};
use crate::system;
use stream::Connection;
pub(crate) use stream::{Malformed, Speaker, Stream};

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Address to listen on; port 0 takes a free one and prints it.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// CPU to pin the thread to.
    #[arg(long)]
    pub(crate) cpu: Option<usize>,
    /// Size of the RAM area.
    #[arg(long, default_value = "512MiB", value_parser = crate::parse_size)]
    pub(crate) size: usize,
    /// Begin with zeros, as a disk that nobody wrote, for who looks before writing to one.
    #[arg(long)]
    pub(crate) blank: bool,
    /// Look for work that long before going to sleep.
    #[arg(long, default_value_t = 0)]
    pub(crate) spin_us: u64,
    /// Receive buffer of a connection.
    #[arg(long, default_value = "256KiB", value_parser = crate::parse_size)]
    pub(crate) buffer: usize,
    /// End after that many seconds.
    #[arg(long, value_parser = crate::parse_seconds)]
    pub(crate) seconds: Option<Duration>,
}

/// What a completion is for; the slot stands above these bits in the key.
mod purpose {
    pub(super) const ACCEPT: u64 = 0;
    pub(super) const SIGNAL: u64 = 1;
    pub(super) const TIME: u64 = 2;
    pub(super) const RECEIVE: u64 = 3;
    pub(super) const ROOM: u64 = 4;
}

fn key(purpose: u64, slot: u32) -> u64 {
    (u64::from(slot) << 8) | purpose
}

/// The state of the thread.
pub(crate) struct Responder<S: Speaker> {
    ring: Ring,
    ram: Area,
    listener: TcpListener,
    signals: OwnedFd,
    connections: Vec<Option<Box<Connection<S>>>>,
    free: Vec<u32>,
    buffer: usize,
    started: Instant,
    served: u64,
}

/// Serves until a signal or the time limit; prints JSON then, and on SIGUSR1.
pub(crate) fn run<S: Speaker>(options: &Options) -> Result<()> {
    system::pin(options.cpu)?;
    let mut responder = Responder::<S>::open(options)?;
    println!("{}", json!({"listening": responder.address()?.to_string()}));
    responder.run(options.seconds)
}

impl<S: Speaker> Responder<S> {
    /// Listens, and maps the RAM area. What runs it is the thread that opened it.
    pub(crate) fn open(options: &Options) -> Result<Self> {
        system::raise_descriptor_limit();
        let listener = TcpListener::bind(options.listen)
            .with_context(|| format!("cannot listen on {}", options.listen))?;
        Ok(Self {
            ring: Ring::new(Duration::from_micros(options.spin_us))
                .context("cannot set up an io_uring")?,
            ram: Area::served(options.size, options.blank).context("cannot map the RAM area")?,
            signals: system::block_signals()?,
            connections: Vec::new(),
            free: (0..SLOTS - 2).rev().collect(),
            buffer: options.buffer,
            started: Instant::now(),
            served: 0,
            listener,
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Serves until a signal or for `time`.
    pub(crate) fn run(&mut self, time: Option<Duration>) -> Result<()> {
        self.ring.register(SLOTS - 1, self.listener.as_raw_fd())?;
        self.ring.register(SLOTS - 2, self.signals.as_raw_fd())?;
        self.ring.poll(SLOTS - 2, libc::POLLIN, key(purpose::SIGNAL, 0))?;
        self.accept()?;
        let limit = types::Timespec::from(time.unwrap_or_default());
        if time.is_some() {
            let entry = opcode::Timeout::new(&limit).build();
            // SAFETY: `limit` lives to the end of this function.
            unsafe { self.ring.push(entry, key(purpose::TIME, 0)) }?;
        }
        let mut done = Vec::with_capacity(1024);
        loop {
            self.ring.wait(&mut done)?;
            for (key, result) in done.drain(..) {
                let slot = (key >> 8) as u32;
                match key & 0xff {
                    purpose::RECEIVE => self.received(slot, result)?,
                    purpose::ROOM => self.room(slot)?,
                    purpose::ACCEPT => self.accepted(result)?,
                    purpose::SIGNAL if !self.signalled()? => {}
                    _ => {
                        self.report();
                        return Ok(());
                    }
                }
            }
        }
    }

    fn accept(&mut self) -> Result<()> {
        let entry = opcode::Accept::new(
            types::Fixed(SLOTS - 1),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
        .build();
        // SAFETY: no address is asked for, so the entry points at nothing.
        unsafe { self.ring.push(entry, key(purpose::ACCEPT, 0)) }?;
        Ok(())
    }

    fn accepted(&mut self, result: i32) -> Result<()> {
        self.accept()?;
        if result < 0 {
            return Ok(());
        }
        // SAFETY: the kernel has just given us this descriptor.
        let socket = socket2::Socket::from(unsafe { OwnedFd::from_raw_fd(result) });
        let Some(slot) = self.free.pop() else {
            return Ok(());
        };
        socket.set_tcp_nodelay(true)?;
        self.ring.register(slot, socket.as_raw_fd())?;
        let index = slot as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.served += 1;
        let connection = Connection::new(socket, self.buffer, self.served)?;
        self.connections[index] = Some(Box::new(connection));
        self.receive(slot)
    }

    /// Posts the one receive of a connection.
    fn receive(&mut self, slot: u32) -> Result<()> {
        let Some(connection) = &mut self.connections[slot as usize] else {
            return Ok(());
        };
        let entry = connection.stream.receive(slot, &self.ram);
        // SAFETY: the buffers and the message live in the boxed connection and the RAM area, which
        // stay until the receive has completed: a connection is closed only without one posted.
        unsafe { self.ring.push(entry, key(purpose::RECEIVE, slot)) }?;
        Ok(())
    }

    fn received(&mut self, slot: u32, result: i32) -> Result<()> {
        let Some(connection) = &mut self.connections[slot as usize] else {
            return Ok(());
        };
        let alive = result > 0 && connection.consume(result as usize, &mut self.ram);
        if !alive {
            return self.close(slot);
        }
        if !connection.stream.waits_for_room {
            match connection.stream.flush() {
                Ok(true) => {}
                Ok(false) => self.wait_for_room(slot)?,
                Err(_) => return self.close(slot),
            }
        }
        self.receive(slot)
    }

    fn wait_for_room(&mut self, slot: u32) -> Result<()> {
        if let Some(connection) = &mut self.connections[slot as usize] {
            connection.stream.waits_for_room = true;
            self.ring.poll(slot, libc::POLLOUT, key(purpose::ROOM, slot))?;
        }
        Ok(())
    }

    fn room(&mut self, slot: u32) -> Result<()> {
        let Some(connection) = &mut self.connections[slot as usize] else {
            return Ok(());
        };
        connection.stream.waits_for_room = false;
        if connection.stream.dead {
            return self.close(slot);
        }
        // A broken connection shows at its receive, which is posted.
        if let Ok(false) = connection.stream.flush() {
            self.wait_for_room(slot)?;
        }
        Ok(())
    }

    /// Closes a connection that has no receive posted; a poll still posted is waited for.
    fn close(&mut self, slot: u32) -> Result<()> {
        let Some(connection) = &mut self.connections[slot as usize] else {
            return Ok(());
        };
        if connection.stream.waits_for_room {
            connection.stream.dead = true;
            connection.stream.shutdown();
            return Ok(());
        }
        self.ring.register(slot, -1)?;
        self.connections[slot as usize] = None;
        self.free.push(slot);
        Ok(())
    }

    /// Reads the signal; true if it asks to end.
    fn signalled(&mut self) -> Result<bool> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        let got = rustix::io::read(&self.signals, &mut record).unwrap_or(0);
        // It begins with the signal's number.
        let usr1 = (libc::SIGUSR1 as u32).to_ne_bytes();
        if got == record.len() && !record.starts_with(&usr1) {
            return Ok(true);
        }
        self.report();
        self.ring.poll(SLOTS - 2, libc::POLLIN, key(purpose::SIGNAL, 0))?;
        Ok(false)
    }

    fn report(&self) {
        println!(
            "{}",
            json!({
                "cpu_seconds": system::thread_cpu().as_secs_f64(),
                "seconds": self.started.elapsed().as_secs_f64(),
                "connections": self.served,
            })
        );
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Bytes of the RAM area of a responder in a test.
    pub(crate) const SIZE: usize = 8 << 20;
    /// A test's responder ends after that, or with the process.
    const LIFE: Duration = Duration::from_secs(300);

    /// Starts a responder in a thread of its own; where it listens.
    pub(crate) fn start<S: Speaker>() -> SocketAddr {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let options = Options {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                cpu: None,
                size: SIZE,
                spin_us: 0,
                blank: false,
                buffer: 256 << 10,
                seconds: None,
            };
            let mut responder = Responder::<S>::open(&options).expect("a responder");
            tell.send(responder.address().expect("bound")).expect("somebody waits");
            responder.run(Some(LIFE)).expect("an end in peace");
        });
        told.recv().expect("the thread listens")
    }
}
