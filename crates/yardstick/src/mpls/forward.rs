//! The barest forwarder of labelled frames: what two links allow at best.
//!
//! One thread. A turn: every frame that is there, up to a batch, is changed where it lies as a swap
//! changes it, and all leave in one call; with nothing there, one `poll`. Over packet sockets the
//! frames lie in a TPACKET_V2 ring whose slots go back when `sendmmsg` has copied out of them; over
//! AF_XDP see `xdp.rs`. No table, no TTL that runs out, no checks but those that keep memory safe,
//! no counters but a total.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::frame::{ETHER_TYPE, Swap, is_labelled};
use super::xdp;
use crate::packet::{self, BATCH, Mac, Packet, Receive, send_all};
use crate::system;

/// A forwarder that is never idle looks so seldom, in turns, whether it is to end: a tenth of a
/// second at worst.
const LOOK: u32 = 512;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Interface to take frames from.
    #[arg(long = "in")]
    incoming: String,
    /// Interface to send them from.
    #[arg(long = "out")]
    outgoing: String,
    /// Station that they are sent to.
    #[arg(long, default_value = "ff:ff:ff:ff:ff:ff", value_parser = packet::parse_mac)]
    to: Mac,
    /// How frames come and go.
    #[arg(long, default_value = "packet")]
    access: Access,
    /// What is done to each frame.
    #[arg(long, default_value = "swap")]
    rewrite: Rewrite,
    /// Frames that the packet ring holds.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=65536))]
    frames: u32,
    /// CPU to pin the thread to.
    #[arg(long)]
    cpu: Option<usize>,
    /// End after that many seconds; else a signal ends it.
    #[arg(long, value_parser = crate::parse_seconds)]
    seconds: Option<Duration>,
    /// Print JSON on one line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Access {
    /// Packet sockets: a ring in, `sendmmsg` out.
    Packet,
    /// AF_XDP on both interfaces, in its copying mode.
    Xdp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rewrite {
    /// New addresses, another top label, one hop less.
    Swap,
    /// Nothing: what the links cost alone.
    None,
}

/// How frames come and go.
pub(super) trait Way {
    /// Forwards what is there, a batch at most; whether more is to be done at once.
    fn turn(&mut self, swap: Option<&Swap>) -> Result<bool>;

    /// Ready when frames are there.
    fn watched(&self) -> BorrowedFd<'_>;

    /// Labelled frames that were taken, and that the interface which sends was given.
    fn forwarded(&self) -> u64;

    /// Labelled frames that were taken and could not be sent.
    fn refused(&self) -> u64;

    /// Frames that the kernel dropped because nobody took them.
    fn dropped(&self) -> u64;
}

/// Forwards until a signal or the time limit.
pub(crate) fn run(options: &Options) -> Result<Value> {
    system::pin(options.cpu)?;
    let swap = |from| match options.rewrite {
        Rewrite::Swap => Some(Swap::new(options.to, from)),
        Rewrite::None => None,
    };
    match options.access {
        Access::Packet => {
            let way = Sockets::open(options)?;
            let swap = swap(way.from);
            pump(way, swap.as_ref(), options.seconds)
        }
        Access::Xdp => {
            let way = xdp::Sockets::open(&options.incoming, &options.outgoing)?;
            let swap = swap(way.from);
            pump(way, swap.as_ref(), options.seconds)
        }
    }
}

/// Turns until it is to end; what came of it.
fn pump(mut way: impl Way, swap: Option<&Swap>, time: Option<Duration>) -> Result<Value> {
    let signals = system::block_signals()?;
    let end = time.map(|time| Instant::now() + time);
    let mut turns = 0_u32;
    loop {
        let is_busy = way.turn(swap)?;
        turns = turns.wrapping_add(1);
        if is_busy && !turns.is_multiple_of(LOOK) {
            continue;
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let patience = if is_busy { Some(Duration::ZERO) } else { left };
        if left.is_some_and(|left| left.is_zero()) || is_told(&way, &signals, patience)? {
            break;
        }
    }
    Ok(json!({
        "forwarded": way.forwarded(), "refused": way.refused(), "dropped": way.dropped(),
        "cpu_seconds": system::thread_cpu().as_secs_f64(),
    }))
}

/// Sleeps so long (none: for ever), or until frames are there; whether a signal has come.
fn is_told(way: &impl Way, signals: &OwnedFd, time: Option<Duration>) -> Result<bool> {
    let time = time.map(Timespec::try_from).transpose()?;
    let watched = way.watched();
    let mut all = [PollFd::new(signals, PollFlags::IN), PollFd::new(&watched, PollFlags::IN)];
    match poll(&mut all, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(!all[0].revents().is_empty()),
        Err(error) => Err(error.into()),
    }
}

/// Two packet sockets.
struct Sockets {
    packet: Packet,
    out: OwnedFd,
    /// Address of the interface that sends.
    from: Mac,
    vectors: Box<[libc::iovec; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
    /// Labelled frames that were taken.
    labelled: u64,
    refused: u64,
}

impl Sockets {
    fn open(options: &Options) -> Result<Self> {
        let frames = Receive::Ring(options.frames as usize);
        let packet = Packet::open(&options.incoming, ETHER_TYPE, frames)?;
        let (out, interface) = packet::sender(&options.outgoing)?;
        let (mut vectors, mut messages) = packet::messages();
        for (message, vector) in messages.iter_mut().zip(vectors.iter_mut()) {
            // The boxes never move, so the addresses are good for the whole life of this value.
            message.msg_hdr.msg_iov = vector;
        }
        Ok(Self { packet, out, from: interface.mac, vectors, messages, labelled: 0, refused: 0 })
    }
}

impl Way for Sockets {
    fn turn(&mut self, swap: Option<&Swap>) -> Result<bool> {
        let (mut taken, mut leaving) = (0, 0);
        while taken < BATCH {
            let Some(frame) = self.packet.ahead(taken) else { break };
            taken += 1;
            if !is_labelled(frame) {
                continue;
            }
            if let Some(swap) = swap {
                swap.apply(frame);
            }
            self.vectors[leaving] =
                libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            leaving += 1;
        }
        self.labelled += leaving as u64;
        if leaving > 0 {
            let leaving = &mut self.messages[..leaving];
            // SAFETY: each message names a vector in its box, and each vector a frame in a slot
            // that is ours until it is released below.
            self.refused += unsafe { send_all(&self.out, leaving) }.context("sendmmsg")?;
        }
        self.packet.release_all(taken);
        Ok(taken > 0)
    }

    fn watched(&self) -> BorrowedFd<'_> {
        self.packet.socket.as_fd()
    }

    fn forwarded(&self) -> u64 {
        self.labelled - self.refused
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn dropped(&self) -> u64 {
        self.packet.dropped()
    }
}
