//! Vectors, round trips and refusals of the PDUs. Vectors are what the Linux host and target
//! (drivers/nvme/host/tcp.c, drivers/nvme/target/tcp.c) put on the wire for these values.

use super::*;
use crate::nvme::command::SglDescriptor;
use crate::nvme::{Command, Completion, Status};

const BOTH: Digests = Digests { header: true, data: true };

fn digest_combinations() -> impl Iterator<Item = Digests> {
    (0..4).map(Digests::from_bits)
}

#[test]
fn icreq_vector() {
    let request = ICReq::new(BOTH, 0);
    let bytes = request.emit();
    assert_eq!(bytes[..16], [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
    assert_eq!(bytes[16..], [0; 112]);
    assert_eq!(ICReq::parse(&bytes), Ok(request));
    assert_eq!(request.check(), Ok(()));
    assert_eq!(request.digests(), BOTH);
    assert_eq!(request.to_string(), "ICReq pfv 0 hpda 0 dgst 3 maxr2t 0");
}

#[test]
fn icresp_vector() {
    let response = ICResp::new(Digests::NONE, 0x40_0000);
    let bytes = response.emit();
    assert_eq!(bytes[..16], [1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0]);
    assert_eq!(ICResp::parse(&bytes), Ok(response));
    assert_eq!(response.check(), Ok(()));
    assert_eq!(response.to_string(), "ICResp pfv 0 cpda 0 dgst 0 maxh2cdata 4194304");
}

#[test]
fn initialize_refusals_name_the_field_and_its_offset() {
    let refusal = |at: usize, value: u8| {
        let mut bytes = ICReq::new(Digests::NONE, 0).emit();
        bytes[at] = value;
        let error = ICReq::parse(&bytes).unwrap().check().unwrap_err();
        (error.field, error.offset)
    };
    assert_eq!(refusal(0, 4), ("PDU-Type", 0));
    assert_eq!(refusal(1, 1), ("FLAGS", 1));
    assert_eq!(refusal(2, 24), ("HLEN", 2));
    assert_eq!(refusal(4, 129), ("PLEN", 4));
    assert_eq!(refusal(8, 1), ("PFV", 8));
    assert_eq!(refusal(10, 32), ("HPDA", 10));
    assert_eq!(refusal(11, 4), ("DGST", 11));
    for bad in [4092, 4098] {
        let error = ICResp::new(Digests::NONE, bad).check().unwrap_err();
        assert_eq!((error.field, error.offset), ("MAXH2CDATA", 12));
    }
    assert_eq!(ICReq::parse(&[0; 127]), Err(ParseError::short(128, 127)));
}

#[test]
fn capsule_of_connect_vector() {
    let command = Command::fabrics(crate::nvme::fabrics::FabricsType::CONNECT)
        .with_sgl(SglDescriptor::in_capsule(1024))
        .with_command_id(5);
    let capsule = CapsuleCommand::new(command, Digests::NONE, 1024);
    let bytes = capsule.emit();
    assert_eq!(bytes[..8], [4, 0, 72, 72, 0x48, 4, 0, 0]);
    assert_eq!(bytes[8..13], [0x7f, 0x40, 5, 0, 1]);
    assert_eq!(CapsuleCommand::parse(&bytes), Ok(capsule));
    let digested = CapsuleCommand::new(command, BOTH, 1024).common;
    assert_eq!(digested.emit(), [4, 3, 72, 76, 0x50, 4, 0, 0]);
    assert_eq!(digested.to_string(), "CapsuleCmd [hd] hlen 72 pdo 76 plen 1104");
    // A data digest needs data.
    let empty = CapsuleCommand::new(command, BOTH, 0).common;
    assert_eq!(empty.emit(), [4, 1, 72, 0, 76, 0, 0, 0]);
}

#[test]
fn response_vector() {
    let completion =
        Completion { sq_head: 9, ..Completion::new(5, Status::LBA_OUT_OF_RANGE.with_dnr()) };
    let response = CapsuleResponse::new(completion, Digests::NONE);
    let bytes = response.emit();
    assert_eq!(
        bytes,
        [5, 0, 24, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0x00, 0x81]
    );
    assert_eq!(CapsuleResponse::parse(&bytes), Ok(response));
    assert_eq!(
        response.to_string(),
        "CapsuleResp [.] hlen 24 pdo 0 plen 24: \
         cid 5 sqhd 9 result 0x0 LBA out of range (0x080) dnr"
    );
}

#[test]
fn r2t_and_data_vectors() {
    let r2t = R2T::new(7, 2, 0x1000, 0x2000, Digests::NONE);
    let bytes = [9, 0, 24, 0, 24, 0, 0, 0, 7, 0, 2, 0, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0];
    assert_eq!(r2t.emit(), bytes);
    assert_eq!(R2T::parse(&bytes), Ok(r2t));
    let data = DataHeader::h2c(7, 2, 0x1000, 0x2000, true, BOTH);
    let bytes =
        [6, 7, 24, 28, 0x20, 0x20, 0, 0, 7, 0, 2, 0, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0];
    assert_eq!(data.emit(), bytes);
    assert_eq!(DataHeader::parse(&bytes), Ok(data));
    assert!(data.is_last() && !data.is_success());
    let answer = DataHeader::c2h(7, 0, 512, PduFlags::LAST | PduFlags::SUCCESS, Digests::NONE);
    assert_eq!(answer.emit()[..8], [7, 0x0c, 24, 24, 0x18, 2, 0, 0]);
    assert!(answer.is_last() && answer.is_success());
    assert_eq!(
        answer.to_string(),
        "C2HData [LS] hlen 24 pdo 24 plen 536: cid 7 offset 0 length 512"
    );
    assert_eq!(
        r2t.to_string(),
        "R2T [.] hlen 24 pdo 0 plen 24: cid 7 ttag 2 offset 4096 length 8192"
    );
}

#[test]
fn every_header_we_build_passes_its_own_check() {
    for digests in digest_combinations() {
        for kind in (0..=9).map(PduType) {
            let lengths: &[u32] = if kind.carries_data() { &[0, 1, 4096] } else { &[0] };
            for &length in lengths {
                let header = CommonHeader::for_pdu(kind, PduFlags::NONE, digests, length);
                let Some(header_length) = expected_header_length(kind) else {
                    assert_eq!(header.check(digests).unwrap_err().field, "PDU-Type");
                    continue;
                };
                let payload = header.check(digests).unwrap();
                assert_eq!(payload.length, length, "{header}");
                let own = if kind.carries_digests() { digests } else { Digests::NONE };
                let before = u32::from(header_length) + own.header_bytes();
                assert_eq!(payload.offset, before, "{header}");
            }
        }
    }
}

#[test]
fn padding_before_the_data_is_honoured() {
    let mut header = CommonHeader::for_pdu(PduType::H2C_DATA, PduFlags::NONE, BOTH, 512);
    header.data_offset = 128;
    header.length = 128 + 512 + 4;
    let payload = header.check(BOTH).unwrap();
    assert_eq!((payload.offset, payload.length), (128, 512));
}

#[test]
fn common_header_refusals() {
    let good = CommonHeader::for_pdu(PduType::H2C_DATA, PduFlags::NONE, BOTH, 512);
    let refusal = |change: fn(&mut CommonHeader)| {
        let mut header = good;
        change(&mut header);
        let error = header.check(BOTH).unwrap_err();
        (error.field, error.offset)
    };
    assert_eq!(refusal(|header| header.kind.0 = 8), ("PDU-Type", 0));
    assert_eq!(refusal(|header| header.header_length = 28), ("HLEN", 2));
    assert_eq!(refusal(|header| header.flags.0 = 2), ("FLAGS", 1));
    assert_eq!(refusal(|header| header.flags.0 = 1), ("FLAGS", 1));
    assert_eq!(refusal(|header| header.length = 27), ("PLEN", 4));
    assert_eq!(refusal(|header| header.length = 32), ("PLEN", 4));
    assert_eq!(refusal(|header| header.data_offset = 24), ("PDO", 3));
    assert_eq!(refusal(|header| header.data_offset = 30), ("PDO", 3));
    assert_eq!(refusal(|header| header.length = 0), ("PLEN", 4));
    let mut r2t = R2T::new(0, 0, 0, 4, Digests::NONE).common;
    r2t.length = 25;
    let error = r2t.check(Digests::NONE).unwrap_err();
    assert_eq!(error.expected, Expected::Exactly(24));
    assert_eq!(
        good.check(Digests::NONE).unwrap_err().field,
        "FLAGS",
        "digests that were not negotiated"
    );
}

#[test]
fn data_length_must_be_what_plen_leaves() {
    let mut data = DataHeader::h2c(1, 1, 0, 512, true, BOTH);
    let payload = data.common.check(BOTH).unwrap();
    assert_eq!(data.check_length(payload), Ok(()));
    data.length = 511;
    let error = data.check_length(payload).unwrap_err();
    assert_eq!(error.to_string(), "DATAL at byte 16: expected 512, seen 511 (0x1ff)");
}

#[test]
fn termreq_vector_and_round_trip() {
    let offending = [0x06, 0, 26, 0, 24, 0, 0, 0];
    let error = CommonHeader::parse(&offending).unwrap().check(Digests::NONE).unwrap_err();
    let fes = FatalErrorStatus::INVALID_HEADER_FIELD;
    let term = TermReq::new(PduType::C2H_TERM_REQ, fes, error.offset as u32, &offending);
    let mut bytes = [0xff; TermReq::SIZE_MAX];
    assert_eq!(term.emit(&mut bytes), 32);
    assert_eq!(
        bytes[..24],
        [3, 0, 24, 0, 32, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(bytes[24..32], offending);
    assert_eq!(TermReq::parse(&bytes[..32]), Ok(term));
    assert_eq!(
        term.to_string(),
        "C2HTermReq invalid PDU header field, fei 2 in (H2CData [.] hlen 26 pdo 0 plen 24)"
    );
    assert_eq!(TermReq::parse(&bytes[..31]), Err(ParseError::short(32, 31)));
}

#[test]
fn termreq_sends_back_at_most_128_bytes() {
    let fes = FatalErrorStatus::SEQUENCE_ERROR;
    let term = TermReq::new(PduType::H2C_TERM_REQ, fes, 0, &[4; 200]);
    let mut bytes = [0; TermReq::SIZE_MAX];
    assert_eq!(term.emit(&mut bytes), 152);
    assert_eq!(TermReq::parse(&bytes), Ok(term));
    bytes[4] = 153;
    assert_eq!(TermReq::parse(&bytes).unwrap_err().field, "PLEN");
    bytes[0] = 1;
    assert_eq!(TermReq::parse(&bytes).unwrap_err().field, "PDU-Type");
}

#[test]
fn parsers_refuse_short_input() {
    assert!(CommonHeader::parse(&[0; 7]).is_err());
    assert!(CapsuleCommand::parse(&[4; 71]).is_err());
    assert!(CapsuleResponse::parse(&[5; 23]).is_err());
    assert!(R2T::parse(&[9; 23]).is_err());
    assert!(DataHeader::parse(&[6; 23]).is_err());
}

/// Any 8 bytes either fail or describe a payload inside the PDU; no input panics.
#[test]
fn arbitrary_headers_never_describe_bytes_outside_the_pdu() {
    let mut state = 0x1234_5678_9abc_def0_u64;
    for _ in 0..200_000 {
        // xorshift64: the same headers on every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut bytes = state.to_le_bytes();
        bytes[0] %= 11;
        bytes[5..].fill(0);
        let mut header = CommonHeader::parse(&bytes).unwrap();
        if let Some(length) = expected_header_length(header.kind)
            && state >> 60 != 0
        {
            header.header_length = length;
        }
        if let Ok(payload) = header.check(Digests::from_bits(bytes[6])) {
            assert!(payload.offset + payload.length <= header.length);
        }
        assert_eq!(CommonHeader::parse(&header.emit()), Ok(header));
        let _ = header.to_string();
    }
}
