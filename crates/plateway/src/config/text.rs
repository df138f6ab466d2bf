//! A configuration written out again, every default filled in: what is read from it is the same.

use std::fmt::{self, Display, Write as _};

use super::model::HiArgs;
use super::thing::{Configured, Thing};
use crate::protocols::Routed;

/// The whole configuration, as a file.
pub(crate) fn config_text(args: &HiArgs) -> String {
    let mut text = args.server.text();
    text.extend(args.metrics.iter().map(Configured::text));
    for thing in args.things() {
        match &thing {
            // They stand in the tables of others.
            Thing::Metrics(_) => continue,
            Thing::Routed(Routed::Port(port)) if port.udp.is_none() => continue,
            Thing::Link(link) => {
                let port = args.routing.text_of_link(&link.name);
                let _ = write!(text, "\n{}{port}", thing.text());
            }
            _ => drop(write!(text, "\n{}", thing.text())),
        }
    }
    text
}

/// How many there are of what a regular noun names: `1 queue`, `2 queues`.
#[derive(Clone, Copy)]
pub(crate) struct Count<N>(pub(crate) N, pub(crate) &'static str);

impl<N: Copy + Display + PartialEq + From<bool>> Display for Count<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == N::from(true) { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

/// A list of strings of TOML.
pub(crate) fn list(words: &[impl Display]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(&word.to_string())).collect();
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
    use super::super::tests::good;
    use super::*;

    #[test]
    fn one_takes_no_plural() {
        let said = [0u64, 1, 2].map(|count| Count(count, "step").to_string());
        assert_eq!(said, ["0 steps", "1 step", "2 steps"]);
    }

    #[test]
    fn a_configuration_written_out_reads_back_as_the_same() {
        let text = r#"
[server]
metrics = "[::1]:9899"
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
[[host]]
name = "web1"
nvme = ["nqn.2026-11.net.plateway:me", "nqn.2026-11.net.plateway:me2"]
iscsi = "IQN.2026-11.net.plateway:me"
aoe = "02:00:00:00:00:01"
iscsi_chap = { user = "w", mutual = { user = "t", secret_file = "/b" } }
[[host]]
name = "db-1"
aoe = ["02:00:00:00:00:02"]
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
[[link]]
name = "san"
ethernet = "eth4"
vlan = 6
[[export]]
volume = "one"
aoe = { link = "san", shelf = 7, slot = 3, hosts = "any" }
[[listener]]
iscsi = "[::]:3260"
advertise = "gateway.example:3260"
chap = { user = "finder", secret_file = "finder.secret" }
[[export]]
volume = "s"
iscsi = { target = "IQN.2026-11.net.plateway:one", lun = 0, hosts = ["iqn.2026-11.net.plateway:me", "eui.02004567a425678d"], chap = { user = "u", mutual = { user = "t \"1\"", secret_file = "/a" } } }
[[export]]
volume = "one"
iscsi = { target = "iqn.2026-11.net.plateway:one", lun = 16383, chap = { user = "u", mutual = { user = "t \"1\"", secret_file = "/a" } } }
"#;
        let first = good(text);
        assert_eq!(good(&config_text(&first)), first);
    }
}
