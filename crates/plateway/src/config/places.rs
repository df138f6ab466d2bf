//! Where the things of a configuration were written, for what is found wrong with them only once the machine is looked at.
//!
//! A place is found by a thing's title and the key that something contradicts (a volume's `size`, one of its disks); what was not written
//! is at the place of the thing itself, which is where its name, its URI or its address is. Spans are byte offsets into the sources.

use std::collections::BTreeMap;

use super::mistake::{Mistake, Mistakes, Sources, Span};

/// The sources of a configuration, and where in them its things are.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(super) sources: Sources,
    places: BTreeMap<String, BTreeMap<String, Span>>,
}

impl Places {
    /// Notes a place; of several the first counts. The key of the thing itself is empty.
    pub(super) fn put(&mut self, title: String, key: &str, span: Span) {
        self.places.entry(title).or_default().entry(key.to_owned()).or_insert(span);
    }

    /// Where a key of a thing is, or else the thing.
    pub(crate) fn find(&self, title: &str, key: &str) -> Span {
        let of_thing = self.places.get(title);
        let span = of_thing.and_then(|keys| keys.get(key).or_else(|| keys.get("")));
        span.cloned().unwrap_or(0..0)
    }

    /// Puts mistakes at their places.
    pub(crate) fn locate(&self, mistakes: Vec<Mistake>) -> Mistakes {
        Mistakes::locate(&self.sources, mistakes)
    }
}
