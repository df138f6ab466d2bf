//! Vectors, round trips and refusals of the PDUs. The bytes of the vectors were written by hand
//! from the figures of RFC 7143 clause 11, four bytes a word as there. Here: tasks, their data, and
//! what all PDUs share; `session` has the others.

use super::*;

const LUN: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];
const ITT: u32 = 0x0102_0304;
const TTT: u32 = 0xa1a2_a3a4;
const TARGET: TargetNumbers =
    TargetNumbers { stat_sn: 0x1112_1314, exp_cmd_sn: 0x2122_2324, max_cmd_sn: 0x3132_3334 };
const INITIATOR: InitiatorNumbers =
    InitiatorNumbers { cmd_sn: 0x4142_4344, exp_stat_sn: 0x5152_5354 };
const BOTH: Digests = Digests { header: true, data: true };

/// A PDU from the words of its figure that are not 0.
fn words(words: &[(usize, [u8; 4])]) -> [u8; 48] {
    let mut bytes = [0; 48];
    for (at, word) in words {
        bytes[*at..at + 4].copy_from_slice(word);
    }
    bytes
}

/// The vector both ways, by its own type and by [`Pdu`], and what is shown of it.
macro_rules! vector {
    ($type:ident, $value:expr, $bytes:expr, $text:expr) => {{
        let (value, bytes) = ($value, $bytes);
        assert_eq!(value.emit(), bytes, "written");
        assert_eq!($type::parse(&bytes), Ok(value), "read");
        assert_eq!(Pdu::parse(&bytes), Ok(Pdu::$type(value)), "read as any PDU");
        assert_eq!(Pdu::$type(value).emit(), bytes, "written as any PDU");
        assert_eq!(value.bhs(), Bhs::parse(&bytes).unwrap(), "what all have in common");
        assert_eq!(Pdu::$type(value).bhs(), value.bhs());
        assert_eq!(value.bhs().check(), Ok(()));
        assert_eq!(value.to_string(), $text);
        assert_eq!(Pdu::$type(value).to_string(), $text);
        assert_eq!($type::parse(&bytes[..47]), Err(ParseError::short(48, 47)));
    }};
}

// Behind the macro, which it uses.
mod session;

#[test]
fn scsi_command_vector() {
    let cdb = [0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let mut command = ScsiCommand::new(LUN, ITT, ScsiCommandFlags::WRITE, cdb, 512, 512, INITIATOR);
    let mut bytes = words(&[
        (0, [0x01, 0xa1, 0, 0]),
        (4, [0, 0, 2, 0]),
        (8, [0, 1, 0, 0]),
        (16, [1, 2, 3, 4]),
        (20, [0, 0, 2, 0]),
        (24, [0x41, 0x42, 0x43, 0x44]),
        (28, [0x51, 0x52, 0x53, 0x54]),
        (32, [0x2a, 0, 0, 0]),
        (36, [0, 8, 0, 0]),
        (40, [1, 0, 0, 0]),
    ]);
    let text = "SCSI Command [FW simple] lun 1 itt 0x1020304 edtl 512 cmdsn 1094861636 \
                expstatsn 1364349780 cdb 2a000000000800000100000000000000 data 512";
    vector!(ScsiCommand, command, bytes, text);
    assert_eq!(command.attribute(), TaskAttribute::SIMPLE);
    // Immediate, ordered, and with additional headers.
    command.operation = Operation::immediate(Opcode::SCSI_COMMAND);
    command.flags = ScsiCommandFlags::READ.with_attribute(TaskAttribute::ORDERED.0);
    command.total_ahs_length = 2;
    bytes[..5].copy_from_slice(&[0x41, 0xc2, 0, 0, 2]);
    let text = text.replace("Command [FW simple]", "Command immediate [FR ordered]");
    vector!(ScsiCommand, command, bytes, text.replace(" data", " ahs 8 data"));
    assert!(command.bhs().is_immediate());
}

#[test]
fn scsi_response_vector() {
    let response = ScsiResponse::new(ITT, 0x02, Residual::Underflow(512), 3, 20, TARGET);
    let bytes = words(&[
        (0, [0x21, 0x82, 0, 0x02]),
        (4, [0, 0, 0, 20]),
        (16, [1, 2, 3, 4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
        (36, [0, 0, 0, 3]),
        (44, [0, 0, 2, 0]),
    ]);
    let text = "SCSI Response [FU] itt 0x1020304 status 0x02 residual -512 statsn 286397204 \
                expcmdsn 555885348 maxcmdsn 825373492 expdatasn 3 data 20";
    vector!(ScsiResponse, response, bytes, text);
    assert_eq!(response.residual(), Residual::Underflow(512));
}

#[test]
fn a_response_of_a_failed_target_has_no_status() {
    let response = ScsiResponse::failed(ITT, ResponseCode::TARGET_FAILURE, TARGET);
    assert_eq!(response.emit()[..4], [0x21, 0x80, 1, 0]);
    assert_eq!(response.residual(), Residual::None);
    assert_eq!(
        response.to_string(),
        "SCSI Response [F] itt 0x1020304 response target failure statsn 286397204 \
         expcmdsn 555885348 maxcmdsn 825373492 expdatasn 0"
    );
}

#[test]
fn residuals_of_bidirectional_commands_have_their_places() {
    let mut bytes = [0; 48];
    bytes[..2].copy_from_slice(&[0x21, 0x80 | 0x10 | 0x08 | 0x04]);
    bytes[43] = 7;
    bytes[47] = 9;
    let response = ScsiResponse::parse(&bytes).unwrap();
    assert!(response.flags.is_read_overflow() && response.flags.is_read_underflow());
    assert_eq!(response.bidirectional_read_residual_count, 7);
    assert_eq!(response.residual(), Residual::Overflow(9));
    assert!(response.to_string().contains("[FouO]"));
}

#[test]
fn residuals_are_what_was_moved_less_what_was_expected() {
    assert_eq!(Residual::between(512, 512), Residual::None);
    assert_eq!(Residual::between(512, 1024), Residual::Overflow(512));
    assert_eq!(Residual::between(0, 512), Residual::Overflow(512));
    assert_eq!(Residual::between(1024, 512), Residual::Underflow(512));
    assert_eq!(Residual::between(u32::MAX, 0), Residual::Underflow(u32::MAX));
    assert_eq!(Residual::between(0, u64::MAX), Residual::Overflow(u32::MAX));
    assert_eq!(Residual::Overflow(512).to_string(), "+512");
    assert_eq!(Residual::None.to_string(), "none");
}

#[test]
fn task_management_request_vector() {
    let request =
        TaskManagementRequest::new(TaskFunction::ABORT_TASK, LUN, ITT, INITIATOR).with_task(7, 8);
    let bytes = words(&[
        (0, [0x42, 0x81, 0, 0]),
        (8, [0, 1, 0, 0]),
        (16, [1, 2, 3, 4]),
        (20, [0, 0, 0, 7]),
        (24, [0x41, 0x42, 0x43, 0x44]),
        (28, [0x51, 0x52, 0x53, 0x54]),
        (32, [0, 0, 0, 8]),
    ]);
    let text = "Task Management Function Request immediate [F] ABORT TASK lun 1 itt 0x1020304 \
                rtt 0x7 cmdsn 1094861636 expstatsn 1364349780 refcmdsn 8";
    vector!(TaskManagementRequest, request, bytes, text);
    assert_eq!(request.function(), TaskFunction::ABORT_TASK);
    let reset =
        TaskManagementRequest::new(TaskFunction::LOGICAL_UNIT_RESET, LUN, ITT, INITIATOR).emit();
    assert_eq!(reset[1], 0x85);
    assert_eq!(reset[20..24], [0xff; 4], "no task is meant");
}

#[test]
fn task_functions_that_name_a_task() {
    let named: Vec<u8> = (0..=255).filter(|&code| TaskFunction(code).names_a_task()).collect();
    assert_eq!(named, [1, 8, 9]);
}

#[test]
fn task_management_response_vector() {
    let response = TaskManagementResponse::new(ITT, TaskResponse::REJECTED, TARGET);
    let bytes = words(&[
        (0, [0x22, 0x80, 0xff, 0]),
        (16, [1, 2, 3, 4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
    ]);
    let text = "Task Management Function Response [F] function rejected itt 0x1020304 \
                statsn 286397204 expcmdsn 555885348 maxcmdsn 825373492";
    vector!(TaskManagementResponse, response, bytes, text);
}

#[test]
fn data_out_vectors() {
    let grant = R2t::new(LUN, ITT, TTT, 0, 65536, 8192, TARGET);
    let data = DataOut::solicited(&grant, 2, 65536 + 4096, 4095, true, 0x5152_5354);
    let mut bytes = words(&[
        (0, [0x05, 0x80, 0, 0]),
        (4, [0, 0, 0x0f, 0xff]),
        (8, [0, 1, 0, 0]),
        (16, [1, 2, 3, 4]),
        (20, [0xa1, 0xa2, 0xa3, 0xa4]),
        (28, [0x51, 0x52, 0x53, 0x54]),
        (36, [0, 0, 0, 2]),
        (40, [0, 1, 0x10, 0]),
    ]);
    let text = "SCSI Data-Out [F] lun 1 itt 0x1020304 ttt 0xa1a2a3a4 datasn 2 offset 69632 \
                expstatsn 1364349780 data 4095";
    vector!(DataOut, data, bytes, text);
    let data = DataOut::unsolicited(LUN, ITT, 2, 65536 + 4096, 4095, false, 0x5152_5354);
    bytes[1] = 0;
    bytes[20..24].fill(0xff);
    let text = text.replace("[F]", "[.]").replace("0xa1a2a3a4", "-");
    vector!(DataOut, data, bytes, text);
}

#[test]
fn data_in_vectors() {
    let data = DataIn::new(ITT, 5, 512, 0x01_0203, false, TARGET);
    let mut bytes = words(&[
        (0, [0x25, 0, 0, 0]),
        (4, [0, 1, 2, 3]),
        (16, [1, 2, 3, 4]),
        (20, [0xff; 4]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
        (36, [0, 0, 0, 5]),
        (40, [0, 0, 2, 0]),
    ]);
    let text = "SCSI Data-In [.] itt 0x1020304 datasn 5 offset 512 \
                expcmdsn 555885348 maxcmdsn 825373492 data 66051";
    vector!(DataIn, data, bytes, text);
    assert_eq!(data.check(), Ok(()));
    // The same with status and residual.
    let data = data.with_status(0x04, Residual::Overflow(9), 0x1112_1314);
    bytes[..4].copy_from_slice(&[0x25, 0x85, 0, 0x04]);
    bytes[24..28].copy_from_slice(&[0x11, 0x12, 0x13, 0x14]);
    bytes[47] = 9;
    let text = "SCSI Data-In [FOS] itt 0x1020304 datasn 5 offset 512 status 0x04 \
                statsn 286397204 residual +9 expcmdsn 555885348 maxcmdsn 825373492 data 66051";
    vector!(DataIn, data, bytes, text);
    assert_eq!(data.check(), Ok(()));
}

#[test]
fn data_in_that_wants_to_be_acknowledged() {
    let mut data = DataIn::new(ITT, 0, 0, 4, true, TARGET);
    data.flags = data.flags.with_acknowledge(true).with_underflow(true);
    (data.lun, data.target_transfer_tag, data.residual_count) = (LUN, TTT, 3);
    let bytes = data.emit();
    assert_eq!(bytes[..2], [0x25, 0xc2]);
    assert_eq!(bytes[8..24], [0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0xa1, 0xa2, 0xa3, 0xa4]);
    assert_eq!(data.residual(), Residual::None, "counts with a status only");
    assert!(data.to_string().contains("[FAU] itt 0x1020304 lun 1 ttt 0xa1a2a3a4 datasn"));
}

#[test]
fn a_status_ends_its_sequence() {
    let mut bytes = DataIn::new(ITT, 0, 0, 4, true, TARGET).emit();
    bytes[1] = 0x01;
    let error = DataIn::parse(&bytes).unwrap().check().unwrap_err();
    assert_eq!(error.to_string(), "flags at byte 1: expected F with S, seen 1 (0x1)");
}

#[test]
fn r2t_vector() {
    let r2t = R2t::new(LUN, ITT, TTT, 6, 65536, 262_144, TARGET);
    let bytes = words(&[
        (0, [0x31, 0x80, 0, 0]),
        (8, [0, 1, 0, 0]),
        (16, [1, 2, 3, 4]),
        (20, [0xa1, 0xa2, 0xa3, 0xa4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
        (36, [0, 0, 0, 6]),
        (40, [0, 1, 0, 0]),
        (44, [0, 4, 0, 0]),
    ]);
    let text = "R2T [F] lun 1 itt 0x1020304 ttt 0xa1a2a3a4 r2tsn 6 offset 65536 length 262144 \
                statsn 286397204 expcmdsn 555885348 maxcmdsn 825373492";
    vector!(R2t, r2t, bytes, text);
    assert_eq!(r2t.check(), Ok(()));
    let error = R2t { desired_data_transfer_length: 0, ..r2t }.check().unwrap_err();
    assert_eq!((error.field, error.offset), ("DesiredDataTransferLength", 44));
}

#[test]
fn snack_vector() {
    let snack = Snack::new(SnackKind::DATA_ACK, LUN, RESERVED_TAG, TTT, 4, 2, 0x5152_5354);
    let bytes = words(&[
        (0, [0x10, 0x82, 0, 0]),
        (8, [0, 1, 0, 0]),
        (16, [0xff; 4]),
        (20, [0xa1, 0xa2, 0xa3, 0xa4]),
        (28, [0x51, 0x52, 0x53, 0x54]),
        (40, [0, 0, 0, 4]),
        (44, [0, 0, 0, 2]),
    ]);
    let text = "SNACK Request [F] DataACK lun 1 itt - ttt 0xa1a2a3a4 begrun 4 runlength 2 \
                expstatsn 1364349780";
    vector!(Snack, snack, bytes, text);
    assert_eq!(snack.kind(), SnackKind::DATA_ACK);
}

#[test]
fn lengths_follow_from_the_header() {
    let mut bhs = Bhs { operation: Operation::new(Opcode::SCSI_COMMAND), ..Bhs::default() };
    assert_eq!(bhs.length(Digests::NONE), 48);
    assert_eq!(bhs.length(BOTH), 52, "no digest of data without data");
    bhs.total_ahs_length = 3;
    for (length, padded) in [(1, 4), (2, 4), (3, 4), (4, 4), (5, 8), (U24::MAX, 0x0100_0000)] {
        bhs.data_segment_length = U24::new(length);
        assert_eq!(bhs.data_padded(), padded);
        assert_eq!(bhs.header_bytes(Digests::NONE), 60);
        assert_eq!(bhs.header_bytes(BOTH), 64);
        assert_eq!(bhs.data_bytes(Digests::NONE), padded);
        assert_eq!(bhs.data_bytes(BOTH), padded + 4);
        assert_eq!(bhs.length(BOTH), 64 + padded + 4);
    }
    bhs.total_ahs_length = 255;
    assert_eq!(bhs.additional_bytes(), 1020);
}

#[test]
#[should_panic(expected = "more than a data segment can be")]
fn a_length_of_25_bits_is_our_mistake() {
    let _ = U24::new(1 << 24);
}

#[test]
fn headers_that_cannot_be() {
    let refusal = |at: usize, value: u8, opcode: Opcode| {
        let mut bytes = [0; 48];
        bytes[0] = opcode.0;
        bytes[at] = value;
        let error = Bhs::parse(&bytes).unwrap().check().err()?;
        Some((error.field, error.offset, error.seen))
    };
    assert_eq!(refusal(0, 0x1f, Opcode::NOP_OUT), Some(("Opcode", 0, 0x1f)));
    assert_eq!(refusal(0, 0x07, Opcode::NOP_OUT), Some(("Opcode", 0, 0x07)));
    assert_eq!(refusal(0, 0xc1, Opcode::NOP_OUT), None, "the reserved bit is ignored");
    assert_eq!(refusal(4, 1, Opcode::SCSI_COMMAND), None);
    assert_eq!(refusal(4, 1, Opcode::LOGIN_REQUEST), Some(("TotalAHSLength", 4, 1)));
    for opcode in (0..64).map(Opcode).filter(|opcode| opcode.name().is_some()) {
        let without_data = [0x02, 0x06, 0x10, 0x22, 0x26, 0x31].contains(&opcode.0);
        assert_eq!(opcode.carries_data(), !without_data);
        let expected = without_data.then_some(("DataSegmentLength", 5, 1));
        assert_eq!(refusal(7, 1, opcode), expected, "{opcode}");
        assert_eq!(opcode.is_from_initiator(), opcode.0 < 0x20);
    }
    assert_eq!(Bhs::parse(&[0; 47]), Err(ParseError::short(48, 47)));
    assert_eq!(Pdu::parse(&[0; 47]), Err(ParseError::short(48, 47)));
}

#[test]
fn an_unknown_pdu_survives_as_a_number() {
    let mut bytes = words(&[(0, [0x5c, 0x81, 0, 0]), (4, [1, 0, 0, 3]), (16, [1, 2, 3, 4])]);
    let pdu = Pdu::parse(&bytes).unwrap();
    assert_eq!(pdu, Pdu::Unknown(Bhs::parse(&bytes).unwrap()));
    assert_eq!(pdu.emit(), bytes);
    assert_eq!(pdu.to_string(), "0x1c immediate [0x81] itt 0x1020304 ahs 4 data 3");
    // Codes, flags and LUNs nobody knows are shown as numbers too.
    bytes[..2].copy_from_slice(&[0x01, 0x9d]);
    bytes[8..16].copy_from_slice(&[0xc1, 0, 0, 0, 0, 0, 0, 1]);
    let text = Pdu::parse(&bytes).unwrap().to_string();
    assert!(text.starts_with("SCSI Command [F+0x18 0x05] lun c100000000000001 itt"), "{text}");
    bytes[8..16].copy_from_slice(&[0x41, 0x02, 0, 0, 0, 0, 0, 0]);
    let text = Pdu::parse(&bytes).unwrap().to_string();
    assert!(text.contains("lun 258 "), "{text}");
}

/// Any bytes are a PDU; what it means survives being written, and what is written is what was read
/// but for reserved bytes.
#[test]
fn arbitrary_pdus_survive_being_written() {
    let mut state = 0x1234_5678_9abc_def0_u64;
    for _ in 0..20_000 {
        let mut bytes = [0; 48];
        for eight in bytes.chunks_exact_mut(8) {
            // xorshift64: the same PDUs on every run.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            eight.copy_from_slice(&state.to_be_bytes());
        }
        let pdu = Pdu::parse(&bytes).unwrap();
        let written = pdu.emit();
        assert_eq!(Pdu::parse(&written), Ok(pdu));
        for (byte, original) in written.iter().zip(bytes) {
            assert!(*byte == original || *byte == 0, "{pdu}");
        }
        assert_eq!(pdu.bhs(), Bhs::parse(&bytes).unwrap());
        assert!(!pdu.to_string().contains('\n'));
        let _ = pdu.bhs().check();
        assert!(pdu.bhs().length(BOTH) >= 48);
    }
}
