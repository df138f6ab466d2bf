//! Changes of the tables that are refused: what was asked for, and what stands against it.

use core::fmt;
use core::time::Duration;

use wire::mpls::Label;

use crate::ftn::{Fec, Wire};
use crate::ilm::Owner;
use crate::limits::{LABELS_MAX, ORIGINS_MAX};
use crate::tunnel::{SessionKey, TunnelId};

/// Why a table stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A special label, which nobody may assign, or send where it is only signalled.
    Special(Label),
    /// Somebody else has the label.
    Taken { label: Label, by: Owner },
    /// Somebody else had the label, and packets for them may still come for so long.
    Quarantined { label: Label, left: Duration },
    /// Another pseudowire or tunnel carries these frames.
    FecTaken { fec: Fec, by: Wire },
    /// Packets with this key or session ID are those of another tunnel between the same hosts.
    SessionTaken { key: SessionKey, by: TunnelId },
    /// A tunnel of L2TPv3 whose frames are to be numbered, and which has no room for numbers.
    NoNumbers,
    /// More labels on a packet than there is room for.
    TooManyLabels(usize),
    /// A pseudowire or neighbour that cannot be watched so.
    Watch(bfd::Refused),
    /// A pseudowire whose packets may not come at all, or in more ways than are looked at.
    Origins(usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Special(label) => {
                write!(f, "expected a label of 16 or more, seen {} ({label})", label.get())
            }
            Self::Taken { label, by } => write!(f, "label {label} is that of {by}"),
            Self::Quarantined { label, left } => {
                let seconds = left.as_secs_f64().ceil();
                write!(f, "label {label} was another's, and is nobody's for {seconds} s more")
            }
            Self::FecTaken { fec, by } => write!(f, "{fec} goes by {by}"),
            Self::SessionTaken { key, by } => write!(f, "{key} is that of {by}"),
            Self::NoNumbers => f.write_str(
                "expected the L2-specific sublayer where frames are numbered, seen none",
            ),
            Self::TooManyLabels(count) => {
                write!(f, "expected at most {LABELS_MAX} labels, seen {count}")
            }
            Self::Watch(why) => why.fmt(f),
            Self::Origins(count) => {
                write!(f, "expected 1 to {ORIGINS_MAX} ways for packets to come, seen {count}")
            }
        }
    }
}

impl core::error::Error for Refused {}
