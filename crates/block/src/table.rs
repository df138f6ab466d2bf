//! A table of slots with generations: constant-time insert, look-up and removal, in memory that
//! grows to the largest number held at once and is kept. A stale key finds nothing.

/// A key of a [`Table`]: the slot's index and the generation it was filled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Which slot.
    pub index: u32,
    /// Which life of it.
    pub generation: u32,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Slots that hold a `T` each.
#[derive(Debug)]
pub struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { entries: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Table<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many slots are filled.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no slot is filled.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills a free slot, the one freed last first, so that what is touched stays in the cache.
    #[inline]
    pub fn insert(&mut self, value: T) -> Slot {
        self.insert_with(|_| value)
    }

    /// Fills a free slot with a value that knows its key.
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce(Slot) -> T) -> Slot {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            let slot = Slot { index, generation: entry.generation };
            entry.value = Some(make(slot));
            return slot;
        }
        let index = u32::try_from(self.entries.len()).expect("a table holds fewer than 2^32 slots");
        let slot = Slot { index, generation: 0 };
        self.entries.push(Entry { generation: 0, value: Some(make(slot)) });
        slot
    }

    /// What the slot holds, unless it was emptied since.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&T> {
        let entry = self.entries.get(slot.index as usize)?;
        if entry.generation == slot.generation { entry.value.as_ref() } else { None }
    }

    /// What the slot holds, to change, unless it was emptied since.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        if entry.generation == slot.generation { entry.value.as_mut() } else { None }
    }

    /// Empties the slot and returns what it held.
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        if entry.generation != slot.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot.index);
        self.len -= 1;
        Some(value)
    }

    /// The filled slots in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let slot = Slot { index: index as u32, generation: entry.generation };
            entry.value.as_ref().map(|value| (slot, value))
        })
    }

    /// The filled slots in the order of their indices, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(index, entry)| {
            let slot = Slot { index: index as u32, generation: entry.generation };
            entry.value.as_mut().map(|value| (slot, value))
        })
    }

    /// Gives the memory of free slots back when the table is empty. Generations start anew, so call
    /// it only when no key is left anywhere.
    pub fn shrink(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut table = Table::new();
        let a = table.insert('a');
        assert_eq!(table.remove(a), Some('a'));
        let b = table.insert('b');
        assert_eq!(a.index, b.index);
        assert_eq!(table.get(a), None);
        assert_eq!(table.remove(a), None);
        assert_eq!(table.get(b), Some(&'b'));
        assert_eq!(table.len(), 1);
    }
}
