//! The host's side of NVMe/TCP: it makes PDUs, also wrong ones, and hears the target as strictly as
//! Linux does.

pub mod host;

use block::checksum::crc32c;
use wire::nvme::fabrics::{Configuration, Connect, ConnectAttributes, Register};
use wire::nvme::{Command, Completion, Nqn, Status};
use wire::nvme_tcp::{
    CapsuleCommand, CapsuleResponse, CommonHeader, DataHeader, Digests, ICResp, PduType, R2T,
    TermReq,
};

/// What a target said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    ICResp(ICResp),
    Term(TermReq),
    Response(Completion),
    /// Header, data.
    Data(DataHeader, Vec<u8>),
    R2T(R2T),
}

impl Said {
    pub fn response(&self) -> Completion {
        match self {
            Said::Response(entry) => *entry,
            other => panic!("expected a response, got {other:?}"),
        }
    }

    pub fn status(&self) -> Status {
        self.response().status
    }

    pub fn r2t(&self) -> R2T {
        match self {
            Said::R2T(r2t) => *r2t,
            other => panic!("expected an R2T, got {other:?}"),
        }
    }

    pub fn term(&self) -> TermReq {
        match self {
            Said::Term(term) => *term,
            other => panic!("expected a TermReq, got {other:?}"),
        }
    }
}

/// A name that must be a valid one.
pub fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("a valid name")
}

/// Connect of a queue of 32 entries; queue 0 is the admin queue.
pub fn connect(queue_id: u16, keep_alive_ms: u32) -> Connect {
    let attributes = ConnectAttributes::default();
    Connect { record_format: 0, queue_id, sq_size: 31, attributes, keep_alive_ms }
}

/// What sets CC: CC.EN and CC.SHN, with entries as large as they always are.
pub fn configure(enable: bool, shutdown: u32) -> Command {
    let value = Configuration::default().with_enable(enable).with_iosqes(6).with_iocqes(4);
    Command::property_set(Register::CC.0, value.with_shn(shutdown).0)
}

/// A command capsule.
pub fn capsule(command: Command, data: &[u8], digests: Digests) -> Vec<u8> {
    let header = CapsuleCommand::new(command, digests, data.len() as u32).emit();
    seal(&header, data, digests)
}

/// An H2CData PDU.
pub fn host_data(r2t: &R2T, offset: u32, data: &[u8], last: bool, digests: Digests) -> Vec<u8> {
    let length = data.len() as u32;
    let header =
        DataHeader::h2c(r2t.command_id, r2t.transfer_tag, offset, length, last, digests).emit();
    seal(&header, data, digests)
}

/// Header, digest, data, digest.
pub fn seal(header: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
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

/// Hears one whole PDU: no padding, digests right, fields as negotiated. Returns its length, too.
pub fn hear(bytes: &[u8], digests: Digests) -> (Said, usize) {
    let heard = parse(bytes, digests).unwrap_or_else(|why| panic!("{why}"));
    let (said, length, padding) = heard.expect("a whole PDU");
    assert_eq!(padding, 0, "padding toward a host with HPDA 0");
    (said, length)
}

/// The first PDU of some bytes, its length, and how many bytes of padding were in it; `None` if it
/// is not whole.
fn parse(bytes: &[u8], digests: Digests) -> Result<Option<(Said, usize, usize)>, String> {
    if bytes.len() < CommonHeader::SIZE {
        return Ok(None);
    }
    let common = CommonHeader::parse(bytes).map_err(|error| error.to_string())?;
    let length = common.length as usize;
    // The least that any PDU has; less would be heard for ever.
    if length < 16 {
        return Err(format!("{common}"));
    }
    if bytes.len() < length {
        return Ok(None);
    }
    let (said, padding) = parse_whole(&common, &bytes[..length], digests)
        .map_err(|why| format!("{why} in {common}"))?;
    Ok(Some((said, length, padding)))
}

fn parse_whole(
    common: &CommonHeader,
    pdu: &[u8],
    digests: Digests,
) -> Result<(Said, usize), String> {
    let plain = matches!(common.kind, PduType::IC_RESP | PduType::C2H_TERM_REQ);
    let digests = if plain { Digests::NONE } else { digests };
    let wrong = |error: wire::ParseError| error.to_string();
    let payload = common.check(digests).map_err(|error| error.to_string())?;
    let mut header = usize::from(common.header_length);
    if digests.header {
        check_digest(pdu, 0, header)?;
        header += Digests::SIZE;
    }
    let said = match common.kind {
        PduType::IC_RESP => {
            let response = ICResp::parse(pdu).map_err(wrong)?;
            response.check().map_err(wrong)?;
            Said::ICResp(response)
        }
        PduType::C2H_TERM_REQ => Said::Term(TermReq::parse(pdu).map_err(wrong)?),
        PduType::CAPSULE_RESPONSE => {
            Said::Response(CapsuleResponse::parse(pdu).map_err(wrong)?.completion)
        }
        PduType::R2T => Said::R2T(R2T::parse(pdu).map_err(wrong)?),
        PduType::C2H_DATA => {
            let data = DataHeader::parse(pdu).map_err(wrong)?;
            let (from, length) = (payload.offset as usize, payload.length as usize);
            if data.length != payload.length {
                return Err(format!("DATAL is {}, the PDU has {length} bytes", data.length));
            }
            if digests.data {
                check_digest(pdu, from, from + length)?;
            }
            return Ok((Said::Data(data, pdu[from..from + length].to_vec()), from - header));
        }
        _ => return Err("no PDU of a target".to_owned()),
    };
    Ok((said, 0))
}

/// The digest behind `pdu[from..to]`.
fn check_digest(pdu: &[u8], from: usize, to: usize) -> Result<(), String> {
    let digest = pdu.get(to..).and_then(|rest| rest.first_chunk()).ok_or("a missing digest")?;
    match u32::from_le_bytes(*digest) == crc32c(&pdu[from..to]) {
        true => Ok(()),
        false => Err(format!("a wrong digest at byte {to}")),
    }
}
