//! What a frame costs the target, without any link or disk: `cargo run --release -p aoe --example frame_cost`.
//!
//! Frames of one station come 32 to a turn; the volume lends what is read and takes what is written at once, as a RAM disk does. Nanoseconds a frame,
//! the best of several rounds.

#![allow(clippy::disallowed_types, clippy::disallowed_macros)]

use std::hint::black_box;
use std::time::Instant as Clock;

use aoe::export::{Export, ExportId};
use aoe::target::{Context, Target, TargetEffect};
use block::checksum::Crc32c;
use block::{
    Buffer, ByteCount, DiskId, Extent, Instant, MachineId, Memory, Outcome, PageId, Pool, Request,
    ShardId, Submit, VolumeId,
};
use contract::{InFrame, LinkFacts, LinkId, Links};
use reservation::InForce;
use wire::aoe::{Address, AtaArgument, Command, Header};
use wire::ata::Opcode;

const SIZE: u64 = 64 << 20;
const TURN: usize = 32;
const ROUNDS: usize = 20_000;

/// Pages in one area.
struct Area {
    bytes: Vec<u8>,
    free: Vec<u32>,
}

impl Memory for Area {
    fn materialize(&mut self, buffer: &mut Buffer) {
        while (buffer.pages().len() as u32) < buffer.page_count() {
            buffer.push_page(PageId(self.free.pop().expect("enough pages")));
        }
    }

    fn release(&mut self, mut buffer: Buffer) {
        let owned = buffer.take_pages().filter(|page| !page.is_leased());
        self.free.extend(owned.map(PageId::number));
    }

    fn lend(&mut self, _: DiskId, extent: Extent, buffer: &mut Buffer) {
        while (buffer.pages().len() as u32) < buffer.page_count() {
            buffer.push_page(PageId((extent.offset.0 / 4096) as u32).leased());
        }
    }

    fn write(&mut self, buffer: &mut Buffer, at: u32, bytes: &[u8]) {
        self.materialize(buffer);
        let mut rest = bytes;
        for run in buffer.segments(at, bytes.len() as u32) {
            let (head, tail) = rest.split_at(run.length as usize);
            let from = run.page.number() as usize * 4096 + run.offset as usize;
            self.bytes[from..from + head.len()].copy_from_slice(head);
            rest = tail;
        }
    }

    fn read(&self, _: &Buffer, _: u32, _: &mut [u8]) {}

    fn zero(&mut self, _: &mut Buffer, _: u32, _: u32) {}

    fn crc32c(&self, _: &Buffer, _: u32, _: u32, running: Crc32c) -> Crc32c {
        running
    }

    fn first_difference(&self, _: &Buffer, _: &Buffer) -> Option<u32> {
        None
    }
}

/// A volume in memory.
#[derive(Default)]
struct Volume(Vec<(VolumeId, Request)>);

impl Submit for Volume {
    fn submit(&mut self, volume: VolumeId, request: Request) {
        self.0.push((volume, request));
    }

    fn find_loan(
        &mut self,
        _: VolumeId,
        extent: Extent,
        _: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        Some((DiskId(0), extent))
    }
}

/// A frame as the driver shows it.
fn frame(opcode: Opcode, tag: u32, lba: u64, sectors: u8) -> Vec<u8> {
    let writes = opcode == Opcode::WRITE_SECTORS_EXT;
    let mut bytes = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xa2];
    bytes.extend(Header::request(Address::new(7, 0), Command::ATA, tag).emit());
    bytes.extend(AtaArgument::request(opcode, lba, sectors, writes).emit());
    bytes.resize(if writes { 36 + usize::from(sectors) * 512 } else { 60 }, tag as u8);
    bytes
}

/// Nanoseconds a frame.
fn measure(exports: u32, opcode: Opcode, sectors: u8, answers_at_once: bool) -> f64 {
    let link = LinkId(0);
    let mut target = Target::new(MachineId(0), ShardId(0));
    let facts = LinkFacts { mac: [2, 0, 0, 0, 0, 9], mtu: 9000, vlan: None, ring_frames: 1024 };
    target.link_up(link, facts);
    let mut links = Links::default();
    links.set(link, Some(facts));
    for number in 0..exports {
        let address = Address::new(7 + (number / 250) as u16, (number % 250) as u8);
        let export = Export::new(address, &[link], VolumeId(0), ByteCount(SIZE));
        let added = target.add_export(ExportId(number), export, Default::default());
        added.expect("a free address");
    }
    let pages = 4096;
    let mut memory = Area { bytes: vec![0; pages as usize * 4096], free: (0..pages).collect() };
    let mut pool = Pool::new(pages);
    let mut below = Volume::default();
    let reservations = InForce::default();
    let mut now = Instant(1);
    let mut tag = 0;
    let mut best = f64::MAX;
    let mut spent = 0u128;
    for round in 0..ROUNDS {
        let frames: Vec<Vec<u8>> = (0..TURN)
            .map(|_| {
                tag += 1;
                let lba = u64::from(tag).wrapping_mul(0x9e37_79b1) % (SIZE / 512 - 32);
                frame(opcode, tag, lba, sectors)
            })
            .collect();
        now = Instant(now.0 + 20_000);
        let mut turn: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let began = Clock::now();
        while !turn.is_empty() {
            let count = if answers_at_once { 1 } else { turn.len() };
            let mut ctx = Context {
                now,
                memory: &mut memory,
                pool: &mut pool,
                below: &mut below,
                reservations: &reservations,
                shared: &mut (),
            };
            for bytes in turn.drain(..count) {
                let frame = links.open(&InFrame { link, tag: None, bytes }).expect("it is for us");
                target.handle_frame(&frame, &mut ctx);
            }
            let mut asked = core::mem::take(&mut below.0);
            let mut ctx = Context {
                now,
                memory: &mut memory,
                pool: &mut pool,
                below: &mut below,
                reservations: &reservations,
                shared: &mut (),
            };
            for (_, request) in asked.drain(..) {
                target.handle_completion(request.complete(Outcome::Done), &mut ctx);
            }
            below.0 = asked;
        }
        let mut ctx = Context {
            now,
            memory: &mut memory,
            pool: &mut pool,
            below: &mut below,
            reservations: &reservations,
            shared: &mut (),
        };
        target.settle(&mut ctx);
        while let Some(TargetEffect::Send(batch)) = target.poll_effect() {
            black_box(&batch);
            target.handle_sent(batch, &mut ctx);
        }
        spent += began.elapsed().as_nanos();
        if round % 200 == 199 {
            best = best.min(spent as f64 / (200 * TURN) as f64);
            spent = 0;
        }
    }
    best
}

fn main() {
    println!("{:<28} {:>9} {:>9}", "ns a frame", "at once", "32 deep");
    for (name, opcode, sectors) in [
        ("read 1 KiB", Opcode::READ_SECTORS_EXT, 2),
        ("read 8.5 KiB", Opcode::READ_SECTORS_EXT, 17),
        ("write 1 KiB", Opcode::WRITE_SECTORS_EXT, 2),
        ("write 8.5 KiB", Opcode::WRITE_SECTORS_EXT, 17),
        ("check power mode", Opcode::CHECK_POWER_MODE, 0),
    ] {
        for exports in [1, 4096] {
            let (once, deep) =
                (measure(exports, opcode, sectors, true), measure(exports, opcode, sectors, false));
            println!("{:<28} {once:>9.0} {deep:>9.0}", format!("{name}, {exports} exports"));
        }
    }
}
