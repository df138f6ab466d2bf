//! What bonnie++, PostMark and pgbench print, and what fio and an initiator tell while they run, as anybody may print it, in
//! pieces: it is refused in a line, or all of it is numbers.
#![no_main]

use std::time::Duration;

use lab::following::{Following, Teller};
use lab::programs::{bonnie, pgbench, postmark};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    match bonnie::Told::parse(&text, 64 << 20) {
        Ok(told) => {
            let rates =
                [told.char_write, told.write, told.rewrite, told.char_read, told.read, told.seeks];
            assert!(rates.into_iter().flatten().all(|rate| rate.is_finite() && rate > 0.0));
        }
        Err(why) => assert!(why.starts_with("bonnie++: ") && why.contains("expected "), "{why}"),
    }
    for teller in [Teller::Fio, Teller::Initiator] {
        let mut following = Following::new(teller, Duration::from_secs(1), Duration::ZERO);
        let mut pieces = bytes.chunks(1 + bytes.len() % 7);
        match pieces.try_for_each(|piece| following.handle_output(piece).map(|_| ())) {
            Ok(()) => {
                let report = following.report();
                assert!(report.iops >= 0.0 && report.windows.len() <= 25, "{report:?}");
            }
            Err(why) => assert!(why.contains(teller.word()) || why.contains("fio's"), "{why}"),
        }
    }
    let mut running = pgbench::Running::new(Duration::from_secs(1), Duration::ZERO);
    let mut pieces = bytes.chunks(1 + bytes.len() % 7);
    match pieces.try_for_each(|piece| running.handle_log(piece)) {
        Ok(()) => {
            let report = running.report();
            assert!(report.iops >= 0.0 && report.windows.len() <= 25, "{report:?}");
            assert!(report.last.requests <= running.transactions());
        }
        Err(why) => assert!(why.starts_with("pgbench: expected "), "{why}"),
    }
    if let Err(why) = pgbench::check(&text, 16 << 20, running.transactions()) {
        assert!(why.starts_with("pgbench: expected "), "{why}");
    }
    let asked = postmark::Asked::of(bytes.len() as u64 * 5250, 1);
    let mut running = postmark::Running::default();
    for (at, piece) in bytes.chunks(1 + bytes.len() % 7).enumerate() {
        if let Err(why) = running.handle_output(piece, Duration::from_millis(at as u64)) {
            return assert!(why.starts_with("PostMark: expected "));
        }
    }
    match running.end(&asked) {
        Ok(told) => {
            assert!(told.marks.is_sorted() && told.edges::<5>().len() == 6);
            assert!(told.read_bytes.is_finite() && told.written_bytes >= 0.0);
        }
        Err(why) => assert!(why.starts_with("PostMark: ")),
    }
});
