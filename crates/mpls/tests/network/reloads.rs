//! A run of routers whose tables become others under traffic, as whoever configures all of them does it:
//! first what receives, then what sends, and what is not used any more last. Paths get other labels
//! and go other ways, pseudowires are removed and made again, get other bottom labels, and carry
//! other circuits.
//!
//! ```text
//!   wires 0, 1   LER1 .. LER2     wires 2, 3   LER1 .. LER3      all with two paths that are watched
//!   rows of labels, bottom labels and circuits: some more than there are wires, so that each that is
//!   free was another's a moment ago
//! ```
//! Promised is: what no step names loses nothing, nor does a path that gets other labels; nothing
//! goes down; a label that was another's is refused for the quarantine, and nothing else is; what is
//! for a circuit reaches no other, whatever the pseudowire carries next.

use core::time::Duration;
use std::collections::BTreeMap;

use block::{Instant, Random};
use mpls::{Change, Origin, Refused, Sequencing, Space};
use wire::mpls::Label;

use super::health::Times;
use super::oracle::Tally;
use super::orders::{self, R, WATCH};
use super::running::{LIFE, Network};
use super::topology::*;

const WAYS: [[&[usize]; 2]; 2] =
    [[&[LER1, LSR1, LER2], &[LER1, LSR2, LER2]], [&[LER1, LSR1, LER3], &[LER1, LSR2, LER3]]];
pub(super) const WIRES: usize = 4;
/// Of labels, of bottom labels and of circuits.
const ROWS: usize = 7;
const STEPS: usize = 60;
/// Longer than a frame's life, and several steps long.
const QUARANTINE: Duration = Duration::from_millis(400);

/// What a step makes of a wire.
const KINDS: [fn(&mut World, usize); 5] = [
    World::relabel,
    World::lead_elsewhere,
    World::remove,
    World::give_bottom,
    World::move_to_another_circuit,
];
/// The first of them that asks nothing of routers between the ends, nor that what is on its way arrives.
const AT_THE_ENDS: usize = 3;

/// By which two ways a wire goes, in whichever order.
pub(super) fn ways_of(number: usize) -> [&'static [usize]; 2] {
    WAYS[number / 2]
}

fn wire_at(number: usize) -> Wire {
    let sequencing =
        [Sequencing::Reorder, Sequencing::Drop, Sequencing::Reorder, Sequencing::Off][number];
    protected(number, ways_of(number), sequencing)
}

/// Whose a label of a router is or was: of a FEC, or of a pseudowire with a circuit, and until when it
/// is nobody else's.
type Ledger = BTreeMap<(usize, Label), (String, Option<Instant>)>;

pub(super) struct World {
    pub(super) network: Network,
    ledger: Ledger,
    /// How long a label is nobody's.
    quarantine: Duration,
    /// Wires that are not there now.
    pub(super) removed: BTreeMap<usize, Instant>,
    pub(super) refused: u64,
}

/// Runs a seed, and says how often something was refused; an error is the first promise that was
/// broken.
pub(crate) fn run(seed: u64) -> Result<(Tally, u64), String> {
    let mut random = Random::new(seed);
    let faults = [0, 0, 10][random.below(3) as usize];
    let mut world = World::new(random, faults, QUARANTINE);
    for _ in 0..STEPS {
        world.step();
        if world.network.oracle.broken.is_some() {
            break;
        }
    }
    let World { mut network, refused, .. } = world;
    network.settle();
    if let Err(what) = network.check_balance() {
        network.oracle.broke(what);
    }
    network.oracle.broken.map_or(Ok((network.oracle.tally, refused)), Err)
}

impl World {
    /// All wires are there, and all is well. A label is nobody's for `quarantine`.
    pub(super) fn new(random: Random, faults: u64, quarantine: Duration) -> World {
        let times = Times::new(faults > 0, WATCH.revert_after);
        let wires: Vec<Wire> = (0..WIRES).map(wire_at).collect();
        let mut world = World {
            network: Network::new(random, wires.clone(), faults, times),
            ledger: Ledger::new(),
            quarantine,
            removed: BTreeMap::new(),
            refused: 0,
        };
        world.begin(&wires);
        world
    }

    /// All circuits are there, and it is written down who has which label.
    fn begin(&mut self, wires: &[Wire]) {
        for me in [LER1, LER2, LER3] {
            let mut all = Vec::new();
            for circuits in 0..ROWS {
                all.extend(wires.iter().map(|wire| Wire { circuits, ..*wire }));
            }
            let network = &mut self.network;
            orders::give(&mut network.routers[me], network.now, orders::ports(me, &all));
            orders::put_up(&mut network.routers[me], network.now, me, &all);
        }
        for me in 0..ROUTERS {
            let quarantine = Change::SetQuarantine(self.quarantine);
            orders::give(&mut self.network.routers[me], self.network.now, vec![quarantine]);
            for change in orders::all(me, wires) {
                self.write_down(me, &change);
            }
        }
        let up_again = self.network.health.times.up_again;
        self.network.pass(up_again);
    }

    pub(super) fn step(&mut self) {
        let time = Duration::from_millis(10 + self.network.random.below(150));
        self.carry(time);
        self.make_some_again();
        let wire = self.network.random.below(WIRES as u64) as usize;
        if self.removed.contains_key(&wire) {
            return;
        }
        match self.network.random.below(6) as usize {
            0 => {
                let me = self.network.random.below(ROUTERS as u64) as usize;
                let there = self.there();
                if !self.network.is_stalled(me) {
                    self.order_all(me, orders::all(me, &there));
                }
            }
            kind if self.may_order(wire, kind > AT_THE_ENDS) => KINDS[kind - 1](self, wire),
            _ => {}
        }
    }

    /// Whether the routers of a wire run, or its ends do: who stands still takes no orders.
    pub(super) fn may_order(&self, number: usize, is_of_ends: bool) -> bool {
        let wire = &self.network.wires[number];
        let runs = |me: &usize| !self.network.is_stalled(*me);
        match is_of_ends {
            true => wire.ends().iter().all(runs),
            false => ways_of(number).into_iter().flatten().all(runs),
        }
    }

    /// The wires that are there.
    fn there(&self) -> Vec<Wire> {
        let is_there = |wire: &&Wire| !self.removed.contains_key(&wire.number);
        self.network.wires.iter().filter(is_there).copied().collect()
    }

    /// Customers send for so long.
    pub(super) fn carry(&mut self, time: Duration) {
        let until = self.network.now + time;
        while self.network.now < until && self.network.oracle.broken.is_none() {
            let wire = self.network.random.below(WIRES as u64) as usize;
            let end = self.network.random.below(2) as usize;
            if !self.removed.contains_key(&wire) {
                self.network.send(wire, end);
            }
            let pause = self.network.random.below(3_000_000);
            self.network.pass(Duration::from_nanos(pause));
        }
    }

    /// A router is ordered something, and does it unless a label was another's a moment ago.
    fn order(&mut self, me: usize, change: Change) -> bool {
        let may = self.may(me, &change);
        let what = format!("{change:?}");
        if may {
            self.write_down(me, &change);
        }
        let network = &mut self.network;
        let answer = network.routers[me].change(network.now, R, change);
        network.pump(me);
        let is_refused = matches!(answer, Err(Refused::Quarantined { .. } | Refused::Taken { .. }));
        self.refused += u64::from(is_refused);
        if may == answer.is_err() || (!may && !is_refused) {
            let now = network.now;
            network.oracle.broke(format!("at {now:?} router {me} says {answer:?} to {what}"));
        }
        may
    }

    fn order_all(&mut self, me: usize, changes: Vec<Change>) -> bool {
        changes.into_iter().all(|change| self.order(me, change))
    }

    /// Whether a change may be, by whom its label is or was.
    fn may(&self, me: usize, change: &Change) -> bool {
        let Some((label, owner)) = label_of(change) else { return true };
        match self.ledger.get(&(me, label)) {
            Some((known, until)) if *known != owner => {
                until.is_some_and(|until| until <= self.network.now)
            }
            _ => true,
        }
    }

    fn write_down(&mut self, me: usize, change: &Change) {
        let until = Some(self.network.now + self.quarantine);
        match change {
            Change::SetPseudowire(id, _) | Change::RemovePseudowire(id) => {
                // The label that it had and has no more.
                let (label, owner) = label_of(change).unzip();
                let its = format!("{id} of ");
                let had = self.ledger.iter_mut().filter(|((router, it), (whose, until))| {
                    let is_kept = Some(*it) == label && Some(&**whose) == owner.as_deref();
                    *router == me && whose.starts_with(&its) && until.is_none() && !is_kept
                });
                had.for_each(|(_, (_, withdrawn))| *withdrawn = until);
            }
            Change::WithdrawLabel { label, .. } => {
                if let Some((_, withdrawn)) = self.ledger.get_mut(&(me, *label)) {
                    *withdrawn = until;
                }
            }
            _ => {}
        }
        if let Some((label, owner)) = label_of(change) {
            self.ledger.insert((me, label), (owner, None));
        }
    }

    /// Rows that no wire has now, in any order.
    fn spare(&mut self, row_of: fn(&Wire) -> usize) -> usize {
        let taken: Vec<usize> = self.network.wires.iter().map(row_of).collect();
        let free: Vec<usize> = (0..ROWS).filter(|row| !taken.contains(row)).collect();
        free[self.network.random.below(free.len() as u64) as usize]
    }

    /// The paths of a wire get other labels, and nothing is lost.
    fn relabel(&mut self, number: usize) {
        let labels = self.spare(|wire| wire.labels);
        let before = self.network.wires[number];
        self.change_paths(before, Wire { labels, ..before });
    }

    /// Its two paths change places; frames may be overtaken meanwhile.
    fn lead_elsewhere(&mut self, number: usize) {
        let before = self.network.wires[number];
        let [primary, backup] = before.paths;
        self.lead(number, [backup, primary], before.is_single);
    }

    /// A wire goes these ways, or the first of them alone.
    pub(super) fn lead(&mut self, number: usize, paths: [&'static [usize]; 2], is_single: bool) {
        let labels = self.spare(|wire| wire.labels);
        let before = self.network.wires[number];
        let since = Instant(self.network.now.0.saturating_sub(LIFE.as_nanos() as u64));
        self.change_paths(before, Wire { labels, paths, is_single, ..before });
        self.excuse(&before, since);
    }

    /// What was sent by a wire since this moment may be lost.
    fn excuse(&mut self, wire: &Wire, since: Instant) {
        let circuits = [0, 1].map(|end| wire.circuit(end));
        circuits.into_iter().for_each(|to| self.network.oracle.excuse(since, Some(to)));
    }

    /// Whoever receives is told first: the ends, then the routers of each path from its end on. What
    /// leads to what was before is taken away once nothing is on its way there. If a label is refused, all is as it was.
    fn change_paths(&mut self, before: Wire, after: Wire) {
        let known = |path, end| [before.origin(path, end), after.origin(path, end)];
        for end in [0, 1] {
            let origins: Vec<Origin> = [known(0, end), known(1, end)].concat();
            self.set_end(&before, end, origins);
        }
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let may = all.into_iter().all(|(path, from)| {
            let routers = after.path_from(path, from);
            routers.iter().skip(1).rev().all(|me| {
                let changes = orders::path_through(*me, &after, path, from);
                changes.iter().all(|change| self.may(*me, change))
            })
        });
        for (path, from) in all {
            let routers = after.path_from(path, from);
            for me in routers.into_iter().rev() {
                if !self.order_all(me, orders::path_through(me, &after, path, from)) {
                    break;
                }
            }
            if !may {
                break;
            }
        }
        let (kept, gone) = if may { (after, before) } else { (before, after) };
        self.network.set_wire(kept);
        if !may {
            // A router that had given its label already has it taken away again.
            all.into_iter().for_each(|(path, from)| self.lead_back(&before, path, from));
        }
        self.carry(LIFE);
        self.take_away(&gone, &kept);
        for end in [0, 1] {
            self.set_end(&kept, end, [0, 1].map(|path| kept.origin(path, end)).to_vec());
        }
    }

    /// Routers send by a path as before.
    fn lead_back(&mut self, wire: &Wire, path: usize, from: usize) {
        for me in wire.path_from(path, from).into_iter().rev() {
            self.order_all(me, orders::path_through(me, wire, path, from));
        }
    }

    /// The labels of paths that nobody uses any more are withdrawn.
    fn take_away(&mut self, gone: &Wire, kept: &Wire) {
        for (path, from) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for me in gone.path_from(path, from).into_iter().skip(1) {
                let (label, fec) = (gone.label_at(path, from, me), gone.fec(path, from));
                let owner = format!("{fec:?}");
                let is_its = self.ledger.get(&(me, label)) == Some(&(owner, None));
                let is_kept = kept.label_at(path, from, me) == label
                    && kept.path_from(path, from).contains(&me);
                if is_its && !is_kept {
                    let space = Space::Platform;
                    self.order(me, Change::WithdrawLabel { space, label, fec });
                }
            }
        }
    }

    fn set_end(&mut self, wire: &Wire, end: usize, origins: Vec<Origin>) {
        let pseudowire = mpls::Pseudowire { origins, ..wire.pseudowire(end) };
        self.order(wire.ends()[end], Change::SetPseudowire(wire.id(), pseudowire));
    }

    /// A wire gets another bottom label at both ends, one after the other.
    fn give_bottom(&mut self, number: usize) {
        let bottom = self.spare(|wire| wire.bottom);
        let before = self.network.wires[number];
        self.change_ends(before, Wire { bottom, ..before });
    }

    /// A wire carries another customer's circuits from now on, some of whose frames came early and
    /// wait for others. It needs another bottom label: with its own it is refused.
    fn move_to_another_circuit(&mut self, number: usize) {
        let circuits = self.spare(|wire| wire.circuits);
        let bottom = self.spare(|wire| wire.bottom);
        let before = self.network.wires[number];
        let alike = Wire { circuits, ..before };
        for end in [0, 1] {
            let me = before.ends()[end];
            self.order(me, Change::SetPseudowire(before.id(), alike.pseudowire(end)));
        }
        let end = self.network.random.below(2) as usize;
        self.network.links.held = Some(self.first_port(&before, end));
        for _ in 0..10 {
            self.network.send(number, end);
        }
        self.network.links.held = None;
        let pause = self.network.random.below(8_000_000);
        self.network.pass(Duration::from_nanos(pause));
        self.change_ends(before, Wire { circuits, bottom, ..before });
    }

    fn first_port(&self, wire: &Wire, end: usize) -> contract::LinkId {
        let routers = wire.path_from(0, end);
        port(routers[0], routers[1])
    }

    /// Both ends of a wire become others at once; what is on its way is lost.
    fn change_ends(&mut self, before: Wire, after: Wire) {
        let change = |end| Change::SetPseudowire(before.id(), after.pseudowire(end));
        let may = [0, 1].map(|end| self.may(before.ends()[end], &change(end)));
        for end in [0, 1] {
            // One that is refused at one end is not made at the other.
            if may == [true; 2] || !may[end] {
                self.order(before.ends()[end], change(end));
            }
        }
        if may == [true; 2] {
            self.network.wires[before.number] = after;
            let since = Instant(self.network.now.0.saturating_sub(LIFE.as_nanos() as u64));
            self.excuse(&before, since);
        }
    }

    /// A pseudowire is removed at both ends, once nothing of it is on its way.
    fn remove(&mut self, number: usize) {
        let wire = self.network.wires[number];
        self.removed.insert(number, self.network.now);
        self.carry(LIFE);
        for me in wire.ends() {
            self.network.keep_counters(me, &wire);
            self.order(me, Change::RemovePseudowire(wire.id()));
        }
    }

    /// What was removed is made again, some time later: its own label is its own, whenever.
    fn make_some_again(&mut self) {
        let due: Vec<usize> = self.removed.keys().copied().collect();
        for number in due {
            if self.network.random.chance(1, 3) && self.may_order(number, true) {
                self.make_again(number);
            }
        }
    }

    pub(super) fn make_again(&mut self, number: usize) {
        self.removed.remove(&number);
        self.network.began_anew.insert(number);
        let (wire, now) = (self.network.wires[number], self.network.now);
        for me in wire.ends() {
            self.order_all(me, orders::end_of(me, &wire));
        }
        for path in [0, 1] {
            let failing = self.network.failing(wire.paths[path]);
            self.network.health.begin(now, (number, path), failing);
        }
        // A primary that never was up is waited for.
        let health = &self.network.health;
        if [0, 1].iter().any(|path| !health.is_whole((number, *path))) {
            self.network.anew.insert(number, now + health.times.wait);
        }
    }
}

/// The label that a change gives to somebody, and to whom.
fn label_of(change: &Change) -> Option<(Label, String)> {
    match change {
        Change::SetLabel { label, fec, .. } => Some((*label, format!("{fec:?}"))),
        Change::SetPseudowire(id, pseudowire) => {
            let circuit = pseudowire.fec.circuit;
            Some((pseudowire.label_in, format!("{id} of {circuit}")))
        }
        _ => None,
    }
}
