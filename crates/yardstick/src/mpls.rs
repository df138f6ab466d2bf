//! What a router of labels is measured with: the barest forwarder, and who sends it labelled frames.
//!
//! `frame.rs` has the bytes, `forward.rs` the forwarder with its packet ring, `xdp.rs` the same over
//! AF_XDP, `generate.rs` the load, whose sink is an interface that counts what arrives. Units:
//! frames without their check sequence. Absent on purpose: a table of labels; the forwarder does to
//! every frame what a swap does to it at the least. Spec: RFC 3032.

pub(crate) mod forward;
mod frame;
pub(crate) mod generate;
mod xdp;

use anyhow::{Context as _, Result};

use crate::packet::Mac;

/// Reads `02:00:00:00:00:01`.
fn parse_mac(text: &str) -> Result<Mac> {
    let byte = |part: &str| (part.len() == 2).then(|| u8::from_str_radix(part, 16).ok()).flatten();
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    let mac = bytes.and_then(|bytes| Mac::try_from(bytes).ok());
    mac.with_context(|| format!("{text:?} does not look like 02:00:00:00:00:01"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_address_is_six_bytes_of_two_digits() {
        assert_eq!(parse_mac("02:00:00:00:00:fe").ok(), Some([2, 0, 0, 0, 0, 0xfe]));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:1", "02:00:00:00:00:01:02", "x2:0"] {
            assert!(parse_mac(wrong).is_err(), "{wrong}");
        }
    }
}
