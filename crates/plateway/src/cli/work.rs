//! Commands that do their work in a process of their own: measurements, copies, discovery, the demo,
//! the simulator, captures, the sizes of headers.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{Pattern, block_bytes, count, time};
use crate::config::size::parse_fio_size;
use crate::config::uri::DiskUri;
use crate::protocols::{DiscoverFlags, DiscoveryTarget, parse_target};

/// `bench URI`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    plateway bench nvme+tcp://127.0.0.1:4420/nqn.2026-11.net.plateway:v0/1 --rw randread --bs 4k --iodepth 32\n  \
    plateway bench ram:1GiB --rw randrw=75 --numjobs 4 --time 10s --svg bench.svg --log bench.csv\n  \
    plateway bench file:/srv/a.img --rw randwrite --fsync 1 --offset 1g --size 4g --overwrite\n  \
    plateway bench volume:v0 --config plateway.toml --rw write --bs 128k --overwrite\n  \
    plateway bench aoe://pw:store/7.0 --config router.toml --rw randread\n  \
    plateway bench file:/srv/a.img --fio jobs.fio --overwrite\n\n\
    --rate makes it an open loop: requests start on schedule, and latency counts from the schedule.\n\
    Sizes are fio's: 4k is 4096 bytes. Writes refuse a disk that holds data unless --overwrite is given.\n\
    Where nothing comes back for 30 s, or for 10 s at the end, it ends and tells what came, as on Ctrl-C.\n\n\
    Exit code 0: measured. 1: an error, failed requests or wrong data. 130: interrupted.")]
pub(crate) struct BenchArgs {
    /// The disk to measure
    #[arg(value_name = "DISK")]
    pub(crate) disk: DiskUri,
    /// The configuration that names the volume of volume:NAME, or the pseudowire of aoe://pw:NAME/7.0
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Run the jobs of a job file of fio; what is understood of it stands in docs/fio.md
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "rw", "bs", "iodepth", "numjobs", "time", "steady", "warmup", "rate", "poisson", "offset", "size", "sync",
        "fsync", "verify",
    ])]
    pub(crate) fio: Option<PathBuf>,
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
    /// Measure until five windows of this length are steady (SNIA's criterion), in 25 at most, in place of --time
    #[arg(long, value_name = "TIME", conflicts_with = "time", value_parser = |text: &str| time(text, 100))]
    pub(crate) steady: Option<Duration>,
    /// How long to run before measuring
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| time(text, 0))]
    pub(crate) warmup: Duration,
    /// Requests a second (10k is 10,000), of all jobs together, whether or not earlier ones have come back
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) rate: Option<u64>,
    /// Of --rate: requests start independently of each other, and not at even distances
    #[arg(long, requires = "rate")]
    pub(crate) poisson: bool,
    /// Where on the disk to begin
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_fio_size)]
    pub(crate) offset: u64,
    /// Bytes of the disk to work on [default: all behind the offset]
    #[arg(long, value_name = "SIZE", value_parser = parse_fio_size)]
    pub(crate) size: Option<u64>,
    /// Write every block first, so that none is read that never was
    #[arg(long, conflicts_with = "verify")]
    pub(crate) fill: bool,
    /// Reach the file or device through the page cache of this machine, also where it can be passed by
    #[arg(long)]
    pub(crate) cached: bool,
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
    /// The configuration that names the volume of volume:NAME, or the pseudowire of aoe://pw:NAME/7.0
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
    plateway discover iscsi://127.0.0.1\n  \
    plateway discover aoe://eth1\n\n\
    The port is 4420 unless named, of iSCSI 3260: every listener of plateway answers discovery. Dedicated\n\
    discovery controllers of others are on 8009. A host sees the subsystems, and targets, that allow it.\n\
    aoe:// shows the targets that answer this station on an interface (aoe://eth1,eth2 for several, ?vlan=N\n\
    for a VLAN); it needs CAP_NET_RAW.")]
pub(crate) struct DiscoverArgs {
    /// nvme+tcp://host[:port], iscsi://[user@]host[:port] or aoe://INTERFACE
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
    What is written over NVMe/TCP is read back over iSCSI, and the other way round; as root also over AoE, between two\n\
    network namespaces that it makes and removes."
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
#[command(after_help = "Examples:\n  \
    tcpdump -i lo -w nvme.pcap port 4420; plateway dissect nvme.pcap\n  \
    tcpdump -i lo -w iscsi.pcap port 3260; plateway dissect iscsi.pcap\n  \
    tcpdump -i eth1 -w aoe.pcap ether proto 0x88a2; plateway dissect aoe.pcap")]
pub(crate) struct DissectArgs {
    /// The capture
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The TCP port of the target [default: 4420 and 3260, which are NVMe/TCP's and iSCSI's]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wire`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    plateway wire\n  \
    plateway wire --mtu 9000 --block 64KiB\n  \
    plateway wire --block 1KiB --json\n\n\
    header bytes are what a frame has from its Ethernet header on that is not data: a frame of each stack is\n\
    encoded, and its bytes are counted. paper is what Landowski and Curran's paper on AoE over MPLS says of it\n\
    (Table I), where it has the stack in this form. data is the share of the wire: all frames of a block, with\n\
    the 24 bytes that preamble, check sequence and gap take beside each, and nothing that goes the other way.\n\
    A frame of AoE has as many sectors as the MTU leaves room for; the others cut their stream into TCP\n\
    segments. Nothing is sent, and no server is asked.")]
pub(crate) struct WireArgs {
    /// Bytes of a frame behind its Ethernet header, labels and tunnels included
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(68..))]
    pub(crate) mtu: u16,
    /// Bytes that are read or written at once
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_bytes)]
    pub(crate) block: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
