//! What a plan asks of this machine, looked at before anything is touched.
//!
//! In: a checked plan. Out: everything that it asks and that cannot be had here, a line for each cell
//! or system, with what to do about it; none if all of it can be run. Errors: those lines.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use lab::papers::Need;
use lab::plan::{Experiment, Group, Means, Measure, Mistakes, PathKind, Softirqs, System};
use testbed::{Abilities, Namespace, needs};

use super::Ends;
use super::agent::{Agent, Request};
use super::far::PREFIX;
use super::seen::Idle;
use super::{folder, kernel_nvme, limits, mounted, rival, road};
use crate::config::uri::{DiskUri, check_interface};

/// An error unless all of a plan can be run here; what its paths can do here, if it has some.
pub(super) fn check(
    experiment: &Experiment,
    ends: &Ends,
    agent: Option<&RefCell<Agent>>,
    (file, text): (&Path, &str),
) -> miette::Result<Option<Abilities>> {
    kernel_nvme::remove_leftovers();
    let (mut lines, abilities) = networks(experiment, ends);
    for path in &experiment.paths {
        if let Some(line) = &path.line {
            lines.extend(interface(path, &line.near_interface, "near"));
        }
    }
    // What is started at the far end is looked at there.
    let is_here = |system: &&System| agent.is_none() || !system.means.needs_path();
    lines.extend(systems(experiment.systems.iter().filter(is_here), ends));
    if let Some(agent) = agent {
        lines.extend(agent.borrow_mut().ask::<Vec<String>>(&Request::Check)?);
    }
    lines.extend(initiators(experiment));
    lines.extend(mounted::missing(experiment));
    lines.extend(kernel_nvme::missing(experiment));
    lines.extend(cells(experiment, ends, abilities.as_ref()));
    let mut mistakes = folder::mistakes(experiment);
    mistakes.extend(limits::mistakes(experiment));
    if !mistakes.is_empty() {
        let mistakes = Mistakes::new(&file.display().to_string(), text, mistakes);
        lines.extend(mistakes.lines());
    }
    match lines.as_slice() {
        [] => Ok(abilities),
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
    let groups = experiment.groups.iter();
    match groups.filter_map(|group| Some((group, cost_of(group)?))).next() {
        Some((group, cost)) => Err(miette::miette!(
            help = "end what runs beside it, or compare something else",
            "{}: {}: expected {seen}",
            group.name,
            cost.word()
        )),
        None => {
            let words = format!("expected {seen}; what operations cost is not told");
            crate::log::Event::warn(words).tell();
            Ok(())
        }
    }
}

/// The first measure of processor time that a group compares.
fn cost_of(group: &Group) -> Option<Measure> {
    group.columns.iter().map(|column| column.measure).find(|measure| measure.is_of_cpu())
}

/// What of an interface of ours is not as a path between two machines says; of this end.
pub(super) fn interface(path: &lab::plan::Path, name: &str, end: &str) -> Vec<String> {
    let told = |what: String| format!("path {}: {name} at the {end} end: {what}", path.name);
    if let Err(expected) = check_interface(name) {
        return vec![told(format!("expected {expected}"))];
    }
    let here = Namespace::here();
    let interface = here.interface(name);
    let seen = interface.mtu().and_then(|mtu| Ok((mtu, interface.offloads()?.on())));
    let (mtu, on) = match seen {
        Ok(seen) => seen,
        Err(why) => return vec![told(why.to_string())],
    };
    let mut lines = Vec::new();
    if let Some(asked) = path.mtu.filter(|asked| *asked != mtu) {
        lines.push(told(format!("expected an MTU of {asked}, seen {mtu}")));
    }
    match (path.offloads, on.as_slice()) {
        (false, [_, ..]) => lines.push(told(format!(
            "expected no offloads, seen {} (ethtool -K {name} {}, or offloads = true)",
            on.join(", "),
            on.iter().map(|one| format!("{one} off")).collect::<Vec<_>>().join(" ")
        ))),
        (true, []) => lines.push(told("expected offloads, seen none".to_owned())),
        _ => {}
    }
    lines
}

/// What paths need, and what this kernel can do to frames.
fn networks(experiment: &Experiment, ends: &Ends) -> (Vec<String>, Option<Abilities>) {
    let mut used: Vec<usize> =
        experiment.cells().into_iter().filter_map(|cell| cell.path).collect();
    used.sort_unstable();
    used.dedup();
    let laid = used.iter().map(|at| &experiment.paths[*at]).filter(|path| path.kind.is_laid());
    let paths: Vec<&lab::plan::Path> = laid.collect();
    let Some(first) = paths.first() else { return (Vec::new(), None) };
    let mut lines = Vec::new();
    if let Err(why) = testbed::allowed(PREFIX) {
        lines.push(format!("path {}: {why}", first.name));
        return (lines, None);
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
    let abilities = match Abilities::find(PREFIX) {
        Ok(abilities) => abilities,
        Err(why) => {
            lines.push(format!("path {}: {why}", first.name));
            return (lines, None);
        }
    };
    for cell in experiment.cells() {
        let Some(path) = cell.path.map(|at| &experiment.paths[at]) else { continue };
        let why = impossible(path, ends, &abilities);
        lines.extend(why.map(|why| format!("{}: {why}", experiment.cell_name(&cell))));
    }
    (lines, Some(abilities))
}

/// What of a path this kernel cannot do.
fn impossible(path: &lab::plan::Path, ends: &Ends, abilities: &Abilities) -> Option<String> {
    if path.softirqs == Some(Softirqs::Apart) && !ends.are_apart() {
        return Some("softirqs: expected two CPUs, one for the client, seen one".to_owned());
    }
    if path.loss_ppm.is_some()
        && let (Err(netem), Err(rules)) = (&abilities.netem, &abilities.rules)
    {
        return Some(format!(
            "loss: expected a kernel that loses frames, seen one without netem ({netem}) and without rules for what comes ({rules})"
        ));
    }
    if path.delay.is_some()
        && path.offloads
        && let Err(netem) = &abilities.netem
    {
        return Some(format!(
            "delay: expected offloads = false, since a relay delays here, which carries frames as they are on a wire, seen true (there is no netem: {netem})"
        ));
    }
    if path.kind == PathKind::Nat
        && let Err(why) = &abilities.nat
    {
        return Some(format!("kind: expected a kernel that masquerades, seen one without ({why})"));
    }
    None
}

/// What is known of paths before anything runs, a line each.
pub(super) fn remarks(
    experiment: &Experiment,
    ends: &Ends,
    abilities: Option<&Abilities>,
) -> String {
    let Some(abilities) = abilities else { return String::new() };
    let mut lines: Vec<String> = Vec::new();
    for path in experiment.cells().iter().filter_map(|cell| cell.path) {
        let path = &experiment.paths[path];
        let between = match path.kind {
            PathKind::Nat => Some("its gateway is on the ends' CPUs"),
            kind => kind.has_core().then_some("its routers are on the ends' last CPUs"),
        };
        let relay = road::is_relayed(path, abilities)
            .then_some("a relay of the lab's own delays on the far end's last CPU");
        let receives = road::receives_at_far_end(path, ends)
            .then_some("what the near end receives is dealt with on the far end's last CPU");
        let what: Vec<&str> = relay.into_iter().chain(receives).chain(between).collect();
        if what.is_empty() {
            continue;
        }
        let what = what.join(", and ");
        let line = format!(
            "path {}: {what}, so that what an end costs is not told, only what all of it does\n",
            path.name
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}

/// Why a disk cannot be had here, as far as is seen without opening it.
fn missing(disk: &DiskUri) -> Option<String> {
    match disk.innermost() {
        DiskUri::Volume { .. } => Some(
            "expected a disk that needs no configuration, seen a volume of one (name what is below it)".to_owned(),
        ),
        DiskUri::File { path, create_bytes: Some(_), .. } if !path.exists() => {
            let folder = std::path::absolute(path).ok()?.parent()?.to_owned();
            let words = format!("expected a folder {}, and there is none", folder.display());
            (!folder.is_dir()).then_some(words)
        }
        DiskUri::File { path, .. } | DiskUri::BlockDevice { path } => {
            let why = path.metadata().err()?;
            Some(format!("{why} (a file is made with file:PATH?create=SIZE)"))
        }
        _ => None,
    }
}

/// What systems need.
pub(super) fn systems<'p>(systems: impl Iterator<Item = &'p System>, ends: &Ends) -> Vec<String> {
    let mut lines = Vec::new();
    for system in systems {
        let name = &system.name;
        let mut disk = |uri: &str| {
            let why = uri.parse().map_or_else(|why| Some(format!("{why}")), |disk| missing(&disk));
            lines.extend(why.map(|why| format!("system {name}: {uri}: {why}")));
        };
        match &system.means {
            Means::Disk { uri } => disk(uri),
            Means::Nfs(nfs) => disk(&nfs.disk),
            // What is wrong with it is told at its line of the plan.
            Means::Folder(_) | Means::Stream(_) => {}
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
            Means::Rival(rival) => {
                disk(&rival.disk);
                for program in rival::programs(rival.program) {
                    lines.extend(needs(program).err().map(|why| format!("system {name}: {why}")));
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

/// What this machine lacks of what findings of papers need, in words.
pub(super) fn lacks() -> BTreeMap<Need, String> {
    let missing = |devices: &[&str]| {
        let device = devices.iter().find(|device| !Path::new(device).exists())?;
        Some(format!("there is no {device} here"))
    };
    let lack = |need| match need {
        Need::Guests => missing(&["/dev/kvm", "/dev/vhost-net"]),
        Need::Zfs => missing(&["/dev/zfs"]),
        Need::Siblings => {
            (!testbed::cpu::share_cores()).then(|| "here each has a core of its own".to_owned())
        }
    };
    Need::ALL.into_iter().filter_map(|need| Some((need, lack(need)?))).collect()
}

/// What initiators of the plan's need, which run at the near end.
fn initiators(experiment: &Experiment) -> Vec<String> {
    let all =
        experiment.systems.iter().filter_map(|system| Some((system, system.initiator.as_ref()?)));
    let missing = |(system, command): (&System, &Vec<String>)| {
        let why = needs(&command[0]).err()?;
        Some(format!("system {}: initiator: {why}", system.name))
    };
    all.filter_map(missing).collect()
}

/// What is on the far end's CPUs here beside that end, by what a path says and this machine has.
fn on_an_end(
    path: &lab::plan::Path,
    ends: &Ends,
    abilities: Option<&Abilities>,
) -> Option<&'static str> {
    if abilities.is_some_and(|can| road::is_relayed(path, can)) {
        return Some("a delay, for which a relay of the lab's own is on the far end's here");
    }
    road::receives_at_far_end(path, ends).then_some(
        "softirqs apart, where the near end has one CPU, so that the far end's deals with what it receives",
    )
}

/// What cells need, where paths are laid by what this kernel can do to frames.
fn cells(experiment: &Experiment, ends: &Ends, abilities: Option<&Abilities>) -> Vec<String> {
    let mut lines = Vec::new();
    for group in &experiment.groups {
        if let Some(cost) = cost_of(group).filter(|_| !ends.are_apart()) {
            let (name, cost) = (&group.name, cost.word());
            lines.push(format!("{name}: {cost}: expected two CPUs, one for each end, seen one"));
        }
        let mut of_end = group.columns.iter().filter(|column| column.measure.is_of_an_end());
        let mut paths = group.cells.iter().filter_map(|cell| cell.path);
        let on_them = |at: usize| on_an_end(&experiment.paths[at], ends, abilities);
        if let Some((column, what)) = of_end.next().zip(paths.find_map(on_them)) {
            lines.push(format!(
                "{}: {}: expected a path on which each end has its CPUs for itself, seen one with {what} (compare cpu-per-op)",
                group.name,
                column.measure.word()
            ));
        }
    }
    lines
}
