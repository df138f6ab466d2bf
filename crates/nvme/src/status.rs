//! What became of a request, as the status that a host sees: the one place where an [`Outcome`]
//! becomes a [`Status`].
//!
//! DNR is set where the same command would fail again. Spec: NVMe base, "Status Field"; NVM command
//! set, "Status Codes"; for what Linux makes of each: `nvme_error_status` and
//! `nvme_decide_disposition`.

use block::{Failure, Outcome};
use wire::nvme::Status;

/// The status of a command whose request ended with `outcome`.
#[inline]
pub(crate) fn status_of(outcome: Outcome) -> Status {
    match outcome {
        Outcome::Done => Status::SUCCESS,
        Outcome::Miscompare(_) => Status::COMPARE_FAILURE,
        // Nothing is sought over NVMe.
        Outcome::Found(_) => Status::INTERNAL_ERROR,
        Outcome::NotDone(why) | Outcome::Unknown(why) => status_of_failure(why),
    }
}

/// The status of a failure. *Unknown* and *not done* look alike to a host, which repeats the
/// command or gives up: either is safe, because nothing of the command comes later.
#[cold]
fn status_of_failure(why: Failure) -> Status {
    match why {
        Failure::OutOfRange => Status::LBA_OUT_OF_RANGE.with_dnr(),
        Failure::WriteProtected => Status::NAMESPACE_WRITE_PROTECTED.with_dnr(),
        Failure::MediumRead => Status::UNRECOVERED_READ_ERROR,
        Failure::MediumWrite => Status::WRITE_FAULT,
        // As nvmet maps ENOSPC: Linux makes "no space" of it, which file systems understand.
        Failure::NoSpace => Status::CAPACITY_EXCEEDED.with_dnr(),
        Failure::Unsupported => Status::INVALID_OPCODE.with_dnr(),
        Failure::Removed => Status::INVALID_NAMESPACE.with_dnr(),
        Failure::NotReady => Status::NAMESPACE_NOT_READY,
        Failure::Aborted => Status::ABORT_REQUESTED,
        Failure::TimedOut | Failure::Internal => Status::INTERNAL_ERROR,
    }
}

/// The statuses of a fused compare and write: of the compare, then of the write. Whichever failed
/// says why, the other one that its mate did.
pub(crate) fn statuses_of_fused(outcome: Outcome) -> (Status, Status) {
    match outcome {
        Outcome::Done => (Status::SUCCESS, Status::SUCCESS),
        Outcome::NotDone(why) | Outcome::Unknown(why)
            if matches!(why, Failure::MediumWrite | Failure::NoSpace | Failure::WriteProtected) =>
        {
            (Status::FUSED_FAILED, status_of_failure(why))
        }
        outcome => (status_of(outcome), Status::FUSED_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_would_fail_again_says_do_not_retry() {
        let retry = |why| !status_of(Outcome::NotDone(why)).dnr();
        for why in [
            Failure::MediumRead,
            Failure::MediumWrite,
            Failure::NotReady,
            Failure::Aborted,
            Failure::TimedOut,
            Failure::Internal,
        ] {
            assert!(retry(why), "{why}");
        }
        for why in [
            Failure::OutOfRange,
            Failure::WriteProtected,
            Failure::NoSpace,
            Failure::Unsupported,
            Failure::Removed,
        ] {
            assert!(!retry(why), "{why}");
        }
    }

    #[test]
    fn of_a_fused_pair_one_says_why_and_the_other_that_its_mate_failed() {
        assert_eq!(
            statuses_of_fused(Outcome::Miscompare(3)),
            (Status::COMPARE_FAILURE, Status::FUSED_FAILED)
        );
        assert_eq!(
            statuses_of_fused(Outcome::NotDone(Failure::MediumWrite)),
            (Status::FUSED_FAILED, Status::WRITE_FAULT)
        );
    }
}
