//! Vectors and refusals of the PDUs that are about no task: login, text, NOP, logout, events.

use super::*;

const ISID: [u8; 6] = [0x80, 0x12, 0x34, 0x56, 0, 7];

fn login_request() -> LoginRequest {
    let flags = LoginFlags::transit(Stage::OPERATIONAL, Stage::FULL_FEATURE);
    LoginRequest::new(flags, ISID, 0x0203, 0x0405, ITT, 300, INITIATOR)
}

#[test]
fn login_request_vector() {
    let bytes = words(&[
        (0, [0x43, 0x87, 0, 0]),
        (4, [0, 0, 0x01, 0x2c]),
        (8, [0x80, 0x12, 0x34, 0x56]),
        (12, [0, 7, 2, 3]),
        (16, [1, 2, 3, 4]),
        (20, [4, 5, 0, 0]),
        (24, [0x41, 0x42, 0x43, 0x44]),
        (28, [0x51, 0x52, 0x53, 0x54]),
    ]);
    let text = "Login Request immediate [T operational negotiation to full feature phase] \
                version 0-0 isid 801234560007 tsih 0x203 cid 1029 itt 0x1020304 \
                cmdsn 1094861636 expstatsn 1364349780 data 300";
    vector!(LoginRequest, login_request(), bytes, text);
    assert_eq!(login_request().check(), Ok(()));
}

#[test]
fn login_response_vector() {
    let flags = LoginFlags::stay(Stage::SECURITY).with_continue(true);
    let mut response = LoginResponse::new(&login_request(), flags, 0x0607, 20, TARGET);
    let mut bytes = words(&[
        (0, [0x23, 0x40, 0, 0]),
        (4, [0, 0, 0, 20]),
        (8, [0x80, 0x12, 0x34, 0x56]),
        (12, [0, 7, 6, 7]),
        (16, [1, 2, 3, 4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
    ]);
    let text = "Login Response [C security negotiation] success version 0-0 isid 801234560007 \
                tsih 0x607 itt 0x1020304 statsn 286397204 expcmdsn 555885348 \
                maxcmdsn 825373492 data 20";
    vector!(LoginResponse, response, bytes, text);
    response.status = LoginStatus::NOT_FOUND;
    bytes[36..38].copy_from_slice(&[0x02, 0x03]);
    vector!(LoginResponse, response, bytes, text.replace("success", "target not found"));
}

#[test]
fn a_refused_login_stays_where_it_is() {
    let status = LoginStatus::AUTHENTICATION_FAILURE;
    let refused = LoginResponse::refused(&login_request(), status, 0, TARGET);
    assert_eq!(refused.emit()[..4], [0x23, 0x04, 0, 0]);
    assert_eq!(refused.tsih, 0x0203);
    assert_eq!((status.class(), status.detail()), (2, 1));
    assert!(!status.is_success() && LoginStatus::SUCCESS.is_success());
    assert_eq!(refused.check(), Ok(()));
}

#[test]
fn login_stages_that_cannot_be() {
    let refusal = |flags: u8| {
        let mut bytes = login_request().emit();
        bytes[1] = flags;
        let error = LoginRequest::parse(&bytes).unwrap().check().err()?;
        assert_eq!((error.offset, error.seen), (1, flags.into()));
        let mut bytes =
            LoginResponse::new(&login_request(), LoginFlags::stay(Stage::SECURITY), 0, 0, TARGET)
                .emit();
        bytes[1] = flags;
        assert_eq!(LoginResponse::parse(&bytes).unwrap().check(), Err(error));
        bytes[36] = 2;
        assert_eq!(LoginResponse::parse(&bytes).unwrap().check(), Ok(()), "refused anyway");
        Some(error.field)
    };
    for good in [0x00, 0x04, 0x40, 0x44, 0x81, 0x83, 0x87, 0x03, 0x07] {
        assert_eq!(refusal(good), None, "{good:#x}");
    }
    for csg in [0x08, 0x0c, 0x8f] {
        assert_eq!(refusal(csg), Some("CSG"), "{csg:#x}");
    }
    for nsg in [0x80, 0x82, 0x84, 0x85, 0x86] {
        assert_eq!(refusal(nsg), Some("NSG"), "{nsg:#x}");
    }
    assert_eq!(refusal(0xc1), Some("C"));
}

#[test]
fn text_request_vector() {
    let request = TextRequest::new(TextFlags::FINAL, ITT, RESERVED_TAG, 16, INITIATOR);
    let bytes = words(&[
        (0, [0x04, 0x80, 0, 0]),
        (4, [0, 0, 0, 16]),
        (16, [1, 2, 3, 4]),
        (20, [0xff; 4]),
        (24, [0x41, 0x42, 0x43, 0x44]),
        (28, [0x51, 0x52, 0x53, 0x54]),
    ]);
    let text = "Text Request [F] itt 0x1020304 ttt - cmdsn 1094861636 expstatsn 1364349780 data 16";
    vector!(TextRequest, request, bytes, text);
    assert_eq!(request.check(), Ok(()));
}

#[test]
fn text_response_vector() {
    let mut response = TextResponse::new(TextFlags::CONTINUE, ITT, TTT, 16, TARGET);
    let mut bytes = words(&[
        (0, [0x24, 0x40, 0, 0]),
        (4, [0, 0, 0, 16]),
        (16, [1, 2, 3, 4]),
        (20, [0xa1, 0xa2, 0xa3, 0xa4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
    ]);
    let text = "Text Response [C] itt 0x1020304 ttt 0xa1a2a3a4 statsn 286397204 \
                expcmdsn 555885348 maxcmdsn 825373492 data 16";
    vector!(TextResponse, response, bytes, text);
    response.lun = LUN;
    bytes[9] = 1;
    vector!(TextResponse, response, bytes, text);
    response.flags = TextFlags(0xc0);
    let error = response.check().unwrap_err();
    assert_eq!(error.to_string(), "C at byte 1: expected C without F, seen 192 (0xc0)");
    let request = TextRequest::new(response.flags, ITT, TTT, 0, INITIATOR);
    assert_eq!(request.check(), Err(error));
}

#[test]
fn nop_out_vectors() {
    let ping = NopOut::ping(ITT, 4, INITIATOR);
    let bytes = words(&[
        (0, [0x40, 0x80, 0, 0]),
        (4, [0, 0, 0, 4]),
        (16, [1, 2, 3, 4]),
        (20, [0xff; 4]),
        (24, [0x41, 0x42, 0x43, 0x44]),
        (28, [0x51, 0x52, 0x53, 0x54]),
    ]);
    let text = "NOP-Out immediate [F] lun 0 itt 0x1020304 ttt - cmdsn 1094861636 \
                expstatsn 1364349780 data 4";
    vector!(NopOut, ping, bytes, text);
    let pong = NopOut::pong(&NopIn::ping(LUN, TTT, TARGET), INITIATOR);
    let bytes = words(&[
        (0, [0x40, 0x80, 0, 0]),
        (8, [0, 1, 0, 0]),
        (16, [0xff; 4]),
        (20, [0xa1, 0xa2, 0xa3, 0xa4]),
        (24, [0x41, 0x42, 0x43, 0x44]),
        (28, [0x51, 0x52, 0x53, 0x54]),
    ]);
    let text = "NOP-Out immediate [F] lun 1 itt - ttt 0xa1a2a3a4 cmdsn 1094861636 \
                expstatsn 1364349780";
    vector!(NopOut, pong, bytes, text);
}

#[test]
fn nop_in_vectors() {
    let pong = NopIn::pong(&NopOut::ping(ITT, 8, INITIATOR), 4, TARGET);
    let bytes = words(&[
        (0, [0x20, 0x80, 0, 0]),
        (4, [0, 0, 0, 4]),
        (16, [1, 2, 3, 4]),
        (20, [0xff; 4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
    ]);
    let numbers = "statsn 286397204 expcmdsn 555885348 maxcmdsn 825373492";
    let text = format!("NOP-In [F] lun 0 itt 0x1020304 ttt - {numbers} data 4");
    vector!(NopIn, pong, bytes, text);
    let ping = NopIn::ping(LUN, TTT, TARGET);
    let bytes = words(&[
        (0, [0x20, 0x80, 0, 0]),
        (8, [0, 1, 0, 0]),
        (16, [0xff; 4]),
        (20, [0xa1, 0xa2, 0xa3, 0xa4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
    ]);
    vector!(NopIn, ping, bytes, format!("NOP-In [F] lun 1 itt - ttt 0xa1a2a3a4 {numbers}"));
}

#[test]
fn logout_request_vector() {
    let request = LogoutRequest::new(LogoutReason::CLOSE_CONNECTION, 0x0405, ITT, INITIATOR);
    let bytes = words(&[
        (0, [0x46, 0x81, 0, 0]),
        (16, [1, 2, 3, 4]),
        (20, [4, 5, 0, 0]),
        (24, [0x41, 0x42, 0x43, 0x44]),
        (28, [0x51, 0x52, 0x53, 0x54]),
    ]);
    let text = "Logout Request immediate [F] close the connection cid 1029 itt 0x1020304 \
                cmdsn 1094861636 expstatsn 1364349780";
    vector!(LogoutRequest, request, bytes, text);
    assert_eq!(request.reason(), LogoutReason::CLOSE_CONNECTION);
}

#[test]
fn logout_response_vector() {
    let mut response = LogoutResponse::new(ITT, LogoutResponseCode::NO_SUCH_CID, TARGET);
    (response.time2wait, response.time2retain) = (2, 0x0102);
    let bytes = words(&[
        (0, [0x26, 0x80, 1, 0]),
        (16, [1, 2, 3, 4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
        (40, [0, 2, 1, 2]),
    ]);
    let text = "Logout Response [F] CID not found itt 0x1020304 statsn 286397204 \
                expcmdsn 555885348 maxcmdsn 825373492 time2wait 2 time2retain 258";
    vector!(LogoutResponse, response, bytes, text);
}

#[test]
fn async_message_vectors() {
    let message = AsyncMessage::logout_request(30, TARGET);
    let bytes = words(&[
        (0, [0x32, 0x80, 0, 0]),
        (16, [0xff; 4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
        (36, [1, 0, 0, 0]),
        (40, [0, 0, 0, 30]),
    ]);
    let numbers = "statsn 286397204 expcmdsn 555885348 maxcmdsn 825373492";
    let text = format!(
        "Asynchronous Message [F] target requests logout vcode 0 lun 0 parameters 0 0 30 {numbers}"
    );
    vector!(AsyncMessage, message, bytes, text);
    let mut message = AsyncMessage::scsi(LUN, 20, TARGET);
    message.async_vendor_code = 9;
    (message.parameter1, message.parameter2) = (0x0102, 0x0304);
    let bytes = words(&[
        (0, [0x32, 0x80, 0, 0]),
        (4, [0, 0, 0, 20]),
        (8, [0, 1, 0, 0]),
        (16, [0xff; 4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
        (36, [0, 9, 1, 2]),
        (40, [3, 4, 0, 0]),
    ]);
    let text = format!(
        "Asynchronous Message [F] SCSI asynchronous event vcode 9 lun 1 parameters 258 772 0 \
         {numbers} data 20"
    );
    vector!(AsyncMessage, message, bytes, text);
}

#[test]
fn reject_vector() {
    let mut reject = Reject::new(RejectReason::PROTOCOL_ERROR, 48, TARGET);
    reject.data_sn = 5;
    let bytes = words(&[
        (0, [0x3f, 0x80, 4, 0]),
        (4, [0, 0, 0, 48]),
        (16, [0xff; 4]),
        (24, [0x11, 0x12, 0x13, 0x14]),
        (28, [0x21, 0x22, 0x23, 0x24]),
        (32, [0x31, 0x32, 0x33, 0x34]),
        (36, [0, 0, 0, 5]),
    ]);
    let text = "Reject [F] protocol error itt - statsn 286397204 expcmdsn 555885348 \
                maxcmdsn 825373492 datasn 5 data 48";
    vector!(Reject, reject, bytes, text);
}
