//! What a plan asks of this machine, looked at before anything is touched.
//!
//! In: a checked plan. Out: everything that it asks and that cannot be had here, a line for each cell
//! or system, with what to do about it; none if all of it can be run. Errors: those lines.

use std::path::Path;

use lab::plan::{Experiment, Group, Means, Measure};
use testbed::needs;

use super::Ends;
use super::far::PREFIX;
use super::trial::Idle;
use crate::config::uri::DiskUri;

/// An error unless all of a plan can be run here.
pub(super) fn check(experiment: &Experiment, ends: &Ends, file: &Path) -> miette::Result<()> {
    let mut lines = networks(experiment);
    lines.extend(systems(experiment, ends));
    lines.extend(cells(experiment, ends));
    match lines.as_slice() {
        [] => Ok(()),
        lines => Err(miette::miette!(
            "{} cannot be run on this machine:\n{}",
            file.display(),
            lines.join("\n")
        )),
    }
}

/// Others' work on the ends' CPUs is told, and is an error where processor time is compared.
pub(super) fn check_idle(experiment: &Experiment, idle: Idle) -> miette::Result<()> {
    if idle.is_quiet() {
        return Ok(());
    }
    let seen = format!("CPUs that do nothing before anything runs, seen busy ones: {idle}");
    let costs = |group: &Group| group.columns.iter().any(|one| one.measure == Measure::CpuPerOp);
    match experiment.groups.iter().find(|group| costs(group)) {
        Some(group) => Err(miette::miette!(
            help = "end what runs beside it, or compare something else",
            "{}: cpu-per-op: expected {seen}",
            group.name
        )),
        None => {
            let words = format!("expected {seen}; what operations cost is not told");
            crate::log::Event::warn(words).tell();
            Ok(())
        }
    }
}

/// What paths need.
fn networks(experiment: &Experiment) -> Vec<String> {
    let paths: Vec<&lab::plan::Path> = {
        let used = experiment.cells().into_iter().filter_map(|cell| cell.path);
        let mut used: Vec<usize> = used.collect();
        used.sort_unstable();
        used.dedup();
        used.into_iter().map(|at| &experiment.paths[at]).collect()
    };
    let Some(first) = paths.first() else { return Vec::new() };
    let mut lines = Vec::new();
    if let Err(why) = testbed::allowed(PREFIX) {
        lines.push(format!("path {}: {why}", first.name));
    }
    let plain = paths.iter().find(|path| !path.offloads);
    let shaped = paths.iter().find(|path| path.rate.is_some());
    for (path, program) in [(plain, "ethtool"), (shaped, "tc")] {
        if let Some(path) = path
            && let Err(why) = needs(program)
        {
            lines.push(format!("path {}: {why}", path.name));
        }
    }
    lines
}

/// What systems need.
fn systems(experiment: &Experiment, ends: &Ends) -> Vec<String> {
    let mut lines = Vec::new();
    for system in &experiment.systems {
        let name = &system.name;
        let mut disk = |uri: &str| {
            let why = match uri.parse::<DiskUri>() {
                Ok(disk) if matches!(disk.innermost(), DiskUri::Volume { .. }) => {
                    "expected a disk that needs no configuration, seen a volume of one (name what is below it)".to_owned()
                }
                Ok(_) => return,
                Err(why) => why.to_string(),
            };
            lines.push(format!("system {name}: {uri}: {why}"));
        };
        match &system.means {
            Means::Disk { uri } => disk(uri),
            Means::Serve(serve) => {
                disk(&serve.disk);
                let shards = usize::from(serve.shards.unwrap_or(1));
                if shards > ends.far.len() {
                    let cpus = ends.far.len();
                    lines.push(format!(
                        "system {name}: shards: expected at most {cpus}, the CPUs of the far end here, seen {shards}"
                    ));
                }
            }
            Means::Target(target) => {
                let commands = [Some(&target.start), target.ready.as_ref(), target.stop.as_ref()];
                for command in commands.into_iter().flatten() {
                    if let Err(why) = needs(&command[0]) {
                        lines.push(format!("system {name}: {why}"));
                    }
                }
            }
        }
    }
    lines
}

/// What cells need.
fn cells(experiment: &Experiment, ends: &Ends) -> Vec<String> {
    let mut lines = Vec::new();
    for group in &experiment.groups {
        let costs = group.columns.iter().any(|column| column.measure == Measure::CpuPerOp);
        if costs && !ends.are_apart() {
            lines.push(format!(
                "{}: cpu-per-op: expected two CPUs, one for each end, seen one",
                group.name
            ));
        }
    }
    lines
}
