//! Metrics as values, before they are text: families of samples.
//!
//! `prometheus-client` writes them and escapes their labels. A family that has no sample is written
//! all the same, so that what can be had is seen wherever it is looked for.

use std::collections::HashMap;
use std::fmt;

use contract::Counters;
use contract::counters::{Counter, Kind, Unit as Counted};
use indexmap::IndexMap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use volume::latency::Histogram;

/// What tells the samples of a family apart.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// What all of them begin with.
const PREFIX: &str = "plateway";

/// Families by their names and units, in the order in which they were first named.
#[derive(Debug, Default)]
pub(crate) struct Families(IndexMap<String, Family>);

/// Samples of one name.
#[derive(Debug)]
pub(crate) struct Family {
    /// Without prefix, unit and suffix.
    name: String,
    help: String,
    unit: Option<Unit>,
    kind: MetricType,
    samples: Vec<(Labels, Value)>,
}

#[derive(Debug)]
enum Value {
    Count(u64),
    /// Of its family's unit.
    Number(f64),
    Histogram(Box<Histogram>),
    Info,
}

impl Family {
    pub(crate) fn count(&mut self, labels: Labels, count: u64) {
        self.samples.push((labels, Value::Count(count)));
    }

    /// Of nanoseconds.
    pub(crate) fn seconds(&mut self, labels: Labels, nanoseconds: u64) {
        self.samples.push((labels, Value::Number(nanoseconds as f64 / 1e9)));
    }

    /// In the unit that the name has.
    pub(crate) fn number(&mut self, labels: Labels, number: f64) {
        self.samples.push((labels, Value::Number(number)));
    }

    pub(crate) fn histogram(&mut self, labels: Labels, histogram: Histogram) {
        self.samples.push((labels, Value::Histogram(Box::new(histogram))));
    }

    pub(crate) fn info(&mut self, labels: Labels) {
        self.samples.push((labels, Value::Info));
    }
}

impl Families {
    /// The family of a name without prefix, unit and `_total`; it is made where it is new.
    fn family(
        &mut self,
        name: &str,
        kind: MetricType,
        unit: Option<Unit>,
        help: &str,
    ) -> &mut Family {
        let unit_name = unit.as_ref().map_or("", Unit::as_str);
        self.0.entry(format!("{name} {unit_name}")).or_insert_with(|| Family {
            name: name.to_owned(),
            help: help.trim_end_matches('.').to_owned(),
            unit,
            kind,
            samples: Vec::new(),
        })
    }

    pub(crate) fn counter(&mut self, name: &str, unit: Option<Unit>, help: &str) -> &mut Family {
        self.family(name, MetricType::Counter, unit, help)
    }

    pub(crate) fn gauge(&mut self, name: &str, unit: Option<Unit>, help: &str) -> &mut Family {
        self.family(name, MetricType::Gauge, unit, help)
    }

    pub(crate) fn latency(&mut self, name: &str, help: &str) -> &mut Family {
        self.family(name, MetricType::Histogram, Some(Unit::Seconds), help)
    }

    pub(crate) fn information(&mut self, name: &str, help: &str) -> &mut Family {
        self.family(name, MetricType::Info, None, help)
    }

    /// A family for each counter of a structure, under the counter's name behind `group`.
    pub(crate) fn declare<C: Counters>(&mut self, group: &str) {
        for counter in C::LIST {
            self.of(group, counter);
        }
    }

    /// What a structure counted.
    pub(crate) fn counters<C: Counters>(&mut self, group: &str, labels: &Labels, counters: &C) {
        for (counter, value) in counters.each() {
            self.one(group, labels, counter, value);
        }
    }

    pub(crate) fn one(&mut self, group: &str, labels: &Labels, counter: &Counter, value: u64) {
        let family = self.of(group, counter);
        match counter.unit {
            Counted::Nanoseconds => family.seconds(labels.clone(), value),
            _ => family.count(labels.clone(), value),
        }
    }

    fn of(&mut self, group: &str, counter: &Counter) -> &mut Family {
        let mut name = format!("{group}_{}", counter.name);
        let mut unit = None;
        if counter.unit == Counted::Bytes && name.ends_with("_bytes") {
            name.truncate(name.len() - "_bytes".len());
            unit = Some(Unit::Bytes);
        } else if counter.unit == Counted::Nanoseconds {
            name = name.trim_end_matches("_ns").to_owned();
            unit = Some(Unit::Seconds);
        } else if counter.unit == Counted::Frames && !name.ends_with("_frames") {
            // The same word may count their bytes.
            name.push_str("_frames");
        }
        let kind = match counter.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Level => MetricType::Gauge,
        };
        self.family(&name, kind, unit, counter.meaning)
    }

    /// All of them, as OpenMetrics.
    pub(crate) fn text(self) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a text takes what is written to it");
        text
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, unit, kind, samples } in self.0.values() {
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
            for (labels, value) in samples {
                match labels.as_slice() {
                    [] => value.encode(&mut metric, *kind, labels)?,
                    _ if matches!(kind, MetricType::Info) => {
                        value.encode(&mut metric, *kind, labels)?
                    }
                    _ => value.encode(&mut metric.encode_family(labels)?, *kind, labels)?,
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, to: &mut MetricEncoder<'_>, kind: MetricType, labels: &Labels) -> fmt::Result {
        const NONE: Option<&Exemplar<NoLabelSet, u64>> = None;
        match (self, kind) {
            (Value::Count(count), MetricType::Counter) => to.encode_counter(count, NONE),
            (Value::Count(count), _) => to.encode_gauge(count),
            (Value::Number(number), MetricType::Counter) => to.encode_counter(number, NONE),
            (Value::Number(number), _) => to.encode_gauge(number),
            (Value::Histogram(histogram), _) => {
                let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
                let end = |end: Option<u64>| end.map_or(f64::INFINITY, seconds);
                let buckets: Vec<(f64, u64)> =
                    histogram.buckets().map(|(last, count)| (end(last), count)).collect();
                let count = buckets.iter().map(|(_, count)| count).sum();
                let none: Option<&HashMap<usize, Exemplar<NoLabelSet, f64>>> = None;
                to.encode_histogram(seconds(histogram.sum()), count, &buckets, none)
            }
            (Value::Info, _) => to.encode_info(labels),
        }
    }
}
