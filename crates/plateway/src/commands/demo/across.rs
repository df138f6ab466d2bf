//! The part of the demo that shows that protocols are views of one volume: it is served over
//! NVMe/TCP and iSCSI at once, and, where the right is there, over AoE across an Ethernet that is
//! made for it.
//!
//! ```text
//!   namespace plateway-demo-PID-0-t                     namespace plateway-demo-PID-0-i
//!   serve: nvme and iscsi 127.0.0.1, aoe veth0  --veth--  copy and bench: aoe://veth0/7.0
//!   copy and bench: nvme+tcp://127.0.0.1, iscsi://127.0.0.1
//! ```
//!
//! What is written over one protocol must read back the same over each other, byte for byte. The
//! namespaces, and with them the Ethernet, are removed at the end, also of a demo that failed or
//! was interrupted. Who may not make namespaces is told so in one line, with what to do, and sees
//! the other two protocols.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::report::Grouped;
use serde::Serialize;
use serde_json::Value;

use testbed::Namespace;

use super::lan::{INTERFACE, Lan, MTU};
use super::{Case, Home, Interrupt, carry_out, measure, program, rows, stop_if};
use crate::config::defaults::Defaults;
use crate::config::text::quoted;

/// The control socket of its server.
const CONTROL: &str = "across.sock";
const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:demo-across";
const TARGET: &str = "iqn.2026-11.net.plateway:demo-across";
const ADDRESS: &str = "7.0";
const VOLUME_BYTES: u64 = 32 << 20;

const CASES: [Case; 3] = [
    ("4k random read", "--rw randread --bs 4k --iodepth 32 --time 2"),
    ("4k random write", "--rw randwrite --bs 4k --iodepth 32 --time 2"),
    ("128k read", "--rw read --bs 128k --iodepth 4 --time 2"),
];

/// What it came to, as `--json` prints it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Shown {
    /// Why there is no Ethernet, and AoE was left out, if so.
    lan_skipped: Option<String>,
    /// Bytes that were written over one protocol and read back the same over another.
    bytes_compared: u64,
    /// What `bench --json` printed, by protocol.
    results: Vec<(&'static str, Vec<Value>)>,
}

impl Shown {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (protocol, results) in &self.results {
            text += &format!("\n{}\n", rows(&format!("over {protocol}"), &CASES, results));
        }
        let names = match self.lan_skipped {
            Some(_) => "NVMe/TCP and iSCSI",
            None => "NVMe/TCP, iSCSI and AoE",
        };
        text += &format!(
            "\nA second volume, on a file, is served over {names} at once. What was written over one was read back over each other:\n\
             {} bytes, all of them the same.\n",
            Grouped(self.bytes_compared)
        );
        match &self.lan_skipped {
            Some(why) => text += &format!("\nAoE is left out: {why}\n"),
            None => text += &format!("AoE went between two network namespaces, MTU {MTU}.\n"),
        }
        text
    }
}

/// A way to the volume.
struct Way {
    protocol: &'static str,
    uri: String,
    /// The namespace from which it is gone.
    namespace: Option<Namespace>,
}

impl Way {
    /// This program, where the way begins.
    fn command(&self) -> miette::Result<Command> {
        match &self.namespace {
            Some(namespace) => Lan::command(namespace),
            None => Ok(Command::new(program()?)),
        }
    }
}

/// Shows it: over AoE if the right is there.
pub(super) fn show(home: &Home, interrupted: &Interrupt) -> miette::Result<Shown> {
    let (lan, lan_skipped) = match Lan::make() {
        Ok(lan) => (Some(lan), None),
        Err(why) => (None, Some(why)),
    };
    let file = configure(home, lan.is_some())?;
    let inside = lan.as_ref().map(|lan| lan.target().clone());
    let mut command = match &inside {
        Some(namespace) => Lan::command(namespace)?,
        None => Command::new(program()?),
    };
    command.arg("serve").arg("--config").arg(&file);
    let mut server = home.start(command, "serve-across.log")?;
    let way = |protocol, uri, namespace| Way { protocol, uri, namespace };
    let nvme = format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.address("nvme"));
    let iscsi = format!("iscsi://{}/{TARGET}/0", server.address("iscsi"));
    let mut ways = vec![way("NVMe/TCP", nvme, inside.clone()), way("iSCSI", iscsi, inside.clone())];
    if let Some(lan) = &lan {
        let uri = format!("aoe://{INTERFACE}/{ADDRESS}");
        ways.push(way("AoE", uri, Some(lan.initiator().clone())));
    }
    let mut shown = Shown { lan_skipped, ..Shown::default() };
    for writer in 0..ways.len() {
        let compared = write_and_read(home, &ways, writer);
        stop_if(interrupted)?;
        shown.bytes_compared += compared.map_err(|error| error.wrap_err(server.last_words()))?;
    }
    // NVMe/TCP was measured before.
    for way in &ways[1..] {
        let mut results = Vec::new();
        for case in CASES {
            let result = measure(way.command()?, &way.uri, case, &home.path.join(CONTROL));
            stop_if(interrupted)?;
            results.push(result.map_err(|error| error.wrap_err(server.last_words()))?);
        }
        shown.results.push((way.protocol, results));
    }
    server.end();
    Ok(shown)
}

/// Writes the volume one way and reads it every other; returns how many bytes were the same.
fn write_and_read(home: &Home, ways: &[Way], writer: usize) -> miette::Result<u64> {
    let written = home.path.join(format!("written-{writer}"));
    fill(&written).map_err(|error| miette::miette!("{}: {error}", written.display()))?;
    let to = &ways[writer];
    let there = ["copy", &file_uri(&written, ""), &to.uri, "--overwrite", "--no-verify"];
    carry_out(to.command()?, &there)?;
    let bytes = |path: &Path| {
        fs::read(path).map_err(|error| miette::miette!("{}: {error}", path.display()))
    };
    let expected = bytes(&written)?;
    let mut compared = 0;
    for from in ways.iter().filter(|from| from.protocol != to.protocol) {
        let read = home.path.join("read");
        let create = format!("?create={VOLUME_BYTES}");
        let back = ["copy", &from.uri, &file_uri(&read, &create), "--overwrite"];
        carry_out(from.command()?, &back)?;
        if bytes(&read)? != expected {
            let (to, from) = (&to.uri, &from.uri);
            return Err(miette::miette!("what was written to {to} reads otherwise from {from}"));
        }
        fs::remove_file(&read).map_err(|error| miette::miette!("{}: {error}", read.display()))?;
        compared += VOLUME_BYTES;
    }
    Ok(compared)
}

/// Writes the configuration of a server with a volume that has all addresses.
fn configure(home: &Home, on_lan: bool) -> miette::Result<PathBuf> {
    let uri = quoted(&file_uri(&home.path.join("disk"), &format!("?create={VOLUME_BYTES}")));
    let aoe = match on_lan {
        true => format!(
            "aoe = {{ interface = \"{INTERFACE}\", shelf = 7, slot = 0, hosts = \"any\" }}\n"
        ),
        false => String::new(),
    };
    let tables = format!(
        "\n[[disk]]\nname = \"d0\"\nuri = {uri}\n\
         \n[[volume]]\nname = \"demo\"\ndisks = [\"d0\"]\n\
         \n[[listener]]\nnvme = \"127.0.0.1:0\"\n\
         \n[[listener]]\niscsi = \"127.0.0.1:0\"\n\
         \n[[export]]\nvolume = \"demo\"\nnvme = {{ subsystem = \"{SUBSYSTEM}\", nsid = 1, hosts = \"any\" }}\n\
         iscsi = {{ target = \"{TARGET}\", lun = 0, hosts = \"any\" }}\n{aoe}",
    );
    let (file, control) = (home.path.join("across.toml"), home.path.join(CONTROL));
    let cpus = Defaults::of_this_machine().cpus;
    home.write(&file, &cpus[..1], &control, "across-state", &tables)?;
    Ok(file)
}

fn file_uri(path: &Path, options: &str) -> String {
    format!("file:{}{options}", path.display())
}

/// A file of random bytes, as large as the volume.
fn fill(path: &Path) -> io::Result<()> {
    use std::io::Read;
    let mut bytes = vec![0; VOLUME_BYTES as usize];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    fs::write(path, bytes)
}
