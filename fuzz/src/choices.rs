//! An input as a list of choices, one or a few bytes each. After its end every choice is 0, so each
//! target makes 0 the plainest one.

/// What is left of an input.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    left: &'a [u8],
}

impl<'a> Choices<'a> {
    /// All of an input.
    pub fn new(input: &'a [u8]) -> Choices<'a> {
        Choices { left: input }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&byte, left)) = self.left.split_first() else { return 0 };
        self.left = left;
        byte
    }

    /// The next two bytes, little-endian.
    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A number below `bound`, which is 1 or more: of one byte where that is enough, else of two.
    pub fn below(&mut self, bound: usize) -> usize {
        match bound {
            0..=1 => 0,
            2..=256 => usize::from(self.byte()) % bound,
            _ => usize::from(self.word()) % bound,
        }
    }

    /// One of them.
    pub fn of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }
}
