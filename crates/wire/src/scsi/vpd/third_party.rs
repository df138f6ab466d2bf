//! Third-party copy, VPD page 8Fh: which commands copy, and what may be asked of them.
//!
//! ```text
//!  0 descriptor type (16) | 2 length (16) | 4 the descriptor, padded to a multiple of 4
//!  0001 commands    4 length | opcode, number of service actions, service actions | ...
//!  0004 parameters  8 CSCD descriptors (16), segments (16) | 12 list length | 16 inline length
//!  0008 types       4 length | type codes of CSCD and segment descriptors
//!  000c places      4 length (16) | numbers of places that no descriptor says
//!  8001 copies      4 at once (32) | 8 identified (32) | 12 bytes of a segment | 16 granularity
//! ```
//! Units: lengths are bytes, the granularity a power of two of bytes. Errors: descriptors that do
//! not fit the page; unknown ones are passed over, of the others the last counts, and of numbers
//! the first 255. Spec: SPC-4, "Third-party Copy VPD page".

use crate::scsi::{OpCode, be16, be32, put};
use crate::{Expected, ParseError};

/// The page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThirdPartyCopy {
    /// Commands with their service actions, ascending.
    pub commands: Vec<(OpCode, Vec<u8>)>,
    /// MAXIMUM CSCD DESCRIPTOR COUNT.
    pub places_max: u16,
    /// MAXIMUM SEGMENT DESCRIPTOR COUNT.
    pub segments_max: u16,
    /// MAXIMUM DESCRIPTOR LIST LENGTH.
    pub list_max: u32,
    /// MAXIMUM INLINE DATA LENGTH.
    pub inline_max: u32,
    /// Type codes of descriptors, ascending.
    pub types: Vec<u8>,
    /// Numbers of places that no descriptor says, ascending.
    pub place_ids: Vec<u16>,
    /// TOTAL CONCURRENT COPIES.
    pub copies_max: u32,
    /// MAXIMUM IDENTIFIED CONCURRENT COPIES.
    pub identified_max: u32,
    /// MAXIMUM SEGMENT LENGTH.
    pub segment_max: u32,
    /// DATA SEGMENT GRANULARITY.
    pub granularity: u8,
}

const COMMANDS: u16 = 0x0001;
const PARAMETERS: u16 = 0x0004;
const TYPES: u16 = 0x0008;
const PLACES: u16 = 0x000c;
const COPIES: u16 = 0x8001;

impl ThirdPartyCopy {
    /// The body of the page. Panics if a list is longer than its length can say.
    pub fn emit(&self) -> Vec<u8> {
        let mut commands = vec![0];
        for (opcode, actions) in &self.commands {
            commands.extend([opcode.0, actions.len() as u8]);
            commands.extend(actions);
        }
        commands[0] = u8::try_from(commands.len() - 1).expect("commands of 255 bytes at most");
        let mut parameters = [0; 28];
        put(&mut parameters, 4, self.places_max.to_be_bytes());
        put(&mut parameters, 6, self.segments_max.to_be_bytes());
        put(&mut parameters, 8, self.list_max.to_be_bytes());
        put(&mut parameters, 12, self.inline_max.to_be_bytes());
        let mut types = vec![u8::try_from(self.types.len()).expect("at most 255 types")];
        types.extend(&self.types);
        let mut places = (2 * self.place_ids.len() as u16).to_be_bytes().to_vec();
        places.extend(self.place_ids.iter().flat_map(|id| id.to_be_bytes()));
        let mut copies = [0; 32];
        put(&mut copies, 0, self.copies_max.to_be_bytes());
        put(&mut copies, 4, self.identified_max.to_be_bytes());
        put(&mut copies, 8, self.segment_max.to_be_bytes());
        copies[12] = self.granularity;
        let descriptors: [(u16, &[u8]); 5] = [
            (COMMANDS, &commands),
            (PARAMETERS, &parameters),
            (TYPES, &types),
            (PLACES, &places),
            (COPIES, &copies),
        ];
        descriptors.into_iter().flat_map(|(kind, body)| descriptor(kind, body)).collect()
    }

    /// Reads the body of the page.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, ParseError> {
        let mut page = Self::default();
        while !bytes.is_empty() {
            let Some((head, rest)) = bytes.split_at_checked(4) else {
                return Err(ParseError::short(4, bytes.len()));
            };
            let length = usize::from(be16(head, 2));
            let Some((body, behind)) = rest.split_at_checked(length) else {
                let expected = Expected::AtMost(rest.len() as u64);
                return Err(ParseError::new("DESCRIPTOR LENGTH", 2, expected, length as u64));
            };
            page.take(be16(head, 0), body)?;
            bytes = behind;
        }
        Ok(page)
    }

    fn take(&mut self, kind: u16, body: &[u8]) -> Result<(), ParseError> {
        let long = |least: usize| match body.len() < least {
            true => Err(ParseError::short(least, body.len())),
            false => Ok(()),
        };
        match kind {
            COMMANDS => {
                long(1)?;
                long(1 + usize::from(body[0]))?;
                self.commands = commands(&body[1..=usize::from(body[0])])?;
            }
            PARAMETERS => {
                long(16)?;
                (self.places_max, self.segments_max) = (be16(body, 4), be16(body, 6));
                (self.list_max, self.inline_max) = (be32(body, 8), be32(body, 12));
            }
            TYPES => {
                long(1)?;
                long(1 + usize::from(body[0]))?;
                self.types = body[1..=usize::from(body[0])].to_vec();
            }
            PLACES => {
                long(2)?;
                let length = usize::from(be16(body, 0));
                long(2 + length)?;
                let (ids, _) = body[2..2 + length].as_chunks();
                self.place_ids = ids.iter().take(255).map(|id| u16::from_be_bytes(*id)).collect();
            }
            COPIES => {
                long(13)?;
                (self.copies_max, self.identified_max) = (be32(body, 0), be32(body, 4));
                (self.segment_max, self.granularity) = (be32(body, 8), body[12]);
            }
            _ => {}
        }
        Ok(())
    }
}

fn descriptor(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = body.len().next_multiple_of(4);
    let mut bytes = kind.to_be_bytes().to_vec();
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend(body);
    bytes.resize(4 + length, 0);
    bytes
}

fn commands(mut bytes: &[u8]) -> Result<Vec<(OpCode, Vec<u8>)>, ParseError> {
    let mut commands = Vec::new();
    while let [opcode, count, rest @ ..] = bytes {
        let Some((actions, behind)) = rest.split_at_checked(usize::from(*count)) else {
            let expected = Expected::AtMost(rest.len() as u64);
            let field = "SERVICE ACTION LIST LENGTH";
            return Err(ParseError::new(field, 1, expected, u64::from(*count)));
        };
        commands.push((OpCode(*opcode), actions.to_vec()));
        bytes = behind;
    }
    Ok(commands)
}
