//! Who forwards the frames of an interface says so to others: two servers that do would each send
//! every frame on, and nobody would see why it comes twice.
//!
//! A claim is a Unix socket that nobody connects to. Its abstract name is taken once in a network
//! namespace, as is an interface's number, and is free again when its process ends, however that
//! ends:
//!
//! ```text
//!   plateway-forwards/8847/3      labelled frames without a tag, of the interface with number 3
//!   plateway-forwards/8847.7/3    those of VLAN 7
//!   plateway-forwards/all/3       a circuit
//! ```
//!
//! In: what a link takes, and of which interface. Errors: the name is taken (`AddrInUse`), with where
//! to look. Not noticed: a circuit beside another server's link of one type, which may be what is
//! wanted; and whoever forwards and is not Plateway.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use contract::{EtherType, Takes};

use super::LinkOptions;

/// The frames of an interface that are one link's to forward, as long as this is kept.
#[derive(Debug)]
pub(super) struct Claim {
    /// The interface's number.
    pub(super) index: i32,
    _name: UnixListener,
}

impl Claim {
    pub(super) fn new(options: &LinkOptions, index: i32) -> io::Result<Claim> {
        let name = name(options, index);
        let address = SocketAddr::from_abstract_name(&name)?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Claim { index, _name: listener }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let text = format!(
                    "another server, or another link of this one, forwards the same frames of it already, so that each would leave twice: `ss -xlp` shows who has @{name}"
                );
                Err(io::Error::new(io::ErrorKind::AddrInUse, text))
            }
            Err(error) => Err(error),
        }
    }
}

fn name(options: &LinkOptions, index: i32) -> String {
    let kind = match options.intake.takes {
        Takes::Type(EtherType(number)) => format!("{number:04x}"),
        Takes::Whole => "all".to_owned(),
    };
    let vlan = options.vlan.map_or(String::new(), |vlan| format!(".{vlan}"));
    format!("plateway-forwards/{kind}{vlan}/{index}")
}
