//! What trials are judged by: the measures of a plan, their names, and how many operations a
//! percentile needs.
//!
//! Values: operations and bytes a second, nanoseconds of latency, microseconds of processor time and
//! bytes an operation; a comparison of ratios does not care.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::statistics::Better;

/// What a trial is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    Iops,
    /// Bytes of payload a second.
    Throughput,
    LatencyMean,
    P50,
    P75,
    P90,
    P95,
    P99,
    P99_9,
    P99_99,
    /// Processor time of both ends together, and with what is between them.
    CpuPerOp,
    /// Of one end, over a path on which it has its CPUs for itself.
    CpuNearPerOp,
    CpuFarPerOp,
    /// Bytes on the wire, both ways, where the near end meets its path.
    WireBytesPerOp,
    /// Where the near end's router meets the core: how uneven what it sends there is, from millisecond to millisecond
    /// (the variance of their bytes by their mean), and how many frames waited there at most.
    CoreBurstiness,
    CoreQueue,
    /// Of the reads of a load alone, and of its writes.
    ReadIops,
    WriteIops,
    ReadLatencyMean,
    WriteLatencyMean,
    ReadP50,
    WriteP50,
    ReadP99,
    WriteP99,
    /// Bytes of payload a second; of a program, as it tells them.
    ReadThroughput,
    WriteThroughput,
    /// Of bonnie++: bytes a second by a system call for each ...
    CharRead,
    CharWrite,
    /// ... that are read and written again in chunks, and reads a second anywhere.
    Rewrite,
    Seeks,
}

/// What of a mix is measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Reads,
    Writes,
}

/// What a trial came to, by measure. What it did not measure is absent.
pub type Measures = BTreeMap<Measure, f64>;

impl Measure {
    /// Every measure, in the order of the documentation.
    pub const ALL: [Measure; 30] = [
        Measure::Iops,
        Measure::Throughput,
        Measure::LatencyMean,
        Measure::P50,
        Measure::P75,
        Measure::P90,
        Measure::P95,
        Measure::P99,
        Measure::P99_9,
        Measure::P99_99,
        Measure::CpuPerOp,
        Measure::CpuNearPerOp,
        Measure::CpuFarPerOp,
        Measure::WireBytesPerOp,
        Measure::CoreBurstiness,
        Measure::CoreQueue,
        Measure::ReadIops,
        Measure::WriteIops,
        Measure::ReadLatencyMean,
        Measure::WriteLatencyMean,
        Measure::ReadP50,
        Measure::WriteP50,
        Measure::ReadP99,
        Measure::WriteP99,
        Measure::ReadThroughput,
        Measure::WriteThroughput,
        Measure::CharRead,
        Measure::CharWrite,
        Measure::Rewrite,
        Measure::Seeks,
    ];

    /// As a plan writes it.
    pub fn word(self) -> &'static str {
        match self {
            Measure::Iops => "iops",
            Measure::Throughput => "throughput",
            Measure::LatencyMean => "latency-mean",
            Measure::P50 => "p50",
            Measure::P75 => "p75",
            Measure::P90 => "p90",
            Measure::P95 => "p95",
            Measure::P99 => "p99",
            Measure::P99_9 => "p99.9",
            Measure::P99_99 => "p99.99",
            Measure::CpuPerOp => "cpu-per-op",
            Measure::CpuNearPerOp => "cpu-near-per-op",
            Measure::CpuFarPerOp => "cpu-far-per-op",
            Measure::WireBytesPerOp => "wire-bytes-per-op",
            Measure::CoreBurstiness => "core-burstiness",
            Measure::CoreQueue => "core-queue",
            Measure::ReadIops => "read-iops",
            Measure::WriteIops => "write-iops",
            Measure::ReadLatencyMean => "read-latency-mean",
            Measure::WriteLatencyMean => "write-latency-mean",
            Measure::ReadP50 => "read-p50",
            Measure::WriteP50 => "write-p50",
            Measure::ReadP99 => "read-p99",
            Measure::WriteP99 => "write-p99",
            Measure::ReadThroughput => "read-throughput",
            Measure::WriteThroughput => "write-throughput",
            Measure::CharRead => "char-read",
            Measure::CharWrite => "char-write",
            Measure::Rewrite => "rewrite",
            Measure::Seeks => "seeks",
        }
    }

    /// Every word, with what it means.
    pub(super) fn words() -> [(&'static str, Measure); Measure::ALL.len()] {
        Measure::ALL.map(|measure| (measure.word(), measure))
    }

    /// What its values are: those of one unit have a ratio.
    pub(super) fn unit(self) -> &'static str {
        match self.whole() {
            Measure::Iops | Measure::Seeks => "operations a second",
            Measure::Throughput | Measure::CharRead | Measure::CharWrite | Measure::Rewrite => {
                "bytes a second"
            }
            Measure::WireBytesPerOp => "bytes",
            Measure::CoreBurstiness => "bytes of variance by bytes",
            Measure::CoreQueue => "frames",
            measure if measure.is_of_cpu() => "processor time",
            _ => "a latency",
        }
    }

    pub fn better(self) -> Better {
        match self.whole() {
            Measure::Iops | Measure::Throughput => Better::Higher,
            measure if measure.is_of_bonnie() => Better::Higher,
            Measure::WireBytesPerOp => Better::Cheaper,
            measure if measure.is_of_core() => Better::Cheaper,
            measure if measure.is_of_cpu() => Better::Cheaper,
            _ => Better::Lower,
        }
    }

    /// Whose it is, of those that are of reads or of writes alone.
    pub fn side(self) -> Option<Side> {
        match self {
            Measure::ReadIops
            | Measure::ReadThroughput
            | Measure::ReadLatencyMean
            | Measure::ReadP50
            | Measure::ReadP99 => Some(Side::Reads),
            Measure::WriteIops
            | Measure::WriteThroughput
            | Measure::WriteLatencyMean
            | Measure::WriteP50
            | Measure::WriteP99 => Some(Side::Writes),
            _ => None,
        }
    }

    /// Whether it is how long operations took.
    pub(super) fn is_latency(self) -> bool {
        self.unit() == "a latency"
    }

    /// The same of all operations: itself, unless it is of one side.
    pub fn whole(self) -> Measure {
        match self {
            Measure::ReadIops | Measure::WriteIops => Measure::Iops,
            Measure::ReadThroughput | Measure::WriteThroughput => Measure::Throughput,
            Measure::ReadLatencyMean | Measure::WriteLatencyMean => Measure::LatencyMean,
            Measure::ReadP50 | Measure::WriteP50 => Measure::P50,
            Measure::ReadP99 | Measure::WriteP99 => Measure::P99,
            whole => whole,
        }
    }

    /// Whether bonnie++ alone tells it.
    pub fn is_of_bonnie(self) -> bool {
        matches!(self, Measure::CharRead | Measure::CharWrite | Measure::Rewrite | Measure::Seeks)
    }

    /// Whether it is of processor time.
    pub fn is_of_cpu(self) -> bool {
        matches!(self, Measure::CpuPerOp | Measure::CpuNearPerOp | Measure::CpuFarPerOp)
    }

    /// Whether it is of one end alone, so that nothing else may be on that end's CPUs.
    pub fn is_of_an_end(self) -> bool {
        self.is_of_cpu() && self != Measure::CpuPerOp
    }

    /// Whether it is of a router's port to the core, which tells it.
    pub fn is_of_core(self) -> bool {
        matches!(self, Measure::CoreBurstiness | Measure::CoreQueue)
    }

    /// Whether it is of systems at the far end of a path alone.
    pub fn needs_far_end(self) -> bool {
        matches!(self, Measure::CpuFarPerOp | Measure::WireBytesPerOp) || self.is_of_core()
    }

    /// How many operations a trial must have for it: of a percentile, ten that are slower. The mean
    /// of fewer than ten would say as little.
    pub fn operations_min(self) -> u64 {
        // Of ten thousand operations, how many are slower.
        let slower = match self.whole() {
            Measure::P50 => 5_000,
            Measure::P75 => 2_500,
            Measure::P90 => 1_000,
            Measure::P95 => 500,
            Measure::P99 => 100,
            Measure::P99_9 => 10,
            Measure::P99_99 => 1,
            _ => 10_000,
        };
        100_000 / slower
    }

    /// What a trial came to that had so many operations, of all and of each side, by what it says of each
    /// measure; one for which there were too few is not told.
    pub fn of(
        operations: impl Fn(Option<Side>) -> u64,
        value: impl Fn(Measure) -> Option<f64>,
    ) -> Measures {
        let is_told = |measure: &Measure| operations(measure.side()) >= measure.operations_min();
        let told = Measure::ALL.into_iter().filter(is_told);
        told.filter_map(|measure| Some((measure, value(measure)?))).collect()
    }
}

/// As results say it: "p99 latency".
impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measure::Iops => f.write_str("IOPS"),
            Measure::Throughput => f.write_str("throughput"),
            Measure::LatencyMean => f.write_str("mean latency"),
            Measure::CpuPerOp => f.write_str("CPU per operation"),
            Measure::CpuNearPerOp => f.write_str("CPU of the near end per operation"),
            Measure::CpuFarPerOp => f.write_str("CPU of the far end per operation"),
            Measure::WireBytesPerOp => f.write_str("bytes on the wire per operation"),
            Measure::CoreBurstiness => f.write_str("burstiness at the core"),
            Measure::CoreQueue => f.write_str("peak queue at the core"),
            Measure::CharRead => f.write_str("throughput of reads by the byte"),
            Measure::CharWrite => f.write_str("throughput of writes by the byte"),
            Measure::Rewrite => f.write_str("throughput of rewriting"),
            Measure::Seeks => f.write_str("seeks a second"),
            side if side.side().is_some() => {
                let of = if side.side() == Some(Side::Reads) { "reads" } else { "writes" };
                write!(f, "{} of {of}", side.whole())
            }
            percentile => write!(f, "{} latency", percentile.word()),
        }
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// Of its word; an error says which there are.
impl FromStr for Measure {
    type Err = String;

    fn from_str(word: &str) -> Result<Measure, String> {
        let known = Measure::ALL.into_iter().find(|measure| measure.word() == word);
        known.ok_or_else(|| {
            let words = Measure::ALL.map(Measure::word).join(", ");
            format!("expected a measure, one of {words}, seen {word:?}")
        })
    }
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Measure, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_ten_operations_beyond_it() {
        assert_eq!(Measure::P50.operations_min(), 20);
        assert_eq!(Measure::P99.operations_min(), 1_000);
        assert_eq!(Measure::P99_99.operations_min(), 100_000);
        assert_eq!(Measure::Iops.operations_min(), 10);
    }

    #[test]
    fn what_is_of_one_side_is_as_what_is_of_all() {
        for measure in Measure::ALL {
            let whole = measure.whole();
            assert_eq!(measure.side().is_some(), measure != whole, "{measure}");
            assert_eq!(measure.better(), whole.better(), "{measure}");
            assert!(measure.word().ends_with(whole.word()), "{measure}");
        }
        assert_eq!(Measure::ReadIops.to_string(), "IOPS of reads");
        assert_eq!(Measure::WriteP99.to_string(), "p99 latency of writes");
        assert_eq!(Measure::WriteLatencyMean.to_string(), "mean latency of writes");
    }

    #[test]
    fn every_measure_is_read_as_it_is_written() {
        let all: Measures = Measure::ALL.into_iter().zip((1..).map(f64::from)).collect();
        let json = serde_json::to_string(&all).expect("words and numbers");
        assert_eq!(serde_json::from_str::<Measures>(&json).expect("what was written"), all);
        let error = serde_json::from_str::<Measure>("\"p42\"").unwrap_err().to_string();
        assert!(
            error.contains("one of iops, throughput, ") && error.contains("seeks, seen \"p42\""),
            "{error}"
        );
    }

    #[test]
    fn what_was_counted_too_seldom_is_not_told() {
        let counted = |side| if side == Some(Side::Writes) { 250 } else { 999 };
        let measures =
            Measure::of(counted, |measure| (measure != Measure::CpuPerOp).then_some(1.0));
        assert!(measures.contains_key(&Measure::WriteP50) && !measures.contains_key(&Measure::P99));
        let most =
            Measure::of(|side| if side == Some(Side::Writes) { 999 } else { 1_000 }, |_| Some(1.0));
        assert!(most.contains_key(&Measure::ReadP99) && !most.contains_key(&Measure::WriteP99));
        assert!(measures.contains_key(&Measure::P95) && measures.contains_key(&Measure::Iops));
        assert!(
            !measures.contains_key(&Measure::P99) && !measures.contains_key(&Measure::CpuPerOp)
        );
    }
}
