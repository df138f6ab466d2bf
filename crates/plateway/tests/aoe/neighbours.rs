//! A router between whom and FRR's `bfdd` there are two cables: BFD watches both (RFC 5881), one over
//! IPv4 and one over IPv6, and packets go around the one that fails in silence.
//!
//! ```text
//!   plateway  c1 ---- c1  bfdd        10.0.1.1, 10.0.1.2       label 100 by c1, around by c2
//!             c2 ---- c2              fd09:2::1, fd09:2::2     label 200 by c2, around by c1
//! ```

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use contract::EtherType;
use serde_json::Value;
use wire::ethernet::{Header, MacAddress};
use wire::mpls::{Label, LabelStackEntry};

use crate::common::{Server, flat, text, write};
use crate::lan::{inside, ip, must, wait_until};
use crate::routed::shown;
use crate::station::Station;

const BFDD: &str = "/usr/lib/frr/bfdd";
const OURS: [&str; 2] = ["10.0.1.1", "fd09:2::1"];
const THEIRS: [&str; 2] = ["10.0.1.2", "fd09:2::2"];

/// The two namespaces, which are removed with the value.
struct Cables {
    here: String,
    there: String,
}

impl Cables {
    /// Makes them; says why not where it may not, or where nobody is to be there.
    fn make() -> Option<Cables> {
        if !Path::new(BFDD).exists() {
            testkit::skipped(format!("{BFDD} is not there (Debian package frr)"));
            return None;
        }
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let name = |end: &str| format!("plateway-bfd-{}-{number}-{end}", std::process::id());
        let cables = Cables { here: name("here"), there: name("there") };
        if let Err(why) = cables.build() {
            testkit::skipped(why);
            return None;
        }
        Some(cables)
    }

    fn build(&self) -> Result<(), String> {
        for namespace in [&self.here, &self.there] {
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        for (cable, at) in (1..).zip([0, 1]) {
            let (here, there) = (&self.here, &self.there);
            ip(&format!(
                "link add c{cable} address {} netns {here} type veth peer name c{cable} address {} netns {there}",
                mac(cable, 1),
                mac(cable, 2)
            ))?;
            for (namespace, ip_address, last) in [(here, OURS[at], 1), (there, THEIRS[at], 2)] {
                ip(&format!("-n {namespace} link set c{cable} addrgenmode none"))?;
                ip(&format!("-n {namespace} link set c{cable} up"))?;
                if at == 0 {
                    ip(&format!("-n {namespace} addr add {ip_address}/24 dev c{cable}"))?;
                } else {
                    // Neighbours are asked from an address of the link.
                    for six in [ip_address, &format!("fe80::{last}")] {
                        ip(&format!("-n {namespace} addr add {six}/64 dev c{cable} nodad"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Our router, of this configuration.
    fn route(&self, home: &Path, config: &str) -> Server {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.here, env!("CARGO_BIN_EXE_plateway")]);
        command.env("NO_COLOR", "1").stdin(Stdio::null());
        let args = ["--config", &write(home, config)];
        Server::try_start_by(command, home, "router", &args).unwrap_or_else(|log| panic!("{log}"))
    }

    /// What is sent from there on a cable is lost, and the cable stays up.
    fn cut(&self, cable: &str) {
        let there = &self.there;
        must(&format!("netns exec {there} nft add table netdev cut"));
        must(&format!(
            "netns exec {there} nft add chain netdev cut out {{ type filter hook egress device {cable} priority 0 ; policy drop ; }}"
        ));
    }

    fn mend(&self) {
        must(&format!("netns exec {} nft delete table netdev cut", self.there));
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for namespace in [&self.here, &self.there] {
            // One that was never made is no mistake.
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

/// The address of an end of a cable.
fn mac(cable: u8, end: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, cable, end])
}

/// FRR's bfdd, alone: without zebra it knows no interfaces, and needs none for its own addresses.
struct Bfdd {
    child: Child,
    sockets: PathBuf,
}

impl Bfdd {
    fn start(cables: &Cables, home: &Path) -> Bfdd {
        // It leaves root for a user of its own.
        fs::set_permissions(home, Permissions::from_mode(0o755)).unwrap();
        let sockets = home.join("bfdd");
        fs::create_dir(&sockets).unwrap();
        fs::set_permissions(&sockets, Permissions::from_mode(0o777)).unwrap();
        let peer = |at: usize| {
            format!(
                " peer {} local-address {}\n  transmit-interval 50\n  receive-interval 50\n  detect-multiplier 3\n !\n",
                OURS[at], THEIRS[at]
            )
        };
        let config = sockets.join("bfdd.conf");
        fs::write(&config, format!("bfd\n{}{}!\n", peer(0), peer(1))).unwrap();
        let at = |name: &str| sockets.join(name).display().to_string();
        let log = fs::File::create(home.join("bfdd.log")).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", &cables.there, BFDD, "-u", "frr", "-g", "frr", "-P", "0"])
            .args(["-f", &at("bfdd.conf"), "-i", &at("bfdd.pid"), "-z", &at("zserv.api")])
            .args(["--bfdctl", &at("bfdd.sock"), "--log", "stdout", "--vty_socket"])
            .arg(&sockets)
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .expect("bfdd starts");
        let socket = sockets.join("bfdd.vty");
        wait_until("bfdd answers", || socket.exists());
        Bfdd { child, sockets }
    }

    /// Has it do or tell something.
    fn ask(&self, commands: &[&str]) -> String {
        let mut vtysh = Command::new("vtysh");
        vtysh.args(["-d", "bfdd", "--vty_socket"]).arg(&self.sockets);
        vtysh.args(commands.iter().flat_map(|command| ["-c", command]));
        let output = vtysh.output().expect("vtysh, of the same package");
        assert!(output.status.success(), "{commands:?}: {output:?}");
        text(&output.stdout)
    }

    /// Whether it sees us so.
    fn sees(&self, at: usize, status: &str) -> bool {
        let shown = self.ask(&["show bfd peers json"]);
        let peers: Value = serde_json::from_str(&shown).expect("JSON");
        let peers = peers.as_array().expect("a list");
        peers.iter().any(|peer| peer["peer"] == OURS[at] && peer["status"] == status)
    }
}

impl Drop for Bfdd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The router's configuration; without a time to wait nobody is watched.
fn config(revert: Option<&str>) -> String {
    let mut text = String::new();
    for (cable, other, label) in [(1, 2, 100), (2, 1, 200)] {
        let (next_hop, around, address) =
            (mac(cable, 2), mac(other, 2), THEIRS[usize::from(cable) - 1]);
        text += &format!(
            "[[link]]\nethernet = \"c{cable}\"\nmpls = true\n\
             [[ilm]]\nlabel = {label}\nlink = \"c{cable}\"\nnext_hop = \"{next_hop}\"\nlabels = [{0}]\n\
             backup = {{ link = \"c{other}\", next_hop = \"{around}\", labels = [900, {0}] }}\n",
            label + 1
        );
        let Some(revert) = revert else { continue };
        text += &format!(
            "[[neighbour]]\nlink = \"c{cable}\"\nnext_hop = \"{next_hop}\"\naddress = \"{address}\"\n\
             bfd = {{ interval = \"50ms\", multiplier = 3, revert = \"{revert}\" }}\n"
        );
    }
    text
}

/// A neighbour, and which way packets take for it.
fn neighbour(router: &Server, at: usize) -> (String, String) {
    let shown = shown(router);
    let one = &shown["routers"][0]["neighbours"][at];
    (one["state"].as_str().unwrap().to_owned(), one["takes"].as_str().unwrap().to_owned())
}

/// Packets that left by the path of label 100, and by its backup.
fn sent(router: &Server) -> [u64; 2] {
    let shown = shown(router);
    let paths = shown["routers"][0]["paths"].as_array().unwrap();
    ["ilm 100", "backup of ilm 100"].map(|name| {
        let path = paths.iter().find(|path| path["name"].as_str().unwrap().starts_with(name));
        path.expect("it is there")["packets"].as_u64().unwrap()
    })
}

/// A packet with label 100 comes by the second cable; which way it leaves.
fn send(station: &Station, router: &Server) -> &'static str {
    let before = sent(router);
    let entry = LabelStackEntry {
        label: Label::new(100).unwrap(),
        traffic_class: 0,
        is_bottom: true,
        ttl: 64,
    };
    let (destination, source) = (mac(2, 1), mac(2, 2));
    let header = Header { destination, source, ether_type: EtherType::MPLS };
    station.send([&header.emit()[..], &entry.emit(), &[0x5a; 60]].concat());
    let left = || [0, 1].map(|way| sent(router)[way] - before[way]);
    wait_until("the packet left", || left() != [0, 0]);
    if left() == [1, 0] { "primary" } else { "backup" }
}

#[test]
fn frr_s_bfdd_and_a_router_hear_each_other_and_packets_go_around_the_cable_that_fails() {
    let Some(cables) = Cables::make() else { return };
    let home = tempfile::tempdir().unwrap();
    let router = cables.route(home.path(), &config(Some("2s")));
    // Nobody is there yet, which is no failure.
    assert_eq!(neighbour(&router, 0), ("Down".to_owned(), "primary".to_owned()));
    let bfdd = Bfdd::start(&cables, home.path());
    let station = Station::at(&cables.there, "c2", &mac(2, 1).to_string());
    let is = |at: usize, state: &str, takes: &str| {
        wait_until(&format!("neighbour {at} is {state} and packets take {takes}"), || {
            neighbour(&router, at) == (state.to_owned(), takes.to_owned())
        });
    };
    for at in [0, 1] {
        is(at, "Up", "primary");
        wait_until("bfdd says so", || bfdd.sees(at, "up"));
    }
    assert_eq!(send(&station, &router), "primary");
    // One direction is lost: we find out, and bfdd hears it from us.
    cables.cut("c1");
    is(0, "Down", "backup");
    wait_until("bfdd is down, too", || bfdd.sees(0, "down"));
    assert_eq!(send(&station, &router), "backup");
    let log = router.log();
    for words in [
        "neighbour 10.0.1.2 on c1: BFD is down: control detection time expired",
        "neighbour 10.0.1.2 on c1: packets that have a backup take it from now on",
    ] {
        assert!(log.contains(words), "{log}");
    }
    cables.mend();
    is(0, "Up", "waiting");
    assert_eq!(send(&station, &router), "backup");
    is(0, "Up", "primary");
    assert_eq!(send(&station, &router), "primary");
    router.wait_for_log("neighbour 10.0.1.2 on c1: packets take it again, and no backup");
    // What is switched off there takes nothing away, over IPv6 as over IPv4.
    let peers = [0, 1].map(|at| format!("peer {} local-address {}", OURS[at], THEIRS[at]));
    for (at, peer) in peers.iter().enumerate() {
        bfdd.ask(&["configure terminal", "bfd", peer, "shutdown"]);
        is(at, "Down", "primary");
        bfdd.ask(&["configure terminal", "bfd", peer, "no shutdown"]);
        is(at, "Up", "primary");
    }
    assert!(router.log().contains("fd09:2::2 on c2: BFD was switched off there (AdminDown)"));
    // Intervals change while both hear each other, and a cable that goes down is left at once.
    let slower = config(Some("0s")).replace("50ms", "100ms");
    router.apply(&slower);
    is(0, "Up", "primary");
    must(&format!("-n {} link set c1 down", cables.there));
    is(0, "without a port", "backup");
    assert_eq!(send(&station, &router), "backup");
    // The neighbours go, and come back.
    router.apply(&config(None));
    assert_eq!(shown(&router)["routers"][0]["neighbours"], Value::Array(Vec::new()));
    must(&format!("-n {} link set c1 up", cables.there));
    router.apply(&slower);
    is(0, "Up", "primary");
    is(1, "Up", "primary");
    wait_until("bfdd hears both", || bfdd.sees(0, "up") && bfdd.sees(1, "up"));
}

#[test]
fn check_says_that_a_neighbour_has_no_address_on_its_link_or_another_s() {
    let Some(cables) = Cables::make() else { return };
    let home = tempfile::tempdir().unwrap();
    let check = |config: &str| {
        let path = write(home.path(), config);
        let output = Command::new("ip")
            .args(["netns", "exec", &cables.here, env!("CARGO_BIN_EXE_plateway")])
            .args(["route", "check", &path])
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        (text(&output.stdout) + &text(&output.stderr))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (address, words) in [
        ("10.0.1.2", None),
        ("10.0.1.1", Some("10.0.1.1 is this host's own on c1; expected the neighbour's")),
        ("10.0.2.2", Some("10.0.2.2 is in no network of c1, which has 10.0.1.1/24")),
        ("fd09::9", Some("this host has no address of IPv6 on c1, and BFD waits for one")),
    ] {
        let said = check(&config(Some("5s")).replace("10.0.1.2", address));
        match words {
            Some(words) => assert!(said.contains(words), "{said}"),
            None => assert!(!said.contains("in no network") && !said.contains("waits"), "{said}"),
        }
    }
}

#[test]
fn a_port_of_bfd_that_is_another_s_is_refused_and_what_stood_before_stands() {
    let Some(cables) = Cables::make() else { return };
    let home = tempfile::tempdir().unwrap();
    let router = cables.route(home.path(), &config(None));
    let other = inside(&cables.here, || UdpSocket::bind("0.0.0.0:3784").unwrap());
    let refused = router.refuse_apply(&config(Some("2s")));
    let words = "port 3784 of 10.0.1.1 is another's";
    assert!(flat(refused.as_bytes()).contains(words), "{refused}");
    let shown = shown(&router);
    let paths = shown["routers"][0]["paths"].as_array().unwrap();
    assert_eq!((paths.len(), &shown["routers"][0]["neighbours"]), (4, &Value::Array(Vec::new())));
    drop(other);
    router.apply(&config(Some("2s")));
    assert_eq!(neighbour(&router, 0), ("Down".to_owned(), "primary".to_owned()));
}
