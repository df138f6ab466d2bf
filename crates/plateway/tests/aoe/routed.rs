//! AoE across a network of routers: the topology of Landowski and Curran, each station and router in
//! a network namespace of its own, every router this program.
//!
//! ```text
//!   serv1 --- ler1 --- lsr1 --- ler2 --- lx        customer 1: serv1 and lx
//!   serv2 ---'    \   /   |  \ /    \--- isx       customer 2: serv2 and cd
//!   servi ---'     \ /    |   X                    customer 3: servi and isx
//!                  lsr2 --+  / \
//!                      \----'   ler3 --- cd
//! ```
//! Each LER has a cable to both LSRs, and they one to each other. Customer 1's way is ler1, lsr1, lsr2,
//! ler2, its backup ler1, lsr2, ler3, lsr1, ler2, which has no cable in common with it; customer 2's
//! is ler1, lsr2, ler3, where lsr2 takes the tunnel's label off (PHP).
//! Customers have the same addresses, shelves and slots.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{HANG, Server, flat, text, write};
use crate::lan::{INITIATOR, INTERFACE, TARGET, ip, must};
use crate::{MIB, bytes, file};

const ROUTERS: [&str; 5] = ["ler1", "ler2", "ler3", "lsr1", "lsr2"];
/// The cables of the core.
const CORE: [(&str, &str); 7] = [
    ("ler1", "lsr1"),
    ("ler1", "lsr2"),
    ("ler2", "lsr1"),
    ("ler2", "lsr2"),
    ("ler3", "lsr1"),
    ("ler3", "lsr2"),
    ("lsr1", "lsr2"),
];
/// Those of customers: the station, the edge, and the station's address.
const CUSTOMERS: [(&str, &str, &str); 6] = [
    ("serv1", "ler1", TARGET),
    ("serv2", "ler1", TARGET),
    ("servi", "ler1", TARGET),
    ("lx", "ler2", INITIATOR),
    ("isx", "ler2", INITIATOR),
    ("cd", "ler3", INITIATOR),
];

/// The namespaces, which are removed with the value.
pub(crate) struct Network {
    prefix: String,
}

impl Network {
    /// Makes it, with this MTU at customers and room for the labels in the core; says why not where
    /// it may not.
    pub(crate) fn make(mtu: u32) -> Option<Network> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let network = Network { prefix: format!("plateway-net-{}-{number}-", std::process::id()) };
        let made = network.build(mtu);
        if let Err(why) = made {
            testkit::skipped(why);
            return None;
        }
        Some(network)
    }

    fn build(&self, mtu: u32) -> Result<(), String> {
        let stations = CUSTOMERS.iter().map(|(station, ..)| *station);
        for name in ROUTERS.into_iter().chain(stations) {
            ip(&format!("netns add {}", self.at(name)))?;
            ip(&format!("-n {} link set lo up", self.at(name)))?;
        }
        for (a, b) in CORE {
            // Two labels, one around a failed link, the pseudowire's, a control word and the header inside.
            self.cable(a, (b, &address(a, b)), b, (a, &address(b, a)), mtu + 30)?;
        }
        for (station, edge, mac) in CUSTOMERS {
            let circuit = format!("02:00:00:00:aa:{:02x}", station.len());
            self.cable(station, (INTERFACE, mac), edge, (station, &circuit), mtu)?;
        }
        Ok(())
    }

    fn cable(
        &self,
        a: &str,
        (at_a, mac_a): (&str, &str),
        b: &str,
        (at_b, mac_b): (&str, &str),
        mtu: u32,
    ) -> Result<(), String> {
        let (a, b) = (self.at(a), self.at(b));
        ip(&format!(
            "link add {at_a} mtu {mtu} address {mac_a} netns {a} type veth peer name {at_b} mtu {mtu} address {mac_b} netns {b}"
        ))?;
        for (end, interface) in [(a, at_a), (b, at_b)] {
            // No IPv6, which nobody asked to speak: what is counted is what a test sends.
            ip(&format!("-n {end} link set {interface} addrgenmode none"))?;
            ip(&format!("-n {end} link set {interface} up"))?;
        }
        Ok(())
    }

    pub(crate) fn at(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A program in a namespace.
    pub(crate) fn command(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.at(name), program]);
        command.env("NO_COLOR", "1").env_remove("RUST_BACKTRACE").stdin(Stdio::null());
        command
    }

    pub(crate) fn plateway(&self, name: &str) -> Command {
        self.command(name, env!("CARGO_BIN_EXE_plateway"))
    }

    /// The standard output of a command that must succeed.
    pub(crate) fn run(&self, name: &str, args: &[&str]) -> String {
        let output = self.plateway(name).args(args).output().expect("it runs");
        let said = (text(&output.stdout), flat(&output.stderr));
        assert!(output.status.success(), "{name}: {args:?}: {said:?}");
        said.0
    }

    /// A router of this configuration.
    pub(crate) fn router(&self, home: &Path, name: &str, config: &str) -> Server {
        let directory = home.join(name);
        fs::create_dir(&directory).expect("a folder");
        let path = write(&directory, config);
        Server::try_start_by(self.plateway(name), &directory, name, &["--config", &path])
            .unwrap_or_else(|log| panic!("{name}: {log}"))
    }

    pub(crate) fn serve(&self, home: &Path, name: &str, args: &[&str]) -> Server {
        let directory = home.join(name);
        fs::create_dir(&directory).expect("a folder");
        Server::try_start_by(self.plateway(name), &directory, name, args)
            .unwrap_or_else(|log| panic!("{name}: {log}"))
    }

    /// What answers at a station: `shelf.slot`, in order.
    pub(crate) fn discover(&self, name: &str) -> Vec<String> {
        let found = self.run(name, &["discover", &format!("aoe://{INTERFACE}"), "--json"]);
        let found: Value = serde_json::from_str(&found).expect("JSON");
        let line = |one: &Value| format!("{}.{}", one["shelf"], one["slot"]);
        found.as_array().expect("a list").iter().map(line).collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let stations = CUSTOMERS.iter().map(|(station, ..)| *station);
        for name in ROUTERS.into_iter().chain(stations) {
            // One that was never made is no mistake.
            let _ = ip(&format!("netns del {}", self.at(name)));
        }
    }
}

/// The address of the end in `of` of the cable to `towards`.
pub(crate) fn address(of: &str, towards: &str) -> String {
    let number =
        |name: &str| 1 + ROUTERS.iter().position(|other| *other == name).expect("a router");
    format!("02:00:00:00:{:02x}:{:02x}", number(of), number(towards))
}

/// The configuration of a router, as it is put together.
struct Config {
    name: &'static str,
    text: String,
    ports: Vec<&'static str>,
}

impl Config {
    fn new(name: &'static str) -> Self {
        Self { name, text: String::new(), ports: Vec::new() }
    }

    fn port(&mut self, towards: &'static str) {
        if !self.ports.contains(&towards) {
            self.ports.push(towards);
            self.text += &format!("[[link]]\nethernet = \"{towards}\"\nmpls = true\n");
        }
    }

    /// A packet that comes with a label goes on to a router with these.
    fn swap(mut self, label: u32, to: &'static str, labels: &[u32]) -> Self {
        self.port(to);
        let hop = address(to, self.name);
        self.text += &format!(
            "[[ilm]]\nlabel = {label}\nlink = \"{to}\"\nnext_hop = \"{hop}\"\nlabels = {labels:?}\n"
        );
        self
    }

    fn pop(mut self, label: u32, from: &'static str) -> Self {
        self.port(from);
        self.text += &format!("[[ilm]]\nlabel = {label}\npop = true\n");
        self
    }

    fn lsp(mut self, name: &str, to: &'static str, labels: &[u32]) -> Self {
        self.port(to);
        let hop = address(to, self.name);
        self.text += &format!(
            "[[lsp]]\nname = \"{name}\"\nlink = \"{to}\"\nnext_hop = \"{hop}\"\nlabels = {labels:?}\n"
        );
        self
    }

    /// A pseudowire of a circuit, with more keys.
    fn wire(
        mut self,
        circuit: &str,
        [label_in, label_out]: [u32; 2],
        lsp: &str,
        more: &str,
    ) -> Self {
        self.text += &format!(
            "[[circuit]]\nethernet = \"{circuit}\"\n\
             [[pseudowire]]\nname = \"{circuit}\"\ncircuit = \"{circuit}\"\nlabel_in = {label_in}\n\
             label_out = {label_out}\nlsp = \"{lsp}\"\n{more}\n"
        );
        self
    }
}

/// The routers of the whole network, running. With `bfd`, the inside of that table, customer 1 has a
/// backup path, and both are watched.
pub(crate) fn routers(network: &Network, home: &Path, bfd: Option<&str>) -> Vec<Server> {
    routers_with(network, home, bfd, "")
}

/// The same, where the pseudowires of customer 1 have more keys.
pub(crate) fn routers_with(
    network: &Network,
    home: &Path,
    bfd: Option<&str>,
    more: &str,
) -> Vec<Server> {
    // The tunnel in which packets come by the first path, and by the backup.
    let ways = |lsp: &str, [first, around]: [(&str, u32); 2]| {
        let way = |(link, tunnel): (&str, u32), more: &str| {
            format!("{{ link = \"{link}\", tunnel = {tunnel}{more} }}")
        };
        let Some(bfd) = bfd else {
            return format!("from = {}\n{more}", way(first, ""));
        };
        let from = [way(first, ""), way(around, ", backup = true")].join(", ");
        format!("backup = \"{lsp}\"\nbfd = {{ {bfd} }}\nfrom = [{from}]\n{more}")
    };
    let lx = ways("to-lx-around", [("lsr1", 113), ("lsr2", 135)]);
    let serv1 = ways("to-serv1-around", [("lsr2", 103), ("lsr1", 125)]);
    let configs = [
        Config::new("ler1")
            .lsp("to-lx", "lsr1", &[101])
            .lsp("to-lx-around", "lsr2", &[121])
            .lsp("to-cd", "lsr2", &[201])
            .pop(113, "lsr1")
            .pop(135, "lsr2")
            .wire("serv1", [1001, 1002], "to-lx", &lx)
            .wire("serv2", [1004, 1003], "to-cd", "from = { link = \"lsr2\" }")
            .wire("servi", [1005, 1006], "to-lx", "from = { link = \"lsr1\", tunnel = 113 }"),
        Config::new("ler2")
            .lsp("to-serv1", "lsr2", &[111])
            .lsp("to-serv1-around", "lsr1", &[131])
            .pop(103, "lsr2")
            .pop(125, "lsr1")
            .wire("lx", [1002, 1001], "to-serv1", &serv1)
            .wire("isx", [1006, 1005], "to-serv1", "from = { link = \"lsr2\", tunnel = 103 }"),
        // An edge, and a switch on the way around.
        Config::new("ler3")
            .lsp("to-serv2", "lsr2", &[211])
            .swap(122, "lsr1", &[123])
            .swap(132, "lsr2", &[133])
            .wire("cd", [1003, 1004], "to-serv2", "from = { link = \"lsr2\" }"),
        Config::new("lsr1")
            .swap(101, "lsr2", &[102])
            .swap(112, "ler1", &[113])
            .swap(123, "ler2", &[125])
            .swap(131, "ler3", &[132]),
        Config::new("lsr2")
            .swap(102, "ler2", &[103])
            .swap(111, "lsr1", &[112])
            .swap(121, "ler3", &[122])
            .swap(133, "ler1", &[135])
            .swap(201, "ler3", &[])
            .swap(211, "ler1", &[]),
    ];
    configs.iter().map(|config| network.router(home, config.name, &config.text)).collect()
}

/// How things are with a router.
pub(crate) fn shown(router: &Server) -> Value {
    let shown = router.ask(&["route", "show", "--json"]);
    serde_json::from_str(&shown).expect("JSON")
}

/// A pseudowire of a router, by its name.
pub(crate) fn pseudowire(router: &Server, name: &str) -> Value {
    let shown = shown(router);
    let all = shown["routers"][0]["pseudowires"].as_array().expect("a list").clone();
    all.into_iter().find(|one| one["name"] == name).expect("it is there")
}

/// Waits until a pseudowire is so.
pub(crate) fn wait_for(
    router: &Server,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let until = Instant::now() + HANG;
    loop {
        let seen = pseudowire(router, name);
        if wanted(&seen) {
            return seen;
        }
        assert!(Instant::now() < until, "{name} is not {what}: {seen:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn both_up(one: &Value) -> bool {
    let paths = one["paths"].as_array().expect("a list");
    paths.len() == 2 && paths.iter().all(|path| path["state"] == "Up")
}

pub(crate) const SERVED: [&str; 5] =
    ["file:disk.img?create=16MiB", "--aoe", "veth0/7.0", "--hosts", "any"];

/// Writes a disk whole, reads it back, and compares.
pub(crate) fn round_trip(network: &Network, home: &Path, station: &str, seed: u64) {
    let directory = home.join(station);
    fs::create_dir_all(&directory).expect("a folder");
    let written = bytes(seed, 16 * MIB);
    fs::write(directory.join("written"), &written).expect("a file");
    let aoe = format!("aoe://{INTERFACE}/7.0");
    network.run(station, &["copy", &file(&directory, "written"), &aoe, "--overwrite"]);
    let read = file(&directory, &format!("read-{seed}?create=16MiB"));
    network.run(station, &["copy", &aoe, &read, "--overwrite"]);
    let read = fs::read(directory.join(format!("read-{seed}"))).expect("a file");
    assert!(read == written, "written and read back from {station}");
}

#[test]
fn customers_reach_their_disks_through_edges_and_switches_and_nobody_else_s() {
    for mtu in [1500, 9000] {
        let Some(network) = Network::make(mtu) else { return };
        let home = tempfile::tempdir().unwrap();
        let routers = routers(&network, home.path(), None);
        let _one = network.serve(home.path(), "serv1", &SERVED);
        assert_eq!(network.discover("lx"), ["7.0"], "MTU {mtu}");
        // The other customer has nobody at this address yet, and does not see this one's.
        assert_eq!(network.discover("cd"), [""; 0]);
        let _two = network.serve(home.path(), "serv2", &SERVED);
        assert_eq!(network.discover("cd"), ["7.0"]);
        round_trip(&network, home.path(), "lx", 1);
        round_trip(&network, home.path(), "cd", 2);
        // Neither has written to the other's.
        let first = fs::read(home.path().join("serv1/disk.img")).unwrap();
        let second = fs::read(home.path().join("serv2/disk.img")).unwrap();
        let holds = |disk: &[u8], seed| {
            let wanted = bytes(seed, 16 * MIB)[..4096].to_vec();
            disk.windows(4096).step_by(512).any(|seen| seen == wanted)
        };
        assert!(holds(&first, 1) && !holds(&first, 2));
        assert!(holds(&second, 2) && !holds(&second, 1));
        let wire = pseudowire(&routers[1], "lx");
        assert!(wire["sent"].as_u64() > Some(100) && wire["delivered"].as_u64() > Some(100));
        // Those in the middle know no pseudowire.
        assert_eq!(shown(&routers[3])["routers"][0]["pseudowires"].as_array().unwrap().len(), 0);
    }
}

/// A load that ends by itself and is then looked at.
pub(crate) fn load(network: &Network, station: &str, seconds: u32) -> Child {
    let aoe = format!("aoe://{INTERFACE}/7.0");
    let seconds = seconds.to_string();
    let line = ["bench", &aoe, "--rw", "randrw=50", "--time", &seconds, "--verify", "--overwrite"];
    let mut command = network.plateway(station);
    command.args(line).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it runs")
}

#[test]
fn a_silent_cut_in_mid_write_moves_traffic_to_the_backup_and_back() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let routers = routers(
        &network,
        home.path(),
        Some("interval = \"50ms\", multiplier = 3, revert = \"3s\""),
    );
    let _one = network.serve(home.path(), "serv1", &SERVED);
    for (router, name) in [(&routers[0], "serv1"), (&routers[1], "lx")] {
        wait_for(router, name, "up by both paths", both_up);
    }
    let load = load(&network, "lx", 12);
    std::thread::sleep(Duration::from_millis(500));
    // What lsr1 sends to lsr2 is lost, and both interfaces stay up.
    let cut = network.at("lsr1");
    must(&format!("netns exec {cut} nft add table netdev cut"));
    must(&format!(
        "netns exec {cut} nft add chain netdev cut out {{ type filter hook egress device lsr2 priority 0 ; policy drop ; }}"
    ));
    let is_on = |way: &'static str| move |one: &Value| one["active"] == way;
    wait_for(&routers[0], "serv1", "on its backup", is_on("backup"));
    wait_for(&routers[1], "lx", "on its backup", is_on("backup"));
    must(&format!("netns exec {cut} nft delete table netdev cut"));
    wait_for(&routers[0], "serv1", "back on its primary", is_on("primary"));
    wait_for(&routers[1], "lx", "back on its primary", is_on("primary"));
    let output = load.wait_with_output().expect("it ends");
    let said = (text(&output.stdout), flat(&output.stderr));
    assert!(output.status.success(), "{said:?}");
    let log = routers[0].log();
    assert!(log.contains("pseudowire serv1: its frames take the backup path from now on"), "{log}");
    round_trip(&network, home.path(), "lx", 3);
}

/// Every router stops for twice the time after which a path has failed, as a machine does that is held
/// up: nobody was silent, and nothing moves. Then a minute of load.
#[test]
fn routers_that_did_not_run_blame_nobody_nor_does_a_minute_of_load() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let bfd = "interval = \"50ms\", multiplier = 3";
    let routers = routers(&network, home.path(), Some(bfd));
    let _one = network.serve(home.path(), "serv1", &SERVED);
    let ends = [(&routers[0], "serv1"), (&routers[1], "lx")];
    for (router, name) in ends {
        wait_for(router, name, "up by both paths", both_up);
    }
    let load = load(&network, "lx", 60);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        routers.iter().for_each(|router| router.signal(Signal::STOP));
        std::thread::sleep(Duration::from_millis(300));
        routers.iter().for_each(|router| router.signal(Signal::CONT));
    }
    let output = load.wait_with_output().expect("it ends");
    let said = (text(&output.stdout), flat(&output.stderr));
    assert!(output.status.success(), "{said:?}");
    for (router, name) in ends {
        let seen = pseudowire(router, name);
        let moved = ["active", "to_backup", "to_primary"].map(|key| seen[key].clone());
        assert_eq!(
            moved,
            [Value::from("primary"), 0.into(), 0.into()],
            "{seen:#}\n{}",
            router.log()
        );
        assert!(!router.log().contains("path is down"), "{}", router.log());
    }
}
