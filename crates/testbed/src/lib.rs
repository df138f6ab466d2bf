//! The testbed: what touches the machine on which something is measured.
//!
//! What lives here: [`namespaces`] that end with their process however that ends, a [`network`] of
//! them with cables between, what can be set of an [`interface`], its [`offloads`] and its
//! [`counters`], and what becomes of what it is [`receiving`]; a [`gateway`] of the kernel's; a [`process`] on some CPUs that does
//! not outlive us, a [`load`] with a time limit, and [`cpu`]: who used how much of a CPU; what is
//! mounted where ([`mounts`]), files in somebody's folder ([`scratch`]), a control [`group`] with
//! a limit of memory, and what of a device may be written behind ([`dirty`]). What
//! deliberately does not: what is measured and how it is configured, cases, figures, JSON. All of it
//! is done by way of programs (iproute2, util-linux, ethtool, nftables) and of `/proc` and `/sys`, so
//! that an administrator can do the same by hand; nothing outside our own namespaces is changed, but
//! for the scheduling of a thread of the kernel's ([`Interface::thread_on`]) and the limit of a device that is ours. Needs root, or the rights to make namespaces: [`allowed`] says
//! whether they are there. Errors are an [`Error`], in one line. Read `network` first, then
//! `process`.

pub mod counters;
pub mod cpu;
pub mod dirty;
mod error;
pub mod gateway;
pub mod group;
pub mod interface;
pub mod load;
pub mod mounts;
pub mod namespaces;
pub mod network;
pub mod offloads;
pub mod process;
pub mod receiving;
pub mod scratch;
mod tool;

pub use counters::Counters;
pub use cpu::{CpuLook, CpuUse, Steal};
pub use dirty::DirtyLimit;
pub use error::{Error, Result};
pub use group::Group;
pub use interface::Interface;
pub use mounts::{Mount, Mounted, Mounts};
pub use namespaces::{Folder, Namespace, Namespaces, allowed};
pub use network::{Cable, End, Network};
pub use offloads::Offloads;
pub use process::Server;
pub use receiving::{Abilities, Impairment, Loss};
pub use scratch::{Scratch, ScratchFolder, StorageBytes, resident_max};
pub use tool::{needs, run, words};

/// What tests stand on.
#[cfg(test)]
mod tests {
    use crate::network::{Cable, End, Network};

    pub(crate) const PREFIX: &str = "plateway-testbed-";

    /// Two nodes with a cable between their interfaces `left` and `right`; none where this machine
    /// does not let us, which is told.
    pub(crate) fn pair() -> Option<Network> {
        if let Err(why) = crate::allowed(PREFIX) {
            testkit::skipped(why);
            return None;
        }
        let network = Network::make(PREFIX, &["l", "r"]).unwrap();
        let ends = [("l", "left", "02:00:00:00:00:01"), ("r", "right", "02:00:00:00:00:02")];
        let ends = ends.map(|(node, interface, mac)| End { node, interface, mac: Some(mac) });
        network.cable(ends, Cable::of(1500)).unwrap();
        Some(network)
    }
}
