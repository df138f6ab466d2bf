//! The way of a trial to its far end: a road that the lab lays, or the line between two machines, whose
//! far end an agent looks after.
//!
//! Over both a system is started, looked at and judged in the same words. Between two machines the
//! lab changes nothing: it reads MTU and offloads at both ends when a trial is over, as before the
//! first one, and what is not as the plan says fails the trial. Errors: those of the road, and what
//! the agent answers.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::Path as File;

use lab::plan::{Cell, Line, Path};
use testbed::{Counters, Namespace};

use super::agent::{Agent, Looked, Request};
use super::core_port::Recorder;
use super::far::{self, Place};
use super::machine;
use super::road::{FAR, FAR_ADDRESS, Judged, NEAR, Road, Site};
use super::seen::{End, Ours};
use super::served::Served;
use super::stripe::Reached;
use super::trial::{Lab, tell};

/// The way of one trial.
pub(super) struct Way<'a> {
    /// What was started at its far end, which goes before the way does.
    running: Option<Running<'a>>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Laid(Road),
    Between(Between<'a>),
}

/// Two machines.
struct Between<'a> {
    path: &'a Path,
    line: &'a Line,
    /// Its place in the plan.
    number: usize,
    agent: &'a RefCell<Agent>,
    /// Of the near end's interface.
    mtu: u32,
}

/// What was started at the far end, which runs until it is dropped.
enum Running<'a> {
    Here(far::Running),
    There(&'a RefCell<Agent>),
}

/// A system that was started: how it is reached, and what it says of itself if it is ours.
pub(super) struct Started {
    pub(super) at: Reached,
    pub(super) served: Option<Served>,
}

impl<'a> Way<'a> {
    /// Lays the road of a path of the plan, by its place there, or takes the line that is there.
    pub(super) fn take(lab: &Lab<'a>, number: usize, home: &File) -> miette::Result<Way<'a>> {
        let path = &lab.experiment.paths[number];
        let kind = match (&path.line, lab.agent, lab.abilities) {
            (Some(line), Some(agent), _) => {
                let here = Namespace::here();
                let mtu = here.interface(&line.near_interface).mtu().map_err(tell)?;
                Kind::Between(Between { path, line, number, agent, mtu })
            }
            (None, _, Some(abilities)) => {
                let site = Site { ends: lab.ends, abilities, home, interrupt: lab.interrupt };
                Kind::Laid(Road::lay(path, &site)?)
            }
            _ => {
                let name = &path.name;
                return Err(miette::miette!("path {name}: nobody looked whether it can be had"));
            }
        };
        Ok(Way { running: None, kind })
    }

    /// Where the near end is, if not where this process is.
    pub(super) fn near(&self) -> Option<&Namespace> {
        match &self.kind {
            Kind::Laid(road) => Some(road.near()),
            Kind::Between(_) => None,
        }
    }

    /// On which CPUs the near end's client runs, if the path says so.
    pub(super) fn client_cpus(&self) -> Option<&[usize]> {
        match &self.kind {
            Kind::Laid(road) => Some(road.client_cpus()),
            Kind::Between(_) => None,
        }
    }

    /// By which address the far end is reached.
    pub(super) fn far_address(&self) -> IpAddr {
        match &self.kind {
            Kind::Laid(_) => FAR_ADDRESS.into(),
            Kind::Between(between) => between.line.far_address,
        }
    }

    /// Where the far end is, where the lab laid the way there.
    pub(super) fn far(&self) -> Option<&Namespace> {
        match &self.kind {
            Kind::Laid(road) => Some(road.far()),
            Kind::Between(_) => None,
        }
    }

    /// Starts the system of a cell, which runs until this is dropped.
    pub(super) fn start(
        &mut self,
        lab: &Lab<'_>,
        cell: &Cell,
        home: &File,
    ) -> miette::Result<Started> {
        let system = &lab.experiment.systems[cell.system];
        let disks = system.disks_under(&cell.load);
        let (running, served, address, near_interface) = match &self.kind {
            Kind::Laid(road) => {
                let (at, address) = (Some(road.far()), FAR_ADDRESS.into());
                let loads = lab.takes_image(cell);
                let place = Place { at, interface: FAR, address, cpus: &lab.ends.far, loads };
                let (running, served) = far::start(system, disks, &place, home, lab.interrupt)?;
                (Running::Here(running), served, address, NEAR)
            }
            Kind::Between(between) => {
                let request = Request::Start { system: cell.system, disks, path: between.number };
                let served: Option<Served> = between.agent.borrow_mut().ask(&request)?;
                let (line, running) = (between.line, Running::There(between.agent));
                (running, served, line.far_address, &*line.near_interface)
            }
        };
        let uri = far::uri(&system.means, address, near_interface);
        self.running = Some(running);
        Ok(Started { at: Reached::by(uri), served })
    }

    /// What the near end's interface has counted, by a process that is there; if it is.
    pub(super) fn counters(&self, pid: u32) -> Option<Counters> {
        Counters::seen_by(
            pid,
            match &self.kind {
                Kind::Laid(_) => NEAR,
                Kind::Between(between) => &between.line.near_interface,
            },
        )
    }

    /// What the first router's interface to the core has counted; where there is a core.
    pub(super) fn core_counters(&self) -> Option<Counters> {
        match &self.kind {
            Kind::Laid(road) => road.core_counters(),
            Kind::Between(_) => None,
        }
    }

    /// Counts what the first router sends to the core from now on; where there is a router of the lab's.
    pub(super) fn recorder(&self) -> Option<Recorder> {
        match &self.kind {
            Kind::Laid(road) => road.recorder(),
            Kind::Between(_) => None,
        }
    }

    /// Which MTU no frame of it is to exceed on average, since nothing counts those that do; none of a road,
    /// whose rules count them, and none with offloads.
    pub(super) fn mean_at_most(&self) -> Option<u32> {
        match &self.kind {
            Kind::Laid(_) => None,
            Kind::Between(between) => Some(between.mtu).filter(|_| !between.path.offloads),
        }
    }

    /// An error if what runs between the ends has ended, or at the far one: then whatever else failed follows
    /// from that.
    pub(super) fn is_up(&self) -> miette::Result<()> {
        if let Kind::Laid(road) = &self.kind {
            road.is_up()?;
        }
        match &self.running {
            Some(Running::Here(running)) => running.is_up(),
            Some(Running::There(agent)) => agent.borrow_mut().ask(&Request::IsUp),
            None => Ok(()),
        }
    }

    /// Has the agent look at the far end's CPUs; where there is one.
    pub(super) fn look(&self) -> miette::Result<Option<Looked>> {
        match &self.kind {
            Kind::Laid(_) => Ok(None),
            Kind::Between(between) => {
                let request = Request::Look { path: between.number };
                between.agent.borrow_mut().ask(&request).map(Some)
            }
        }
    }

    /// What the far end's CPUs did between two such looks.
    pub(super) fn used(&self, from: &Looked, to: &Looked) -> miette::Result<End> {
        match &self.kind {
            Kind::Laid(_) => Err(miette::miette!("no agent looked")),
            Kind::Between(between) => {
                let request = Request::Used { from: from.look, to: to.look };
                between.agent.borrow_mut().ask(&request)
            }
        }
    }

    /// Whose work in a trial over it is the trial's.
    pub(super) fn ours(&self) -> Ours {
        match &self.kind {
            Kind::Laid(road) => road.ours(),
            Kind::Between(_) => Ours::default(),
        }
    }

    /// Holds what was seen against what the path says, once a trial is over.
    pub(super) fn judge(&self) -> miette::Result<Judged> {
        match &self.kind {
            Kind::Laid(road) => road.judge(),
            Kind::Between(between) => {
                let near = &between.line.near_interface;
                let mut lines = machine::interface(between.path, near, "near");
                let request = Request::Line { path: between.number };
                let there: Vec<String> = between.agent.borrow_mut().ask(&request)?;
                lines.extend(there);
                match lines.as_slice() {
                    [] => Ok(Judged::default()),
                    lines => Err(miette::miette!("{}", lines.join("; "))),
                }
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Running::There(agent) = self {
            // What it cannot end now ends with the connection.
            let _: miette::Result<()> = agent.borrow_mut().ask(&Request::End);
        }
    }
}
