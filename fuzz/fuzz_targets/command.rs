//! Submission queue entries with their data, and completions: what a target reads of a command, on
//! either kind of queue.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::nvme::command::{CopyDword, CopyRange, DsmRange};
use wire::nvme::feature::Timestamp;
use wire::nvme::reservation::{ReleaseKey, ReservationKeys};
use wire::nvme::{Command, Completion};

fuzz_target!(|input: &[u8]| {
    if let Ok(command) = Command::parse(input) {
        one_line(&command.describe(true));
        one_line(&command.describe(false));
        let _ = format!("{:?} {:?}", command, command.sgl());
        // A command of 65,536 blocks is the longest that NLB can say.
        assert!((1..=65536).contains(&command.blocks()), "{} blocks", command.blocks());
        let _ = (command.lba(), command.nsid(), command.command_id());
        let ranges = DsmRange::count(&command);
        assert!((1..=256).contains(&ranges), "{ranges} ranges");
        let _ = DsmRange::is_deallocate(&command);
        let data = &input[64..];
        for range in DsmRange::parse_all(data).take(ranges) {
            let _ = format!("{range:?}");
        }
        let dword = CopyDword::of(&command);
        assert!((1..=CopyRange::COUNT_MAX).contains(&dword.count()), "{dword:?}");
        for range in CopyRange::parse_all(data).take(dword.count()) {
            assert!((1..=65536).contains(&range.blocks()), "{range:?}");
        }
        contract!(CopyRange, data);
        contract!(Timestamp, data);
        contract!(ReservationKeys, data);
        contract!(ReleaseKey, data);
    }
    if let Some(completion) = contract!(Completion, input) {
        one_line(&completion);
        one_line(&completion.status);
    }
});
