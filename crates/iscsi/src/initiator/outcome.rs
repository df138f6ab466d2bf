//! What the end of a command means for the request: the one place where SCSI statuses and sense
//! data become outcomes.
//!
//! A status never makes an outcome *unknown*: a target that answers has finished with the command.
//! What says "not now" asks for another try, which is always safe, because what a job asks may be
//! carried out twice: a compare-and-write, of which that is not true, is no job. "No room" (BUSY, TASK
//! SET FULL) is no try at all: our own targets say so while they are short of memory. Spec: SAM-5,
//! "Status codes"; SPC-4, "Sense data".

use block::{Failure, Outcome};
use remote::{JobKind, Verdict};
use wire::scsi::{AdditionalSense, ScsiStatus, Sense, SenseKey};

/// The meaning of a status for a job of this kind; `None`: the target has no room at present, and
/// has not taken the command.
#[inline]
pub(super) fn verdict(kind: JobKind, status: ScsiStatus, sense: Option<&Sense>) -> Option<Verdict> {
    match status {
        ScsiStatus::GOOD => Some(Verdict::Finish(Outcome::Done)),
        ScsiStatus::BUSY | ScsiStatus::TASK_SET_FULL => None,
        status => Some(other(kind, status, sense)),
    }
}

#[cold]
fn other(kind: JobKind, status: ScsiStatus, sense: Option<&Sense>) -> Verdict {
    let not_done = |failure| Verdict::Finish(Outcome::NotDone(failure));
    match (status, sense) {
        (ScsiStatus::CONDITION_MET, _) => Verdict::Finish(Outcome::Done),
        (ScsiStatus::ACA_ACTIVE, _) => Verdict::Retry(Failure::NotReady),
        (ScsiStatus::TASK_ABORTED, _) => Verdict::Retry(Failure::Aborted),
        (ScsiStatus::RESERVATION_CONFLICT, _) => not_done(Failure::WriteProtected),
        (ScsiStatus::CHECK_CONDITION, Some(sense)) => checked(kind, sense),
        // Of what went wrong nothing is known.
        (ScsiStatus::CHECK_CONDITION, None) => Verdict::Retry(Failure::Internal),
        _ => not_done(Failure::Internal),
    }
}

fn checked(kind: JobKind, sense: &Sense) -> Verdict {
    let not_done = |failure| Verdict::Finish(Outcome::NotDone(failure));
    match sense.key {
        // It was carried out, and there is something to tell.
        SenseKey::NO_SENSE | SenseKey::RECOVERED_ERROR | SenseKey::COMPLETED => {
            Verdict::Finish(Outcome::Done)
        }
        SenseKey::NOT_READY if sense.code == AdditionalSense::MEDIUM_NOT_PRESENT => {
            not_done(Failure::NotReady)
        }
        SenseKey::NOT_READY | SenseKey::UNIT_ATTENTION => Verdict::Retry(Failure::NotReady),
        SenseKey::ABORTED_COMMAND => Verdict::Retry(Failure::Aborted),
        SenseKey::MEDIUM_ERROR => not_done(medium(kind, sense.code)),
        SenseKey::BLANK_CHECK => not_done(Failure::MediumRead),
        SenseKey::ILLEGAL_REQUEST => not_done(illegal(kind, sense.code)),
        SenseKey::DATA_PROTECT => match sense.code {
            AdditionalSense::SPACE_ALLOCATION_FAILED => not_done(Failure::NoSpace),
            _ => not_done(Failure::WriteProtected),
        },
        // What INFORMATION says of it differs between standards: the first byte stands for the
        // whole.
        SenseKey::MISCOMPARE => Verdict::Finish(Outcome::Miscompare(0)),
        _ => not_done(Failure::Internal),
    }
}

fn medium(kind: JobKind, code: AdditionalSense) -> Failure {
    match code.asc() {
        0x0c => Failure::MediumWrite,
        0x11 => Failure::MediumRead,
        _ if kind.changes() || kind == JobKind::Flush => Failure::MediumWrite,
        _ => Failure::MediumRead,
    }
}

fn illegal(kind: JobKind, code: AdditionalSense) -> Failure {
    // What not every disk has may be there without the fields that we use.
    let is_optional = matches!(
        kind,
        JobKind::Compare | JobKind::Verify | JobKind::Discard | JobKind::Zeroes { .. }
    );
    match code {
        AdditionalSense::INVALID_COMMAND_OPERATION_CODE => Failure::Unsupported,
        AdditionalSense::INVALID_FIELD_IN_CDB if is_optional => Failure::Unsupported,
        AdditionalSense::LBA_OUT_OF_RANGE => Failure::OutOfRange,
        AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED => Failure::Removed,
        _ => Failure::Internal,
    }
}

/// What sense data say about the unit, beside what they say about the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    /// It is not as it was, or not what it was.
    Changed,
    /// It may have been started anew: what lay in its cache is lost.
    Restarted,
}

/// The news in sense data, if there are any.
#[cold]
pub(super) fn attention(sense: &Sense) -> Option<Attention> {
    match (sense.key, sense.code) {
        (SenseKey::ILLEGAL_REQUEST, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED) => {
            Some(Attention::Changed)
        }
        (SenseKey::UNIT_ATTENTION, code) => match code.asc() {
            0x29 if code.ascq() <= 1 => Some(Attention::Restarted),
            // Parameters, inquiry data, definition, list of units; but not resets, which leave all
            // as it was, and reservations and the states of ports, of which commands are told
            // themselves.
            0x2a if code == AdditionalSense::MODE_PARAMETERS_CHANGED => Some(Attention::Changed),
            0x2a if code == AdditionalSense::CAPACITY_DATA_CHANGED => Some(Attention::Changed),
            0x3f => Some(Attention::Changed),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [JobKind; 7] = [
        JobKind::Read,
        JobKind::Write,
        JobKind::Compare,
        JobKind::Flush,
        JobKind::Discard,
        JobKind::Zeroes { deallocate: true },
        JobKind::Verify,
    ];

    #[test]
    fn every_end_has_a_meaning_and_none_is_unknown() {
        for kind in KINDS {
            for status in (0..=255).map(ScsiStatus) {
                for key in (0..16).map(SenseKey) {
                    for code in [0, 0x0c00, 0x1100, 0x2000, 0x2100, 0x2400, 0x2500, 0x2707, 0x2900]
                    {
                        let sense = Sense::new(key, AdditionalSense(code));
                        let meant = verdict(kind, status, Some(&sense));
                        assert!(!matches!(meant, Some(Verdict::Finish(Outcome::Unknown(_)))));
                    }
                }
                let bare = verdict(kind, status, None);
                let is_done = bare == Some(Verdict::Finish(Outcome::Done));
                let is_good = matches!(status, ScsiStatus::GOOD | ScsiStatus::CONDITION_MET);
                assert_eq!(is_done, is_good, "{status}");
            }
        }
    }

    #[test]
    fn what_an_operator_must_tell_apart_is_told_apart() {
        let check = |kind, key, code| {
            verdict(kind, ScsiStatus::CHECK_CONDITION, Some(&Sense::new(key, code)))
        };
        let not_done = |failure| Some(Verdict::Finish(Outcome::NotDone(failure)));
        let (read, write) = (JobKind::Read, JobKind::Write);
        let unread = AdditionalSense::UNRECOVERED_READ_ERROR;
        assert_eq!(check(read, SenseKey::MEDIUM_ERROR, unread), not_done(Failure::MediumRead));
        let other = AdditionalSense(0x3100);
        assert_eq!(check(write, SenseKey::MEDIUM_ERROR, other), not_done(Failure::MediumWrite));
        let range = AdditionalSense::LBA_OUT_OF_RANGE;
        assert_eq!(check(read, SenseKey::ILLEGAL_REQUEST, range), not_done(Failure::OutOfRange));
        let full = AdditionalSense::SPACE_ALLOCATION_FAILED;
        assert_eq!(check(write, SenseKey::DATA_PROTECT, full), not_done(Failure::NoSpace));
        let protected = AdditionalSense::WRITE_PROTECTED;
        let failure = not_done(Failure::WriteProtected);
        assert_eq!(check(write, SenseKey::DATA_PROTECT, protected), failure);
        assert_eq!(verdict(write, ScsiStatus::RESERVATION_CONFLICT, None), failure);
        let differs = AdditionalSense::MISCOMPARE_DURING_VERIFY;
        let miscompare = Some(Verdict::Finish(Outcome::Miscompare(0)));
        assert_eq!(check(JobKind::Compare, SenseKey::MISCOMPARE, differs), miscompare);
        let field = AdditionalSense::INVALID_FIELD_IN_CDB;
        let unsupported = not_done(Failure::Unsupported);
        assert_eq!(check(JobKind::Verify, SenseKey::ILLEGAL_REQUEST, field), unsupported);
        assert_eq!(check(read, SenseKey::ILLEGAL_REQUEST, field), not_done(Failure::Internal));
    }

    #[test]
    fn what_is_not_now_is_tried_again() {
        let of = |status| verdict(JobKind::Write, status, None);
        assert!(matches!(of(ScsiStatus::TASK_ABORTED), Some(Verdict::Retry(_))));
        assert_eq!((of(ScsiStatus::BUSY), of(ScsiStatus::TASK_SET_FULL)), (None, None));
        for key in [SenseKey::UNIT_ATTENTION, SenseKey::NOT_READY, SenseKey::ABORTED_COMMAND] {
            let sense = Sense::new(key, AdditionalSense::NONE);
            let meant = verdict(JobKind::Read, ScsiStatus::CHECK_CONDITION, Some(&sense));
            assert!(matches!(meant, Some(Verdict::Retry(_))), "{key}");
        }
    }

    #[test]
    fn news_of_the_unit_are_told_from_those_of_others() {
        let of = |code| attention(&Sense::attention(code));
        assert_eq!(of(AdditionalSense::CAPACITY_DATA_CHANGED), Some(Attention::Changed));
        assert_eq!(of(AdditionalSense::REPORTED_LUNS_DATA_CHANGED), Some(Attention::Changed));
        let anew = AdditionalSense::POWER_ON_RESET_OR_BUS_DEVICE_RESET;
        assert_eq!(of(anew), Some(Attention::Restarted));
        assert_eq!(of(AdditionalSense::BUS_DEVICE_RESET), None);
        assert_eq!(of(AdditionalSense::RESERVATIONS_PREEMPTED), None);
        let gone = Sense::illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        assert_eq!(attention(&gone), Some(Attention::Changed));
    }
}
