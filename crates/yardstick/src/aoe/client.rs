//! The bare AoE client: keeps a window of commands full on a raw socket and counts.
//!
//! One thread, the same packet ring and batches as the responder. A turn: every answer that is
//! there is taken, its place in the window is filled anew, and all new commands leave in one
//! `sendmmsg`. Answers are taken by `recvmmsg`, which leaves the copying to this end and to its
//! CPU; or by a ring, and then data that were read are copied once more, since a ring's slot is
//! nobody's to keep. A command without an answer is sent again with its tag after a while, so no
//! lost frame ends a run; a latency counts from its first copy. Errors: an answer with the E flag
//! or a bad status ends the run, and so does long silence. Times: nanoseconds since the start.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::outgoing::Outgoing;
use super::wire::{self, ATA_HEAD, Address, BROADCAST, Body, Head, SECTOR};
use crate::Measure;
use crate::load::{Status, Told};
use crate::memory::Area;
use crate::packet::{BATCH, Mac, Packet, Receive};
use crate::places::Places;
use crate::report::{Opened, Tally, Window, quiet};
use crate::system::{self, Counted, Target};

/// Frames of the receive ring at least. It holds the window twice and no more: what goes round in a
/// small ring stays in the cache, and the copy into it may be at the target's expense.
const RING_MIN: usize = 64;
/// How long the target may take to be found.
const DISCOVERY: Duration = Duration::from_secs(30);
/// Between two questions of the discovery.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How long a client waits for any answer before it gives the target up.
const SILENCE: Duration = Duration::from_secs(20);
/// How long commands still outstanding at the end may take.
const DRAIN: Duration = Duration::from_secs(2);
/// How long filling a disk may take.
const FILL: Duration = Duration::from_secs(300);
/// The bits of a tag that name the place in the window; those above tell its commands apart. The
/// highest stays zero, since some targets and tools keep it for themselves.
const PLACE_BITS: u32 = 10;
/// Frames of a burst when the target is flooded.
const BURST: usize = 32;
/// The tag's place of commands of a flood, which nobody waits for: the last one of all.
const FLOOD: u32 = (1 << PLACE_BITS) - 1;
/// When, after a flood, the target is looked at again.
const RECOVERY: Duration = Duration::from_secs(1);

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Interface to ask on.
    #[arg(long, required_unless_present = "disk", default_value = "")]
    pub(crate) interface: String,
    /// Shelf and slot of the target.
    #[arg(long, default_value = "7.0", value_parser = Address::parse)]
    pub(crate) address: Address,
    /// Both in one word: aoe://INTERFACE/SHELF.SLOT.
    #[arg(long, value_name = "URI", conflicts_with_all = ["interface", "address"])]
    pub(crate) disk: Option<String>,
    /// Size of a command's data; `full` is what a frame of the target holds.
    #[arg(long, default_value = "full", value_parser = parse_frame)]
    pub(crate) bs: FrameSize,
    /// Commands outstanding, at most what the target buffers; 0 puts no load on it.
    #[arg(long, visible_alias = "iodepth", default_value_t = 32, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) window: u16,
    /// Windows; there is one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1))]
    pub(crate) numjobs: u16,
    /// Receive by a ring: then the kernel copies in its softirq, which may run on the target's CPU.
    #[arg(long)]
    pub(crate) ring: bool,
    /// Send a command again when no answer has come for so long.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(4..=10_000))]
    pub(crate) retry_ms: u64,
    /// Measure, then send commands for as long without waiting for answers, and measure again a
    /// second later.
    #[arg(long)]
    pub(crate) overload: bool,
    /// Count everything that those CPUs do, softirqs of sleeping threads and neighbours included.
    #[arg(long)]
    pub(crate) target_core: bool,
    #[command(flatten)]
    pub(crate) told: Told,
    #[command(flatten)]
    pub(crate) measure: Measure,
}

impl Options {
    /// Takes interface and address from the one word.
    fn take_disk(&mut self) -> Result<()> {
        let Some(uri) = &self.disk else { return Ok(()) };
        let take = || {
            let (interface, address) = uri.strip_prefix("aoe://")?.split_once('/')?;
            let is_one = !interface.is_empty() && !interface.contains([',', ':']);
            is_one.then_some((interface.to_owned(), Address::parse(address).ok()?))
        };
        (self.interface, self.address) =
            take().with_context(|| format!("expected aoe://INTERFACE/SHELF.SLOT, seen {uri:?}"))?;
        Ok(())
    }
}

/// A number of bytes, or as many as a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameSize {
    Full,
    Bytes(usize),
}

fn parse_frame(text: &str) -> Result<FrameSize> {
    if text == "full" { Ok(FrameSize::Full) } else { crate::parse_size(text).map(FrameSize::Bytes) }
}

/// Finds the target, measures, and returns what it saw.
pub(crate) fn run(options: &Options) -> Result<Value> {
    let mut options = options.clone();
    options.take_disk()?;
    let options = &options;
    ensure!(!options.measure.rw.mixes(), "over AoE a load reads or writes, not both");
    system::pin(options.measure.cpu)?;
    let mut target = options.measure.target();
    if let Some(target) = &mut target
        && options.target_core
    {
        target.counted = Counted::Core;
    }
    let before = target.as_ref().map(Target::usage).unwrap_or_default();
    let mut client = Client::find(options)?;
    if let Some(status) = options.told.begin()? {
        let window = client.tell(status, target.as_ref())?;
        return Ok(window.report(client.size, target.as_ref(), before));
    }
    if options.overload {
        return client.overload(&options.measure, target.as_ref());
    }
    let window = if options.window == 0 {
        quiet(&options.measure, target.as_ref(), None)
    } else {
        client.measure(&options.measure, target.as_ref())?
    };
    let mut value = window.report(client.size, target.as_ref(), before);
    client.describe(&mut value);
    Ok(value)
}

/// A place in the window.
#[derive(Clone, Copy, Default)]
struct Flight {
    /// Of the command outstanding.
    tag: u32,
    lba: u64,
    /// When its first and its last copy left.
    first: u64,
    last: u64,
    outstanding: bool,
}

struct Client {
    packet: Packet,
    outgoing: Outgoing,
    /// What all heads have in common.
    head: Head,
    /// Those of the disk, of `size` bytes each.
    places: Places,
    size: usize,
    buffers: u16,
    write: bool,
    /// Data of all writes.
    pattern: Area,
    /// Where data go that were read into a ring: a part for each place in the window.
    landing: Option<Area>,
    flights: Vec<Flight>,
    outstanding: usize,
    generation: u32,
    retry: u64,
    tally: Tally,
    resent: u64,
    /// Answers to commands of a flood.
    flood_answers: u64,
    start: Instant,
}

/// What discovery found.
struct Found {
    mac: Mac,
    buffers: u16,
    sectors: u8,
    size: u64,
}

impl Client {
    /// Opens the link and looks for the target.
    fn find(options: &Options) -> Result<Self> {
        let receive = if options.ring {
            Receive::Ring(RING_MIN.max(2 * usize::from(options.window)))
        } else {
            Receive::Messages
        };
        let mut packet = Packet::open(&options.interface, wire::ETHER_TYPE, receive)?;
        let mut outgoing = Outgoing::new();
        let found = find(&mut packet, &mut outgoing, options.address)?;
        let frame = usize::from(found.sectors.min(wire::sectors_of(packet.interface.mtu))) * SECTOR;
        let size = match options.bs {
            FrameSize::Full => frame,
            FrameSize::Bytes(bytes) => bytes,
        };
        ensure!(
            size > 0 && size.is_multiple_of(SECTOR) && size <= frame,
            "{size} bytes are no whole sectors, or more than the {frame} that a frame holds"
        );
        let places = found.size / (size / SECTOR) as u64;
        ensure!(places > 0, "the disk is too small for this load");
        // Beyond what the target buffers it drops, and one place in the tag is the flood's.
        let window = options.window.min(found.buffers).min(FLOOD as u16);
        let landing = size * usize::from(window.max(1));
        Ok(Self {
            head: wire::request_head(found.mac, packet.interface.mac, options.address),
            packet,
            outgoing,
            places: Places::new(places, &options.measure, 0),
            size,
            buffers: found.buffers,
            write: options.measure.rw.writes() || options.measure.fill,
            pattern: Area::new(size.next_multiple_of(4096), true)?,
            landing: match options.ring {
                true => Some(Area::new(landing.next_multiple_of(4096), true)?),
                false => None,
            },
            flights: vec![Flight::default(); usize::from(window)],
            outstanding: 0,
            // Tags of another run may still be under way, or remembered by the target.
            generation: std::process::id().wrapping_mul(0x9e37_79b1),
            retry: options.retry_ms * 1_000_000,
            tally: Tally::new(),
            resent: 0,
            flood_answers: 0,
            start: Instant::now(),
        })
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Adds what only AoE has.
    fn describe(&self, value: &mut Value) {
        value["window"] = json!(self.flights.len());
        value["buffers"] = json!(self.buffers);
        value["frame_bytes"] = json!(self.size);
        value["mtu"] = json!(self.packet.interface.mtu);
        value["retransmits"] = json!(self.resent);
        value["refused"] = json!(self.outgoing.refused);
        value["ring_drops"] = json!(self.packet.dropped());
    }

    /// Warm-up, window, and the rest of what is outstanding.
    fn measure(&mut self, measure: &Measure, target: Option<&Target>) -> Result<Window> {
        let warm_up = if measure.fill { FILL } else { measure.warm_up };
        self.load(warm_up)?;
        let resent = self.resent;
        let opened = Opened::now(&mut self.tally, target);
        self.load(measure.seconds)?;
        let window = opened.close(&mut self.tally);
        self.resent -= resent;
        self.turns(DRAIN, false)?;
        Ok(window)
    }

    /// Keeps the window full, and tells how far it is, until somebody ends it.
    fn tell(&mut self, mut status: Status, target: Option<&Target>) -> Result<Window> {
        let opened = Opened::now(&mut self.tally, target);
        while !status.is_over() {
            self.load(status.every())?;
            status.tell(&self.tally, None)?;
        }
        Ok(opened.close(&mut self.tally))
    }

    /// Keeps the window full for `time`.
    fn load(&mut self, time: Duration) -> Result<()> {
        let now = self.now();
        for place in 0..self.flights.len() {
            if !self.flights[place].outstanding {
                self.command(place, now)?;
            }
        }
        self.send()?;
        self.turns(time, true)
    }

    /// Turns until `time` is over, or until nothing is outstanding.
    fn turns(&mut self, time: Duration, refill: bool) -> Result<()> {
        let end = self.now() + time.as_nanos() as u64;
        let mut heard = self.now();
        let mut looked = heard;
        while self.outstanding > 0 {
            let now = self.now();
            if now >= end {
                break;
            }
            if self.answers(now, refill)? > 0 {
                heard = now;
                self.send()?;
            } else {
                self.packet.wait(Some(Duration::from_nanos(self.retry / 4)))?;
            }
            if now - looked > self.retry / 4 {
                looked = now;
                self.ask_again(now)?;
            }
            let silent = Duration::from_nanos(now.saturating_sub(heard));
            ensure!(silent < SILENCE, "the target has stopped answering");
        }
        Ok(())
    }

    /// Takes the answers that are in the ring; with `refill` each makes room for a new command.
    fn answers(&mut self, now: u64, refill: bool) -> Result<usize> {
        let mut taken = 0;
        self.packet.receive()?;
        // No more than a batch: a target that is faster than we would never let a turn end.
        while taken < BATCH {
            let Some(frame) = self.packet.front() else { break };
            let size = if self.write { 0 } else { self.size };
            let place = land(frame, &mut self.flights, self.landing.as_mut(), size)?;
            self.packet.release();
            taken += 1;
            match place {
                Landed::Of(place) => {
                    self.outstanding -= 1;
                    let since = self.flights[place].first;
                    self.tally.record(now.saturating_sub(since), self.write);
                    if refill {
                        self.command(place, now)?;
                    }
                }
                Landed::Flood => self.flood_answers += 1,
                Landed::Nothing => {}
            }
        }
        Ok(taken)
    }

    /// Sends copies of what has been outstanding for too long.
    fn ask_again(&mut self, now: u64) -> Result<()> {
        for place in 0..self.flights.len() {
            let flight = &mut self.flights[place];
            if flight.outstanding && now.saturating_sub(flight.last) > self.retry {
                flight.last = now;
                let (tag, lba) = (flight.tag, flight.lba);
                self.resent += 1;
                self.emit(tag, lba)?;
            }
        }
        self.send()
    }

    /// Puts a new command into a place of the window.
    #[inline]
    fn command(&mut self, place: usize, now: u64) -> Result<()> {
        let Some(lba) = self.lba() else { return Ok(()) };
        let tag = self.tag(place as u32);
        self.flights[place] = Flight { tag, lba, first: now, last: now, outstanding: true };
        self.outstanding += 1;
        self.emit(tag, lba)
    }

    #[inline]
    fn tag(&mut self, place: u32) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        (self.generation << PLACE_BITS | place) & 0x7fff_ffff
    }

    /// The next address; none when the disk has been filled.
    #[inline]
    fn lba(&mut self) -> Option<u64> {
        let place = self.places.next()?;
        Some(place * (self.size / SECTOR) as u64)
    }

    /// Appends a command to the batch, sending it first if it is full.
    #[inline]
    fn emit(&mut self, tag: u32, lba: u64) -> Result<()> {
        if self.outgoing.is_full() {
            self.send()?;
        }
        let head = self.outgoing.head();
        *head = self.head;
        wire::ask_transfer(head, tag, self.write, lba, (self.size / SECTOR) as u8);
        if self.write {
            let data = self.pattern.at(0, self.size).expect("the pattern has a frame's size");
            // SAFETY: the pattern lives as long as the batch.
            unsafe { self.outgoing.push_with(ATA_HEAD, data, self.size) };
        } else {
            self.outgoing.push();
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.outgoing.send(&self.packet.socket).context("sendmmsg")
    }

    /// Measures the peak, floods, and measures again a second after the flood has ended.
    fn overload(&mut self, measure: &Measure, target: Option<&Target>) -> Result<Value> {
        let iops = |window: &Window| window.tally.ops as f64 / window.time.as_secs_f64();
        let peak = iops(&self.measure(measure, target)?);
        let opened = Instant::now();
        let offered = self.flood(measure.seconds)?;
        let flooded = opened.elapsed().as_secs_f64();
        let answered = self.flood_answers as f64 / flooded;
        // The load is back at once; what is asked is how fast it is served after a second.
        let back = Instant::now();
        self.load(RECOVERY)?;
        let after =
            self.measure(&Measure { warm_up: Duration::ZERO, ..measure.clone() }, target)?;
        let mut value = json!({
            "peak_iops": peak,
            "offered_per_second": offered as f64 / flooded,
            "overload_iops": answered,
            "overload_share": answered / peak,
            "after_iops": iops(&after),
            "after_share": iops(&after) / peak,
            "after_seconds": back.elapsed().as_secs_f64() - after.time.as_secs_f64(),
        });
        self.describe(&mut value);
        Ok(value)
    }

    /// Sends as fast as it can for `time`, waiting for nothing; returns the commands that it sent.
    fn flood(&mut self, time: Duration) -> Result<u64> {
        let end = Instant::now() + time;
        let mut sent = 0;
        self.flood_answers = 0;
        while Instant::now() < end {
            for _ in 0..BURST {
                let Some(lba) = self.lba() else { bail!("a flood fills no disk") };
                let tag = self.tag(FLOOD);
                self.emit(tag, lba)?;
                sent += 1;
            }
            self.send()?;
            let now = self.now();
            self.answers(now, false)?;
        }
        Ok(sent)
    }
}

/// Whose an answer was.
enum Landed {
    /// Of this place in the window, which is free now.
    Of(usize),
    /// Of a command of a flood.
    Flood,
    /// Of nobody who waits: a copy, or another's.
    Nothing,
}

/// Finds the place of an answer, checks that it brings `size` bytes, and puts them down.
#[inline]
fn land(
    frame: &[u8],
    flights: &mut [Flight],
    landing: Option<&mut Area>,
    size: usize,
) -> Result<Landed> {
    let Some(answer) = wire::response(frame) else { return Ok(Landed::Nothing) };
    let Body::Ata(data) = answer.body else { return Ok(Landed::Nothing) };
    let place = (answer.tag & FLOOD) as usize;
    if place == FLOOD as usize {
        return Ok(Landed::Flood);
    }
    let Some(flight) = flights.get_mut(place) else { return Ok(Landed::Nothing) };
    if !flight.outstanding || flight.tag != answer.tag {
        return Ok(Landed::Nothing);
    }
    if !answer.success {
        bail!(
            "command {:#x} at LBA {} was refused: {:02x?}",
            flight.tag,
            flight.lba,
            &frame[14..28]
        );
    }
    let data = data.get(..size).context("an answer is shorter than what was asked")?;
    if let Some(landing) = landing {
        landing.store(place * size, data);
    }
    flight.outstanding = false;
    Ok(Landed::Of(place))
}

/// Asks until the target has said where it is, what it takes, and how large it is.
fn find(packet: &mut Packet, outgoing: &mut Outgoing, address: Address) -> Result<Found> {
    let end = Instant::now() + DISCOVERY;
    let mut config: Option<(Mac, u16, u8)> = None;
    let tag = std::process::id() & 0x7fff_ffff;
    loop {
        ensure!(
            Instant::now() < end,
            "{}.{} does not answer on this interface",
            address.shelf,
            address.slot
        );
        let to = config.map_or(BROADCAST, |(mac, _, _)| mac);
        let mut head = wire::request_head(to, packet.interface.mac, address);
        match config {
            None => wire::ask_config(&mut head),
            Some(_) => wire::ask_identify(&mut head, tag),
        }
        *outgoing.head() = head;
        outgoing.push();
        outgoing.send(&packet.socket)?;
        packet.wait(Some(ASK_AGAIN))?;
        packet.receive()?;
        while let Some(frame) = packet.front() {
            let seen = wire::response(frame);
            match seen.as_ref().map(|answer| &answer.body) {
                Some(Body::Config { buffers, sectors }) if config.is_none() => {
                    let from = seen.as_ref().map_or(BROADCAST, |answer| answer.from);
                    config = Some((from, *buffers, if *sectors == 0 { 2 } else { *sectors }));
                }
                Some(Body::Ata(data)) => {
                    let ours = seen.as_ref().is_some_and(|seen| seen.tag == tag && seen.success);
                    if let (true, Some((mac, buffers, sectors)), Some(size)) =
                        (ours, config, wire::identified(data))
                    {
                        packet.release();
                        return Ok(Found { mac, buffers, sectors, size });
                    }
                }
                _ => {}
            }
            packet.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::wire::FRAME_MIN;
    use super::*;

    #[test]
    fn a_size_is_a_number_of_bytes_or_a_full_frame() {
        assert_eq!(parse_frame("full").ok(), Some(FrameSize::Full));
        assert_eq!(parse_frame("1k").ok(), Some(FrameSize::Bytes(1024)));
    }

    #[test]
    fn a_disk_is_an_interface_and_an_address() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            options: Options,
        }
        let parse = |args: &[&str]| <Cli as clap::Parser>::try_parse_from([&["x"], args].concat());
        let disk = |uri: &str| {
            let mut options = parse(&["--disk", uri]).expect("it parses").options;
            options.take_disk().map(|()| (options.interface, options.address))
        };
        let (interface, address) = disk("aoe://lab-near/7.1").expect("good");
        assert_eq!((&*interface, address.shelf, address.slot), ("lab-near", 7, 1));
        for wrong in
            ["aoe:lab-near/7.0", "aoe://a,b/7.0", "aoe://pw:a/7.0", "aoe:///7.0", "aoe://a/7"]
        {
            let why = disk(wrong).expect_err("wrong").to_string();
            assert!(why.contains("SHELF.SLOT, seen"), "{why}");
        }
        assert!(parse(&["--disk", "aoe://a/7.0", "--interface", "a"]).is_err());
        assert!(
            parse(&[]).is_err() && parse(&["--disk", "aoe://a/7.0", "--numjobs", "2"]).is_err()
        );
    }

    fn answer(tag: u32, data: usize, done: bool) -> Vec<u8> {
        let own = Address { shelf: 7, slot: 0 };
        let mut asked = wire::request_head([2; 6], [4; 6], own);
        wire::ask_transfer(&mut asked, tag, false, 0, 1);
        let mut head = [0; FRAME_MIN];
        wire::ata_answer(&mut head, &asked, own, [2; 6], done);
        let mut frame = head[..ATA_HEAD].to_vec();
        frame.resize((ATA_HEAD + data).max(FRAME_MIN), 0x77);
        frame
    }

    fn flights(tag: u32) -> Vec<Flight> {
        vec![Flight { tag, outstanding: true, ..Flight::default() }]
    }

    #[test]
    fn an_answer_frees_its_place_once_and_leaves_its_data() {
        let mut landing = Area::new(4096, true).expect("memory");
        let mut flights = flights(3 << PLACE_BITS);
        let frame = answer(3 << PLACE_BITS, 512, true);
        let mut land = || land(&frame, &mut flights, Some(&mut landing), 512).expect("no error");
        assert!(matches!(land(), Landed::Of(0)));
        assert!(matches!(land(), Landed::Nothing));
        assert_eq!(landing.bytes(0, 512), [0x77; 512]);
    }

    #[test]
    fn answers_of_others_are_left_alone_and_refusals_end_the_run() {
        let mut landing = Area::new(4096, true).expect("memory");
        let mut flights = flights(3 << PLACE_BITS);
        let mut land = |frame: &[u8]| land(frame, &mut flights, Some(&mut landing), 512);
        let other = answer(2 << PLACE_BITS, 512, true);
        assert!(matches!(land(&other), Ok(Landed::Nothing)));
        assert!(matches!(land(&answer(FLOOD, 512, true)), Ok(Landed::Flood)));
        assert!(matches!(land(&answer(900, 512, true)), Ok(Landed::Nothing)));
        assert!(land(&answer(3 << PLACE_BITS, 512, false)).is_err());
        assert!(land(&answer(3 << PLACE_BITS, 0, true)).is_err());
    }
}
