//! FTN, FEC to NHLFE: which pseudowire, and by it which NHLFE, the frames of a circuit go by, or which
//! tunnel.
//!
//! A forwarding equivalence class (FEC) is what frames have in common that are treated alike: here
//! the circuit by which they come, all of whose frames go by one pseudowire or tunnel. What further
//! tells them apart will be a part of [`Fec`]. Errors: a FEC that goes by another one. Spec: RFC 3031 clauses
//! 3.1, 3.11 and 3.12.

use core::fmt;

use block::IdMap;
use contract::LinkId;

use crate::pseudowire::PseudowireId;
use crate::refused::Refused;
use crate::tunnel::TunnelId;

/// Frames that are treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fec {
    /// The circuit by which they come, and by which those of the other end leave.
    pub circuit: LinkId,
}

impl fmt::Display for Fec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what comes by {}", self.circuit)
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
}

impl Ftn {
    #[inline]
    pub(crate) fn find(&self, fec: Fec) -> Option<Wire> {
        self.by_circuit.get(fec.circuit.0).copied()
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
        self.by_circuit.insert(fec.circuit.0, wire);
    }

    pub(crate) fn remove(&mut self, fec: Fec) {
        self.by_circuit.remove(fec.circuit.0);
    }
}
