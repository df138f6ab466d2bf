//! The reservation of a volume. One state for all protocols, so that an initiator that comes by one
//! wire is refused what was reserved by another.
//!
//! The model is that of SPC-4 and NVMe: *registrants*, and at most one *hold* of one of six kinds.
//! The reserve list of AoE is the kind in which all registrants hold exclusive access; being on the
//! list is being registered. Which commands count as reading or writing is the protocol's to say.
//!
//! A reservation is a [replica](crate::replica) on all shards and stored as a line of text
//! ([`Display`](core::fmt::Display), [`FromStr`](core::str::FromStr)). It is no lease: it stands
//! until it is released, across restarts. Spec: AoEr11, "Reserve / Release command"; SPC-4, 5.13.

use core::fmt;
use core::str::FromStr;

use crate::replica::Value;

/// An initiator as its protocol names it: the only place here that knows protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registrant {
    /// A station, by its MAC address.
    Mac([u8; 6]),
    /// An NVMe host, by its host identifier.
    NvmeHost([u8; 16]),
    /// A SCSI initiator port as it is known to one target, by a digest of their names.
    ScsiPort([u8; 16]),
}

/// What a hold lets whom do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The holder writes, all read.
    WriteExclusive,
    /// The holder reads and writes.
    ExclusiveAccess,
    /// Registrants write, all read; one of them holds.
    WriteExclusiveRegistrants,
    /// Registrants read and write; one of them holds.
    ExclusiveAccessRegistrants,
    /// Registrants write, all read; all of them hold.
    WriteExclusiveAll,
    /// Registrants read and write; all of them hold. AoE's.
    ExclusiveAccessAll,
}

impl Kind {
    const ALL: [(Kind, &'static str); 6] = [
        (Kind::WriteExclusive, "write-exclusive"),
        (Kind::ExclusiveAccess, "exclusive-access"),
        (Kind::WriteExclusiveRegistrants, "write-exclusive-registrants"),
        (Kind::ExclusiveAccessRegistrants, "exclusive-access-registrants"),
        (Kind::WriteExclusiveAll, "write-exclusive-all"),
        (Kind::ExclusiveAccessAll, "exclusive-access-all"),
    ];

    /// What it is called in text.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It changes data.
    Write,
}

/// The reservation of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Counts up with every change (PRGENERATION, GEN).
    generation: u64,
    /// Who is registered, with their keys; in the order in which they came.
    registrants: Vec<(Registrant, u64)>,
    /// The hold; its holder is a registrant, and is named where one alone holds.
    held: Option<(Kind, Option<Registrant>)>,
}

/// A change of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Let these, and nobody else, use the volume; none of them releases it. Refused if others hold
    /// it.
    SetList {
        /// Who asks.
        by: Registrant,
        /// Whom to list.
        list: Vec<Registrant>,
    },
    /// The same, whoever holds it.
    ForceList {
        /// Whom to list.
        list: Vec<Registrant>,
    },
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is as asked.
    Done,
    /// Others hold it.
    Conflict,
}

impl Reservation {
    /// Whether nothing is held, so that everybody may do everything: the usual case.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.held.is_none()
    }

    /// Counts up with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What it lets whom do, if it is held.
    pub fn kind(&self) -> Option<Kind> {
        self.held.map(|(kind, _)| kind)
    }

    /// Who is registered.
    pub fn registrants(&self) -> impl Iterator<Item = Registrant> {
        self.registrants.iter().map(|(id, _)| *id)
    }

    /// Who holds it: one registrant, or all.
    pub fn holders(&self) -> impl Iterator<Item = Registrant> {
        let (is_held, one) = (self.held.is_some(), self.held.and_then(|(_, holder)| holder));
        let all = self.registrants().filter(move |_| is_held && one.is_none());
        one.into_iter().chain(all)
    }

    /// Whether it is registered.
    pub fn is_registered(&self, who: Registrant) -> bool {
        self.registrants().any(|id| id == who)
    }

    /// The rule for a stranger, and for everybody else: whether the initiator may do this now.
    pub fn allows(&self, who: Option<Registrant>, access: Access) -> bool {
        let Some((kind, holder)) = self.held else { return true };
        let registered = || who.is_some_and(|who| self.is_registered(who));
        let holds = || who.is_some() && who == holder;
        let reads = access == Access::Read;
        match kind {
            Kind::WriteExclusive => reads || holds(),
            Kind::ExclusiveAccess => holds(),
            Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll => reads || registered(),
            Kind::ExclusiveAccessRegistrants | Kind::ExclusiveAccessAll => registered(),
        }
    }

    /// What it is after a list was set, or `None` if it is that already.
    pub(crate) fn listed(&self, list: &[Registrant]) -> Option<Reservation> {
        let mut registrants: Vec<(Registrant, u64)> = Vec::with_capacity(list.len());
        for id in list {
            if registrants.iter().all(|(other, _)| other != id) {
                registrants.push((*id, 0));
            }
        }
        let held = (!registrants.is_empty()).then_some((Kind::ExclusiveAccessAll, None));
        if (&registrants, &held) == (&self.registrants, &self.held) {
            return None;
        }
        Some(Reservation { generation: self.generation + 1, registrants, held })
    }
}

impl Value for Reservation {
    type Change = Change;
    type Answer = Verdict;

    fn apply(&self, change: &Change) -> (Option<Reservation>, Verdict) {
        match change {
            Change::ForceList { list } => (self.listed(list), Verdict::Done),
            Change::SetList { by, list } => {
                let next = self.listed(list);
                // Who asks again after its answer was lost is answered as before.
                if next.is_none() || self.is_free() || self.is_registered(*by) {
                    (next, Verdict::Done)
                } else {
                    (None, Verdict::Conflict)
                }
            }
        }
    }
}

impl fmt::Display for Registrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, bytes) = match self {
            Registrant::Mac(mac) => (MAC, &mac[..]),
            Registrant::NvmeHost(id) => (NVME_HOST, &id[..]),
            Registrant::ScsiPort(port) => (SCSI_PORT, &port[..]),
        };
        write!(f, "{scheme}:")?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const MAC: &str = "mac";
const NVME_HOST: &str = "nvme";
const SCSI_PORT: &str = "scsi";

/// Why a text is not a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// What was expected.
    pub expected: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, seen {:?}", self.expected, self.seen)
    }
}

impl std::error::Error for TextError {}

impl FromStr for Registrant {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Registrant, TextError> {
        let wrong =
            || TextError { expected: "an initiator like mac:020000000001", seen: text.to_owned() };
        let (scheme, digits) = text.split_once(':').ok_or_else(wrong)?;
        let known = match scheme {
            MAC => bytes(digits).map(Registrant::Mac),
            NVME_HOST => bytes(digits).map(Registrant::NvmeHost),
            SCSI_PORT => bytes(digits).map(Registrant::ScsiPort),
            _ => None,
        };
        known.ok_or_else(wrong)
    }
}

/// So many bytes, in hexadecimal.
fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    if digits.len() != 2 * N || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// `generation 3 held exclusive-access-all by all: mac:020000000001=0 mac:020000000002=0`
impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.generation)?;
        match &self.held {
            None => f.write_str(" free:")?,
            Some((kind, None)) => write!(f, " held {} by all:", kind.name())?,
            Some((kind, Some(holder))) => write!(f, " held {} by {holder}:", kind.name())?,
        }
        self.registrants.iter().try_for_each(|(id, key)| write!(f, " {id}={key:x}"))
    }
}

impl FromStr for Reservation {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Reservation, TextError> {
        let wrong =
            |expected: &'static str| TextError { expected, seen: text.chars().take(80).collect() };
        let (state, list) = match text.split_once(": ") {
            Some((state, list)) => (state, list),
            None => (text.strip_suffix(':').ok_or_else(|| wrong("a list behind a colon"))?, ""),
        };
        let mut words = state.split_ascii_whitespace();
        let generation = match (words.next(), words.next().map(str::parse)) {
            (Some("generation"), Some(Ok(generation))) => generation,
            _ => return Err(wrong("generation and a number")),
        };
        let held = match words.next() {
            Some("free") => None,
            Some("held") => {
                let name = words.next().unwrap_or_default();
                let kind = Kind::ALL.iter().find(|(_, known)| *known == name);
                let kind = kind.ok_or_else(|| wrong("a kind of reservation"))?.0;
                if words.next() != Some("by") {
                    return Err(wrong("by and the holder"));
                }
                match words.next() {
                    Some("all") => Some((kind, None)),
                    holder => Some((kind, Some(holder.unwrap_or_default().parse()?))),
                }
            }
            _ => return Err(wrong("free or held")),
        };
        let registrant = |word: &str| {
            let (id, key) = word.split_once('=').ok_or_else(|| wrong("an initiator=key"))?;
            let key = u64::from_str_radix(key, 16).map_err(|_| wrong("a hexadecimal key"))?;
            Ok((id.parse()?, key))
        };
        let registrants =
            list.split_ascii_whitespace().map(registrant).collect::<Result<_, TextError>>()?;
        Ok(Reservation { generation, registrants, held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Registrant = Registrant::NvmeHost([7; 16]);

    fn mac(last: u8) -> Registrant {
        Registrant::Mac([2, 0, 0, 0, 0, last])
    }

    fn set(by: u8, list: &[u8]) -> Change {
        Change::SetList { by: mac(by), list: list.iter().copied().map(mac).collect() }
    }

    fn force(list: &[u8]) -> Change {
        Change::ForceList { list: list.iter().copied().map(mac).collect() }
    }

    fn after(state: &Reservation, change: Change, verdict: Verdict) -> Reservation {
        let (next, seen) = state.apply(&change);
        assert_eq!(seen, verdict, "{change:?}");
        next.unwrap_or_else(|| state.clone())
    }

    fn may(state: &Reservation, who: u8) -> (bool, bool) {
        let allows = |access| state.allows(Some(mac(who)), access);
        (allows(Access::Read), allows(Access::Write))
    }

    #[test]
    fn the_list_of_aoe_set_force_read_release() {
        let free = Reservation::default();
        assert_eq!(may(&free, 1), (true, true));
        let one = after(&free, set(1, &[1]), Verdict::Done);
        assert_eq!((may(&one, 1), may(&one, 2)), ((true, true), (false, false)));
        let same = after(&one, set(2, &[2]), Verdict::Conflict);
        assert_eq!(same, one);
        let both = after(&one, set(1, &[1, 2, 1]), Verdict::Done);
        assert_eq!(both.registrants().collect::<Vec<_>>(), [mac(1), mac(2)]);
        let forced = after(&both, force(&[3]), Verdict::Done);
        assert_eq!((may(&forced, 1), may(&forced, 3)), ((false, false), (true, true)));
        let released = after(&forced, set(3, &[]), Verdict::Done);
        assert!(released.is_free() && released.registrants().count() == 0);
        assert_eq!(released.generation(), 4);
    }

    #[test]
    fn who_asks_again_after_a_lost_answer_is_answered_as_before() {
        // The list need not name the asker.
        let given_away = after(&Reservation::default(), set(1, &[2]), Verdict::Done);
        assert_eq!(after(&given_away, set(1, &[2]), Verdict::Done), given_away);
        after(&given_away, set(1, &[1]), Verdict::Conflict);
        let free = after(&given_away, set(2, &[]), Verdict::Done);
        assert_eq!(after(&free, set(2, &[]), Verdict::Done), free);
        assert_eq!(after(&free, force(&[]), Verdict::Done).generation(), free.generation());
    }

    #[test]
    fn each_kind_lets_whom_it_says() {
        let cases = [
            (Kind::WriteExclusive, true, [(true, true), (true, false), (true, false)]),
            (Kind::ExclusiveAccess, true, [(true, true), (false, false), (false, false)]),
            (Kind::WriteExclusiveRegistrants, true, [(true, true), (true, true), (true, false)]),
            (Kind::ExclusiveAccessRegistrants, true, [(true, true), (true, true), (false, false)]),
            (Kind::WriteExclusiveAll, false, [(true, true), (true, true), (true, false)]),
            (Kind::ExclusiveAccessAll, false, [(true, true), (true, true), (false, false)]),
        ];
        for (kind, one_holds, expected) in cases {
            let state = Reservation {
                generation: 9,
                registrants: vec![(HOST, 0xfeed), (mac(1), 1)],
                held: Some((kind, one_holds.then_some(HOST))),
            };
            let allows = |access| state.allows(Some(HOST), access);
            let holder = (allows(Access::Read), allows(Access::Write));
            assert_eq!([holder, may(&state, 1), may(&state, 2)], expected, "{kind:?}");
            assert_eq!(state.allows(None, Access::Read), expected[2].0, "nobody is a stranger");
            assert_eq!((state.kind(), Reservation::default().kind()), (Some(kind), None));
            let holders: Vec<Registrant> = state.holders().collect();
            assert_eq!(holders, if one_holds { vec![HOST] } else { vec![HOST, mac(1)] });
            assert_eq!(state.to_string().parse(), Ok(state));
        }
    }

    #[test]
    fn a_reservation_of_another_protocol_is_taken_by_force_alone() {
        let held = Reservation {
            generation: 1,
            registrants: vec![(HOST, 5)],
            held: Some((Kind::WriteExclusive, Some(HOST))),
        };
        assert_eq!(may(&held, 1), (true, false));
        after(&held, set(1, &[1]), Verdict::Conflict);
        let forced = after(&held, force(&[1]), Verdict::Done);
        assert!(!forced.allows(Some(HOST), Access::Read));
    }

    #[test]
    fn the_text_is_read_back_and_nonsense_is_refused() {
        let state = after(&Reservation::default(), set(1, &[1, 2]), Verdict::Done);
        let text =
            "generation 1 held exclusive-access-all by all: mac:020000000001=0 mac:020000000002=0";
        assert_eq!(state.to_string(), text);
        assert_eq!(text.parse(), Ok(state));
        assert_eq!("generation 0 free:".parse(), Ok(Reservation::default()));
        for bad in [
            "",
            "generation 1",
            "generation x free:",
            "generation 1 held by all:",
            "generation 1 held exclusive-access-all by mac:1:",
            "generation 1 free: mac:020000000001",
            "generation 1 free: mac:0200000000é=0",
            "generation 1 free: bus:020000000001=0",
            "generation 1 free: mac:02=0",
        ] {
            assert!(bad.parse::<Reservation>().is_err(), "{bad}");
        }
    }
}
