//! `attach` and `detach`: what their command lines say.

use std::path::PathBuf;

use clap::Args;

use crate::config::uri::DiskUri;

/// `attach DISK`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    plateway attach nvme+tcp://10.0.0.1:4420/nqn.2026-11.net.plateway:v0/1\n  \
    plateway attach iscsi://nas/iqn.2026-11.net.plateway:v0/0 --read-only\n  \
    systemd-run --unit v0 --property Type=notify plateway attach aoe://eth1/7.0\n  \
    plateway attach --list\n\n\
    The disk is a block device of this machine, /dev/loopN, as long as this process runs: file systems can\n\
    be made on it and mounted. Flushes and discards reach the disk. SIGINT and SIGTERM take the device away,\n\
    as `plateway detach` does, unless something uses it: that is said, and the process goes on.\n\n\
    While a disk is lost its requests wait, as long as its deadline_s says, and then fail. Where nothing at\n\
    all is answered for --give-up seconds, or this process is stuck, all requests fail and the device is\n\
    given up, so that no process waits for it for ever; the same becomes of it if this process is killed.\n\n\
    Needs root, FUSE (/dev/fuse) and a loop device.\n\n\
    Exit code 0: detached. 1: an error, or the device was given up.")]
pub(crate) struct AttachArgs {
    /// The disk
    #[arg(value_name = "DISK", required_unless_present_any = ["list", "keeper"])]
    pub(crate) disk: Option<DiskUri>,
    /// Show what is attached, and where it is mounted
    #[arg(long, conflicts_with_all = ["disk", "read_only", "config", "give_up"])]
    pub(crate) list: bool,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// The configuration that names the volume of volume:NAME, or the pseudowire of aoe://pw:NAME/7.0
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How long nothing may be answered before the device is given up; the disk's deadline_s and 240 more
    /// unless named
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub(crate) give_up: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Watch over the process of this folder
    #[arg(long, hide = true, value_name = "FOLDER")]
    pub(crate) keeper: Option<PathBuf>,
}

/// `detach DEVICE`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    plateway detach /dev/loop0\n\n\
    What was written is flushed to the disk first. A device that is mounted, or used in another way, is not\n\
    detached. One whose process is gone is cleared away.")]
pub(crate) struct DetachArgs {
    /// The block device that `attach` named, or the disk
    #[arg(value_name = "DEVICE")]
    pub(crate) device: String,
}
