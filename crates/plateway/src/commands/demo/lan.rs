//! The part of the demo that needs a right: a volume over NVMe/TCP and AoE at once, across an
//! Ethernet that is made for it.
//!
//! ```text
//!   namespace plateway-demo-PID-t              namespace plateway-demo-PID-i
//!   serve: nvme 127.0.0.1, aoe veth0  --veth--  copy and bench: aoe://veth0/7.0
//!   copy: nvme+tcp://127.0.0.1
//! ```
//!
//! What is written over one protocol must read back the same over the other, byte for byte, both
//! ways. The namespaces, and with them the Ethernet, are removed at the end, also of a demo that
//! failed or was interrupted. Who may not make namespaces is told so in one line, with what to do;
//! nothing else changes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::report::Grouped;
use serde::Serialize;

use super::{Case, Home, Interrupt, carry_out, measure, program, rows, stop_if};
use crate::config::defaults::Defaults;
use crate::config::text::quoted;

/// The control socket of its server.
const CONTROL: &str = "aoe.sock";
const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:demo-aoe";
const ADDRESS: &str = "7.0";
/// The end of the cable in each namespace.
const INTERFACE: &str = "veth0";
const MTU: &str = "9000";
const VOLUME_BYTES: u64 = 32 << 20;
/// How long a cable may take to carry frames.
const CARRIER: Duration = Duration::from_secs(10);

const CASES: [Case; 3] = [
    ("4k random read", "--rw randread --bs 4k --iodepth 32 --time 2"),
    ("4k random write", "--rw randwrite --bs 4k --iodepth 32 --time 2"),
    ("128k read", "--rw read --bs 128k --iodepth 4 --time 2"),
];

/// What it came to, as `--json` prints it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Shown {
    /// Why it was left out, if so.
    skipped: Option<String>,
    /// Bytes that were written over one protocol and read back the same over the other.
    bytes_compared: u64,
    /// What `bench --json` printed over AoE.
    results: Vec<serde_json::Value>,
}

impl Shown {
    /// For people.
    pub(super) fn text(&self) -> String {
        if let Some(why) = &self.skipped {
            return format!("\nAoE is left out: {why}\n");
        }
        let rows = rows("over AoE", &CASES, &self.results);
        format!(
            "\n{rows}\n\nBetween two network namespaces, MTU {MTU}, on a file. What was written over NVMe/TCP was read back over AoE, and the other way round:\n\
             {} bytes, all of them the same.\n",
            Grouped(self.bytes_compared)
        )
    }
}

/// Shows it, if the right is there.
pub(super) fn show(home: &Home, interrupted: &Interrupt) -> miette::Result<Shown> {
    let lan = match Lan::make() {
        Ok(lan) => lan,
        Err(why) => return Ok(Shown { skipped: Some(why), ..Shown::default() }),
    };
    let file = configure(home)?;
    let mut command = lan.command(&lan.target)?;
    command.arg("serve").arg("--config").arg(&file);
    let mut server = home.start(command, "serve-aoe.log")?;
    let nvme = format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.address);
    let aoe = format!("aoe://{INTERFACE}/{ADDRESS}");
    let mut shown = Shown::default();
    let ways = [
        ((&lan.target, &nvme), (&lan.initiator, &aoe)),
        ((&lan.initiator, &aoe), (&lan.target, &nvme)),
    ];
    for (number, ((writer, to), (reader, from))) in ways.into_iter().enumerate() {
        let written = home.path.join(format!("written-{number}"));
        let read = home.path.join(format!("read-{number}"));
        fill(&written).map_err(|error| miette::miette!("{}: {error}", written.display()))?;
        let create = format!("?create={VOLUME_BYTES}");
        let there = ["copy", &file_uri(&written, ""), to, "--overwrite", "--no-verify"];
        let back = ["copy", from, &file_uri(&read, &create), "--overwrite"];
        for (namespace, line) in [(writer, &there[..]), (reader, &back)] {
            let done = carry_out(lan.command(namespace)?, line);
            done.map_err(|error| error.wrap_err(server.last_words()))?;
        }
        let bytes = |path: &Path| {
            fs::read(path).map_err(|error| miette::miette!("{}: {error}", path.display()))
        };
        if bytes(&written)? != bytes(&read)? {
            return Err(miette::miette!("what was written to {to} reads otherwise from {from}"));
        }
        shown.bytes_compared += VOLUME_BYTES;
        stop_if(interrupted)?;
    }
    for case in CASES {
        let result = measure(lan.command(&lan.initiator)?, &aoe, case, &home.path.join(CONTROL));
        shown.results.push(result.map_err(|error| error.wrap_err(server.last_words()))?);
        stop_if(interrupted)?;
    }
    server.end();
    Ok(shown)
}

/// Writes the configuration of a server with a volume that has both addresses.
fn configure(home: &Home) -> miette::Result<PathBuf> {
    let uri = quoted(&file_uri(&home.path.join("aoe-disk"), &format!("?create={VOLUME_BYTES}")));
    let tables = format!(
        "\n[[disk]]\nname = \"d0\"\nuri = {uri}\n\
         \n[[volume]]\nname = \"demo\"\ndisks = [\"d0\"]\n\
         \n[[listener]]\nnvme = \"127.0.0.1:0\"\n\
         \n[[export]]\nvolume = \"demo\"\nnvme = {{ subsystem = \"{SUBSYSTEM}\", nsid = 1, hosts = \"any\" }}\n\
         aoe = {{ interface = \"{INTERFACE}\", shelf = 7, slot = 0, hosts = \"any\" }}\n",
    );
    let (file, control) = (home.path.join("aoe.toml"), home.path.join(CONTROL));
    let cpus = Defaults::of_this_machine().cpus;
    home.write(&file, &cpus[..1], &control, "aoe-state", &tables)?;
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

/// Two network namespaces with a cable between them; both are removed with this value.
struct Lan {
    target: String,
    initiator: String,
}

impl Lan {
    /// Makes it; why not, and what to do about it, in one line.
    fn make() -> Result<Lan, String> {
        const HELP: &str = "it takes root (sudo plateway demo); to serve on an interface that is there: setcap cap_net_raw+ep on this program, then plateway serve DISK --aoe INTERFACE/7.0";
        let name = |end: &str| format!("plateway-demo-{}-{end}", std::process::id());
        // From here on what was made is removed, whatever is missing.
        let lan = Lan { target: name("t"), initiator: name("i") };
        let Lan { target, initiator } = &lan;
        for step in [
            format!("netns add {target}"),
            format!("netns add {initiator}"),
            format!(
                "link add {INTERFACE} mtu {MTU} netns {target} type veth \
                 peer name {INTERFACE} mtu {MTU} netns {initiator}"
            ),
            format!("-n {target} link set lo up"),
            format!("-n {target} link set {INTERFACE} up"),
            format!("-n {initiator} link set {INTERFACE} up"),
        ] {
            ip(&step).map_err(|why| format!("ip {step}: {why}; {HELP}"))?;
        }
        let until = Instant::now() + CARRIER;
        for namespace in [target, initiator] {
            while !ip(&format!("-n {namespace} -o link show {INTERFACE}"))?.contains("LOWER_UP") {
                if Instant::now() > until {
                    return Err(format!("{INTERFACE} does not come up in {namespace}"));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(lan)
    }

    /// This program, in a namespace.
    fn command(&self, namespace: &str) -> miette::Result<Command> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(program()?);
        Ok(command)
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for namespace in [&self.target, &self.initiator] {
            // One that was never made is no mistake.
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

/// What `ip` printed; what it complained of.
fn ip(line: &str) -> Result<String, String> {
    let output = match Command::new("ip").args(line.split_whitespace()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("there is no such program (package iproute2)".to_owned());
        }
        Err(error) => return Err(error.to_string()),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr).replace('\n', ", ")),
    }
}
