//! Configurations as somebody may write them: from the text to what it means, back to a text, and from one to another.
//!
//! The input is one text, or two with a NUL between them. Checked: every mistake can be shown, on one line and in a report with the text around it; a
//! configuration that is written out reads back as the same; there is nothing to do from it to itself; and the steps from one to the
//! other can be carried out in their order, lead to the other, and lead back when they are undone.
#![no_main]

// The program has no library: its configuration is compiled here as it stands, and not all of it is used.
#[allow(dead_code, unused_imports)]
#[path = "../../crates/plateway/src/config/mod.rs"]
mod config;

use config::Checked;
use config::defaults::Defaults;
use config::model::{DiskConfig, HiArgs, VolumeConfig};
use config::plan::plan;
use config::quick::Flags;
use config::step::Step;
use config::text::config_text;
use config::uri::DiskUri;
use libfuzzer_sys::fuzz_target;
use miette::{GraphicalReportHandler, GraphicalTheme};
use plateway_fuzz::one_line;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let mut texts = text.splitn(2, '\0').filter_map(read);
    let Some(from) = texts.next() else { return };
    assert!(plan(&from, &from).is_ok_and(|plan| plan.steps.is_empty()), "a change to itself");
    if let Some(to) = texts.next() {
        difference(&from, &to);
        difference(&to, &from);
    }
});

/// Reads a text and checks what was made of it.
fn read(text: &str) -> Option<HiArgs> {
    let defaults =
        Defaults { cpus: vec![0, 1], control: "/run/p.sock".into(), state: "/var/p".into() };
    let check = |text: &str| config::check_with_flags("a.toml", text, &Flags::default(), &defaults);
    let Checked { args, warnings, places } = match check(text) {
        Ok(checked) => checked,
        Err(mistakes) => {
            show(&mistakes);
            assert!(mistakes.lines().next().is_some(), "refused for no reason");
            return None;
        }
    };
    show(&warnings);
    for disk in &args.disks {
        assert!(
            text.get(places.disk(&disk.name)).is_some_and(|at| !at.is_empty()),
            "{}",
            disk.name
        );
    }
    for volume in &args.volumes {
        let shown = text.get(places.volume(&volume.name)).unwrap_or_default();
        assert!(!shown.is_empty(), "no place of volume {}", volume.name);
    }
    let written = config_text(&args);
    match check(&written) {
        Ok(again) => assert_eq!(args, again.args, "written and read again:\n{written}"),
        Err(mistakes) => {
            let lines: Vec<String> = mistakes.lines().collect();
            panic!("it refuses what it wrote: {lines:#?}\n{written}");
        }
    }
    Some(args)
}

fn show(mistakes: &config::mistake::Mistakes) {
    mistakes.lines().for_each(|line| one_line(&line));
    let mut report = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
    handler.render_report(&mut report, mistakes).expect("a mistake can be shown");
}

/// Carries out the steps from one configuration to the other, and undoes them.
fn difference(from: &HiArgs, to: &HiArgs) {
    let steps = match plan(from, to) {
        Ok(plan) => plan.steps,
        Err(refused) => {
            assert!(!refused.is_empty());
            refused.iter().for_each(one_line);
            return;
        }
    };
    let mut served = World(from.clone());
    for step in &steps {
        one_line(step);
        assert_eq!(step.inverse().inverse(), *step, "undone twice");
        served.carry_out(step);
    }
    served.is(to);
    steps.iter().rev().for_each(|step| served.carry_out(&step.inverse()));
    served.is(from);
}

/// What is served, as far as steps change it; each must find what it needs.
struct World(HiArgs);

impl World {
    fn carry_out(&mut self, step: &Step) {
        let HiArgs { disks, volumes, listeners, links, exports, aoe_exports, .. } = &mut self.0;
        match step.clone() {
            Step::AddDisk(disk) => {
                let twin = |other: &DiskConfig| {
                    other.name == disk.name || other.uri.same_backing(&disk.uri)
                };
                assert!(!disks.iter().any(twin), "{step}: something has it");
                disks.push(disk);
            }
            Step::AddVolume(volume) => {
                for disk in volume.layout.disks() {
                    assert!(
                        disks.iter().any(|other| other.name == *disk),
                        "{step}: no disk {disk}"
                    );
                    assert!(
                        !volumes.iter().any(|other| uses(other, disk)),
                        "{step}: {disk} is used"
                    );
                }
                let twin = |other: &VolumeConfig| {
                    other.name == volume.name
                        || (volume.uuid.is_some() && other.uuid == volume.uuid)
                };
                assert!(!volumes.iter().any(twin), "{step}: something is it");
                volumes.push(volume);
            }
            Step::AddListener(listener) => {
                let address = &listener.address;
                assert!(
                    !listeners.iter().any(|l| l.address.overlaps(address) || l.address == *address)
                );
                listeners.push(listener);
            }
            Step::AddExport(export) => {
                assert!(
                    volumes.iter().any(|volume| volume.name == export.volume),
                    "{step}: no volume"
                );
                let family = exports.iter().filter(|other| other.subsystem == export.subsystem);
                for other in family {
                    assert!(
                        other.nsid != export.nsid && other.volume != export.volume,
                        "{step}: it has it"
                    );
                }
                exports.push(export);
            }
            Step::AddLink(link) => {
                assert!(!links.iter().any(|other| other.name == link.name), "{step}: it is open");
                links.push(link);
            }
            Step::RemoveLink(link) => {
                let used = aoe_exports.iter().any(|one| one.links().any(|name| name == link.name));
                assert!(!used, "{step}: it is used");
                take(links, |other| *other == link, step);
            }
            Step::AddAoeExport(export) => {
                assert!(volumes.iter().any(|volume| volume.name == export.volume), "{step}");
                for name in export.links() {
                    assert!(links.iter().any(|link| link.name == name), "{step}: no link {name}");
                    let taken = aoe_exports.iter().any(|other| {
                        other.address == export.address && other.links().any(|link| link == name)
                    });
                    assert!(!taken, "{step}: its address is taken");
                }
                aoe_exports.push(export);
            }
            Step::RemoveAoeExport(export) => take(aoe_exports, |other| *other == export, step),
            Step::ChangeAoeExport { from, to } => {
                let export = aoe_exports.iter_mut().find(|other| **other == from);
                *export.unwrap_or_else(|| panic!("{step}: there is none")) = to;
            }
            Step::RemoveExport(export) => take(exports, |other| *other == export, step),
            Step::RemoveListener(listener) => take(listeners, |other| *other == listener, step),
            Step::RemoveVolume(volume) => {
                let exported = exports.iter().any(|export| export.volume == volume.name)
                    || aoe_exports.iter().any(|export| export.volume == volume.name);
                assert!(!exported, "{step}: it is exported");
                take(volumes, |other| *other == volume, step);
            }
            Step::RemoveDisk(disk) => {
                let used = volumes.iter().any(|volume| uses(volume, &disk.name));
                assert!(!used, "{step}: it is used");
                take(disks, |other| *other == disk, step);
            }
            Step::ResizeDisk { name, from, to } => {
                let disk = disks.iter_mut().find(|disk| disk.name == name && disk.uri == from);
                disk.unwrap_or_else(|| panic!("{step}: there is none")).uri = to;
            }
            Step::ResizeVolume { name, from_bytes, to_bytes } => {
                let is_it = |v: &&mut VolumeConfig| v.name == name && v.size_bytes == from_bytes;
                let volume = volumes.iter_mut().find(is_it);
                volume.unwrap_or_else(|| panic!("{step}: there is none")).size_bytes = to_bytes;
            }
            Step::ChangeListener { from, to } => {
                let listener = listeners.iter_mut().find(|other| **other == from);
                *listener.unwrap_or_else(|| panic!("{step}: there is none")) = to;
            }
            // Hosts are a subsystem's: all of its exports change with the first.
            Step::ChangeHosts { export, to } => {
                let family = exports.iter_mut().filter(|other| other.subsystem == export.subsystem);
                assert!(
                    family.map(|other| other.hosts = to.clone()).count() > 0,
                    "{step}: no export"
                );
            }
        }
    }

    /// Checks that this is what is served, in whatever order.
    fn is(&self, wanted: &HiArgs) {
        let HiArgs { disks, volumes, listeners, links, exports, aoe_exports, .. } = &self.0;
        same(disks, &wanted.disks, |a, b| a.name == b.name && same_disk(&a.uri, &b.uri));
        same(volumes, &wanted.volumes, |a, b| a == b);
        same(listeners, &wanted.listeners, |a, b| a == b);
        same(exports, &wanted.exports, |a, b| a == b);
        same(links, &wanted.links, |a, b| a == b);
        same(aoe_exports, &wanted.aoe_exports, |a, b| a == b);
    }
}

fn uses(volume: &VolumeConfig, disk: &str) -> bool {
    volume.layout.disks().iter().any(|other| other == disk)
}

fn take<T>(all: &mut Vec<T>, which: impl Fn(&T) -> bool, step: &Step) {
    let at = all.iter().position(which).unwrap_or_else(|| panic!("{step}: there is none"));
    all.remove(at);
}

fn same<T: std::fmt::Debug>(seen: &[T], wanted: &[T], is: impl Fn(&T, &T) -> bool) {
    assert_eq!(seen.len(), wanted.len(), "{seen:#?} {wanted:#?}");
    for one in wanted {
        assert!(seen.iter().any(|other| is(other, one)), "{one:#?} is not in {seen:#?}");
    }
}

/// Whether two URIs are one disk, and of one size where they both name one: how a file that is there would be created does not matter.
fn same_disk(a: &DiskUri, b: &DiskUri) -> bool {
    match (a, b) {
        (
            DiskUri::File { path: a, create_bytes: x },
            DiskUri::File { path: b, create_bytes: y },
        ) => a == b && (x == y || x.is_none() || y.is_none()),
        (DiskUri::Delay { delay_us: x, inner: a }, DiskUri::Delay { delay_us: y, inner: b })
        | (DiskUri::Faulty { seed: x, inner: a }, DiskUri::Faulty { seed: y, inner: b }) => {
            x == y && same_disk(a, b)
        }
        (a, b) => a == b,
    }
}
