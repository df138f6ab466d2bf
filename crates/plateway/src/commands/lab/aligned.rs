//! Memory that lies as O_DIRECT asks for. Units: bytes. Errors: none.

/// What O_DIRECT may ask of where a buffer lies, and of a request's place and length in a file.
pub(super) const ALIGNED: usize = 4096;

/// Bytes that lie as O_DIRECT asks for.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

impl Buffer {
    pub(super) fn new(length: usize) -> Buffer {
        let bytes = vec![0; length + ALIGNED];
        let from = bytes.as_ptr().align_offset(ALIGNED);
        Buffer { bytes, from, length }
    }

    pub(super) fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.length]
    }
}
