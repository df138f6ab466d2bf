//! `plateway connect`: what is typed on each client to use a volume, over each protocol that it is
//! exported by. QEMU and iPXE type it in the interop scenarios.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::common::{Server, flat, text};

const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:v0";
const TARGET: &str = "iqn.2026-11.net.plateway:v0";
const HOST: &str = "iqn.2026-11.net.example:host";
const UUID: &str = "3f1c34a0-6b0a-4c70-9d3e-0a55c0ffee03";
const CLIENTS: [&str; 6] = ["linux", "qemu", "windows", "esxi", "proxmox", "ipxe"];

/// A volume over NVMe/TCP and iSCSI, and one that is not exported.
fn serve(directory: &Path, hosts: &str, chap: &str) -> Server {
    let config = format!(
        "[[listener]]\nnvme = \"127.0.0.1:0\"\n[[listener]]\niscsi = \"127.0.0.1:0\"\n\
         [[disk]]\nname = \"d0\"\nuri = \"ram:8MiB\"\n[[disk]]\nname = \"d1\"\nuri = \"ram:8MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\nuuid = \"{UUID}\"\n\
         [[volume]]\nname = \"v1\"\ndisks = [\"d1\"]\n\
         [[export]]\nvolume = \"v0\"\n\
         nvme = {{ subsystem = \"{SUBSYSTEM}\", nsid = 1, hosts = \"any\" }}\n\
         iscsi = {{ target = \"{TARGET}\", lun = 26, hosts = {hosts}{chap} }}\n"
    );
    Server::configured(directory, &config)
}

/// What is typed over a protocol, and what is said where nothing is.
fn told(server: &Server, client: &str, protocol: &str, words: &[&str]) -> (String, String) {
    let line = [&["connect", "v0", "--for", client, "--json"][..], words].concat();
    let ways: Vec<Value> = serde_json::from_str(&server.ask(&line)).expect("JSON");
    let way = ways.iter().find(|way| way["protocol"] == protocol).expect("it is exported so");
    let commands = way["commands"].as_array().expect("a list");
    let commands: Vec<&str> = commands.iter().filter_map(Value::as_str).collect();
    (commands.join("\n"), way["instead"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn each_client_is_told_what_to_type_or_what_to_do_instead() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), "\"any\"", "");
    let (nvme, iscsi) = (server.listens("nvme"), server.listens("iscsi"));
    for client in CLIENTS {
        let (commands, instead) = told(&server, client, "NVMe/TCP", &[]);
        let has_one = ["linux", "esxi", "proxmox"].contains(&client);
        assert_eq!((commands.is_empty(), instead.is_empty()), (!has_one, has_one), "{client}");
        assert!(!has_one || commands.contains(SUBSYSTEM), "{client}: {commands}");
        let (commands, instead) = told(&server, client, "iSCSI", &[]);
        assert!(commands.contains(TARGET) || client == "esxi", "{client}: {commands}");
        assert!(instead.is_empty() && !commands.contains("SECRET"), "{client}: {commands}");
        let port = iscsi.rsplit_once(':').expect("a port").1;
        assert!(commands.contains(port), "{client}: {commands}");
    }
    let (linux, _) = told(&server, "linux", "NVMe/TCP", &[]);
    let (host, port) = nvme.rsplit_once(':').expect("a port");
    assert!(linux.contains(&format!("nvme connect -t tcp -a {host} -s {port} -n {SUBSYSTEM}")));
    assert!(linux.contains(&format!("/dev/disk/by-id/nvme-uuid.{UUID}")), "{linux}");
    let (ipxe, _) = told(&server, "ipxe", "iSCSI", &["--address", "nas.example"]);
    let port = iscsi.rsplit_once(':').expect("a port").1;
    assert!(ipxe.ends_with(&format!("sanboot iscsi:nas.example::{port}:1a:{TARGET}")), "{ipxe}");

    let text = server.ask(&["connect", "v0"]);
    assert!(text.contains("NVMe/TCP (export v0") && text.contains("\n  iscsiadm -m"), "{text}");
    let refused = server.refuse(&["connect", "v1"]);
    assert!(refused.contains("volume v1 is not exported"), "{refused}");
    let refused = server.refuse(&["connect", "v2"]);
    assert!(refused.contains("no such volume; there are v0, v1"), "{refused}");
    let refused = server.refuse(&["connect", "v0", "--address", "a:b:c"]);
    assert!(refused.contains("--address a:b:c"), "{refused}");
    server.stop();
}

#[test]
fn who_is_let_in_is_said_and_no_secret_is() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "a secret of some length").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let chap = format!(", chap = {{ user = \"u $1\", secret_file = \"{}\" }}", secret.display());
    let server = serve(directory.path(), &format!("[\"{HOST}\"]"), &chap);
    for client in CLIENTS {
        let (commands, _) = told(&server, client, "iSCSI", &[]);
        for word in [HOST, "SECRET"] {
            assert!(commands.contains(word), "{client}: {commands}");
        }
        assert!(!commands.contains("some length"), "{client}: {commands}");
        // What somebody chose is one word.
        assert!(commands.contains("'u $1'"), "{client}: {commands}");
    }
    server.stop();
}

#[test]
fn a_listener_on_every_address_is_told_by_one_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let config = format!(
        "[[listener]]\niscsi = \"0.0.0.0:0\"\n[[disk]]\nname = \"d0\"\nuri = \"ram:8MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
         [[export]]\nvolume = \"v0\"\niscsi = {{ target = \"{TARGET}\", lun = 0, hosts = \"any\" }}\n"
    );
    let server = Server::configured(directory.path(), &config);
    let (commands, _) = told(&server, "linux", "iSCSI", &["--address", "192.0.2.7"]);
    assert!(commands.contains("-p 192.0.2.7:"), "{commands}");
    // Where this machine has a way to others, it is the address of that one; else it is asked for.
    let answer = server.command(&["connect", "v0"]);
    let said = match answer.status.success() {
        true => text(&answer.stdout),
        false => flat(&answer.stderr),
    };
    assert!(!said.contains("0.0.0.0"), "{said}");
    assert!(said.contains("iscsiadm") || said.contains("--address HOST"), "{said}");
    server.stop();
}

/// A configuration with this of iSCSI, whose secrets are files in the directory.
fn guarded(directory: &Path, listeners: &str, hosts: &str, export: &str) -> Server {
    for user in ["w", "t", "f"] {
        let file = directory.join(user);
        fs::write(&file, format!("a secret of {user}, long enough")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let config = format!(
        "{listeners}{hosts}[[disk]]\nname = \"d0\"\nuri = \"ram:8MiB\"\n\
         [[volume]]\nname = \"v0\"\ndisks = [\"d0\"]\n\
         [[export]]\nvolume = \"v0\"\niscsi = {{ target = \"{TARGET}\", {export} }}\n"
    );
    Server::configured(directory, &config)
}

fn chap(directory: &Path, user: &str) -> String {
    format!("{{ user = \"{user}\", secret_file = \"{}\" }}", directory.join(user).display())
}

const LISTENER: &str = "[[listener]]\niscsi = \"127.0.0.1:0\"\n";

#[test]
fn whose_secret_is_asked_for_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // One of another protocol is written alike, and is not asked.
    let other = "[[listener]]\nnvme = \"127.0.0.1:0\"\n";
    let listener = format!("{other}{LISTENER}chap = {}\n", chap(path, "f"));
    let host = format!(
        "[[host]]\nname = \"web1\"\niscsi = \"{HOST}\"\niscsi_chap = {}\n",
        chap(path, "w")
    );
    let export = format!("lun = 0, hosts = [\"web1\"], chap = {}", chap(path, "t"));
    let server = guarded(path, &listener, &host, &export);
    for client in CLIENTS {
        let (commands, _) = told(&server, client, "iSCSI", &[]);
        assert!(commands.contains("web1 logs in as w"), "{client}: {commands}");
        let named = |user: &str| {
            let ends = |line: &str| line.ends_with(user) || line.contains(&format!("{user} "));
            commands.lines().any(|line| !line.starts_with('#') && ends(line))
        };
        // The host's own goes before the target's, and the listener's is asked for first.
        let user = |user: &str| match client {
            "windows" => named(&format!("'{user}'")),
            "esxi" => named(&format!("--authname={user}")),
            "qemu" => named(&format!("USERNAME={user}")),
            "ipxe" => named(&format!("username {user}")),
            _ => named(&format!("username -v {user}")),
        };
        let asks = !["qemu", "ipxe"].contains(&client);
        assert_eq!((user("w"), user("t"), user("f")), (true, false, asks), "{client}: {commands}");
    }
    let (linux, _) = told(&server, "linux", "iSCSI", &[]);
    assert!(linux.contains("discoverydb") && linux.contains("--discover"), "{linux}");
    server.stop();
}

#[test]
fn a_large_lun_an_address_of_ipv6_and_another_path_are_typed_as_clients_take_them() {
    let directory = tempfile::tempdir().unwrap();
    let two = format!("{LISTENER}{LISTENER}group = 2\n").replacen(".1:0", ".2:0", 1);
    let server = guarded(directory.path(), &two, "", "lun = 300, hosts = \"any\"");
    let typed = |client, words: &[&str]| told(&server, client, "iSCSI", words).0;
    assert!(typed("linux", &[]).contains("-lun-0x412c000000000000"));
    assert!(typed("qemu", &[]).contains(&format!("{TARGET}/16684\n")));
    let ipxe = typed("ipxe", &["--address", "[fd00::1]:99"]);
    assert!(ipxe.contains(&format!("sanboot iscsi:[fd00::1]::99:412c:{TARGET}")), "{ipxe}");
    let both = typed("linux", &[]);
    assert!(both.contains("-p 127.0.0.2:"), "{both}");
    assert!(both.contains("another path: 127.0.0.1:") && both.contains("(group 2, optimized)"));
    server.ask(&["group", "set", "1", "unavailable"]);
    let other = typed("linux", &[]);
    assert!(other.contains("-p 127.0.0.1:") && !other.contains("-p 127.0.0.2:"), "{other}");
    assert!(other.contains("another path: 127.0.0.2:"), "{other}");
    assert!(other.contains("(group 1, unavailable)"), "{other}");
    server.stop();
}
