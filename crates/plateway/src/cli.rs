//! The command line: every command, its flags and its help.
//!
//! What is parsed here is still what the user typed; `serve` turns it into a configuration through
//! [`crate::config::quick`]. Sizes of `bench` and `copy` speak fio's dialect, as do `--rw` and
//! `--bs`. Errors: clap's, with exit code 2; a disk URI says its column.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::quick::Flags;
use crate::config::size::{parse_fio_size, parse_size};
use crate::config::uri::DiskUri;
use crate::protocols::{DiscoverFlags, DiscoveryTarget, StreamTalk, parse_target};

/// The configuration that `check` and `apply` take where none is named.
const CONFIG_DEFAULT: &str = "plateway.toml";

/// Block storage over every wire: serves disks and arrays of a Linux machine over NVMe/TCP and ATA
/// over Ethernet.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "A DISK is one of\n  \
        ram:SIZE  null:SIZE  file:PATH[?create=SIZE|?tail=ignore]  /dev/NAME\n  \
        nvme+tcp://host:port/NQN/NSID[?queues=N&depth=D&hdgst=0|1&ddgst=0|1]\n  \
        aoe://INTERFACE[,INTERFACE]/SHELF.SLOT[?window=N&vlan=N]\n  \
        volume:NAME (with --config)\n  \
        delay:US,DISK  faulty:SEED,DISK\n\
        A file has a multiple of 512 bytes, or tail=ignore leaves its end out. create makes one where there is none, and changes none that is there.\n\n\
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
        after_help = "New disks, volumes, listeners and exports come first, removals after them; a step\n\
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
    /// Free a volume of a running server that a host has reserved
    Reservation(ReservationArgs),
    /// Measure a disk: IOPS, MB/s, latency percentiles, CPU per I/O
    Bench(BenchArgs),
    /// Copy one disk to another, verified
    Copy(CopyArgs),
    /// Ask a target which subsystems it has, or an Ethernet which targets of AoE answer there
    Discover(DiscoverArgs),
    /// Serve, write, verify and measure a striped volume on this machine, in a minute; as root over
    /// AoE, too
    Demo(DemoArgs),
    /// Run targets and initiators in a simulated world with faults from a seed
    Sim(SimArgs),
    /// Print what can be asked of the control socket, as OpenAPI
    Api,
    /// Print what plateway.toml may hold, as JSON Schema, for editors
    Schema,
    /// Print the NVMe/TCP PDUs and AoE messages of a capture, one a line
    Dissect(DissectArgs),
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

/// A size, or all that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllOr(pub(crate) Option<u64>);

fn size_or_all(text: &str) -> Result<AllOr, String> {
    match text {
        "all" => Ok(AllOr(None)),
        size => parse_size(size).map(|bytes| AllOr(Some(bytes))).map_err(|error| error.to_string()),
    }
}

/// `host add VOLUME HOST`, `host remove VOLUME HOST`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "HOST is an NQN over NVMe/TCP, a MAC address over AoE. All namespaces of a subsystem have the same hosts.\n\
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
        /// Its NQN or MAC address
        host: String,
    },
    /// Let it use them no longer
    Remove {
        /// The volume's name in the configuration
        volume: String,
        /// Its NQN or MAC address
        host: String,
        /// Also where it is connected
        #[arg(long)]
        yes: bool,
    },
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
    plateway serve file:/srv/a.img --aoe eth1/7.0 --hosts 02:00:00:00:00:01\n  \
    plateway serve --config plateway.toml\n\n\
    Each DISK is a volume of its own: the first is nqn.2026-11.net.plateway:v0, namespace 1.\n\
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
        /// Its NQN, as list shows it
        host: String,
    },
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

/// `bench URI`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    plateway bench nvme+tcp://127.0.0.1:4420/nqn.2026-11.net.plateway:v0/1 --rw randread --bs 4k --iodepth 32\n  \
    plateway bench ram:1GiB --rw randrw=75 --numjobs 4 --time 10s --svg bench.svg --log bench.csv\n  \
    plateway bench file:/srv/a.img --rw randwrite --fsync 1 --offset 1g --size 4g --overwrite\n  \
    plateway bench volume:v0 --config plateway.toml --rw write --bs 128k --overwrite\n\n\
    --rate makes it an open loop: requests start on schedule, and latency counts from the schedule.\n\
    Sizes are fio's: 4k is 4096 bytes. Writes refuse a disk that holds data unless --overwrite is given.\n\
    Where nothing comes back for 30 s, or for 10 s at the end, it ends and tells what came.")]
pub(crate) struct BenchArgs {
    /// The disk to measure
    #[arg(value_name = "DISK")]
    pub(crate) disk: DiskUri,
    /// The configuration that names the volume of volume:NAME
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// read, write, trim, randread, randwrite, randtrim, or a mix: rw=75 and randrw=75 read three quarters, and rw=70,10 trims a tenth, too
    #[arg(long, value_name = "PATTERN", default_value = "randread")]
    pub(crate) rw: Pattern,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = block_bytes)]
    pub(crate) bs: u64,
    /// Requests in flight for each job
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: u32,
    /// Jobs, each with a connection of its own where the disk is remote
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) numjobs: u32,
    /// How long to measure: 10s, 2m, 1h, 500ms
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = |text: &str| time(text, 1))]
    pub(crate) time: Duration,
    /// How long to run before measuring
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| time(text, 0))]
    pub(crate) warmup: Duration,
    /// Requests a second (10k is 10,000), of all jobs together, whether or not earlier ones have come back
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) rate: Option<u64>,
    /// Where on the disk to begin
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_fio_size)]
    pub(crate) offset: u64,
    /// Bytes of the disk to work on [default: all behind the offset]
    #[arg(long, value_name = "SIZE", value_parser = parse_fio_size)]
    pub(crate) size: Option<u64>,
    /// Each write is durable when it is completed (FUA)
    #[arg(long)]
    pub(crate) sync: bool,
    /// Each job flushes after N writes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) fsync: Option<u32>,
    /// Check what is read against what was written
    #[arg(long)]
    pub(crate) verify: bool,
    /// Write even where the disk holds data
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Write a line for each second: requests, bytes, errors, latencies (CSV)
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Draw how latencies are distributed, and what came back in each second
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// The control socket of the target, to count its CPU time as well
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Print JSON, with the environment
    #[arg(long)]
    pub(crate) json: bool,
}

/// `copy SRC DST`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    plateway copy file:/srv/a.img nvme+tcp://10.0.0.1:4420/nqn.2026-11.net.plateway:v0/1\n  \
    plateway copy /dev/sdb volume:v0 --config plateway.toml --overwrite\n\n\
    The copy is read back and compared, all of it, unless --no-verify is given.\n\
    One that was interrupted or failed goes on with --resume, from what is durable, if both disks are\n\
    still the same and nobody else wrote to them; else it begins anew, with --overwrite.\n\n\
    Exit code 0: copied (and compared). 1: an error. 3: the destination differs. 130: interrupted.")]
pub(crate) struct CopyArgs {
    /// The disk to read
    #[arg(value_name = "SRC")]
    pub(crate) source: DiskUri,
    /// The disk to write, at least as large
    #[arg(value_name = "DST")]
    pub(crate) destination: DiskUri,
    /// The configuration that names the volume of volume:NAME
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read back and compare; this is the default
    #[arg(long, overrides_with = "no_verify")]
    verify: bool,
    /// Trust the destination
    #[arg(long, overrides_with = "verify")]
    no_verify: bool,
    /// Write even where the destination holds data
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Go on with a copy that ended early, onto the disk that its journal knows and no other
    #[arg(long)]
    pub(crate) resume: bool,
    /// Read back and compare only what is copied now: what was copied before is trusted
    #[arg(long, requires = "resume", conflicts_with_all = ["verify", "no_verify"])]
    pub(crate) verify_rest: bool,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: u32,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "128k", value_parser = block_bytes)]
    pub(crate) bs: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl CopyArgs {
    /// Whether to read back and compare; the last of `--verify` and `--no-verify` counts.
    pub(crate) fn verify(&self) -> bool {
        self.verify || !self.no_verify
    }
}

/// `discover TARGET`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    plateway discover nvme+tcp://127.0.0.1\n  \
    plateway discover nvme+tcp://nas:8009 --host-nqn nqn.2026-11.net.plateway:me\n  \
    plateway discover aoe://eth1\n\n\
    The port is 4420 unless named: every listener of plateway answers discovery. Dedicated discovery\n\
    controllers of others are on 8009. A host sees the subsystems that allow it.\n\
    aoe:// shows the targets that answer this station on an interface (aoe://eth1,eth2 for several, ?vlan=N\n\
    for a VLAN); it needs CAP_NET_RAW.")]
pub(crate) struct DiscoverArgs {
    /// nvme+tcp://host[:port] or aoe://INTERFACE
    #[arg(value_name = "TARGET", value_parser = parse_target)]
    pub(crate) target: DiscoveryTarget,
    #[command(flatten)]
    pub(crate) protocols: DiscoverFlags,
    /// Seconds to wait for answers over AoE
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) time: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `demo`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Needs no root and no configuration. Files lie in a temporary directory that is removed at the end.\n\
    As root, what is written over NVMe/TCP is read back over AoE as well, and the other way round, between two network\n\
    namespaces that it makes and removes."
)]
pub(crate) struct DemoArgs {
    /// Leave it running, and print what to type on a Linux host
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sim`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    plateway sim --seed 7 --trace\n  \
    plateway sim --seed 0 --seeds 2000 --twice\n  \
    plateway sim --seeds 200 --plant drops-flush\n\n\
    A failure prints its seed and the one command that replays it.")]
pub(crate) struct SimArgs {
    /// The seed, or the first of several
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How many seeds to run, counting up
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// Run each seed twice and compare the hashes of the traces
    #[arg(long)]
    pub(crate) twice: bool,
    /// Plant a bug, which must be found
    #[arg(long, value_name = "NAME")]
    pub(crate) plant: Option<String>,
    /// The kind of world; drawn from the seed unless given
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
    /// Print every event: of one seed however it ends, of several only of those that fail
    #[arg(long)]
    pub(crate) trace: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dissect FILE.pcap`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  \
    tcpdump -i lo -w nvme.pcap port 4420; plateway dissect nvme.pcap\n  \
    tcpdump -i eth1 -w aoe.pcap ether proto 0x88a2; plateway dissect aoe.pcap")]
pub(crate) struct DissectArgs {
    /// The capture
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The TCP port of the target (AoE has none)
    #[arg(long, value_name = "PORT", default_value_t = StreamTalk::TCP_PORT)]
    pub(crate) port: u16,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `bench` does: in order or at random, and which share of it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Whether offsets are drawn at random.
    pub(crate) random: bool,
    /// Of a hundred requests, how many read: 0 to 100.
    pub(crate) read_percent: u8,
    /// Of a hundred requests, how many trim; the rest writes.
    pub(crate) trim_percent: u8,
}

impl Pattern {
    /// Whether anything is changed.
    pub(crate) fn writes(self) -> bool {
        self.read_percent < 100
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, share) =
            text.split_once('=').map_or((text, None), |(word, share)| (word, Some(share)));
        let (random, read_percent, trim_percent) = match word {
            "read" => (false, 100, 0),
            "write" => (false, 0, 0),
            "trim" => (false, 0, 100),
            "randread" => (true, 100, 0),
            "randwrite" => (true, 0, 0),
            "randtrim" => (true, 0, 100),
            "rw" | "readwrite" => (false, 50, 0),
            "randrw" => (true, 50, 0),
            _ => {
                return Err(format!(
                    "expected read, write, trim, randread, randwrite, randtrim, rw=75 or randrw=75, seen {text:?}"
                ));
            }
        };
        let Some(share) = share else { return Ok(Self { random, read_percent, trim_percent }) };
        if read_percent != 50 {
            return Err(format!("only rw and randrw take a percentage, seen {text:?}"));
        }
        let (reads, trims) =
            share.split_once(',').map_or((share, None), |(reads, trims)| (reads, Some(trims)));
        let percent = |what: &str, text: &str| match text.parse() {
            Ok(percent @ 0..=100) => Ok(percent),
            _ => Err(format!("expected {what} of 0 to 100 percent, seen {text:?}")),
        };
        let read_percent = percent("reads", reads)?;
        let trim_percent = trims.map_or(Ok(0), |trims| percent("trims", trims))?;
        match read_percent + trim_percent {
            0..=100 => Ok(Self { random, read_percent, trim_percent }),
            sum => Err(format!("expected at most 100 percent together, seen {sum}")),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let random = if self.random { "rand" } else { "" };
        match (self.read_percent, self.trim_percent) {
            (100, _) => write!(f, "{random}read"),
            (_, 100) => write!(f, "{random}trim"),
            (0, 0) => write!(f, "{random}write"),
            (reads, 0) => write!(f, "{random}rw={reads}"),
            (reads, trims) => write!(f, "{random}rw={reads},{trims}"),
        }
    }
}

/// A time of at least so many milliseconds and at most a day: a number of seconds, or one with a
/// unit.
fn time(text: &str, least_ms: u64) -> Result<Duration, String> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => -1.0,
    };
    let number: f64 = number.parse().unwrap_or(-1.0);
    let (least, time) = (least_ms as f64 / 1e3, number * seconds);
    match number >= 0.0 && seconds > 0.0 && (least..=86_400.0).contains(&time) {
        true => Ok(Duration::from_secs_f64(time)),
        false => Err(format!("expected a time such as 10s, 2m or 500ms, up to 24h, seen {text:?}")),
    }
}

/// A number of at least one, with `k` for thousands and `m` for millions.
fn count(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let (number, factor) = match (lower.strip_suffix('k'), lower.strip_suffix('m')) {
        (Some(number), _) => (number, 1_000),
        (_, Some(number)) => (number, 1_000_000),
        _ => (&*lower, 1),
    };
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("expected a number such as 500 or 10k, seen {text:?}"))
}

/// The size of a request: a multiple of 512 bytes, at most 1 MiB.
fn block_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_fio_size(text).map_err(|error| error.to_string())?;
    if bytes == 0 || !bytes.is_multiple_of(512) || bytes > 1 << 20 {
        return Err(format!("expected a multiple of 512 bytes up to 1m, seen {text:?}"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        let words = std::iter::once("plateway").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_lines_of_the_help_are_accepted() {
        for line in [
            "serve ram:1GiB --nvme 127.0.0.1:4420 --hosts any --driver io_uring --shards 0,1 --memory 64MiB --poll-us 50",
            "serve --config plateway.toml --driver epoll",
            "check",
            "check p.toml --json",
            "apply p.toml --control /run/p.sock --yes --allow-empty",
            "status --json",
            "status --watch",
            "status --watch 0.5 --control /run/p.sock",
            "status --config p.toml --json",
            "disks list",
            "disks reopen d0 --control /run/p.sock",
            "disks accept d0 --config p.toml --new",
            "disks accept file:/a --state /s --json",
            "disks wipe d0 --config p.toml --yes",
            "disks wipe /dev/vdb",
            "config --control /run/p.sock",
            "init p.toml",
            "volume resize v0 10GiB --control /run/p.sock",
            "volume resize v0 all --json",
            "host add v0 nqn.2026-11.a:h",
            "host remove v0 02:00:00:00:00:01 --yes --json",
            "session list --json",
            "session close nqn.2026-11.a:h --control /run/p.sock",
            "reservation clear v0 --control /run/p.sock --json",
            "bench ram:1GiB --rw randrw=75 --bs 4k --iodepth 32 --numjobs 4 --time 10 --rate 1000 --verify --overwrite --json",
            "bench ram:1GiB --time 2m --warmup 500ms --rate 10k --offset 1g --size 4g --sync --log a.csv --svg a.svg",
            "bench ram:1GiB --time 0.5 --rw randtrim --fsync 1",
            "bench volume:v0 --config p.toml --rw write --bs 128k --warmup 0 --control /run/p.sock",
            "copy file:/a ram:1GiB --no-verify --overwrite --resume --json --iodepth 8 --bs 1m",
            "copy file:/a file:/b --resume --verify-rest",
            "discover nvme+tcp://127.0.0.1 --host-nqn nqn.2026-11.net.plateway:me",
            "discover aoe://eth1,eth2?vlan=5 --time 3 --json",
            "serve ram:1GiB --aoe eth1/7.0 --hosts 02:00:00:00:00:01",
            "bench aoe://eth1/7.0?window=16 --rw randread",
            "demo --keep",
            "sim --seed 1 --seeds 5 --twice --plant drops-flush --scenario kill --trace",
            "dissect a.pcap --json",
        ] {
            assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
        }
    }

    #[test]
    fn a_configuration_is_named_by_its_place_or_by_a_flag() {
        for (line, file) in [
            ("check", "plateway.toml"),
            ("check p.toml", "p.toml"),
            ("check --config p.toml", "p.toml"),
            ("apply --config p.toml --json", "p.toml"),
        ] {
            let args = match parse(line) {
                Ok(Command::Check(args)) => args,
                Ok(Command::Apply(args)) => args.config,
                other => panic!("{line}: {other:?}"),
            };
            assert_eq!(args.file(), Path::new(file), "{line}");
        }
    }

    #[test]
    fn wrong_lines_say_what_was_expected() {
        for (line, part) in [
            ("serve", "<DISK>"),
            ("status --watch 0", "expected a time such as"),
            ("status --watch --json", "cannot be used with"),
            ("serve ram:1GiB --config p.toml", "cannot be used with"),
            ("serve --config p.toml --hosts any", "cannot be used with"),
            ("check p.toml --config p.toml", "cannot be used with"),
            ("serve ram:1GiB --driver uring", "possible values: auto, io_uring, epoll"),
            ("bench ram:1G", "column 5: unit \"G\""),
            ("bench ram:1GiB --rw erase", "expected read, write, trim, randread"),
            ("bench ram:1GiB --rw rw=70,40", "at most 100 percent together"),
            ("bench ram:1GiB --rw rw=70,x", "expected trims of 0 to 100 percent"),
            ("bench ram:1GiB --time 0", "expected a time such as 10s"),
            ("bench ram:1GiB --time 2d", "expected a time such as 10s"),
            ("bench ram:1GiB --rate 0", "expected a number such as 500 or 10k"),
            ("bench ram:1GiB --rate many", "expected a number such as 500 or 10k"),
            ("bench ram:1GiB --rw randread=5", "only rw and randrw take a percentage"),
            ("bench ram:1GiB --rw rw=101", "expected reads of 0 to 100 percent"),
            ("bench ram:1GiB --bs 1000", "expected a multiple of 512 bytes up to 1m"),
            ("bench ram:1GiB --bs 2m", "expected a multiple of 512 bytes up to 1m"),
            ("bench ram:1GiB --iodepth 0", "1..=1024"),
            ("copy iscsi://a/b ram:1GiB", "iscsi is not built in"),
            ("discover 127.0.0.1", "expected a target such as nvme+tcp://127.0.0.1:4420"),
            ("discover nvme+tcp://h --host-nqn me", "expected \"nqn.\""),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn patterns_round_trip() {
        for text in [
            "read",
            "write",
            "trim",
            "randread",
            "randwrite",
            "randtrim",
            "rw=75",
            "randrw=1",
            "rw=70,10",
            "randrw=0,1",
        ] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        assert_eq!(
            "randrw".parse(),
            Ok(Pattern { random: true, read_percent: 50, trim_percent: 0 })
        );
        assert_eq!(
            "randrw=100".parse(),
            Ok(Pattern { random: true, read_percent: 100, trim_percent: 0 })
        );
    }

    #[test]
    fn a_copy_is_verified_unless_told_otherwise() {
        for (flags, verified) in [
            ("", true),
            ("--no-verify", false),
            ("--no-verify --verify", true),
            ("--verify --no-verify", false),
        ] {
            let Ok(Command::Copy(copy)) = parse(&format!("copy ram:1GiB null:1GiB {flags}")) else {
                panic!("{flags}")
            };
            assert_eq!(copy.verify(), verified, "{flags}");
        }
    }
}
