//! What happens in a run, drawn from its seed. Time is virtual: nothing happens between two events.

use core::time::Duration;
use std::collections::BTreeMap;

use bfd::{Carrier, DropReason, Event, SessionState, Sessions, Settings};
use block::{Instant, Random};
use wire::bfd::{ControlPacket, Diagnostic};

use super::oracle::{Judge, Tally};
use super::{BOUND, CARRIERS, draw_settings};

const STORM_STEPS: usize = 60;
/// The longest detection time, in which a peer that began anew is forgotten (1 of 5 intervals of 2 s),
/// and six intervals, in which Down, Init and Up and what else is on its way arrive.
const CALM: Duration = Duration::from_secs(22);
/// What is usual, and what a machine does that has no time for us.
const LATENESS_NS: [u64; 2] = [200_000, 500_000_000];
const DRIZZLE_STEPS: usize = 12;

/// A packet on its way to an end.
struct Flight {
    to: usize,
    carrier: usize,
    bytes: [u8; ControlPacket::SIZE],
}

/// What the network does to packets.
#[derive(Clone, Copy)]
struct Weather {
    /// Chances in 1000.
    lost: u64,
    repeated: u64,
    astray: u64,
    is_cut: bool,
    delay: Duration,
    /// How much longer some take.
    delay_more: Duration,
}

impl Weather {
    fn fair(delay: Duration) -> Self {
        let delay_more = Duration::ZERO;
        Self { lost: 0, repeated: 0, astray: 0, is_cut: false, delay, delay_more }
    }
}

/// A machine.
struct End {
    sessions: Sessions,
    settings: [Settings; CARRIERS],
    judges: [Judge; CARRIERS],
    /// It does not run until then, and what comes meanwhile waits or is lost.
    stalled: Option<(Instant, bool)>,
    backlog: Vec<(usize, [u8; ControlPacket::SIZE])>,
    /// When it wanted to be called, and when it will be.
    asked: Option<Instant>,
    wake: Option<Instant>,
    /// By how much it is called late at most, each time, but when it is punctual.
    lateness_ns: u64,
}

struct World {
    random: Random,
    now: Instant,
    ends: [End; 2],
    /// By the end from which packets come.
    weather: [Weather; 2],
    /// What it is when it is calm.
    fair: Weather,
    flights: BTreeMap<(Instant, u64), Flight>,
    launched: u64,
    /// What the other end knows of the multiplier, and how many packets in a row were lost, by end
    /// and carrier from which they come.
    rows: [[(u8, u8); CARRIERS]; 2],
    /// Packets are lost, and all else goes well: nobody may go down.
    is_drizzle: bool,
    /// The storm is over: both ends are called when they want to be.
    is_punctual: bool,
    tally: Tally,
}

/// Runs a seed; an error is the first promise that was broken.
pub(crate) fn run(seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let ends = [0, 1].map(|end| {
        let settings = core::array::from_fn(|carrier| draw_settings(&mut random, end, carrier));
        End {
            sessions: Sessions::new(0),
            settings,
            judges: settings.map(Judge::new),
            stalled: None,
            backlog: Vec::new(),
            asked: None,
            wake: None,
            lateness_ns: LATENESS_NS[0],
        }
    });
    // Longer or shorter than it takes until the next packet.
    let fair = Weather::fair(Duration::from_millis([1, 3, 15, 60][random.below(4) as usize]));
    let mut world = World {
        random,
        fair,
        now: Instant(1_000_000_000),
        ends,
        weather: [fair; 2],
        flights: BTreeMap::new(),
        launched: 0,
        rows: [[(1, 0); CARRIERS]; 2],
        is_drizzle: false,
        is_punctual: false,
        tally: Tally::default(),
    };
    world.restart(0)?;
    world.restart(1)?;
    for _ in 0..STORM_STEPS {
        world.storm()?;
    }
    world.calm()?;
    for _ in 0..DRIZZLE_STEPS {
        world.drizzle()?;
    }
    world.calm()?;
    for end in [0, 1] {
        (0..CARRIERS).for_each(|carrier| world.end_session(end, carrier));
    }
    Ok(world.tally)
}

impl World {
    fn storm(&mut self) -> Result<(), String> {
        let pause = self.draw_time(12);
        self.pass(pause)?;
        let end = self.random.below(2) as usize;
        let carrier = self.random.below(CARRIERS as u64) as usize;
        let is_running = self.ends[end].stalled.is_none();
        match self.random.below(20) {
            0..5 => self.weather[end] = self.draw_weather(),
            5..7 => self.weather[end].is_cut = true,
            7..10 => self.weather = [self.fair; 2],
            10..12 if is_running => self.stall(end),
            19 => self.ends[end].lateness_ns = LATENESS_NS[self.random.below(2) as usize],
            12 if is_running => self.restart(end)?,
            13 if is_running => {
                self.end_session(end, carrier);
                self.begin(end, carrier);
                self.turn(end, &[])?;
            }
            14 if is_running => {
                let why = if self.random.chance(1, 2) {
                    Diagnostic::PATH_DOWN
                } else {
                    Diagnostic::ADMINISTRATIVELY_DOWN
                };
                self.ends[end].sessions.admin_down(self.now, Carrier(carrier as u64), why);
                self.turn(end, &[])?;
            }
            15 if is_running => {
                self.ends[end].sessions.admin_up(self.now, Carrier(carrier as u64));
                self.turn(end, &[])?;
            }
            16..19 if is_running => self.change(end, carrier)?,
            _ => {}
        }
        Ok(())
    }

    /// All is well for as long as it takes, and everything is up and has nothing to ask.
    fn calm(&mut self) -> Result<(), String> {
        (self.is_drizzle, self.is_punctual) = (false, true);
        self.weather = [self.fair; 2];
        for end in [0, 1] {
            while let Some((until, _)) = self.ends[end].stalled {
                self.pass(until.since(self.now))?;
            }
            for carrier in 0..CARRIERS as u64 {
                self.ends[end].sessions.admin_up(self.now, Carrier(carrier));
            }
            self.turn(end, &[])?;
        }
        self.pass(CALM)?;
        for (at, end) in self.ends.iter().enumerate() {
            for (carrier, settings, status, ..) in end.sessions.iter() {
                if status.state != SessionState::Up || status.is_polling {
                    return Err(format!("end {at} {carrier:?} after a calm: {status:?}"));
                }
                let peers = self.ends[1 - at].settings[carrier.0 as usize];
                let interval_us =
                    settings.desired_min_tx_interval_us.max(peers.required_min_rx_interval_us);
                if status.transmit_interval != Duration::from_micros(interval_us.into()) {
                    return Err(format!("end {at} {carrier:?} wants {interval_us}: {status:?}"));
                }
            }
        }
        Ok(())
    }

    /// Packets are lost and repeated, and intervals change. Delays do not: where all packets but one
    /// of a detection time are lost, that one has no time to spare.
    fn drizzle(&mut self) -> Result<(), String> {
        self.is_drizzle = true;
        let lost = self.random.below(700);
        self.weather = [Weather { lost, repeated: 50, ..self.fair }; 2];
        for _ in 0..1 + self.random.below(3) {
            let end = self.random.below(2) as usize;
            let carrier = self.random.below(CARRIERS as u64) as usize;
            self.change(end, carrier)?;
            let pause = self.draw_time(11);
            self.pass(pause)?;
        }
        let pause = self.draw_time(13);
        self.pass(pause)
    }

    /// Up to so many bits of milliseconds, of each length as often.
    fn draw_time(&mut self, bits: u64) -> Duration {
        let most = 1 << self.random.below(bits);
        Duration::from_millis(1 + self.random.below(most))
    }

    fn draw_weather(&mut self) -> Weather {
        let random = &mut self.random;
        Weather {
            lost: [0, 100, 300, 800][random.below(4) as usize],
            repeated: [0, 100][random.below(2) as usize],
            astray: [0, 200][random.below(2) as usize],
            is_cut: false,
            delay: Duration::from_micros(10 + random.below(20_000)),
            delay_more: Duration::from_micros(random.below(60_000)),
        }
    }

    /// An end does not run for a while.
    fn stall(&mut self, end: usize) {
        let time = self.draw_time(13);
        self.ends[end].stalled = Some((self.now + time, self.random.chance(1, 2)));
    }

    /// An end begins anew, with nothing but what is wanted of it.
    fn restart(&mut self, end: usize) -> Result<(), String> {
        (0..CARRIERS).for_each(|carrier| self.end_session(end, carrier));
        self.ends[end].sessions = Sessions::new(self.random.next_u64());
        self.ends[end].asked = None;
        for carrier in 0..CARRIERS {
            self.begin(end, carrier);
        }
        self.turn(end, &[])
    }

    fn end_session(&mut self, end: usize, carrier: usize) {
        let sessions = &mut self.ends[end].sessions;
        let ended = sessions.iter().find(|(it, ..)| it.0 as usize == carrier);
        let excused = ended.map_or(0, |(.., counters, _)| counters.stalls_forgiven);
        self.tally.excused += excused;
        sessions.remove(self.now, Carrier(carrier as u64));
    }

    fn begin(&mut self, end: usize, carrier: usize) {
        let End { sessions, settings, judges, .. } = &mut self.ends[end];
        let added = sessions.add(self.now, Carrier(carrier as u64), settings[carrier]);
        added.expect("the carrier has none");
        judges[carrier] = Judge::new(settings[carrier]);
    }

    /// Other intervals are wanted, and another multiplier.
    fn change(&mut self, end: usize, carrier: usize) -> Result<(), String> {
        let settings = draw_settings(&mut self.random, end, carrier);
        let one = &mut self.ends[end];
        let set = one.sessions.set(self.now, Carrier(carrier as u64), settings);
        set.expect("they are within bounds");
        one.settings[carrier] = settings;
        one.judges[carrier].set(settings);
        self.turn(end, &[])
    }

    /// Time passes, and what is due happens, arrivals first.
    fn pass(&mut self, time: Duration) -> Result<(), String> {
        let until = self.now + time;
        loop {
            let flight = self.flights.first_key_value().map(|(key, _)| *key);
            let wakes = self.ends.iter().enumerate().filter_map(|(at, end)| {
                let wake = end.stalled.map_or(end.wake, |(until, _)| Some(until));
                wake.map(|wake| (wake, at))
            });
            let wake = wakes.min();
            let next = Instant::earliest(flight.map(|(at, _)| at), wake.map(|(at, _)| at));
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            match (flight, wake) {
                (Some(key), _) if key.0 == next => {
                    let flight = self.flights.remove(&key).expect("it was just seen");
                    self.arrive(&flight)?;
                }
                (_, Some((_, end))) => {
                    self.ends[end].stalled = None;
                    let backlog = core::mem::take(&mut self.ends[end].backlog);
                    self.turn(end, &backlog)?;
                }
                _ => unreachable!("something is next"),
            }
        }
        self.now = until;
        Ok(())
    }

    fn arrive(&mut self, flight: &Flight) -> Result<(), String> {
        let packet = (flight.carrier, flight.bytes);
        match self.ends[flight.to].stalled {
            Some((_, true)) => self.ends[flight.to].backlog.push(packet),
            Some((_, false)) => {}
            None => self.turn(flight.to, &[packet])?,
        }
        Ok(())
    }

    /// An end runs: reads what has come, and does what is due.
    fn turn(
        &mut self,
        at: usize,
        packets: &[(usize, [u8; ControlPacket::SIZE])],
    ) -> Result<(), String> {
        let turned = self.try_turn(at, packets);
        turned.map_err(|what| format!("at {:?} end {at}: {what}", Duration::from_nanos(self.now.0)))
    }

    fn try_turn(
        &mut self,
        at: usize,
        packets: &[(usize, [u8; ControlPacket::SIZE])],
    ) -> Result<(), String> {
        let now = self.now;
        let gap = self.ends[at].asked.map_or(Duration::ZERO, |asked| now.since(asked));
        for (carrier, bytes) in packets {
            self.show(at, *carrier, bytes)?;
        }
        let end = &mut self.ends[at];
        end.judges.iter_mut().for_each(|judge| judge.called(now, gap));
        end.sessions.handle_timeout(now);
        while let Some((carrier, event)) = end.sessions.poll_event() {
            match event {
                Event::Up => self.tally.ups += 1,
                Event::Down(Diagnostic::DETECTION_TIME_EXPIRED) => self.tally.expirations += 1,
                Event::Down(_) => self.tally.signaled += 1,
                Event::FirstHeard => {}
                Event::DiscriminatorChanged => self.tally.begun_anew += 1,
            }
            let judge = &mut end.judges[carrier.0 as usize];
            judge.told(now, event).map_err(|what| format!("{carrier:?} {what}"))?;
            if self.is_drizzle && matches!(event, Event::Down(_)) {
                return Err(format!("{carrier:?} {event:?}, and enough came"));
            }
        }
        for (carrier, _, status, ..) in end.sessions.iter() {
            let judge = &mut end.judges[carrier.0 as usize];
            judge.passed(status.state);
            judge.is(now, status.state).map_err(|what| format!("{carrier:?} {what}"))?;
            if (status.state == SessionState::Up) != judge.is_up {
                return Err(format!("{carrier:?} is {} and did not tell", status.state));
            }
        }
        while let Some((Carrier(carrier), bytes)) = self.ends[at].sessions.poll_transmit(now) {
            let packet = ControlPacket::receive(&bytes).map_err(|error| error.to_string())?.0;
            self.tally.sent += 1;
            self.tally.polls += u64::from(packet.state_flags.is_poll());
            let judge = &mut self.ends[at].judges[carrier as usize];
            let judged = judge.sent(now, packet, self.is_drizzle);
            judged.map_err(|what| format!("carrier {carrier} {what}"))?;
            self.launch(at, carrier as usize, packet, bytes);
        }
        let end = &mut self.ends[at];
        let lateness = if self.is_punctual { 0 } else { self.random.below(end.lateness_ns) };
        end.asked = end.sessions.poll_timeout();
        if end.asked.is_some_and(|asked| asked <= now) {
            return Err("wants to be called when it was".into());
        }
        end.wake = end.asked.map(|asked| asked + Duration::from_nanos(lateness));
        Ok(())
    }

    /// An end reads a packet.
    fn show(
        &mut self,
        at: usize,
        carrier: usize,
        bytes: &[u8; ControlPacket::SIZE],
    ) -> Result<(), String> {
        let end = &mut self.ends[at];
        let packet = ControlPacket::receive(bytes).map_err(|error| error.to_string())?.0;
        let by_discriminator = end
            .sessions
            .iter()
            .find(|(_, _, status, ..)| status.local_discriminator == packet.your_discriminator);
        let by_discriminator = by_discriminator.map(|(carrier, ..)| carrier.0 as usize);
        let taken = end.sessions.handle_packet(self.now, Carrier(carrier as u64), bytes);
        let expected = match packet.your_discriminator {
            0 => Some(carrier),
            _ => by_discriminator
                .filter(|home| *home == carrier || !end.settings[*home].is_carrier_bound),
        };
        match (taken, expected) {
            (Ok(Carrier(home)), Some(expected)) if home as usize == expected => {
                self.tally.taken += 1;
                end.judges[expected].took(self.now, packet, true);
            }
            (Err(DropReason::AdminDown), Some(expected)) => {
                end.judges[expected].took(self.now, packet, false);
            }
            (Err(DropReason::UnknownDiscriminator | DropReason::OtherCarrier), None) => {}
            _ => return Err(format!("{taken:?} of {packet} by {carrier}, not {expected:?}")),
        }
        if let Some(home) = expected {
            let status = end.sessions.status(Carrier(home as u64)).expect("it took a packet");
            end.judges[home].passed(status.state);
        }
        Ok(())
    }

    /// A packet leaves an end, and whatever the network makes of it arrives at the other.
    fn launch(
        &mut self,
        from: usize,
        carrier: usize,
        packet: ControlPacket,
        bytes: [u8; ControlPacket::SIZE],
    ) {
        let weather = self.weather[from];
        let (mult, in_row) = &mut self.rows[from][carrier];
        let may_lose = !self.is_drizzle || *in_row + 1 < *mult;
        if weather.is_cut || (may_lose && self.random.chance(weather.lost, 1000)) {
            *in_row = in_row.saturating_add(1);
            return;
        }
        (*mult, *in_row) = (packet.detect_mult, 0);
        for _ in 0..1 + u64::from(self.random.chance(weather.repeated, 1000)) {
            let mut delay = weather.delay;
            if weather.delay_more > Duration::ZERO {
                delay +=
                    Duration::from_nanos(self.random.below(weather.delay_more.as_nanos() as u64));
            }
            let mut by = carrier;
            if self.random.chance(weather.astray, 1000) {
                let other = self.random.below(CARRIERS as u64) as usize;
                // A packet to nobody that goes astray may join two strangers for good, where they
                // take packets by any carrier: RFC 5880 has nothing against that.
                if packet.your_discriminator != 0 || BOUND.contains(&other) {
                    by = other;
                }
            }
            self.launched += 1;
            let flight = Flight { to: 1 - from, carrier: by, bytes };
            self.flights.insert((self.now + delay, self.launched), flight);
        }
    }
}
