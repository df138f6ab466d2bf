//! What the jobs of a file came to: each with its name, and all of them together.
//!
//! Fields that are called as those of [`super::Report`] mean the same; what each job has for itself is
//! missing in those of all. Units: as there.

use std::fmt;

use serde::Serialize;

use super::{Asked, Counted, CpuPerIo, Environment, Verify, checked, foot, is_good};
use crate::load::Looked;

/// The result of one `bench` of a job file.
#[derive(Clone, Debug, Serialize)]
pub struct JobsReport {
    /// What was measured, as a URI.
    pub disk: String,
    pub job_file: String,
    /// Clones of all jobs.
    pub jobs: u32,
    pub stages: u32,
    /// Threads that carried them.
    pub shards: u16,
    /// What marks the data.
    pub seed: u64,
    /// Of all jobs together.
    #[serde(flatten)]
    pub counted: Counted,
    pub by_job: Vec<JobReport>,
    /// Of a few reads, what they found.
    pub looked: Looked,
    pub cpu_us_per_io: CpuPerIo,
    /// Of one CPU, how much each thread of the bench used at most in a stage.
    pub bench_thread_busy: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    pub gave_up: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub environment: Environment,
}

/// A job of a file.
#[derive(Clone, Debug, Serialize)]
pub struct JobReport {
    pub name: String,
    /// From 0 on.
    pub stage: u32,
    pub pattern: String,
    /// Sizes of requests in fio's words.
    pub sizes: String,
    /// Where they are of one size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
    /// Where some blocks are hotter than others, the theta of Zipf's law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zipf: Option<f64>,
    pub queue_depth: u32,
    /// Its clones.
    pub jobs: u32,
    pub closed_or_open_loop: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub poisson: bool,
    pub sync: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<u32>,
    pub offset_bytes: u64,
    pub range_bytes: u64,
    #[serde(flatten)]
    pub counted: Counted,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
}

impl JobsReport {
    /// Whether the data were right and every request was answered as asked.
    pub fn is_good(&self) -> bool {
        is_good(&self.counted, self.gave_up, self.verify.as_ref())
    }
}

impl fmt::Display for JobsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {}", self.disk, self.job_file)?;
        for job in &self.by_job {
            write!(f, "\n{job}")?;
        }
        let seconds = self.counted.seconds;
        let (jobs, stages) = (self.jobs, self.stages);
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        write!(
            f,
            "\nall together: {jobs} job{} in {stages} stage{}",
            plural(jobs),
            plural(stages)
        )?;
        writeln!(f, ", {seconds:.1} s\n")?;
        self.counted.rates(f)?;
        self.counted.latencies(f)?;
        self.cpu_us_per_io.tell(f)?;
        checked(f, self.verify.as_ref())?;
        self.counted.failed(f)?;
        foot(f, &self.notes, &self.environment)
    }
}

impl fmt::Display for JobReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JobReport { name, pattern, sizes, jobs, queue_depth, .. } = self;
        write!(f, "{name}: {pattern}, {sizes}, ")?;
        if let Some(theta) = self.zipf {
            write!(f, "zipf {theta}, ")?;
        }
        let JobReport { rate, poisson, sync, fsync, .. } = *self;
        let asked = Asked { rate, poisson, sync, fsync, jobs: *jobs, depth: *queue_depth };
        asked.tell(f, self.counted.seconds)?;
        self.counted.rates(f)?;
        self.counted.latencies(f)?;
        checked(f, self.verify.as_ref())?;
        self.counted.failed(f)
    }
}
