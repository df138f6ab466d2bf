//! The Ethernet of the demo: two network namespaces with a cable between them, made by `ip`. Errors
//! are one line each: what was missing, and what to do about it.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use super::program;

/// The end of the cable in each namespace.
pub(super) const INTERFACE: &str = "veth0";
pub(super) const MTU: &str = "9000";
/// How long a cable may take to carry frames.
const CARRIER: Duration = Duration::from_secs(10);

/// Two network namespaces with a cable between them; both are removed with this value.
pub(super) struct Lan {
    pub(super) target: String,
    pub(super) initiator: String,
}

impl Lan {
    /// Makes it; why not, and what to do about it, in one line.
    pub(super) fn make() -> Result<Lan, String> {
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
    pub(super) fn command(namespace: &str) -> miette::Result<Command> {
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
