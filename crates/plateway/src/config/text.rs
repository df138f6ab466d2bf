//! A configuration written out again, every default filled in: what is read from it is the same.

use std::fmt::Write as _;

use super::model::{HiArgs, Hosts, Layout, Server};
use super::size::Size;

/// The whole configuration, as a file.
pub(crate) fn config_text(args: &HiArgs) -> String {
    let HiArgs { server, disks, volumes, listeners, links, exports, aoe_exports } = args;
    let mut text = server_text(server);
    for disk in disks {
        let (name, uri) = (quoted(&disk.name), quoted(&disk.uri.to_string()));
        let _ = write!(text, "\n[[disk]]\nname = {name}\nuri = {uri}\n");
    }
    for volume in volumes {
        let (word, chunk) = match &volume.layout {
            Layout::Single { .. } => ("single", None),
            Layout::Concat { .. } => ("concat", None),
            Layout::Stripe { chunk_bytes, .. } => ("stripe", Some(*chunk_bytes)),
        };
        let name = quoted(&volume.name);
        let disks = list(volume.layout.disks().iter().map(String::as_str));
        let _ = write!(text, "\n[[volume]]\nname = {name}\nlayout = \"{word}\"\ndisks = {disks}\n");
        if let Some(chunk) = chunk {
            let _ = writeln!(text, "chunk = \"{}\"", Size(chunk));
        }
        let _ = writeln!(text, "block_size = {}", volume.block_size);
        if let Some(uuid) = volume.uuid {
            let _ = writeln!(text, "uuid = \"{uuid}\"");
        }
        if let Some(bytes) = volume.size_bytes {
            let _ = writeln!(text, "size = \"{}\"", Size(bytes));
        }
    }
    for listener in listeners {
        let _ = write!(
            text,
            "\n[[listener]]\nnvme = \"{}\"\npoll_us = {}\nmax_connections = {}\n",
            listener.address, listener.poll_us, listener.connections_max
        );
    }
    for link in links {
        let (interface, access) = (quoted(&link.name.interface), link.access);
        let _ = write!(text, "\n[[listener]]\naoe = {interface}\nlink = \"{access}\"\n");
        if let Some(vlan) = link.name.vlan {
            let _ = writeln!(text, "vlan = {vlan}");
        }
    }
    for export in exports {
        let hosts = hosts_text(&export.hosts);
        let (volume, subsystem) = (quoted(&export.volume), quoted(export.subsystem.as_str()));
        let _ = write!(
            text,
            "\n[[export]]\nvolume = {volume}\nnvme = {{ subsystem = {subsystem}, nsid = {}, hosts = {hosts} }}\n",
            export.nsid
        );
    }
    for export in aoe_exports {
        let (volume, hosts) = (quoted(&export.volume), hosts_text(&export.hosts));
        let interface = list(export.interfaces.iter().map(String::as_str));
        // Without it the link without a tag is meant, which is among those above.
        let vlan = export.vlan.map_or(String::new(), |vlan| format!(" vlan = {vlan},"));
        let _ = write!(
            text,
            "\n[[export]]\nvolume = {volume}\naoe = {{ interface = {interface},{vlan} shelf = {}, slot = {}, hosts = {hosts}, buffers = {} }}\n",
            export.address.shelf, export.address.slot, export.buffers
        );
    }
    text
}

fn hosts_text<T: std::fmt::Display>(hosts: &Hosts<T>) -> String {
    match hosts {
        Hosts::Any => "\"any\"".to_owned(),
        Hosts::List(hosts) => {
            let words: Vec<String> = hosts.iter().map(T::to_string).collect();
            list(words.iter().map(String::as_str))
        }
    }
}

fn server_text(server: &Server) -> String {
    let path = |path: &std::path::Path| quoted(&path.display().to_string());
    let mut text = String::from("[server]\n");
    let _ = writeln!(text, "shards = {:?}", server.shards);
    let _ = writeln!(text, "memory = \"{}\"", Size(server.memory_bytes));
    let _ = writeln!(text, "control = {}", path(&server.control));
    let _ = writeln!(text, "state = {}", path(&server.state));
    let _ = writeln!(text, "driver = \"{}\"", server.driver);
    let _ = writeln!(text, "max_connections = {}", server.connections_max);
    let _ = writeln!(text, "max_connections_per_host = {}", server.connections_per_host_max);
    text
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(quoted).collect();
    format!("[{}]", words.join(", "))
}

/// A basic string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::{check, defaults::Defaults};
    use super::*;

    #[test]
    fn a_configuration_written_out_reads_back_as_the_same() {
        let defaults =
            Defaults { cpus: vec![0, 1], control: "/run/p.sock".into(), state: "/var/p".into() };
        let text = r#"
[[disk]]
name = "a"
uri = "delay:5,file:/srv/a \"b\".img?create=64MiB"
[[disk]]
name = "b"
uri = "ram:64MiB"
[[disk]]
name = "c"
uri = "ram:1MiB"
[[volume]]
name = "s"
layout = "stripe"
disks = ["a", "b"]
block_size = 4096
size = "8MiB"
uuid = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"
[[volume]]
name = "one"
disks = ["c"]
[[listener]]
nvme = "[::]:4420"
poll_us = 50
[[export]]
volume = "s"
nvme = { subsystem = "nqn.2026-11.net.plateway:s", nsid = 3, hosts = ["nqn.2026-11.net.plateway:me"] }
[[export]]
volume = "one"
nvme = { subsystem = "nqn.2026-11.net.plateway:one", nsid = 1, hosts = "any" }
aoe = { interface = ["eth1", "eth2"], shelf = 7, slot = 0, hosts = "any" }
[[listener]]
aoe = "eth3"
vlan = 5
link = "xdp"
[[export]]
volume = "one"
aoe = { interface = "eth3", shelf = 7, slot = 1, hosts = ["02:00:00:00:00:01"], buffers = 16 }
[[export]]
volume = "one"
aoe = { interface = "eth1", vlan = 9, shelf = 7, slot = 2 }
"#;
        let first = check("a", text, &defaults).unwrap().args;
        let again = check("b", &config_text(&first), &defaults).unwrap().args;
        assert_eq!(first, again);
    }
}
