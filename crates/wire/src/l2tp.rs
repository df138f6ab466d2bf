//! L2TPv3: the header of data messages, over UDP and over IP.
//!
//! ```text
//!   UDP, port 1701:    0  T 0...0 version   2  reserved   4  session ID   8  cookie, sublayer, frame
//!   IP protocol 115:   0  session ID   4  cookie, sublayer, frame
//! ```
//! A cookie has 0, 4 or 8 bytes and the L2-specific sublayer none or 4, as the ends agreed for each
//! session ([`SessionFormat`]): so one looks the session up first ([`session_id`]) and then takes the
//! header off ([`DataHeader::pop`]). Whether the cookie is the session's says the session. Control
//! messages (T, or session ID 0) are refused: sessions are configured, not negotiated. Units: bytes.
//! Errors: version, T, session ID 0, what ends early. Big-endian.
//! Spec: RFC 3931 clauses 4.1 and 4.6, RFC 4719 (Ethernet).

use core::fmt;
use core::num::NonZeroU32;

use crate::field::{be16, be32};
use crate::{Expected, Front, ParseError};

/// UDP port of L2TP.
pub const UDP_PORT: u16 = 1701;
/// The version, in what goes over UDP.
pub const VERSION: u8 = 3;

/// What the messages of a session go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP, port 1701.
    Udp,
    /// IP, protocol 115.
    Ip,
}

impl Transport {
    /// Bytes in front of the cookie.
    #[inline]
    pub const fn header_size(self) -> usize {
        match self {
            Self::Udp => 8,
            Self::Ip => 4,
        }
    }
}

bits! {
    /// The first two bytes over UDP.
    pub struct Flags(u16) {
        fields {
            /// [`VERSION`].
            version / with_version: 0, 4;
        }
        flags {
            /// T: a control message.
            is_control / with_control: 15;
        }
    }
}

/// What stands in front of the frame against those who cannot see the session's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Cookie {
    /// Nothing.
    #[default]
    None,
    /// 4 bytes.
    Short([u8; 4]),
    /// 8 bytes.
    Long([u8; 8]),
}

impl Cookie {
    /// Its bytes.
    #[inline]
    pub const fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }

    /// The cookie of a session that agreed on one of the size of `like`, at the front of `bytes`.
    #[inline]
    fn read(like: Self, bytes: &[u8]) -> Option<Self> {
        match like {
            Self::None => Some(Self::None),
            Self::Short(_) => bytes.first_chunk().copied().map(Self::Short),
            Self::Long(_) => bytes.first_chunk().copied().map(Self::Long),
        }
    }
}

bits! {
    /// The default L2-specific sublayer.
    pub struct L2SpecificSublayer(u32) {
        fields {
            /// Which message of the session it is, from 0, if it is sequenced.
            sequence / with_sequence: 0, 24;
        }
        flags {
            /// S: it has a sequence number.
            is_sequenced / with_sequenced: 30;
        }
    }
}

impl L2SpecificSublayer {
    /// That of a message without a number.
    pub const UNSEQUENCED: Self = Self(0);

    /// That of a message with one of [`Numbers::L2TP`](crate::sequence::Numbers::L2TP), or none.
    #[inline]
    pub const fn new(number: Option<u32>) -> Self {
        match number {
            Some(number) => Self(0).with_sequenced(true).with_sequence(number),
            None => Self::UNSEQUENCED,
        }
    }

    /// The number in it, which counts only with S.
    #[inline]
    pub const fn number(self) -> Option<u32> {
        match self.is_sequenced() {
            true => Some(self.sequence()),
            false => None,
        }
    }
}

impl fmt::Display for L2SpecificSublayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "sequence {number}"),
            None => f.write_str("unsequenced"),
        }
    }
}

/// What the ends of a session agreed on about its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionFormat {
    /// What its messages go over.
    pub transport: Transport,
    /// The cookie that messages bring; here its size counts.
    pub cookie: Cookie,
    /// Whether they have an L2-specific sublayer.
    pub has_sublayer: bool,
}

/// The session that a message is for, whose format tells how to go on.
#[inline]
pub fn session_id(transport: Transport, bytes: &[u8]) -> Result<NonZeroU32, ParseError> {
    let size = transport.header_size();
    let Some(head) = bytes.get(..size) else {
        return Err(ParseError::short(size, bytes.len()));
    };
    if transport == Transport::Udp {
        let flags = Flags(be16(head, 0));
        if flags.version() != VERSION.into() {
            let expected = Expected::Exactly(VERSION.into());
            return Err(ParseError::new("version", 1, expected, flags.version().into()));
        }
        if flags.is_control() {
            let expected = Expected::Words("a data message");
            return Err(ParseError::new("T", 0, expected, flags.0.into()));
        }
    }
    let at = size - 4;
    NonZeroU32::new(be32(head, at)).ok_or(ParseError::new(
        "session ID",
        at,
        Expected::AtLeast(1),
        0,
    ))
}

/// The header of a data message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Which session of the receiver it is for.
    pub session_id: NonZeroU32,
    /// The cookie, that must be the session's.
    pub cookie: Cookie,
    /// The L2-specific sublayer, if the session has one.
    pub sublayer: Option<L2SpecificSublayer>,
}

impl DataHeader {
    /// Bytes of the longest.
    pub const SIZE_MAX: usize = 20;

    /// Takes the header off a message of a session of this format: it, and the frame. Errors: those
    /// of [`session_id`], and a message that ends before its header does.
    #[inline]
    pub fn pop(bytes: &[u8], format: SessionFormat) -> Result<(Self, &[u8]), ParseError> {
        let session_id = session_id(format.transport, bytes)?;
        let cookie_at = format.transport.header_size();
        let sublayer_at = cookie_at + format.cookie.bytes().len();
        let size = sublayer_at + if format.has_sublayer { 4 } else { 0 };
        let short = || ParseError::short(size, bytes.len());
        let (head, frame) = bytes.split_at_checked(size).ok_or_else(short)?;
        let cookie = Cookie::read(format.cookie, &head[cookie_at..]).ok_or_else(short)?;
        let sublayer = format.has_sublayer.then(|| L2SpecificSublayer(be32(head, sublayer_at)));
        Ok((Self { session_id, cookie, sublayer }, frame))
    }

    /// The header as bytes.
    #[inline]
    pub fn emit(&self, transport: Transport) -> Front<{ Self::SIZE_MAX }> {
        let mut front = Front::new();
        if let Some(sublayer) = self.sublayer {
            front.push(&sublayer.0.to_be_bytes());
        }
        front.push(self.cookie.bytes());
        front.push(&self.session_id.get().to_be_bytes());
        if transport == Transport::Udp {
            front.push(&[0, VERSION, 0, 0]);
        }
        front
    }
}

impl fmt::Display for DataHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the cookie, which is a secret.
        write!(f, "session {} cookie of {} bytes", self.session_id, self.cookie.bytes().len())?;
        match self.sublayer {
            Some(sublayer) => write!(f, " {sublayer}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 3] = [0xaa, 0xbb, 0xcc];

    fn header(cookie: Cookie, sublayer: Option<L2SpecificSublayer>) -> DataHeader {
        DataHeader { session_id: NonZeroU32::new(0x0a0b_0c0d).unwrap(), cookie, sublayer }
    }

    #[test]
    fn headers_of_each_format_both_ways() {
        let short = Cookie::Short([1, 2, 3, 4]);
        let long = Cookie::Long([1, 2, 3, 4, 5, 6, 7, 8]);
        let numbered = L2SpecificSublayer::new(Some(0xff_fffe));
        for (header, behind, text) in [
            (header(Cookie::None, None), &[][..], "cookie of 0 bytes"),
            (header(short, None), &[1, 2, 3, 4], "cookie of 4 bytes"),
            (header(long, None), &[1, 2, 3, 4, 5, 6, 7, 8], "cookie of 8 bytes"),
            (
                header(Cookie::None, Some(L2SpecificSublayer::UNSEQUENCED)),
                &[0, 0, 0, 0],
                "cookie of 0 bytes unsequenced",
            ),
            (
                header(long, Some(numbered)),
                &[1, 2, 3, 4, 5, 6, 7, 8, 0x40, 0xff, 0xff, 0xfe],
                "cookie of 8 bytes sequence 16777214",
            ),
        ] {
            assert_eq!(header.to_string(), format!("session 168496141 {text}"));
            for (transport, front) in [
                (Transport::Udp, &[0, 3, 0, 0, 10, 11, 12, 13][..]),
                (Transport::Ip, &[10, 11, 12, 13]),
            ] {
                let has_sublayer = header.sublayer.is_some();
                let format = SessionFormat { transport, cookie: header.cookie, has_sublayer };
                let bytes = [front, behind].concat();
                assert_eq!(*header.emit(transport), bytes);
                let message = [&bytes[..], &FRAME].concat();
                assert_eq!(session_id(transport, &message), Ok(header.session_id));
                assert_eq!(DataHeader::pop(&message, format), Ok((header, &FRAME[..])));
                for length in 0..bytes.len() {
                    let size = if length < front.len() { front.len() } else { bytes.len() };
                    let seen = DataHeader::pop(&message[..length], format);
                    assert_eq!(seen, Err(ParseError::short(size, length)), "{text}");
                }
            }
        }
    }

    #[test]
    fn another_cookie_than_the_session_s_is_seen_as_it_is() {
        let cookie = Cookie::Short([9; 4]);
        let format = SessionFormat { transport: Transport::Ip, cookie, has_sublayer: false };
        let (seen, _) = DataHeader::pop(&[0, 0, 0, 1, 9, 9, 9, 8], format).unwrap();
        assert_eq!(seen.cookie, Cookie::Short([9, 9, 9, 8]));
        assert_ne!(seen.cookie, cookie);
    }

    #[test]
    fn version_is_judged_before_all_else() {
        for (first, refused) in [
            ([0, 2], "version at byte 1: expected 3, seen 2 (0x2)"),
            ([0xc8, 2], "version at byte 1: expected 3, seen 2 (0x2)"),
            ([0xc8, 3], "T at byte 0: expected a data message, seen 51203 (0xc803)"),
            ([0, 3], "session ID at byte 4: expected at least 1, seen 0 (0x0)"),
        ] {
            let bytes = [first[0], first[1], 0, 0, 0, 0, 0, 0];
            assert_eq!(session_id(Transport::Udp, &bytes).unwrap_err().to_string(), refused);
        }
        // What is reserved is ignored.
        assert!(session_id(Transport::Udp, &[0x7f, 0xf3, 0xff, 0xff, 0, 0, 0, 1]).is_ok());
    }

    #[test]
    fn a_control_message_over_ip_is_refused() {
        assert_eq!(
            session_id(Transport::Ip, &[0; 8]).unwrap_err().to_string(),
            "session ID at byte 0: expected at least 1, seen 0 (0x0)"
        );
    }

    #[test]
    fn numbers_of_messages_have_24_bits() {
        assert_eq!(L2SpecificSublayer::new(Some(0x0100_0005)).0, 0x4000_0005);
        assert_eq!(L2SpecificSublayer(0xffff_ffff).sequence(), 0xff_ffff);
        assert!(!L2SpecificSublayer(0xbfff_ffff).is_sequenced());
    }

    #[test]
    fn a_number_counts_only_with_s() {
        for number in [None, Some(0), Some(0xff_ffff)] {
            assert_eq!(L2SpecificSublayer::new(number).number(), number);
        }
        assert_eq!(L2SpecificSublayer(0x0080_0000).number(), None);
    }
}
