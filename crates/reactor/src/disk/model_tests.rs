//! Models against theory and against data sheets, on a clock that is turned by hand.
//!
//! Where theory gives a mean, the tolerance comes from the run itself: it is cut into batches, which
//! are long beside what one request still knows of another, and the mean of their means lies within
//! four of its standard errors (one run in 16,000 would not; the seeds are fixed). A bound on that
//! error says that the run was long enough to notice anything.

use block::{Instant, Operation};

use super::mechanism::{Asked, Mechanism};
use super::*;

const PAGE: u64 = 4096;
/// A disk of 1 TB.
const SIZE: ByteCount = ByteCount(1_000_000_000_000);

fn extent(offset: u64) -> Extent {
    Extent::new(offset, PAGE)
}

/// A page anywhere.
fn anywhere(random: &mut Random) -> Extent {
    extent(random.below(SIZE.0 / PAGE) * PAGE)
}

fn us(at: Instant) -> f64 {
    at.0 as f64 / 1e3
}

/// The mean of samples and its standard error, from fifty batches of them.
fn mean_and_error(samples: &[f64]) -> (f64, f64) {
    const BATCHES: usize = 50;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let means: Vec<f64> = samples.chunks_exact(samples.len() / BATCHES).map(mean).collect();
    let whole = mean(&means);
    let squares: f64 = means.iter().map(|one| (one - whole).powi(2)).sum();
    (whole, (squares / (means.len() - 1) as f64 / means.len() as f64).sqrt())
}

/// The mean of samples is this one, as far as they can tell, which is to `precision` of it.
fn is_mean(what: &str, samples: &[f64], expected: f64, precision: f64) {
    let (mean, error) = mean_and_error(samples);
    assert!(4.0 * error < precision * expected, "{what}: {error} says too little about {expected}");
    assert!(
        (mean - expected).abs() < 4.0 * error + expected * 1e-5,
        "{what}: expected {expected}, seen {mean} with an error of {error}"
    );
}

/// The mean response of M/M/c by Erlang C, where a service takes 1.
fn erlang_response(servers: u32, utilisation: f64) -> f64 {
    let load = utilisation * f64::from(servers);
    // Erlang B by its recursion, and C from it.
    let blocked = (1..=servers).fold(1.0, |b, n| load * b / (f64::from(n) + load * b));
    let waits = blocked / (1.0 - utilisation * (1.0 - blocked));
    1.0 + waits / (f64::from(servers) * (1.0 - utilisation))
}

#[test]
fn erlang_c_of_one_and_two_servers_has_a_short_form() {
    for utilisation in [0.3, 0.6, 0.9] {
        let one = erlang_response(1, utilisation);
        assert!((one - 1.0 / (1.0 - utilisation)).abs() < 1e-12, "{one}");
        let two = erlang_response(2, utilisation);
        assert!((two - 1.0 / (1.0 - utilisation * utilisation)).abs() < 1e-12, "{two}");
    }
}

#[test]
fn requests_at_random_wait_as_in_theory() {
    const SERVICE_US: u64 = 1_000;
    const REQUESTS: usize = 1_000_000;
    for channels in [1, 2, 4] {
        for utilisation in [0.3, 0.6, 0.9] {
            let service = Spread::Exponential;
            let model = Model { channels, service, service_us: SERVICE_US, ..Model::PLAIN };
            let mut mechanism = Mechanism::new(model);
            let mut random = Random::new(channels ^ 0x5eed);
            let gap_us = SERVICE_US as f64 / (utilisation * channels as f64);
            let (mut now, mut responses, mut last) = (Instant(0), Vec::new(), Instant(0));
            let mut gaps = Vec::new();
            for _ in 0..REQUESTS {
                let gap = drawn(Spread::Exponential, 1_000_000, Luck::draw(&mut random).service);
                let gap = micros(gap / 1e6 * gap_us);
                gaps.push(gap.as_secs_f64() * 1e6);
                now = now + gap;
                let done = mechanism.accept(now, Asked::Read(extent(0)), SIZE, &mut ()).until;
                responses.push(us(Instant(done.0 - now.0)));
                last = last.max(done);
            }
            let what = format!("{channels} channels at {utilisation}");
            is_mean(&format!("{what}, gap"), &gaps, gap_us, 0.01);
            let expected = erlang_response(channels as u32, utilisation) * SERVICE_US as f64;
            is_mean(&what, &responses, expected, 0.15);
            // What the channels did, of what they could have done: each gap and each service
            // has a deviation of its mean, so the ratio of their sums has one of sqrt(2 / n).
            let busy = busy_us(&model, REQUESTS) / (us(last) * channels as f64);
            let tolerance = 4.0 * utilisation * (2.0 / REQUESTS as f64).sqrt();
            assert!((busy - utilisation).abs() < tolerance, "{what}: busy for {busy}");
        }
    }
}

/// The sum of what so many requests draw of a model, which is the same whenever they come.
fn busy_us(model: &Model, requests: usize) -> f64 {
    let mut random = Random::new(model.seed);
    let drawn = |luck: Luck| drawn(model.service, model.service_us, luck.service);
    (0..requests).map(|_| drawn(Luck::draw(&mut random))).sum()
}

/// When the last of so many requests is done, of which `depth` are always out.
fn closed_loop(model: Model, depth: usize, requests: usize) -> Instant {
    let mut mechanism = Mechanism::new(model);
    let mut out = vec![Instant(0); depth];
    for _ in 0..requests {
        // The one that comes back first asks again.
        let first = (0..depth).min_by_key(|one| out[*one]).unwrap();
        out[first] = mechanism.accept(out[first], Asked::Read(extent(0)), SIZE, &mut ()).until;
    }
    out.into_iter().max().unwrap()
}

#[test]
fn a_closed_loop_gets_what_its_depth_and_the_channels_allow() {
    const REQUESTS: usize = 12_000;
    for channels in [1, 2, 4] {
        for depth in [1, 2, 3, 4, 6, 12] {
            let model = Model { channels, service_us: 250, ..Model::PLAIN };
            let at_once = channels.min(depth as u64);
            let took = closed_loop(model, depth, REQUESTS);
            assert_eq!(us(took), 250.0 * REQUESTS as f64 / at_once as f64, "{channels} {depth}");
            // However long they take, where none waits for another each channel is always busy.
            for service in [Spread::Uniform, Spread::Exponential] {
                let took = us(closed_loop(Model { service, ..model }, depth, REQUESTS));
                let expected = 250.0 * REQUESTS as f64 / at_once as f64;
                // An exponential time deviates by its mean, and the last one is waited for.
                let tolerance = 4.0 / (REQUESTS as f64).sqrt();
                let ratio = took / expected;
                assert!((ratio - 1.0).abs() < tolerance, "{channels} {depth}: {took}");
            }
        }
    }
}

#[test]
fn spreads_keep_their_mean() {
    for spread in [Spread::Constant, Spread::Uniform, Spread::Exponential] {
        let mut random = Random::new(3);
        let mut one = || drawn(spread, 400, Luck::draw(&mut random).service);
        let samples: Vec<f64> = (0..200_000).map(|_| one()).collect();
        is_mean(&format!("{spread:?}"), &samples, 400.0, 0.02);
        let longest = samples.iter().fold(0f64, |a, b| a.max(*b));
        let expected = match spread {
            Spread::Constant => 400.0..=400.0,
            Spread::Uniform => 799.0..=800.0,
            Spread::Exponential => 3_000.0..=37.0 * 400.0,
        };
        assert!(expected.contains(&longest), "{spread:?}: {longest}");
    }
}

/// What requests one after the other take, in microseconds.
fn one_by_one(
    name: &str,
    requests: usize,
    mut next: impl FnMut(usize) -> Asked<'static>,
) -> Vec<f64> {
    let mut mechanism = Mechanism::new(Model::named(name).expect(name));
    let mut now = Instant(0);
    let one = |number| {
        let done = mechanism.accept(now, next(number), SIZE, &mut ()).until;
        us(Instant(done.0 - std::mem::replace(&mut now, done).0))
    };
    (0..requests).map(one).collect()
}

#[test]
fn random_reads_of_a_hard_disk_seek_wait_half_a_turn_and_move_their_bytes() {
    for (name, seek, turn) in
        [("hdd-10k", 4_500.0, 6_000.0), ("hdd-5400", 12_000.0, 60e6 / 5_400.0)]
    {
        let mut random = Random::new(11);
        let reads = one_by_one(name, 50_000, |_| Asked::Read(anywhere(&mut random)));
        let expected = seek + turn / 2.0 + 40.96;
        is_mean(name, &reads, expected, 0.01);
        let most = reads.iter().fold(0f64, |a, b| a.max(*b));
        let model = Model::named(name).unwrap();
        assert!(most <= seek_us(&model, 1.0) + turn + 41.0, "{name}: {most}");
        let extra = model.seek_write_us as f64;
        let writes = one_by_one(name, 50_000, |_| Asked::Write(anywhere(&mut random)));
        is_mean(&format!("{name}, writes"), &writes, expected + extra, 0.01);
    }
    // About 133 a second.
    let mut random = Random::new(12);
    let reads = one_by_one("hdd-10k", 50_000, |_| Asked::Read(anywhere(&mut random)));
    let a_second = 1e6 / mean_and_error(&reads).0;
    assert!((131.0..134.5).contains(&a_second), "{a_second}");
}

#[test]
fn what_continues_neither_seeks_nor_waits_for_the_platter() {
    for asked in [Asked::Read, Asked::Write as fn(Extent) -> Asked<'static>] {
        let times = one_by_one("hdd-10k", 10_000, |number| asked(extent(number as u64 * PAGE)));
        // From the first one on: at first the arm is at the beginning.
        let rate_mb_s = PAGE as f64 * times.len() as f64 / times.iter().sum::<f64>();
        assert!((99.9..100.1).contains(&rate_mb_s), "{rate_mb_s}");
    }
    // The same page again has just passed by.
    let again = one_by_one("hdd-10k", 10_000, |_| Asked::Read(extent(0)));
    is_mean("again", &again[1..], 400.0 + 3_000.0 + 40.96, 0.05);
}

#[test]
fn streams_keep_a_channel_each_where_there_are_enough() {
    let model = Model { channels: 2, ..Model::named("hdd-10k").unwrap() };
    let mut mechanism = Mechanism::new(model);
    let (mut random, mut now) = (Random::new(1), Instant(0));
    let mut next = [0, SIZE.0 / 2];
    // Whichever of both asks, and however often in a row.
    for number in 0..1_000 {
        let stream = &mut next[usize::from(random.chance(1, 2))];
        let done = mechanism.accept(now, Asked::Read(extent(*stream)), SIZE, &mut ()).until;
        let took = us(Instant(done.0 - std::mem::replace(&mut now, done).0));
        assert!(*stream == SIZE.0 / 2 || took == 40.96, "{number}: {took}");
        *stream += PAGE;
    }
}

#[test]
fn an_ssd_does_what_its_class_does() {
    let ssd = Model::named("ssd").unwrap();
    let reads = one_by_one("ssd", 100, |number| Asked::Read(extent(number as u64 * 7 * PAGE)));
    assert!(reads.iter().all(|one| (102.0..104.0).contains(one)), "{reads:?}");
    let writes = one_by_one("ssd", 100, |number| Asked::Write(extent(number as u64 * PAGE)));
    assert!(writes.iter().all(|one| (222.0..224.0).contains(one)), "{writes:?}");
    let a_second = 80_000.0 / closed_loop(ssd, 32, 80_000).0 as f64 * 1e9;
    assert!((77_000.0..78_500.0).contains(&a_second), "{a_second}");
}

#[test]
fn a_seek_over_a_part_of_the_disk_grows_with_its_square_root() {
    let model = Model::named("hdd-10k").unwrap();
    let full = 400.0 + 4_100.0 * 15.0 / 8.0;
    for (part, expected) in [(0.0, 400.0), (0.25, (400.0 + full) / 2.0), (1.0, full), (7.0, full)] {
        assert!((seek_us(&model, part) - expected).abs() < 1e-9, "{part}");
    }
}

#[test]
fn a_flush_waits_for_what_came_before_and_holds_nobody_up() {
    let model = Model { channels: 2, service_us: 100, trim_us: 30, ..Model::PLAIN };
    let mut mechanism = Mechanism::new(model);
    let mut at =
        |now: u64, asked| us(mechanism.accept(Instant(now * 1_000), asked, SIZE, &mut ()).until);
    assert_eq!(at(5, Asked::Flush), 5.0, "of nothing");
    let three: Vec<f64> = (0..3).map(|_| at(10, Asked::Write(extent(0)))).collect();
    assert_eq!(three, [110.0, 110.0, 210.0]);
    assert_eq!(at(20, Asked::Flush), 210.0);
    assert_eq!(at(30, Asked::Read(extent(0))), 210.0, "the other channel is free at 110");
    assert_eq!(at(40, Asked::Nothing), 40.0, "it does not wait");
    assert_eq!(at(50, Asked::Trim(&[])), 240.0, "it takes a channel");
    assert_eq!(at(300, Asked::Flush), 300.0);
}

#[test]
fn each_operation_asks_for_what_a_medium_would_do() {
    use block::{Buffer, Sought};
    let (extent, buffer) = (extent(0), Buffer::empty);
    let zeroes = |deallocate| Operation::WriteZeroes { extent, deallocate, durable: true };
    for (operation, asked) in [
        (Operation::Read { extent, buffer: buffer() }, Asked::Read(extent)),
        (Operation::Compare { extent, buffer: buffer() }, Asked::Read(extent)),
        (Operation::Verify { extent }, Asked::Read(extent)),
        (Operation::Write { extent, buffer: buffer(), durable: false }, Asked::Write(extent)),
        (Operation::Write { extent, buffer: buffer(), durable: true }, Asked::Durable(extent)),
        (zeroes(false), Asked::Durable(extent)),
        (zeroes(true), Asked::Trim(&[extent])),
        (Operation::Discard { extents: vec![extent] }, Asked::Trim(&[extent])),
        (Operation::Flush, Asked::Flush),
        (Operation::Seek { extent, sought: Sought::Data }, Asked::Nothing),
    ] {
        assert_eq!(Asked::by(&operation), asked, "{operation:?}");
    }
}

#[test]
fn the_seed_decides() {
    let times = |seed| {
        let mut mechanism = Mechanism::new(Model { seed, ..Model::named("hdd-10k").unwrap() });
        let mut random = Random::new(5);
        let mut one = |at| {
            mechanism.accept(Instant(at), Asked::Read(anywhere(&mut random)), SIZE, &mut ()).until
        };
        (0..1_000).map(|turn| one(turn * 1_000_000)).collect::<Vec<_>>()
    };
    assert_eq!(times(1), times(1));
    assert_ne!(times(1), times(2));
}

#[test]
fn the_longest_times_do_not_end_the_clock() {
    let model = Model {
        service: Spread::Exponential,
        service_us: MODEL_US_MAX,
        seek_us: MODEL_US_MAX,
        rpm: 1,
        rate_mb_s: 1,
        ..Model::PLAIN
    };
    let mut mechanism = Mechanism::new(model);
    let far = Extent::new(u64::MAX / 2, u64::MAX / 2);
    for _ in 0..100 {
        let done = mechanism.accept(Instant(1), Asked::Write(far), ByteCount(0), &mut ()).until;
        assert!(done > Instant(1));
    }
}

#[test]
fn the_named_models_keep_to_the_bounds() {
    for (name, model) in Model::NAMED {
        assert!((1..=MODEL_CHANNELS_MAX).contains(&model.channels), "{name}");
        assert!(model.seek_track_us <= model.seek_us && model.seek_us <= MODEL_US_MAX, "{name}");
        assert!(model.rpm <= MODEL_RPM_MAX && model.rate_mb_s <= MODEL_MB_S_MAX, "{name}");
        assert_eq!(Model::named(name), Some(model));
    }
    assert_eq!(Model::named("hdd"), None);
}
