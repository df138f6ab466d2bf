//! Disk URIs: each form, each mistake with its column, and random values that print and parse back.

use std::os::unix::ffi::OsStringExt;

use reactor::disk::BURN_MAX_US;
use wire::aoe::Address;

use super::modelled::Base;
use super::parse::NESTING_MAX;
use super::*;
use crate::config::address::HostPort;
use crate::config::tests::judge;
use crate::protocols::aoe::uri::{Over, TargetOptions, TargetUri};
use crate::protocols::iscsi::uri::{Mutual, Portal, UnitUri};
use crate::protocols::nvme_tcp::nqn::Nqn;
use crate::protocols::nvme_tcp::uri::{NamespaceUri, TCP_PORT};
use crate::protocols::{DiscoveryTarget, RemoteUri, parse_target};

fn parse(text: &str) -> DiskUri {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn message(text: &str) -> String {
    text.parse::<DiskUri>().expect_err(text).to_string()
}

#[test]
fn each_form_is_understood() {
    assert_eq!(parse("ram:1GiB"), DiskUri::Ram { bytes: 1 << 30, touch: false });
    assert_eq!(parse("ram:1GiB?touch=1"), DiskUri::Ram { bytes: 1 << 30, touch: true });
    assert_eq!(parse("null:1TiB"), DiskUri::Null { bytes: 1 << 40 });
    let file = |path: &str, create_bytes| DiskUri::File {
        path: path.into(),
        create_bytes,
        tail: Tail::Refuse,
    };
    assert_eq!(parse("file:/srv/a.img"), file("/srv/a.img", None));
    assert_eq!(parse("file:a b,c.img?create=64MiB"), file("a b,c.img", Some(64 << 20)));
    assert_eq!(parse("file:///srv/a.img"), file("/srv/a.img", None));
    assert_eq!(parse("file:/srv/100%25%3f.img"), file("/srv/100%?.img", None));
    assert_eq!(parse("/dev/nvme0n1"), DiskUri::BlockDevice { path: "/dev/nvme0n1".into() });
    assert_eq!(parse("volume:v0"), DiskUri::Volume { name: "v0".into() });
    let path = "/srv/a.img".into();
    let cut = DiskUri::File { path, create_bytes: None, tail: Tail::Ignore };
    assert_eq!(parse("file:/srv/a.img?tail=ignore"), cut);
    let inner = Box::new(DiskUri::Ram { bytes: 512, touch: false });
    let model = ModelUri { base: Base::Named("ssd"), options: Default::default() };
    let around = |instrument, inner| DiskUri::Instrumented { instrument, inner: Box::new(inner) };
    let faulty = around(Around::Faulty { seed: 255 }, *inner);
    let burns = around(Around::Burn { us: 20 }, around(Around::Model(Box::new(model)), faulty));
    let late = around(Around::Delay { us: 500 }, burns);
    assert_eq!(parse("delay:500,burn:20,model:ssd,faulty:0xff,ram:512"), late);
}

#[test]
fn digests_are_on_unless_the_uri_says_otherwise() {
    let namespace = |text| match parse(text) {
        DiskUri::Remote(RemoteUri::NvmeTcp(uri)) => uri,
        other => panic!("not a namespace: {other}"),
    };
    let uri = namespace("nvme+tcp://127.0.0.1:4421/nqn.2026-11.net.plateway:v0/7");
    assert!(uri.options.hdgst == 1 && uri.options.ddgst == 1);
    assert_eq!(
        (uri.options.queues, uri.options.depth, uri.nsid, uri.address.tcp_port),
        (1, 128, 7, 4421)
    );
    let text = "nvme+tcp://[::1]/nqn.2026-11.net.plateway:a%2Fb/1?queues=4&depth=64&hdgst=0&ddgst=0\
                &host_nqn=nqn.2026-11.net.plateway:me&keep_alive_ms=1000&deadline_s=5&quiesce_ms=0";
    let uri = namespace(text);
    assert_eq!((uri.options.hdgst, uri.options.ddgst), (0, 0));
    assert_eq!((uri.options.queues, uri.options.depth, uri.address.tcp_port), (4, 64, TCP_PORT));
    assert_eq!(
        (uri.options.keep_alive_ms, uri.options.deadline_s, uri.options.quiesce_ms),
        (1000, 5, 0)
    );
    assert_eq!(uri.subsystem.as_str(), "nqn.2026-11.net.plateway:a/b");
    assert_eq!(uri.host_nqn.unwrap().as_str(), "nqn.2026-11.net.plateway:me");
}

#[test]
fn a_logical_unit_has_a_portal_perhaps_with_a_user() {
    let unit = |text| match parse(text) {
        DiskUri::Remote(RemoteUri::Iscsi(uri)) => uri,
        other => panic!("not a logical unit: {other}"),
    };
    let uri = unit("iscsi://nas/iqn.2026-11.net.plateway:V0/0");
    assert_eq!(uri.to_string(), "iscsi://nas:3260/iqn.2026-11.net.plateway:v0/0");
    assert_eq!((uri.options.depth, uri.options.hdgst, uri.options.ddgst), (128, 1, 1));
    assert_eq!(uri.options.sessions, 1);
    assert_eq!((uri.lun, uri.portal.user, uri.initiator), (0, None, None));
    let text = "iscsi://a%40b%2Fc@[::1]:3261/iqn.2026-11.net.plateway:v0/16383?sessions=3&depth=64\
                &initiator=iqn.2026-11.net.plateway:me&secret_file=/etc/a%26b";
    let uri = unit(text);
    assert_eq!(uri.to_string(), text);
    assert_eq!((uri.portal.user.as_deref(), uri.portal.address.tcp_port), (Some("a@b/c"), 3261));
    assert_eq!(uri.portal.secret_file, Some("/etc/a&b".into()));
    assert_eq!(uri.initiator.unwrap().as_str(), "iqn.2026-11.net.plateway:me");
    assert_eq!((uri.lun, uri.options.sessions, uri.options.depth), (16_383, 3, 64));
}

#[test]
fn each_mistake_names_its_column_and_what_was_expected() {
    judge(include_str!("../tests/uris.txt"), |text| {
        let said = message(text);
        vec![said.strip_prefix(&format!("{text:?}, ")).expect("the text first").to_owned()]
    });
    assert!(message("").contains("column 1: expected an absolute path or one of"));
}

#[test]
fn a_target_for_discovery_has_a_default_port() {
    let links = |text: &str| match parse_target(text) {
        Ok(DiscoveryTarget::Aoe { interfaces, vlan }) => (interfaces, vlan),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(links("aoe://eth1"), (vec!["eth1".to_owned()], None));
    let both = vec!["eth1".to_owned(), "eth,2".to_owned()];
    assert_eq!(links("aoe://eth1,eth%2C2/?vlan=5"), (both, Some(5)));
    assert!(parse_target("aoe://").unwrap_err().to_string().contains("the name of an interface"));
    let error = parse_target("aoe://pw:p").unwrap_err().to_string();
    let words = "column 7: discover asks on interfaces, and a pseudowire ends in the process that has it (a disk is tried by: plateway bench aoe://pw:p/7.0 --config FILE)";
    assert_eq!(error, format!("\"aoe://pw:p\", {words}"));
    for (text, address) in
        [("nvme+tcp://10.0.0.1", "10.0.0.1:4420"), ("nvme+tcp://[::1]:8009/", "[::1]:8009")]
    {
        let target = DiscoveryTarget::NvmeTcp(address.parse().unwrap());
        assert_eq!(parse_target(text), Ok(target));
    }
    let portal = |address: &str, user: Option<&str>, secret_file: Option<&str>| {
        Ok(DiscoveryTarget::Iscsi(Portal {
            address: address.parse().unwrap(),
            user: user.map(str::to_owned),
            secret_file: secret_file.map(PathBuf::from),
            mutual: None,
        }))
    };
    assert_eq!(parse_target("iscsi://10.0.0.1/"), portal("10.0.0.1:3260", None, None));
    assert_eq!(
        parse_target("iscsi://me@[::1]:3261?secret_file=/s"),
        portal("[::1]:3261", Some("me"), Some("/s"))
    );
    for (text, path) in [
        ("nvme+tcp://10.0.0.1:4420/nqn.2026-11.a:s/1", "/nqn.2026-11.a:s/1"),
        ("iscsi://me@10.0.0.1/iqn.2026-11.a:t/0?secret_file=/s", "/iqn.2026-11.a:t/0"),
        ("aoe://eth1/7.0", "/7.0"),
    ] {
        let error = parse_target(text).unwrap_err().to_string();
        let (host, _) = text.split_once(path).unwrap();
        assert!(error.contains("and no path: discover asks a target for all"), "{error}");
        let end = format!("seen {path:?} (write {host:?})");
        assert!(
            error.contains(&format!("expected {}://", text.split(':').next().unwrap())),
            "{error}"
        );
        assert!(error.ends_with(&end), "{error}");
    }
    assert!(
        parse_target("10.0.0.1")
            .unwrap_err()
            .to_string()
            .contains("expected a target such as nvme+tcp://")
    );
    assert!(parse_target("nvme+tcp://").unwrap_err().to_string().contains("expected a host name"));
}

#[test]
fn canonical_spellings() {
    for (text, canonical) in [
        ("ram:1024MiB", "ram:1GiB"),
        ("ram:1GiB?touch=0", "ram:1GiB"),
        ("ram:1024MiB?touch=1", "ram:1GiB?touch=1"),
        ("file:///srv/a.img?create=1048576", "file:/srv/a.img?create=1MiB"),
        ("faulty:0x10,null:512B", "faulty:16,null:512"),
        ("model:hdd-10k?seed=07&channels=2,null:512B", "model:hdd-10k?channels=2&seed=7,null:512"),
        ("model:./a%2c%3f%2f.toml,null:512", "model:./a%2C%3F/.toml,null:512"),
        (
            "nvme+tcp://h/nqn.2026-11.net.plateway:v0/1?hdgst=1&queues=1&depth=32",
            "nvme+tcp://h:4420/nqn.2026-11.net.plateway:v0/1?depth=32",
        ),
        (
            "iscsi://h/iqn.2026-11.net.plateway:v0/0?sessions=1&depth=32",
            "iscsi://h:3260/iqn.2026-11.net.plateway:v0/0?depth=32",
        ),
        ("aoe://eth1,br%2d0/07.3?vlan=5&window=64", "aoe://eth1,br-0/7.3?vlan=5"),
        ("aoe://pw:to-ler2/7.03?window=32&quiesce_ms=10000", "aoe://pw:to-ler2/7.3?window=32"),
    ] {
        assert_eq!(parse(text).to_string(), canonical);
    }
}

/// A small generator (SplitMix64): the same values on every machine and in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn sectors(&mut self) -> u64 {
        (1 + self.below(1 << 40)) * 512
    }

    fn path(&mut self, absolute: bool) -> PathBuf {
        let mut bytes = if absolute { b"/".to_vec() } else { Vec::new() };
        for _ in 0..=self.below(12) {
            bytes.push(1 + self.below(255) as u8);
        }
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    }

    fn nqn(&mut self) -> Nqn {
        const ODD: [char; 12] = ['a', '/', '?', '&', '%', '=', ':', ',', '#', 'ö', '.', '0'];
        let name: String = (0..=self.below(9)).map(|_| ODD[self.below(12) as usize]).collect();
        format!("nqn.2026-11.net.plateway:{name}").parse().unwrap()
    }

    fn disk(&mut self, nesting: usize) -> DiskUri {
        match self.below(if nesting < NESTING_MAX { 12 } else { 8 }) {
            0 => DiskUri::Ram { bytes: self.sectors(), touch: self.below(2) == 1 },
            1 => DiskUri::Null { bytes: self.sectors() },
            2 => {
                let absolute = self.below(2) == 0;
                let create_bytes = (self.below(2) == 0).then(|| self.sectors());
                let tail = match create_bytes.is_none() && self.below(2) == 0 {
                    true => Tail::Ignore,
                    false => Tail::Refuse,
                };
                DiskUri::File { path: self.path(absolute), create_bytes, tail }
            }
            3 => DiskUri::BlockDevice { path: self.path(true) },
            4 => DiskUri::Volume { name: format!("v{}", self.below(1000)) },
            5 => DiskUri::Remote(RemoteUri::NvmeTcp(self.import())),
            6 => DiskUri::Remote(RemoteUri::Aoe(self.aoe())),
            7 => DiskUri::Remote(RemoteUri::Iscsi(self.unit())),
            around => DiskUri::Instrumented {
                instrument: match around {
                    8 => Around::Delay { us: self.below(u64::MAX) },
                    // All that are nested may burn so much together.
                    9 => Around::Burn { us: self.below(BURN_MAX_US / NESTING_MAX as u64 + 1) },
                    10 => Around::Faulty { seed: self.below(u64::MAX) },
                    _ => Around::Model(self.model()),
                },
                inner: Box::new(self.disk(nesting + 1)),
            },
        }
    }

    fn model(&mut self) -> Box<ModelUri> {
        const OPTIONS: [&str; 4] = ["", "?service=uniform", "?channels=9&seed=5", "?seek_us=12001"];
        let base = match self.below(2) {
            0 => ["hdd-10k", "hdd-5400", "ssd"][self.below(3) as usize].to_owned(),
            _ => "./x".to_owned(),
        };
        let text = format!("model:{base}{},null:512", OPTIONS[self.below(4) as usize]);
        let DiskUri::Instrumented { instrument: Around::Model(mut model), .. } = parse(&text)
        else {
            panic!("{text}")
        };
        if let Base::File(path) = &mut model.base {
            *path = self.path(true);
        }
        model
    }

    fn aoe(&mut self) -> TargetUri {
        const NAMES: [&str; 5] = ["eth1", "br-0.5", "a,b", "100%?", "ö"];
        let first = self.below(5) as usize;
        let interfaces = (0..=self.below(3) as usize).map(|i| NAMES[(first + i) % 5].to_owned());
        let over = match self.below(4) {
            0 => Over::Pseudowire(["p", "to-ler2", "a_1.b"][first % 3].to_owned()),
            _ => Over::Interfaces(interfaces.collect()),
        };
        let address = Address::new(self.below(65_535) as u16, self.below(255) as u8);
        let options = TargetOptions::default();
        let mut uri = TargetUri { over, address, options };
        if let Over::Interfaces(_) = uri.over {
            uri.options.vlan = self.below(2) as u16 * (1 + self.below(4_094) as u16);
        }
        uri.options.window = 63 + self.below(3) as u16;
        uri.options.deadline_s = 59 + self.below(3) as u32;
        uri.options.quiesce_ms = 9_999 + self.below(3) as u32;
        uri
    }

    fn address(&mut self) -> HostPort {
        const HOSTS: [&str; 4] = ["127.0.0.1", "nas.example.net", "fe80::1%eth0", "::1"];
        let host = HOSTS[self.below(4) as usize].to_owned();
        HostPort { host, tcp_port: self.below(65_536) as u16 }
    }

    fn unit(&mut self) -> UnitUri {
        const USERS: [&str; 4] = ["me", "a@b/c?d", "100%&", "\u{f6}:"];
        let some = |random: &mut Self, is: bool| is && random.below(2) == 0;
        let user_of = |random: &mut Self| USERS[random.below(4) as usize].to_owned();
        let user = some(self, true).then(|| user_of(self));
        let secret_file = some(self, user.is_some()).then(|| self.path(true));
        let mutual = some(self, user.is_some()).then(|| {
            let (user, has_file) = (user_of(self), some(self, true));
            Box::new(Mutual { user, secret_file: has_file.then(|| self.path(true)) })
        });
        let portal = Portal { address: self.address(), user, secret_file, mutual };
        let name = |number: u64| format!("iqn.2026-11.net.plateway:{number}").parse().unwrap();
        let target = name(self.below(100));
        let mut uri = UnitUri::new(portal, target, self.below(16_384) as u16);
        uri.options.sessions = 1 + self.below(3) as u16;
        uri.options.depth = 127 + self.below(3) as u16;
        uri.options.hdgst = self.below(2) as u8;
        uri.options.ddgst = self.below(2) as u8;
        uri.options.keep_alive_ms = 4_999 + self.below(3) as u32;
        uri.options.deadline_s = 59 + self.below(3) as u32;
        uri.options.quiesce_ms = 29_999 + self.below(3) as u32;
        uri.initiator = (self.below(2) == 0).then(|| name(self.below(100)));
        uri
    }

    fn import(&mut self) -> NamespaceUri {
        let address = self.address();
        let mut uri = NamespaceUri::new(address, self.nqn(), 1 + self.below(0xffff_fffe) as u32);
        uri.options.queues = 1 + self.below(3) as u16;
        uri.options.depth = 127 + self.below(3) as u16;
        uri.options.hdgst = self.below(2) as u8;
        uri.options.ddgst = self.below(2) as u8;
        uri.host_nqn = (self.below(2) == 0).then(|| self.nqn());
        uri.options.keep_alive_ms = 4_999 + self.below(3) as u32;
        uri.options.deadline_s = 59 + self.below(3) as u32;
        uri.options.quiesce_ms = 4_999 + self.below(3) as u32;
        uri
    }
}

#[test]
fn every_value_prints_and_parses_back() {
    let mut draw = Draw(1);
    for _ in 0..20_000 {
        let uri = draw.disk(0);
        let text = uri.to_string();
        assert_eq!(text.parse::<DiskUri>().as_ref(), Ok(&uri), "{text}");
        assert!(!text.chars().any(|c| c.is_ascii_control()), "{text:?}");
    }
}

#[test]
fn no_text_panics_the_parser() {
    let pieces = "aoe:// eth1 pw: /7.0 vlan=5 ram: file: // / ? & create= % 2F , delay: 1 model: ssd .toml ?seed= nvme+tcp: [ ] : \
                  nqn.2026-11.a: ö faulty: GiB iscsi:// me@ h /iqn.2026-11.a:b /0 secret_file=";
    let pieces: Vec<&str> = pieces.split_whitespace().collect();
    let mut draw = Draw(2);
    for _ in 0..50_000 {
        let text: String =
            (0..draw.below(10)).map(|_| pieces[draw.below(pieces.len() as u64) as usize]).collect();
        match text.parse::<DiskUri>() {
            Ok(uri) => assert_eq!(uri.to_string().parse(), Ok(uri), "{text}"),
            Err(error) => {
                assert!(text.is_char_boundary(error.at.end) && !error.to_string().is_empty())
            }
        }
    }
}

#[test]
fn the_same_bytes_are_recognised_through_instruments() {
    let same = |a: &str, b: &str| parse(a).same_backing(&parse(b));
    assert!(same("file:/a?create=1MiB", "delay:5,file:/a"));
    assert!(same("/dev/sda", "file:/dev/sda"));
    assert!(same("nvme+tcp://h/nqn.2026-11.a:b/1?queues=2", "nvme+tcp://h:4420/nqn.2026-11.a:b/1"));
    assert!(!same("nvme+tcp://h/nqn.2026-11.a:b/1", "nvme+tcp://h/nqn.2026-11.a:b/2"));
    let (one, other) =
        ("iscsi://me@h/iqn.2026-11.a:b/0?depth=8", "iscsi://h:3260/IQN.2026-11.a:b/0");
    assert!(same(one, other));
    assert!(!same(one, "iscsi://h/iqn.2026-11.a:b/1"));
    assert!(!same("ram:1GiB", "ram:1GiB"));
    assert!(same("aoe://eth1/7.0?window=8", "aoe://eth2,eth1/7.0"));
    assert!(!same("aoe://eth1/7.0", "aoe://eth2/7.0"));
    assert!(!same("aoe://eth1/7.0", "aoe://eth1/7.0?vlan=5"));
    assert!(same("aoe://pw:p/7.0?window=8", "aoe://pw:p/7.0"));
    assert!(!same("aoe://pw:p/7.0", "aoe://pw:q/7.0"));
    assert!(!same("aoe://pw:p/7.0", "aoe://pw:p/7.1"));
    assert!(!same("aoe://pw:p/7.0", "aoe://p/7.0"));
}
