//! Job files as people write them: what is said of each mistake (`tests/mistakes.txt`), what a good one
//! means on a disk, and that docs/fio.md explains every key.

use std::time::Duration;

use testkit::cases::{judge, text_of};

use super::*;
use crate::load::Arrivals;
use crate::workload::{Kind, Order, Sharing};

const GOOD: &str = include_str!("tests/good.fio");
const MISTAKES: &str = include_str!("tests/mistakes.txt");
const DOCUMENTATION: &str = include_str!("../../../../docs/fio.md");

const DISK: Disk = Disk { bytes: 1 << 30, block_bytes: 512, discards: true, seed: 7 };

fn environment(name: &str) -> Option<String> {
    (name == "BLOCK").then(|| "4k".to_owned())
}

fn good(text: &str) -> JobFile {
    JobFile::parse("a.fio", text, environment).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// What jobs with these keys are on the disk.
fn on(text: &str) -> Vec<Ready> {
    good(text).on(&DISK).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// What the only job with these keys is.
fn plan(keys: &str) -> crate::load::Plan {
    let [ready] = on(&format!("[j]\n{keys}")).try_into().expect("one job");
    ready.plan
}

fn lines(mistakes: &Mistakes) -> Vec<String> {
    let told = |line: String| line.strip_prefix("a.fio:").expect("the file's name").to_owned();
    mistakes.lines().map(told).collect()
}

fn said(text: &str) -> Vec<String> {
    match JobFile::parse("a.fio", text, environment) {
        Ok(_) => vec!["nothing".to_owned()],
        Err(mistakes) => lines(&mistakes),
    }
}

/// What only the disk shows.
fn said_on(text: &str) -> Vec<String> {
    match good(text).on(&DISK) {
        Ok(_) => vec!["nothing".to_owned()],
        Err(mistakes) => lines(&mistakes),
    }
}

#[test]
fn mistakes_are_said_as_the_table_has_them() {
    judge(MISTAKES, |case| said(&text_of(GOOD, case.trim_end())));
}

#[test]
fn jobs_are_as_they_are_written_and_wait_where_they_are_told_to() {
    let file = good(GOOD);
    assert_eq!((file.jobs().len(), file.stages()), (2, 2));
    let [mix, scan] = file.jobs() else { panic!("two jobs") };
    assert_eq!((mix.name.as_str(), mix.stage, scan.stage), ("mix", 0, 1));
    assert_eq!((mix.pattern.to_string(), mix.iodepth, mix.numjobs), ("randrw=70".into(), 16, 2));
    assert_eq!((scan.iodepth, scan.numjobs, scan.sizes_text()), (1, 1, "128k".to_owned()));
    assert_eq!(file.notes(), ["direct means nothing here (docs/fio.md)"]);
    let ready = file.on(&DISK).unwrap();
    let scan = &ready[1].plan;
    assert_eq!((scan.time, scan.bytes_max), (Duration::from_secs(60), None));
    assert_eq!((scan.workload.range_bytes, scan.workload.block_bytes), (1 << 29, 128 << 10));
    assert_eq!(scan.workload.sharing, Sharing::Together);
}

#[test]
fn fio_s_defaults_hold() {
    let plan = plan("");
    let workload = &plan.workload;
    assert_eq!((plan.jobs, plan.depth, workload.block_bytes), (1, 1, 4096));
    assert_eq!((workload.order, workload.read_percent), (Order::Sequential, 100));
    assert_eq!((workload.range_bytes, plan.bytes_max), (1 << 30, Some(1 << 30)), "once");
    assert_eq!((plan.warm_up, plan.rate, plan.fsync), (Duration::ZERO, None, None));
    assert!(!plan.sync && !plan.verify && !plan.whole && plan.draws.is_some());
}

#[test]
fn a_job_ends_as_fio_s_does() {
    // Whole requests only; each loop once more; io_size in place of the size.
    assert_eq!(plan("size=10000").bytes_max, Some(8192));
    assert_eq!(plan("size=1m\nloops=3").bytes_max, Some(3 << 20));
    assert_eq!(plan("size=1m\nio_size=5m").bytes_max, Some(5 << 20));
    let both = plan("size=1m\nruntime=5");
    assert_eq!((both.bytes_max, both.time), (Some(1 << 20), Duration::from_secs(5)));
    let timed = plan("size=1m\nruntime=500ms\ntime_based\nramp_time=2");
    assert_eq!((timed.bytes_max, timed.time), (None, Duration::from_millis(500)));
    assert_eq!(timed.warm_up, Duration::from_secs(2));
    assert_eq!(plan("size=1m\nruntime=5\ntime_based=0").bytes_max, Some(1 << 20));
    assert_eq!(plan("size=0").bytes_max, Some(1 << 30));
}

#[test]
fn the_last_of_several_keys_counts_and_global_holds_below() {
    let file = good(
        "[global]\nbs=8k\nrwmixread=10\n[a]\nrw=randrw\n[global]\niodepth=4\n[b]\nrw=randrw\nrwmixwrite=20\nbs=4k\nbs=16k\n[b]\n",
    );
    let [a, b, again] = file.jobs() else { panic!("three jobs") };
    assert_eq!((a.iodepth, a.pattern.read_percent, a.block()), (1, 10, Some(8192)));
    assert_eq!((b.iodepth, b.pattern.read_percent, b.block()), (4, 80, Some(16_384)));
    assert_eq!((again.name.as_str(), again.iodepth, again.block()), ("b", 4, Some(8192)));
}

#[test]
fn requests_at_random_go_where_fio_sends_them() {
    assert_eq!(plan("rw=randread").workload.order, Order::Shuffled);
    assert_eq!(plan("rw=randread\nnorandommap").workload.order, Order::Random);
    assert_eq!(plan("rw=randread\nnorandommap=0").workload.order, Order::Shuffled);
    let zipf =
        |text: &str| plan(&format!("rw=randread\nrandom_distribution={text}")).workload.order;
    assert_eq!((zipf("zipf:1.2"), zipf("zipf")), (Order::Zipf(1.2), Order::Zipf(1.1)));
    assert_eq!((zipf("random"), zipf("zipf:1.0")), (Order::Shuffled, Order::Zipf(1.0)));
    assert_eq!(plan("random_distribution=zipf:1.2").workload.order, Order::Sequential);
    // The same in each run, and unlike the next job's, unless that is not wanted.
    let draws = |keys: &str| plan(keys).draws;
    assert_eq!(draws("rw=randread"), draws("rw=randwrite\nrandrepeat=1"));
    assert_ne!(draws("randseed=5"), draws("randseed=6"));
    assert_eq!(
        (draws("randrepeat=0"), draws("randrepeat=0\nrandseed=5")),
        (None, draws("randseed=5"))
    );
    let two = on("[a]\n[b]");
    assert_ne!(two[0].plan.draws, two[1].plan.draws);
}

#[test]
fn sizes_are_for_reads_writes_and_trims() {
    let sizes = |keys: &str| {
        let workload = plan(keys).workload;
        let of = |kind| workload.sizes.as_ref().map(|sizes| sizes.of(kind).bytes_max());
        (workload.block_bytes, of(Kind::Read), of(Kind::Write))
    };
    assert_eq!(sizes("rw=randrw\nbs=8k"), (8192, None, None));
    assert_eq!(sizes("rw=randrw\nbs=8k,64k"), (8192, Some(8192), Some(65_536)));
    assert_eq!(sizes("rw=randrw\nbs=6k,"), (2048, Some(6144), Some(4096)));
    assert_eq!(sizes("rw=randrw\nbs=,6k"), (2048, Some(4096), Some(6144)));
    // What is never asked for does not count.
    assert_eq!(sizes("rw=randread\nbs=8k,64k"), (8192, None, None));
    assert_eq!(sizes("bssplit=4k/60:8k/40,512"), (4096, Some(8192), Some(8192)));
    let text = |keys: &str| good(&format!("[j]\n{keys}")).jobs()[0].sizes_text();
    assert_eq!(text("bssplit=4k/50:8k/:512/"), "4k/50:8k/25:512/25");
    assert_eq!(text("bssplit=4k:8k:16k"), "4k/34:8k/33:16k/33");
    assert_eq!(text("rw=randrw\nbssplit=4k/60:8k/40,64k/100"), "4k/60:8k/40,64k");
    // The more special key, whichever is nearer.
    assert_eq!(text("bssplit=4k/60:8k/40\nbs=16k"), "4k/60:8k/40");
}

#[test]
fn rates_are_of_each_clone_and_each_kind() {
    let rate = |keys: &str| {
        let plan = plan(keys);
        (plan.rate, plan.workload.read_percent, plan.arrivals)
    };
    assert_eq!(rate("rate_iops=1k\nnumjobs=3"), (Some(3072), 100, Arrivals::Fixed));
    assert_eq!(rate("rw=write\nrate_iops=100,200"), (Some(200), 0, Arrivals::Fixed));
    assert_eq!(rate("rw=write\nrate_iops=100,"), (None, 0, Arrivals::Fixed));
    assert_eq!(rate("rate_iops=0"), (None, 100, Arrivals::Fixed));
    let poisson = "rate_iops=100\nrate_process=poisson";
    assert_eq!(rate(poisson), (Some(100), 100, Arrivals::Poisson));
    // As fio 3.33 does it: a thousand of each, whatever the mix.
    let mix = "rw=randrw\nrwmixread=75\nrate_iops=1000";
    assert_eq!(rate(mix), (Some(2000), 50, Arrivals::Fixed));
    let notes = good(&format!("[j]\n{mix}")).notes().to_vec();
    assert!(
        notes.iter().any(|note| note.starts_with("a.fio:4: each kind has its rate")),
        "{notes:?}"
    );
    assert_eq!(rate("rw=randrw\nrate_iops=300,100"), (Some(400), 75, Arrivals::Fixed));
}

#[test]
fn clones_work_where_fio_s_do() {
    let steps = on("[j]\nsize=1m\noffset=4m\noffset_increment=2m\nnumjobs=4");
    assert_eq!(steps[0].plan.workload.sharing, Sharing::Steps(2 << 20));
    assert_eq!(extent(&steps[0]), (4 << 20, 11 << 20));
    let part = on("[j]\nsize=25%\noffset=50%\nbs=12k");
    // A quarter of the disk, in whole requests.
    let quarter = (1 << 28) / (12 << 10) * (12 << 10);
    assert_eq!(extent(&part[0]), (1 << 29, (1 << 29) + quarter));
    let rest = on("[j]\nsize=100%\noffset=1m");
    assert_eq!(extent(&rest[0]), (1 << 20, 1 << 30));
}

#[test]
fn what_does_not_lie_on_the_disk_is_said_at_its_line() {
    for (keys, said) in [
        (
            "size=2g",
            "2:6: error: job \"j\": expected at most 1073741824 bytes behind offset 0, seen 2147483648 (a smaller size or offset, or a larger disk)",
        ),
        (
            "offset=1g",
            "2:8: error: job \"j\": expected at least one request of 4096 bytes, seen 0 bytes from offset 1073741824 on (a larger size, or a smaller offset or bs)",
        ),
        (
            "offset=1023m\nsize=2m",
            "3:6: error: job \"j\": expected at most 1048576 bytes behind offset 1072693248, seen 2097152 (a smaller size or offset, or a larger disk)",
        ),
        (
            "offset=99999t\nsize=2m",
            "3:6: error: job \"j\": expected at most 0 bytes behind offset 109950063265972224, seen 2097152 (a smaller size or offset, or a larger disk)",
        ),
        (
            "size=2k",
            "2:6: error: job \"j\": expected at least one request of 4096 bytes, seen 2048 bytes from offset 0 on (a larger size, or a smaller offset or bs)",
        ),
        (
            "offset=1000",
            "2:8: error: offset: expected a multiple of 512 bytes, seen 1000 (the disk's blocks, and requests, begin at such)",
        ),
        (
            "numjobs=2\nsize=1m\noffset_increment=1k",
            "4:18: error: offset_increment: expected a multiple of 4096 bytes, seen 1024 (the disk's blocks, and requests, begin at such)",
        ),
        (
            "numjobs=128\nsize=1m\noffset_increment=9999t",
            "3:6: error: job \"j\": expected at most 0 bytes behind offset 1396240129298792448, seen 1048576 (a smaller size or offset, or a larger disk)",
        ),
        (
            "rw=write\nverify=md5\nnumjobs=2\nsize=1m\noffset_increment=512k",
            "6:18: error: offset_increment: expected ranges that do not meet, as they are verified, seen 524288 for a size of 1048576 (offset_increment of at least the size)",
        ),
    ] {
        assert_eq!(said_on(&format!("[j]\n{keys}")), [said], "{keys}");
    }
    let disk = Disk { block_bytes: 4096, discards: false, ..DISK };
    let said = |text: &str| lines(&good(text).on(&disk).unwrap_err()).join("\n");
    assert!(said("[j]\nbs=512").contains("2:4: error: bs: expected multiples of 4096"));
    assert!(said("[j]\nrw=randtrim").contains("2:4: error: rw: the disk takes no trims"));
    let both = said("[j]\nbs=512\n[k]\nrw=trim");
    assert_eq!(both.lines().count(), 2, "all at once: {both}");
}

/// Where the ranges of a job begin and end, all together.
fn extent(ready: &Ready) -> (u64, u64) {
    (ready.ranges.first().unwrap().0, ready.ranges.last().unwrap().1)
}

#[test]
fn nobody_writes_where_another_verifies() {
    let verifies = "[v]\nrw=write\nverify=crc32c\nsize=1m\n";
    let wrong = "job \"w\" writes where \"v\" verifies: expected a range of its own";
    for (other, is_good) in [
        ("[w]\nrw=write\nsize=1m", false),
        ("[w]\nrw=read\nsize=1m", true),
        ("[w]\nrw=write\noffset=1m", true),
        ("[w]\nrw=write\nsize=1m\nstonewall", false),
        ("[w]\nrw=write\nverify=md5\nbs=8k\nstonewall", false),
        ("[w]\nrw=randwrite\nverify=md5\nstonewall", true),
        ("[w]\nrw=randwrite\nverify=md5", false),
    ] {
        let said = said_on(&format!("{verifies}{other}")).join("\n");
        assert!(if is_good { said == "nothing" } else { said.contains(wrong) }, "{other}: {said}");
    }
    // Clones with gaps between them do not write in the gaps.
    let gaps = "[v]\nrw=write\nverify=crc32c\nsize=4k\nnumjobs=3\noffset_increment=64k\n";
    for (offset, is_good) in
        [("0", false), ("4k", true), ("60k", true), ("64k", false), ("128k", false)]
    {
        let said = said_on(&format!("{gaps}[w]\nrw=write\nsize=4k\noffset={offset}")).join("\n");
        assert!(if is_good { said == "nothing" } else { said.contains(wrong) }, "{offset}: {said}");
    }
}

#[test]
fn ranges_are_of_whole_requests_and_of_each_clone() {
    let ranges = |keys: &str| on(&format!("[j]\n{keys}"))[0].ranges.clone();
    assert_eq!(ranges("bs=64k\nsize=100k"), [(0, 64 << 10)]);
    assert_eq!(
        ranges("size=4k\nnumjobs=3\noffset_increment=1m\noffset=8k"),
        [
            (8 << 10, 12 << 10),
            ((1 << 20) + (8 << 10), (1 << 20) + (12 << 10)),
            ((2 << 20) + (8 << 10), (2 << 20) + (12 << 10))
        ]
    );
    assert_eq!(ranges("size=1m\nnumjobs=3"), [(0, 1 << 20)]);
}

#[test]
fn each_clone_with_a_range_of_its_own_verifies_it_and_blocks_are_shared_else() {
    let jobs = |keys: &str| {
        let ready = on(&format!("[j]\nrw=write\nverify=md5\nsize=8k\nnumjobs=4\n{keys}"));
        ready[0].plan.jobs_carried()
    };
    assert_eq!((jobs("offset_increment=8k"), jobs("")), (4, 2), "two blocks are two jobs'");
}

#[test]
fn records_of_blocks_are_bound() {
    let disk = Disk { bytes: 1 << 50, ..DISK };
    let alone = good("[a]\nrw=write\nverify=md5\nbs=512").on(&disk).unwrap();
    assert!(alone[0].plan.range_bytes() < alone[0].plan.workload.range_bytes, "it is cut");
    let clones = "[a]\nrw=write\nverify=md5\nnumjobs=64\nsize=1g\noffset_increment=1g\n";
    for (text, is_good) in [
        (clones.to_owned(), true),
        (format!("{clones}[b]\nrw=write\nverify=md5\nsize=4k\noffset=64g\n"), false),
        (format!("{clones}[b]\nstonewall\nrw=write\nverify=md5\nsize=4k\noffset=64g\n"), true),
        (clones.replace("64", "65"), false),
    ] {
        let said = good(&text).on(&disk).err().map(|mistakes| mistakes.to_string());
        assert_eq!(said.is_none(), is_good, "{said:?}");
        assert!(said.is_none_or(|said| said.contains("expected at most 16777216 blocks")));
    }
}

#[test]
fn hostile_texts_are_refused_and_bound() {
    assert_eq!(said("[j]\nbs=4\0k"), ["2:5: error: expected text, seen a byte that is 0"]);
    let jobs: String = (0..129).map(|job| format!("[j{job}]\nstonewall\n")).collect();
    assert!(said(&jobs)[0].starts_with("257:1: error: expected at most 128 jobs"));
    let long = format!("[j]\nname={}", "x".repeat(5000));
    assert_eq!(said(&long), ["2:1: error: expected at most 4096 bytes, seen 5005"]);
    let bomb = format!("[j]\nname={}", "${A}".repeat(1000));
    let huge = |_: &str| Some("y".repeat(1000));
    let mistakes = JobFile::parse("a.fio", &bomb, huge).unwrap_err();
    assert!(mistakes.to_string().contains("at most 4096 bytes with ${A}"), "{mistakes}");
    let mistakes = JobFile::parse("a.fio", &"x\n".repeat(1000), environment).unwrap_err();
    assert!(mistakes.to_string().ends_with("and 900 more") && mistakes.list().len() == 1000);
    // Windows line ends, a byte order mark, blanks, no end of line.
    let odd = good("\u{feff}[global]\r\n\tbs = 8k\t\r\n\r\n  [j] \r\nrw=randread");
    assert_eq!(odd.jobs()[0].block(), Some(8192));
}

#[test]
fn units_that_mislead_are_told() {
    let notes = good("[j]\nsize=1GiB\niodepth=4\nfilename=/dev/sda").notes().to_vec();
    assert!(notes[0].starts_with("a.fio:2: 1GiB is 1000000000 bytes, as to fio"), "{notes:?}");
    assert!(notes.iter().any(|note| note.starts_with("a.fio:3: 4 requests are in flight")));
    assert!(notes.iter().any(|note| note.contains("filename=/dev/sda is not opened")));
    assert!(good("[j]\nioengine=io_uring\niodepth=4\nsize=1gb").notes().is_empty());
}

#[test]
fn the_documentation_explains_every_key_and_no_other() {
    let mut documented: Vec<&str> = Vec::new();
    for line in DOCUMENTATION.lines().filter_map(|line| line.strip_prefix("| `")) {
        // The keys of a row stand in its first cell.
        let cell = line.split(" | ").next().expect("a cell");
        documented.extend(cell.split('`').step_by(2).filter(|key| !key.is_empty()));
    }
    let mut known: Vec<&str> = table().into_iter().map(|(key, ..)| key).collect();
    let (mut listed, twice) = (documented.clone(), known.len());
    listed.sort_unstable();
    known.sort_unstable();
    known.dedup();
    assert_eq!(known.len(), twice, "a key is in two lists");
    let missing: Vec<_> = known.iter().filter(|key| !listed.contains(key)).collect();
    let more: Vec<_> = listed.iter().filter(|key| !known.contains(key)).collect();
    assert!(missing.is_empty() && more.is_empty(), "missing {missing:?}, unknown {more:?}");
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let blocks = DOCUMENTATION.split("```ini\n").skip(1).map(|rest| rest.split("```").next());
    let files: Vec<JobFile> = blocks.map(|block| good(block.expect("a block"))).collect();
    assert!(!files.is_empty() && files.iter().all(|file| file.on(&DISK).is_ok()));
}
