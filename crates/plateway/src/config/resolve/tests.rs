//! Each mistake: its message, its line, and what was meant.

use super::super::mistake::Mistakes;
use super::super::server::DriverChoice;
use super::super::volume::Layout;
use super::super::{Checked, check};
use super::*;
use crate::protocols::ExportConfig;

fn defaults() -> Defaults {
    Defaults {
        cpus: vec![0, 1, 2, 3],
        control: "/run/p/control.sock".into(),
        state: "/var/lib/p".into(),
    }
}

fn run(text: &str) -> Result<Checked, Mistakes> {
    check("p.toml", text, &defaults())
}

fn good(text: &str) -> HiArgs {
    match run(text) {
        Ok(checked) => checked.args,
        Err(found) => panic!("{:#?}", found.lines().collect::<Vec<_>>()),
    }
}

/// Every error and warning of a text, with `p.toml:` cut off.
fn found(text: &str) -> Vec<String> {
    let found = run(text).map_or_else(|wrong| wrong, |checked| checked.warnings);
    found.lines().map(|line| line.strip_prefix("p.toml:").unwrap_or(&line).to_owned()).collect()
}

/// A good configuration of 18 lines; tests replace a line of it.
const GOOD: &str = r#"[server]
shards = [0]
[[disk]]
name = "d0"
uri = "ram:512MiB"
[[disk]]
name = "d1"
uri = "ram:512MiB"
[[volume]]
name = "v0"
layout = "stripe"
disks = ["d0", "d1"]
chunk = "64KiB"
[[listener]]
nvme = "127.0.0.1:4420"
[[export]]
volume = "v0"
nvme = { subsystem = "nqn.2026-11.net.plateway:v0", nsid = 1, hosts = "any" }
"#;

/// `GOOD` with a line (from 1) replaced, perhaps by several.
fn with(line: usize, replacement: &str) -> String {
    let lines = GOOD.lines().enumerate();
    lines.map(|(i, old)| format!("{}\n", if i + 1 == line { replacement } else { old })).collect()
}

/// Asserts that replacing a line gives exactly one mistake.
fn one(line: usize, replacement: &str, expected: &str) {
    assert_eq!(found(&with(line, replacement)), [expected], "{replacement}");
}

#[test]
fn everything_is_defaulted() {
    let args = good(GOOD);
    assert_eq!(found(GOOD), [""; 0]);
    assert_eq!((args.server.memory_bytes, args.server.driver), (256 << 20, DriverChoice::Auto));
    assert_eq!(
        (args.server.connections_max, args.server.connections_per_host_max),
        (16_384, 12_288)
    );
    assert_eq!(args.server.control, PathBuf::from("/run/p/control.sock"));
    let volume = &args.volumes[0];
    let disks = vec!["d0".to_owned(), "d1".to_owned()];
    assert_eq!(volume.layout, Layout::Stripe { disks, chunk_bytes: 65_536 });
    assert_eq!((volume.block_size, volume.uuid, volume.size_bytes), (512, None, None));
    assert_eq!((args.listeners[0].poll_us, args.listeners[0].connections_max), (0, 16_384));
    assert_eq!(args.disks[1].uri.to_string(), "ram:512MiB");
    assert_eq!(good("").server.shards, [0, 1, 2, 3]);
}

#[test]
fn the_number_of_shards_fits_the_memory() {
    assert_eq!(good("[server]\nmemory = \"32MiB\"").server.shards, [0, 1]);
    assert_eq!(good("[server]\nmemory = 16777216").server.shards, [0]);
    one(
        2,
        "shards = [0, 1, 2]\nmemory = \"40MiB\"",
        "3: error: memory is too small: expected at least 48MiB for 3 shards (16MiB each), seen 40MiB",
    );
    one(
        2,
        "memory = \"8MiB\"",
        "2: error: memory is too small: expected at least 16MiB for 1 shard (16MiB each), seen 8MiB",
    );
}

#[test]
fn mistakes_of_the_server() {
    one(
        2,
        "shards = []",
        "2: error: shards is empty: expected at least one CPU, or no key at all for one shard a core",
    );
    one(2, "shards = [0, 1, 0]", "2: error: CPU 0 has a shard already");
    one(2, "shards = [9]", "2: error: this process cannot run on CPU 9: expected one of 0-3");
    one(
        2,
        "shards = 2",
        "2: error: shards of [server]: expected a list of CPUs such as [0, 1], seen an integer",
    );
    one(
        2,
        "memmory = \"1GiB\"",
        "2: error: \"memmory\" is not a key of [server] (did you mean memory?)",
    );
    one(
        2,
        "memory = \"256M\"",
        "2: error: memory: unit \"M\" of \"256M\" is not known: write 256MiB (powers of 1024) or 256MB (powers of 1000)",
    );
    one(2, "memory = -1", "2: error: memory: expected a size, seen -1");
    one(2, "control = \"\"", "2: error: control: expected a path, seen \"\"");
    let long = format!("control = \"/{}\"", "x".repeat(107));
    one(2, &long, "2: error: the path of a socket has at most 107 bytes, seen 108");
    one(
        2,
        "driver = \"io-uring\"",
        "2: error: driver: expected auto, io_uring, epoll, seen \"io-uring\" (did you mean io_uring?)",
    );
    one(2, "max_connections = 0", "2: error: max_connections: expected 1 to 1048576, seen 0");
    one(
        2,
        "max_connections = 10\nmax_connections_per_host = 11",
        "3: error: max_connections_per_host: expected 1 to 10, seen 11",
    );
    assert_eq!(good(&with(2, "max_connections = 1")).server.connections_per_host_max, 1);
}

#[test]
fn mistakes_of_tables_and_types() {
    let keys = "known keys: server, disk, volume, link, listener, export";
    assert_eq!(
        found("[zebra]"),
        [format!("1: error: \"zebra\" is not a key of the configuration ({keys})")]
    );
    assert_eq!(
        found("[[disks]]")[0],
        "1: error: \"disks\" is not a key of the configuration (did you mean disk?)"
    );
    assert_eq!(
        found("[disk]\nname = \"d0\"")[0],
        "1: error: disk is a list of tables: expected [[disk]], seen [disk]"
    );
    assert_eq!(found("server = 1"), ["1: error: [server]: expected a table, seen an integer"]);
    assert_eq!(found("disk = 1"), ["1: error: expected [[disk]] tables, seen an integer"]);
    let disk = "expected a disk in quotes, such as \"ram:512MiB\", seen an integer";
    one(5, "uri = 7", &format!("5: error: uri of [[disk]]: {disk}"));
    let two = found(&with(5, "uri = 7").replace("uri = \"ram:512MiB\"", ""));
    let absent = "6: error: this [[disk]] has no uri (add uri = \"ram:512MiB\")";
    assert_eq!(two, [format!("5: error: uri of [[disk]]: {disk}").as_str(), absent]);
    let syntax = found("[server]\nmemory = \n[[disk]]\n");
    assert!(syntax.len() == 1 && syntax[0].starts_with("2: error: "), "{syntax:?}");
}

#[test]
fn mistakes_of_disks() {
    one(
        5,
        "uri = \"ram:512MB1\"",
        "5: error: unit \"MB1\" of \"512MB1\" is not known: write 512MiB (powers of 1024) or 512MB (powers of 1000)",
    );
    one(
        5,
        "uri = \"iscsi://host:3260/iqn.x/0\"",
        "5: error: iscsi is not built in; this program opens ram: null: file: delay: faulty: nvme+tcp:// aoe:// volume: and block devices",
    );
    one(5, "", "3: error: this [[disk]] has no uri (add uri = \"ram:512MiB\")");
}

#[test]
fn names_are_well_formed_and_unique() {
    let duplicate = with(7, "name = \"d0\"").replace("[\"d0\", \"d1\"]", "[\"d0\"]");
    assert_eq!(found(&duplicate), ["7: error: there is a disk \"d0\" already"]);
    let odd = with(7, "name = \"d 1\"").replace("\"d1\"]", "\"d 1\"]");
    let rule =
        "expected a name of 1 to 64 letters, digits, -, _ or . that begins with a letter or digit";
    assert_eq!(found(&odd), [format!("7: error: {rule}, seen \"d 1\"")]);
    let second = "volume = \"v0\"\n[[volume]]\nname = \"v0\"\ndisks = [\"d2\"]\n[[disk]]\nname = \"d2\"\nuri = \"null:1GiB\"\n[[export]]\nvolume = \"v0\"";
    assert_eq!(
        found(&with(17, second))[0],
        "16: error: this [[export]] has no nvme (add nvme = { subsystem = \"nqn.2026-11.net.plateway:v0\", nsid = 1, hosts = \"any\" }, \
         or aoe = { interface = \"eth1\", shelf = 7, slot = 0, hosts = \"any\" })"
    );
    assert_eq!(found(&with(17, second))[1], "19: error: there is a volume \"v0\" already");
    let unnamed = with(10, "");
    assert_eq!(found(&unnamed)[0], "9: error: this [[volume]] has no name (add name = \"v0\")");
}

#[test]
fn two_disks_are_never_the_same_blocks() {
    let text = with(5, "uri = \"file:/a?create=1GiB\"")
        .replace("uri = \"ram:512MiB\"", "uri = \"delay:5,file:/a\"");
    assert_eq!(found(&text), ["8: error: disks d0 and d1 are the same blocks: file:/a"]);
    one(
        5,
        "uri = \"volume:v0\"",
        "5: error: a volume cannot be a disk of the configuration (name the disks of that volume instead)",
    );
}

#[test]
fn disks_of_a_volume_exist_and_are_used_once() {
    one(
        12,
        "disks = [\"d0\", \"d1\", \"d2\"]",
        "12: error: there is no disk \"d2\" (did you mean d0?)",
    );
    one(
        12,
        "disks = [\"d0\", \"d1\", \"tape\"]",
        "12: error: there is no disk \"tape\" (disks: d0, d1)",
    );
    one(
        12,
        "disks = [\"d0\", \"d1\", \"d0\"]",
        "12: error: disk d0 is used twice: this volume has it already",
    );
    one(
        13,
        "[[volume]]\nname = \"v1\"\ndisks = [\"d1\"]\n[[export]]\nvolume = \"v1\"\nnvme = { subsystem = \"nqn.2026-11.a:b\", nsid = 1, hosts = \"any\" }",
        "15: error: disk d1 is used twice: volume v0 has it already",
    );
    let empty = found(&with(12, "disks = []"));
    assert_eq!(
        empty,
        [
            "4: warning: disk d0 is in no volume",
            "7: warning: disk d1 is in no volume",
            "12: error: disks is empty: a volume needs at least one disk"
        ]
    );
    assert_eq!(
        found(&with(12, "")).last().unwrap(),
        "9: error: this [[volume]] has no disks (add disks = [\"d0\"])"
    );
    let nothing = "[[volume]]\nname = \"v0\"\ndisks = [\"d0\"]";
    assert_eq!(found(nothing), ["3: error: there is no disk \"d0\" (there is no [[disk]] at all)"]);
}

#[test]
fn layouts() {
    one(
        11,
        "layout = \"stirpe\"",
        "11: error: layout: expected single, concat, stripe, seen \"stirpe\" (did you mean stripe?)",
    );
    one(11, "", "9: error: this [[volume]] has no layout (add layout = \"stripe\", or \"concat\")");
    let single = with(13, "").replace("\"stripe\"", "\"single\"");
    assert_eq!(
        found(&single),
        [
            "12: error: a single volume has one disk, seen 2 (layout = \"concat\" or \"stripe\" takes several)"
        ]
    );
    let concat = GOOD.replace("\"stripe\"", "\"concat\"");
    assert_eq!(
        found(&concat),
        ["13: error: only a stripe has a chunk, and this volume is a concat"]
    );
    let alone =
        "[[disk]]\nname = \"d0\"\nuri = \"null:1TiB\"\n[[volume]]\nname = \"v0\"\ndisks = [\"d0\"]";
    assert_eq!(good(alone).volumes[0].layout, Layout::Single { disk: "d0".to_owned() });
    let import =
        with(5, "uri = \"nvme+tcp://10.0.0.1:4420/nqn.2026-11.net.plateway:v9/1?queues=4\"");
    assert_eq!(found(&import), [""; 0]);
}

#[test]
fn chunks() {
    one(
        13,
        "chunk = \"96KiB\"",
        "13: error: chunk: expected a power of two, seen 96KiB (the nearest chunk below is 64KiB)",
    );
    one(
        13,
        "chunk = 5000",
        "13: error: chunk: expected a multiple of 4KiB, seen 5000 (the nearest chunk below is 4KiB)",
    );
    one(
        13,
        "chunk = \"2KiB\"",
        "13: error: chunk: expected a multiple of 4KiB, seen 2KiB (the smallest chunk is 4KiB)",
    );
    one(
        13,
        "chunk = \"2KiB\"\nblock_size = 4096",
        "13: error: chunk: expected at least one block of 4096 bytes, seen 2KiB (the smallest chunk is 4KiB)",
    );
    one(
        13,
        "chunk = \"1GiB\"",
        "13: error: chunk: expected at most 64MiB, seen 1GiB (the nearest chunk below is 64MiB)",
    );
    one(
        13,
        "chunk = 0",
        "13: error: chunk: expected at least one block of 512 bytes, seen 0 (the smallest chunk is 4KiB)",
    );
}

#[test]
fn block_sizes_sizes_and_uuids() {
    one(13, "block_size = 1024", "13: error: block_size: expected 512 or 4096, seen 1024");
    assert_eq!(good(&with(13, "block_size = 4096")).volumes[0].block_size, 4096);
    assert_eq!(
        good(&with(13, "block_size = \"4KiB\"\nsize = \"1MiB\"")).volumes[0].size_bytes,
        Some(1 << 20)
    );
    one(
        13,
        "size = 1000",
        "13: error: size: expected a multiple of block_size 512, not zero; seen 1000",
    );
    one(
        13,
        "uuid = \"f81d4fae\"",
        "13: error: uuid: expected a UUID such as f81d4fae-7dec-41d0-a765-00a0c91e6bf6, seen \"f81d4fae\"",
    );
    let uuid = "uuid = \"f81d4fae-7dec-41d0-a765-00a0c91e6bf6\"";
    let two = format!(
        "{uuid}\n[[disk]]\nname = \"d2\"\nuri = \"ram:1MiB\"\n[[volume]]\nname = \"v1\"\ndisks = [\"d2\"]\n{uuid}"
    );
    let found = found(&with(13, &two));
    assert_eq!(
        found,
        [
            "18: warning: volume v1 is in no export",
            "20: error: two volumes cannot have one UUID: hosts would take them for one disk"
        ]
    );
}

#[test]
fn listeners() {
    one(
        15,
        "nvme = \"127.0.0.1\"",
        "15: error: expected a colon and a port after the host, as in 127.0.0.1:4420; seen \"\"",
    );
    one(
        15,
        "nvme = \"::1:4420\"",
        "15: error: an IPv6 address stands in brackets, as in [::1]:4420; seen \"::1:4420\"",
    );
    one(
        15,
        "",
        "14: error: this [[listener]] has no nvme (add nvme = \"127.0.0.1:4420\", or aoe = \"eth1\")",
    );
    one(
        15,
        "nvme = \"[::]:4420\"\npoll_us = 50000",
        "16: error: poll_us: expected 0 to 10000, seen 50000",
    );
    one(
        15,
        "nvme = \"[::]:4420\"\nmax_connections = 99999",
        "16: error: max_connections: expected 1 to 16384, seen 99999",
    );
    let two =
        |address: &str| format!("nvme = \"127.0.0.1:4420\"\n[[listener]]\nnvme = \"{address}\"");
    one(15, &two("127.0.0.1:4420"), "17: error: two listeners on 127.0.0.1:4420");
    one(
        15,
        &two("[::]:4420"),
        "17: error: listeners 127.0.0.1:4420 and [::]:4420 overlap: both answer on TCP port 4420",
    );
    assert_eq!(good(&with(15, &two("127.0.0.2:4420"))).listeners.len(), 2);
    let none = GOOD.replace("[[listener]]\nnvme = \"127.0.0.1:4420\"\n", "");
    assert_eq!(
        found(&none),
        [
            "14: warning: nobody can reach the exports: there is no [[listener]] (add [[listener]] nvme = \"127.0.0.1:4420\")"
        ]
    );
}

fn nvme(subsystem: &str, nsid: &str, hosts: &str) -> String {
    format!("nvme = {{ subsystem = \"{subsystem}\", nsid = {nsid}{hosts} }}")
}

const NQN: &str = "nqn.2026-11.net.plateway:v0";

#[test]
fn exports_name_a_volume_and_a_namespace() {
    let other = "17: error: there is no volume \"v1\" (did you mean v0?)";
    assert_eq!(
        found(&with(17, "volume = \"v1\"")),
        ["10: warning: volume v0 is in no export", other]
    );
    let any = ", hosts = \"any\"";
    one(18, &nvme(NQN, "0", any), "18: error: nsid: expected 1 to 1024, seen 0");
    one(18, &nvme(NQN, "1025", any), "18: error: nsid: expected 1 to 1024, seen 1025");
    one(
        18,
        &format!("nvme = {{ subsystem = \"{NQN}\", hosts = \"any\" }}"),
        "18: error: this nvme of [[export]] has no nsid (add nsid = 1)",
    );
    one(
        18,
        "nvme = { nsid = 1, hosts = \"any\" }",
        "18: error: this nvme of [[export]] has no subsystem (add subsystem = \"nqn.2026-11.net.plateway:v0\")",
    );
    one(
        18,
        &nvme("iqn.2026-11.net.plateway:v0", "1", any),
        "18: error: NQN \"iqn.2026-11.net.plateway:v0\": expected \"nqn.\", as in nqn.2026-11.net.plateway:v0",
    );
    one(
        18,
        &nvme("nqn.2014-08.org.nvmexpress.discovery", "1", any),
        "18: error: the discovery subsystem cannot hold an export (every listener has it without being told; name a subsystem of your own)",
    );
    let unknown = found(&with(18, &nvme(NQN, "1", ", host = \"any\"")));
    assert_eq!(
        unknown[1],
        "18: error: \"host\" is not a key of nvme of [[export]] (did you mean hosts?)"
    );
    assert_eq!(unknown.len(), 2, "{unknown:?}");
}

#[test]
fn hosts_are_denied_unless_written() {
    let help = "(name them as in their /etc/nvme/hostnqn: hosts = [\"nqn...\"], or hosts = \"any\" (as a flag: --hosts any))";
    one(
        18,
        &nvme(NQN, "1", ""),
        &format!("18: warning: no host may connect: this export names none {help}"),
    );
    one(
        18,
        &nvme(NQN, "1", ", hosts = []"),
        &format!("18: warning: no host may connect: the list is empty {help}"),
    );
    one(
        18,
        &nvme(NQN, "1", ", hosts = \"all\""),
        "18: error: hosts: expected \"any\" or a list of host NQNs, seen \"all\" (every host is hosts = \"any\")",
    );
    one(
        18,
        &nvme(NQN, "1", ", hosts = \"nqn.2026-11.a:b\""),
        "18: error: hosts: expected \"any\" or a list of host NQNs, seen \"nqn.2026-11.a:b\" (one host is a list too: hosts = [\"nqn.2026-11.a:b\"])",
    );
    one(
        18,
        &nvme(NQN, "1", ", hosts = [\"any\"]"),
        "18: error: hosts: \"any\" is not the name of a host (write hosts = \"any\", without the list)",
    );
    one(
        18,
        &nvme(NQN, "1", ", hosts = [\"nqn.2026-11.a\"]"),
        "18: error: NQN \"nqn.2026-11.a\": expected a colon and a name after the domain, as in nqn.2026-11.net.plateway:v0",
    );
    one(
        18,
        &nvme(NQN, "1", ", hosts = [\"nqn.2026-11.a:b\", \"nqn.2026-11.a:b\"]"),
        "18: warning: host nqn.2026-11.a:b is named twice",
    );
    one(
        18,
        &nvme(NQN, "1", ", hosts = 1"),
        "18: error: hosts of nvme of [[export]]: expected \"any\" or a list of host NQNs, seen an integer",
    );
}

#[test]
fn exports_do_not_collide() {
    let second = |volume: &str, subsystem: &str, nsid: &str, hosts: &str| {
        let more = "[[disk]]\nname = \"d2\"\nuri = \"ram:1MiB\"\n[[volume]]\nname = \"v1\"\ndisks = [\"d2\"]\n";
        found(&format!(
            "{GOOD}{more}[[export]]\nvolume = \"{volume}\"\n{}\n",
            nvme(subsystem, nsid, hosts)
        ))
    };
    let any = ", hosts = \"any\"";
    assert_eq!(second("v1", NQN, "2", any), [""; 0]);
    assert_eq!(
        second("v1", NQN, "1", any),
        [format!("27: error: {NQN} has a namespace 1 already")]
    );
    let same = second("v0", NQN, "2", any);
    assert_eq!(
        same[1],
        format!(
            "26: error: volume v0 is in {NQN} twice (hosts refuse two namespaces of one identity)"
        )
    );
    let other = second("v0", "nqn.2026-11.a:b", "2", any);
    assert!(other[1].starts_with("26: warning: volume v0 is in two subsystems"), "{other:?}");
    let different = second("v1", NQN, "2", ", hosts = [\"nqn.2026-11.a:b\"]");
    assert_eq!(
        different,
        [format!(
            "27: error: the exports of {NQN} name different hosts (a host connects to a subsystem as a whole: repeat the same hosts, or use another subsystem)"
        )]
    );
}

#[test]
fn a_listener_is_of_one_protocol() {
    let aoe =
        |line: &str| format!("nvme = \"127.0.0.1:4420\"\n[[listener]]\naoe = \"eth1\"\n{line}");
    let unused = "17: warning: nothing is exported on eth1 (add [[export]] aoe = { interface = ..., shelf = 7, slot = 0, hosts = ... })";
    one(15, &aoe(""), unused);
    let both = |line: &str| {
        found(&with(15, &aoe(line))).into_iter().find(|line| line.contains("error")).unwrap()
    };
    assert_eq!(
        both("poll_us = 5"),
        "18: error: poll_us is for listeners of NVMe/TCP, and this one is aoe (frames have no connections, and are received by interrupt)"
    );
    assert_eq!(
        both("link = \"xpd\""),
        "18: error: link: expected packet, xdp, seen \"xpd\" (did you mean xdp?)"
    );
    assert_eq!(both("vlan = 4095"), "18: error: vlan: expected 1 to 4094, seen 4095");
    assert_eq!(both("[[listener]]\naoe = \"eth1\""), "19: error: two listeners on eth1");
    assert_eq!(
        both("nvme = \"[::1]:1\""),
        "17: error: a listener has either nvme or aoe (write a [[listener]] for each)"
    );
    one(
        15,
        "nvme = \"127.0.0.1:4420\"\nvlan = 5",
        "16: error: vlan is for listeners of AoE, and this one is nvme (aoe = \"eth1\")",
    );
    one(
        15,
        "nvme = \"127.0.0.1:4420\"\n[[listener]]\naoe = 1",
        "17: error: aoe of [[listener]]: expected the name of an interface in quotes, such as \"eth1\", seen an integer",
    );
}

fn aoe(keys: &str) -> String {
    format!("volume = \"v0\"\naoe = {{ {keys} }}")
}

/// Asserts that an AoE export in place of the namespace of `GOOD` gives exactly one mistake at its line.
fn one_aoe(keys: &str, expected: &str) {
    assert_eq!(
        found(&with(18, "").replace("volume = \"v0\"\n", &(aoe(keys) + "\n"))),
        [expected],
        "{keys}"
    );
}

#[test]
fn aoe_exports_have_an_address_and_links() {
    let text = with(18, "").replace(
        "volume = \"v0\"\n",
        &aoe("interface = [\"eth1\", \"eth2\"], shelf = 7, slot = 0, hosts = [\"02:00:00:00:00:0A\"]"),
    );
    let args = good(&text);
    let [ExportConfig::Aoe(export)] = args.exports.as_slice() else { panic!("{:?}", args.exports) };
    assert_eq!((export.address.to_string(), export.buffers), ("7.0".into(), 64));
    assert_eq!(export.links, ["eth1", "eth2"]);
    assert_eq!(export.hosts.to_string(), "02:00:00:00:00:0a");
    let links: Vec<String> =
        args.links.iter().map(|link| format!("{} {}", link.name, link.access)).collect();
    assert_eq!(links, ["eth1 packet", "eth2 packet"]);
    let usual = ", hosts = \"any\"";
    for (keys, expected) in [
        (
            "shelf = 7, slot = 0",
            "18: error: this aoe of [[export]] has no interface (add interface = \"eth1\", or link = the name of a [[link]])",
        ),
        (
            "interface = \"eth1\", slot = 0",
            "18: error: this aoe of [[export]] has no shelf (add shelf = 0)",
        ),
        (
            "interface = \"eth1\", shelf = 65535, slot = 0",
            "18: error: shelf: expected 0 to 65534, seen 65535",
        ),
        (
            "interface = \"eth1\", shelf = 7, slot = 255",
            "18: error: slot: expected 0 to 254, seen 255",
        ),
        (
            "interface = \"eth1\", shelf = 4095, slot = 0",
            "18: warning: Linux refuses shelf 4095: it takes it for switches that nobody set (any other shelf up to 65534 will do)",
        ),
        (
            "interface = \"eth1\", shelf = 7, slot = 0, buffers = 1",
            "18: error: buffers: expected 2 to 1024, seen 1",
        ),
        (
            "interface = \"eth1\", shelf = 7, slot = 0, vlan = 0",
            "18: error: vlan: expected 1 to 4094, seen 0",
        ),
        (
            "interface = [], shelf = 7, slot = 0",
            "18: error: interface is empty: an export answers on at least one",
        ),
        (
            "interface = \"eth 1\", shelf = 7, slot = 0",
            "18: error: expected the name of an interface, of 1 to 15 bytes without blanks, / and :, seen \"eth 1\"",
        ),
        (
            "interface = [\"eth1\", \"eth1\"], shelf = 7, slot = 0",
            "18: warning: interface eth1 is named twice",
        ),
    ] {
        one_aoe(&format!("{keys}{usual}"), expected);
    }
    assert_eq!(
        found(&with(18, "aoe = 7")),
        ["18: error: aoe of [[export]]: expected a table, seen an integer"]
    );
    // Without anything else, only the namespace needs a listener of NVMe/TCP.
    let alone = text.replace("[[listener]]\nnvme = \"127.0.0.1:4420\"\n", "");
    assert_eq!(found(&alone), [""; 0]);
}

#[test]
fn stations_are_denied_unless_written() {
    let place = "interface = \"eth1\", shelf = 7, slot = 0";
    let help = "(name the MAC addresses of initiators as `ip link` shows them: hosts = [\"02:00:00:00:00:01\"], or hosts = \"any\" (as a flag: --hosts any))";
    one_aoe(place, &format!("18: warning: no station may use it: this export names none {help}"));
    one_aoe(
        &format!("{place}, hosts = []"),
        &format!("18: warning: no station may use it: the list is empty {help}"),
    );
    one_aoe(
        &format!("{place}, hosts = \"02:00:00:00:00:01\""),
        "18: error: hosts: expected \"any\" or a list of MAC addresses, seen \"02:00:00:00:00:01\" (one station is a list too: hosts = [\"02:00:00:00:00:01\"])",
    );
    one_aoe(
        &format!("{place}, hosts = [\"01:00:00:00:00:01\"]"),
        "18: error: 01:00:00:00:00:01 is a group address, and no frame comes from one",
    );
    one_aoe(
        &format!("{place}, hosts = [\"nqn.2026-11.a:b\"]"),
        "18: error: expected a MAC address such as 02:00:00:00:00:01, seen \"nqn.2026-11.a:b\" (NQNs are for nvme; AoE knows stations)",
    );
    one_aoe(
        &format!("{place}, hosts = [\"02:00:00:00:00:01\", \"02-00-00-00-00-01\"]"),
        "18: warning: station 02:00:00:00:00:01 is named twice",
    );
}

#[test]
fn aoe_exports_do_not_collide() {
    let place = |interface: &str, slot: u32| {
        format!("interface = {interface}, shelf = 7, slot = {slot}, hosts = \"any\"")
    };
    let two = |a: &str, b: &str| {
        found(&(GOOD.to_owned() + "[[export]]\n" + &aoe(a) + "\n[[export]]\n" + &aoe(b) + "\n"))
    };
    assert_eq!(
        two(&place("\"eth1\"", 0), &place("[\"eth2\", \"eth1\"]", 0)),
        ["24: error: 7.0 is exported on eth1 already"]
    );
    assert_eq!(
        two(&place("\"eth1\"", 0), &place("\"eth2\"", 0)),
        [
            "23: error: volume v0 is 7.0 already (one export answers on several interfaces: interface = [\"eth1\", \"eth2\"])"
        ]
    );
    assert_eq!(
        two(&place("\"eth1\"", 0), &place("\"eth1\"", 1)),
        [
            "23: warning: volume v0 is exported at two addresses (initiators take them for two disks, and do not see each other's writes in their caches)"
        ]
    );
    let blocks = GOOD.replace("chunk =", "block_size = 4096\nchunk =");
    assert_eq!(
        found(&format!("{blocks}aoe = {{ {} }}", place("\"eth1\"", 0))),
        [
            "18: error: volume v0 has blocks of 4096 bytes, and AoE addresses sectors of 512 (initiators would ask for parts of blocks; \
          block_size = 512 lets both protocols serve it, where its disks take such blocks)"
        ]
    );
}

#[test]
fn the_vlan_of_an_export_is_that_of_its_listener() {
    let listener =
        |interface: &str, vlan: &str| format!("[[listener]]\naoe = \"{interface}\"\n{vlan}\n");
    let export = |keys: &str| format!("aoe = {{ {keys}, shelf = 7, slot = 0, hosts = \"any\" }}\n");
    let vlan = |listeners: &str, keys: &str| {
        let args = good(&(GOOD.to_owned() + &export(keys) + listeners));
        let link = args.exports.iter().find_map(ExportConfig::as_aoe).unwrap().links[0].clone();
        let link = args.links.iter().find(|one| one.name == link).unwrap();
        (link.ethernet.vlan, args.links.len())
    };
    let tagged = listener("eth1", "vlan = 5");
    let both = tagged.clone() + &listener("eth1", "");
    assert_eq!(vlan("", "interface = \"eth1\""), (None, 1));
    assert_eq!(vlan(&tagged, "interface = \"eth1\""), (Some(5), 1));
    assert_eq!(vlan(&tagged, "interface = \"eth1\", vlan = 6"), (Some(6), 2));
    assert_eq!(vlan(&both, "interface = \"eth1\""), (None, 2));
    let wrong = |listeners: &str, keys: &str| {
        let all = found(&(GOOD.to_owned() + &export(keys) + listeners));
        all.into_iter().find(|line| line.contains("error")).unwrap()
    };
    assert_eq!(
        wrong(&(tagged.clone() + &listener("eth1", "vlan = 6")), "interface = \"eth1\""),
        "19: error: eth1 has listeners in several VLANs: expected vlan to say which of 5, 6"
    );
    let mixed = wrong(&tagged, "interface = [\"eth1\", \"eth2\"]");
    assert!(mixed.starts_with("19: error: the interfaces of an export are in one VLAN"), "{mixed}");
}

#[test]
fn links_have_a_name_and_exports_stand_on_them() {
    let links = "[[link]]\nname = \"san\"\nethernet = \"eth1\"\nvlan = 5\naccess = \"xdp\"\n[[link]]\nethernet = \"eth2\"\n";
    let target =
        |link: &str| format!("aoe = {{ link = {link}, shelf = 7, slot = 0, hosts = \"any\" }}\n");
    let args = good(&(GOOD.to_owned() + &target("[\"san\", \"eth2\"]") + links));
    assert_eq!(args.exports[1].as_aoe().unwrap().links, ["san", "eth2"]);
    let shown: Vec<String> = args
        .links
        .iter()
        .map(|one| format!("{}: {} {}", one.name, one.ethernet, one.access))
        .collect();
    assert_eq!(shown, ["san: eth1 vlan 5 xdp", "eth2: eth2 packet"]);
    // Its interface leads to it, under whatever name.
    let by_interface = target("").replace("link = ,", "interface = [\"eth1\"],");
    let args = good(&(GOOD.to_owned() + &by_interface + links));
    assert_eq!(args.exports[1].as_aoe().unwrap().links, ["san"]);
    let wrong = |text: &str| {
        let all = found(&(GOOD.to_owned() + text));
        all.into_iter().find(|line| line.contains("error")).unwrap()
    };
    for (text, expected) in [
        (target("\"sam\"") + links, "19: error: there is no link \"sam\" (did you mean san?)"),
        (
            target("\"san\"").replace("slot", "vlan = 5, slot") + links,
            "19: error: a link has an interface and a VLAN already (name either links, or interfaces and their VLAN)",
        ),
        (target("[]") + links, "19: error: link is empty: an export answers on at least one"),
        (
            "[[link]]\nname = \"san\"\n".to_owned(),
            "19: error: this [[link]] has no ethernet (add ethernet = \"eth1\")",
        ),
        (links.replace("eth2\"", "eth1\"\nvlan = 5"), "25: error: two links on eth1 vlan 5"),
        (
            links.replace("\"san\"", "\"eth2\""),
            "25: error: there is a link \"eth2\" already, on eth1 vlan 5 (give the one on eth2 another name)",
        ),
        (
            links.replace("\"san\"", "\"my san\""),
            "20: error: expected a name of 1 to 64 letters, digits, -, _ or . that begins with a letter or digit, seen \"my san\"",
        ),
        (
            links.replace("xdp", "xpd"),
            "23: error: access: expected packet, xdp, seen \"xpd\" (did you mean xdp?)",
        ),
    ] {
        assert_eq!(wrong(&text), expected, "{text}");
    }
}

#[test]
fn every_mistake_is_reported_in_one_run() {
    let text = GOOD
        .replace("shards = [0]", "shards = [0, 0]")
        .replace("\"d1\"]", "\"dl\"]")
        .replace("chunk = \"64KiB\"", "chunk = \"63KiB\"\ncolour = 1")
        .replace("127.0.0.1:4420", "127.0.0.1:442000")
        .replace("nsid = 1", "nsid = 0");
    let lines: Vec<String> =
        found(&text).iter().map(|line| line[..line.find(':').unwrap()].to_owned()).collect();
    assert_eq!(lines, ["2", "7", "12", "13", "14", "16", "19"]);
}
