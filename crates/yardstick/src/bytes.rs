//! What both protocols over TCP do to bytes: put a field in its place, and sum bytes up as CRC32C.
//!
//! The fields of a header are read where their byte order is known, in each protocol's `pdu.rs`.

/// Writes `value` at `at`.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// CRC32C in the order in which NVMe/TCP and iSCSI send it.
pub(crate) fn digest(bytes: &[u8]) -> [u8; 4] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_standards_vectors() {
        // RFC 7143, appendix A.4: 32 bytes of zeroes, and of ones.
        assert_eq!(digest(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    }
}
