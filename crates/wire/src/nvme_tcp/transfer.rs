//! The PDUs of the data path: command and response capsules, R2T, H2CData and C2HData.
//!
//! `parse` reads a header of which [`CommonHeader::check`] already said that it is one, and of this
//! type; `emit` gives an array that is ready to be sent. Nothing allocates. Spec: "Command data
//! transfer".

use core::fmt;

use super::{CommonHeader, Digests, PduFlags, PduType};
use crate::ParseError;
use crate::nvme::{Command, Completion};

layout! {
    /// Command capsule: a submission queue entry, perhaps with data behind it.
    pub struct CapsuleCommand[72] {
        /// Type CapsuleCmd, HLEN 72.
        0 => common: CommonHeader,
        /// The submission queue entry.
        8 => command: Command,
    }
}

impl CapsuleCommand {
    /// A capsule with `data_length` bytes of in-capsule data.
    #[inline]
    pub const fn new(command: Command, digests: Digests, data_length: u32) -> Self {
        let kind = PduType::CAPSULE_COMMAND;
        Self { common: CommonHeader::for_pdu(kind, PduFlags::NONE, digests, data_length), command }
    }
}

impl fmt::Display for CapsuleCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.common, self.command)
    }
}

layout! {
    /// Response capsule: a completion queue entry.
    pub struct CapsuleResponse[24] {
        /// Type CapsuleResp, HLEN 24.
        0 => common: CommonHeader,
        /// The completion queue entry.
        8 => completion: Completion,
    }
}

impl CapsuleResponse {
    /// The response that carries `completion`.
    #[inline]
    pub const fn new(completion: Completion, digests: Digests) -> Self {
        let kind = PduType::CAPSULE_RESPONSE;
        Self { common: CommonHeader::for_pdu(kind, PduFlags::NONE, digests, 0), completion }
    }
}

impl fmt::Display for CapsuleResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.common, self.completion)
    }
}

layout! {
    /// R2T: the target grants a range of a command's data.
    pub struct R2T[24] {
        /// Type R2T, HLEN 24, no data.
        0 => common: CommonHeader,
        /// CCCID: the command whose data are wanted.
        8 => command_id: u16,
        /// TTAG: chosen by the target, echoed in every H2CData that answers.
        10 => transfer_tag: u16,
        /// R2TO: first byte wanted, from the start of the command's data.
        12 => offset: u32,
        /// R2TL: bytes wanted, never 0.
        16 => length: u32,
    }
}

impl R2T {
    /// A grant of `length` bytes at `offset` of the command's data.
    #[inline]
    pub const fn new(
        command_id: u16,
        transfer_tag: u16,
        offset: u32,
        length: u32,
        digests: Digests,
    ) -> Self {
        Self {
            common: CommonHeader::for_pdu(PduType::R2T, PduFlags::NONE, digests, 0),
            command_id,
            transfer_tag,
            offset,
            length,
        }
    }
}

impl fmt::Display for R2T {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: cid {} ttag {} offset {} length {}",
            self.common, self.command_id, self.transfer_tag, self.offset, self.length
        )
    }
}

layout! {
    /// H2CData and C2HData: a part of a command's data.
    pub struct DataHeader[24] {
        /// Type H2CData or C2HData, HLEN 24.
        0 => common: CommonHeader,
        /// CCCID: the command the data belong to.
        8 => command_id: u16,
        /// TTAG of the R2T that is answered; 0 in C2HData.
        10 => transfer_tag: u16,
        /// DATAO: first byte, from the start of the command's data.
        12 => offset: u32,
        /// DATAL: bytes of data in this PDU.
        16 => length: u32,
    }
}

impl DataHeader {
    /// Data from the host, an answer to the R2T with `transfer_tag`; `last` ends that R2T.
    #[inline]
    pub const fn h2c(
        command_id: u16,
        transfer_tag: u16,
        offset: u32,
        length: u32,
        last: bool,
        digests: Digests,
    ) -> Self {
        let flags = PduFlags::NONE.with(PduFlags::LAST, last);
        Self {
            common: CommonHeader::for_pdu(PduType::H2C_DATA, flags, digests, length),
            command_id,
            transfer_tag,
            offset,
            length,
        }
    }

    /// Data to the host. `flags` takes [`PduFlags::LAST`] and, with it, [`PduFlags::SUCCESS`];
    /// digest flags are added as negotiated.
    #[inline]
    pub const fn c2h(
        command_id: u16,
        offset: u32,
        length: u32,
        flags: PduFlags,
        digests: Digests,
    ) -> Self {
        Self {
            common: CommonHeader::for_pdu(PduType::C2H_DATA, flags, digests, length),
            command_id,
            transfer_tag: 0,
            offset,
            length,
        }
    }

    /// True on the last data PDU of the command (C2HData) or the R2T (H2CData).
    #[inline]
    pub const fn is_last(&self) -> bool {
        self.common.flags.contains(PduFlags::LAST)
    }

    /// True if this C2HData also completes its command.
    #[inline]
    pub const fn is_success(&self) -> bool {
        self.common.flags.contains(PduFlags::SUCCESS)
    }

    /// Checks that DATAL is what PLEN leaves room for, which a `payload` from
    /// [`CommonHeader::check`] tells.
    #[inline]
    pub fn check_length(&self, payload: super::Payload) -> Result<(), ParseError> {
        if self.length == payload.length {
            return Ok(());
        }
        let expected = crate::Expected::Exactly(payload.length.into());
        Err(ParseError::new("DATAL", 16, expected, self.length.into()))
    }
}

impl fmt::Display for DataHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cid {}", self.common, self.command_id)?;
        if self.common.kind == PduType::H2C_DATA {
            write!(f, " ttag {}", self.transfer_tag)?;
        }
        write!(f, " offset {} length {}", self.offset, self.length)
    }
}
