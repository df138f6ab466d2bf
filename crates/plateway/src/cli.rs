//! The command line: every command, its flags and its help.
//!
//! What is parsed here is still what the user typed; `serve` turns it into a configuration through
//! [`crate::config::quick`]. Sizes of `bench` and `copy` speak fio's dialect, as do `--rw` and
//! `--bs`. Errors: clap's, with exit code 2; a disk URI says its column.

mod attach;
mod lab;
mod server;
#[cfg(test)]
mod tests;
mod values;
mod work;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

pub(crate) use attach::{AttachArgs, DetachArgs};
pub(crate) use lab::{
    LabAction, LabAgentArgs, LabArgs, LabCompareArgs, LabCopyArgs, LabExportArgs, LabFilesArgs,
    LabImportArgs, LabPageArgs, LabPaperArgs, LabProgramArgs, LabRecommendArgs, LabRelayArgs,
    LabRunArgs, LabSinkArgs, LabStreamArgs, LabWatchArgs,
};
pub(crate) use server::{
    ConnectArgs, DisksAction, DisksArgs, GroupAction, GroupArgs, HostAction, HostArgs,
    ReservationAction, ReservationArgs, RouteAction, RouteArgs, ServerArgs, SessionAction,
    SessionArgs, StatusArgs, VolumeAction, VolumeArgs,
};
pub(crate) use values::AllOr;
pub(crate) use work::{
    BenchArgs, CopyArgs, DemoArgs, DiscoverArgs, DissectArgs, SimArgs, WireArgs,
};

use crate::config::quick::Flags;

/// The configuration that `check` and `apply` take where none is named.
const CONFIG_DEFAULT: &str = "plateway.toml";

/// Block storage over every wire: serves disks and arrays of a Linux machine over NVMe/TCP, iSCSI and
/// ATA over Ethernet.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "A DISK is one of\n  \
        ram:SIZE[?touch=1]  null:SIZE  file:PATH[?create=SIZE|?tail=ignore]  /dev/NAME\n  \
        nvme+tcp://host:port/NQN/NSID[?queues=N&depth=D&hdgst=0|1&ddgst=0|1]\n  \
        iscsi://[USER@]host:port/IQN/LUN[?sessions=N&depth=D&hdgst=0|1&ddgst=0|1&secret_file=PATH&mutual_user=USER&mutual_secret_file=PATH]\n  \
        aoe://INTERFACE[,INTERFACE]/SHELF.SLOT[?window=N&vlan=N]\n  \
        aoe://pw:NAME/SHELF.SLOT[?window=N] (behind a pseudowire of the configuration; a command needs --config)\n  \
        volume:NAME (with --config)\n  \
        delay:US,DISK  burn:US,DISK  faulty:SEED,DISK (around a disk of this machine)\n  \
        model:hdd-10k|hdd-5400|ssd|PATH[?channels=N&service_us=US&seed=N...],DISK (as slow as that kind of disk)\n\
        A file has a multiple of 512 bytes, or tail=ignore leaves its end out. create makes one where there is none, and changes none that is there.\n\
        Memory is taken as it is written, or with touch=1 all of it before anything is served.\n\n\
        Begin with:\n  \
        plateway demo\n  \
        plateway serve ram:1GiB --nvme 127.0.0.1:4420 --hosts any"
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve disks, or the volumes of a configuration, until SIGTERM
    Serve(ServeArgs),
    /// Run MPLS routers that carry Ethernet in pseudowires and tunnels, or show them
    Route(RouteArgs),
    /// Check a configuration and say what it would do
    #[command(
        after_help = "Exit code 0: it can be used. 1: it cannot; each mistake is shown at its line.\n\
        Disks are opened for reading: sizes, blocks and labels are checked, and nothing is changed. Remote\n\
        disks are not contacted. Where a server answers on the control socket, the difference to what it\n\
        serves is shown, else everything is new."
    )]
    Check(ConfigArgs),
    /// Bring a running server to a configuration, without touching unrelated sessions
    #[command(
        after_help = "New links, routers, disks, volumes, listeners and exports come first, removals after them; a step\n\
        that fails is undone with those before it. `plateway check` shows the same steps, names the hosts that\n\
        would lose what they use, and changes nothing."
    )]
    Apply(ApplyArgs),
    /// Show exports, sessions, disks and counters of a running server
    Status(StatusArgs),
    /// List the disks of a running server, reopen a failed one, accept one that is not the known one,
    /// or take the label off one that leaves its set
    Disks(DisksArgs),
    /// Print what a running server serves, as a configuration
    Config(ServerArgs),
    /// Write a first configuration, with comments, to be edited
    Init(InitArgs),
    /// Change a volume of a running server
    Volume(VolumeArgs),
    /// Let a host use a volume of a running server, or no longer
    Host(HostArgs),
    /// Show the hosts that are connected to a running server, or close the sessions of one
    Session(SessionArgs),
    /// Print what to type on a client to use a volume of a running server
    Connect(ConnectArgs),
    /// Free a volume of a running server that a host has reserved
    Reservation(ReservationArgs),
    /// Say by which listeners of a running server hosts use volumes
    Group(GroupArgs),
    /// Measure a disk: IOPS, MB/s, latency percentiles, CPU per I/O
    Bench(BenchArgs),
    /// Compare systems by a plan: rounds from fresh starts, intervals, and whether a difference is real
    Lab(LabArgs),
    /// Copy one disk to another, verified
    Copy(CopyArgs),
    /// Make any disk a block device of this machine, /dev/loopN, for file systems
    Attach(AttachArgs),
    /// Take the block device of an attached disk away
    Detach(DetachArgs),
    /// Ask a target which subsystems or targets it has, or an Ethernet which targets of AoE answer there
    Discover(DiscoverArgs),
    /// Serve, write, verify and measure on this machine, in a minute, over NVMe/TCP and iSCSI; as root
    /// over AoE, too
    Demo(DemoArgs),
    /// Run targets and initiators in a simulated world with faults from a seed
    Sim(SimArgs),
    /// Print what can be asked of the control socket, as OpenAPI
    Api,
    /// Print what plateway.toml may hold, as JSON Schema, for editors
    Schema,
    /// Print the NVMe/TCP and iSCSI PDUs and AoE messages of a capture, one a line
    Dissect(DissectArgs),
    /// Print how many bytes of headers each stack of protocols has around data, and which share of the
    /// wire is left for data
    Wire(WireArgs),
    /// Print the completions of a shell
    #[command(after_help = "Examples:\n  \
        plateway completions bash > /etc/bash_completion.d/plateway\n  \
        plateway completions zsh > /usr/local/share/zsh/site-functions/_plateway")]
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder
    Man(ManArgs),
}

/// `init [FILE]`
#[derive(Args, Clone, Debug)]
pub(crate) struct InitArgs {
    /// The file, which must not be there
    #[arg(value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(crate) file: PathBuf,
}

/// `completions SHELL`
#[derive(Args, Clone, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// `man FOLDER`
#[derive(Args, Clone, Debug)]
pub(crate) struct ManArgs {
    /// The folder, which must be there
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// `serve [DISK...]`
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Examples:\n  \
    plateway serve ram:1GiB --nvme 127.0.0.1:4420 --hosts any\n  \
    plateway serve /dev/nvme1n1 --nvme [::]:4420 --hosts nqn.2014-08.org.nvmexpress:uuid:...\n  \
    plateway serve /dev/nvme1n1 --iscsi [::]:3260 --hosts iqn.1993-08.org.debian:01:...\n  \
    plateway serve file:/srv/a.img --aoe eth1/7.0 --hosts 02:00:00:00:00:01\n  \
    plateway serve --config plateway.toml\n\n\
    Each DISK is a volume of its own: the first is nqn.2026-11.net.plateway:v0, namespace 1, over iSCSI\n\
    iqn.2026-11.net.plateway:v0, LUN 0.\n\
    SIGHUP applies the configuration again; SIGTERM drains for at most 5 s and flushes;\n\
    where that fails it names the volumes and ends with code 1. A second one exits at once.")]
pub(crate) struct ServeArgs {
    /// The configuration to serve in place of disks
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: Flags,
    /// Label the disks of this concat or stripe whatever they hold, or serve this disk alone although
    /// it is a member of a set; may be given again for another volume
    #[arg(long, value_name = "VOLUME")]
    pub(crate) overwrite: Vec<String>,
}

/// `check [FILE]`, `apply [FILE]`
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigArgs {
    /// The configuration
    #[arg(value_name = "FILE", default_value = CONFIG_DEFAULT)]
    file: PathBuf,
    /// The configuration, named as serve and bench name it
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Label the disks of this concat or stripe whatever they hold, or serve this disk alone although
    /// it is a member of a set, of which check shows what would be given up; may be given again for
    /// another volume
    #[arg(long, value_name = "VOLUME")]
    pub(crate) overwrite: Vec<String>,
    /// The control socket of the server [default: the configuration's]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `apply [FILE]`
#[derive(Args, Clone, Debug)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Take away what hosts use, of which check shows what and whose
    #[arg(long)]
    pub(crate) yes: bool,
    /// Take away the last export
    #[arg(long)]
    pub(crate) allow_empty: bool,
}

impl ConfigArgs {
    pub(crate) fn file(&self) -> &Path {
        self.config.as_ref().unwrap_or(&self.file)
    }
}
