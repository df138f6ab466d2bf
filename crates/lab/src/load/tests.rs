//! Rules of the load, on a desk where time stands still unless it is waited for.

use super::*;
use crate::fake::Bench;
use crate::stamp::Finding;
use crate::workload::{Order, Sharing};

fn plan(random: bool, read_percent: u8, verify: bool) -> Plan {
    let workload = Workload {
        order: Order::of(random),
        read_percent,
        trim_percent: 0,
        block_bytes: 4096,
        sizes: None,
        sharing: Sharing::Parts,
        offset_bytes: 0,
        range_bytes: 1 << 20,
    };
    Plan {
        workload,
        jobs: 2,
        depth: 4,
        rate: None,
        warm_up: Duration::from_micros(100),
        time: Duration::from_millis(2),
        bytes_max: None,
        sync: false,
        fsync: None,
        arrivals: Arrivals::Fixed,
        whole: false,
        verify,
        seed: 42,
        draws: None,
    }
}

fn run(bench: &mut Bench, plan: Plan) -> Load {
    bench.run(Load::new(plan, Place(0), 0, 1, Arc::default()))
}

#[test]
fn a_closed_loop_keeps_its_depth_and_counts_the_window_only() {
    let mut bench = Bench::new(&[1 << 20]);
    let progress = Arc::<Progress>::default();
    let load = bench.run(Load::new(plan(true, 100, false), Place(0), 0, 1, progress.clone()));
    assert_eq!(bench.depth_seen, 8);
    // One request a microsecond for two milliseconds; the warm-up does not count.
    let counted = load.tally().requests();
    assert!((1_990..=2_001).contains(&counted), "{counted} requests");
    assert_eq!(load.tally().window(), Duration::from_millis(2));
    assert_eq!(load.tally().reads.bytes, counted * 4096);
    // What came back before and after the window is told as well.
    let told = progress.requests();
    assert!((2_090..=2_110).contains(&told) && progress.bytes() == told * 4096, "{told} requests");
    assert_eq!(load.tally().writes.requests(), 0);
    // Eight in flight, served one by one: the mean latency is eight service times (Little's law).
    let mean = load.tally().reads.latency.mean();
    assert!((7_500.0..8_500.0).contains(&mean), "{mean} ns");
    let phases: Vec<Phase> = bench.phases.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(phases.first(), Some(&Phase::Warming));
    assert_eq!(phases.last(), Some(&Phase::Done));
}

#[test]
fn shards_share_the_jobs() {
    let mut bench = Bench::new(&[1 << 20]);
    let mut plan = plan(false, 100, false);
    plan.jobs = 5;
    let first = Load::new(plan.clone(), Place(0), 0, 2, Arc::default());
    let second = Load::new(plan, Place(0), 1, 2, Arc::default());
    assert_eq!((first.jobs.len(), second.jobs.len()), (3, 2));
    let mut sum = bench.run(first).tally().clone();
    let other = bench.run(second);
    sum.add(other.tally());
    assert!(sum.requests() > other.tally().requests());
}

#[test]
fn an_open_loop_keeps_its_schedule() {
    let mut bench = Bench::new(&[1 << 20]);
    let mut plan = plan(true, 100, false);
    plan.rate = Some(100_000);
    plan.time = Duration::from_millis(10);
    let load = run(&mut bench, plan);
    let counted = load.tally().requests();
    assert!((998..=1_002).contains(&counted), "{counted} requests of 1000");
    assert!(load.tally().reads.latency.max() < 3_000);
}

#[test]
fn an_open_loop_counts_from_the_schedule_and_not_from_the_send() {
    let mut bench = Bench::new(&[1 << 20]);
    // Twice as many as can be served: the queue grows without end, and so must latency.
    bench.service_ns = 20_000;
    let mut plan = plan(true, 100, false);
    plan.rate = Some(100_000);
    plan.time = Duration::from_millis(10);
    let load = run(&mut bench, plan);
    assert_eq!(bench.depth_seen, 8);
    let slowest = load.tally().reads.latency.max();
    assert!(slowest > 4_000_000, "{slowest} ns after 10 ms at half the rate");
}

#[test]
fn what_was_written_verifies() {
    for random in [false, true] {
        for read_percent in [0, 50] {
            let mut bench = Bench::new(&[1 << 20]);
            let load = run(&mut bench, plan(random, read_percent, true));
            let verified = load.verified();
            assert_eq!(verified.wrong, 0, "{:?}", verified.first);
            assert!(verified.checked > 100, "{verified:?}");
            assert_eq!(bench.flushes, 1);
        }
    }
}

#[test]
fn a_later_run_that_only_reads_checks_what_an_earlier_one_wrote() {
    let mut bench = Bench::new(&[1 << 20]);
    run(&mut bench, plan(false, 0, true));
    let again = Plan { seed: 43, ..plan(true, 100, true) };
    let load = run(&mut bench, again.clone());
    assert_eq!((load.verified().wrong, load.verified().unchecked), (0, 0));
    bench.volumes[0][5 * 4096 + 1000] ^= 1;
    let load = run(&mut bench, again);
    let first = load.verified().first.expect("the damage is found");
    assert_eq!(first.offset, 5 * 4096);
    assert_eq!(first.finding, Finding::Damaged { at: 1000 });
}

#[test]
fn a_lost_write_is_noticed() {
    let mut bench = Bench::new(&[1 << 20]);
    bench.lose_writes_from = Some(1_500);
    let load = run(&mut bench, plan(true, 0, true));
    let first = load.verified().first.expect("stale data are found");
    let Finding::Stamped { generation, .. } = first.finding else {
        panic!("{:?}", first.finding);
    };
    assert!(generation < first.expected, "{first:?}");
}

#[test]
fn errors_are_counted_and_the_first_is_kept() {
    let mut bench = Bench::new(&[1 << 20]);
    bench.fail_at = Some(0);
    let load = run(&mut bench, plan(false, 100, false));
    let tally = load.tally();
    let first = tally.first_error.expect("block 0 is read");
    assert_eq!((first.operation, first.offset), ("read", 0));
    assert!(tally.errors >= 1 && tally.requests() > tally.errors);
}

#[test]
fn a_load_that_only_fails_ends_early() {
    let mut bench = Bench::new(&[4096]);
    bench.fail_at = Some(0);
    let mut plan = plan(true, 100, false);
    plan.workload.range_bytes = 4096;
    plan.time = Duration::from_secs(3600);
    let load = run(&mut bench, plan);
    assert!((100..200).contains(&load.tally().errors), "{}", load.tally().errors);
}

#[test]
fn arrivals_that_are_drawn_have_exponential_distances_and_the_whole_rate() {
    for jobs in [1, 3] {
        let plan = Plan {
            jobs,
            rate: Some(100_000),
            arrivals: Arrivals::Poisson,
            ..plan(true, 100, false)
        };
        let mut all = Vec::new();
        for number in 0..jobs {
            let mut due = Due::new(&plan, number, plan.seed + u64::from(number));
            for _ in 0..30_000 {
                all.push(due.at(&plan, Instant(5), 100_000).0);
                due.advance(&plan);
            }
        }
        all.sort_unstable();
        // Behind the first job's end the others are alone.
        all.truncate(29_000 * jobs as usize);
        let gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let squares = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        let deviation = (squares / gaps.len() as f64).sqrt();
        assert!((mean / 10_000.0 - 1.0).abs() < 0.03, "{jobs} jobs: every {mean} ns");
        // Of an exponential distribution both are the same; of even distances one is 0.
        assert!((deviation / mean - 1.0).abs() < 0.03, "{jobs} jobs: {deviation} of {mean}");
        let later = gaps.iter().filter(|gap| **gap > 20_000.0).count() as f64 / gaps.len() as f64;
        assert!((later - (-2.0_f64).exp()).abs() < 0.01, "{jobs} jobs: {later}");
    }
}

#[test]
fn a_load_of_drawn_arrivals_asks_for_as_many_as_it_says() {
    let mut bench = Bench::new(&[1 << 20]);
    bench.service_ns = 1_000;
    let plan = Plan {
        rate: Some(10_000),
        arrivals: Arrivals::Poisson,
        time: Duration::from_secs(5),
        ..plan(true, 100, false)
    };
    let load = run(&mut bench, plan);
    let iops = load.tally().requests() as f64 / load.tally().window().as_secs_f64();
    assert!((iops / 10_000.0 - 1.0).abs() < 0.03, "{iops} a second");
}

#[test]
fn a_small_pool_slows_a_load_and_does_not_stop_it() {
    let mut bench = Bench::new(&[64 << 20]);
    let mut plan = plan(false, 0, false);
    plan.workload = Workload { block_bytes: 1 << 20, range_bytes: 64 << 20, ..plan.workload };
    plan.jobs = 1;
    plan.depth = 64;
    let load = run(&mut bench, plan);
    assert!(load.tally().stalls > 0);
    assert!(bench.depth_seen < 64);
    assert!(load.tally().requests() > 1_000);
}

#[test]
fn parts_too_small_for_the_depth_still_verify() {
    let mut bench = Bench::new(&[3 * 4096]);
    let mut plan = plan(true, 50, true);
    plan.workload.range_bytes = 3 * 4096;
    plan.jobs = 8;
    let load = run(&mut bench, plan);
    assert_eq!(load.verified().wrong, 0);
    assert!(load.verified().checked > 0);
}

#[test]
fn it_ends_when_asked_to() {
    let progress = Arc::new(Progress::default());
    progress.stop();
    let mut bench = Bench::new(&[1 << 20]);
    let load = Load::new(plan(true, 0, true), Place(0), 0, 1, progress);
    let load = bench.run(load);
    assert_eq!(load.phase(), Phase::Done);
}

#[test]
fn a_job_flushes_after_so_many_writes_and_flushes_are_counted_apart() {
    let mut bench = Bench::new(&[1 << 20]);
    let load = run(&mut bench, Plan { fsync: Some(4), ..plan(true, 0, false) });
    let Tally { writes, flushes, .. } = load.tally();
    assert!(flushes.requests() > 100, "{} flushes", flushes.requests());
    assert!(bench.writes.abs_diff(4 * bench.flushes) <= 2 * 4, "{bench:?}");
    assert_eq!(load.tally().requests(), writes.requests());
    assert_eq!((bench.durable_writes, flushes.bytes), (0, 0));
    let mut bench = Bench::new(&[1 << 20]);
    run(&mut bench, Plan { sync: true, ..plan(true, 50, false) });
    assert!(bench.writes > 0 && bench.durable_writes == bench.writes && bench.flushes == 0);
}

#[test]
fn trims_are_requests_of_their_own_kind() {
    let mut bench = Bench::new(&[1 << 20]);
    let mut plan = plan(true, 0, false);
    plan.workload.trim_percent = 100;
    let load = run(&mut bench, plan);
    let trims = &load.tally().trims;
    assert!(bench.trims > 0 && bench.writes == 0 && trims.requests() > 0);
    assert_eq!(trims.bytes, trims.requests() * 4096);
}

#[test]
fn a_region_is_kept_to_and_verified() {
    let mut bench = Bench::new(&[1 << 20]);
    let mut plan = plan(true, 50, true);
    (plan.workload.offset_bytes, plan.workload.range_bytes) = (256 << 10, 128 << 10);
    let load = run(&mut bench, plan);
    assert!(load.verified().checked > 0 && load.verified().wrong == 0, "{:?}", load.verified());
    let written = bench.volumes[0].iter().enumerate().filter(|(_, byte)| **byte != 0);
    let mut written = written.map(|(at, _)| at);
    let first = written.next().unwrap();
    let last = written.next_back().unwrap();
    assert!(first >= 256 << 10 && last < 384 << 10, "{first} to {last}");
}

#[test]
fn each_second_of_the_window_is_counted() {
    let mut bench = Bench::new(&[1 << 20]);
    bench.service_ns = 1_000_000;
    let time = Duration::from_millis(2_500);
    let load = run(&mut bench, Plan { time, ..plan(true, 100, false) });
    let series = &load.tally().series;
    assert_eq!(series.len(), 3, "{series:?}");
    assert!(series[..2].iter().all(|second| second.requests.abs_diff(1000) <= 1), "{series:?}");
    let sum: u64 = series.iter().map(|second| second.requests).sum();
    assert_eq!(sum, load.tally().requests());
    assert!(series.iter().all(|second| second.latency_max_ns >= 8_000_000), "{series:?}");
}

#[test]
fn what_was_measured_is_there_while_requests_are_still_waited_for() {
    let mut bench = Bench::new(&[1 << 20]);
    let progress = Arc::<Progress>::default();
    let plan = Plan { warm_up: Duration::from_secs(3600), ..plan(true, 100, false) };
    let mut load = Load::new(plan, Place(0), 0, 1, progress.clone());
    load.handle_turn(&mut bench);
    assert!(progress.measured().is_none());
    progress.stop();
    // Nothing comes back, and it is woken all the same.
    assert!(load.poll_timeout().unwrap() <= bench.now() + BEAT);
    load.handle_turn(&mut bench);
    assert_eq!((load.phase(), load.in_flight), (Phase::Draining, 8));
    assert!(progress.measured().is_some());
}

#[test]
fn a_job_asks_for_as_many_bytes_as_it_may_and_the_load_ends_with_the_last() {
    for (jobs, warm_up) in [(1, 0), (3, 0), (3, 50)] {
        let mut bench = Bench::new(&[1 << 20]);
        let time = Duration::from_secs(3600);
        let warm_up = Duration::from_micros(warm_up);
        let plan = Plan { jobs, time, warm_up, bytes_max: Some(99_999), ..plan(true, 50, false) };
        let load = run(&mut bench, plan);
        // 25 requests of 4096 bytes reach 99,999.
        assert_eq!(load.requests, 25 * u64::from(jobs));
        let counted = load.tally().requests();
        let warm = warm_up.as_micros() as u64;
        assert!(counted.abs_diff(load.requests - warm) <= 1, "{counted} of {}", load.requests);
        // One request a microsecond.
        assert_eq!(load.tally().window(), Duration::from_micros(load.requests) - warm_up);
    }
}

#[test]
fn all_that_is_asked_before_anything_counts_is_not_counted() {
    let mut bench = Bench::new(&[1 << 20]);
    let warm_up = Duration::from_secs(1);
    let load = run(&mut bench, Plan { warm_up, bytes_max: Some(4096), ..plan(true, 100, false) });
    assert_eq!((load.requests, load.tally().requests()), (2, 0));
    assert_eq!(load.tally().window(), Duration::ZERO);
}

#[test]
fn what_a_bounded_load_wrote_on_a_schedule_is_read_back() {
    let mut bench = Bench::new(&[1 << 20]);
    let mut plan = Plan { bytes_max: Some(1 << 20), rate: Some(100_000), ..plan(true, 0, true) };
    plan.workload.order = Order::Shuffled;
    plan.time = Duration::from_secs(3600);
    let load = run(&mut bench, plan);
    // Both jobs went round their halves twice.
    assert_eq!((load.verified().checked, load.verified().wrong), (256, 0));
    assert_eq!(load.tally().writes.requests() + 10, 512, "ten in the warm-up");
}

#[test]
fn the_same_draws_are_made_with_data_of_their_own() {
    let written = |seed, draws| {
        let mut bench = Bench::new(&[1 << 20]);
        let bytes_max = Some(100 * 4096);
        let plan = Plan { seed, draws, bytes_max, jobs: 1, ..plan(true, 0, false) };
        run(&mut bench, plan);
        let blocks = bench.volumes[0].chunks(4096).enumerate();
        let touched: Vec<usize> = blocks
            .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
            .map(|(at, _)| at)
            .collect();
        (touched, bench.volumes.remove(0))
    };
    let (one, other) = (written(1, Some(7)), written(2, Some(7)));
    assert!(one.0 == other.0 && one.1 != other.1);
    assert_ne!(written(1, None).0, written(2, None).0);
}

#[test]
fn requests_of_several_sizes_are_counted_by_their_bytes() {
    use crate::workload::{Sizes, Split};
    let mut bench = Bench::new(&[1 << 20]);
    let split = Split::new(&[(4096, 50), (16_384, 50)]);
    let mut plan = plan(true, 50, false);
    plan.workload.sizes = Some(Arc::new(Sizes::new([split.clone(), split.clone(), split])));
    plan.whole = true;
    let load = run(&mut bench, plan);
    let mean = load.tally().writes.bytes as f64 / load.tally().writes.requests() as f64;
    assert!((9_500.0..11_000.0).contains(&mean), "{mean} bytes a write");
    let findings = bench.volumes[0]
        .chunks(4096)
        .enumerate()
        .map(|(at, block)| stamp::examine(block, at as u64 * 4096));
    let whole = |one: Finding| matches!(one, Finding::Stamped { seed: 42, .. } | Finding::Blank);
    assert!(findings.into_iter().all(whole), "all that was written is whole");
}

#[test]
fn loads_beside_each_other_are_each_as_if_alone() {
    let mut bench = Bench::new(&[2 << 20]);
    let beside = |offset_bytes, ms, read_percent, verify| {
        let mut plan = plan(true, read_percent, verify);
        plan.workload.offset_bytes = offset_bytes;
        plan.time = Duration::from_millis(ms);
        Load::new(plan, Place(0), 0, 1, Arc::default())
    };
    let empty = Load::new(plan(true, 0, true), Place(0), 7, 1, Arc::default());
    let loads = vec![beside(0, 2, 0, true), empty, beside(1 << 20, 5, 100, false)];
    let several = bench.run(Several::new(loads));
    assert_eq!(bench.depth_seen, 16);
    let [first, empty, second] = several.loads() else { panic!("three loads") };
    assert!(first.verified().checked > 0 && first.verified().wrong == 0);
    assert_eq!((first.tally().reads.requests(), second.tally().writes.requests()), (0, 0));
    assert!(first.tally().writes.requests() > 500 && second.tally().reads.requests() > 2_000);
    assert_eq!(first.tally().window(), Duration::from_millis(2));
    assert_eq!(second.tally().window(), Duration::from_millis(5));
    assert_eq!((empty.tally().requests(), empty.phase()), (0, Phase::Done));
    // It measures until none does, and does not go back.
    let phases: Vec<Phase> = bench.phases.iter().map(|(phase, _)| *phase).collect();
    assert!(phases.is_sorted() && phases.contains(&Phase::Measuring), "{phases:?}");
    let (ends, _) = bench
        .phases
        .iter()
        .map(|(phase, at)| (at, phase))
        .find(|(_, phase)| **phase > Phase::Measuring)
        .expect("an end");
    assert!(ends.0 >= 1_000_000 + 5_000_000, "{ends:?}");
}

#[test]
fn of_some_reads_it_is_known_whether_they_found_anything() {
    let looked = |writes_first: bool| {
        let mut bench = Bench::new(&[1 << 20]);
        if writes_first {
            let mut whole = plan(false, 0, false);
            (whole.whole, whole.bytes_max) = (true, Some(1 << 19));
            run(&mut bench, whole);
        }
        run(&mut bench, plan(true, 100, false)).tally().looked
    };
    let blank = looked(false);
    assert!(blank.reads >= 7 && blank.zeros == blank.reads, "{blank:?}");
    let written = looked(true);
    assert!(written.reads >= 7 && written.zeros == 0, "{written:?}");
}

#[test]
fn a_window_that_whoever_watches_begins_is_counted_apart() {
    let mut bench = Bench::new(&[1 << 20]);
    let progress = Arc::<Progress>::default();
    (0..3).for_each(|_| progress.begin_window());
    let load = Load::new(plan(true, 100, false), Place(0), 0, 1, progress);
    let load = bench.run(load);
    assert!(load.tally().requests() > 0);
    assert_eq!(load.tally().last_windows().len(), 0, "the present window is not over");
}
