//! What is measured: every case with its two sides and what is wanted of it.
//!
//! A [`Side`] is a server and a load on it. A [`Figure`] is a number in the JSON that the load
//! printed. Ratios are subject by reference, except for costs, where they are wanted small.

use serde_json::Value;

use super::aoe;
use super::process::{Bytes, NvmePlan as Nvme, Plan};

/// One line of the table.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) kind: Kind,
    pub(super) figure: Figure,
    pub(super) want: Want,
}

/// Two sides, or one and a limit.
pub(super) enum Kind {
    /// The figure of `subject` by that of `reference`.
    Ratio {
        reference: Side,
        subject: Side,
        /// A third in the same rounds, against which both are shown.
        beside: Option<Side>,
    },
    /// The figure itself.
    Limit { side: Side },
}

/// What the case wants of its ratio or figure.
#[derive(Clone, Copy)]
pub(super) enum Want {
    AtLeast(f64),
    AtMost(f64),
    /// To be said, not to be judged.
    Stated,
}

/// A server and a load.
pub(super) struct Side {
    pub(super) server: Option<Plan>,
    pub(super) load: Load,
}

/// What puts the load.
pub(super) enum Load {
    /// The bare client, with these arguments.
    Client(Vec<&'static str>),
    /// `plateway bench`, with these arguments; in process without a server.
    Initiator(Vec<&'static str>),
    /// fio on the files of the stripe, with these arguments.
    Fio(Vec<&'static str>),
}

/// A number in what a load prints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Figure {
    /// Operations per second of the target's CPU.
    OpsPerCpu,
    /// Operations per second.
    Iops,
    /// CPU of the load's process, microseconds an operation.
    LoadCpu,
    /// Share of one CPU that the target used, in per cent.
    TargetShare,
    /// Voluntary context switches of the target.
    Wakeups,
    /// Resident bytes that each idle connection added.
    BytesEach,
    /// Resident MiB of the target.
    Resident,
    /// Megabytes of data a second.
    Megabytes,
    /// From the start of the target to its first answer.
    StartSeconds,
    /// Share of its peak that a flooded target still does.
    OverloadShare,
    /// Share of its peak that it does a second after the flood.
    AfterShare,
}

impl Figure {
    /// The figure in a load's JSON.
    pub(super) fn of(self, raw: &Value) -> Option<f64> {
        let number = |path: &str| raw.pointer(path).and_then(Value::as_f64);
        match self {
            Self::OpsPerCpu => number("/target/ops_per_cpu_second"),
            Self::Iops => number("/iops"),
            Self::LoadCpu => number("/load_cpu_us_per_op"),
            Self::TargetShare => Some(number("/target/busy")? * 100.0),
            Self::Wakeups => number("/target/voluntary_switches"),
            Self::BytesEach => {
                let grown = number("/target/resident")? - number("/target/resident_before")?;
                Some(grown / number("/idle_connections")?)
            }
            Self::Resident => Some(number("/target/resident")? / f64::from(1 << 20)),
            Self::Megabytes => number("/mb_per_second"),
            Self::StartSeconds => number("/start_seconds"),
            Self::OverloadShare => number("/overload_share"),
            Self::AfterShare => number("/after_share"),
        }
    }

    /// How the figure is written.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::OpsPerCpu => format!("{:.1} k/cpu-s", value / 1e3),
            Self::Iops => format!("{:.1} k/s", value / 1e3),
            Self::LoadCpu => format!("{value:.2} us/op"),
            Self::TargetShare => format!("{value:.2} %"),
            Self::Wakeups => format!("{value:.0}"),
            Self::BytesEach => format!("{value:.0} B"),
            Self::Resident => format!("{value:.1} MiB"),
            Self::Megabytes => format!("{value:.0} MB/s"),
            Self::StartSeconds => format!("{value:.2} s"),
            Self::OverloadShare | Self::AfterShare => format!("{value:.2} of peak"),
        }
    }
}

impl Case {
    /// What is wanted, in words.
    pub(super) fn wanted(&self) -> String {
        let show = |value: f64| match self.kind {
            Kind::Ratio { .. } => format!("{value:.2}"),
            Kind::Limit { .. } => self.figure.show(value),
        };
        match self.want {
            Want::AtLeast(value) => format!(">= {}", show(value)),
            Want::AtMost(value) => format!("<= {}", show(value)),
            Want::Stated => "stated".to_owned(),
        }
    }

    /// Whether `value` is what is wanted.
    pub(super) fn met(&self, value: f64) -> bool {
        match self.want {
            Want::AtLeast(bound) => value >= bound,
            Want::AtMost(bound) => value <= bound,
            Want::Stated => true,
        }
    }
}

fn client(server: Nvme, args: &'static str) -> Side {
    Side { server: Some(Plan::Nvme(server)), load: Load::Client(words(args)) }
}

/// The arguments in a line.
pub(super) fn words(line: &'static str) -> Vec<&'static str> {
    line.split(' ').collect()
}

/// What a case is called, and what it is about.
pub(super) type Names = (&'static str, &'static str);

/// The figure of one side by that of another.
pub(super) fn ratio(
    (name, about): Names,
    figure: Figure,
    want: Want,
    reference: Side,
    subject: Side,
) -> Case {
    Case { name, about, kind: Kind::Ratio { reference, subject, beside: None }, figure, want }
}

/// The figure of one side.
pub(super) fn limit((name, about): Names, figure: Figure, want: Want, side: Side) -> Case {
    Case { name, about, kind: Kind::Limit { side }, figure, want }
}

/// Every case, in the order of the table.
pub(super) fn all() -> Vec<Case> {
    let mut cases = transfers();
    cases.extend(latency());
    cases.extend(variants());
    cases.extend(quiet());
    cases.extend(initiators());
    cases.extend(aoe::cases());
    cases
}

/// Plateway with one RAM disk against the ceiling, under the same load.
fn transfers() -> Vec<Case> {
    let table = [
        ("4k-read-32", "4 KiB random reads, depth 32", "--rw=randread", 0.85),
        ("4k-read-128", "the same, depth 128", "--rw=randread --iodepth=128", 0.85),
        ("4k-read-4x32", "4 connections x depth 32", "--rw=randread --connections=4", 0.85),
        ("4k-write-32", "4 KiB random writes, depth 32", "--rw=randwrite", 0.85),
        ("4k-write-128", "the same, depth 128", "--rw=randwrite --iodepth=128", 0.85),
        ("4k-write-4x32", "4 connections x depth 32", "--rw=randwrite --connections=4", 0.85),
        ("128k-read-32", "128 KiB reads, depth 32", "--rw=randread --bs=128k", 0.9),
        ("128k-write-32", "128 KiB writes, depth 32", "--rw=randwrite --bs=128k", 0.9),
    ];
    let case = |(name, about, args, want)| {
        let (reference, subject) = (client(Nvme::ceiling(), args), client(Nvme::ram(), args));
        ratio((name, about), Figure::OpsPerCpu, Want::AtLeast(want), reference, subject)
    };
    table.map(case).into()
}

fn latency() -> Vec<Case> {
    let one = "--rw=randread --iodepth=1";
    vec![
        ratio(
            ("depth-1", "4 KiB reads one at a time, both sides asleep in between"),
            Figure::Iops,
            Want::AtLeast(0.9),
            client(Nvme::ceiling(), one),
            client(Nvme::ram(), one),
        ),
        ratio(
            ("depth-1-poll", "the same with poll_us = 50 against a ceiling that spins as long"),
            Figure::Iops,
            Want::AtLeast(0.9),
            client(Nvme::ceiling().poll(50), one),
            client(Nvme::ram().poll(50), one),
        ),
        limit(
            ("poll-quiet", "CPU share with poll_us = 50 when an idle connection is all there is"),
            Figure::TargetShare,
            Want::AtMost(0.5),
            client(Nvme::ram().poll(50), "--connections=0 --idle-connections=1"),
        ),
    ]
}

fn variants() -> Vec<Case> {
    let ram = |args| client(Nvme::ram(), args);
    let at_least = |names, figure, want, reference, subject| {
        ratio(names, figure, Want::AtLeast(want), reference, subject)
    };
    let four = "--rw=randread --connections=4";
    vec![
        at_least(
            ("digests-4k", "both digests on against off, 4 KiB reads"),
            Figure::OpsPerCpu,
            0.75,
            ram("--rw=randread --bs=4k"),
            ram("--rw=randread --bs=4k --hdgst --ddgst"),
        ),
        at_least(
            ("digests-128k", "both digests on against off, 128 KiB reads"),
            Figure::OpsPerCpu,
            0.6,
            ram("--rw=randread --bs=128k"),
            ram("--rw=randread --bs=128k --hdgst --ddgst"),
        ),
        at_least(
            ("stripe-4", "a stripe over four RAM disks against one, 4 KiB reads"),
            Figure::OpsPerCpu,
            0.95,
            ram("--rw=randread"),
            client(Nvme::stripe(), "--rw=randread"),
        ),
        at_least(
            ("two-shards", "two shards against one, 4 connections (CPU of both shards)"),
            Figure::OpsPerCpu,
            0.9,
            ram(four),
            client(Nvme::ram().two_shards(), four),
        ),
        at_least(
            ("stuck", "one connection that never receives, against none"),
            Figure::Iops,
            0.95,
            ram("--rw=randread"),
            ram("--rw=randread --stuck-connections=1"),
        ),
    ]
}

fn quiet() -> Vec<Case> {
    let idle_100 = "--connections=0 --idle-connections=100 --kato-ms=5000";
    // Ninety-odd controllers with 100 queues each.
    let idle_10k = "--connections=0 --idle-connections=10000 --idle-queues=100";
    let budget = Bytes::BUDGET as f64 / 10_000.0;
    let at_most = |names, figure, want, server, args| {
        limit(names, figure, Want::AtMost(want), client(server, args))
    };
    vec![
        at_most(
            ("idle-100", "CPU share of 100 idle connections with keep alive"),
            Figure::TargetShare,
            0.5,
            Nvme::ram(),
            idle_100,
        ),
        at_most(
            ("idle-none", "wake-ups of an idle server without connections"),
            Figure::Wakeups,
            0.0,
            Nvme::ram(),
            "--connections=0",
        ),
        at_most(
            ("idle-10k", "resident bytes of each of 10,000 idle connections"),
            Figure::BytesEach,
            budget,
            Nvme::ram(),
            idle_10k,
        ),
        at_most(
            ("resident", "resident memory at start, beside RAM disks"),
            Figure::Resident,
            32.0,
            Nvme::null(),
            "--connections=0",
        ),
    ]
}

fn initiators() -> Vec<Case> {
    let files = "--rw=randread --bs=4k --iodepth=32";
    let ceiling = Some(Plan::Nvme(Nvme::ceiling()));
    vec![
        ratio(
            ("initiator", "CPU an operation of `plateway bench` against the bare client's"),
            Figure::LoadCpu,
            Want::AtMost(1.3),
            client(Nvme::ceiling(), "--rw=randread"),
            Side { server: ceiling, load: Load::Initiator(words(files)) },
        ),
        ratio(
            (
                "volume-files",
                "`plateway bench volume:NAME` on a stripe over four files against fio on the same",
            ),
            Figure::Iops,
            Want::AtLeast(0.95),
            Side { server: None, load: Load::Fio(words(files)) },
            Side { server: None, load: Load::Initiator(words(files)) },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique_and_every_figure_can_be_shown() {
        let cases = all();
        for (at, case) in cases.iter().enumerate() {
            assert!(cases[..at].iter().all(|other| other.name != case.name), "{}", case.name);
            assert!(!case.wanted().is_empty());
        }
    }

    #[test]
    fn figures_are_found_in_what_the_client_prints() {
        let raw = serde_json::json!({
            "iops": 5.0, "idle_connections": 10,
            "target": {"ops_per_cpu_second": 9.0, "busy": 0.5, "voluntary_switches": 3,
                       "resident": 2_097_152, "resident_before": 1_048_576},
        });
        assert_eq!(Figure::OpsPerCpu.of(&raw), Some(9.0));
        assert_eq!(Figure::TargetShare.of(&raw), Some(50.0));
        assert_eq!(Figure::Resident.of(&raw), Some(2.0));
        assert_eq!(Figure::BytesEach.of(&raw), Some(104_857.6));
        assert_eq!(Figure::LoadCpu.of(&raw), None);
    }
}
