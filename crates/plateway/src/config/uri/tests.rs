//! Disk URIs: each form, each mistake with its column, and random values that print and parse back.

use std::os::unix::ffi::OsStringExt;

use wire::aoe::Address;

use super::parse::NESTING_MAX;
use super::*;
use crate::config::address::HostPort;
use crate::protocols::aoe::uri::{TargetOptions, TargetUri};
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
    assert_eq!(parse("ram:1GiB"), DiskUri::Ram { bytes: 1 << 30 });
    assert_eq!(parse("null:1TiB"), DiskUri::Null { bytes: 1 << 40 });
    let file = |path: &str, create_bytes| DiskUri::File { path: path.into(), create_bytes };
    assert_eq!(parse("file:/srv/a.img"), file("/srv/a.img", None));
    assert_eq!(parse("file:a b,c.img?create=64MiB"), file("a b,c.img", Some(64 << 20)));
    assert_eq!(parse("file:///srv/a.img"), file("/srv/a.img", None));
    assert_eq!(parse("file:/srv/100%25%3f.img"), file("/srv/100%?.img", None));
    assert_eq!(parse("/dev/nvme0n1"), DiskUri::BlockDevice { path: "/dev/nvme0n1".into() });
    assert_eq!(parse("volume:v0"), DiskUri::Volume { name: "v0".into() });
    let inner =
        Box::new(DiskUri::Faulty { seed: 255, inner: Box::new(DiskUri::Ram { bytes: 512 }) });
    assert_eq!(parse("delay:500,faulty:0xff,ram:512"), DiskUri::Delay { delay_us: 500, inner });
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
fn each_mistake_names_its_column_and_what_was_expected() {
    let nqn = "nqn.2026-11.net.plateway:v0";
    let cases: [(&str, &str); 30] = [
        ("ram:12XB", "column 5: unit \"XB\" of \"12XB\" is not known"),
        ("ram:", "column 5: expected a size such as 256MiB or 4096, seen \"\""),
        ("ram:1000", "column 5: expected a multiple of 512 bytes that is not zero, seen \"1000\""),
        ("null:0", "column 6: expected a multiple of 512 bytes that is not zero, seen \"0\""),
        ("file:", "column 6: expected a path, as in file:/srv/a.img, seen nothing"),
        (
            "file://nas/a.img",
            "column 6: expected a path without a host, as in file:/srv/a.img, seen \"//nas\"",
        ),
        (
            "file:/a?creat=1GiB",
            "expected one of the options create, seen \"creat\" (did you mean create?)",
        ),
        ("file:/a?create", "column 9: expected an option such as create=..., seen \"create\""),
        ("file:/a?create=1GiB&create=1GiB", "column 21: option create is given twice"),
        (
            "file:/a%zz",
            "column 8: expected two hexadecimal digits after % (write a % itself as %25)",
        ),
        ("file:/a%00", "column 6: a path holds no zero byte"),
        ("/dev/sda?x=1", "column 9: a block device takes no options"),
        ("a.img", "expected an absolute path or one of ram: null: file:"),
        ("", "column 1: expected an absolute path or one of"),
        ("rma:1GiB", "column 1: scheme \"rma\" is not known"),
        (
            "iscsi://host:3260/iqn.x/0",
            "column 1: iscsi is not built in; this program opens ram: null: file:",
        ),
        (
            "aoe://eth1/7.255",
            "column 12: expected a shelf of 0 to 65534, a dot and a slot of 0 to 254",
        ),
        (
            "aoe://eth1",
            "column 7: expected an interface and shelf.slot: aoe://eth1/7.0, seen \"eth1\"",
        ),
        ("aoe:eth1/7.0", "column 5: expected // and an interface: aoe://eth1/7.0"),
        ("aoe://eth1,/7.0", "column 12: expected the name of an interface, of 1 to 15 bytes"),
        ("aoe://eth1,eth1/7.0", "column 12: interface eth1 is named twice"),
        ("aoe://eth1/7.0?vlan=4095", "column 21: expected vlan of 1 to 4094, seen \"4095\""),
        (
            "aoe://eth1/7.0?queues=2",
            "expected one of the options window, vlan, deadline_s, quiesce_ms",
        ),
        ("rbd:pool/image", "column 1: rbd is not built in"),
        (
            "delay:fast,ram:1GiB",
            "column 7: expected microseconds as a whole number, a comma and a disk, seen \"fast\"",
        ),
        ("delay:500", "column 10: expected a comma and the disk inside, seen nothing"),
        ("faulty:1,delay:5,ram:1XB", "column 22: unit \"XB\""),
        ("volume:a/b", "column 8: expected a name of 1 to 64 letters"),
        (
            "nvme+tcp:host/x/1",
            "column 10: expected // and a host: nvme+tcp://host:port/NQN/NSID, seen \"host/x/1\"",
        ),
        ("nvme+tcp://h:99999/nqn.x/1", "column 14: expected a port of 0 to 65535, seen \"99999\""),
    ];
    for (text, part) in cases {
        assert!(message(text).contains(part), "{text}: {}", message(text));
    }
    let tail = |tail: &str| message(&format!("nvme+tcp://h/{nqn}{tail}"));
    assert!(tail("").contains("column 12: expected three parts: nvme+tcp://host:port/NQN/NSID"));
    assert!(tail("/a/1").contains("write a / in an NQN as %2F"));
    assert!(tail("/0").contains("column 42: expected a namespace of 1 to 4294967294, seen \"0\""));
    assert!(tail("/1?queues=129").contains("column 51: expected queues of 1 to 128, seen \"129\""));
    assert!(tail("/1?depth=0").contains("expected depth of 1 to 1024, seen \"0\""));
    assert!(tail("/1?hdgst=yes").contains("expected hdgst of 0 to 1, seen \"yes\""));
    assert!(tail("/1?hdgest=1").contains("did you mean hdgst?"));
    assert!(message("nvme+tcp://h/nqn.2026-11.net.plateway/1").contains("column 38: NQN"));
    assert!(message("nvme://h/x/1").contains("did you mean nvme+tcp?"));
    assert!(message("a.img").contains("a regular file is file:a.img"));
    assert!(
        message(&format!("{}ram:512", "delay:1,".repeat(9))).contains("more than 8 instruments")
    );
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
    for (text, address) in
        [("nvme+tcp://10.0.0.1", "10.0.0.1:4420"), ("nvme+tcp://[::1]:8009/", "[::1]:8009")]
    {
        let target = DiscoveryTarget::NvmeTcp(address.parse().unwrap());
        assert_eq!(parse_target(text), Ok(target));
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
        ("file:///srv/a.img?create=1048576", "file:/srv/a.img?create=1MiB"),
        ("faulty:0x10,null:512B", "faulty:16,null:512"),
        (
            "nvme+tcp://h/nqn.2026-11.net.plateway:v0/1?hdgst=1&queues=1&depth=32",
            "nvme+tcp://h:4420/nqn.2026-11.net.plateway:v0/1?depth=32",
        ),
        ("aoe://eth1,br%2d0/07.3?vlan=5&window=64", "aoe://eth1,br-0/7.3?vlan=5"),
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
        match self.below(if nesting < NESTING_MAX { 9 } else { 7 }) {
            0 => DiskUri::Ram { bytes: self.sectors() },
            1 => DiskUri::Null { bytes: self.sectors() },
            2 => {
                let absolute = self.below(2) == 0;
                let create_bytes = (self.below(2) == 0).then(|| self.sectors());
                DiskUri::File { path: self.path(absolute), create_bytes }
            }
            3 => DiskUri::BlockDevice { path: self.path(true) },
            4 => DiskUri::Volume { name: format!("v{}", self.below(1000)) },
            5 => DiskUri::Remote(RemoteUri::NvmeTcp(self.import())),
            6 => DiskUri::Remote(RemoteUri::Aoe(self.aoe())),
            7 => DiskUri::Delay {
                delay_us: self.below(u64::MAX),
                inner: Box::new(self.disk(nesting + 1)),
            },
            _ => DiskUri::Faulty {
                seed: self.below(u64::MAX),
                inner: Box::new(self.disk(nesting + 1)),
            },
        }
    }

    fn aoe(&mut self) -> TargetUri {
        const NAMES: [&str; 5] = ["eth1", "br-0.5", "a,b", "100%?", "ö"];
        let first = self.below(5) as usize;
        let interfaces = (0..=self.below(3) as usize).map(|i| NAMES[(first + i) % 5].to_owned());
        let interfaces = interfaces.collect();
        let address = Address::new(self.below(65_535) as u16, self.below(255) as u8);
        let options = TargetOptions::default();
        let mut uri = TargetUri { interfaces, address, options };
        uri.options.vlan = self.below(2) as u16 * (1 + self.below(4_094) as u16);
        uri.options.window = 63 + self.below(3) as u16;
        uri.options.deadline_s = 59 + self.below(3) as u32;
        uri.options.quiesce_ms = 9_999 + self.below(3) as u32;
        uri
    }

    fn import(&mut self) -> NamespaceUri {
        const HOSTS: [&str; 4] = ["127.0.0.1", "nas.example.net", "fe80::1%eth0", "::1"];
        let host = HOSTS[self.below(4) as usize].to_owned();
        let address = HostPort { host, tcp_port: self.below(65_536) as u16 };
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
    let pieces = "aoe:// eth1 /7.0 vlan=5 ram: file: // / ? & create= % 2F , delay: 1 nvme+tcp: [ ] : \
                  nqn.2026-11.a: ö faulty: GiB";
    let pieces: Vec<&str> = pieces.split_whitespace().collect();
    let mut draw = Draw(2);
    for _ in 0..50_000 {
        let text: String = (0..draw.below(10)).map(|_| pieces[draw.below(24) as usize]).collect();
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
    assert!(!same("ram:1GiB", "ram:1GiB"));
    assert!(same("aoe://eth1/7.0?window=8", "aoe://eth2,eth1/7.0"));
    assert!(!same("aoe://eth1/7.0", "aoe://eth2/7.0"));
    assert!(!same("aoe://eth1/7.0", "aoe://eth1/7.0?vlan=5"));
}
