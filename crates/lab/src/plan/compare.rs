//! What a plan compares and draws, table by table: who and over what, and whether each pair is fair.
//!
//! A pair is fair if what holds the blocks, durability and sizes are the same: then only the roads
//! to them differ. Payload is the same by construction, since a comparison has one load, and so are
//! client caches but for those of a folder beside what is none. What comes of all tables together is in `arrange`.

use toml::Spanned;

use super::against::Reference;
use super::arrange::{Wanted, WantedCompare, WantedPicture};
use super::axes::Has;
use super::check::{Checker, FRACTIONS, Table};
use super::files::client_differs;
use super::low::{LowCompare, LowLoad, LowPicture, LowPlan};
use super::measure::Measure;
use super::model::{Access, Backing, Load, Means, Path, PathKind, Protocol, System};
use super::reader::{Low, Many, Scalar, Tables};
use super::streams::stream_differs;
use super::words::{self, Bytes};
use crate::mistake::{Mistake, Span};
use crate::statistics::Bound;

/// So much of many files is asked for its room, and what they may have is told in whole steps.
const ROOM_OF: u64 = 1 << 30;
const ROOM_STEP: u64 = 1 << 20;

/// Where a table's systems, paths and load stand.
struct Where<'l> {
    title: &'static str,
    span: &'l Span,
    path: &'l Low<Many<String>>,
    size: Option<Span>,
}

/// What the plan asks of all comparisons.
struct Usual {
    /// Whether it says a difference, if only a wrong one.
    is_said: bool,
    difference: Option<f64>,
    margin: Option<f64>,
}

/// What a comparison asks for.
struct Asked {
    difference: f64,
    margin: f64,
    /// Whether that is not what the plan asks of all.
    is_own: bool,
}

impl Checker<'_> {
    /// Checks systems, paths and loads, and what is asked of them.
    pub(super) fn wanted(&mut self, low: &LowPlan) -> Wanted {
        fn all<T>(low: &Low<Tables<T>>) -> &[T] {
            low.as_ref().map_or(&[], |tables| &tables.get_ref().0)
        }
        self.things(all(&low.systems), all(&low.paths));
        let none = LowLoad::default();
        let usual = low.load.as_ref().map_or(&none, |load| load.get_ref());
        self.defaults(usual);
        let asked = Usual {
            is_said: low.difference.is_some() || low.refused.contains(&"difference"),
            difference: self.fraction(&low.difference, "difference"),
            margin: self.fraction(&low.equal_within, "equal-within"),
        };
        let mut wanted = Wanted::default();
        let mut names = Vec::new();
        for compare in all(&low.compares) {
            self.title(&compare.name, "comparison", &mut names);
            wanted.compares.extend(self.compare(compare, usual, &asked));
        }
        names.clear();
        for picture in all(&low.pictures) {
            self.title(&picture.name, "picture", &mut names);
            wanted.pictures.extend(self.picture(picture, usual));
        }
        wanted.check_count(low, self.mistakes);
        wanted
    }

    fn fraction(&mut self, low: &Low<Scalar>, key: &str) -> Option<f64> {
        self.scalar(low, key, |text| words::part(text, FRACTIONS))
    }

    /// A name in whatever words; none twice.
    pub(super) fn title(&mut self, low: &Low<String>, what: &str, taken: &mut Vec<(String, Span)>) {
        let Some(low) = low else { return };
        let name = low.get_ref();
        if name.trim().is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
            let message = format!("name: expected a line of 1 to 100 bytes, seen {name:?}");
            self.push(Mistake::new(low.span(), message));
        } else if let Some((_, first)) = taken.iter().find(|(other, _)| other == name) {
            let message = format!("there is a {what} {name:?} already");
            let mistake = Mistake::new(low.span(), message).first(first);
            self.push(mistake.help("give each a name of its own"));
        }
        taken.push((name.clone(), low.span()));
    }

    fn compare(
        &mut self,
        low: &LowCompare,
        usual: &LowLoad,
        asked: &Usual,
    ) -> Option<WantedCompare> {
        let title = "this [[compare]]";
        let known = self.system_names();
        let table = Table { title, span: low.span.clone(), refused: &low.refused };
        self.needed(&low.systems, &table, "systems = [\"...\"]");
        if low.against.is_none() && !low.refused.contains(&"against") {
            self.needed(&low.reference, &table, "reference = \"...\"");
        }
        self.needed(&low.of, &table, "of = \"iops\"");
        let subjects = low.systems.as_ref();
        let subjects = subjects.and_then(|low| self.places(low.get_ref(), "system", &known));
        let reference = low.reference.as_ref().and_then(|low| self.place(low, "system", &known));
        let measures = low.of.as_ref().and_then(|low| self.measures(low.get_ref()));
        let all = subjects.iter().flatten().map(|(subject, _)| *subject).chain(reference);
        let all: Vec<usize> = all.collect();
        let is_known = subjects.is_some() && (reference.is_some() || low.reference.is_none());
        let has = match is_known {
            true => self.has(&all),
            false => Has { file: true, several: true },
        };
        let loads = self.loads(&low.load, usual, false, has);
        let has_many = has.file && (low.load.files.is_some() || usual.files.is_some());
        let changed = self.changed(low, has, has_many);
        let primary = low.exploratory.as_ref().is_none_or(|secondary| !secondary.get_ref());
        let asked = if primary { self.asked(low, asked) } else { self.asked_of_secondary(low) };
        let questions = self.questions(low);
        let (subjects, loads) = (subjects?, loads?);
        let reference = match changed? {
            Some(changed) => Reference::Itself(changed),
            None => Reference::System(reference?),
        };
        let other = reference.system();
        let all: Vec<usize> = subjects.iter().map(|(subject, _)| *subject).chain(other).collect();
        let changed_size = low.against.as_ref().map(|against| &against.get_ref().load.size);
        let changed_size = changed_size.and_then(|size| size.as_ref().map(Spanned::span));
        let size = changed_size.or(pick_size(&low.load, usual));
        let place = Where { title, span: &low.span, path: &low.path, size };
        let paths = self.over(&all, &place)?;
        if let Reference::Itself(changed) = &reference {
            self.changed_path(changed, &all);
        }
        // Both sides of each pair.
        let (all_paths, all_loads) = reference.with(&paths, &loads);
        self.fit(&all, &all_loads, &place);
        self.worked_on(&all, &all_loads, &Table { title, ..table }, &low.load, usual);
        self.streamed(&all, &all_loads, &low.span, &low.load, usual);
        self.initiated(&all, &all_loads, &low.span, &low.load, usual);
        self.are_several(&all, &all_loads, &low.span, [&low.load, usual]);
        for (subject, span) in &subjects {
            if let Some(other) = other {
                self.fair(*subject, other, &loads, span);
            }
        }
        let measures = measures?;
        let mut asked_of = measures.clone();
        if let Reference::Itself(changed) = &reference {
            self.changed_measure(changed, &measures);
            asked_of.extend(changed.measure.clone());
        }
        for (measure, span) in &asked_of {
            if self.has_side(*measure, span, &all_loads) {
                self.countable(*measure, span, &all_loads, &all_paths);
            }
            if measure.needs_far_end() {
                self.of_the_far_end(*measure, span, &all);
            }
            if measure.is_of_an_end() {
                self.of_an_end(*measure, span, &all_paths);
            }
            if measure.is_of_core() {
                self.of_a_core(*measure, span, &all_paths);
            }
            if measure.is_latency() {
                self.of_a_share(*measure, span, &all_loads);
            }
        }
        let Asked { difference, margin, is_own } = asked?;
        Some(WantedCompare {
            span: low.span.clone(),
            name: low.name.as_ref().map(|name| name.get_ref().clone()),
            subjects,
            reference,
            paths,
            loads,
            measures,
            questions: questions?,
            difference,
            margin,
            is_own,
            primary,
        })
    }

    /// What is asked of each pair: its bounds, or if it has none, whether there is a difference.
    fn questions(&mut self, low: &LowCompare) -> Option<Vec<Option<Bound>>> {
        let bounds = [(&low.at_least, "at-least"), (&low.at_most, "at-most")];
        let [least, most] = bounds.map(|(low, key)| self.scalar(low, key, words::ratio));
        if let (Some(least), Some(most), Some(written)) = (least, most, &low.at_most)
            && most < least
        {
            let message = format!(
                "at-most: expected {least} or more, which is to be there at least, seen {most}"
            );
            self.push(Mistake::new(written.span(), message));
            return None;
        }
        let known = [least.map(Bound::AtLeast), most.map(Bound::AtMost)];
        let known: Vec<Option<Bound>> = known.into_iter().filter(Option::is_some).collect();
        let is_asked = low.at_least.is_some() || low.at_most.is_some();
        if let Some(margin) = low.equal_within.as_ref().filter(|_| is_asked) {
            let message =
                "equal-within: a bound is kept or not, and says nothing of who is equal to whom";
            let help = "leave it out; whether there is a difference is another [[compare]], without bounds";
            self.push(Mistake::new(margin.span(), message).help(help));
        }
        if is_asked { Some(known) } else { Some(vec![None]) }
    }

    /// What a primary comparison wants to see: by itself, or as the plan says for all.
    fn asked(&mut self, low: &LowCompare, usual: &Usual) -> Option<Asked> {
        let own = self.fraction(&low.difference, "difference");
        let own_margin = self.fraction(&low.equal_within, "equal-within");
        let is_said = low.difference.is_some() || low.refused.contains(&"difference");
        if !is_said && !usual.is_said {
            let message = "this [[compare]] has no difference that it wants to see";
            let help = "add difference = \"10%\" to it, or above all tables for all";
            self.push(Mistake::new(low.span.clone(), message).help(help));
        }
        let difference = own.or(usual.difference)?;
        // The plan's margin goes with the plan's difference.
        let usual_margin = usual.margin.filter(|_| low.difference.is_none());
        let margin = own_margin.or(usual_margin).unwrap_or(difference);
        let of_plan = usual.difference.map(|one| (one, usual.margin.unwrap_or(one)));
        Some(Asked { difference, margin, is_own: of_plan != Some((difference, margin)) })
    }

    /// An exploratory comparison takes what the primary ones of its rounds have.
    fn asked_of_secondary(&mut self, low: &LowCompare) -> Option<Asked> {
        if low.difference.is_some() || low.equal_within.is_some() {
            let message = "exploratory: difference and equal-within are of primary comparisons, by which rounds are chosen";
            let span = low.exploratory.as_ref().map_or(low.span.clone(), Spanned::span);
            self.push(Mistake::new(span, message).help("leave them out"));
            return None;
        }
        Some(Asked { difference: 0.0, margin: 0.0, is_own: false })
    }

    fn picture(&mut self, low: &LowPicture, usual: &LowLoad) -> Option<WantedPicture> {
        let title = "this [[picture]]";
        let known = self.system_names();
        let table = Table { title, span: low.span.clone(), refused: &low.refused };
        let name = self.needed(&low.name, &table, "name = \"...\"").cloned();
        let systems = self.needed(&low.systems, &table, "systems = [\"...\"]");
        let systems = systems.and_then(|low| self.places(low, "system", &known));
        let systems: Option<Vec<usize>> =
            systems.map(|all| all.into_iter().map(|(system, _)| system).collect());
        let has = match &systems {
            Some(systems) => self.has(systems),
            None => Has { file: true, several: true },
        };
        let loads = self.loads(&low.load, usual, false, has)?;
        let systems = systems?;
        let size = pick_size(&low.load, usual);
        let place = Where { title, span: &low.span, path: &low.path, size };
        let paths = self.over(&systems, &place)?;
        self.fit(&systems, &loads, &place);
        self.worked_on(&systems, &loads, &table, &low.load, usual);
        self.streamed(&systems, &loads, &low.span, &low.load, usual);
        self.initiated(&systems, &loads, &low.span, &low.load, usual);
        self.are_several(&systems, &loads, &low.span, [&low.load, usual]);
        Some(WantedPicture { name: name?, systems, paths, loads })
    }

    fn system_names(&self) -> Vec<String> {
        self.systems.iter().map(|named| named.name.clone()).collect()
    }

    fn measures(&mut self, low: &Many<String>) -> Option<Vec<(Measure, Span)>> {
        let known = Measure::words();
        let mut measures: Vec<(Measure, Span)> = Vec::new();
        for word in &low.0 {
            let measure = self.word(word, "of", &known)?;
            if let Some((_, first)) = measures.iter().find(|(other, _)| *other == measure) {
                let message = format!("of: {} stands twice in the list", word.get_ref());
                let mistake = Mistake::new(word.span(), message).first(&first.clone());
                self.push(mistake.help("leave out one of them"));
                return None;
            }
            measures.push((measure, word.span()));
        }
        Some(measures)
    }

    /// Over which paths these systems are reached: those that are named, the only one, or none
    /// where none needs one.
    fn over(&mut self, systems: &[usize], place: &Where<'_>) -> Option<Vec<Option<usize>>> {
        let known: Vec<String> = self.paths.iter().map(|path| path.name.clone()).collect();
        let needs_path = |at: &&usize| {
            self.systems[**at].thing.as_ref().is_some_and(|system| system.means.needs_path())
        };
        let served = systems.iter().find(needs_path).map(|at| self.systems[*at].name.clone());
        let is_known = systems.iter().all(|at| self.systems[*at].thing.is_some());
        let paths = match (place.path, served) {
            (None, None) => return Some(vec![None]),
            (None, Some(_)) if known.len() == 1 => vec![(0, place.span.clone())],
            (None, Some(served)) => {
                let message =
                    format!("{served:?} is reached over a path, and {} has none", place.title);
                let help = match known.first() {
                    Some(first) => format!("add path = {first:?}, or another one of the plan"),
                    None => "add a [[path]] with name = \"lan\", and path = \"lan\"".to_owned(),
                };
                self.push(Mistake::new(place.span.clone(), message).help(help));
                return None;
            }
            (Some(low), None) if is_known => {
                let message =
                    "path: expected a system that the lab starts, seen disks that their URIs reach";
                self.push(Mistake::new(low.span(), message).help("leave it out"));
                return None;
            }
            (Some(low), _) => self.places(low.get_ref(), "path", &known)?,
        };
        for (path, span) in &paths {
            self.shaped(*path, systems, span);
            self.spoken(*path, systems, span);
        }
        Some(paths.into_iter().map(|(path, _)| Some(path)).collect())
    }

    /// Refuses on a link what passes by: of AF_XDP the kernel's queues and hooks see nothing.
    pub(super) fn shaped(&mut self, path: usize, systems: &[usize], span: &Span) {
        let passed = |path: &Path| match (path.rate, path.delay, path.loss_ppm) {
            (Some(_), _, _) => Some(("a rate", "sends")),
            (_, Some(_), _) => Some(("a delay", "sends")),
            (_, _, Some(_)) => Some(("loss", "receives")),
            (None, None, None) => None,
        };
        // What a core does, it does to frames between its routers, which have no such socket there.
        let path = self.paths[path].thing.as_ref().filter(|path| !path.kind.has_core());
        let path = path.and_then(|path| Some((path.name.clone(), passed(path)?)));
        let is_xdp = |system: &&System| match &system.means {
            Means::Serve(serve) => {
                serve.protocol == Protocol::Aoe && serve.access == Some(Access::Xdp)
            }
            _ => false,
        };
        let mut systems = systems.iter().filter_map(|at| self.systems[*at].thing.as_ref());
        if let Some(((path, (what, verb)), xdp)) = path.zip(systems.find(is_xdp)) {
            let xdp = &xdp.name;
            let message = format!(
                "path {path:?} has {what}, and what {xdp:?} {verb} by AF_XDP would pass it by"
            );
            let help = format!("take a path without {what}");
            self.push(Mistake::new(span.clone(), message).help(help));
        }
    }

    /// Refuses what a gateway does not carry, and what no agent starts.
    pub(super) fn spoken(&mut self, path: usize, systems: &[usize], span: &Span) {
        self.exported(path, systems, span);
        let is_nat = |path: &&Path| path.kind == PathKind::Nat;
        let path = self.paths[path].thing.as_ref().filter(is_nat);
        let is_aoe = |system: &&System| match &system.means {
            Means::Serve(serve) => serve.protocol == Protocol::Aoe,
            Means::Rival(rival) => rival.program.protocol() == Protocol::Aoe,
            Means::Target(target) => target.uri.starts_with("aoe:"),
            Means::Disk { .. } | Means::Folder(_) | Means::Stream(_) | Means::Nfs(_) => false,
        };
        let mut systems = systems.iter().filter_map(|at| self.systems[*at].thing.as_ref());
        if let Some((path, aoe)) = path.zip(systems.find(is_aoe)) {
            let (path, aoe) = (&path.name, &aoe.name);
            let message = format!(
                "path {path:?} is of kind nat, which carries TCP, and {aoe:?} speaks AoE, which is not IP"
            );
            self.push(Mistake::new(span.clone(), message).help("take another path"));
        }
    }

    /// Refuses what is exported by NFS where the lab does not lay the path.
    fn exported(&mut self, path: usize, systems: &[usize], span: &Span) {
        let is_line = |path: &&Path| !path.kind.is_laid();
        let path = self.paths[path].thing.as_ref().filter(is_line);
        let is_nfs = |system: &&System| matches!(system.means, Means::Nfs(_));
        let mut systems = systems.iter().filter_map(|at| self.systems[*at].thing.as_ref());
        if let Some((path, nfs)) = path.zip(systems.find(is_nfs)) {
            let (path, nfs) = (&path.name, &nfs.name);
            let message = format!(
                "path {path:?} is between two machines, whose agent exports nothing, and {nfs:?} is reached by NFS"
            );
            self.push(Mistake::new(span.clone(), message).help("take a path that the lab lays"));
        }
    }

    /// Refuses loads that are larger than a disk of which the size is known.
    fn fit(&mut self, systems: &[usize], loads: &[Load], place: &Where<'_>) {
        for at in systems {
            let Some(system) = &self.systems[*at].thing else { continue };
            let wanted = loads.iter().filter_map(|load| {
                let bytes = system.bytes_under(load)?;
                // Tables and journal of ext4 take 17% of 128 MiB and 12% of 512.
                let (bytes, all) = match system.mounted {
                    Some(_) => (bytes / 5 * 4, "what a file system leaves"),
                    None => (bytes, "all"),
                };
                let most = load.size.unwrap_or(u64::from(load.block_bytes));
                let Some(files) = load.files else { return Some((most, bytes, all)) };
                // Room is in proportion to what is in it.
                let each = files.room(ROOM_OF) as f64 / ROOM_OF as f64;
                let bytes = (bytes as f64 / each) as u64 / ROOM_STEP * ROOM_STEP;
                Some((most, bytes, "what a file system leaves for many files"))
            });
            let tight = wanted.filter(|(most, bytes, _)| most > bytes);
            if let Some((most, bytes, all)) = tight.max_by_key(|(most, bytes, _)| most - bytes) {
                let (name, bytes, most) = (&system.name, Bytes(bytes), Bytes(most));
                let message = format!(
                    "size: expected {bytes} at most, which is {all} of {name:?}, seen {most}"
                );
                let span = place.size.clone().unwrap_or(place.span.clone());
                self.push(Mistake::new(span, message).help("a smaller size, or a larger disk"));
            }
        }
    }

    /// Refuses a pair that differs in more than the road to its blocks.
    fn fair(&mut self, subject: usize, reference: usize, loads: &[Load], span: &Span) {
        if subject == reference {
            let name = &self.systems[subject].name;
            let message = format!("{name:?} is compared with itself");
            let help = "leave it out of systems; the same twice, to see what chance does, is two [[system]] with two names";
            self.push(Mistake::new(span.clone(), message).help(help));
            return;
        }
        let is_silent = |at: &usize| {
            let system = self.systems[*at].thing.as_ref();
            system.is_some_and(|system| {
                let is_known = system.backing.is_some() && system.durable.is_some();
                !is_known && !system.means.is_stream()
            })
        };
        let silent: Vec<usize> = [subject, reference].into_iter().filter(is_silent).collect();
        let things = (&self.systems[subject].thing, &self.systems[reference].thing);
        let (Some(subject), Some(reference)) = things else { return };
        if !silent.is_empty() {
            // Once of each, however often it is compared.
            for at in silent.into_iter().filter(|at| !self.silent.contains(at)).collect::<Vec<_>>()
            {
                self.silent.push(at);
                let name = self.systems[at].name.clone();
                let message = format!(
                    "nothing says what holds the blocks of {name:?}, so nobody knows whether the pair is fair"
                );
                let help = "add backing = \"ram\", \"file\", \"device\" or \"null\" and durable = true or false to its [[system]]";
                self.push(Mistake::new(span.clone(), message).help(help));
            }
            return;
        }
        if let Some(differs) = differs(subject, reference, loads) {
            let (subject, reference) = (&subject.name, &reference.name);
            let message = format!("{subject:?} and {reference:?} are no fair pair: {differs}");
            let help = "same backing, durability, payload, sizes and client caches in a pair, or the lab refuses it; a [[picture]] may have both";
            self.push(Mistake::new(span.clone(), message).help(help));
        }
    }

    /// Refuses what is of the far end with systems that have none.
    fn of_the_far_end(&mut self, measure: Measure, span: &Span, systems: &[usize]) {
        let has_no_far = |at: &&usize| {
            self.systems[**at].thing.as_ref().is_some_and(|system| !system.means.needs_path())
        };
        let Some(at) = systems.iter().find(has_no_far) else { return };
        let (word, name) = (measure.word(), &self.systems[*at].name);
        let message = format!(
            "of: {word}: expected systems at the far end of a path, seen {name:?}, which the near end reaches by itself"
        );
        let help = match measure {
            Measure::WireBytesPerOp | Measure::CoreBurstiness | Measure::CoreQueue => {
                "a serve of the same disk"
            }
            _ => "cpu-per-op, which is all of what it costs, or a serve of the same disk",
        };
        self.push(Mistake::new(span.clone(), message).help(help));
    }

    /// Refuses what a router of ours tells, where there is none with a port to a core.
    fn of_a_core(&mut self, measure: Measure, span: &Span, paths: &[Option<usize>]) {
        let mut known = paths.iter().filter_map(|path| self.paths[(*path)?].thing.as_ref());
        let other = known.find(|path| path.kind != PathKind::Mpls);
        if let Some((path, kind)) = other.map(|path| (path.name.clone(), path.kind.word())) {
            let word = measure.word();
            let message = format!(
                "of: {word}: expected a path of kind mpls, whose first router counts what it sends to the core, seen {path:?} of kind {kind}"
            );
            let help = "wire-bytes-per-op, or a path of that kind";
            self.push(Mistake::new(span.clone(), message).help(help));
        }
    }

    /// Refuses latencies of a client that waits for its share of a CPU as long as for its disk.
    fn of_a_share(&mut self, measure: Measure, span: &Span, loads: &[Load]) {
        if let Some(percent) = loads.iter().find_map(|load| load.client_cpu) {
            let word = measure.word();
            let message = format!(
                "of: {word}: expected a client that runs whenever it can, seen client-cpu = \"{percent}%\", which makes it wait"
            );
            self.push(Mistake::new(span.clone(), message).help("iops, throughput or cpu-per-op"));
        }
    }

    /// Refuses to tell ends apart where something else is on their CPUs.
    fn of_an_end(&mut self, measure: Measure, span: &Span, paths: &[Option<usize>]) {
        let word = measure.word();
        let on_them = |path: &Path| match path.kind {
            PathKind::Direct | PathKind::Machines => None,
            PathKind::Nat => Some((path.name.clone(), "a gateway")),
            PathKind::Mpls | PathKind::Gre | PathKind::L2tp | PathKind::MplsUdp => {
                Some((path.name.clone(), "routers"))
            }
        };
        let mut known = paths.iter().filter_map(|path| self.paths[(*path)?].thing.as_ref());
        if let Some((path, what)) = known.find_map(on_them) {
            let message = format!(
                "of: {word}: expected a path on which each end has its CPUs for itself, seen {path:?}, which has {what} on them"
            );
            let help = "cpu-per-op, which is what all of it costs together";
            self.push(Mistake::new(span.clone(), message).help(help));
        }
    }
}

fn pick_size(own: &LowLoad, usual: &LowLoad) -> Option<Span> {
    own.size.as_ref().or(usual.size.as_ref()).map(Spanned::span)
}

/// In what two systems differ, beside the road to their blocks.
fn differs(subject: &System, reference: &System, loads: &[Load]) -> Option<String> {
    if let Some(differs) = stream_differs(subject, reference) {
        return Some(differs);
    }
    let word = |backing: Option<Backing>| backing.map_or("unknown", Backing::word);
    if subject.backing != reference.backing {
        let (one, other) = (word(subject.backing), word(reference.backing));
        return Some(format!("one stands on {one}, the other on {other}"));
    }
    if subject.durable != reference.durable {
        let (durable, other) = match subject.durable {
            Some(true) => (subject, reference),
            _ => (reference, subject),
        };
        let (durable, other) = (&durable.name, &other.name);
        return Some(format!(
            "what {durable:?} has flushed is durable, and of {other:?} it is not"
        ));
    }
    if subject.cached != reference.cached {
        let (cached, other) = match subject.cached {
            true => (subject, reference),
            false => (reference, subject),
        };
        let (cached, other) = (&cached.name, &other.name);
        return Some(format!(
            "what {cached:?} has completed may be lost from its write cache, and of {other:?} not"
        ));
    }
    if let Some(differs) = client_differs(subject, reference, loads) {
        return Some(differs);
    }
    let mut whole = loads.iter().filter(|load| load.size.is_none());
    let sizes = whole.find_map(|load| {
        let sizes = subject.bytes_under(load).zip(reference.bytes_under(load));
        sizes.filter(|(one, other)| one != other)
    });
    sizes.map(|(one, other)| {
        format!(
            "one has {}, the other {}, and the load works on all of it",
            Bytes(one),
            Bytes(other)
        )
    })
}
