//! The barest AoE responder: what a packet ring and `sendmmsg` allow at best.
//!
//! One thread. A turn: every frame in the ring is handled, up to a batch, and all replies leave in
//! one `sendmmsg` with vectors into the RAM area; then, with nothing in the ring, one `poll`, before
//! which it looks for more for as long as it is told. A write is copied once, from the ring into the
//! RAM area. No checks but those that keep memory safe.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;

use super::outgoing::Outgoing;
use super::wire::{self, ATA_HEAD, Address, Asks, Head, SECTOR};
use crate::memory::Area;
use crate::packet::{BATCH, Interface, Packet, Receive};
use crate::system;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Interface to answer on.
    #[arg(long)]
    pub(crate) interface: String,
    /// Shelf and slot.
    #[arg(long, default_value = "7.0", value_parser = Address::parse)]
    pub(crate) address: Address,
    /// CPU to pin the thread to.
    #[arg(long)]
    pub(crate) cpu: Option<usize>,
    /// Size of the RAM area.
    #[arg(long, default_value = "512MiB", value_parser = crate::parse_size)]
    pub(crate) size: usize,
    /// Begin with zeros, as a disk that nobody wrote, for who looks before writing to one.
    #[arg(long)]
    pub(crate) blank: bool,
    /// Frames that the receive ring holds.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=65536))]
    pub(crate) frames: u32,
    /// Look for frames that long before going to sleep.
    #[arg(long, default_value_t = 0)]
    pub(crate) spin_us: u64,
    /// End after that many seconds.
    #[arg(long, value_parser = crate::parse_seconds)]
    pub(crate) seconds: Option<Duration>,
}

/// Answers until the time is over or a signal ends it; prints a line once it does.
pub(crate) fn run(options: &Options) -> Result<()> {
    system::pin(options.cpu)?;
    let mut packet =
        Packet::open(&options.interface, wire::ETHER_TYPE, Receive::Ring(options.frames as usize))?;
    let buffers = (packet.slots() - 1).min(usize::from(u16::MAX)) as u16;
    let mut disk = Disk::new(options, packet.interface, buffers)?;
    let mut outgoing = Outgoing::new();
    disk.announce(options);
    let end = options.seconds.map(|time| Instant::now() + time);
    loop {
        let mut handled = 0;
        while handled < BATCH {
            let Some(frame) = packet.front() else { break };
            match disk.answer(frame, outgoing.head()) {
                Reply::None => {}
                Reply::Head => outgoing.push(),
                // SAFETY: the data lie in the disk's area, which outlives the batch.
                Reply::Data { data, len } => unsafe { outgoing.push_with(ATA_HEAD, data, len) },
            }
            packet.release();
            handled += 1;
        }
        if handled > 0 {
            outgoing.send(&packet.socket).context("sendmmsg")?;
            continue;
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            println!("{}", json!({"served": disk.served, "dropped": packet.dropped()}));
            return Ok(());
        }
        if !look(&packet, Duration::from_micros(options.spin_us)) {
            packet.wait(left)?;
        }
    }
}

/// Looks so long for a frame; whether one came.
fn look(packet: &Packet, time: Duration) -> bool {
    let start = Instant::now();
    while !time.is_zero() && start.elapsed() < time {
        if packet.front().is_some() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// What goes back.
pub(super) enum Reply {
    /// Nothing.
    None,
    /// The head alone, padded.
    Head,
    /// The first [`ATA_HEAD`] bytes of the head, then these data of the disk.
    Data { data: *mut u8, len: usize },
}

/// The RAM area and what is told of it.
pub(super) struct Disk {
    ram: Area,
    identify: Area,
    address: Address,
    interface: Interface,
    buffers: u16,
    sectors: u8,
    /// Commands that were carried out.
    pub(super) served: u64,
}

impl Disk {
    pub(super) fn new(options: &Options, interface: Interface, buffers: u16) -> Result<Self> {
        let ram = Area::served(options.size, options.blank).context("cannot map the RAM area")?;
        let mut identify = Area::new(SECTOR, false).context("cannot map a page")?;
        identify.store(0, &wire::identify((ram.len() / SECTOR) as u64));
        Ok(Self {
            ram,
            identify,
            address: options.address,
            interface,
            buffers,
            sectors: wire::sectors_of(interface.mtu),
            served: 0,
        })
    }

    /// Says that it answers.
    fn announce(&self, options: &Options) {
        println!(
            "{}",
            json!({
                "listening": options.interface, "mtu": self.interface.mtu,
                "shelf": self.address.shelf, "slot": self.address.slot, "buffers": self.buffers,
            })
        );
    }

    /// Does what a frame asks and writes the head of the answer.
    #[inline]
    pub(super) fn answer(&mut self, frame: &[u8], head: &mut Head) -> Reply {
        let Some(asks) = wire::request(frame, self.address) else { return Reply::None };
        let (own, mac) = (self.address, self.interface.mac);
        let place = |lba: u64| usize::try_from(lba).ok().and_then(|lba| lba.checked_mul(SECTOR));
        let reply = match asks {
            Asks::Config => {
                wire::config_answer(head, frame, own, mac, self.buffers, self.sectors);
                return Reply::Head;
            }
            Asks::Read { lba, sectors } if sectors > 0 => {
                let len = sectors * SECTOR;
                let data = place(lba).and_then(|from| self.ram.at(from, len));
                data.map(|data| Reply::Data { data, len })
            }
            Asks::Write { lba, sectors } => {
                let data = frame[ATA_HEAD..].get(..sectors * SECTOR);
                let stored =
                    place(lba).zip(data).is_some_and(|(to, data)| self.ram.store(to, data));
                stored.then_some(Reply::Head)
            }
            Asks::Identify => {
                self.identify.at(0, SECTOR).map(|data| Reply::Data { data, len: SECTOR })
            }
            Asks::Read { .. } | Asks::Other => None,
        };
        wire::ata_answer(head, frame, own, mac, reply.is_some());
        self.served += 1;
        reply.unwrap_or(Reply::Head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        let options = Options {
            interface: String::new(),
            address: Address { shelf: 7, slot: 0 },
            cpu: None,
            size: 1 << 20,
            frames: 0,
            spin_us: 0,
            blank: false,
            seconds: None,
        };
        let interface = Interface { index: 0, mac: [2, 0, 0, 0, 0, 1], mtu: 1500 };
        Disk::new(&options, interface, 255).expect("memory")
    }

    fn ask(write: bool, lba: u64, sectors: u8) -> Vec<u8> {
        let mut head = wire::request_head([2; 6], [4; 6], Address { shelf: 7, slot: 0 });
        wire::ask_transfer(&mut head, 1, write, lba, sectors);
        let mut frame = head[..ATA_HEAD].to_vec();
        frame.resize(ATA_HEAD + if write { usize::from(sectors) * SECTOR } else { 24 }, 0x5c);
        frame
    }

    #[test]
    fn what_is_written_is_read() {
        let (mut disk, mut head) = (disk(), [0; wire::FRAME_MIN]);
        assert!(matches!(disk.answer(&ask(true, 2047, 1), &mut head), Reply::Head));
        assert!(wire::response(&head).expect("an answer").success);
        let Reply::Data { data, len } = disk.answer(&ask(false, 2046, 2), &mut head) else {
            panic!("no data")
        };
        assert_eq!(len, 2 * SECTOR);
        assert_eq!(disk.ram.at(2046 * SECTOR, len), Some(data));
        assert_eq!(disk.ram.bytes(2047 * SECTOR, 2048 * SECTOR), [0x5c; SECTOR]);
    }

    #[test]
    fn beyond_the_end_and_without_data_commands_are_aborted() {
        let (mut disk, mut head) = (disk(), [0; wire::FRAME_MIN]);
        let mut short = ask(true, 0, 2);
        short.truncate(ATA_HEAD + SECTOR);
        for frame in [ask(false, 2047, 2), ask(true, u64::MAX >> 16, 1), ask(false, 0, 0), short] {
            assert!(matches!(disk.answer(&frame, &mut head), Reply::Head));
            assert!(!wire::response(&head).expect("an answer").success);
        }
    }

    #[test]
    fn identify_and_config_tell_size_and_frames() {
        let (mut disk, mut head) = (disk(), [0; wire::FRAME_MIN]);
        let mut frame = wire::request_head([2; 6], [4; 6], Address { shelf: 7, slot: 0 });
        wire::ask_identify(&mut frame, 1);
        assert!(matches!(disk.answer(&frame, &mut head), Reply::Data { len: SECTOR, .. }));
        assert_eq!(wire::identified(disk.identify.bytes(0, SECTOR)), Some(2048));
        wire::ask_config(&mut frame);
        assert!(matches!(disk.answer(&frame, &mut head), Reply::Head));
        let body = wire::response(&head).expect("an answer").body;
        assert_eq!(body, wire::Body::Config { buffers: 255, sectors: 2 });
    }
}
