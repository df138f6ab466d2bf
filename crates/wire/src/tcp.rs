//! The TCP header, as much of it as putting a stream back together needs.
//!
//! Options are skipped; checksums are left alone, since offload leaves them undone in captures.
//! Big-endian. Spec: RFC 9293.

use core::fmt;

use crate::field::{be16, be32, need};
use crate::{Expected, ParseError};

flags! {
    /// The TCP flags; a set of bits.
    #[derive(Debug)]
    pub struct TcpFlags(u8) {
        /// Sequence numbers begin.
        SYN = 0x02 "S",
        /// No more data from the sender.
        FIN = 0x01 "F",
        /// Deliver now.
        PSH = 0x08 "P",
        /// The connection is gone.
        RST = 0x04 "R",
        /// The acknowledgement number is valid.
        ACK = 0x10 ".",
        /// The urgent pointer is valid.
        URG = 0x20 "U",
    }
}

impl fmt::Display for TcpFlags {
    /// As tcpdump: `S`, `F`, `P`, `R`, `U`, `.` for ACK, `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & 0x3f == 0 {
            return f.write_str("none");
        }
        self.letters(f)
    }
}

/// The TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader {
    /// From which port.
    pub source_port: u16,
    /// To which port.
    pub destination_port: u16,
    /// Sequence number of the first byte of payload (of the SYN, where it is set).
    pub sequence: u32,
    /// Next byte expected from the peer, where ACK is set.
    pub acknowledgement: u32,
    /// Bytes of the header with its options, 20 to 60.
    pub header_length: u8,
    /// The flags.
    pub flags: TcpFlags,
    /// Window, unscaled.
    pub window: u16,
    /// Checksum as seen.
    pub checksum: u16,
    /// Urgent pointer.
    pub urgent: u16,
}

impl TcpHeader {
    /// Size without options, in bytes.
    pub const SIZE: usize = 20;

    /// Reads the header and gives what follows its options. Errors: short, a data offset below 20.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        need(bytes, Self::SIZE)?;
        let header_length = (bytes[12] >> 4) * 4;
        if usize::from(header_length) < Self::SIZE {
            let seen = header_length.into();
            let expected = Expected::AtLeast(20);
            return Err(ParseError::new("data offset", 12, expected, seen));
        }
        let header = Self {
            source_port: be16(bytes, 0),
            destination_port: be16(bytes, 2),
            sequence: be32(bytes, 4),
            acknowledgement: be32(bytes, 8),
            header_length,
            flags: TcpFlags(bytes[13]),
            window: be16(bytes, 14),
            checksum: be16(bytes, 16),
            urgent: be16(bytes, 18),
        };
        Ok((header, need(bytes, header_length.into())?))
    }

    /// The header without options (`header_length` is written as 20), its checksum as given.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..2].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        bytes[12] = 0x50;
        bytes[13] = self.flags.0;
        bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.checksum.to_be_bytes());
        bytes[18..].copy_from_slice(&self.urgent.to_be_bytes());
        bytes
    }
}

impl fmt::Display for TcpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} > {} [{}] seq {}",
            self.source_port, self.destination_port, self.flags, self.sequence
        )?;
        if self.flags.contains(TcpFlags::ACK) {
            write!(f, " ack {}", self.acknowledgement)?;
        }
        write!(f, " win {}", self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: TcpHeader = TcpHeader {
        source_port: 40000,
        destination_port: 4420,
        sequence: 0x0102_0304,
        acknowledgement: 7,
        header_length: 20,
        flags: TcpFlags(0x18),
        window: 512,
        checksum: 0xbeef,
        urgent: 0,
    };

    #[test]
    fn header_both_ways() {
        let bytes =
            [0x9c, 0x40, 0x11, 0x44, 1, 2, 3, 4, 0, 0, 0, 7, 0x50, 0x18, 2, 0, 0xbe, 0xef, 0, 0];
        assert_eq!(HEADER.emit(), bytes);
        assert_eq!(TcpHeader::parse(&bytes), Ok((HEADER, &[][..])));
        assert_eq!(HEADER.to_string(), "40000 > 4420 [P.] seq 16909060 ack 7 win 512");
    }

    #[test]
    fn options_are_skipped_and_bad_offsets_refused() {
        let mut bytes = [&HEADER.emit()[..], &[1, 1, 1, 0], &[0xaa]].concat();
        bytes[12] = 0x60;
        assert_eq!(TcpHeader::parse(&bytes).unwrap().1, [0xaa]);
        bytes[12] = 0x70;
        assert_eq!(TcpHeader::parse(&bytes).unwrap_err().field, "length");
        bytes[12] = 0x40;
        assert_eq!(TcpHeader::parse(&bytes).unwrap_err().field, "data offset");
    }
}
