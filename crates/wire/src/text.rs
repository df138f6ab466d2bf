//! Texts in fields of a fixed size, as NVMe and ATA have them for names of devices.

/// `text` as an ASCII field of `N` bytes: cut when too long, padded with spaces, and what is not
/// printable ASCII replaced by `?`, as the specification demands of SN, MN and FR.
pub fn ascii_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (slot, char) in field.iter_mut().zip(text.chars()) {
        *slot = match char {
            ' '..='~' => char as u8,
            _ => b'?',
        };
    }
    field
}

/// An ASCII field without its trailing spaces and NULs. Bytes that are not UTF-8 and control
/// characters become U+FFFD: the text may be printed, and a peer must not forge lines of a log.
pub fn ascii_text(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    text.trim_end_matches([' ', '\0']).replace(|char: char| char.is_control(), "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_fields_are_padded_cut_and_printable() {
        assert_eq!(&ascii_field::<4>("ab"), b"ab  ");
        assert_eq!(&ascii_field::<4>("abcdef"), b"abcd");
        assert_eq!(&ascii_field::<4>("a\u{e9}\n"), b"a?? ");
        assert_eq!(ascii_text(b"ab \0\0"), "ab");
    }
}
