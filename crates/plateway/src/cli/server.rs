//! Commands that ask a running server, and what they take.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use reservation::{PathGroup, PathState};

use super::ConfigArgs;
use super::values::{AllOr, size_or_all, time};
use crate::protocols::connect::ClientKind;

/// `volume resize VOLUME SIZE`
#[derive(Args, Clone, Debug)]
pub(crate) struct VolumeArgs {
    /// What to do with it
    #[command(subcommand)]
    pub(crate) action: VolumeAction,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// An action on a volume.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum VolumeAction {
    /// Give a volume another size, as `size` of the configuration does; hosts are told
    #[command(
        after_help = "It is a step of apply. The configuration file stays as it is: write it there, too."
    )]
    Resize {
        /// The volume's name in the configuration
        volume: String,
        /// Its size, at most what its disks have: 10GiB, or all
        #[arg(value_parser = size_or_all)]
        size: AllOr,
    },
}

/// `host add VOLUME HOST`, `host remove VOLUME HOST`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "HOST is an NQN over NVMe/TCP, an IQN over iSCSI, a MAC address over AoE. All namespaces of a subsystem\n\
    have the same hosts; each LUN of a target has its own.\n\
    It is a step of apply. The configuration file stays as it is: write it there, too."
)]
pub(crate) struct HostArgs {
    /// What to do with it
    #[command(subcommand)]
    pub(crate) action: HostAction,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// What becomes of a host.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum HostAction {
    /// Let it use the exports of a volume
    Add {
        /// The volume's name in the configuration
        volume: String,
        /// Its NQN, IQN or MAC address, or the name of a [[host]]
        host: String,
    },
    /// Let it use them no longer
    Remove {
        /// The volume's name in the configuration
        volume: String,
        /// Its NQN, IQN or MAC address, or the name of a [[host]]
        host: String,
        /// Also where it is connected
        #[arg(long)]
        yes: bool,
    },
}

/// `status [--watch [TIME]]`
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    /// Show it again and again, with rates per second, until q or Ctrl-C
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = |text: &str| time(text, 100),
        conflicts_with = "json"
    )]
    pub(crate) watch: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// What every command has that asks a running server.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// The control socket of the server [default: where serve puts it]
    #[arg(long, value_name = "SOCKET", global = true)]
    pub(crate) control: Option<PathBuf>,
    /// The configuration of the server, which says where its control socket is, and names its disks
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// `session list`, `session close HOST`
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionArgs {
    /// What to do with them
    #[command(subcommand)]
    pub(crate) action: SessionAction,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// An action on the sessions of hosts.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionAction {
    /// Show who is connected, from where, to what
    List,
    /// Close all sessions of a host
    #[command(
        after_help = "What the host has under way ends as if its network had failed: most hosts connect again at once.\n\
        To keep it out, take it from the hosts: plateway host remove VOLUME HOST. AoE has no sessions."
    )]
    Close {
        /// Its NQN or IQN, as list shows it
        host: String,
    },
}

/// `route --config FILE`, `route check [FILE]`, `route show`
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        plateway route --config ler1.toml\n  \
        plateway route check ler1.toml\n  \
        plateway route show\n\n\
        It is `plateway serve` of a file with routers: plateway apply brings it to another file while packets\n\
        come, SIGHUP does so with the same one, SIGTERM ends it. Such a file may export volumes as well. What more a start\n\
        can be told is told to plateway serve --config, which runs routers too."
)]
pub(crate) struct RouteArgs {
    /// What to do instead
    #[command(subcommand)]
    pub(crate) action: Option<RouteAction>,
    /// The configuration to run
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
}

/// What is asked of a router.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RouteAction {
    /// Check a configuration and say what it would do, as `plateway check` does
    Check(ConfigArgs),
    /// Show the routers that run: ports, labels, paths, pseudowires, tunnels, neighbours, and what was counted at each
    Show(ServerArgs),
    /// Count what a port sends in each millisecond of a while, and say how even that is
    Bins(BinsArgs),
}

/// `route bins PORT`
#[derive(Args, Clone, Debug)]
pub(crate) struct BinsArgs {
    /// A port or circuit, as `route show` calls it
    pub(crate) port: String,
    /// For how long, 10s at most
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| time(text, 1))]
    pub(crate) time: Duration,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `connect VOLUME --for CLIENT`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "What stands in capitals is yours to fill in: SECRET, NAME, vmhbaN. Over iSCSI the commands for Linux, QEMU\n\
    and iPXE are typed in our tests; those for Windows, ESXi and Proxmox follow their makers' documentation and\n\
    were not tried."
)]
pub(crate) struct ConnectArgs {
    /// The volume's name in the configuration
    pub(crate) volume: String,
    /// What the client is
    #[arg(long = "for", value_name = "CLIENT", value_enum, default_value = "linux")]
    pub(crate) client: ClientKind,
    /// By which address clients reach this server [default: where it listens]
    #[arg(long, value_name = "HOST")]
    pub(crate) address: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `reservation clear VOLUME`
#[derive(Args, Clone, Debug)]
pub(crate) struct ReservationArgs {
    /// What to do with it
    #[command(subcommand)]
    pub(crate) action: ReservationAction,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// An action on the reservation of a volume.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ReservationAction {
    /// Let every host use the volume again, for good
    #[command(
        after_help = "A reservation stands until a host releases it, across restarts of host and server; `plateway status`\n\
        shows who holds one. Clear it once its holder surely writes no more: the other hosts may write at once."
    )]
    Clear {
        /// The volume's name in the configuration
        volume: String,
    },
}

/// `group set N STATE`
#[derive(Args, Clone, Debug)]
pub(crate) struct GroupArgs {
    /// What to do with it
    #[command(subcommand)]
    pub(crate) action: GroupAction,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// An action on a group of listeners.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum GroupAction {
    /// Say by which listeners hosts use volumes: multipath software moves I/O as it hears of it
    #[command(
        after_help = "optimized       as well as by any other; what every group is at first\n\
        non-optimized   while none is optimized\n\
        standby         not for blocks; the path stays, and answers what it needs for that\n\
        unavailable     not at all; to NVMe hosts the same as standby\n\
        transitioning   it is about to change, and hosts wait; end it by another state\n\
        \n\
        It is answered once every shard enforces it and nothing is below that came by a path which does not\n\
        serve any more. It stands until it is set again, also across a restart. `plateway status` shows it."
    )]
    Set {
        /// The number of the group, as the key `group` of [[listener]] has it
        #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(PathGroup::MAX)))]
        group: u16,
        /// optimized, non-optimized, standby, unavailable or transitioning
        state: PathState,
    },
}

/// `disks list`, `disks reopen NAME`, `disks accept NAME`, `disks wipe NAME`
#[derive(Args, Clone, Debug)]
pub(crate) struct DisksArgs {
    /// What to do with them
    #[command(subcommand)]
    pub(crate) action: DisksAction,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// An action on the disks of a server.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DisksAction {
    /// Show every disk: its state, size, cache and failures
    List,
    /// Open a failed disk again, once its cause is repaired
    #[command(
        after_help = "A failed flush fails a disk for writes: Linux may have dropped what was not written, so what\n\
        was acknowledged since the last good flush may be lost. Reopen it once you have checked."
    )]
    Reopen {
        /// The disk's name in the configuration
        name: String,
    },
    /// Say that what is where a known disk was is meant: another device, a restored file, a new one
    #[command(
        after_help = "A file or device that a volume was served from is known by what it is and by its size. Where\n\
        another is found there, a smaller one or none, nothing is served from it before this is said.\n\
        No server is asked. The next start, or apply, takes the disk as it is then."
    )]
    Accept {
        /// Its name in the configuration, or the disk as serve was given it
        #[arg(value_name = "DISK")]
        disk: String,
        /// The directory of identities [default: the configuration's, else where serve puts it]
        #[arg(long, value_name = "DIRECTORY")]
        state: Option<PathBuf>,
        /// It holds other data: forget what was known, so that its volume gets a new identity, and a
        /// file that is gone may be made
        #[arg(long)]
        new: bool,
    },
    /// Take the label of a concat or stripe off a disk that is to leave its set for good
    #[command(
        after_help = "The disk is opened by this command, so no server may have it. Its data stay: what a set of other\n\
        disks, or a volume of its own, finds there is what the set had written. Without --yes it is only said what the\n\
        disk is a member of."
    )]
    Wipe {
        /// Its name in the configuration, or the disk as serve was given it
        #[arg(value_name = "DISK")]
        disk: String,
        /// Its set cannot be assembled afterwards, and that is meant
        #[arg(long)]
        yes: bool,
    },
}
