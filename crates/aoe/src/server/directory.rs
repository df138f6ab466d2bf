//! Which export a frame's address names: two loads, whatever the number of exports.
//!
//! A link's directory is a table of shelves, each with a row of slots once an export is on it. The
//! table is zeros that cost nothing before they are used (the system gives their pages when they
//! are touched), a row 1 KiB.

use wire::aoe::Address;

use crate::export::ExportId;

const SHELVES: usize = 1 << 16;
const SLOTS: usize = 1 << 8;

/// The exports of a link by address.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// The number of the shelf's row, plus 1.
    shelves: Vec<u16>,
    /// The number of the export, plus 1.
    rows: Vec<[u32; SLOTS]>,
}

impl Directory {
    /// The export at an address.
    #[inline]
    pub(super) fn find(&self, address: Address) -> Option<ExportId> {
        let row = *self.shelves.get(usize::from(address.shelf))?;
        let row = self.rows.get(usize::from(row).checked_sub(1)?)?;
        row[usize::from(address.slot)].checked_sub(1).map(ExportId)
    }

    /// Puts an export at an address. Returns whether the address was free; else nothing is changed.
    pub(super) fn insert(&mut self, address: Address, export: ExportId) -> bool {
        if self.find(address).is_some() {
            return false;
        }
        if self.shelves.is_empty() {
            self.shelves = vec![0; SHELVES];
        }
        let shelf = &mut self.shelves[usize::from(address.shelf)];
        if *shelf == 0 {
            // A wildcard is no shelf of its own, so 65,535 rows are enough.
            self.rows.push([0; SLOTS]);
            *shelf = self.rows.len() as u16;
        }
        self.rows[usize::from(*shelf) - 1][usize::from(address.slot)] = export.0 + 1;
        true
    }

    /// Takes an export out; its row stays, for the next one on the shelf.
    pub(super) fn remove(&mut self, address: Address, export: ExportId) {
        if self.find(address) == Some(export) {
            let row = usize::from(self.shelves[usize::from(address.shelf)]) - 1;
            self.rows[row][usize::from(address.slot)] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_found_by_their_address_alone() {
        let mut directory = Directory::default();
        assert_eq!(directory.find(Address::new(0, 0)), None);
        let address =
            |number: u32| Address::new((number / 255 * 4000) as u16, (number % 255) as u8);
        for number in 0..4096 {
            assert!(directory.insert(address(number), ExportId(number)));
            assert!(!directory.insert(address(number), ExportId(9999)));
        }
        for number in 0..4096 {
            assert_eq!(directory.find(address(number)), Some(ExportId(number)));
        }
        assert_eq!(directory.rows.len(), 17);
        assert_eq!(directory.find(Address::ANY), None);
        directory.remove(address(300), ExportId(7));
        assert!(directory.find(address(300)).is_some());
        directory.remove(address(300), ExportId(300));
        assert_eq!(directory.find(address(300)), None);
    }
}
