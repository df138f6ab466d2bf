//! Messages of the kernel's queueing disciplines (`tc qdisc`), and which of them has what is urgent wait.
//!
//! What is urgent has a priority of its own (`SO_PRIORITY`), which some disciplines let go first and
//! others do not look at. The one at the root decides; one that has a queue for each of the interface's
//! (`mq`, `multiq`) leaves it to those below.
//!
//! ```text
//!   tcmsg      family (1) | pad (3) | index of the interface (4) | handle (4) | parent (4) | info (4)
//! ```
//! In: bodies of messages. Out: disciplines, and the one that delays. Errors: what is cut says nothing.
//! Spec: tc(8), rtnetlink(7).

use crate::{attributes, dump as dump_of, kind, word};

/// Those that let a frame of a high priority go before others, or let none wait at all.
const GO_FIRST: [&str; 6] = ["noqueue", "pfifo_fast", "prio", "ets", "mqprio", "taprio"];
/// Those that leave it to the disciplines of the interface's queues.
const EACH_QUEUE: [&str; 2] = ["mq", "multiq"];

/// Bytes of `tcmsg`.
const BODY: usize = 20;
/// `TC_H_ROOT`: below no other.
pub const ROOT: u32 = u32::MAX;
/// `TCA_KIND`.
const KIND: u16 = 1;

/// A discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Its number, whose upper half is its own.
    pub handle: u32,
    /// The class below which it stands, or [`ROOT`].
    pub parent: u32,
    /// Its name, for instance `fq_codel`.
    pub kind: String,
}

/// That all disciplines of an interface are told; the kernel tells those of others, too.
pub fn dump(interface: i32) -> Vec<u8> {
    let mut body = vec![0; BODY];
    body[4..8].copy_from_slice(&interface.to_ne_bytes());
    dump_of(kind::GETQDISC, &body)
}

/// What the body of a message ([`kind::NEWQDISC`]) says, if it is of this interface.
pub fn of(body: &[u8], wanted: i32) -> Option<Discipline> {
    if word(body, 4)?.cast_signed() != wanted {
        return None;
    }
    let (handle, parent) = (word(body, 8)?, word(body, 12)?);
    let kind = attributes(body.get(BODY..)?).flatten().find(|(kind, _)| *kind == KIND)?.1;
    let kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned();
    Some(Discipline { handle, parent, kind })
}

/// The name of the first of an interface's disciplines that has what is urgent wait behind the rest, if one
/// does.
pub fn delaying(all: &[Discipline]) -> Option<&str> {
    let root = all.iter().find(|one| one.parent == ROOT)?;
    if !EACH_QUEUE.contains(&root.kind.as_str()) {
        return delays(root);
    }
    // Their parents are the classes of the root, which have the upper half of its handle.
    let of_root = |one: &&Discipline| one.parent != ROOT && one.parent >> 16 == root.handle >> 16;
    all.iter().filter(of_root).find_map(delays)
}

fn delays(one: &Discipline) -> Option<&str> {
    (!GO_FIRST.contains(&one.kind.as_str())).then_some(&one.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push;

    fn told(index: i32, handle: u32, parent: u32, kind: &str) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend(handle.to_ne_bytes());
        body.extend(parent.to_ne_bytes());
        body.extend([0; 4]);
        push(&mut body, 2, &[9; 8]);
        push(&mut body, KIND, &[kind.as_bytes(), &[0]].concat());
        body
    }

    fn seen(all: &[Vec<u8>]) -> Option<String> {
        let all: Vec<Discipline> = all.iter().filter_map(|body| of(body, 7)).collect();
        delaying(&all).map(str::to_owned)
    }

    #[test]
    fn one_without_classes_delays_and_one_with_them_does_not() {
        for kind in ["tbf", "fq_codel", "fq", "pfifo", "htb", "cake", "netem"] {
            assert_eq!(seen(&[told(7, 0x8001_0000, ROOT, kind)]).as_deref(), Some(kind));
        }
        for kind in ["noqueue", "pfifo_fast", "prio", "ets", "mqprio"] {
            assert_eq!(seen(&[told(7, 0x8001_0000, ROOT, kind)]), None, "{kind}");
        }
        assert_eq!(seen(&[]), None);
    }

    #[test]
    fn with_a_discipline_for_each_queue_those_decide() {
        let root = told(7, 0x1_0000, ROOT, "mq");
        let good = told(7, 0, 0x1_0001, "pfifo_fast");
        let bad = told(7, 0, 0x1_0002, "fq_codel");
        assert_eq!(seen(&[root.clone(), good.clone()]), None);
        assert_eq!(seen(&[good.clone(), bad.clone(), root.clone()]).as_deref(), Some("fq_codel"));
        // Of another interface, and below another one.
        let elsewhere = [told(8, 0, ROOT, "tbf"), told(7, 0, 0x2_0001, "tbf")];
        assert_eq!(seen(&[vec![root, good], elsewhere.to_vec()].concat()), None);
        // Below one that lets it go first, nothing else counts.
        let prio = told(7, 0x3_0000, ROOT, "prio");
        assert_eq!(seen(&[prio, told(7, 0, 0x3_0001, "tbf")]), None);
    }

    #[test]
    fn what_is_cut_says_nothing() {
        let good = told(7, 1, ROOT, "tbf");
        for end in 0..good.len() {
            assert_eq!(of(&good[..end], 7), None, "{end}");
        }
        let mut other = good;
        for at in 0..other.len() {
            for byte in 0..=u8::MAX {
                let was = std::mem::replace(&mut other[at], byte);
                let _ = of(&other, 7);
                other[at] = was;
            }
        }
    }
}
