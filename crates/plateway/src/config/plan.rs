//! The difference between two configurations, as steps in the order in which they are carried out.
//!
//! New things come from the bottom up: links, routers, disks, volumes, listeners, exports; old things go
//! from the top down. What is new comes first, so that a step that fails leaves what was served
//! untouched, unless something new excludes something old (by a disk, an address, a namespace):
//! then all removals come first. A thing that cannot be changed in place (another disk under the
//! same name) is removed and added again, with everything that stands on it; exports that no step
//! names notice nothing. Each step has an inverse, by which `apply` undoes the steps before a
//! failing one. Errors: [`Refused`], for what takes a restart or would lose data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use block::ByteCount;

use super::model::HiArgs;
use super::thing::{Change, Step, Thing};

/// What `apply` does, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Empty where nothing changes.
    pub(crate) steps: Vec<Step>,
}

/// A change that `apply` does not make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// A key of `[server]`.
    #[error(
        "[server] {key} cannot change while the server runs: {from} -> {to}; restart plateway to use it"
    )]
    NeedsRestart { key: &'static str, from: String, to: String },
    /// A RAM disk of another size.
    #[error(
        "disk {name} is in memory and cannot change from {} to {} without losing its data; \
         remove it in one apply and add it in the next, or give the new one another name",
        ByteCount(*from_bytes), ByteCount(*to_bytes)
    )]
    RamResize { name: String, from_bytes: u64, to_bytes: u64 },
    /// A file made smaller.
    #[error("disk {name} cannot shrink from {} to {}: what lies beyond would be lost", ByteCount(*from_bytes), ByteCount(*to_bytes))]
    FileShrink { name: String, from_bytes: u64, to_bytes: u64 },
    /// A label that was for something else.
    #[error(
        "label {label} of {place} is for {from}, and packets for it may be on their way: it cannot be for {to} at once; \
         give that another label, or take this one away in one apply and add it in another after the router's quarantine"
    )]
    LabelReused { label: u32, place: String, from: String, to: String },
}

/// Plans the way from one configuration to another; every refusal is reported.
pub(crate) fn plan(from: &HiArgs, to: &HiArgs) -> Result<Plan, Vec<Refused>> {
    let mut refused = from.server.changes(&to.server);
    refused.extend(from.routing.reused(&to.routing));
    let titled = |args: &HiArgs| -> Vec<(String, Thing)> {
        args.things().map(|thing| (thing.title(), thing)).collect()
    };
    let (old, new) = (titled(from), titled(to));
    let wanted: BTreeMap<&str, &Thing> =
        new.iter().map(|(title, thing)| (&**title, thing)).collect();
    let mut stays: BTreeSet<&str> = old.iter().map(|(title, _)| &**title).collect();
    let mut changes: BTreeSet<&str> = BTreeSet::new();
    let (mut removals, mut additions) = (Vec::new(), Vec::new());
    for (title, thing) in &old {
        let stands_on = thing.stands_on();
        let stands = stands_on.iter().all(|title| stays.contains(&**title));
        let moves = thing.follows() && stands_on.iter().any(|title| changes.contains(&**title));
        let to = wanted.get(&**title).copied().filter(|_| stands);
        let change = match to {
            None => Ok(Change::Replace),
            Some(to) if to == thing => Ok(Change::None),
            Some(to) => thing.change(to),
        };
        match (change, to) {
            (Ok(Change::None), _) if !moves => {}
            (Ok(Change::Aside), Some(to)) => {
                additions.push(Step::Change { from: thing.clone(), to: to.clone() });
            }
            (Ok(Change::None | Change::InPlace), Some(to)) => {
                changes.insert(title);
                additions.push(Step::Change { from: thing.clone(), to: to.clone() });
            }
            (Ok(_), _) => {
                stays.remove(&**title);
                removals.push(Step::Remove(thing.clone()));
            }
            (Err(refusal), _) => refused.push(refusal),
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    let added = new.iter().filter(|(title, _)| !stays.contains(&**title));
    additions.extend(added.map(|(_, thing)| Step::Add(thing.clone())));
    // Kind by kind, what changes before what is new.
    additions.sort_by_key(|step| step.thing().kind());
    removals.reverse();
    let excludes = |new: &Step, old: &Step| match (new, old) {
        // Of one title there is one at a time, also where the system chooses a port for each.
        (Step::Add(new), Step::Remove(old)) => new.title() == old.title() || new.excludes(old),
        _ => false,
    };
    let removals_first = additions.iter().any(|new| removals.iter().any(|old| excludes(new, old)));
    let (first, then) = match removals_first {
        true => (removals, additions),
        false => (additions, removals),
    };
    Ok(Plan { steps: [first, then].concat() })
}

impl Plan {
    /// What `serve` does with a configuration: everything is new.
    pub(crate) fn initial(args: &HiArgs) -> Self {
        Self { steps: args.things().map(Step::Add).collect() }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("nothing changes");
        }
        for (i, step) in self.steps.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            step.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
