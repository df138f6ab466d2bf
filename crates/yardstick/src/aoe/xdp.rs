//! The bare responder over AF_XDP.

use anyhow::{Result, bail};

use super::responder::Options;

/// Answers over AF_XDP.
pub(super) fn run(_options: &Options) -> Result<()> {
    bail!("AF_XDP is not built in")
}
