//! What initiators may change of an export: its config string and its MAC mask. All shards hold a
//! [copy](reservation::replica) of it, and it is stored as a line of text
//! ([`Display`](core::fmt::Display), [`FromStr`](core::str::FromStr)), so that it survives a
//! restart.
//!
//! Spec: AoEr11, "Query Config Information Command", "MAC Mask List Command".

use core::fmt;
use core::str::FromStr;

use reservation::{TextError, Value};
use wire::aoe::{CONFIG_MAX, ConfigCommand, Directive, DirectiveCommand, ErrorCode, MaskError};
use wire::ethernet::MacAddress;

use crate::limits::MASK_MAX;

/// The config string and MAC mask of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    config: Vec<u8>,
    /// In the order in which they came; no address twice.
    mask: Vec<MacAddress>,
}

/// A change that an initiator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Store a config string, of at most [`CONFIG_MAX`] bytes: by set, if there is none or this
    /// one; by force, whatever there is.
    Config {
        /// SET or FORCE.
        command: ConfigCommand,
        /// The string.
        string: Vec<u8>,
    },
    /// Carry out directives in order, up to the first that cannot be.
    Mask(Vec<Directive>),
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is as asked.
    Done,
    /// Refused with the E flag.
    Refused(ErrorCode),
    /// A mask edit stopped, after so many directives, which stay carried out.
    Stopped(MaskError, u8),
}

impl Control {
    /// The config string.
    pub fn config(&self) -> &[u8] {
        &self.config
    }

    /// The mask: empty, or those whose frames are heard.
    pub fn mask(&self) -> &[MacAddress] {
        &self.mask
    }

    /// A config string and mask as an administrator sets them; `None` when one of them is too long.
    #[must_use]
    pub fn with(config: &[u8], mask: &[MacAddress]) -> Option<Control> {
        let mut control = Control { config: config.to_vec(), mask: Vec::new() };
        for mac in mask {
            if !control.mask.contains(mac) {
                control.mask.push(*mac);
            }
        }
        (config.len() <= CONFIG_MAX && control.mask.len() <= MASK_MAX).then_some(control)
    }

    fn edited(&self, directives: &[Directive]) -> (Control, Verdict) {
        let mut next = self.clone();
        for (done, directive) in directives.iter().enumerate() {
            let stop = |error| Verdict::Stopped(error, done as u8);
            match directive.command {
                DirectiveCommand::NONE => {}
                DirectiveCommand::ADD if next.mask.contains(&directive.mac) => {}
                DirectiveCommand::ADD if next.mask.len() >= MASK_MAX => {
                    return (next, stop(MaskError::FULL));
                }
                DirectiveCommand::ADD => next.mask.push(directive.mac),
                DirectiveCommand::DELETE => next.mask.retain(|mac| *mac != directive.mac),
                _ => return (next, stop(MaskError::BAD_COMMAND)),
            }
        }
        (next, Verdict::Done)
    }
}

impl Value for Control {
    type Change = Change;
    type Answer = Verdict;

    fn apply(&self, change: &Change) -> (Option<Control>, Verdict) {
        let (next, verdict) = match change {
            Change::Config { command, string } => {
                let free = self.config.is_empty() || self.config == *string;
                if *command == ConfigCommand::SET && !free {
                    return (None, Verdict::Refused(ErrorCode::CONFIG_PRESENT));
                }
                if string.len() > CONFIG_MAX {
                    return (None, Verdict::Refused(ErrorCode::BAD_ARGUMENT));
                }
                (Control { config: string.clone(), mask: self.mask.clone() }, Verdict::Done)
            }
            Change::Mask(directives) => self.edited(directives),
        };
        ((next != *self).then_some(next), verdict)
    }
}

/// `config 68656c6c6f mask 02:00:00:00:00:01 02:00:00:00:00:02`
impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("config ")?;
        if self.config.is_empty() {
            f.write_str("-")?;
        }
        self.config.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(" mask")?;
        self.mask.iter().try_for_each(|mac| write!(f, " {mac}"))
    }
}

impl FromStr for Control {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Control, TextError> {
        let wrong = |expected| TextError { expected, seen: text.chars().take(80).collect() };
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some("config") {
            return Err(wrong("config and its bytes"));
        }
        let digits = words.next().filter(|digits| digits.is_ascii() && digits.len() % 2 != 1);
        let config = match digits {
            Some(digits) => (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16))
                .collect::<Result<Vec<u8>, _>>()
                .map_err(|_| wrong("hexadecimal digits"))?,
            None if text.starts_with("config - mask") => Vec::new(),
            None => return Err(wrong("hexadecimal digits, or -")),
        };
        if words.next() != Some("mask") {
            return Err(wrong("mask and its addresses"));
        }
        let mask = words.map(str::parse).collect::<Result<Vec<MacAddress>, _>>();
        let mask = mask.map_err(|_| wrong("MAC addresses"))?;
        Control::with(&config, &mask).ok_or_else(|| wrong("at most 1024 bytes and 128 addresses"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(last: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 0, last])
    }

    fn config(command: ConfigCommand, string: &[u8]) -> Change {
        Change::Config { command, string: string.to_vec() }
    }

    fn add(last: u8) -> Directive {
        Directive { command: DirectiveCommand::ADD, mac: mac(last) }
    }

    fn delete(last: u8) -> Directive {
        Directive { command: DirectiveCommand::DELETE, mac: mac(last) }
    }

    #[test]
    fn set_stores_where_there_is_nothing_or_the_same_and_force_always() {
        let (next, verdict) = Control::default().apply(&config(ConfigCommand::SET, b"a"));
        let a = next.unwrap();
        assert_eq!((a.config(), verdict), (&b"a"[..], Verdict::Done));
        assert_eq!(a.apply(&config(ConfigCommand::SET, b"a")), (None, Verdict::Done));
        let refused = Verdict::Refused(ErrorCode::CONFIG_PRESENT);
        assert_eq!(a.apply(&config(ConfigCommand::SET, b"b")), (None, refused));
        let (next, _) = a.apply(&config(ConfigCommand::FORCE, b"b"));
        assert_eq!(next.unwrap().config(), b"b");
        let long = config(ConfigCommand::FORCE, &[7; CONFIG_MAX + 1]);
        assert_eq!(a.apply(&long), (None, Verdict::Refused(ErrorCode::BAD_ARGUMENT)));
        assert!(a.apply(&config(ConfigCommand::FORCE, &[7; CONFIG_MAX])).0.is_some());
    }

    #[test]
    fn directives_are_carried_out_in_order_up_to_the_first_that_cannot_be() {
        let edit = |control: &Control, list: &[Directive]| {
            let (next, verdict) = control.apply(&Change::Mask(list.to_vec()));
            (next.unwrap_or_else(|| control.clone()), verdict)
        };
        let (two, verdict) = edit(&Control::default(), &[add(1), add(2), add(1), delete(9)]);
        assert_eq!((two.mask(), verdict), (&[mac(1), mac(2)][..], Verdict::Done));
        let bad = Directive { command: DirectiveCommand(7), mac: mac(5) };
        let (three, verdict) = edit(&two, &[delete(1), add(3), bad, add(4)]);
        assert_eq!(three.mask(), [mac(2), mac(3)]);
        assert_eq!(verdict, Verdict::Stopped(MaskError::BAD_COMMAND, 2));
        let all: Vec<Directive> = (0..=MASK_MAX as u8).map(add).collect();
        let (full, verdict) = edit(&Control::default(), &all);
        assert_eq!(full.mask().len(), MASK_MAX);
        assert_eq!(verdict, Verdict::Stopped(MaskError::FULL, MASK_MAX as u8));
        // Who is there already needs no room.
        assert_eq!(edit(&full, &[add(0)]).1, Verdict::Done);
    }

    #[test]
    fn the_text_is_read_back_and_nonsense_is_refused() {
        let control = Control::with(b"hello", &[mac(1), mac(2)]).unwrap();
        let text = "config 68656c6c6f mask 02:00:00:00:00:01 02:00:00:00:00:02";
        assert_eq!(control.to_string(), text);
        assert_eq!(text.parse(), Ok(control));
        assert_eq!("config - mask".parse(), Ok(Control::default()));
        for bad in ["", "config", "config 6 mask", "config 66", "config zz mask", "config - mask 1"]
        {
            assert!(bad.parse::<Control>().is_err(), "{bad}");
        }
    }
}
