//! iSCSI PDUs: a stream of bytes is cut into PDUs by their own lengths, as a receiver does, and
//! each is parsed, with its additional headers.
//!
//! The first byte says which digests were negotiated (bit 0 header, bit 1 data).
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateway_fuzz::{contract, one_line};
use wire::ParseError;
use wire::iscsi::{AdditionalHeaders, Bhs, Digests, Pdu};

fuzz_target!(|input: &[u8]| {
    let Some((&mode, mut stream)) = input.split_first() else { return };
    let digests = Digests { header: mode & 1 != 0, data: mode & 2 != 0 };
    while let Some(header) = contract!(Bhs, stream) {
        one_line(&header);
        if let Err(error) = header.check() {
            drop(format!("{error}"));
        }
        let before = header.header_bytes(digests);
        // What a receiver relies on: no length overflows, and data are padded, never cut.
        assert!(before >= 48 && header.data_padded() % 4 == 0);
        assert!(header.data_padded() >= header.data_segment_length.get());
        assert_eq!(header.length(digests), before + header.data_bytes(digests));
        if let Some(pdu) = contract!(Pdu, stream) {
            one_line(&pdu);
            assert_eq!(pdu.bhs(), header);
            drop(format!("{:?}", check(&pdu)));
        }
        let behind = &stream[Bhs::SIZE..];
        let additional = behind.len().min(header.additional_bytes() as usize);
        additional_headers(&behind[..additional]);
        stream = &stream[stream.len().min(header.length(digests) as usize)..];
    }
});

fn check(pdu: &Pdu) -> Result<(), ParseError> {
    match pdu {
        Pdu::LoginRequest(request) => request.check(),
        Pdu::LoginResponse(response) => response.check(),
        Pdu::TextRequest(request) => request.check(),
        Pdu::TextResponse(response) => response.check(),
        Pdu::DataIn(data) => data.check(),
        Pdu::R2t(r2t) => r2t.check(),
        _ => Ok(()),
    }
}

/// Whatever the bytes are, the additional headers lie in them one behind the other, and end.
fn additional_headers(bytes: &[u8]) {
    let mut room = bytes.len();
    for header in AdditionalHeaders::new(bytes) {
        match header {
            Ok(header) => {
                one_line(&header);
                room = room.checked_sub(3 + header.bytes.len()).expect("inside of the bytes");
            }
            Err(error) => drop(format!("{error}")),
        }
    }
}
