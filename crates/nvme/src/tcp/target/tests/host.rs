//! The host's side of the wire: it makes PDUs, also wrong ones, and hears the target as strictly as Linux does.

use block::checksum::crc32c;
use wire::nvme::{Command, Completion as Entry, Status};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, Digests, ICResp, PduType, R2T,
    TermReq,
};

/// What the target said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    ICResp(ICResp),
    Term(TermReq),
    Response(Entry),
    /// Header, data.
    Data(DataHeader, Vec<u8>),
    R2T(R2T),
}

impl Said {
    pub(super) fn response(&self) -> Entry {
        match self {
            Said::Response(entry) => *entry,
            other => panic!("expected a response, got {other:?}"),
        }
    }

    pub(super) fn status(&self) -> Status {
        self.response().status
    }

    pub(super) fn r2t(&self) -> R2T {
        match self {
            Said::R2T(r2t) => *r2t,
            other => panic!("expected an R2T, got {other:?}"),
        }
    }

    pub(super) fn term(&self) -> TermReq {
        match self {
            Said::Term(term) => *term,
            other => panic!("expected a TermReq, got {other:?}"),
        }
    }
}

/// Some bytes that say where they belong.
pub(super) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 251 + seed * 17) as u8).collect()
}

/// A command capsule as a host sends it.
pub(super) fn capsule(command: Command, data: &[u8], digests: Digests) -> Vec<u8> {
    let header = CapsuleCommand::new(command, digests, data.len() as u32).emit();
    seal(&header, data, digests)
}

/// An H2CData PDU.
pub(super) fn host_data(
    r2t: &R2T,
    offset: u32,
    data: &[u8],
    last: bool,
    digests: Digests,
) -> Vec<u8> {
    let length = data.len() as u32;
    let header =
        DataHeader::h2c(r2t.command_id, r2t.transfer_tag, offset, length, last, digests).emit();
    seal(&header, data, digests)
}

/// Header, digest, data, digest.
pub(super) fn seal(header: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
    let mut bytes = header.to_vec();
    if digests.header {
        bytes.extend(crc32c(header).to_le_bytes());
    }
    bytes.extend_from_slice(data);
    if digests.data && !data.is_empty() {
        bytes.extend(crc32c(data).to_le_bytes());
    }
    bytes
}

/// Hears one PDU, as strictly as Linux does: no padding, digests right, fields as negotiated.
pub(super) fn hear(bytes: &[u8], digests: Digests) -> (Said, usize) {
    let common = CommonHeader::parse(bytes).expect("a whole header");
    let length = common.length as usize;
    let header = usize::from(common.header_length);
    let plain = matches!(common.kind, PduType::IC_RESP | PduType::C2H_TERM_REQ);
    let payload = common
        .check(if plain { Digests::NONE } else { digests })
        .unwrap_or_else(|error| panic!("{common}: {error}"));
    if !plain && digests.header {
        let digest = u32::from_le_bytes(*bytes[header..].first_chunk().expect("a digest"));
        assert_eq!(digest, crc32c(&bytes[..header]), "header digest of {common}");
    }
    let said = match common.kind {
        PduType::IC_RESP => {
            let response = ICResp::parse(bytes).expect("parses");
            response.check().expect("as Linux wants it");
            Said::ICResp(response)
        }
        PduType::C2H_TERM_REQ => Said::Term(TermReq::parse(bytes).expect("parses")),
        PduType::CAPSULE_RESPONSE => {
            Said::Response(CapsuleResponse::parse(bytes).expect("parses").completion)
        }
        PduType::R2T => Said::R2T(R2T::parse(bytes).expect("parses")),
        PduType::C2H_DATA => {
            let data = DataHeader::parse(bytes).expect("parses");
            let before = if digests.header { header + 4 } else { header };
            assert_eq!(payload.offset as usize, before, "padding toward a host with HPDA 0");
            assert_eq!(data.length, payload.length);
            let end = before + payload.length as usize;
            if digests.data {
                let digest = u32::from_le_bytes(*bytes[end..].first_chunk().expect("a digest"));
                assert_eq!(digest, crc32c(&bytes[before..end]), "data digest");
            }
            Said::Data(data, bytes[before..end].to_vec())
        }
        kind => panic!("a target does not send {kind}"),
    };
    (said, length)
}
