//! Unit attentions: what a host has to be told about a logical unit before anything else.
//!
//! One [`Attentions`] is those of one I_T nexus, for all its units by their numbers. Each kind waits
//! once for each unit; a reset is told before what it may have caused, everything else in the order
//! in which it came. All of it is bounded: what finds no room is forgotten, which costs a host a
//! hint and no data. Not here: which events raise what, and that sense data go to a host. Spec:
//! SAM-5, "Unit attention conditions"; SPC-4, "REPORT LUNS command".

use wire::scsi::{AdditionalSense, OpCode, Sense, SenseKey};

use crate::limits::{ATTENTIONS_MAX, ATTENTIONS_PER_UNIT};

/// The unit attentions of one I_T nexus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attentions {
    /// By unit, then in the order in which they are told.
    pending: Vec<(u16, AdditionalSense)>,
}

impl Attentions {
    /// Whether nothing waits: the usual case.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The host is to be told this about a unit.
    pub fn raise(&mut self, lun: u16, sense: Sense) {
        debug_assert_eq!(sense.key, SenseKey::UNIT_ATTENTION, "{sense}");
        let code = sense.code;
        let (first, end) = self.of(lun);
        let mine = &self.pending[first..end];
        let is_full = mine.len() >= ATTENTIONS_PER_UNIT || self.pending.len() >= ATTENTIONS_MAX;
        if is_full || mine.iter().any(|(_, other)| *other == code) {
            return;
        }
        let behind = mine.iter().filter(|(_, other)| rank(*other) <= rank(code)).count();
        self.pending.insert(first + behind, (lun, code));
    }

    /// The host is to be told this about each of these units.
    pub fn raise_all(&mut self, luns: &[u16], sense: Sense) {
        luns.iter().for_each(|&lun| self.raise(lun, sense));
    }

    /// What a command to a unit has to be answered with instead of being carried out, if anything.
    /// INQUIRY, REPORT LUNS and REQUEST SENSE are carried out whatever waits.
    #[inline]
    pub fn take(&mut self, lun: u16, opcode: OpCode) -> Option<Sense> {
        if self.is_empty() { None } else { self.take_pending(lun, opcode) }
    }

    #[cold]
    fn take_pending(&mut self, lun: u16, opcode: OpCode) -> Option<Sense> {
        match opcode {
            OpCode::INQUIRY | OpCode::REQUEST_SENSE => None,
            OpCode::REPORT_LUNS => {
                self.clear(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
                None
            }
            _ => self.take_as_data(lun),
        }
    }

    /// What REQUEST SENSE to a unit returns as its data, if anything waits; it waits no more.
    pub fn take_as_data(&mut self, lun: u16) -> Option<Sense> {
        let (first, end) = self.of(lun);
        if first == end {
            return None;
        }
        let (_, code) = self.pending.remove(first);
        // That the list of units changed is told once, whichever unit it is told of.
        if code == AdditionalSense::REPORTED_LUNS_DATA_CHANGED {
            self.clear(code);
        }
        Some(Sense::attention(code))
    }

    fn clear(&mut self, code: AdditionalSense) {
        self.pending.retain(|(_, other)| *other != code);
    }

    /// Where those of a unit begin and end.
    fn of(&self, lun: u16) -> (usize, usize) {
        let first = self.pending.partition_point(|(other, _)| *other < lun);
        let end = self.pending.partition_point(|(other, _)| *other <= lun);
        (first, end)
    }
}

/// What is told first has the smaller rank. Spec: SAM-5, "Unit attention condition precedence".
fn rank(code: AdditionalSense) -> u8 {
    match code {
        AdditionalSense::POWER_ON => 0,
        AdditionalSense::POWER_ON_RESET_OR_BUS_DEVICE_RESET => 1,
        AdditionalSense::BUS_RESET => 2,
        AdditionalSense::BUS_DEVICE_RESET => 3,
        AdditionalSense::NEXUS_LOSS => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: Sense = Sense::attention(AdditionalSense::POWER_ON_RESET_OR_BUS_DEVICE_RESET);
    const MODE: Sense = Sense::attention(AdditionalSense::MODE_PARAMETERS_CHANGED);
    const CAPACITY: Sense = Sense::attention(AdditionalSense::CAPACITY_DATA_CHANGED);
    const LUNS: Sense = Sense::attention(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);

    fn told(attentions: &mut Attentions, lun: u16) -> Vec<Sense> {
        core::iter::from_fn(|| attentions.take(lun, OpCode::READ_10)).collect()
    }

    #[test]
    fn a_reset_is_told_first_and_the_rest_in_order() {
        let mut attentions = Attentions::default();
        for sense in [MODE, CAPACITY, RESET] {
            attentions.raise(3, sense);
        }
        assert_eq!(told(&mut attentions, 3), [RESET, MODE, CAPACITY]);
        assert!(attentions.is_empty());
    }

    #[test]
    fn each_unit_has_its_own_and_each_kind_waits_once() {
        let mut attentions = Attentions::default();
        attentions.raise_all(&[0, 1, 2], MODE);
        attentions.raise(1, MODE);
        attentions.raise(1, CAPACITY);
        assert_eq!(told(&mut attentions, 1), [MODE, CAPACITY]);
        assert_eq!(told(&mut attentions, 0), [MODE]);
        assert_eq!(told(&mut attentions, 2), [MODE]);
        assert!(attentions.is_empty());
    }

    #[test]
    fn what_asks_who_is_there_is_never_told() {
        let mut attentions = Attentions::default();
        attentions.raise(0, RESET);
        for opcode in [OpCode::INQUIRY, OpCode::REPORT_LUNS, OpCode::REQUEST_SENSE] {
            assert_eq!(attentions.take(0, opcode), None, "{opcode}");
        }
        assert_eq!(attentions.take(0, OpCode::TEST_UNIT_READY), Some(RESET));
    }

    #[test]
    fn sense_on_demand_takes_what_waits() {
        let mut attentions = Attentions::default();
        attentions.raise(0, MODE);
        assert_eq!(attentions.take_as_data(1), None);
        assert_eq!(attentions.take_as_data(0), Some(MODE));
        assert_eq!(attentions.take_as_data(0), None);
    }

    #[test]
    fn a_change_of_the_list_is_told_once_and_not_after_the_list_was_read() {
        let mut attentions = Attentions::default();
        attentions.raise_all(&[0, 1, 2], LUNS);
        assert_eq!(attentions.take(1, OpCode::READ_10), Some(LUNS));
        assert!(attentions.is_empty());
        attentions.raise_all(&[0, 1, 2], LUNS);
        attentions.raise(2, MODE);
        assert_eq!(attentions.take(7, OpCode::REPORT_LUNS), None);
        assert_eq!(told(&mut attentions, 2), [MODE]);
        assert!(attentions.is_empty());
    }

    #[test]
    fn what_finds_no_room_is_forgotten() {
        let mut attentions = Attentions::default();
        for code in 0..100 {
            attentions.raise(0, Sense::attention(AdditionalSense(0x2a00 + code)));
        }
        assert_eq!(told(&mut attentions, 0).len(), ATTENTIONS_PER_UNIT);
        for lun in 0..=0x3fff {
            attentions.raise(lun, MODE);
        }
        assert_eq!(attentions.pending.len(), ATTENTIONS_MAX);
    }
}
