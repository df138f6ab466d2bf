//! The far end of a road: the Plateway that the lab starts there, or another target by its commands.
//!
//! It is on the far end's CPUs, and ends with the value, and with this process however it ends.
//! Errors: those of the testbed, and a server that does not come up, with its last words.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::plan::{Access, Digests, Means, Protocol, Serve, System, Target};
use testbed::{Namespace, Server, load, process};

use super::rival;
use super::served::Served;
use super::stream;
use super::stripe;
use super::trial::tell;
use crate::commands::session::Interrupt;
use crate::config::text::quoted;
use crate::control::status::Status;

/// The names of all that the lab makes begin so.
pub(super) const PREFIX: &str = "plateway-lab-";
/// How long a server may take to listen.
pub(super) const START: Duration = Duration::from_secs(30);
/// How soon it is asked again.
pub(super) const AGAIN: Duration = Duration::from_millis(20);

/// What is called so in an error.
const SERVE: &str = "plateway serve";
const BEHIND: &str = "plateway serve of the disk behind it";

pub(super) const SUBSYSTEM: &str = "nqn.2026-11.net.plateway:lab";
pub(super) const TARGET_NAME: &str = "iqn.2026-11.net.plateway:lab";

/// Where the far end is: a namespace of the lab's, or that of this process; its interface, its address,
/// and its CPUs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) at: Option<&'a Namespace>,
    pub(super) interface: &'a str,
    pub(super) address: IpAddr,
    pub(super) cpus: &'a [usize],
    /// Whether a Plateway has a listener there for who fills its disk before the trial.
    pub(super) loads: bool,
}

/// Where that is found.
pub(super) const LOADER: &str =
    "nvme+tcp://127.0.0.1:4421/nqn.2026-11.net.plateway:lab/1?hdgst=0&ddgst=0";
const LOADER_LISTENS: &str = "127.0.0.1:4421";

/// What was started there, which runs until it is dropped.
pub(super) enum Running {
    /// Programs of ours, by what each is called: who is reached, and then who has its disk if that is another.
    Ours(Vec<(Server, &'static str)>),
    Foreign(Box<Foreign>),
}

impl Running {
    /// An error if it has failed.
    pub(super) fn is_up(&self) -> miette::Result<()> {
        match self {
            Running::Ours(servers) => {
                servers.iter().try_for_each(|(server, called)| server.is_up(called).map_err(tell))
            }
            Running::Foreign(foreign) => foreign.is_up(),
        }
    }
}

/// Starts a system of a plan with so many disks, and waits until it is ready; what it says of itself if it
/// is ours.
pub(super) fn start(
    system: &System,
    disks: u32,
    place: &Place<'_>,
    home: &Path,
    interrupt: &Interrupt,
) -> miette::Result<(Running, Option<Served>)> {
    let foreign = |name: &str, commands: rival::Commands| {
        let foreign = Foreign::start(name, commands, place, home, interrupt)?;
        Ok((Running::Foreign(Box::new(foreign)), None))
    };
    match &system.means {
        Means::Serve(plan) => {
            let (servers, served) = serve(plan, disks, place, home, interrupt)?;
            Ok((Running::Ours(servers), Some(served)))
        }
        Means::Rival(rival) => foreign(rival.program.word(), rival::commands(rival, place, home)?),
        Means::Target(target) => foreign(&target.start[0], rival::Commands::of(target)),
        Means::Stream(_) => {
            let sink = stream::start(place, home, interrupt)?;
            Ok((Running::Ours(vec![(sink, stream::SINK)]), None))
        }
        Means::Disk { .. } | Means::Folder(_) | Means::Nfs(_) => {
            Err(miette::miette!("{}: it is not started", system.name))
        }
    }
}

/// How a system is reached from the near end once it was started: at this address, or by this interface
/// of the near end's.
pub(super) fn uri(means: &Means, address: IpAddr, near_interface: &str) -> String {
    match means {
        Means::Serve(serve) => serve_uri(serve, address, near_interface),
        Means::Rival(rival) => rival::uri(rival, address, near_interface),
        Means::Target(Target { uri, .. }) | Means::Disk { uri } => uri.clone(),
        Means::Folder(folder) => folder.path.clone(),
        Means::Nfs(nfs) => nfs.disk.clone(),
        Means::Stream(_) => stream::address(address).to_string(),
    }
}

/// Starts what a plan has the lab serve: one server, or two of which one imports what the other has. What the one that
/// is reached says of itself.
fn serve(
    serve: &Serve,
    disks: u32,
    place: &Place<'_>,
    home: &Path,
    interrupt: &Interrupt,
) -> miette::Result<(Vec<(Server, &'static str)>, Served)> {
    let Some(protocol) = serve.through else {
        let (server, served) = serve_one(serve, disks, place, (home, SERVE), interrupt)?;
        return Ok((vec![(server, SERVE)], served));
    };
    let address = Ipv4Addr::LOCALHOST.into();
    let (digests, access) = (Digests::None, None);
    let behind = Serve { protocol, through: None, digests, access, ..serve.clone() };
    let its_home = home.join("behind");
    super::make_folder(&its_home)?;
    let its_place = Place { address, loads: false, ..*place };
    let (other, _) = serve_one(&behind, disks, &its_place, (&its_home, BEHIND), interrupt)?;
    let front = Serve { disk: serve_uri(&behind, address, place.interface), ..serve.clone() };
    let (server, served) = serve_one(&front, 1, place, (home, SERVE), interrupt)?;
    Ok((vec![(server, SERVE), (other, BEHIND)], served))
}

/// Starts one server with the disks that its plan names, and waits until it listens; what it says of itself, which is an
/// error where it is not as the plan says. It has a folder, and is called something in errors.
fn serve_one(
    serve: &Serve,
    disks: u32,
    place: &Place<'_>,
    (home, called): (&Path, &str),
    interrupt: &Interrupt,
) -> miette::Result<(Server, Served)> {
    let file = home.join("plateway.toml");
    fs::write(&file, configuration(serve, disks, place, home))
        .map_err(|error| miette::miette!("cannot write {}: {error}", file.display()))?;
    let program = super::program()?;
    let mut command = process::command(place.at, &super::list(place.cpus), &program);
    command.arg("serve").arg("--config").arg(&file);
    // Nobody asks this one for what it did before.
    command.env("XDG_STATE_HOME", home);
    let log = home.join("serve.log");
    let server = Server::start(command, &log).map_err(tell)?;
    let status = wait_until_ready(&server, called, home, interrupt)?;
    let mut served = Served::of(&status);
    if serve.protocol == Protocol::Aoe {
        // It has no connections; who fills its disk has.
        served.poll = None;
    }
    served.keeps(serve)?;
    if let (Some(at), Some(Access::Xdp)) = (place.at, serve.access) {
        // A program at the door runs before frames are steered, on the sender's CPU unless the interface
        // has a thread of its own. Between two machines each has its own door.
        at.interface(place.interface).thread_on(place.cpus[0]).map_err(tell)?;
    }
    Ok((server, served))
}

/// A target that a plan starts by its own commands, in the foreground or not.
pub(super) struct Foreign {
    /// What it is called in an error.
    name: String,
    stop: Option<Command>,
    server: Server,
    /// The memory that it serves, if it is the lab's.
    _holds: Option<OwnedFd>,
}

impl Foreign {
    /// Starts it at the far end, waits until its own command says that it is ready, and sets it up.
    fn start(
        name: &str,
        commands: rival::Commands,
        place: &Place<'_>,
        home: &Path,
        interrupt: &Interrupt,
    ) -> miette::Result<Foreign> {
        let command = |words: &Vec<String>| {
            let program = Path::new(&words[0]);
            let mut command = process::command(place.at, &super::list(place.cpus), program);
            command.args(&words[1..]).current_dir(home);
            command
        };
        let rival::Commands { start, ready, set_up, stop, holds } = commands;
        let server = Server::start(command(&start), &home.join("target.log")).map_err(tell)?;
        let (name, stop) = (name.to_owned(), stop.as_ref().map(command));
        let foreign = Foreign { name, stop, server, _holds: holds };
        let end = Instant::now() + START;
        while let Some(ready) = &ready {
            let asked = load::watch(command(ready), START, |_, _| interrupt.flow());
            let asked = asked.map_err(tell)?;
            if asked.status.success() {
                break;
            }
            foreign.is_up()?;
            if Instant::now() > end {
                let said = asked.errors.trim().replace('\n', " ");
                let words = foreign.server.words();
                let name = &foreign.name;
                return Err(miette::miette!("{name} is not ready: {said} {words}"));
            }
            pause(interrupt)?;
        }
        for words in &set_up {
            let done = load::watch(command(words), START, |_, _| interrupt.flow()).map_err(tell)?;
            if !done.status.success() {
                let said = done.errors.trim().replace('\n', " ");
                return Err(miette::miette!("{}: {said}", words.join(" ")));
            }
        }
        Ok(foreign)
    }

    /// An error if it failed; one that has ended well runs in the background.
    fn is_up(&self) -> miette::Result<()> {
        match self.server.is_up(&self.name) {
            Err(testbed::Error::Ended { status, .. }) if status.success() => Ok(()),
            other => other.map_err(tell),
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // What it does not stop ends with its namespace.
        if let Some(stop) = self.stop.take() {
            let _ = load::watch(stop, START, |_, _| ControlFlow::Continue(()));
        }
    }
}

/// A server answers on its control socket with its status once all of it is there; `called` is its name in an error.
pub(super) fn wait_until_ready(
    server: &Server,
    called: &str,
    home: &Path,
    interrupt: &Interrupt,
) -> miette::Result<Status> {
    let client = crate::control::Client::new(&home.join("control.sock"));
    let end = Instant::now() + START;
    loop {
        if let Ok(status) = client.status() {
            return Ok(status);
        }
        server.is_up(called).map_err(tell)?;
        if Instant::now() > end {
            return Err(miette::miette!("{called} does not answer: {}", server.words()));
        }
        pause(interrupt)?;
    }
}

/// A moment until somebody is asked again; an error once the lab is to end.
pub(super) fn pause(interrupt: &Interrupt) -> miette::Result<()> {
    if interrupt.is_raised() {
        return Err(miette::miette!("interrupted"));
    }
    std::thread::sleep(AGAIN);
    Ok(())
}

/// What it is told.
fn configuration(serve: &Serve, disks: u32, place: &Place<'_>, home: &Path) -> String {
    let Serve { protocol, disk, poll, shards, driver, access, .. } = serve;
    let shards = place.cpus.iter().take(shards.unwrap_or(1).into()).map(usize::to_string);
    let shards = shards.collect::<Vec<_>>().join(", ");
    let path = |name: &str| quoted(&home.join(name).display().to_string());
    let mut text = format!(
        "[server]\nshards = [{shards}]\ncontrol = {}\nstate = {}\n",
        path("control.sock"),
        path("state")
    );
    if let Some(driver) = driver {
        text += &format!("driver = {}\n", quoted(driver.word()));
    }
    text += &stripe::tables(disk, disks);
    let polls = poll.map(|poll| format!("poll = {}\n", quoted(&poll.to_string())));
    let polls = polls.unwrap_or_default();
    let address = |port| quoted(&SocketAddr::from((place.address, port)).to_string());
    let interface = quoted(place.interface);
    let by_nvme =
        format!("nvme = {{ subsystem = {}, nsid = 1, hosts = \"any\" }}", quoted(SUBSYSTEM));
    let export = match protocol {
        Protocol::Nvme => {
            text += &format!("[[listener]]\nnvme = {}\n{polls}", address(super::NVME_PORT));
            by_nvme.clone()
        }
        Protocol::Iscsi => {
            text += &format!("[[listener]]\niscsi = {}\n{polls}", address(super::ISCSI_PORT));
            format!("iscsi = {{ target = {}, lun = 0, hosts = \"any\" }}", quoted(TARGET_NAME))
        }
        Protocol::Aoe => {
            let access = access.map(|access| format!("access = {}\n", quoted(access.word())));
            let access = access.unwrap_or_default();
            text += &format!("[[link]]\nethernet = {interface}\n{access}{polls}");
            format!("aoe = {{ interface = {interface}, shelf = 7, slot = 0, hosts = \"any\" }}")
        }
    };
    let mut exports = vec![export];
    if place.loads {
        text += &format!("[[listener]]\nnvme = {}\n{polls}", quoted(LOADER_LISTENS));
        exports.extend((*protocol != Protocol::Nvme).then_some(by_nvme));
    }
    for export in exports {
        text += &format!("[[export]]\nvolume = {}\n{export}\n", quoted(stripe::VOLUME));
    }
    text
}

fn serve_uri(serve: &Serve, address: IpAddr, near_interface: &str) -> String {
    let (header, data) = match serve.digests {
        Digests::None => (0, 0),
        Digests::Header => (1, 0),
        Digests::Data => (0, 1),
        Digests::Both => (1, 1),
    };
    let digests = format!("hdgst={header}&ddgst={data}");
    match serve.protocol {
        Protocol::Nvme => {
            let address = SocketAddr::from((address, super::NVME_PORT));
            format!("nvme+tcp://{address}/{SUBSYSTEM}/1?{digests}")
        }
        Protocol::Iscsi => {
            let address = SocketAddr::from((address, super::ISCSI_PORT));
            format!("iscsi://{address}/{TARGET_NAME}/0?{digests}")
        }
        Protocol::Aoe => format!("aoe://{near_interface}/7.0"),
    }
}
