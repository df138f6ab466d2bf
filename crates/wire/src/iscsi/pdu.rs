//! Any PDU, for those who only look: captures, logs, tests. A machine takes the PDUs apart itself.

use core::fmt;

use super::{
    AsyncMessage, Bhs, DataIn, DataOut, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse,
    NopIn, NopOut, Opcode, R2t, Reject, ScsiCommand, ScsiResponse, Snack, TaskManagementRequest,
    TaskManagementResponse, TextRequest, TextResponse,
};
use crate::ParseError;

macro_rules! any_pdu {
    ($($opcode:ident => $name:ident,)*) => {
        /// The 48 bytes of a PDU, read as what its opcode says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Pdu {
            $(#[doc = concat!("A [`", stringify!($name), "`].")] $name($name),)*
            /// An opcode that this crate does not know.
            Unknown(Bhs),
        }

        impl Pdu {
            /// Size on the wire, in bytes, without what follows the BHS.
            pub const SIZE: usize = Bhs::SIZE;

            /// Reads the PDU from its first 48 bytes; the only error is an input that ends before
            /// them.
            pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
                let bhs = Bhs::parse(bytes)?;
                Ok(match bhs.opcode() {
                    $(Opcode::$opcode => Self::$name($name::parse(bytes)?),)*
                    _ => Self::Unknown(bhs),
                })
            }

            /// The PDU as bytes; of an unknown one only what all have in common.
            pub fn emit(&self) -> [u8; Self::SIZE] {
                match self {
                    $(Self::$name(pdu) => pdu.emit(),)*
                    Self::Unknown(bhs) => bhs.emit(),
                }
            }

            /// What all PDUs have in common: lengths above all.
            pub fn bhs(&self) -> Bhs {
                match self {
                    $(Self::$name(pdu) => pdu.bhs(),)*
                    Self::Unknown(bhs) => *bhs,
                }
            }
        }

        impl fmt::Display for Pdu {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name(pdu) => pdu.fmt(f),)*
                    Self::Unknown(bhs) => bhs.fmt(f),
                }
            }
        }
    };
}

any_pdu! {
    NOP_OUT => NopOut,
    SCSI_COMMAND => ScsiCommand,
    TASK_MANAGEMENT_REQUEST => TaskManagementRequest,
    LOGIN_REQUEST => LoginRequest,
    TEXT_REQUEST => TextRequest,
    DATA_OUT => DataOut,
    LOGOUT_REQUEST => LogoutRequest,
    SNACK => Snack,
    NOP_IN => NopIn,
    SCSI_RESPONSE => ScsiResponse,
    TASK_MANAGEMENT_RESPONSE => TaskManagementResponse,
    LOGIN_RESPONSE => LoginResponse,
    TEXT_RESPONSE => TextResponse,
    DATA_IN => DataIn,
    LOGOUT_RESPONSE => LogoutResponse,
    R2T => R2t,
    ASYNC_MESSAGE => AsyncMessage,
    REJECT => Reject,
}
