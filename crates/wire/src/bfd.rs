//! BFD: the control packet by which two systems tell each other whether they hear one another.
//!
//! ```text
//!   0  version << 5 | diagnostic   1  state << 6 | P F C A D M   2  detect mult   3  length
//!   4  my discriminator   8  your discriminator
//!  12  desired min TX interval   16  required min RX interval   20  required min echo RX interval
//!  24  authentication section, with A:   24  auth type   25  auth len   26  what the type says
//! ```
//! It comes in UDP (RFC 5881, 5883) or, behind an associated channel header, as it is (RFC 5885).
//! [`ControlPacket::receive`] has the rules of reception that need no session; which session it is,
//! and whether a digest is right, its machine says. Units: intervals in microseconds; lengths and
//! offsets in bytes of the packet. Errors: what the first rule that is broken says. Big-endian.
//! Spec: RFC 5880 clauses 4 and 6.8.6, authentication 6.7.

use core::fmt;

use crate::field::be32;
use crate::{Expected, Front, ParseError};

/// UDP port of control packets over one hop.
pub const UDP_PORT_SINGLE_HOP: u16 = 3784;
/// UDP port of control packets over more than one hop.
pub const UDP_PORT_MULTIHOP: u16 = 4784;
/// The version that there is.
pub const VERSION: u8 = 1;

codes! {
    /// Why the session of whoever sends it last went down; five bits.
    pub struct Diagnostic(u8) {
        NONE = 0 "no diagnostic",
        DETECTION_TIME_EXPIRED = 1 "control detection time expired",
        ECHO_FAILED = 2 "echo function failed",
        NEIGHBOR_SIGNALED_DOWN = 3 "neighbor signaled session down",
        FORWARDING_PLANE_RESET = 4 "forwarding plane reset",
        PATH_DOWN = 5 "path down",
        CONCATENATED_PATH_DOWN = 6 "concatenated path down",
        ADMINISTRATIVELY_DOWN = 7 "administratively down",
        REVERSE_CONCATENATED_PATH_DOWN = 8 "reverse concatenated path down",
    }
}

codes! {
    /// Sta: the session, as whoever sends it sees it; two bits.
    pub struct State(u8) {
        ADMIN_DOWN = 0 "AdminDown",
        DOWN = 1 "Down",
        INIT = 2 "Init",
        UP = 3 "Up",
    }
}

bits! {
    /// The first byte.
    pub struct VersionDiagnostic(u8) {
        fields {
            /// [`VERSION`].
            version / with_version: 5, 3;
            /// The number of a [`Diagnostic`].
            diagnostic / with_diagnostic: 0, 5;
        }
        flags {}
    }
}

bits! {
    /// State and flags, the second byte.
    pub struct StateFlags(u8) {
        fields {
            /// The number of a [`State`].
            state / with_state: 6, 2;
        }
        flags {
            /// P: whoever sends it asks for an answer with F. Never with F.
            is_poll / with_poll: 5;
            /// F: the answer to a packet with P.
            is_final / with_final: 4;
            /// C: it does not fail with the control plane.
            is_control_plane_independent / with_control_plane_independent: 3;
            /// A: an authentication section follows.
            is_authenticated / with_authenticated: 2;
            /// D: whoever sends it wants the peer to be silent while both are up.
            is_demand / with_demand: 1;
            /// M: 0.
            is_multipoint / with_multipoint: 0;
        }
    }
}

layout! {
    big_endian:
    /// The mandatory section.
    pub struct ControlPacket[24] {
        /// Version and diagnostic.
        0 => version_diagnostic: VersionDiagnostic,
        /// State and flags.
        1 => state_flags: StateFlags,
        /// Detect Mult: after how many intervals of silence the peer gives the session up; not 0.
        2 => detect_mult: u8,
        /// Bytes of the packet, with its authentication section.
        3 => length: u8,
        /// The sender's own number of the session, not 0.
        4 => my_discriminator: u32,
        /// The peer's number of the session; 0 if it is not known.
        8 => your_discriminator: u32,
        /// How often the sender would like to send.
        12 => desired_min_tx_interval_us: u32,
        /// How often it can receive; 0: it wants nothing sent.
        16 => required_min_rx_interval_us: u32,
        /// How often it can receive echo packets; 0: it wants none.
        20 => required_min_echo_rx_interval_us: u32,
    }
}

impl ControlPacket {
    /// A packet without authentication and flags; intervals 0.
    pub const fn new(
        state: State,
        diagnostic: Diagnostic,
        detect_mult: u8,
        my_discriminator: u32,
        your_discriminator: u32,
    ) -> Self {
        Self {
            version_diagnostic: VersionDiagnostic(0)
                .with_version(VERSION)
                .with_diagnostic(diagnostic.0),
            state_flags: StateFlags(0).with_state(state.0),
            detect_mult,
            length: Self::SIZE as u8,
            my_discriminator,
            your_discriminator,
            desired_min_tx_interval_us: 0,
            required_min_rx_interval_us: 0,
            required_min_echo_rx_interval_us: 0,
        }
    }

    /// Why the session last went down.
    pub const fn diagnostic(&self) -> Diagnostic {
        Diagnostic(self.version_diagnostic.diagnostic())
    }

    /// What the sender's session is.
    pub const fn state(&self) -> State {
        State(self.state_flags.state())
    }

    /// Reads what came as the payload of UDP or of an associated channel, and checks what can be
    /// checked without a session, in the order of RFC 5880 clause 6.8.6; with the A bit also the
    /// authentication section, but for its digest. Bytes behind the packet's length are ignored.
    pub fn receive(
        payload: &[u8],
    ) -> Result<(Self, Option<AuthenticationSection<'_>>), ParseError> {
        let packet = Self::parse(payload)?;
        packet.check(payload.len())?;
        let section = &payload[Self::SIZE..packet.length.into()];
        match packet.state_flags.is_authenticated() {
            true => Ok((packet, Some(AuthenticationSection::parse(section)?))),
            false => Ok((packet, None)),
        }
    }

    /// The rules for a packet that came in `available` bytes.
    fn check(&self, available: usize) -> Result<(), ParseError> {
        let wrong =
            |field, at, expected, seen: u64| Err(ParseError::new(field, at, expected, seen));
        let StateFlags(flags) = self.state_flags;
        let version = self.version_diagnostic.version();
        let least = match self.state_flags.is_authenticated() {
            true => Self::SIZE + AuthenticationSection::HEADER_SIZE,
            false => Self::SIZE,
        };
        if version != VERSION {
            return wrong("version", 0, Expected::Exactly(VERSION.into()), version.into());
        }
        if usize::from(self.length) < least {
            return wrong("length", 3, Expected::AtLeast(least as u64), self.length.into());
        }
        if usize::from(self.length) > available {
            return wrong("length", 3, Expected::AtMost(available as u64), self.length.into());
        }
        if self.detect_mult == 0 {
            return wrong("detect mult", 2, Expected::AtLeast(1), 0);
        }
        if self.state_flags.is_multipoint() {
            return wrong("flags", 1, Expected::Words("no M"), flags.into());
        }
        if self.my_discriminator == 0 {
            return wrong("my discriminator", 4, Expected::AtLeast(1), 0);
        }
        if self.your_discriminator == 0 && !matches!(self.state(), State::DOWN | State::ADMIN_DOWN)
        {
            let expected = Expected::Words("Down or AdminDown without your discriminator");
            return wrong("state", 1, expected, self.state().0.into());
        }
        Ok(())
    }

    /// The packet with this section behind it, A and length set as it says. Panics if the section has
    /// more bytes than [`AuthenticationSection::SIZE_MAX`].
    pub fn emit_with(
        &self,
        section: &AuthenticationSection<'_>,
    ) -> Front<{ Self::SIZE + AuthenticationSection::SIZE_MAX }> {
        let mut front = Front::new();
        front.push(section.body);
        front.push(&[
            section.kind.0,
            (AuthenticationSection::HEADER_SIZE + section.body.len()) as u8,
        ]);
        let state_flags = self.state_flags.with_authenticated(true);
        let length = (Self::SIZE + front.len()) as u8;
        front.push(&Self { state_flags, length, ..*self }.emit());
        front
    }
}

impl fmt::Display for ControlPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} mult {} my {:#010x} your {:#010x} tx {} us rx {} us echo {} us",
            self.state(),
            self.detect_mult,
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx_interval_us,
            self.required_min_rx_interval_us,
            self.required_min_echo_rx_interval_us
        )?;
        for (bit, name) in [(5, " P"), (4, " F"), (3, " C"), (2, " A"), (1, " D"), (0, " M")] {
            if self.state_flags.0 >> bit & 1 == 1 {
                f.write_str(name)?;
            }
        }
        match self.diagnostic() {
            Diagnostic::NONE => Ok(()),
            diagnostic => write!(f, ": {diagnostic}"),
        }
    }
}

codes! {
    /// Auth Type: how a packet is authenticated.
    pub struct AuthenticationType(u8) {
        SIMPLE_PASSWORD = 1 "simple password",
        KEYED_MD5 = 2 "keyed MD5",
        METICULOUS_KEYED_MD5 = 3 "meticulous keyed MD5",
        KEYED_SHA1 = 4 "keyed SHA1",
        METICULOUS_KEYED_SHA1 = 5 "meticulous keyed SHA1",
    }
}

/// The authentication section of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationSection<'a> {
    /// How.
    pub kind: AuthenticationType,
    /// What stands behind Auth Len: key ID and password; or key ID, a reserved byte, sequence number
    /// and digest; or what an unknown type says.
    pub body: &'a [u8],
}

impl<'a> AuthenticationSection<'a> {
    /// Bytes of Auth Type and Auth Len.
    pub const HEADER_SIZE: usize = 2;
    /// Bytes of the longest that a packet's length can count.
    pub const SIZE_MAX: usize = u8::MAX as usize - ControlPacket::SIZE;

    /// Reads the section from the bytes that the packet has for it. Errors, whose offsets count from
    /// the packet's first byte: an Auth Len that the type does not have or that is beyond the packet.
    fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (kind, length) = (AuthenticationType(bytes[0]), usize::from(bytes[1]));
        let (least, most) = match kind {
            AuthenticationType::SIMPLE_PASSWORD => (4, 19),
            AuthenticationType::KEYED_MD5 | AuthenticationType::METICULOUS_KEYED_MD5 => (24, 24),
            AuthenticationType::KEYED_SHA1 | AuthenticationType::METICULOUS_KEYED_SHA1 => (28, 28),
            _ => (Self::HEADER_SIZE, Self::SIZE_MAX),
        };
        let expected = match bytes.get(Self::HEADER_SIZE..length) {
            Some(body) if least <= length && length <= most => return Ok(Self { kind, body }),
            _ if least == most && length != most => Expected::Exactly(most as u64),
            _ if length < least => Expected::AtLeast(least as u64),
            _ => Expected::AtMost(most.min(bytes.len()) as u64),
        };
        Err(ParseError::new("auth len", ControlPacket::SIZE + 1, expected, length as u64))
    }

    /// Whether it has a sequence number and a digest.
    const fn is_keyed(&self) -> bool {
        matches!(
            self.kind,
            AuthenticationType::KEYED_MD5
                | AuthenticationType::METICULOUS_KEYED_MD5
                | AuthenticationType::KEYED_SHA1
                | AuthenticationType::METICULOUS_KEYED_SHA1
        )
    }

    /// Auth Key ID: which key is meant; `None` of an unknown type.
    pub fn key_id(&self) -> Option<u8> {
        let is_known = self.is_keyed() || self.kind == AuthenticationType::SIMPLE_PASSWORD;
        if is_known { self.body.first().copied() } else { None }
    }

    /// The password, if that is what it has.
    pub fn password(&self) -> Option<&'a [u8]> {
        match self.kind {
            AuthenticationType::SIMPLE_PASSWORD => self.body.get(1..),
            _ => None,
        }
    }

    /// Sequence number and digest, if it has them.
    pub fn digest(&self) -> Option<(u32, &'a [u8])> {
        match self.body.split_at_checked(6) {
            Some((head, digest)) if self.is_keyed() => Some((be32(head, 2), digest)),
            _ => None,
        }
    }
}

impl fmt::Display for AuthenticationSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        write!(f, "{}", self.kind)?;
        if let Some(key) = self.key_id() {
            write!(f, " key {key}")?;
        }
        match self.digest() {
            Some((sequence, _)) => write!(f, " sequence {sequence}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
