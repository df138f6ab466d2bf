//! The quick way: `plateway serve ram:1GiB --nvme 127.0.0.1:4420 --hosts any`.
//!
//! Flags become the same [`LowArgs`] as a file, with spans into the command line, so that they pass the
//! same checks and their mistakes are shown in the same way. Each disk becomes a volume of its own:
//! disk `d0`, volume `v0`, subsystem `nqn.2026-11.net.plateway:v0`, namespace 1; the next ones `d1`, `v1`.
//! `--aoe eth1/7.0` exports the first disk at 7.0, the next at 7.1 and so on; `--hosts` names hosts of both protocols, told apart by how they are written.
//! Beside a file, flags override keys of `[server]` and `poll_us`, nothing else.

use toml::Spanned;

use super::file::{
    Low, LowAoeExport, LowArgs, LowDisk, LowExport, LowListener, LowNvmeExport, LowSize, LowVolume,
    LowWords,
};
use super::mistake::{Mistake, Span};
use wire::aoe::Address;
use wire::ethernet::MacAddress;

/// The domain that subsystems of the quick way are named in.
pub(crate) const NQN_PREFIX: &str = "nqn.2026-11.net.plateway:";

/// The flags of `serve` as they were typed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `DISK...`
    pub(crate) disks: Vec<String>,
    /// `--nvme`, once or more.
    pub(crate) nvme: Vec<String>,
    /// `--aoe INTERFACE[,INTERFACE]/SHELF.SLOT`, once or more.
    pub(crate) aoe: Vec<String>,
    /// `--hosts any|NQN[,NQN]`, for AoE MAC addresses.
    pub(crate) hosts: Option<String>,
    /// `--driver`
    pub(crate) driver: Option<String>,
    /// `--shards 0,1`
    pub(crate) shards: Option<String>,
    /// `--memory 256MiB`
    pub(crate) memory: Option<String>,
    /// `--poll-us 50`
    pub(crate) poll_us: Option<u32>,
    /// `--control PATH`
    pub(crate) control: Option<String>,
    /// `--state DIRECTORY`
    pub(crate) state: Option<String>,
}

impl Flags {
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
        let addresses: Vec<Spanned<String>> =
            self.nvme.iter().map(|address| line.flag("--nvme", address)).collect();
        let places: Vec<AoePlace> = self
            .aoe
            .iter()
            .map(|place| line.flag("--aoe", place))
            .filter_map(|written| aoe_place(&written, mistakes))
            .collect();
        let hosts = self.hosts.as_ref().map(|hosts| line.flag("--hosts", hosts));
        let ways = Ways {
            nvme: !addresses.is_empty() || self.aoe.is_empty(),
            hosts: hosts.as_ref().map(|hosts| hosts_for(hosts, Protocol::Nvme, self)),
            stations: hosts.as_ref().map(|hosts| hosts_for(hosts, Protocol::Aoe, self)),
            places,
        };
        self.merge_server(low, &mut line, mistakes);
        let poll_us = self.poll_us.map(|poll| {
            let written = line.flag("--poll-us", &poll.to_string());
            Spanned::new(written.span(), i64::from(poll))
        });
        for address in addresses {
            low.listeners.push(LowListener {
                span: address.span(),
                nvme: Some(address),
                ..LowListener::default()
            });
        }
        for listener in low.listeners.iter_mut().filter(|listener| listener.aoe.is_none()) {
            listener.poll_us = poll_us.clone().or(listener.poll_us.take());
        }
        for (i, uri) in disks.into_iter().enumerate() {
            add_disk(low, i, uri, &ways);
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
        take("--driver", &self.driver, &mut server.driver);
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

/// How the disks of the quick way are exported.
struct Ways {
    /// Whether as namespaces.
    nvme: bool,
    hosts: Low<LowWords>,
    stations: Low<LowWords>,
    places: Vec<AoePlace>,
}

/// An `--aoe`: where the first disk is.
struct AoePlace {
    interface: Spanned<LowWords>,
    address: Spanned<Address>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Nvme,
    Aoe,
}

/// `INTERFACE[,INTERFACE]/SHELF.SLOT`
fn aoe_place(written: &Spanned<String>, mistakes: &mut Vec<Mistake>) -> Option<AoePlace> {
    let (text, span) = (written.get_ref(), written.span());
    let Some((interfaces, address)) = text.split_once('/') else {
        let message = format!("--aoe: expected an interface, / and shelf.slot, seen {text:?}");
        mistakes.push(Mistake::error(span, message).help("as in --aoe eth1/7.0".to_owned()));
        return None;
    };
    let address_at = span.start + interfaces.len() + 1..span.end;
    match address.parse::<Address>() {
        Ok(address) => {
            let names =
                Spanned::new(span.start..span.start + interfaces.len(), interfaces.to_owned());
            Some(AoePlace {
                interface: Spanned::new(names.span(), LowWords::List(split_commas(&names))),
                address: Spanned::new(address_at, address),
            })
        }
        Err(error) => {
            mistakes.push(Mistake::error(address_at, format!("--aoe: {error}, seen {address:?}")));
            None
        }
    }
}

/// One disk of the quick way: a disk, a volume, and an export for each way to it.
fn add_disk(low: &mut LowArgs, i: usize, uri: Spanned<String>, ways: &Ways) {
    let span = uri.span();
    let here = |text: String| Some(Spanned::new(span.clone(), text));
    let disk = format!("d{i}");
    let volume = format!("v{i}");
    low.volumes.push(LowVolume {
        span: span.clone(),
        name: here(volume.clone()),
        layout: here("single".to_owned()),
        disks: Some(Spanned::new(span.clone(), vec![Spanned::new(span.clone(), disk.clone())])),
        ..LowVolume::default()
    });
    if ways.nvme {
        let nvme = LowNvmeExport {
            span: span.clone(),
            subsystem: here(format!("{NQN_PREFIX}{volume}")),
            nsid: Some(Spanned::new(span.clone(), 1)),
            hosts: ways.hosts.clone(),
        };
        low.exports.push(LowExport {
            span: span.clone(),
            volume: here(volume.clone()),
            nvme: Some(nvme),
            aoe: None,
        });
    }
    for AoePlace { interface, address } in &ways.places {
        let number = |number: i64| Some(Spanned::new(address.span(), number));
        let aoe = LowAoeExport {
            span: interface.span(),
            interface: Some(interface.clone()),
            shelf: number(address.get_ref().shelf.into()),
            slot: number(i64::from(address.get_ref().slot) + i as i64),
            hosts: ways.stations.clone(),
            ..LowAoeExport::default()
        };
        low.exports.push(LowExport {
            span: span.clone(),
            volume: here(volume.clone()),
            nvme: None,
            aoe: Some(aoe),
        });
    }
    low.disks.push(LowDisk { span: span.clone(), name: here(disk), uri: Some(uri) });
}

/// `any`, or the names of hosts separated by commas. MAC addresses are for AoE, anything else for NVMe if that is served, so that what is neither is shown once.
fn hosts_for(written: &Spanned<String>, protocol: Protocol, flags: &Flags) -> Spanned<LowWords> {
    let whose = |word: &str| match word.parse::<MacAddress>().is_ok() {
        true if !flags.aoe.is_empty() => Protocol::Aoe,
        false if flags.nvme.is_empty() && !flags.aoe.is_empty() => Protocol::Aoe,
        _ => Protocol::Nvme,
    };
    let mut words = split_commas(written);
    let hosts = match written.get_ref().as_str() {
        "any" => LowWords::Word("any".to_owned()),
        _ => {
            words.retain(|word| whose(word.get_ref()) == protocol);
            LowWords::List(words)
        }
    };
    Spanned::new(written.span(), hosts)
}

fn split_commas(written: &Spanned<String>) -> Vec<Spanned<String>> {
    let mut from = written.span().start;
    let mut parts = Vec::new();
    for part in written.get_ref().split(',') {
        parts.push(Spanned::new(from..from + part.len(), part.to_owned()));
        from += part.len() + 1;
    }
    parts
}

/// The command line, written again word by word.
struct Line {
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

    fn flag(&mut self, flag: &str, value: &str) -> Spanned<String> {
        self.word(flag);
        self.word(value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::defaults::Defaults;
    use super::super::model::{DriverChoice, Hosts, Layout};
    use super::super::{Checked, Mistakes, check_texts};
    use super::*;

    fn defaults() -> Defaults {
        Defaults { cpus: vec![0, 1], control: "/run/p.sock".into(), state: "/var/p".into() }
    }

    fn flags(disks: &[&str], hosts: &str) -> Flags {
        Flags {
            disks: disks.iter().map(|disk| (*disk).to_owned()).collect(),
            nvme: vec!["127.0.0.1:4420".to_owned()],
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
        let names: Vec<_> =
            args.exports.iter().map(|e| (e.subsystem.as_str(), e.nsid, &e.hosts)).collect();
        assert_eq!(
            names,
            [
                ("nqn.2026-11.net.plateway:v0", 1, &Hosts::Any),
                ("nqn.2026-11.net.plateway:v1", 1, &Hosts::Any)
            ]
        );
        assert_eq!(args.server.shards, [0, 1]);
    }

    #[test]
    fn hosts_are_a_list_and_absent_hosts_are_denied() {
        let args = quick(&flags(&["ram:1GiB"], "nqn.2026-11.a:b,nqn.2026-11.a:c")).unwrap().args;
        assert_eq!(args.exports[0].hosts.to_string(), "nqn.2026-11.a:b, nqn.2026-11.a:c");
        let denied = quick(&flags(&["ram:1GiB"], "")).unwrap();
        assert_eq!(denied.args.exports[0].hosts, Hosts::List(Vec::new()));
        let warning = denied.warnings.lines().next().unwrap();
        assert!(warning.starts_with("command line:1: warning: no host may connect"), "{warning}");
    }

    #[test]
    fn aoe_counts_slots_and_takes_its_own_hosts() {
        let mut both = flags(&["ram:1GiB", "ram:1GiB"], "nqn.2026-11.a:b,02:00:00:00:00:01");
        both.aoe = vec!["eth1,eth2/7.3".to_owned()];
        let args = quick(&both).unwrap().args;
        let shown: Vec<String> = args
            .aoe_exports
            .iter()
            .map(|one| {
                format!("{} {} {} {}", one.volume, one.address, one.interfaces.join("+"), one.hosts)
            })
            .collect();
        assert_eq!(
            shown,
            ["v0 7.3 eth1+eth2 02:00:00:00:00:01", "v1 7.4 eth1+eth2 02:00:00:00:00:01"]
        );
        assert_eq!(args.exports[1].hosts.to_string(), "nqn.2026-11.a:b");
        assert_eq!(args.links.len(), 2);
        // Alone, nothing is a namespace.
        let alone = Flags { nvme: Vec::new(), hosts: Some("any".to_owned()), ..both.clone() };
        let Checked { args, warnings, .. } = quick(&alone).unwrap();
        assert!(args.exports.is_empty() && warnings.is_empty(), "{warnings:?}");
        assert_eq!(args.aoe_exports[0].hosts, Hosts::Any);
        for (wrong, part) in [
            ("eth1", "--aoe: expected an interface, / and shelf.slot, seen \"eth1\""),
            ("eth1/7", "command line:1: error: --aoe: "),
            ("eth1/7.254", "slot: expected 0 to 254, seen 255"),
        ] {
            let wrong = Flags { aoe: vec![wrong.to_owned()], ..alone.clone() };
            let lines: Vec<String> = quick(&wrong).unwrap_err().lines().collect();
            assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
        }
    }

    #[test]
    fn flags_pass_the_checks_of_a_file() {
        let mut wrong = flags(&["ram:1G"], "any,nqn.x");
        wrong.memory = Some("1MiB".to_owned());
        wrong.shards = Some("0,zero,7".to_owned());
        wrong.driver = Some("iouring".to_owned());
        let lines: Vec<String> = quick(&wrong).unwrap_err().lines().collect();
        for part in [
            "unit \"G\" of \"1G\" is not known: write 1GiB",
            "\"any\" is not the name of a host",
            "NQN \"nqn.x\": expected a year and a month",
            "driver: expected auto, io_uring, epoll, seen \"iouring\" (did you mean io_uring?)",
            "memory is too small: expected at least 16MiB for 1 shard (16MiB each), seen 1MiB",
            "shards: expected CPUs such as 0,1, seen \"zero\"",
            "this process cannot run on CPU 7: expected one of 0-1",
        ] {
            assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
        }
        assert_eq!(lines.len(), 7, "{lines:#?}");
    }

    #[test]
    fn flags_beside_a_file_override_the_server_alone() {
        let file = "[server]\nmemory = \"64MiB\"\nshards = [0]\n[[listener]]\nnvme = \"[::1]:0\"\npoll_us = 5\n";
        let mut over = Flags {
            memory: Some("128MiB".to_owned()),
            driver: Some("epoll".to_owned()),
            ..Flags::default()
        };
        over.poll_us = Some(50);
        let args = check_texts(Some(("p.toml", file)), &over, &defaults()).unwrap().args;
        assert_eq!(
            (args.server.memory_bytes, args.server.driver),
            (128 << 20, DriverChoice::Epoll)
        );
        assert_eq!((args.server.shards.as_slice(), args.listeners[0].poll_us), (&[0][..], 50));
        over.memory = Some("128M".to_owned());
        let found = check_texts(Some(("p.toml", file)), &over, &defaults()).unwrap_err();
        let line = found.lines().next().unwrap();
        assert!(line.starts_with("command line:1: error: memory: unit \"M\""), "{line}");
    }
}
