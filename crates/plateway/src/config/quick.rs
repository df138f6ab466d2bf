//! The quick way: `plateway serve ram:1GiB --nvme 127.0.0.1:4420 --hosts any`.
//!
//! Flags become the same [`LowArgs`] as a file, with spans into the command line, so that they pass
//! the same checks and their mistakes are shown in the same way. Each disk becomes a volume of its
//! own: disk `d0`, volume `v0`, subsystem `nqn.2026-11.net.plateway:v0`, namespace 1; the next ones
//! `d1`, `v1`. `--iscsi 127.0.0.1:3260` exports each as LUN 0 of a target of the same name but for
//! its beginning, `--aoe eth1/7.0` the first at 7.0, the next at 7.1 and so on; `--hosts` names
//! hosts of all protocols, told apart by how they are written. Beside a file, flags override keys of
//! `[server]` and `poll_us`, nothing else.

use clap::Args;
use toml::Spanned;

use super::disk::LowDisk;
use super::export::LowExport;
use super::file::{Low, LowArgs, LowSize, LowWords};
use super::mistake::{Mistake, Span};
use super::server::DriverChoice;
use super::volume::LowVolume;
use crate::log::{Format, Level};
use crate::protocols::{self, LowExports};

/// What `serve` makes a configuration of, or overrides one with.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Flags {
    /// Disks to serve, each as a volume of its own
    #[arg(value_name = "DISK", required_unless_present = "config", conflicts_with = "config")]
    pub(crate) disks: Vec<String>,
    #[command(flatten)]
    pub(crate) protocols: protocols::Flags,
    /// Who may connect: "any", or NQNs of hosts (for iSCSI, IQNs; for AoE, MAC addresses) separated by
    /// commas; nobody unless given
    #[arg(long, value_name = "any|NAME[,NAME]", conflicts_with = "config")]
    pub(crate) hosts: Option<String>,
    /// How I/O is done; auto takes io_uring where it works
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) driver: Option<DriverChoice>,
    /// How the log is written: auto is fields and priorities for journald, else text, in colour on
    /// a terminal
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) log: Option<Format>,
    /// The least grave that is logged [default: info]
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) log_level: Option<Level>,
    /// CPUs to pin shards to, such as 0,1; one shard a core unless given
    #[arg(long, value_name = "CPU[,CPU]")]
    pub(crate) shards: Option<String>,
    /// Memory of the data path, beside RAM disks [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// How long shards look for more before they sleep: as long as it has paid lately, never, or a
    /// time such as 50us [default: auto]
    #[arg(long, value_name = "auto|never|TIME")]
    pub(crate) poll: Option<String>,
    /// The former spelling, for listeners: microseconds, 0 for never
    #[arg(long, value_name = "US", conflicts_with = "poll", hide = true)]
    pub(crate) poll_us: Option<u32>,
    /// Where monitoring reads metrics, such as 127.0.0.1:9899; nowhere unless given
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
    /// The control socket [default: /run/plateway/control.sock, or in the user's runtime directory]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<String>,
    /// The directory of identities, and of what initiators of AoE set [default: /var/lib/plateway,
    /// or the user's state directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state: Option<String>,
}

/// A protocol by which the disks of the command line are exported.
pub(crate) trait QuickWay {
    /// Whether a word of `--hosts` is the name of a host of this protocol.
    fn names_host(&self, word: &str) -> bool;

    /// The exports of the volume of a disk, which is the `index`th and stands at `at`.
    fn exports(
        &self,
        index: usize,
        volume: &str,
        at: &Span,
        hosts: Low<LowWords>,
    ) -> Vec<LowExports>;
}

impl Flags {
    /// Those that override `[server]`, without disks.
    pub(crate) fn of_the_server(&self) -> Flags {
        let protocols = protocols::Flags::default();
        Flags { disks: Vec::new(), protocols, hosts: None, ..self.clone() }
    }

    /// Adds to `low` what the flags say; returns the text that their spans point into, which begins
    /// `base` bytes behind the start of all sources.
    pub(crate) fn merge_into(
        &self,
        low: &mut LowArgs,
        base: usize,
        mistakes: &mut Vec<Mistake>,
    ) -> String {
        let mut line = Line { text: "plateway serve".to_owned(), base };
        let disks: Vec<Spanned<String>> = self.disks.iter().map(|disk| line.word(disk)).collect();
        let ways = self.protocols.ways(low, &mut line, mistakes);
        let hosts = self.hosts.as_ref().map(|hosts| line.flag("--hosts", hosts));
        let hosts: Vec<Low<LowWords>> =
            (0..ways.len()).map(|way| Some(hosts_for(hosts.as_ref()?, way, &ways))).collect();
        self.merge_server(low, &mut line, mistakes);
        let poll_us = self.poll_us.map(|poll| {
            let written = line.flag("--poll-us", &poll.to_string());
            Spanned::new(written.span(), i64::from(poll))
        });
        for listener in low.listeners.iter_mut().filter(|listener| listener.interface.is_none()) {
            if poll_us.is_some() {
                (listener.poll, listener.poll_us) = (None, poll_us.clone());
            }
        }
        for (i, uri) in disks.into_iter().enumerate() {
            let (at, volume) = (uri.span(), format!("v{i}"));
            add_volume(low, i, uri);
            for (way, hosts) in ways.iter().zip(&hosts) {
                for by in way.exports(i, &volume, &at, hosts.clone()) {
                    let volume = Some(Spanned::new(at.clone(), volume.clone()));
                    low.exports.push(LowExport { span: at.clone(), volume, by });
                }
            }
        }
        line.text
    }

    fn merge_server(&self, low: &mut LowArgs, line: &mut Line, mistakes: &mut Vec<Mistake>) {
        let server = &mut low.server;
        let mut take = |flag: &str, value: &Option<String>, target: &mut Low<String>| {
            if let Some(value) = value {
                *target = Some(line.flag(flag, value));
            }
        };
        take("--driver", &self.driver.map(|driver| driver.to_string()), &mut server.driver);
        take("--poll", &self.poll, &mut server.poll);
        take("--log", &self.log.map(|log| log.to_string()), &mut server.log);
        take("--log-level", &self.log_level.map(|level| level.to_string()), &mut server.log_level);
        take("--metrics", &self.metrics, &mut server.metrics);
        take("--control", &self.control, &mut server.control);
        take("--state", &self.state, &mut server.state);
        if let Some(memory) = &self.memory {
            let written = line.flag("--memory", memory);
            server.memory = Some(Spanned::new(written.span(), LowSize::Text(memory.clone())));
        }
        if let Some(shards) = &self.shards {
            let written = line.flag("--shards", shards);
            let mut cpus = Vec::new();
            for part in split_commas(&written) {
                match part.get_ref().parse::<i64>() {
                    Ok(cpu) => cpus.push(Spanned::new(part.span(), cpu)),
                    Err(_) => {
                        let message =
                            format!("shards: expected CPUs such as 0,1, seen {:?}", part.get_ref());
                        mistakes.push(Mistake::error(part.span(), message));
                    }
                }
            }
            server.shards = Some(Spanned::new(written.span(), cpus));
        }
    }
}

/// One disk of the quick way, as a volume.
fn add_volume(low: &mut LowArgs, i: usize, uri: Spanned<String>) {
    let span = uri.span();
    let here = |text: String| Spanned::new(span.clone(), text);
    low.volumes.push(LowVolume {
        span: span.clone(),
        name: Some(here(format!("v{i}"))),
        layout: Some(here("single".to_owned())),
        disks: Some(Spanned::new(span.clone(), vec![here(format!("d{i}"))])),
        ..LowVolume::default()
    });
    let name = Some(here(format!("d{i}")));
    // Whoever typed it waits to see it served.
    let required = Some(Spanned::new(span.clone(), true));
    low.disks.push(LowDisk { span: span.clone(), name, uri: Some(uri), required, poll: None });
}

/// `any`, or of the names separated by commas those of the hosts of one way; what nobody takes for
/// a host is the first's, and so is shown once.
fn hosts_for(
    written: &Spanned<String>,
    way: usize,
    ways: &[Box<dyn QuickWay>],
) -> Spanned<LowWords> {
    let whose = |word: &str| ways.iter().position(|way| way.names_host(word)).unwrap_or(0);
    let hosts = match written.get_ref().as_str() {
        "any" => LowWords::Word("any".to_owned()),
        _ => {
            let mut words = split_commas(written);
            words.retain(|word| whose(word.get_ref()) == way);
            LowWords::List(words)
        }
    };
    Spanned::new(written.span(), hosts)
}

pub(crate) fn split_commas(written: &Spanned<String>) -> Vec<Spanned<String>> {
    let mut from = written.span().start;
    let mut parts = Vec::new();
    for part in written.get_ref().split(',') {
        parts.push(Spanned::new(from..from + part.len(), part.to_owned()));
        from += part.len() + 1;
    }
    parts
}

/// The command line, written again word by word.
pub(crate) struct Line {
    text: String,
    base: usize,
}

impl Line {
    fn word(&mut self, word: &str) -> Spanned<String> {
        self.text.push(' ');
        let from: usize = self.base + self.text.len();
        self.text.push_str(word);
        let span: Span = from..from + word.len();
        Spanned::new(span, word.to_owned())
    }

    pub(crate) fn flag(&mut self, flag: &str, value: &str) -> Spanned<String> {
        self.word(flag);
        self.word(value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::export::Hosts;
    use super::super::tests::defaults;
    use super::super::volume::Layout;
    use super::super::{Checked, Mistakes, check_texts};
    use super::*;
    use crate::protocols::ExportConfig;

    #[test]
    fn over_iscsi_each_disk_is_lun_0_of_a_target_of_its_own() {
        let mut all = flags(&["ram:1GiB", "ram:1GiB"], "nqn.2026-11.a:b,IQN.2026-11.a:c");
        all.protocols.iscsi.iscsi = vec!["127.0.0.1:3260".to_owned()];
        let Checked { args, warnings, .. } = quick(&all).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let shown: Vec<_> = args.exports.iter().map(|one| one.shown().join(" ")).collect();
        assert_eq!(
            shown,
            [
                "nqn.2026-11.net.plateway:v0 1 nqn.2026-11.a:b",
                "nqn.2026-11.net.plateway:v1 1 nqn.2026-11.a:b",
                "iqn.2026-11.net.plateway:v0 0 iqn.2026-11.a:c",
                "iqn.2026-11.net.plateway:v1 0 iqn.2026-11.a:c"
            ]
        );
        let addresses: Vec<_> = args.listeners.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(addresses, ["127.0.0.1:4420", "127.0.0.1:3260"]);
        // Alone, nothing is a namespace.
        all.protocols.nvme.nvme.clear();
        all.hosts = Some("any".to_owned());
        let args = quick(&all).unwrap().args;
        assert!(args.exports.len() == 2 && args.exports.iter().all(|one| one.as_iscsi().is_some()));
    }

    fn protocol_flags(nvme: &[&str], aoe: &[&str]) -> protocols::Flags {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let mut flags = protocols::Flags::default();
        (flags.nvme.nvme, flags.aoe.aoe) = (owned(nvme), owned(aoe));
        flags
    }

    fn flags(disks: &[&str], hosts: &str) -> Flags {
        Flags {
            disks: disks.iter().map(|disk| (*disk).to_owned()).collect(),
            protocols: protocol_flags(&["127.0.0.1:4420"], &[]),
            hosts: (!hosts.is_empty()).then(|| hosts.to_owned()),
            ..Flags::default()
        }
    }

    fn quick(flags: &Flags) -> Result<Checked, Mistakes> {
        check_texts(None, flags, &defaults())
    }

    #[test]
    fn each_disk_is_a_volume_of_its_own() {
        let Checked { args, warnings, .. } =
            quick(&flags(&["ram:1GiB", "null:1TiB"], "any")).unwrap();
        assert!(warnings.is_empty());
        assert_eq!(args.disks[1].uri.to_string(), "null:1TiB");
        assert_eq!(args.volumes[1].layout, Layout::Single { disk: "d1".to_owned() });
        let names: Vec<_> = args.exports.iter().filter_map(ExportConfig::as_nvme).collect();
        let names: Vec<_> =
            names.into_iter().map(|e| (e.subsystem.as_str(), e.nsid, &e.hosts)).collect();
        assert_eq!(
            names,
            [
                ("nqn.2026-11.net.plateway:v0", 1, &Hosts::Any),
                ("nqn.2026-11.net.plateway:v1", 1, &Hosts::Any)
            ]
        );
        assert_eq!(args.server.shards, [0, 1, 2, 3]);
    }

    #[test]
    fn hosts_are_a_list_and_absent_hosts_are_denied() {
        let args = quick(&flags(&["ram:1GiB"], "nqn.2026-11.a:b,nqn.2026-11.a:c")).unwrap().args;
        assert_eq!(args.exports[0].shown()[2], "nqn.2026-11.a:b, nqn.2026-11.a:c");
        let denied = quick(&flags(&["ram:1GiB"], "")).unwrap();
        assert_eq!(denied.args.exports[0].shown()[2], "none");
        let warning = denied.warnings.lines().next().unwrap();
        assert!(warning.starts_with("command line:1: warning: no host may connect"), "{warning}");
    }

    #[test]
    fn slots_of_aoe_are_counted_and_it_takes_its_own_hosts() {
        let mut both = flags(&["ram:1GiB", "ram:1GiB"], "nqn.2026-11.a:b,02:00:00:00:00:01");
        both.protocols = protocol_flags(&["127.0.0.1:4420"], &["eth1,eth2/7.3"]);
        let args = quick(&both).unwrap().args;
        let shown: Vec<String> = args
            .exports
            .iter()
            .filter_map(ExportConfig::as_aoe)
            .map(|one| {
                format!("{} {} {} {}", one.volume, one.address, one.links.join("+"), one.hosts)
            })
            .collect();
        assert_eq!(
            shown,
            ["v0 7.3 eth1+eth2 02:00:00:00:00:01", "v1 7.4 eth1+eth2 02:00:00:00:00:01"]
        );
        assert_eq!(args.exports[1].shown()[2], "nqn.2026-11.a:b");
        assert_eq!(args.links.len(), 2);
        // Alone, nothing is a namespace.
        let mut alone = Flags { hosts: Some("any".to_owned()), ..both.clone() };
        alone.protocols = protocol_flags(&[], &["eth1,eth2/7.3"]);
        let Checked { args, warnings, .. } = quick(&alone).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(args.exports.iter().all(|one| one.as_aoe().is_some() && one.shown()[2] == "any"));
        for (wrong, part) in [
            ("eth1", "--aoe: expected an interface, / and shelf.slot, seen \"eth1\""),
            ("eth1/7", "command line:1: error: --aoe: "),
            ("eth1/7.254", "slot: expected 0 to 254, seen 255"),
        ] {
            let wrong = Flags { protocols: protocol_flags(&[], &[wrong]), ..alone.clone() };
            let lines: Vec<String> = quick(&wrong).unwrap_err().lines().collect();
            assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
        }
    }

    #[test]
    fn flags_pass_the_checks_of_a_file() {
        let mut wrong = flags(&["ram:1G"], "any,nqn.x");
        wrong.memory = Some("1MiB".to_owned());
        wrong.shards = Some("0,zero,7".to_owned());
        let lines: Vec<String> = quick(&wrong).unwrap_err().lines().collect();
        for part in [
            "unit \"G\" of \"1G\" is not known: write 1GiB",
            "\"any\" is not the name of a host",
            "NQN \"nqn.x\": expected a year and a month",
            "memory is too small: expected at least 16MiB for 1 shard (16MiB each), seen 1MiB",
            "shards: expected CPUs such as 0,1, seen \"zero\"",
            "this process cannot run on CPU 7: expected one of 0-3",
        ] {
            assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
        }
        assert_eq!(lines.len(), 6, "{lines:#?}");
    }

    #[test]
    fn flags_beside_a_file_override_the_server_alone() {
        let file = "[server]\nmemory = \"64MiB\"\nshards = [0]\n[[listener]]\nnvme = \"[::1]:0\"\npoll_us = 5\n";
        let mut over = Flags {
            memory: Some("128MiB".to_owned()),
            driver: Some(DriverChoice::Epoll),
            ..Flags::default()
        };
        over.poll_us = Some(50);
        let args = check_texts(Some(("p.toml", file)), &over, &defaults()).unwrap().args;
        assert_eq!(
            (args.server.memory_bytes, args.server.driver),
            (128 << 20, DriverChoice::Epoll)
        );
        assert_eq!(
            (args.server.shards.as_slice(), args.listeners[0].poll),
            (&[0][..], contract::Poll::Fixed(50))
        );
        over.memory = Some("128M".to_owned());
        let found = check_texts(Some(("p.toml", file)), &over, &defaults()).unwrap_err();
        let line = found.lines().next().unwrap();
        assert!(line.starts_with("command line:1: error: memory: unit \"M\""), "{line}");
    }
}
