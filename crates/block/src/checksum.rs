//! CRC32C (Castagnoli, as iSCSI and NVMe/TCP use it), by `crc-fast`: 28 to 58 GB/s where the
//! processor has VPCLMULQDQ.

/// A running CRC32C. Feed it the bytes in order, then ask for the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crc32c(u32);

impl Crc32c {
    /// Of no bytes.
    pub fn new() -> Crc32c {
        Crc32c::default()
    }

    /// One that has come to `value`.
    #[inline]
    pub fn resumed(value: u32) -> Crc32c {
        Crc32c(value)
    }

    /// Takes `bytes` in.
    #[inline]
    #[must_use]
    pub fn update(self, bytes: &[u8]) -> Crc32c {
        if bytes.is_empty() {
            return self;
        }
        if self.0 == 0 {
            return Crc32c(crc_fast::crc32_iscsi(bytes));
        }
        let mut digest = crc_fast::Digest::new_with_init_state(
            crc_fast::CrcAlgorithm::Crc32Iscsi,
            u64::from(!self.0),
        );
        digest.update(bytes);
        Crc32c(digest.finalize() as u32)
    }

    /// The value, as it is stored little-endian on the wire.
    #[inline]
    pub fn value(self) -> u32 {
        self.0
    }
}

/// CRC32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    Crc32c::new().update(bytes).value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_standard() {
        // RFC 3720, B.4 and the catalogue of CRCs: "123456789".
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let bytes: Vec<u8> = (0..9000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let whole = crc32c(&bytes);
        for cut in [0, 1, 24, 512, 4096, 8999, 9000] {
            let first = Crc32c::resumed(crc32c(&bytes[..cut]));
            let parts = first.update(&bytes[cut..]);
            assert_eq!(parts.value(), whole, "cut at {cut}");
        }
    }
}
