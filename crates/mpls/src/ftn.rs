//! FTN, FEC to NHLFE: which pseudowire, and by it which NHLFE, the frames of a circuit go by, or which
//! tunnel.
//!
//! A forwarding equivalence class (FEC) is what frames have in common that are treated alike: the
//! circuit by which they come and, where that is split, their class there, which [`wire::classify`]
//! finds and nobody here understands. Errors: a FEC that goes by another one. Spec: RFC 3031 clauses
//! 3.1, 3.11 and 3.12.

use core::fmt;
use std::collections::BTreeMap;

use block::IdMap;
use contract::LinkId;
use wire::classify::ClassKey;

use crate::pseudowire::PseudowireId;
use crate::refused::Refused;
use crate::tunnel::TunnelId;

/// Frames that are treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fec {
    /// The circuit by which they come, and by which those of the other end leave.
    pub circuit: LinkId,
    /// Those of its frames that are of this class; `None` are all, of a circuit that is not split.
    pub class: Option<ClassKey>,
}

impl Fec {
    /// All frames of a circuit.
    pub const fn all_of(circuit: LinkId) -> Self {
        Self { circuit, class: None }
    }
}

impl fmt::Display for Fec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what comes by {}", self.circuit)?;
        self.class.map_or(Ok(()), |class| write!(f, " in class {class}"))
    }
}

/// By what frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Pseudowire(PseudowireId),
    Tunnel(TunnelId),
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pseudowire(id) => id.fmt(f),
            Self::Tunnel(id) => id.fmt(f),
        }
    }
}

/// What frames go by, by FEC.
#[derive(Debug, Default)]
pub(crate) struct Ftn {
    by_circuit: IdMap<Wire>,
    by_class: BTreeMap<(LinkId, ClassKey), Wire>,
}

impl Ftn {
    #[inline]
    pub(crate) fn find(&self, fec: Fec) -> Option<Wire> {
        match fec.class {
            None => self.by_circuit.get(fec.circuit.0).copied(),
            Some(class) => self.by_class.get(&(fec.circuit, class)).copied(),
        }
    }

    /// What the classes of a circuit go by, in the order of their keys.
    pub(crate) fn classes_of(&self, circuit: LinkId) -> impl Iterator<Item = Wire> {
        let its = self.by_class.range((circuit, ClassKey::MIN)..=(circuit, ClassKey::MAX));
        its.map(|(_, wire)| *wire)
    }

    /// Whether one may have a FEC.
    pub(crate) fn check(&self, fec: Fec, wire: Wire) -> Result<(), Refused> {
        match self.find(fec) {
            Some(by) if by != wire => Err(Refused::FecTaken { fec, by }),
            _ => Ok(()),
        }
    }

    /// Gives a FEC to one that may have it.
    pub(crate) fn insert(&mut self, fec: Fec, wire: Wire) {
        match fec.class {
            None => drop(self.by_circuit.insert(fec.circuit.0, wire)),
            Some(class) => drop(self.by_class.insert((fec.circuit, class), wire)),
        }
    }

    pub(crate) fn remove(&mut self, fec: Fec) {
        match fec.class {
            None => drop(self.by_circuit.remove(fec.circuit.0)),
            Some(class) => drop(self.by_class.remove(&(fec.circuit, class))),
        }
    }
}
