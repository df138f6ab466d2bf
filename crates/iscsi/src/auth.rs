//! CHAP: how a host proves to a target who it is, and, where it asks for that, a target to a host.
//!
//! ```text
//!   initiator (Asker)                              target (Responder)
//!   AuthMethod=CHAP,None         ---->
//!                                <----             AuthMethod=CHAP
//!   CHAP_A=8,7,6,5               ---->
//!                                <----             CHAP_A=7 CHAP_I=i CHAP_C=challenge
//!   CHAP_N=name CHAP_R=response  ---->             response = H(i | secret | challenge)
//!     [CHAP_I=j CHAP_C=challenge]
//!                                <----             [CHAP_N=name CHAP_R=response]
//! ```
//! In: the keys of the security stage, one at a time, and when a text is over. Out: texts, and
//! whether the stage may be left. Whoever builds a machine gives it a [`Challenge`] that nobody can
//! foresee: [`Challenges`] makes them of random bytes. Errors: the target's are a `LoginStatus`, the
//! initiator's a text. Secrets are compared in constant time and never printed. Not here: where
//! secrets are kept, Kerberos, SRP. Spec: RFC 1994; RFC 7143, 9.2 and 12.1; digests beyond MD5 and
//! SHA-1 as assigned by IANA, "PPP Authentication Algorithms".

mod asker;
mod responder;
#[cfg(test)]
mod tests;

use core::fmt;

use sha2::Digest as _;
use subtle::ConstantTimeEq as _;
use wire::iscsi::keys::Key;
use wire::iscsi::keys::values;

pub use asker::Asker;
pub use responder::{Required, Responder};

/// Whether a key belongs here.
pub fn is_key(key: &str) -> bool {
    let chap = [Key::AuthMethod, Key::ChapA, Key::ChapI, Key::ChapC, Key::ChapN, Key::ChapR];
    Key::from_name(key).is_some_and(|key| chap.contains(&key))
}

/// What two ends know and nobody else.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Fewer bytes could be found by trying (RFC 7143, 9.2.1).
    pub const LENGTH_MIN: usize = 12;
    /// More than any other implementation takes.
    pub const LENGTH_MAX: usize = 255;

    /// A secret of 12 to 255 bytes.
    pub fn new(secret: &[u8]) -> Result<Secret, String> {
        let (least, most) = (Secret::LENGTH_MIN, Secret::LENGTH_MAX);
        match secret.len() {
            length if length < least => {
                Err(format!("expected a secret of at least {least} bytes, seen {length}"))
            }
            length if length > most => {
                Err(format!("expected a secret of at most {most} bytes, seen {length}"))
            }
            _ => Ok(Secret(secret.into())),
        }
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A name and the secret that proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub name: String,
    pub secret: Secret,
}

/// What a host says who it is by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// What it proves to the target.
    pub own: Credentials,
    /// What the target has to prove to it, if that is wanted.
    pub target: Option<Credentials>,
}

impl Login {
    /// Refuses one secret for both ways, which anybody could have reflected: what was seen and what
    /// to do.
    pub fn check(&self) -> Result<(), String> {
        match &self.target {
            Some(target) if target.secret == self.own.secret => Err(SAME_SECRET.to_owned()),
            _ => Ok(()),
        }
    }
}

const SAME_SECRET: &str =
    "expected two secrets, seen the same for the host and the target; give each its own";

/// What the other end has to answer: never the same twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    pub identifier: u8,
    pub bytes: [u8; 32],
}

/// Makes challenges of bytes that nobody else knows: each is the SHA-256 of these and of a number
/// that is not used again.
#[derive(Clone, PartialEq, Eq)]
pub struct Challenges {
    seed: [u8; 32],
    made: u64,
}

impl Challenges {
    /// `seed`: random, from the system.
    pub fn new(seed: [u8; 32]) -> Challenges {
        Challenges { seed, made: 0 }
    }

    /// Others, for whoever is named so: what was made by one of the same seed tells nothing of them.
    #[must_use]
    pub fn of(&self, name: &[u8]) -> Challenges {
        let seed = sha2::Sha256::new().chain_update(name).chain_update(self.seed).finalize();
        Challenges::new(seed.into())
    }

    /// The next one.
    pub fn make(&mut self) -> Challenge {
        self.made += 1;
        let number = self.made.to_be_bytes();
        let bytes = sha2::Sha256::new().chain_update(self.seed).chain_update(number).finalize();
        Challenge { identifier: self.made as u8, bytes: bytes.into() }
    }
}

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Challenges(*** {})", self.made)
    }
}

/// How a response is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Md5 = 5,
    Sha1 = 6,
    Sha256 = 7,
    Sha3 = 8,
}

impl Algorithm {
    /// All of them, the best first.
    const ALL: [Algorithm; 4] =
        [Algorithm::Sha3, Algorithm::Sha256, Algorithm::Sha1, Algorithm::Md5];

    /// The algorithm that a value of CHAP_A names.
    fn of(value: &str) -> Option<Algorithm> {
        let number = values::number(value).ok()?;
        Algorithm::ALL.into_iter().find(|algorithm| *algorithm as u64 == number)
    }

    /// The response to a challenge.
    fn response(self, secret: &Secret, identifier: u8, challenge: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Md5 => hash::<md5::Md5>(secret, identifier, challenge),
            Algorithm::Sha1 => hash::<sha1::Sha1>(secret, identifier, challenge),
            Algorithm::Sha256 => hash::<sha2::Sha256>(secret, identifier, challenge),
            Algorithm::Sha3 => hash::<sha3::Sha3_256>(secret, identifier, challenge),
        }
    }

    /// Whether `seen` is the response to a challenge.
    fn proves(self, secret: &Secret, challenge: &Challenge, seen: &[u8]) -> bool {
        let expected = self.response(secret, challenge.identifier, &challenge.bytes);
        expected.ct_eq(seen).into()
    }
}

fn hash<H: sha2::Digest>(secret: &Secret, identifier: u8, challenge: &[u8]) -> Vec<u8> {
    let hash = H::new().chain_update([identifier]).chain_update(&secret.0);
    hash.chain_update(challenge).finalize().to_vec()
}

/// The keys of CHAP that came and were not used yet, and which came at all.
#[derive(Clone, Debug, Default)]
struct Received {
    seen: Vec<Key>,
    methods: Option<String>,
    algorithms: Option<String>,
    identifier: Option<u8>,
    challenge: Option<Vec<u8>>,
    name: Option<String>,
    response: Option<Vec<u8>>,
}

impl Received {
    /// Takes a key; `Err` of one that came before, or whose value is not of its kind.
    fn take(&mut self, key: Key, value: &str) -> Result<(), String> {
        if self.seen.contains(&key) {
            return Err(format!("{key} came twice"));
        }
        self.seen.push(key);
        let binary = || values::binary(value).map_err(|error| format!("{key}: {error}"));
        match key {
            Key::AuthMethod => self.methods = Some(value.to_owned()),
            Key::ChapA => self.algorithms = Some(value.to_owned()),
            Key::ChapN => self.name = Some(value.to_owned()),
            Key::ChapC => self.challenge = Some(binary()?),
            Key::ChapR => self.response = Some(binary()?),
            Key::ChapI => match values::number(value).map(u8::try_from) {
                Ok(Ok(identifier)) => self.identifier = Some(identifier),
                _ => return Err(format!("{key}: expected 0 to 255, seen {value:?}")),
            },
            _ => return Err(format!("{key} is no key of the security stage")),
        }
        Ok(())
    }

    /// Whether nothing is there that was not used.
    fn is_empty(&self) -> bool {
        let texts = [&self.methods, &self.algorithms, &self.name];
        let bytes = [&self.challenge, &self.response];
        texts.iter().all(|text| text.is_none())
            && bytes.iter().all(|bytes| bytes.is_none())
            && self.identifier.is_none()
    }
}
