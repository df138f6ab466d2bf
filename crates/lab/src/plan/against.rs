//! What the systems of a comparison are held against: another system, or each against itself with some
//! words of its load or its path changed (`against = { cache = false }`), or by another measure.
//!
//! A changed word has one value, which takes the place of the table's. A rate in place of a depth changes
//! how requests leave as a whole, and so does a pattern. Errors: the mistakes of a plan, each at its place;
//! that nothing is changed is seen where cells are made, since what only files or stripes have changes no other system.

use toml::Spanned;

use super::axes::{Has, Written};
use super::check::Checker;
use super::low::{LowCompare, LowLoad};
use super::measure::Measure;
use super::model::Load;
use crate::mistake::{Mistake, Span};

/// The other side of each pair.
pub(super) enum Reference {
    /// A system of the plan, by its place there.
    System(usize),
    /// The subject itself, changed.
    Itself(Changed),
}

/// What is changed.
pub(super) struct Changed {
    path: Option<(usize, Span)>,
    /// By what that side is judged.
    pub(super) measure: Option<(Measure, Span)>,
    /// The values of the keys that are there.
    load: Load,
    keys: Vec<&'static str>,
}

impl Reference {
    /// The system of the plan that it is, if it is one.
    pub(super) fn system(&self) -> Option<usize> {
        match self {
            Reference::System(system) => Some(*system),
            Reference::Itself(_) => None,
        }
    }

    /// The paths and the loads of both sides.
    pub(super) fn with(
        &self,
        paths: &[Option<usize>],
        loads: &[Load],
    ) -> (Vec<Option<usize>>, Vec<Load>) {
        let (mut paths, mut loads) = (paths.to_vec(), loads.to_vec());
        if let Reference::Itself(changed) = self {
            paths.extend(changed.path.as_ref().map(|(path, _)| Some(*path)));
            let others: Vec<Load> = loads.iter().map(|load| changed.apply(None, *load).1).collect();
            loads.extend(others);
        }
        (paths, loads)
    }
}

impl Changed {
    /// A path and a load, as they are then.
    pub(super) fn apply(&self, path: Option<usize>, load: Load) -> (Option<usize>, Load) {
        let (mut load, new) = (load, &self.load);
        for key in &self.keys {
            match *key {
                "block-size" => load.block_bytes = new.block_bytes,
                "pattern" | "read-share" => load.pattern = new.pattern,
                "depth" | "rate" | "arrivals" => load.pace = new.pace,
                "jobs" => load.jobs = new.jobs,
                "size" => load.size = new.size,
                "sync" => load.sync = new.sync,
                "fsync" => load.fsync = new.fsync,
                "client-memory" => load.client_memory = new.client_memory,
                "client-cpu" => load.client_cpu = new.client_cpu,
                "cache" => load.cache = new.cache,
                "disks" => load.disks = new.disks,
                other => unreachable!("{other} is a key of a load"),
            }
        }
        (self.path.as_ref().map_or(path, |(path, _)| Some(*path)), load)
    }
}

impl Checker<'_> {
    /// What a comparison changes of its systems: `None` if that is wrong, `Some(None)` if nothing.
    pub(super) fn changed(
        &mut self,
        low: &LowCompare,
        has: Has,
        has_many: bool,
    ) -> Option<Option<Changed>> {
        let Some(written) = &low.against else {
            return (!low.refused.contains(&"against")).then_some(None);
        };
        if let Some(reference) = &low.reference {
            let message = "reference and against: expected one of them, another system or the same with words changed";
            let mistake = Mistake::new(reference.span(), message).first(&written.span());
            self.push(mistake.help("leave out one of them"));
            return None;
        }
        let against = written.get_ref();
        let keys: Vec<Written> = against.load.written();
        for Written { key, span, values } in &keys {
            if *values > 1 {
                let message = format!("{key} of against: expected one value, seen {values}");
                let help = "several [[compare]] tables, or lists beside against";
                self.push(Mistake::new(span.clone(), message).help(help));
                return None;
            }
        }
        if let Some(one) = keys.iter().find(|one| one.key == "files") {
            let message = "files of against: expected what a system does otherwise, seen another load, of which nothing is said by that";
            let help = "leave it out; files = [\"webserver\", \"varmail\"] in the table says each by itself";
            self.push(Mistake::new(one.span.clone(), message).help(help));
            return None;
        }
        if has_many && self.refuse_of_requests(&against.load, "a load of many files").is_none() {
            return None;
        }
        if !against.refused.is_empty() {
            // Without what was refused it would change something else.
            return None;
        }
        if keys.is_empty() && against.path.is_none() && against.of.is_none() {
            let is_within = |one: &Mistake| {
                against.span.start <= one.span.start && one.span.end <= against.span.end
            };
            // Of a word that is none nothing more is said.
            if !self.mistakes.iter().any(is_within) {
                let message = "against: expected a word of a load or a path, seen none";
                let help = "against = { cache = false } or { path = \"jumbo\" }";
                self.push(Mistake::new(against.span.clone(), message).help(help));
            }
            return None;
        }
        let known: Vec<String> = self.paths.iter().map(|path| path.name.clone()).collect();
        let path = match &against.path {
            Some(low) => Some((self.place(low, "path", &known)?, Spanned::span(low))),
            None => None,
        };
        let measure = match &against.of {
            Some(low) => Some((self.word(low, "of", &Measure::words())?, Spanned::span(low))),
            None => None,
        };
        let loads = self.loads(&against.load, &LowLoad::default(), false, has)?;
        let keys = keys.into_iter().map(|written| written.key).collect();
        Some(Some(Changed { path, measure, load: loads[0], keys }))
    }

    /// Refuses a changed measure of which a ratio to the comparison's own says nothing.
    pub(super) fn changed_measure(&mut self, changed: &Changed, measures: &[(Measure, Span)]) {
        let Some((measure, span)) = &changed.measure else { return };
        let (seen, unit) = (measure.word(), measure.unit());
        if let Some((own, _)) = measures.iter().find(|(own, _)| own.unit() != unit) {
            let (own, own_unit) = (own.word(), own.unit());
            let message = format!(
                "of of against: expected {own_unit}, as {own} is, seen {seen}, which is {unit}"
            );
            self.push(Mistake::new(span.clone(), message));
        } else if measures.len() > 1 {
            let message = format!(
                "of of against: expected one measure in the comparison's own of, seen {}",
                measures.len()
            );
            self.push(Mistake::new(span.clone(), message).help("a [[compare]] each"));
        }
    }

    /// Refuses a changed path that these systems are not reached over.
    pub(super) fn changed_path(&mut self, changed: &Changed, systems: &[usize]) {
        let Some((path, span)) = &changed.path else { return };
        let by_itself = systems.iter().find(|at| {
            let system = self.systems[**at].thing.as_ref();
            system.is_some_and(|system| !system.means.needs_path())
        });
        if let Some(at) = by_itself {
            let name = &self.systems[*at].name;
            let message = format!(
                "path of against: expected systems that the lab starts, seen {name:?}, which is reached over no path"
            );
            self.push(Mistake::new(span.clone(), message).help("leave it out"));
            return;
        }
        self.shaped(*path, systems, span);
        self.spoken(*path, systems, span);
    }
}
