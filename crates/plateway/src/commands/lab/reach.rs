//! Whether targets can be reached at all, for findings that are decided by that and by no interval: two customers over
//! one core ([`super::road::customers`]), each with a server and a target of its own.
//!
//! ```text
//!   serv1 -> lx: a target of Plateway's       serv2 -> cd: vblade, for the paper's appliance       serv1 -> cd: nobody is there
//! ```
//! *Reached* means: attached as a block device, read, a file system made, a file copied there, and the same read again
//! once that was mounted anew. What is not to be reached is asked for [`PATIENCE`], and who owns it reaches it before and
//! after that. Errors: of what is between the ends, of which nothing can be said then, and what this machine lacks.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use lab::papers::{Cause, NotRun, Probe, REACHABILITY, Reached};
use lab::plan::{Backing, Digests, FileSystem, Means, Program, Protocol, Rival, Serve, System};
use testbed::{Abilities, Namespace, load, needs, process};

use super::far::{self, PREFIX, Place};
use super::mounted::{self, Attached, Near};
use super::road::customers::Customers;
use super::road::{FAR, FAR_ADDRESS, NEAR, Site};
use super::stripe::Reached as At;
use super::trial::{complaint, tell};
use super::{Ends, list, program, rival};
use crate::commands::attach;
use crate::commands::session::Interrupt;

/// How long a target that nobody is to reach is asked for.
const PATIENCE: Duration = Duration::from_secs(5);
const DISK_BYTES: u64 = 64 << 20;
/// What is read of a device, and copied to a file.
const BYTES: usize = 4 << 20;
const KIND: FileSystem = FileSystem::Ext4;

/// Tries all ways, and says what became of them; why not, where that cannot be.
pub(super) fn run(interrupt: &Interrupt) -> Result<Vec<Reached>, NotRun> {
    let not_run = |because, cause| NotRun { plan: REACHABILITY.to_owned(), because, cause };
    if let Some(because) = missing() {
        return Err(not_run(because, Cause::Machine));
    }
    try_all(interrupt).map_err(|error| not_run(error.to_string(), Cause::Passed))
}

/// What it takes and is not here.
fn missing() -> Option<String> {
    let allowed = testbed::allowed(PREFIX).map_err(|why| why.to_string());
    let attached = attach::allowed().map_err(|why| why.to_string());
    let programs = mounted::programs(KIND).into_iter().chain(["ethtool"]);
    let programs = programs.chain(rival::programs(Program::Vblade).iter().copied());
    let programs = programs.map(|program| needs(program).map_err(|why| why.to_string()));
    [allowed, attached].into_iter().chain(programs).find_map(Result::err)
}

/// Both customers with their targets, from a fresh start.
struct Tried<'t> {
    customers: Customers,
    ends: Ends,
    home: &'t Path,
    interrupt: &'t Interrupt,
}

fn try_all(interrupt: &Interrupt) -> miette::Result<Vec<Reached>> {
    let home = testbed::Folder::make(PREFIX).map_err(tell)?;
    let abilities = Abilities::find(PREFIX).map_err(tell)?;
    let (ends, home) = (Ends::of_this_machine(), home.path());
    let site = Site { ends: &ends, abilities: &abilities, home, interrupt };
    let customers = Customers::lay(&site)?;
    let mut targets = Vec::new();
    for (customer, system) in systems().into_iter().enumerate() {
        let home = home.join(&system.name);
        super::make_folder(&home)?;
        let (at, address) = (Some(customers.far(customer)), FAR_ADDRESS.into());
        let place = Place { at, interface: FAR, address, cpus: &ends.far, loads: false };
        let (running, _) = far::start(&system, 1, &place, &home, interrupt)?;
        targets.push((running, far::uri(&system.means, address, NEAR)));
    }
    let (lx, cd) = (targets[0].1.clone(), targets[1].1.clone());
    let tried = Tried { customers, ends, home, interrupt };
    let all = vec![
        tried.own(Probe::Serv1ToLx, 0, &lx)?,
        tried.other(&cd)?,
        tried.own(Probe::Serv2ToCd, 1, &cd)?,
    ];
    for (running, _) in &targets {
        running.is_up()?;
    }
    Ok(all)
}

/// The target of each customer.
fn systems() -> [System; 2] {
    let disk = format!("ram:{DISK_BYTES}");
    let serve = Serve {
        protocol: Protocol::Aoe,
        disk: disk.clone(),
        through: None,
        poll: None,
        shards: None,
        driver: None,
        digests: Digests::None,
        access: None,
    };
    let rival = Rival { program: Program::Vblade, disk, path: None, bytes: Some(DISK_BYTES) };
    [("lx", Means::Serve(serve)), ("cd", Means::Rival(rival))].map(|(name, means)| System {
        name: name.to_owned(),
        means,
        backing: Some(Backing::Ram),
        durable: Some(false),
        cached: false,
        bytes: Some(DISK_BYTES),
        disks: 1,
        mounted: None,
        kernel: false,
        initiator: None,
    })
}

impl Tried<'_> {
    /// A customer's own target: used as a disk is.
    fn own(&self, probe: Probe, customer: usize, uri: &str) -> miette::Result<Reached> {
        let used = self.answers_in_time(customer, uri, far::START).and_then(|()| {
            let home = self.home.join(format!("used-{customer}"));
            self.use_as_a_disk(customer, uri, &home)
        });
        self.goes_on()?;
        let done = "attached, read, a file copied there and read again".to_owned();
        let (is_reached, seen) = match used {
            Ok(()) => (true, done),
            Err(why) => (false, why.to_string()),
        };
        Ok(Reached { probe, is_reached, seen })
    }

    /// The other customer's target, which its own customer reaches before and after that.
    fn other(&self, uri: &str) -> miette::Result<Reached> {
        let reaches = |when: &str| {
            let tell = |why| {
                miette::miette!("the other customer does not reach its own target {when}: {why}")
            };
            self.answers_in_time(1, uri, far::START).map_err(tell)
        };
        reaches("before")?;
        let answered = self.answers(0, uri, PATIENCE);
        self.goes_on()?;
        reaches("after")?;
        let (is_reached, seen) = match answered {
            Ok(()) => (true, "it answered a read".to_owned()),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                (
                    false,
                    format!(
                        "no answer in {seconds} s, and to its own customer before and after that"
                    ),
                )
            }
        };
        Ok(Reached { probe: Probe::Serv1ToCd, is_reached, seen })
    }

    /// An error once it is to end.
    fn goes_on(&self) -> miette::Result<()> {
        match self.interrupt.is_raised() {
            true => Err(miette::miette!("interrupted")),
            false => Ok(()),
        }
    }

    /// Asks for a block until there is one.
    fn answers_in_time(&self, customer: usize, uri: &str, limit: Duration) -> miette::Result<()> {
        let end = Instant::now() + limit;
        loop {
            match self.answers(customer, uri, limit) {
                Err(_) if Instant::now() < end => far::pause(self.interrupt)?,
                answered => return answered,
            }
        }
    }

    /// Asks for a block; an error where none comes.
    fn answers(&self, customer: usize, uri: &str, limit: Duration) -> miette::Result<()> {
        let (near, cpus) = (self.customers.near(customer), list(&self.ends.near));
        let mut command = process::command(Some(near), &cpus, &program()?);
        command.args(["bench", "--json", uri, "--rw", "read", "--iodepth", "1"]);
        command.args(["--time", "1ms", "--warmup", "0"]);
        let ended = load::watch(command, limit, |_, _| self.interrupt.flow()).map_err(tell)?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(miette::miette!("{}", complaint(&ended))),
        }
    }

    /// Attaches a disk, reads it, and copies a file there.
    fn use_as_a_disk(&self, customer: usize, uri: &str, home: &Path) -> miette::Result<()> {
        let point = home.join("mounted");
        super::make_folder(&point)?;
        let at: &Namespace = self.customers.near(customer);
        let near = Near { at: Some(at), cpus: &self.ends.near };
        let attached = Attached::start(&near, &At::by(uri.to_owned()), home, self.interrupt)?;
        let used = self.copy_there(&attached.device, &point);
        used.and_then(|()| attached.detach(self.interrupt))
    }

    fn copy_there(&self, device: &Path, point: &Path) -> miette::Result<()> {
        let cannot = |verb: &str, path: &Path, error: std::io::Error| {
            miette::miette!("cannot {verb} {}: {error}", path.display())
        };
        let mut bytes = vec![0; BYTES];
        let opened = fs::File::open(device).map_err(|error| cannot("open", device, error))?;
        (&opened).read_exact(&mut bytes).map_err(|error| cannot("read", device, error))?;
        drop(opened);
        mounted::make(KIND, device, self.interrupt)?;
        let file = point.join("file");
        lab::file_load::contents::fill(&mut bytes, 1, 0);
        let mount = || testbed::Mounted::make(KIND.word(), "", device, point).map_err(tell);
        let first = mount()?;
        fs::write(&file, &bytes).map_err(|error| cannot("write", &file, error))?;
        first.unmount().map_err(tell)?;
        let second = mount()?;
        let read = fs::read(&file).map_err(|error| cannot("read", &file, error))?;
        second.unmount().map_err(tell)?;
        match read == bytes {
            true => Ok(()),
            false => Err(miette::miette!(
                "{}: expected what was written there, seen something else",
                file.display()
            )),
        }
    }
}
