//! Disks behind pseudowires: an edge that has no customer reaches a target across the network and
//! serves it on, or measures it and is gone.
//!
//! ```text
//!   ler1: NVMe, disk aoe://pw:far/7.0 --- lsr1 --- ler2: 7.0 exported on pw:store
//! ```

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{Server, flat, text, write};
use crate::lan::must;
use crate::next_hops::{THERE, answer, move_it, number};
use crate::routed::{Network, address, wait_for};
use crate::{MIB, SUBSYSTEM, bytes, file};

/// Both ends watch it, so that a cut takes it down.
const BFD: &str = "bfd = { interval = \"50ms\", multiplier = 3 }";

/// An edge whose pseudowire ends in it: its name, and its labels in and out.
fn edge(
    of: &str,
    name: &str,
    [way_out, way_back]: [u32; 2],
    [label_in, label_out]: [u32; 2],
) -> String {
    let hop = address("lsr1", of);
    format!(
        "[[link]]\nethernet = \"lsr1\"\nmpls = true\n\
         [[lsp]]\nname = \"there\"\nlink = \"lsr1\"\nnext_hop = \"{hop}\"\nlabels = [{way_out}]\n\
         [[ilm]]\nlabel = {way_back}\npop = true\n\
         [[pseudowire]]\nname = \"{name}\"\nlabel_in = {label_in}\nlabel_out = {label_out}\n\
         lsp = \"there\"\n{BFD}\nfrom = {{ link = \"lsr1\", tunnel = {way_back} }}\n"
    )
}

fn near() -> String {
    edge("ler1", "far", [101, 103], [1001, 1002])
}

/// What it serves of the disk.
const SERVED_ON: &str = "[[disk]]\nname = \"d0\"\nuri = \"aoe://pw:far/7.0\"\n\
    [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
    [[listener]]\nnvme = \"127.0.0.1:0\"\n\
    [[export]]\nvolume = \"v0\"\nnvme = { subsystem = \"nqn.2026-11.net.plateway:v0\", nsid = 1, hosts = \"any\" }\n";

/// The switch and the target, running.
fn beyond(network: &Network, home: &Path) -> [Server; 2] {
    let swap = |label: u32, to: &str, out: u32| {
        let hop = address(to, "lsr1");
        format!(
            "[[link]]\nethernet = \"{to}\"\nmpls = true\n\
             [[ilm]]\nlabel = {label}\nlink = \"{to}\"\nnext_hop = \"{hop}\"\nlabels = [{out}]\n"
        )
    };
    let switch = swap(101, "ler2", 125) + &swap(131, "ler1", 103);
    [network.router(home, "lsr1", &switch), network.router(home, "ler2", &target("16MiB"))]
}

fn target(size: &str) -> String {
    edge("ler2", "store", [131, 125], [1002, 1001])
        + &format!(
            "[[disk]]\nname = \"d0\"\nuri = \"file:disk.img?create={size}\"\n\
             [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
             [[export]]\nvolume = \"v0\"\naoe = {{ link = \"pw:store\", shelf = 7, slot = 0, hosts = \"any\" }}\n"
        )
}

fn is_up(one: &Value) -> bool {
    one["paths"].as_array().is_some_and(|paths| paths.iter().any(|path| path["state"] == "Up"))
}

/// How the first disk is reached.
fn reached(status: &Value) -> String {
    status["disks"][0]["remote"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_disk_behind_a_pseudowire_is_served_on_and_outlives_a_cut() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let beyond = beyond(&network, home.path());
    let server = network.router(home.path(), "ler1", &(near() + SERVED_ON));
    let status = server
        .wait_for("a disk that is reached", |status| reached(status).contains("connected to 7.0"));
    assert!(reached(&status).contains("on pw:far"), "{status:#}");
    assert_eq!(reached(&status).matches("shard").count(), 1, "one reaches it: {status:#}");
    let uri = format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.listens("nvme"));
    let written = bytes(5, 16 * MIB);
    fs::write(home.path().join("written"), &written).unwrap();
    // Several connections: of all shards.
    let connections = uri.clone() + "?queues=4";
    network.run("ler1", &["copy", &file(home.path(), "written"), &connections, "--overwrite"]);
    let there = home.path().join("ler2/disk.img");
    assert!(fs::read(&there).unwrap() == written, "what was written is there");

    let mut load = network.plateway("ler1");
    load.args(["bench", &uri, "--rw", "randrw=50", "--numjobs", "4", "--time", "6s"]);
    load.args(["--verify", "--overwrite"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let load = load.spawn().expect("it runs");
    std::thread::sleep(Duration::from_millis(500));
    // What lsr1 sends to ler2 is lost, and both interfaces stay up.
    let cut = network.at("lsr1");
    must(&format!("netns exec {cut} nft add table netdev cut"));
    must(&format!(
        "netns exec {cut} nft add chain netdev cut out {{ type filter hook egress device ler2 priority 0 ; policy drop ; }}"
    ));
    let down = server.wait_for("a disk that is looked for", |status| {
        reached(status).contains("looking for 7.0")
    });
    assert!(!reached(&down).contains("connected"), "{down:#}");
    must(&format!("netns exec {cut} nft delete table netdev cut"));
    server.wait_for("a disk that is reached again", |status| {
        reached(status).contains("connected to 7.0")
    });
    let output = load.wait_with_output().expect("it ends");
    let said = (text(&output.stdout), flat(&output.stderr));
    assert!(output.status.success(), "{said:?}");
    let log = server.log();
    assert!(log.contains("disk d0: "), "{log}");

    // It grows, and all shards know.
    beyond[1].apply(&target("20MiB"));
    let bytes = |status: &Value| status["volumes"][0]["bytes"].as_u64();
    server.wait_for("the larger size", |status| bytes(status) == Some(20 * MIB as u64));
    let behind = ["--offset", "16m", "--rw", "randrw=50", "--numjobs", "4", "--time", "1s"];
    let line = [&["bench", uri.as_str()][..], &behind, &["--verify", "--overwrite"]].concat();
    network.run("ler1", &line);

    // The pseudowire does not go from under it, but with it.
    let said = server.refuse_apply(&(near().replace("\"far\"", "\"other\"") + SERVED_ON));
    assert!(said.contains("there is no pseudowire \"far\""), "{said}");
    let mac = near().replace("name = \"far\"\n", "name = \"far\"\nmac = \"02:00:00:00:00:77\"\n");
    let said = server.apply_anyway(&(mac + SERVED_ON));
    let place = |step: &str| said.find(step).unwrap_or_else(|| panic!("{step}: {said}"));
    let order = ["- disk d0", "- pseudowire far", "+ pseudowire far", "+ disk d0"].map(place);
    assert!(order.is_sorted(), "{said}");
    server.wait_for("a disk that is reached by another address", |status| {
        reached(status).contains("connected to 7.0")
    });
    let read = file(home.path(), "read?create=20MiB");
    let uri = format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.listens("nvme"));
    network.run("ler1", &["copy", &uri, &read, "--overwrite"]);
    assert!(fs::read(home.path().join("read")).unwrap() == fs::read(&there).unwrap());
    // A pseudowire that goes takes the disk with it.
    let said = server.apply_anyway("");
    assert!(said.contains("- disk d0") && said.contains("- pseudowire far"), "{said}");
    server.stop();
    beyond.into_iter().for_each(Server::stop);
}

#[test]
fn a_command_reaches_a_disk_by_a_pseudowire_of_its_configuration() {
    let Some(network) = Network::make(1500) else { return };
    let home = tempfile::tempdir().unwrap();
    let [_switch, target] = beyond(&network, home.path());
    let own = |key: &str| home.path().join("ler1").join(key).display().to_string();
    fs::create_dir(home.path().join("ler1")).unwrap();
    let server =
        format!("[server]\nstate = \"{}\"\ncontrol = \"{}\"\n", own("state"), own("ler1.sock"));
    // A customer's circuit is of no interest to it: that interface is not even there.
    let customer = "[[circuit]]\nname = \"gone\"\nethernet = \"gone0\"\n\
        [[pseudowire]]\nname = \"wired\"\ncircuit = \"gone\"\nlabel_in = 1007\nlabel_out = 1008\n\
        lsp = \"there\"\nfrom = { link = \"lsr1\", tunnel = 103 }\n";
    let config = write(&home.path().join("ler1"), &(server + &near() + customer));
    let disk = "aoe://pw:far/7.0";
    let run = |args: &[&str]| {
        let output = network.plateway("ler1").args(args).output().expect("it runs");
        (output.status.code(), text(&output.stdout), flat(&output.stderr))
    };
    let refused = |args: &[&str], words: &str| {
        let (code, _, said) = run(args);
        assert!(code == Some(1) && said.contains(words), "{args:?}: {said}");
    };
    refused(
        &["bench", disk],
        "pw:far: expected the configuration that has this pseudowire, seen none",
    );
    refused(&["bench", disk], "name it with --config router.toml");
    let of = ["--config", config.as_str()];
    for name in ["nobody", "wired"] {
        let disk = format!("aoe://pw:{name}/7.0");
        let words =
            format!("has no pseudowire {name} that ends in this process: expected one of far");
        refused(&[&["bench", disk.as_str()][..], &of].concat(), &words);
    }
    let load = ["bench", disk, "--rw", "randrw=50", "--numjobs", "2", "--time", "2s", "--verify"];
    let (code, shown, said) = run(&[&load[..], &["--overwrite"], &of].concat());
    assert_eq!(code, Some(0), "{shown}{said}");
    wait_for(&target, "store", "down without its other end", |one| !is_up(one));
    let written = bytes(9, 16 * MIB);
    fs::write(home.path().join("written"), &written).unwrap();
    let source = file(home.path(), "written");
    let (code, shown, said) = run(&[&["copy", &source, disk, "--overwrite"][..], &of].concat());
    assert_eq!(code, Some(0), "{shown}{said}");
    assert!(fs::read(home.path().join("ler2/disk.img")).unwrap() == written);
    // So is a volume whose disk is behind one.
    let path = Path::new(&config);
    let served = fs::read_to_string(path).unwrap() + SERVED_ON;
    fs::write(path, served).unwrap();
    let (code, shown, said) =
        run(&[&["bench", "volume:v0", "--rw", "randread", "--time", "1s"][..], &of].concat());
    assert_eq!(code, Some(0), "{shown}{said}");
    // A server has it.
    let _server =
        Server::try_start_by(network.plateway("ler1"), &home.path().join("ler1"), "ler1", &of)
            .map(drop)
            .expect_err("a circuit's interface is not there");
    let config = fs::read_to_string(path).unwrap().replace(customer, "");
    fs::write(path, config).unwrap();
    let server =
        Server::try_start_by(network.plateway("ler1"), &home.path().join("ler1"), "ler1", &of)
            .unwrap_or_else(|log| panic!("{log}"));
    refused(&[&["bench", disk][..], &of].concat(), "has this pseudowire");
    server.stop();
}

#[test]
fn a_command_finds_its_next_hop_and_follows_it() {
    let Some(network) = Network::make(1500) else { return };
    number(&network);
    let home = tempfile::tempdir().unwrap();
    let _beyond = beyond(&network, home.path());
    let folder = home.path().join("ler1");
    fs::create_dir(&folder).unwrap();
    let own = |key: &str| folder.join(key).display().to_string();
    let server =
        format!("[server]\nstate = \"{}\"\ncontrol = \"{}\"\n", own("state"), own("ler1.sock"));
    let by_ip = near().replace(&address("lsr1", "ler1"), THERE);
    let config = write(&folder, &(server + &by_ip));
    let line = ["bench", "aoe://pw:far/7.0", "--rw", "randrw=50", "--time", "4s", "--verify"];
    let begin = || {
        let mut command = network.plateway("ler1");
        command.args(line).args(["--overwrite", "--config", &config]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    let ends_well = |bench: Child| {
        let output = bench.wait_with_output().expect("it ends");
        let said = (text(&output.stdout), flat(&output.stderr));
        assert!(output.status.success() && said.0.contains(" 0 wrong"), "{said:?}");
        said.1
    };
    // Nobody answers when it begins, and then somebody does.
    answer(&network, false);
    let bench = begin();
    std::thread::sleep(Duration::from_secs(5));
    answer(&network, true);
    let said = ends_well(bench);
    let hop = format!("next hop {THERE} on lsr1");
    assert!(said.contains(&format!("{hop} is not resolved")), "{said}");
    // It moves while it is used.
    let bench = begin();
    std::thread::sleep(Duration::from_secs(2));
    move_it(&network);
    let said = ends_well(bench);
    assert!(said.contains(&format!("{hop} is at")), "{said}");
}
