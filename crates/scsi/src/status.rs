//! What became of a request, as the status and the sense data that a host sees: the one place where
//! an [`Outcome`] becomes a [`Sense`].
//!
//! Decided so that a host repeats what may help and gives up what would fail again. Spec: SPC-4,
//! "Sense key and additional sense code definitions"; SBC-3, "Error reporting"; for what Linux makes
//! of each: `scsi_check_sense` and `scsi_io_completion_action`.

use block::record::passed;
use block::{Failure, Outcome};
use wire::scsi::{AdditionalSense, ScsiStatus, Sense, SenseKey};

/// The status of a command whose request ended with `outcome`, with the sense data of CHECK
/// CONDITION.
#[inline]
pub fn status_of(outcome: Outcome) -> (ScsiStatus, Option<Sense>) {
    match outcome {
        Outcome::Done => (ScsiStatus::GOOD, None),
        other => (ScsiStatus::CHECK_CONDITION, Some(sense_of(other))),
    }
}

/// The sense data of what was not done. *Unknown* and *not done* look alike to a host, which repeats
/// the command or gives up: either is safe, because nothing of the command comes later.
#[cold]
fn sense_of(outcome: Outcome) -> Sense {
    let sense = match outcome {
        Outcome::Done | Outcome::Found(_) => Sense::NONE,
        // INFORMATION is where in the data that came the first difference is.
        Outcome::Miscompare(at) => {
            Sense::new(SenseKey::MISCOMPARE, AdditionalSense::MISCOMPARE_DURING_VERIFY)
                .with_information(at.into())
        }
        Outcome::NotDone(why) | Outcome::Unknown(why) => sense_of_failure(why),
    };
    passed("status", sense.code.name().unwrap_or_default());
    sense
}

fn sense_of_failure(why: Failure) -> Sense {
    let (key, code) = match why {
        Failure::OutOfRange => (SenseKey::ILLEGAL_REQUEST, AdditionalSense::LBA_OUT_OF_RANGE),
        Failure::WriteProtected => (SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED),
        // Linux gives up: the medium was asked often enough below.
        Failure::MediumRead => (SenseKey::MEDIUM_ERROR, AdditionalSense::UNRECOVERED_READ_ERROR),
        Failure::MediumWrite => (SenseKey::MEDIUM_ERROR, AdditionalSense::WRITE_ERROR),
        // Linux makes "no space" of it, which file systems understand.
        Failure::NoSpace => (SenseKey::DATA_PROTECT, AdditionalSense::SPACE_ALLOCATION_FAILED),
        Failure::Unsupported => {
            (SenseKey::ILLEGAL_REQUEST, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
        }
        Failure::Removed => {
            (SenseKey::ILLEGAL_REQUEST, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
        }
        // Linux waits a little and repeats it until the command's time is over.
        Failure::NotReady => (SenseKey::NOT_READY, AdditionalSense::BECOMING_READY),
        // An aborted command is repeated at once, five times. A hardware error would not be.
        Failure::Aborted => (SenseKey::ABORTED_COMMAND, AdditionalSense::NONE),
        Failure::TimedOut => (SenseKey::ABORTED_COMMAND, AdditionalSense::COMMUNICATION_TIMEOUT),
        Failure::Internal => (SenseKey::ABORTED_COMMAND, AdditionalSense::INTERNAL_TARGET_FAILURE),
    };
    Sense::new(key, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux repeats, of the keys and codes that are given here.
    fn is_repeated(sense: Sense) -> bool {
        match sense.key {
            SenseKey::ABORTED_COMMAND => true,
            SenseKey::MEDIUM_ERROR => sense.code != AdditionalSense::UNRECOVERED_READ_ERROR,
            SenseKey::NOT_READY => sense.code == AdditionalSense::BECOMING_READY,
            _ => false,
        }
    }

    #[test]
    fn only_what_may_help_is_repeated() {
        for why in Failure::ALL {
            let (status, sense) = status_of(Outcome::NotDone(why));
            assert_eq!(status, ScsiStatus::CHECK_CONDITION);
            assert_eq!(status_of(Outcome::Unknown(why)), (status, sense));
            let helps = matches!(
                why,
                Failure::MediumWrite
                    | Failure::NotReady
                    | Failure::Aborted
                    | Failure::TimedOut
                    | Failure::Internal
            );
            assert_eq!(sense.map(is_repeated), Some(helps), "{why}");
        }
    }

    #[test]
    fn a_difference_says_where_it_is() {
        let (status, sense) = status_of(Outcome::Miscompare(513));
        let sense = sense.expect("sense data");
        assert_eq!(status, ScsiStatus::CHECK_CONDITION);
        assert_eq!((sense.key, sense.information), (SenseKey::MISCOMPARE, Some(513)));
        assert_eq!(status_of(Outcome::Done), (ScsiStatus::GOOD, None));
    }

    #[test]
    fn a_full_disk_and_a_protected_one_are_told_apart() {
        let code = |why| status_of(Outcome::NotDone(why)).1.expect("sense data").code;
        assert_eq!(code(Failure::NoSpace).0, 0x2707);
        assert_eq!(code(Failure::WriteProtected).0, 0x2700);
    }
}
