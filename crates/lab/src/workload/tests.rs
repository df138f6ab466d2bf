//! Rules of streams: where requests go, what for, and how large they are.

use super::*;

fn workload(random: bool, read_percent: u8, blocks: u64) -> Workload {
    Workload {
        order: Order::of(random),
        read_percent,
        trim_percent: 0,
        block_bytes: 4096,
        sizes: None,
        sharing: Sharing::Parts,
        offset_bytes: 0,
        range_bytes: blocks * 4096 + 512,
    }
}

/// The requests of the only job.
fn stream(workload: &Workload, seed: u64) -> Stream {
    Stream::new(workload, workload.part(0, 1, false), seed, 1)
}

#[test]
fn jobs_in_order_share_the_range_without_overlap() {
    let workload = workload(false, 100, 10);
    let parts: Vec<_> = (0..3).map(|job| workload.part(job, 3, false)).collect();
    assert_eq!(parts[0], Part { first: 0, count: 3 });
    assert_eq!(parts[1], Part { first: 3, count: 3 });
    assert_eq!(parts[2], Part { first: 6, count: 4 });
    assert_eq!(workload.part(5, 20, true), Part { first: 0, count: 10 });
}

#[test]
fn in_order_goes_round() {
    let workload = workload(false, 0, 3);
    let mut stream = stream(&workload, 1);
    let blocks: Vec<_> = (0..5).map(|_| stream.draw().block).collect();
    assert_eq!(blocks, [0, 1, 2, 0, 1]);
}

#[test]
fn a_mix_keeps_its_share_and_its_seed() {
    let workload = workload(true, 75, 1000);
    let draw = |seed| {
        let mut stream = stream(&workload, seed);
        (0..10_000).map(|_| stream.draw()).collect::<Vec<_>>()
    };
    let draws = draw(1);
    let writes = draws.iter().filter(|draw| draw.kind == Kind::Write).count();
    assert!((2_200..2_800).contains(&writes), "{writes} writes of 10000 at 75 percent reads");
    assert!(draws.iter().all(|draw| draw.block < 1000));
    assert_eq!(draws, draw(1));
    assert_ne!(draws, draw(2));
}

#[test]
fn a_mix_has_its_share_of_trims() {
    let workload = Workload { trim_percent: 10, ..workload(true, 60, 1000) };
    let mut stream = stream(&workload, 1);
    let mut counts = [0; 3];
    for _ in 0..10_000 {
        counts[stream.draw().kind as usize] += 1;
    }
    let [reads, writes, trims] = counts;
    assert!((5_700..6_300).contains(&reads) && (800..1_200).contains(&trims), "{counts:?}");
    assert_eq!(reads + writes + trims, 10_000);
}

#[test]
fn jobs_share_a_range_as_they_are_told_to() {
    let parts = Workload { sharing: Sharing::Together, ..workload(false, 100, 10) };
    assert_eq!(parts.part(2, 3, false), Part { first: 0, count: 10 });
    assert_eq!(parts.part(1, 3, true), Part { first: 3, count: 3 }, "apart all the same");
    let steps = Workload { sharing: Sharing::Steps(40 * 4096), ..parts };
    assert_eq!(steps.part(2, 3, false), Part { first: 80, count: 10 });
}

#[test]
fn a_shuffled_round_asks_for_each_block_once() {
    let workload = Workload { order: Order::Shuffled, ..workload(true, 100, 1000) };
    let mut stream = stream(&workload, 5);
    let mut round = || (0..1000).map(|_| stream.draw().block).collect::<Vec<u64>>();
    let (first, second) = (round(), round());
    assert_ne!(first, second, "each round has an order of its own");
    for mut blocks in [first, second] {
        assert!(!blocks.is_sorted());
        blocks.sort_unstable();
        assert!(blocks.into_iter().eq(0..1000));
    }
}

#[test]
fn the_hottest_blocks_are_as_hot_as_the_law_says_and_lie_apart() {
    let workload = Workload { order: Order::Zipf(1.2), ..workload(true, 100, 10_000) };
    let mut counts = vec![0_u32; 10_000];
    // Jobs with seeds of their own find the same blocks hot.
    for seed in 0..4 {
        let mut stream = stream(&workload, seed);
        (0..25_000).for_each(|_| counts[stream.draw().block as usize] += 1);
    }
    let mut hottest: Vec<usize> = (0..10_000).collect();
    hottest.sort_unstable_by_key(|block| std::cmp::Reverse(counts[*block]));
    let sum: f64 = (1..=10_000).map(|rank| f64::from(rank).powf(-1.2)).sum();
    for rank in [1, 2, 3, 5] {
        let wanted = 100_000.0 * f64::from(rank).powf(-1.2) / sum;
        let seen = f64::from(counts[hottest[rank as usize - 1]]);
        assert!((seen / wanted - 1.0).abs() < 0.1, "rank {rank}: {seen} of {wanted:.0}");
    }
    let neighbours = hottest[..20].iter().filter(|block| hottest[..20].contains(&(*block + 1)));
    assert!(neighbours.count() < 3, "{:?}", &hottest[..20]);
}

/// Reads of three sizes, and writes of one; offsets of reads are multiples of 4 KiB, of writes of 64.
fn sized(order: Order, read_percent: u8) -> Workload {
    let reads = Split::new(&[(4096, 60), (8192, 30), (65_536, 10)]);
    let writes = Split::new(&[(65_536, 100)]);
    let sizes = Some(Arc::new(Sizes::new([reads, writes.clone(), writes])));
    Workload { order, sizes, ..workload(true, read_percent, 64) }
}

#[test]
fn sizes_come_as_often_as_asked_and_every_request_fits() {
    for order in [Order::Sequential, Order::Random, Order::Zipf(0.9)] {
        let read_percent = if matches!(order, Order::Zipf(_)) { 100 } else { 50 };
        let workload = sized(order, read_percent);
        assert_eq!(workload.request_bytes_max(), 65_536);
        let mut stream = stream(&workload, 9);
        let draws: Vec<Draw> = (0..40_000).map(|_| stream.draw()).collect();
        let ends = draws.iter().map(|draw| draw.block + u64::from(draw.bytes / 4096));
        assert_eq!(ends.max(), Some(64), "{order:?}: within, and up to the end");
        let reads = draws.iter().filter(|draw| draw.kind == Kind::Read);
        let all = reads.clone().count() as f64;
        for (bytes, share) in [(4096, 0.6), (8192, 0.3), (65_536, 0.1)] {
            let seen = reads.clone().filter(|draw| draw.bytes == bytes).count() as f64 / all;
            // By Zipf, what does not fit at the end is drawn again.
            let slack = if matches!(order, Order::Zipf(_)) { 0.08 } else { 0.015 };
            assert!((seen - share).abs() < slack, "{order:?}: {bytes} bytes: {seen}");
        }
        let writes = draws.iter().filter(|draw| draw.kind == Kind::Write);
        assert!(writes.clone().all(|draw| draw.bytes == 65_536));
        if order == Order::Random {
            assert!(writes.clone().all(|draw| draw.block.is_multiple_of(16)));
        }
    }
}

#[test]
fn in_order_each_request_follows_the_one_before() {
    let workload = sized(Order::Sequential, 100);
    let mut stream = stream(&workload, 2);
    let mut end = 0;
    for _ in 0..1000 {
        let Draw { block, bytes, .. } = stream.draw();
        assert!(block == end || (block == 0 && end + u64::from(bytes / 4096) > 64), "{block}");
        end = block + u64::from(bytes / 4096);
    }
}
