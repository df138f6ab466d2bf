//! NVMe/TCP PDUs: a stream of bytes is cut into PDUs by their own lengths, as a receiver does, and
//! each is parsed.
//!
//! The first byte says which digests were negotiated (bit 0 header, bit 1 data).
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, Digests, ICReq, ICResp, PduType,
    R2T, TermReq,
};

fuzz_target!(|input: &[u8]| {
    let Some((&mode, mut stream)) = input.split_first() else { return };
    let digests = Digests { header: mode & 1 != 0, data: mode & 2 != 0 };
    while let Some(header) = contract!(CommonHeader, stream) {
        one_line(&header);
        let payload = header.check(digests);
        if let Ok(payload) = payload {
            // What a receiver relies on: header, then data, then the end, in this order and none
            // beyond PLEN.
            assert!(payload.offset >= u32::from(header.header_length));
            assert!(
                u64::from(payload.offset) + u64::from(payload.length) <= u64::from(header.length)
            );
        }
        let length = (header.length as usize).clamp(CommonHeader::SIZE, stream.len());
        let (pdu, rest) = stream.split_at(length);
        parse(header, pdu);
        stream = rest;
    }
});

fn parse(header: CommonHeader, pdu: &[u8]) {
    match header.kind {
        PduType::IC_REQ => {
            if let Some(request) = contract!(ICReq, pdu) {
                one_line(&request);
                let _ = request.check();
            }
        }
        PduType::IC_RESP => {
            if let Some(response) = contract!(ICResp, pdu) {
                one_line(&response);
                let _ = response.check();
            }
        }
        PduType::H2C_TERM_REQ | PduType::C2H_TERM_REQ => {
            if let Ok(request) = TermReq::parse(pdu) {
                one_line(&request);
                let mut bytes = [0; TermReq::SIZE_MAX];
                let length = request.emit(&mut bytes);
                let again = TermReq::parse(&bytes[..length]).expect("reads what it wrote");
                assert_eq!(again.offending_header(), request.offending_header());
                assert_eq!((again.fes, again.fei), (request.fes, request.fei));
            }
        }
        PduType::CAPSULE_COMMAND => {
            if let Some(capsule) = contract!(CapsuleCommand, pdu) {
                one_line(&capsule);
            }
        }
        PduType::CAPSULE_RESPONSE => {
            if let Some(capsule) = contract!(CapsuleResponse, pdu) {
                one_line(&capsule);
            }
        }
        PduType::H2C_DATA | PduType::C2H_DATA => {
            if let Some(data) = contract!(DataHeader, pdu) {
                one_line(&data);
                if let Ok(payload) = data.common.payload() {
                    let _ = data.check_length(payload);
                }
            }
        }
        PduType::R2T => {
            if let Some(r2t) = contract!(R2T, pdu) {
                one_line(&r2t);
            }
        }
        _ => {}
    }
}
