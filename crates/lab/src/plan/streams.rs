//! Streams of a plan: the network alone, without a disk behind it, as `iperf` looks at it.
//!
//! The client opens a connection for each job and sends blocks to the far end as fast as they are taken
//! (`pattern = "write"`), or takes what the far end sends (`"read"`). Nobody looks at what they hold. So a
//! stream has no backing and no durability, and is a fair pair with another stream alone. Errors: the
//! mistakes of a plan, each at its place.

use toml::Spanned;

use super::check::Checker;
use super::files::{not_one_by_one, said_of_a_disk};
use super::low::{LowLoad, LowSystem};
use super::model::{Load, System, Transport};
use crate::mistake::{Mistake, Span};

impl Checker<'_> {
    /// What carries a stream, which has nothing that only disks have.
    pub(super) fn stream(
        &mut self,
        written: &Spanned<String>,
        low: &LowSystem,
    ) -> Option<Transport> {
        let transport = self.word(written, "stream", Transport::WORDS)?;
        let of_disks = [
            ("backing", low.backing.as_ref().map(Spanned::span)),
            ("durable", low.durable.as_ref().map(Spanned::span)),
            ("file-system", low.file_system.as_ref().map(Spanned::span)),
            ("client", low.client.as_ref().map(Spanned::span)),
            ("fuse", low.fuse.as_ref().map(Spanned::span)),
        ];
        let mut is_right = true;
        for (key, span) in of_disks.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            let message = format!("{key}: expected a disk or a folder beside it, seen a stream");
            self.push(Mistake::new(span, message).help("leave it out"));
            is_right = false;
        }
        is_right.then_some(transport)
    }

    /// Refuses loads of a table that no stream can carry, where one of its systems is a stream.
    pub(super) fn streamed(
        &mut self,
        systems: &[usize],
        loads: &[Load],
        span: &Span,
        own: &LowLoad,
        usual: &LowLoad,
    ) {
        let known = |at: &usize| self.systems[*at].thing.as_ref();
        let is_stream = |system: &&System| system.means.is_stream();
        let Some(stream) = systems.iter().filter_map(known).find(is_stream) else { return };
        let name = stream.name.clone();
        let is_one_way = |load: &Load| {
            let pattern = load.pattern;
            !pattern.random && !pattern.trims() && pattern.reads() != pattern.writes()
        };
        let mut wrong = Vec::new();
        if let Some(load) = loads.iter().find(|load| !is_one_way(load)) {
            let expected = "read, which the far end sends, or write, which it takes";
            wrong.push(("pattern", expected, load.pattern.to_string()));
        }
        wrong.extend(not_one_by_one(loads));
        wrong.extend(
            said_of_a_disk(loads).map(|(key, seen)| (key, "none, since there is no disk", seen)),
        );
        self.unfit(&format!("{name:?} is a stream"), wrong, span, own, usual);
    }
}

/// Why a pair of which one is a stream is none.
pub(super) fn stream_differs(subject: &System, reference: &System) -> Option<String> {
    let (stream, other) = match (subject.means.is_stream(), reference.means.is_stream()) {
        (true, false) => (subject, reference),
        (false, true) => (reference, subject),
        _ => return None,
    };
    let (stream, other) = (&stream.name, &other.name);
    Some(format!("{stream:?} is the network alone, and behind {other:?} there is a disk"))
}
