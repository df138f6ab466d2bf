//! NVMe/TCP: volumes as namespaces of subsystems, and namespaces of other targets as disks.

pub(crate) mod config;
mod connect;
pub(crate) mod discover;
pub(crate) mod dissect;
pub(crate) mod import;
pub(crate) mod metrics;
pub(crate) mod nqn;
mod serve;
pub(crate) mod status;
pub(crate) mod uri;

use shard::Protocol;
use toml::Spanned;

use super::LowExports;
use crate::config::file::{Low, LowArgs, LowWords};
use crate::config::listener::LowListener;
use crate::config::mistake::Span;
use crate::config::quick::{Line, QuickWay};
use config::LowNamespace;

/// What hosts are named by, and by which protocol.
pub(super) const HOST_WORD: (&str, &str) = ("an NQN", "NVMe/TCP");
/// The domain that subsystems of the quick way are named in.
const NQN_PREFIX: &str = "nqn.2026-11.net.plateway:";

/// Whether a word is meant as an NQN.
pub(super) fn is_nqn(word: &str) -> bool {
    word.starts_with("nqn.")
}

#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Flags {
    /// Where to answer NVMe/TCP; may be given again for another address
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "config")]
    pub(crate) nvme: Vec<String>,
}

impl Flags {
    pub(super) fn is_empty(&self) -> bool {
        self.nvme.is_empty()
    }

    /// Listens at every address.
    pub(super) fn way(&self, low: &mut LowArgs, line: &mut Line) -> Option<Box<dyn QuickWay>> {
        for address in &self.nvme {
            let address = line.flag("--nvme", address);
            low.listeners.push(LowListener {
                span: address.span(),
                address: Some((Protocol::NvmeTcp, address)),
                ..LowListener::default()
            });
        }
        Some(Box::new(Namespaces))
    }
}

/// Each disk is namespace 1 of a subsystem of its own.
struct Namespaces;

impl QuickWay for Namespaces {
    fn names_host(&self, word: &str) -> bool {
        word.starts_with("nqn.")
    }

    fn exports(&self, _: usize, volume: &str, at: &Span, hosts: Low<LowWords>) -> Vec<LowExports> {
        let subsystem = Spanned::new(at.clone(), format!("{NQN_PREFIX}{volume}"));
        let nvme = Some(LowNamespace {
            span: at.clone(),
            subsystem: Some(subsystem),
            nsid: Some(Spanned::new(at.clone(), 1)),
            hosts,
        });
        vec![LowExports { nvme, ..LowExports::default() }]
    }
}
