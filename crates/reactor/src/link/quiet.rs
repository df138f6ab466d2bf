//! What an interface and the host do beside carrying frames, switched off where frames are
//! forwarded, and on again when nobody forwards there any more.
//!
//! ```text
//!   GRO    the stack makes one long frame of several      nobody could send it on: it is over the MTU
//!   LRO    the interface itself does
//!   IPv6   the host answers and asks on the interface     on a circuit, a station that is none of the customer's
//! ```
//!
//! In: an interface, and what its link is for. Out: what was on and is off now, for people to know.
//! Only what is on is touched, so that where somebody has switched it off before no right is
//! needed; and only that is switched on again. Another link of the same interface that needs it off
//! takes that over, and one that was renamed is put right under its new name. What is killed puts
//! nothing back. Errors: what may not be switched off, with what to type; what an interface cannot do
//! is none, and its frames are counted as they come (`over_mtu`).

use std::io;
use std::{fmt, fs};

use contract::Takes;

use super::LinkOptions;
use super::interface::{self, Interface, Merging};

/// Something that was on at an interface and is off as long as a link needs it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchedOff {
    /// Generic receive offload.
    Gro,
    /// Large receive offload.
    Lro,
    /// The host's IPv6 on this interface. Addresses that somebody gave it there went with it, and
    /// do not come back with it.
    Ipv6,
}

impl fmt::Display for SwitchedOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SwitchedOff::Gro => "GRO",
            SwitchedOff::Lro => "LRO",
            SwitchedOff::Ipv6 => "IPv6",
        })
    }
}

impl SwitchedOff {
    const ALL: [SwitchedOff; 3] = [SwitchedOff::Gro, SwitchedOff::Lro, SwitchedOff::Ipv6];

    /// Whether a link needs it off.
    fn is_for(self, options: &LinkOptions) -> bool {
        let is_circuit = options.intake.takes == Takes::Whole;
        options.forwards && (is_circuit || self != SwitchedOff::Ipv6)
    }

    fn is_on(self, name: &str) -> io::Result<bool> {
        match self {
            SwitchedOff::Gro => interface::merges(name, Merging::Stack),
            SwitchedOff::Lro => interface::merges(name, Merging::Interface),
            SwitchedOff::Ipv6 => speaks_ipv6(name),
        }
    }

    fn set(self, name: &str, on: bool) -> io::Result<()> {
        match self {
            SwitchedOff::Gro => interface::set_merging(name, Merging::Stack, on),
            SwitchedOff::Lro => interface::set_merging(name, Merging::Interface, on),
            SwitchedOff::Ipv6 => fs::write(no_ipv6(name), if on { "0" } else { "1" }),
        }
    }

    /// Why it could not be switched off, if that is to be told.
    fn refusal(self, name: &str, error: &io::Error) -> Option<String> {
        match self {
            SwitchedOff::Gro | SwitchedOff::Lro => {
                // All else is that the interface cannot.
                if error.kind() != io::ErrorKind::PermissionDenied {
                    return None;
                }
                let word = if self == SwitchedOff::Gro { "gro" } else { "lro" };
                Some(format!(
                    "{self} makes long frames of several, which cannot be forwarded, and this process may not switch it off: `ethtool -K {name} {word} off`, or grant CAP_NET_ADMIN"
                ))
            }
            SwitchedOff::Ipv6 => Some(format!(
                "the host speaks IPv6 on it, which whoever is connected there would hear, and this process may not switch that off ({error}): `sysctl -w net/ipv6/conf/{name}/disable_ipv6=1`"
            )),
        }
    }
}

/// What a link has switched off on its interface.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// The interface's number: another one of the same name has its own state.
    index: i32,
    off: Vec<SwitchedOff>,
}

impl Quiet {
    /// Switches off what a link needs off. After an error some of it may be, until
    /// [`end`](Self::end).
    pub(super) fn begin(&mut self, options: &LinkOptions, interface: &Interface) -> io::Result<()> {
        if self.index != interface.index {
            self.end();
            self.index = interface.index;
        }
        let name = &options.interface;
        let mut refused = Vec::new();
        for what in SwitchedOff::ALL.into_iter().filter(|what| what.is_for(options)) {
            if !what.is_on(name)? {
                continue;
            }
            match what.set(name, false) {
                // Some accept it and leave it on.
                Ok(()) if what.is_on(name)? => {}
                Ok(()) => self.note(what),
                Err(error) => refused.extend(what.refusal(name, &error)),
            }
        }
        match refused.is_empty() {
            true => Ok(()),
            // A file system that is read-only is a right that is missing as well.
            false => Err(io::Error::new(io::ErrorKind::PermissionDenied, refused.join("; "))),
        }
    }

    fn note(&mut self, what: SwitchedOff) {
        if !self.off.contains(&what) {
            self.off.push(what);
        }
    }

    /// What is off that was on.
    pub(super) fn off(&self) -> &[SwitchedOff] {
        &self.off
    }

    /// Leaves to another link what that one needs off on the same interface.
    pub(super) fn leave_to(&mut self, heir: &mut Quiet, options: &LinkOptions) {
        if heir.index == self.index {
            let needed = self.off.extract_if(.., |what| what.is_for(options));
            needed.for_each(|what| heir.note(what));
        }
    }

    /// Switches on again what was switched off, if the interface is still there. What cannot be
    /// stays off: nobody is left who could do something about it.
    pub(super) fn end(&mut self) {
        let off = std::mem::take(&mut self.off);
        if off.is_empty() {
            return;
        }
        // It may be called otherwise by now, and its name be another one's.
        let Some(name) = interface::name_of(self.index) else { return };
        for what in off {
            let _ = what.set(&name, true);
        }
    }
}

/// Where the system keeps whether an interface is without IPv6.
fn no_ipv6(name: &str) -> String {
    format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
}

/// Whether the host speaks IPv6 on an interface.
fn speaks_ipv6(name: &str) -> io::Result<bool> {
    // These are no interfaces there but stand for all; the kernel gives one of such a name no IPv6.
    if matches!(name, "all" | "default") {
        return Ok(false);
    }
    match fs::read_to_string(no_ipv6(name)) {
        Ok(text) => Ok(text.trim() == "0"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkAccess;
    use block::ShardId;
    use contract::{EtherType, Intake, Poll, Spread};

    fn options(takes: Takes, forwards: bool) -> LinkOptions {
        LinkOptions {
            interface: "no-such-if0".to_owned(),
            vlan: None,
            access: LinkAccess::Packet,
            poll: Poll::Auto,
            intake: Intake { takes, spread: Spread::One(ShardId(0), Vec::new()) },
            forwards,
        }
    }

    #[test]
    fn ipv6_is_off_on_circuits_alone_and_nothing_where_nothing_is_forwarded() {
        let needed = |takes, forwards| {
            let options = options(takes, forwards);
            SwitchedOff::ALL.into_iter().filter(|what| what.is_for(&options)).collect::<Vec<_>>()
        };
        assert_eq!(needed(Takes::Whole, true), SwitchedOff::ALL);
        assert_eq!(
            needed(Takes::Type(EtherType::MPLS), true),
            [SwitchedOff::Gro, SwitchedOff::Lro]
        );
        assert_eq!(
            (needed(Takes::Whole, false), needed(Takes::Type(EtherType::AOE), false)),
            (vec![], vec![])
        );
    }

    #[test]
    fn what_another_link_of_the_interface_needs_off_stays_off() {
        let quiet = |index, off: &[SwitchedOff]| Quiet { index, off: off.to_vec() };
        let core = options(Takes::Type(EtherType::MPLS), true);
        let mut gone = quiet(5, &[SwitchedOff::Ipv6, SwitchedOff::Gro]);
        let mut elsewhere = quiet(6, &[]);
        gone.leave_to(&mut elsewhere, &core);
        assert_eq!((elsewhere.off(), gone.off().len()), (&[][..], 2));
        let mut heir = quiet(5, &[SwitchedOff::Gro]);
        gone.leave_to(&mut heir, &core);
        assert_eq!((heir.off(), gone.off()), (&[SwitchedOff::Gro][..], &[SwitchedOff::Ipv6][..]));
    }

    #[test]
    fn a_refusal_says_what_to_type() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let text = |what: SwitchedOff, error: &io::Error| what.refusal("eth1.5", error);
        for (what, typed) in [
            (SwitchedOff::Gro, "`ethtool -K eth1.5 gro off`"),
            (SwitchedOff::Lro, "`ethtool -K eth1.5 lro off`"),
            (SwitchedOff::Ipv6, "`sysctl -w net/ipv6/conf/eth1.5/disable_ipv6=1`"),
        ] {
            let text = text(what, &denied).unwrap();
            assert!(text.contains(typed), "{text}");
        }
        let cannot = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        assert_eq!(text(SwitchedOff::Lro, &cannot), None);
        let read_only = io::Error::from_raw_os_error(libc::EROFS);
        assert!(text(SwitchedOff::Ipv6, &read_only).is_some());
    }

    #[test]
    fn names_that_stand_for_all_interfaces_are_never_written_to() {
        assert!(!speaks_ipv6("all").unwrap() && !speaks_ipv6("default").unwrap());
        assert!(!speaks_ipv6("no-such-if0").unwrap());
    }
}
