//! Whose files a client works on in place of one: those of a workload of ours after filebench, or those of a program,
//! which makes its own.
//!
//! What a load of them says, and what it is judged by. Units: bytes.

use super::measure::Measure;
use crate::file_load::{FileSet, Personality};
use crate::programs::{bonnie, merge_sort, pgbench, postmark};

/// Whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// What filebench's personality of that name does, by this program.
    Ours(Personality),
    /// One file, by the real bonnie++.
    Bonnie,
    /// Many small ones, by the real PostMark.
    Postmark,
    /// Those of a PostgreSQL server, of which the real pgbench asks transactions.
    Pgbench,
    /// One that is sorted in less memory than it has bytes, by this program.
    MergeSort,
}

impl Files {
    /// Every one by its word, in the order of the documentation.
    pub const WORDS: &'static [(&'static str, Files)] = &[
        ("webserver", Files::Ours(Personality::Webserver)),
        ("fileserver", Files::Ours(Personality::Fileserver)),
        ("varmail", Files::Ours(Personality::Varmail)),
        ("oltp", Files::Ours(Personality::Oltp)),
        ("bonnie++", Files::Bonnie),
        ("postmark", Files::Postmark),
        ("pgbench", Files::Pgbench),
        ("merge-sort", Files::MergeSort),
    ];

    /// As a plan writes it.
    pub fn word(self) -> &'static str {
        let known = Files::WORDS.iter().find(|(_, one)| *one == self);
        known.expect("each has a word").0
    }

    /// The workload of ours, of one that is.
    pub fn personality(self) -> Option<Personality> {
        match self {
            Files::Ours(personality) => Some(personality),
            Files::Bonnie | Files::Postmark | Files::Pgbench | Files::MergeSort => None,
        }
    }

    /// Whether a program works on them that makes them itself.
    pub fn is_program(self) -> bool {
        self.personality().is_none()
    }

    /// Whether it is one program that runs from its beginning to its end, however long that takes.
    pub(super) fn runs_once(self) -> bool {
        self.is_program() && self != Files::Pgbench
    }

    /// Whether its clients work through the page cache.
    pub fn is_cached(self) -> bool {
        self.personality().is_none_or(Personality::is_cached)
    }

    /// Bytes of the fewest files on which so many threads can work.
    pub(super) fn bytes_min(self, threads: u32) -> u64 {
        match self {
            Files::Ours(personality) => personality.bytes_min(threads),
            Files::Bonnie => bonnie::UNIT_BYTES,
            Files::Postmark => postmark::BYTES_MIN,
            Files::Pgbench => pgbench::UNIT_BYTES,
            Files::MergeSort => merge_sort::BYTES_MIN,
        }
    }

    /// What its size is a multiple of.
    pub(super) fn unit(self) -> u64 {
        match self {
            Files::Ours(_) | Files::Postmark => 1,
            Files::Bonnie => bonnie::UNIT_BYTES,
            Files::Pgbench => pgbench::UNIT_BYTES,
            Files::MergeSort => merge_sort::UNIT_BYTES,
        }
    }

    /// Bytes that files of so many together take, with their folders and a log.
    pub(super) fn room(self, size: u64) -> u64 {
        match self {
            Files::Ours(personality) => FileSet::room(personality, size),
            Files::Bonnie => size + size / 16,
            // Blocks are of 4 KiB, and as many files come as go on average alone.
            Files::Postmark => size * 2,
            Files::Pgbench => pgbench::room(size),
            // Input, runs and output.
            Files::MergeSort => size * 3 + size / 16,
        }
    }

    /// Whether a trial can tell a measure.
    pub fn tells(self, measure: Measure) -> bool {
        let is_of_bonnie = measure.is_of_bonnie();
        let is_rate = matches!(measure, Measure::ReadThroughput | Measure::WriteThroughput);
        let is_cost = measure.is_of_cpu() || measure == Measure::WireBytesPerOp;
        match self {
            Files::Ours(_) => measure.side().is_none() && !is_of_bonnie,
            Files::Bonnie => is_of_bonnie || is_rate || is_cost,
            Files::Postmark => is_rate || is_cost || measure == Measure::Iops,
            Files::Pgbench => {
                measure.side().is_none() && !is_of_bonnie && measure != Measure::Throughput
            }
            Files::MergeSort => is_cost || measure == Measure::Throughput,
        }
    }

    /// Whether what a disk that does nothing does beside it is of the same kind.
    pub(super) fn has_null(self, measure: Measure) -> bool {
        !self.is_program() || (measure.side().is_none() && !measure.is_of_bonnie())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_of_ours_and_each_program_has_its_word() {
        for (word, files) in Files::WORDS {
            assert_eq!(files.word(), *word);
            assert_eq!(
                files.personality().map(Personality::word),
                (!files.is_program()).then_some(*word)
            );
        }
        let ours = Files::WORDS.iter().filter(|(_, files)| !files.is_program()).count();
        assert_eq!(ours, Personality::WORDS.len());
    }

    #[test]
    fn what_is_told_is_what_a_program_prints_or_what_it_cost() {
        let told =
            |files: Files| Measure::ALL.into_iter().filter(move |measure| files.tells(*measure));
        let words = |files| told(files).map(Measure::word).collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(Files::Postmark),
            "iops cpu-per-op cpu-near-per-op cpu-far-per-op wire-bytes-per-op read-throughput write-throughput"
        );
        assert_eq!(
            words(Files::Bonnie),
            "cpu-per-op cpu-near-per-op cpu-far-per-op wire-bytes-per-op read-throughput write-throughput char-read char-write rewrite seeks"
        );
        // Of a disk that does nothing our own engine tells the rest, not what a program prints.
        for files in [Files::Postmark, Files::Bonnie] {
            let beside: Vec<_> = told(files).filter(|one| files.has_null(*one)).collect();
            let is_ours = |one: &Measure| {
                *one == Measure::Iops || one.is_of_cpu() || *one == Measure::WireBytesPerOp
            };
            assert!(!beside.is_empty() && beside.iter().all(is_ours), "{beside:?}");
        }
        assert_eq!(
            words(Files::MergeSort),
            "throughput cpu-per-op cpu-near-per-op cpu-far-per-op wire-bytes-per-op"
        );
        assert!(words(Files::Pgbench).starts_with("iops latency-mean p50 "));
        assert!(Files::Ours(Personality::Varmail).tells(Measure::P99));
        assert!(!Files::Ours(Personality::Varmail).tells(Measure::Seeks));
    }
}
