//! What a plan means: values that cannot be nonsense, with systems and paths by their places.
//!
//! Units: bytes, bits a second of a path, operations a second of a load. Whatever comes in several
//! of a plan is in the order of its file, so that cells and names are the same each time.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use contract::Poll;

use super::many::Files;
use super::measure::Measure;
use crate::mistake::Span;
use crate::statistics::Plan;
use crate::words::Pattern;

/// A plan that was checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub name: String,
    pub about: Option<String>,
    pub seed: u64,
    /// How long all of it may take.
    pub time: Option<Duration>,
    /// So many rounds of each group, or as many as there is time for; if absent, as many as pilots ask for.
    pub rounds: Option<usize>,
    /// How long a trial runs before its first window, at least.
    pub warm_up: Duration,
    /// The length of all windows, where the plan sets it.
    pub window: Option<Duration>,
    /// Whether others work on this machine, too, so that what they do makes no trial unsteady.
    pub shared: bool,
    /// Those of the plan, and `null` behind them where the plan has none.
    pub systems: Vec<System>,
    /// Which system is the reference that every round holds.
    pub null: usize,
    pub paths: Vec<Path>,
    pub groups: Vec<Group>,
    pub pictures: Vec<Picture>,
    /// Where the plan bounds the memory of a client first, for a machine that cannot.
    pub client_memory: Option<Span>,
    /// Where the plan bounds the processor time of a client, which not every machine can.
    pub client_cpu: Option<Span>,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    pub name: String,
    pub means: Means,
    /// What holds its blocks, if that is known.
    pub backing: Option<Backing>,
    /// Whether what is flushed survives a loss of power, if that is known.
    pub durable: Option<bool>,
    /// Whether a write that is completed and not flushed may be lost with the power of a modelled disk.
    pub cached: bool,
    /// Its size, if its URI says so; of several disks that of one.
    pub bytes: Option<u64>,
    /// How many disks like its own it has, in a stripe, where the load does not say.
    pub disks: u32,
    /// What is mounted on it; none where the client works on its blocks, or in a folder.
    pub mounted: Option<Mounted>,
    /// Whether the kernel's own initiator reaches it in place of ours, and our client works on the block device that it makes.
    pub kernel: bool,
    /// Who reaches and loads it in place of our own client: a command, to which what it is to do is appended.
    pub initiator: Option<Vec<String>>,
}

/// A file system that each trial makes on a system's disk, which is attached to the near end as a block
/// device; the client works on a file in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    pub kind: FileSystem,
    /// With which options it is mounted, as `mount` takes them; empty where there are none.
    pub options: String,
    pub client: Client,
    /// Whether the client works through a folder by FUSE above it, which does nothing else.
    pub fuse: bool,
    /// Bytes of a call of NFS or FUSE at most, where the plan says so.
    pub call_bytes: Option<u32>,
}

impl System {
    /// Who works on a file of it, where there is one: then there is a page cache between.
    pub fn file_client(&self) -> Option<Client> {
        let of_folder = self.means.folder().map(|folder| folder.client);
        of_folder.or(self.mounted.as_ref().map(|mounted| mounted.client))
    }
}

/// How a system comes to be there.
#[derive(Clone, Debug, PartialEq)]
pub enum Means {
    /// It is, and is reached as its URI says.
    Disk { uri: String },
    /// The lab starts a Plateway at the far end of a path.
    Serve(Serve),
    /// The lab starts a target of others' making at the far end of a path.
    Rival(Rival),
    /// Commands start it at the far end of a path.
    Target(Target),
    /// The far end of a path has a file system, which it exports by NFS.
    Nfs(Nfs),
    /// The client works on a file that the lab makes in a folder of the near end.
    Folder(Folder),
    /// No disk: the client sends to the far end of a path, or takes from there, what nobody looks at.
    Stream(Transport),
}

impl Means {
    /// Whether it is reached over a path of the plan.
    pub fn needs_path(&self) -> bool {
        !matches!(self, Means::Disk { .. } | Means::Folder(_))
    }

    /// Whether it is the network alone, without a disk behind it.
    pub fn is_stream(&self) -> bool {
        matches!(self, Means::Stream(_))
    }

    /// The folder, of one that is.
    pub fn folder(&self) -> Option<&Folder> {
        match self {
            Means::Folder(folder) => Some(folder),
            _ => None,
        }
    }
}

/// What the far end exports by NFS version 3.
#[derive(Clone, Debug, PartialEq)]
pub struct Nfs {
    /// The URI of what its file system is made on.
    pub disk: String,
    /// Whether each write is durable when it is answered; else the client has what it wrote committed.
    pub sync: bool,
    /// Bytes of memory that the server may have, its page cache among them.
    pub memory: Option<u64>,
    /// Whether the server reads and writes through its page cache.
    pub cache: bool,
}

/// A folder in which each trial has a file, and who works on that.
#[derive(Clone, Debug, PartialEq)]
pub struct Folder {
    /// Absolute.
    pub path: String,
    pub client: Client,
    /// Where the plan names it, for what is wrong with it on a machine.
    pub span: Span,
}

/// A Plateway that the lab starts. What is absent is its default.
#[derive(Clone, Debug, PartialEq)]
pub struct Serve {
    pub protocol: Protocol,
    /// The URI of what it serves.
    pub disk: String,
    /// By which protocol it reaches that disk, of another Plateway beside it; `None`: it has the disk itself.
    pub through: Option<Protocol>,
    pub poll: Option<Poll>,
    pub shards: Option<u16>,
    pub driver: Option<Driver>,
    pub digests: Digests,
    pub access: Option<Access>,
}

/// Declares an enum whose variants are words of the plan.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every word, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, $name)] = &[$(($word, $name::$variant)),*];

            /// As a plan writes it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// Who works on a file.
    Client {
        /// `plateway bench`.
        Bench = "bench",
        /// Debian's `fio`.
        Fio = "fio",
        /// Writes the file once, through the page cache: a copy.
        Copy = "copy",
    }
}

words! {
    /// What the lab makes on a disk that it attaches.
    FileSystem {
        Ext4 = "ext4",
    }
}

words! {
    Protocol {
        Aoe = "aoe",
        Iscsi = "iscsi",
        Nvme = "nvme",
    }
}

words! {
    /// By what a stream is carried.
    Transport {
        Tcp = "tcp",
    }
}

words! {
    /// By what a Plateway does its I/O.
    Driver {
        Auto = "auto",
        IoUring = "io_uring",
        Epoll = "epoll",
    }
}

words! {
    /// What frames and payloads carry digests of.
    Digests {
        None = "none",
        Header = "header",
        Data = "data",
        Both = "both",
    }
}

words! {
    /// How AoE takes its frames.
    Access {
        Packet = "packet",
        Xdp = "xdp",
    }
}

words! {
    /// What holds a system's blocks.
    Backing {
        /// Nothing: what is written is gone.
        Null = "null",
        Ram = "ram",
        File = "file",
        Device = "device",
    }
}

words! {
    /// Of which kind a path is: what is between its ends.
    PathKind {
        /// One link, without anything between.
        Direct = "direct",
        /// Two edges and a router between them, which switch labels.
        Mpls = "mpls",
        /// Two edges with a tunnel of GRE through a core of IP.
        Gre = "gre",
        /// The same with L2TPv3 over UDP.
        L2tp = "l2tp",
        /// The same with labels in UDP.
        MplsUdp = "mpls-udp",
        /// A gateway that puts its own address in place of the near end's.
        Nat = "nat",
        /// What is between two machines, whatever that is: nothing of it is laid.
        Machines = "machines",
    }
}

impl PathKind {
    /// Whether the lab lays it.
    pub fn is_laid(self) -> bool {
        self != Self::Machines
    }

    /// Whether edges carry the ends' Ethernet through a core.
    pub fn has_core(self) -> bool {
        matches!(self, Self::Mpls | Self::Gre | Self::L2tp | Self::MplsUdp)
    }
}

words! {
    /// On which CPU what the near end receives is dealt with, by the kernel's softirqs, beside its client.
    Softirqs {
        /// On the client's, which has one.
        WithClient = "with-client",
        /// On another than the client's.
        Apart = "apart",
    }
}

/// Bytes that the MTU of a core is larger than that of the ends: L2TPv3 over UDP, the longest, needs
/// 54 (20 of IP, 8 of UDP, 8 of its header, 4 of its sublayer, 14 of the frame inside), and a tag 4.
pub const CORE_MORE: u32 = 64;

words! {
    /// When the requests of an open loop leave.
    Arrivals {
        /// At even distances.
        Fixed = "fixed",
        /// Independently of each other, so many a second on average.
        Poisson = "poisson",
    }
}

words! {
    /// Targets of others' making that the lab knows to start.
    Program {
        /// iSCSI, by Debian's `tgt`.
        Tgt = "tgt",
        /// AoE, by Debian's `vblade`.
        Vblade = "vblade",
    }
}

impl Program {
    /// By which it is reached.
    pub fn protocol(self) -> Protocol {
        match self {
            Program::Tgt => Protocol::Iscsi,
            Program::Vblade => Protocol::Aoe,
        }
    }
}

/// A target of others' making.
#[derive(Clone, Debug, PartialEq)]
pub struct Rival {
    pub program: Program,
    /// The URI of what it serves.
    pub disk: String,
    /// The file or device that is meant; none of memory.
    pub path: Option<String>,
    /// Bytes of memory, or of a file that is made if it is not there.
    pub bytes: Option<u64>,
}

/// A target by its own commands, each with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub start: Vec<String>,
    pub ready: Option<Vec<String>>,
    pub stop: Option<Vec<String>>,
    /// The disk, as it is reached then.
    pub uri: String,
}

/// What is between a client and systems at its far end.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    pub name: String,
    pub kind: PathKind,
    pub mtu: Option<u32>,
    pub offloads: bool,
    /// If absent, the client has all CPUs of the near end, and the first of them receives.
    pub softirqs: Option<Softirqs>,
    /// Bits a second that it carries at most, in each direction.
    pub rate: Option<u64>,
    /// By how much each frame is late, in each direction.
    pub delay: Option<Duration>,
    /// Of a million frames, how many are lost in each direction.
    pub loss_ppm: Option<u32>,
    /// Of a path between two machines.
    pub line: Option<Line>,
}

/// What joins two machines: an interface of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Who does at the far end what the lab does at the near one.
    pub agent: AgentAt,
    pub near_interface: String,
    pub far_interface: String,
    /// By which the far end is reached.
    pub far_address: IpAddr,
}

/// How an agent is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAt {
    /// By ssh, as this host, which starts it.
    Ssh(String),
    /// At a socket, where it was started by hand.
    Socket(String),
}

/// As a plan writes it.
impl fmt::Display for AgentAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentAt::Ssh(host) => write!(f, "ssh:{host}"),
            AgentAt::Socket(path) => write!(f, "unix:{path}"),
        }
    }
}

impl FromStr for AgentAt {
    type Err = String;

    fn from_str(text: &str) -> Result<AgentAt, String> {
        let (way, place) = text.split_once(':').unwrap_or_default();
        match way {
            // One that begins so would be an option of ssh's.
            "ssh" if !place.is_empty() && !place.starts_with('-') => {
                Ok(AgentAt::Ssh(place.to_owned()))
            }
            "unix" if !place.is_empty() => Ok(AgentAt::Socket(place.to_owned())),
            _ => Err(format!("expected \"ssh:HOST\" or \"unix:PATH\", seen {text:?}")),
        }
    }
}

/// How a cell is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub block_bytes: u32,
    pub pattern: Pattern,
    pub pace: Pace,
    /// Jobs, each with a connection of its own.
    pub jobs: u32,
    /// How much of the disk is worked on, from its start; all of it if absent.
    pub size: Option<u64>,
    /// Whether each write is to be durable when it is completed.
    pub sync: bool,
    /// After how many writes a job flushes.
    pub fsync: Option<u32>,
    /// Whether the client works through its page cache; of a file.
    pub cache: bool,
    /// Bytes of memory that the client may have, its page cache among them; of a file.
    pub client_memory: Option<u64>,
    /// Percent of one CPU that the client may have.
    pub client_cpu: Option<u8>,
    /// How many disks a system has that may be several; as many as it says itself if absent.
    pub disks: Option<u32>,
    /// Whose files the client works on, in place of one file: then `size` is that of all of them, `jobs` are their
    /// threads, `cache` follows from it, and what is said of requests is of `null` alone.
    pub files: Option<Files>,
}

impl Load {
    /// Bytes that its file takes, or its files with their folders and a log; none where it has no size.
    pub fn room(&self) -> Option<u64> {
        let size = self.size?;
        Some(self.files.map_or(size, |files| files.room(size)))
    }
}

/// When requests leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as one comes back: each job keeps so many in flight.
    Closed { depth: u32 },
    /// By a schedule, so many a second of all jobs together.
    Open { rate: u64, arrivals: Arrivals },
}

/// What a trial measures: a system, over a path where it needs one, under a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its place in [`Experiment::systems`].
    pub system: usize,
    /// Its place in [`Experiment::paths`].
    pub path: Option<usize>,
    pub load: Load,
}

/// Comparisons that share their rounds: those of one path and load, for the same difference.
#[derive(Clone, Debug)]
pub struct Group {
    /// What results call it: its path and its load.
    pub name: String,
    /// The cell of each of its systems; `systems` of the plan are places in here.
    pub cells: Vec<Cell>,
    /// What results call each of them: its system, and what of it is not as the group's name says.
    pub names: Vec<String>,
    /// Which of them is the reference that every round holds.
    pub null: usize,
    /// What a round has a value of.
    pub columns: Vec<Column>,
    /// The comparisons, by their columns.
    pub plan: Plan,
}

/// One measure of one system of a group.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its place in the group's cells.
    pub system: usize,
    pub measure: Measure,
}

impl Group {
    /// Leaves of its cells those that a comparison is of, and `null`, and of their measures those by which any is
    /// judged: no round runs what nobody asks, nor fails for what it does not tell.
    pub fn keep_what_is_compared(&mut self) {
        let compared = self.plan.comparisons.iter().flat_map(|one| [one.subject, one.reference]);
        let mut systems: Vec<usize> = compared.map(|column| self.columns[column].system).collect();
        systems.push(self.null);
        let compared = self.plan.comparisons.iter().flat_map(|one| [one.subject, one.reference]);
        let measures: Vec<Measure> = compared.map(|column| self.columns[column].measure).collect();
        let is_asked = |column: &Column| measures.contains(&column.measure);
        let new_place = |system: usize| {
            let is_kept = |other: &usize| systems.contains(other);
            is_kept(&system).then(|| (0..system).filter(is_kept).count())
        };
        let columns = self.columns.iter();
        let columns = columns.map(|it| new_place(it.system).is_some() && is_asked(it));
        let columns: Vec<bool> = columns.collect();
        let new_column = |column: usize| columns[..column].iter().filter(|kept| **kept).count();
        for comparison in &mut self.plan.comparisons {
            comparison.subject = new_column(comparison.subject);
            comparison.reference = new_column(comparison.reference);
        }
        let kept = self.columns.iter().filter(|column| is_asked(column)).filter_map(|column| {
            Some(Column { system: new_place(column.system)?, measure: column.measure })
        });
        self.columns = kept.collect();
        let kept = |at: &usize| systems.contains(at);
        let places: Vec<usize> = (0..self.cells.len()).filter(kept).collect();
        self.null = new_place(self.null).expect("it is kept");
        self.cells = places.iter().map(|at| self.cells[*at]).collect();
        self.names = places.iter().map(|at| self.names[*at].clone()).collect();
        (self.plan.systems, self.plan.columns) = (self.cells.len(), self.columns.len());
    }
}

/// Cells that are drawn together.
#[derive(Clone, Debug)]
pub struct Picture {
    pub name: String,
    pub cells: Vec<Cell>,
}

impl Experiment {
    /// Every cell once: those of comparisons first, in the order of the file.
    pub fn cells(&self) -> Vec<Cell> {
        let of_groups = self.groups.iter().flat_map(|group| &group.cells);
        let of_pictures = self.pictures.iter().flat_map(|picture| &picture.cells);
        let mut cells: Vec<Cell> = Vec::new();
        for cell in of_groups.chain(of_pictures) {
            if !cells.contains(cell) {
                cells.push(*cell);
            }
        }
        cells
    }

    /// How many comparisons are corrected together.
    pub fn primaries(&self) -> usize {
        self.groups.iter().map(|group| group.plan.primaries()).sum()
    }

    /// How long a window of a cell is: what the plan says, or by what is below, 60 s of files and
    /// devices and 1 s of memory and networks.
    pub fn window_of(&self, cell: &Cell) -> Duration {
        let system = &self.systems[cell.system];
        let usual = match system.backing {
            Some(Backing::File | Backing::Device) => WINDOW_DEVICE,
            // Of most file systems.
            None if system.file_client().is_some() => WINDOW_DEVICE,
            Some(Backing::Null | Backing::Ram) | None => WINDOW_MEMORY,
        };
        self.window.unwrap_or(usual)
    }
}

/// Of memory and networks.
pub(super) const WINDOW_MEMORY: Duration = Duration::from_secs(1);
/// SNIA's rounds of a device.
const WINDOW_DEVICE: Duration = Duration::from_secs(60);
