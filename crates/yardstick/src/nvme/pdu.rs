//! The few offsets of NVMe/TCP that the yardstick needs, by hand.
//!
//! Not the `wire` crate on purpose: a yardstick that shared the parser of what it measures would
//! hide the parser's cost. Nothing is validated beyond what keeps memory safe. Units: bytes; all
//! integers little-endian. Spec: NVMe/TCP transport, PDU header table.

use crate::bytes::put;

/// PDU types (CH byte 0).
pub(crate) mod kind {
    pub(crate) const IC_REQ: u8 = 0x00;
    pub(crate) const IC_RESP: u8 = 0x01;
    pub(crate) const CAPSULE_CMD: u8 = 0x04;
    pub(crate) const CAPSULE_RESP: u8 = 0x05;
    pub(crate) const H2C_DATA: u8 = 0x06;
    pub(crate) const C2H_DATA: u8 = 0x07;
    pub(crate) const R2T: u8 = 0x09;
}

/// PDU flags (CH byte 1).
pub(crate) mod flag {
    pub(crate) const HDGST: u8 = 0x01;
    pub(crate) const DDGST: u8 = 0x02;
    pub(crate) const LAST: u8 = 0x04;
    pub(crate) const SUCCESS: u8 = 0x08;
}

/// Opcodes, of both command sets and of fabrics.
pub(crate) mod opcode {
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const GET_LOG: u8 = 0x02;
    pub(crate) const IDENTIFY: u8 = 0x06;
    pub(crate) const ABORT: u8 = 0x08;
    pub(crate) const SET_FEATURES: u8 = 0x09;
    pub(crate) const GET_FEATURES: u8 = 0x0a;
    pub(crate) const ASYNC_EVENT: u8 = 0x0c;
    pub(crate) const KEEP_ALIVE: u8 = 0x18;
    pub(crate) const FABRICS: u8 = 0x7f;
}

/// Length of the common header.
pub(crate) const COMMON_LEN: usize = 8;
/// Length of a command capsule's header: CH and the submission queue entry.
pub(crate) const CAPSULE_CMD_LEN: usize = 72;
/// Length of the headers of CapsuleResp, H2CData, C2HData and R2T.
pub(crate) const SHORT_LEN: usize = 24;
/// Length of ICReq and ICResp.
pub(crate) const IC_LEN: usize = 128;
/// SGL descriptor type for data inside the capsule.
pub(crate) const SGL_IN_CAPSULE: u8 = 0x01;
/// SGL descriptor type for data moved by the transport.
pub(crate) const SGL_TRANSPORT: u8 = 0x5a;
/// Where the submission queue entry starts in a command capsule.
pub(crate) const SQE: usize = 8;

/// Reads a `u16` at `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a `u32` at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Reads a `u64` at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A common header: type, flags, header length, data offset and the length of the whole PDU.
pub(crate) fn put_common(bytes: &mut [u8], kind: u8, flags: u8, hlen: u8, pdo: u8, plen: usize) {
    bytes[..4].copy_from_slice(&[kind, flags, hlen, pdo]);
    put(bytes, 4, &(plen as u32).to_le_bytes());
}

/// A submission queue entry with a transport SGL of length zero.
pub(crate) fn command(opcode: u8) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = opcode;
    entry[1] = 0x40;
    entry[39] = SGL_TRANSPORT;
    entry
}

/// The entry of a read or write of `bytes`, which are `blocks`, from block 0.
pub(crate) fn transfer(opcode: u8, nsid: u32, bytes: u32, blocks: u64) -> [u8; 64] {
    let mut entry = command(opcode);
    put(&mut entry, 4, &nsid.to_le_bytes());
    put(&mut entry, 32, &bytes.to_le_bytes());
    put(&mut entry, 48, &(blocks as u16 - 1).to_le_bytes());
    entry
}

/// The head of a command capsule, behind which digests and `data` bytes follow.
pub(crate) fn capsule_cmd(
    entry: &[u8; 64],
    data: usize,
    header_digest: bool,
    data_digest: bool,
) -> [u8; CAPSULE_CMD_LEN] {
    let mut pdu = [0; CAPSULE_CMD_LEN];
    let (mut flags, mut start, mut total) = (0, CAPSULE_CMD_LEN, data);
    if header_digest {
        (flags, start) = (flag::HDGST, start + 4);
    }
    if data_digest && data > 0 {
        (flags, total) = (flags | flag::DDGST, total + 4);
    }
    let pdo = if data > 0 { start as u8 } else { 0 };
    put_common(&mut pdu, kind::CAPSULE_CMD, flags, 72, pdo, start + total);
    put(&mut pdu, SQE, entry);
    pdu
}

/// A completion capsule: `result` is DW0-1, `status` the field as it stands at bytes 14-15.
pub(crate) fn capsule_resp(cid: u16, sqhd: u16, result: u64, status: u16) -> [u8; SHORT_LEN] {
    let mut pdu = [0; SHORT_LEN];
    put_common(&mut pdu, kind::CAPSULE_RESP, 0, 24, 0, SHORT_LEN);
    put(&mut pdu, 8, &result.to_le_bytes());
    put(&mut pdu, 16, &sqhd.to_le_bytes());
    put(&mut pdu, 20, &cid.to_le_bytes());
    put(&mut pdu, 22, &status.to_le_bytes());
    pdu
}

/// The header of C2HData or H2CData without digests.
pub(crate) fn data_header(
    kind: u8,
    flags: u8,
    cid: u16,
    ttag: u16,
    offset: u32,
    length: u32,
) -> [u8; SHORT_LEN] {
    let mut pdu = [0; SHORT_LEN];
    put_common(&mut pdu, kind, flags, 24, 24, SHORT_LEN + length as usize);
    put(&mut pdu, 8, &cid.to_le_bytes());
    put(&mut pdu, 10, &ttag.to_le_bytes());
    put(&mut pdu, 12, &offset.to_le_bytes());
    put(&mut pdu, 16, &length.to_le_bytes());
    pdu
}

/// An R2T that asks for `length` bytes from `offset` of the command's data.
pub(crate) fn r2t(cid: u16, ttag: u16, offset: u32, length: u32) -> [u8; SHORT_LEN] {
    let mut pdu = data_header(kind::R2T, 0, cid, ttag, offset, length);
    pdu[3] = 0;
    put(&mut pdu, 4, &(SHORT_LEN as u32).to_le_bytes());
    pdu
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_carries_its_fields_at_the_offsets_of_the_table() {
        let pdu = capsule_resp(0x1234, 7, 0xaabb, 0x8004);
        assert_eq!(pdu[..8], [5, 0, 24, 0, 24, 0, 0, 0]);
        assert_eq!(u64_at(&pdu, 8), 0xaabb);
        assert_eq!(u16_at(&pdu, 16), 7);
        assert_eq!(u16_at(&pdu, 20), 0x1234);
        assert_eq!(u16_at(&pdu, 22), 0x8004);
    }

    #[test]
    fn data_header_counts_its_data_in_plen_and_r2t_does_not() {
        let data = data_header(kind::C2H_DATA, flag::LAST, 3, 0, 0, 4096);
        assert_eq!(u32_at(&data, 4), 24 + 4096);
        assert_eq!(data[3], 24);
        let ask = r2t(3, 9, 0, 4096);
        assert_eq!(u32_at(&ask, 4), 24);
        assert_eq!(ask[3], 0);
        assert_eq!(u32_at(&ask, 16), 4096);
    }
}
