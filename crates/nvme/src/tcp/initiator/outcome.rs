//! What a status means for the request: the one place where NVMe statuses become outcomes.
//!
//! A status never makes an outcome *unknown*: a target that answers has finished with the command.
//! Statuses that say "not now" without DNR ask for another try, which is always safe, because a
//! command that failed so was not carried out. Spec: NVMe base, "Status Field".

use block::{Failure, Outcome};
use remote::Verdict;
use wire::nvme::Status;

/// The meaning of a status.
#[inline]
pub(super) fn verdict(status: Status) -> Verdict {
    if status.is_success() {
        return Verdict::Finish(Outcome::Done);
    }
    failed(status)
}

#[cold]
fn failed(status: Status) -> Verdict {
    // NVMe does not tell where a comparison failed: the first byte stands for the whole.
    if status.without_hints() == Status::COMPARE_FAILURE {
        return Verdict::Finish(Outcome::Miscompare(0));
    }
    let failure = failure(status);
    if is_transient(status) && !status.dnr() {
        return Verdict::Retry(failure);
    }
    Verdict::Finish(Outcome::NotDone(failure))
}

/// Whether the same command may well succeed a little later.
fn is_transient(status: Status) -> bool {
    matches!(
        status.without_hints(),
        Status::NAMESPACE_NOT_READY
            | Status::COMMAND_INTERRUPTED
            | Status::TRANSIENT_TRANSPORT_ERROR
            | Status::DATA_TRANSFER_ERROR
            | Status::ABORT_REQUESTED
            | Status::SQ_DELETED
            | Status::PREEMPTED
            | Status::ANA_INACCESSIBLE
            | Status::ANA_TRANSITION
            | Status::CONTROLLER_PATHING_ERROR
            | Status::FORMAT_IN_PROGRESS
            | Status::SANITIZE_IN_PROGRESS
            | Status::COMMAND_ID_CONFLICT
    )
}

/// Why a command was not carried out.
pub(super) fn failure(status: Status) -> Failure {
    match status.without_hints() {
        Status::LBA_OUT_OF_RANGE => Failure::OutOfRange,
        Status::NAMESPACE_WRITE_PROTECTED
        | Status::ACCESS_DENIED
        | Status::RESERVATION_CONFLICT
        | Status::COMMAND_PROHIBITED
        | Status::OPERATION_DENIED => Failure::WriteProtected,
        Status::UNRECOVERED_READ_ERROR
        | Status::DEALLOCATED_BLOCK
        | Status::GUARD_CHECK_FAILED
        | Status::APPLICATION_TAG_CHECK_FAILED
        | Status::REFERENCE_TAG_CHECK_FAILED => Failure::MediumRead,
        Status::WRITE_FAULT => Failure::MediumWrite,
        Status::CAPACITY_EXCEEDED => Failure::NoSpace,
        Status::INVALID_OPCODE => Failure::Unsupported,
        Status::INVALID_NAMESPACE | Status::ANA_PERSISTENT_LOSS => Failure::Removed,
        Status::NAMESPACE_NOT_READY
        | Status::ANA_INACCESSIBLE
        | Status::ANA_TRANSITION
        | Status::FORMAT_IN_PROGRESS
        | Status::SANITIZE_IN_PROGRESS
        | Status::ADMIN_MEDIA_NOT_READY
        | Status::CONTROLLER_PATHING_ERROR
        | Status::TRANSIENT_TRANSPORT_ERROR
        | Status::COMMAND_INTERRUPTED => Failure::NotReady,
        Status::ABORT_REQUESTED
        | Status::SQ_DELETED
        | Status::PREEMPTED
        | Status::ABORTED_BY_HOST => Failure::Aborted,
        _ => Failure::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_meaning_only_success_is_done_and_none_is_unknown() {
        for code in 0..0x800 {
            let status = Status(code);
            let meant = verdict(status);
            assert_eq!(meant == Verdict::Finish(Outcome::Done), status.is_success(), "{status}");
            assert!(!matches!(meant, Verdict::Finish(Outcome::Unknown(_))), "{status}");
            let repeated = matches!(verdict(status.with_dnr()), Verdict::Retry(_));
            assert!(!repeated, "{status} with DNR would be tried again");
        }
    }

    #[test]
    fn what_an_operator_must_tell_apart_is_told_apart() {
        let done = |status| verdict(status);
        let not_done = |failure| Verdict::Finish(Outcome::NotDone(failure));
        assert_eq!(done(Status::UNRECOVERED_READ_ERROR), not_done(Failure::MediumRead));
        assert_eq!(done(Status::WRITE_FAULT.with_dnr()), not_done(Failure::MediumWrite));
        assert_eq!(done(Status::LBA_OUT_OF_RANGE.with_dnr()), not_done(Failure::OutOfRange));
        assert_eq!(done(Status::COMPARE_FAILURE), Verdict::Finish(Outcome::Miscompare(0)));
        assert_eq!(done(Status::NAMESPACE_NOT_READY), Verdict::Retry(Failure::NotReady));
    }

    /// Who lost its registration may still be let in: only the next answer tells.
    #[test]
    fn what_somebody_preempted_and_aborted_is_asked_again() {
        assert_eq!(verdict(Status::PREEMPTED), Verdict::Retry(Failure::Aborted));
        let refused = Verdict::Finish(Outcome::NotDone(Failure::WriteProtected));
        assert_eq!(verdict(Status::RESERVATION_CONFLICT), refused);
    }
}
