//! Overhead: how many bytes of headers each stack of protocols has around data, and which share of
//! the wire is left for data.
//!
//! ```text
//!   | Ethernet | label | Ethernet | AoE | ATA |  data            AoE/MPLS: as many frames as data fill
//!   | Ethernet | IPv4 | TCP | BHS |  data ...                     iSCSI: a BHS for each block,
//!   | Ethernet | IPv4 | TCP |  ... data                           which TCP cuts into segments
//! ```
//! Nothing is added up from a list of sizes: a frame of each stack is made by the encoders of this
//! crate ([`Stack::encode`]), and its bytes are counted. [`STACKS`] has the stacks, each beside what a
//! well-known paper says of it: Table I of Landowski and Curran on AoE over MPLS.
//!
//! Units: bytes, from the first of the Ethernet header on. VLAN tags are none; what a frame takes on
//! the wire besides its bytes ([`AROUND_FRAME`]) is in [`Stack::share`] and in no count of headers.
//! Counted are the frames that carry data, one way: requests, statuses, R2T and acknowledgements are
//! left out. No errors.

mod encode;
mod table;
#[cfg(test)]
mod tests;

pub use encode::{Frame, Part};
pub use table::STACKS;

use crate::aoe::{SECTOR, sectors_for_mtu};
use crate::ethernet::{AROUND_FRAME, HEADER_SIZE, PAYLOAD_MIN};
use encode::{Layer, Pdu};

/// A stack of protocols around data.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// Its protocols from the data on, as the paper writes them but for the Ethernet around all; then
    /// how it differs from what the paper means.
    pub name: &'static str,
    /// Bytes of headers that the paper counts; none where it does not have the stack in this form.
    pub paper_bytes: Option<usize>,
    /// Why the paper has another number, or what this form is.
    pub why: &'static str,
    /// What is around the PDU, outermost first.
    layers: &'static [Layer],
    /// What data travel in.
    pdu: Pdu,
}

/// What a block costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Bytes of the block.
    pub data_bytes: usize,
    /// Frames that it takes.
    pub frames: usize,
    /// What these take on the wire.
    pub wire_bytes: usize,
}

impl Share {
    /// How much of the wire is data, in percent.
    pub fn data_percent(&self) -> f64 {
        100.0 * self.data_bytes as f64 / self.wire_bytes as f64
    }
}

impl Stack {
    /// A frame with these data: whole sectors of 512 bytes, at most 127 of them, with FCIP and iFCP
    /// at most [`DATA_MAX`](crate::fibre_channel::DATA_MAX). Panics unless they are.
    pub fn encode(&self, data: &[u8]) -> Frame {
        encode::encode(self.layers, self.pdu, data)
    }

    /// What a frame has that is not data, outermost first.
    pub fn parts(&self) -> Vec<Part> {
        self.encode(&[0; SECTOR]).parts
    }

    /// Bytes of a frame that are not data.
    pub fn header_bytes(&self) -> usize {
        sum(&self.parts())
    }

    /// What a block costs on a wire whose frames have at most `mtu` bytes behind their Ethernet
    /// header; `None` if that leaves no room for data. Panics unless the block is whole sectors.
    ///
    /// A frame of AoE has as many sectors as the frame inside has room for, counted as our targets
    /// and initiators do. A stream has the PDU's headers once for each block (with FCIP and iFCP for
    /// each FC frame of [`DATA_MAX`](crate::fibre_channel::DATA_MAX)), and is cut into segments as
    /// large as the MTU allows; the last one is as long as what is left.
    pub fn share(&self, mtu: usize, block: usize) -> Option<Share> {
        assert!(block > 0 && block.is_multiple_of(SECTOR), "a block of {block} bytes");
        let parts = self.parts();
        let (layers, pdu) = parts.split_at(self.layers.len());
        // What is padded where it is short is the payload of the innermost Ethernet frame.
        let innermost = self.layers.iter().rposition(|layer| *layer == Layer::Ethernet);
        let (outside, inside) = layers.split_at(innermost.map_or(0, |at| at + 1));
        let (outside, inside, pdu) = (sum(outside), sum(inside), sum(pdu));
        let inner_mtu = (mtu + HEADER_SIZE).checked_sub(outside)?;
        // In each frame before its content; the content of all; that of the fullest frame.
        let (head, content, content_max) = match self.pdu.data_max() {
            None => {
                let sectors = sectors_for_mtu(inner_mtu as u32);
                (inside + pdu, block, usize::from(sectors) * SECTOR)
            }
            Some(data_max) => {
                let pdus = block.div_ceil(data_max);
                (inside, block + pdus * pdu, inner_mtu.checked_sub(inside)?)
            }
        };
        if content_max == 0 {
            return None;
        }
        let on_wire = |content| outside + PAYLOAD_MIN.max(head + content) + AROUND_FRAME;
        let (full, rest) = (content / content_max, content % content_max);
        let last = if rest == 0 { 0 } else { on_wire(rest) };
        Some(Share {
            data_bytes: block,
            frames: content.div_ceil(content_max),
            wire_bytes: full * on_wire(content_max) + last,
        })
    }
}

fn sum(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.bytes).sum()
}
