//! Values under the small numbers that whoever configured them gave (disks, volumes, links,
//! exports): found by one look at a list, which is as long as its highest number.

use core::ops::{Index, IndexMut};

/// Values by number.
#[derive(Debug)]
pub struct IdMap<T> {
    values: Vec<Option<T>>,
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        IdMap { values: Vec::new() }
    }
}

impl<T> IdMap<T> {
    /// Whether there is no value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // The list is as short as it can be.
        self.values.is_empty()
    }

    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.values.get(id as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.values.get_mut(id as usize)?.as_mut()
    }

    /// Where the value under a number is, if it is there; nothing of it is looked at.
    #[inline]
    pub fn place(&self, id: u32) -> Option<&Option<T>> {
        self.values.get(id as usize)
    }

    /// Puts a value under a number; returns the one that was there.
    pub fn insert(&mut self, id: u32, value: T) -> Option<T> {
        let index = id as usize;
        if self.values.len() <= index {
            self.values.resize_with(index + 1, || None);
        }
        self.values[index].replace(value)
    }

    /// Takes a value out; the list becomes as short as it can be.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.values.get_mut(id as usize)?.take();
        let last = self.values.iter().rposition(Option::is_some);
        self.values.truncate(last.map_or(0, |last| last + 1));
        value
    }

    /// The first value under a number from this one on.
    pub fn first_from(&self, id: u32) -> Option<(u32, &T)> {
        let values = self.values.get(id as usize..)?;
        (id..).zip(values).find_map(|(id, value)| Some((id, value.as_ref()?)))
    }

    /// The values, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.values).filter_map(|(id, value)| Some((id, value.as_ref()?)))
    }

    /// The values to change, in the same order.
    #[inline]
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().flatten()
    }
}

/// The value under a number that is known to be there.
impl<T> Index<u32> for IdMap<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        self.get(id).unwrap_or_else(|| missing(id))
    }
}

impl<T> IndexMut<u32> for IdMap<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.get_mut(id).unwrap_or_else(|| missing(id))
    }
}

#[cold]
fn missing(id: u32) -> ! {
    panic!("number {id} is used and not there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_number_until_it_is_removed_and_leaves_no_memory_in_use() {
        let mut map = IdMap::default();
        assert_eq!(
            (map.insert(7, 'a'), map.insert(3, 'b'), map.insert(3, 'c')),
            (None, None, Some('b'))
        );
        assert_eq!((map[7], map[3], map.get(5), map.get(9)), ('a', 'c', None, None));
        assert_eq!(map.iter().collect::<Vec<_>>(), [(3, &'c'), (7, &'a')]);
        assert_eq!(
            [3, 4, 8].map(|id| map.first_from(id)),
            [Some((3, &'c')), Some((7, &'a')), None]
        );
        assert_eq!((map.remove(7), map.remove(7), map.values.len()), (Some('a'), None, 4));
        assert_eq!((map.remove(3), map.values.len()), (Some('c'), 0));
    }

    #[test]
    #[should_panic(expected = "number 4 is used and not there")]
    fn who_names_a_number_that_is_not_there_is_wrong() {
        let _ = IdMap::<u8>::default()[4];
    }
}
