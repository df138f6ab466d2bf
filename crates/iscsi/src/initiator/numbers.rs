//! The sequence numbers of a session with one connection: in which order commands are carried out,
//! how many more the target takes, and that none of its statuses is missing.
//!
//! At ErrorRecoveryLevel 0 a status that is missing ends the session. Spec: RFC 7143, 4.2.2.

use wire::iscsi::serial::{precedes, window};
use wire::iscsi::{InitiatorNumbers, TargetNumbers};

use super::framing::{Fault, broken};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The number of the next command.
    cmd_sn: u32,
    max_cmd_sn: u32,
    /// The next StatSN; what the first is, the target says.
    exp_stat_sn: Option<u32>,
}

impl Numbers {
    /// Of a session that begins: before the target says so, it takes no command.
    pub(super) fn new() -> Numbers {
        Numbers { cmd_sn: 1, max_cmd_sn: 0, exp_stat_sn: None }
    }

    /// Whether the target takes another command.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        window(self.cmd_sn, self.max_cmd_sn) > 0
    }

    /// What the next command says. There must be room.
    #[inline]
    pub(super) fn command(&mut self) -> InitiatorNumbers {
        assert!(self.has_room(), "command {} beyond {}", self.cmd_sn, self.max_cmd_sn);
        let numbers = self.immediate();
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        numbers
    }

    /// What an immediate command says.
    #[inline]
    pub(super) fn immediate(&self) -> InitiatorNumbers {
        InitiatorNumbers { cmd_sn: self.cmd_sn, exp_stat_sn: self.exp_stat_sn() }
    }

    /// ExpStatSN.
    #[inline]
    pub(super) fn exp_stat_sn(&self) -> u32 {
        self.exp_stat_sn.unwrap_or(0)
    }

    /// Any PDU of the target came: what it takes now. A window that is none says nothing.
    #[inline]
    pub(super) fn note_window(&mut self, exp_cmd_sn: u32, max_cmd_sn: u32) {
        let is_one = !precedes(max_cmd_sn, exp_cmd_sn.wrapping_sub(1));
        if is_one && precedes(self.max_cmd_sn, max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    /// A PDU with a status came.
    #[inline]
    pub(super) fn note_status(&mut self, numbers: TargetNumbers) -> Result<(), Fault> {
        let TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn } = numbers;
        if self.exp_stat_sn.is_some_and(|expected| expected != stat_sn) {
            return broken("no status is missing (StatSN)");
        }
        self.exp_stat_sn = Some(stat_sn.wrapping_add(1));
        self.note_window(exp_cmd_sn, max_cmd_sn);
        Ok(())
    }
}

/// The numbers that a PDU of the target says.
macro_rules! numbers_of {
    ($pdu:expr) => {
        wire::iscsi::TargetNumbers {
            stat_sn: $pdu.stat_sn,
            exp_cmd_sn: $pdu.exp_cmd_sn,
            max_cmd_sn: $pdu.max_cmd_sn,
        }
    };
}
pub(super) use numbers_of;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) -> TargetNumbers {
        TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn }
    }

    #[test]
    fn no_more_commands_are_sent_than_the_window_has() {
        let mut numbers = Numbers::new();
        assert!(!numbers.has_room());
        numbers.note_status(at(7, 1, 3)).unwrap();
        for sent in 1..=3 {
            assert!(numbers.has_room());
            assert_eq!(numbers.command(), InitiatorNumbers { cmd_sn: sent, exp_stat_sn: 8 });
        }
        assert!(!numbers.has_room());
        assert_eq!(numbers.immediate().cmd_sn, 4, "which is the next command's");
        // Nor does an older PDU, or one whose window is none, change that.
        numbers.note_window(1, 2);
        numbers.note_window(50, 40);
        assert!(!numbers.has_room());
        numbers.note_window(4, 4);
        assert!(numbers.has_room());
        numbers.command();
        numbers.note_window(5, 4);
        assert!(!numbers.has_room(), "the window is closed");
    }

    #[test]
    fn a_status_that_is_missing_ends_the_session() {
        let mut numbers = Numbers::new();
        numbers.note_status(at(u32::MAX, 1, 1)).unwrap();
        numbers.note_status(at(0, 1, 1)).unwrap();
        for wrong in [0, 2] {
            assert!(numbers.note_status(at(wrong, 1, 1)).is_err(), "{wrong}");
        }
    }

    #[test]
    #[should_panic(expected = "command 1 beyond 0")]
    fn a_command_beyond_the_window_is_a_bug() {
        Numbers::new().command();
    }
}
