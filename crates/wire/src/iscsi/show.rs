//! How the one-line descriptions of PDUs begin and end, and the words they share.

use core::fmt;

use super::{Operation, RESERVED_TAG, U24};

/// What every line begins with: the opcode, whether the PDU is immediate, its flags.
pub(super) fn head(
    f: &mut fmt::Formatter<'_>,
    operation: Operation,
    flags: &dyn fmt::Display,
) -> fmt::Result {
    write!(f, "{}", operation.opcode())?;
    if operation.is_immediate() {
        f.write_str(" immediate")?;
    }
    write!(f, " [{flags}]")
}

/// What every line ends with: the lengths that are not 0.
pub(super) fn tail(f: &mut fmt::Formatter<'_>, ahs: u8, data: U24) -> fmt::Result {
    if ahs != 0 {
        write!(f, " ahs {}", u32::from(ahs) * 4)?;
    }
    if data.get() != 0 {
        write!(f, " data {data}")?;
    }
    Ok(())
}

/// The numbers of a target's PDU.
pub(super) fn target_numbers(
    f: &mut fmt::Formatter<'_>,
    stat_sn: u32,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
) -> fmt::Result {
    write!(f, " statsn {stat_sn} expcmdsn {exp_cmd_sn} maxcmdsn {max_cmd_sn}")
}

/// Writes one letter a flag that is set, from bit 7 down to bit 0; `.` for none. Bits whose letter
/// is a space belong to a field, or are reserved and show as a number.
pub(super) fn letters(
    f: &mut fmt::Formatter<'_>,
    flags: u8,
    letters: &[u8; 8],
    fields: u8,
) -> fmt::Result {
    let rest = flags & !fields;
    if rest == 0 {
        return f.write_str(".");
    }
    let mut unknown = 0;
    for (index, &letter) in letters.iter().enumerate() {
        let bit = rest & 0x80 >> index;
        match letter {
            _ if bit == 0 => {}
            b' ' => unknown |= bit,
            letter => write!(f, "{}", char::from(letter))?,
        }
    }
    match unknown {
        0 => Ok(()),
        unknown => write!(f, "+{unknown:#x}"),
    }
}

/// A tag: hexadecimal, since most peers count in its bytes; `-` for the reserved one.
pub(super) struct Tag(pub(super) u32);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RESERVED_TAG => f.write_str("-"),
            tag => write!(f, "{tag:#x}"),
        }
    }
}

/// A LUN: its number where only the first level of one is used, else all of its bytes.
pub(super) struct LunText(pub(super) [u8; 8]);

impl fmt::Display for LunText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [0, number, 0, 0, 0, 0, 0, 0] => write!(f, "{number}"),
            [high @ 0x40..=0x7f, low, 0, 0, 0, 0, 0, 0] => {
                write!(f, "{}", u16::from_be_bytes([high & 0x3f, low]))
            }
            bytes => hex(f, &bytes),
        }
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
