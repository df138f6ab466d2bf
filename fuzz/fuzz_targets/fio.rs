//! Job files of fio as somebody may write them: from the text to jobs, and, where the file is good, to
//! loads on a disk whose size the length of the text decides, with the first requests of each.
//!
//! What is checked: a bad text has mistakes, each with a place in it and a line for people; what a good
//! one asks for lies on the disk, in whole blocks.
#![no_main]

use lab::fio::{Disk, JobFile, Mistakes, Ready};
use lab::workload::Stream;
use libfuzzer_sys::fuzz_target;

/// Requests that are looked at of each clone, and clones of each job.
const DRAWS: u32 = 20;
const CLONES: u32 = 3;

fuzz_target!(|text: &str| {
    let environment = |name: &str| (name.len() < 4).then(|| "8k".to_owned());
    let file = match JobFile::parse("a.fio", text, environment) {
        Ok(file) => file,
        Err(mistakes) => return check(text, &mistakes),
    };
    assert!(!file.jobs().is_empty() && file.stages() <= file.jobs().len());
    let block_bytes = if text.len().is_multiple_of(2) { 512 } else { 4096 };
    let bytes = u64::from(block_bytes) << (text.len() % 40);
    let disk = Disk { bytes, block_bytes, discards: !text.len().is_multiple_of(3), seed: 1 };
    match file.on(&disk) {
        Ok(ready) => {
            assert_eq!(ready.len(), file.jobs().len());
            ready.iter().for_each(|ready| ask(ready, &disk));
        }
        Err(mistakes) => check(text, &mistakes),
    }
});

fn check(text: &str, mistakes: &Mistakes) {
    assert!(!mistakes.list().is_empty(), "refused without a reason");
    for mistake in mistakes.list() {
        assert!(text.get(mistake.span.clone()).is_some(), "{mistake:?} has no place");
    }
    assert!(mistakes.lines().all(|line| line.starts_with("a.fio:")));
}

fn ask(Ready { plan, ranges }: &Ready, disk: &Disk) {
    assert!(!ranges.is_empty() && ranges.is_sorted());
    assert!(ranges.iter().all(|(from, to)| from < to && *to <= disk.bytes), "{ranges:?}");
    let (workload, jobs) = (&plan.workload, plan.jobs_carried());
    for clone in 0..jobs.min(CLONES) {
        let part = workload.part(clone, jobs, plan.verify);
        let mut stream = Stream::new(workload, part, u64::from(clone), 1);
        for _ in 0..DRAWS {
            let draw = stream.draw();
            let unit = u64::from(workload.block_bytes);
            let offset = workload.offset_bytes + (part.first + draw.block) * unit;
            let end = offset + u64::from(draw.bytes);
            assert!(ranges.iter().any(|(from, to)| offset >= *from && end <= *to), "{draw:?}");
            assert!(offset.is_multiple_of(disk.block_bytes.into()));
            assert!(draw.bytes > 0 && draw.bytes.is_multiple_of(disk.block_bytes));
            assert!(draw.bytes <= workload.request_bytes_max());
        }
    }
}
