//! A file set: how many files a personality has in so many bytes, how long each is, and where it lies.
//!
//! In: a personality, bytes, a seed. Out: the same set each time. Lengths are filebench's: a gamma distribution with
//! shape 1.5 around a mean, or, of a database, all the same. Files are numbered from 0; folders are a tree with so many
//! entries each, so that a file's path follows from its number. Of those whose files come and go four of five are
//! there at first. Units: bytes. Errors: none; a set has one file at least.

use std::f64::consts::TAU;
use std::fmt::Write as _;

use block::Random;

use super::Personality;

/// Data files of a database, and its log.
pub(super) const OLTP_FILES: u64 = 11;
/// Bytes of one write to the log of a database.
pub(super) const OLTP_LOG_WRITE: u64 = 256 << 10;
/// Of a set whose files come and go, how many of a hundred are there at first.
const THERE_PERCENT: u64 = 80;

/// How long a file is on average; of a database it is not by that that there are so many.
pub(super) fn bytes_mean(personality: Personality) -> u64 {
    match personality {
        Personality::Fileserver => 128 << 10,
        _ => 16 << 10,
    }
}

/// Which files there are.
#[derive(Clone, Debug)]
pub struct FileSet {
    personality: Personality,
    seed: u64,
    /// How long each is when it is made.
    lengths: Vec<u64>,
    /// How many of them are there at first: those with the lowest numbers.
    there: u32,
    /// The longest that a log becomes.
    log_max: u64,
}

impl FileSet {
    /// Of so many bytes, as near as its lengths allow.
    pub fn new(personality: Personality, bytes: u64, seed: u64) -> FileSet {
        let mut random = Random::new(seed);
        let lengths: Vec<u64> = match personality {
            Personality::Oltp => {
                let each = bytes / OLTP_FILES / OLTP_LOG_WRITE * OLTP_LOG_WRITE;
                vec![each.max(OLTP_LOG_WRITE); OLTP_FILES as usize]
            }
            _ => {
                let mean = bytes_mean(personality);
                let count = (bytes / mean).clamp(1, u64::from(u32::MAX));
                (0..count).map(|_| gamma(&mut random, mean)).collect()
            }
        };
        let count = lengths.len() as u64;
        let there = match personality {
            Personality::Webserver | Personality::Oltp => count,
            Personality::Fileserver | Personality::Varmail => count * THERE_PERCENT / 100,
        };
        let log_max = bytes.max(LOG_MIN);
        FileSet { personality, seed, lengths, there: there.max(1) as u32, log_max }
    }

    pub fn personality(&self) -> Personality {
        self.personality
    }

    /// What contents follow from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many files there may be, a log of a web server apart.
    pub fn count(&self) -> u32 {
        self.lengths.len() as u32
    }

    /// How many are there at first.
    pub fn there(&self) -> u32 {
        self.there
    }

    /// How long a file is when it is made.
    pub fn length(&self, file: u32) -> u64 {
        self.lengths[file as usize]
    }

    /// The longest that a log becomes before it begins anew.
    pub fn log_max(&self) -> u64 {
        self.log_max
    }

    /// Where a file lies, from the set's folder on: `3/17/00000345`.
    pub fn path(&self, file: u32) -> String {
        let width = match self.personality {
            Personality::Webserver | Personality::Fileserver => WIDTH,
            Personality::Varmail | Personality::Oltp => return format!("{file:08}"),
        };
        let mut path = String::new();
        let mut folders = Vec::new();
        let mut folder = file / width;
        while folder > 0 {
            folders.push(folder % width);
            folder /= width;
        }
        for folder in folders.iter().rev() {
            let _ = write!(path, "{folder}/");
        }
        let _ = write!(path, "{file:08}");
        path
    }

    /// Bytes of a disk that a set of so many takes: lengths that are rounded up to blocks, folders, and a log.
    pub fn room(personality: Personality, bytes: u64) -> u64 {
        let files = bytes / 3 * 4;
        match personality {
            Personality::Webserver => files + bytes.max(LOG_MIN),
            _ => files,
        }
    }

    /// Where a web server's log lies.
    pub fn log_path(&self) -> &'static str {
        "log"
    }

    /// Whether there is such a log.
    pub fn has_log(&self) -> bool {
        self.personality == Personality::Webserver
    }
}

/// Entries of a folder.
const WIDTH: u32 = 20;
/// A log has as many bytes as all files together, of which a kernel writes some behind, and no fewer than these.
const LOG_MIN: u64 = 256 << 10;

/// A length of a gamma distribution of shape 1.5 with this mean, one byte at least. Shape 1.5 is shape 1, an
/// exponential, and shape 0.5, half the square of a normal: by Box and Muller -ln(u) cos^2 of an angle.
fn gamma(random: &mut Random, mean: u64) -> u64 {
    // In (0, 1]: of 0 there is no logarithm.
    let mut unit = || ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let cosine = (TAU * unit()).cos();
    let drawn = -unit().ln() - unit().ln() * cosine * cosine;
    let bytes = drawn / 1.5 * mean as f64;
    (bytes.round() as u64).max(1)
}
