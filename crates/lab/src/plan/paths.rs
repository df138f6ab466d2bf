//! The paths of a plan: what each is, and whether all that it is can be at once.
//!
//! A path is laid by the lab, or is between two machines, of which the lab changes nothing. A plan has
//! the one or the other, and all of its machines' paths have one agent, since both ends' CPUs are
//! those of two machines or of one. Which systems go over which path is judged in `compare`.

use std::ops::RangeInclusive;
use std::str::FromStr as _;
use std::time::Duration;

use super::check::{Checker, Table};
use super::low::LowPath;
use super::model::{AgentAt, CORE_MORE, Line, Path, PathKind, Softirqs};
use super::reader::Low;
use super::words;
use crate::mistake::{Mistake, Span};

impl Checker<'_> {
    pub(super) fn path(&mut self, low: &LowPath) -> Option<Path> {
        let table = Table { title: "this [[path]]", span: low.span.clone(), refused: &low.refused };
        let name = self.needed(&low.name, &table, "name = \"...\"").cloned();
        let taken: Vec<(String, Span)> =
            self.paths.iter().map(|named| (named.name.clone(), named.span.clone())).collect();
        let is_named = low.name.as_ref().is_none_or(|name| self.name(name, "path", &taken));
        let kind = low.kind.as_ref().map(|word| self.word(word, "kind", PathKind::WORDS));
        let mtu = self.number(&low.mtu, "mtu", MTU_MIN..=MTU_MAX);
        let rate = self.scalar(&low.rate, "rate", words::bit_rate);
        let delay = self.scalar(&low.delay, "delay", |text| words::time(text, DELAYS));
        let loss_ppm = self.scalar(&low.loss, "loss", words::loss);
        let offloads = low.offloads.as_ref().is_some_and(|offloads| *offloads.get_ref());
        let softirqs = low.softirqs.as_ref();
        let softirqs = softirqs.and_then(|word| self.word(word, "softirqs", Softirqs::WORDS));
        let kind = kind.unwrap_or(Some(PathKind::Direct))?;
        let mtu = mtu.map(|mtu| mtu as u32);
        let line = self.line(low, kind);
        let is_joined = line.is_some() || kind.is_laid();
        let name = name?;
        let path = Path { name, kind, mtu, offloads, softirqs, rate, delay, loss_ppm, line };
        let goes_together = self.goes_together(low, &path);
        (is_named && goes_together && is_joined).then_some(path)
    }

    /// What joins two machines, of a path that does.
    fn line(&mut self, low: &LowPath, kind: PathKind) -> Option<Line> {
        let keys = [
            ("agent", &low.agent),
            ("near-interface", &low.near_interface),
            ("far-interface", &low.far_interface),
            ("far-address", &low.far_address),
        ];
        if kind.is_laid() {
            for (key, written) in keys {
                if let Some(written) = written {
                    let message = format!(
                        "{key}: expected kind = \"machines\" beside it, seen {}, whose ends the lab makes",
                        kind.word()
                    );
                    self.push(Mistake::new(written.span(), message).help("leave it out"));
                }
            }
            return None;
        }
        let table = Table { title: "this [[path]]", span: low.span.clone(), refused: &low.refused };
        for (key, written) in keys {
            self.needed(written, &table, &format!("{key} = \"...\""));
        }
        let agent = self.said(&low.agent, "agent", AgentAt::from_str);
        let far_address = self.said(&low.far_address, "far-address", |text| {
            text.parse().map_err(|_| format!("expected an address of IP, seen {text:?}"))
        });
        let interface = |written: &Low<String>| written.as_ref().map(|low| low.get_ref().clone());
        Some(Line {
            agent: agent?,
            near_interface: interface(&low.near_interface)?,
            far_interface: interface(&low.far_interface)?,
            far_address: far_address?,
        })
    }

    /// What a text says, if it can be read.
    pub(super) fn said<T>(
        &mut self,
        written: &Low<String>,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let written = written.as_ref()?;
        match read(written.get_ref()) {
            Ok(value) => Some(value),
            Err(why) => {
                self.push(Mistake::new(written.span(), format!("{key}: {why}")));
                None
            }
        }
    }

    /// An error for all that changes frames, over a path that the lab does not lay.
    fn changes_nothing(&mut self, low: &LowPath) {
        for (key, written) in [("rate", &low.rate), ("delay", &low.delay), ("loss", &low.loss)] {
            if let Some(written) = written {
                let message = format!(
                    "{key}: expected a path that the lab lays, seen one between two machines, of which it changes nothing"
                );
                self.push(Mistake::new(written.span(), message).help("leave it out"));
            }
        }
        if let Some(written) = &low.softirqs {
            let message = "softirqs: expected a path that the lab lays, seen one between two machines, whose interfaces interrupt where they do";
            self.push(Mistake::new(written.span(), message).help("leave it out"));
        }
    }

    /// An error where paths have other ends than the first one: another machine, or this one.
    pub(super) fn ends_are_the_same(&mut self) {
        let known = self.paths.iter().filter_map(|named| {
            let agent = named.thing.as_ref()?.line.as_ref().map(|line| line.agent.clone());
            Some((named.name.clone(), named.span.clone(), agent))
        });
        let mut known = known.collect::<Vec<_>>().into_iter();
        let Some((first, _, expected)) = known.next() else { return };
        let words = |agent: &Option<AgentAt>| match agent {
            Some(agent) => format!("the far end at {agent}"),
            None => "both ends on this machine".to_owned(),
        };
        for (_, span, agent) in known.filter(|(_, _, agent)| *agent != expected) {
            let message = format!(
                "path: expected {}, as path {first:?} has, seen {}",
                words(&expected),
                words(&agent)
            );
            self.push(Mistake::new(span, message).help("make two plans of it"));
        }
    }

    /// Whether all that a path is can be at once.
    fn goes_together(&mut self, low: &LowPath, path: &Path) -> bool {
        let before = self.mistakes.len();
        let kind = path.kind.word();
        if !path.kind.is_laid() {
            self.changes_nothing(low);
        }
        if let Some(loss) = low.loss.as_ref().filter(|_| path.offloads) {
            let message = "loss: expected offloads = false beside it, seen true: with them up to 64 KiB are one frame, and lost at once";
            self.push(Mistake::new(loss.span(), message).help("leave out one of them"));
        }
        if let Some(offloads) = low.offloads.as_ref().filter(|_| path.offloads)
            && path.kind.has_core()
        {
            let message = format!(
                "offloads: expected false over {kind}, whose routers carry frames as they are on a wire, seen true"
            );
            self.push(Mistake::new(offloads.span(), message).help("leave it out"));
        }
        let mtu_max = MTU_MAX - u64::from(CORE_MORE);
        if let Some((mtu, written)) = path.mtu.zip(low.mtu.as_ref())
            && path.kind.has_core()
            && u64::from(mtu) > mtu_max
        {
            let message = format!(
                "mtu: expected {mtu_max} at most over {kind}, whose core has {CORE_MORE} bytes more for headers, seen {mtu}"
            );
            self.push(Mistake::new(written.span(), message));
        }
        if let Some((rate, written)) = path.rate.zip(low.rate.as_ref())
            && path.kind == PathKind::Mpls
            && rate > ROUTER_RATE_MAX
        {
            let message = "rate: expected 100Gbit at most over mpls, whose routers shape by themselves, seen more";
            self.push(Mistake::new(written.span(), message));
        }
        self.mistakes.len() == before
    }
}

/// What a virtual interface takes.
const MTU_MAX: u64 = 65_535;
/// From what a timer can keep to what nobody measures across.
const DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(1);
/// Of a router's port.
const ROUTER_RATE_MAX: u64 = 100_000_000_000;
/// What every host must take (RFC 791); with less there is no room for a block of AoE.
const MTU_MIN: u64 = 576;
