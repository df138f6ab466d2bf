//! What results call cells and comparisons. A name says what it is of and nothing else, so that it
//! stays when the plan grows: "nvme over lan, 4KiB randread, depth 32".

use std::fmt;

use super::measure::Measure;
use super::model::{Arrivals, Cell, Experiment, Load, Pace, Path, System};
use super::words::Bytes;

/// "4KiB randread, depth 32, 4 jobs".
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Bytes(self.block_bytes.into()), self.pattern)?;
        match self.pace {
            Pace::Closed { depth } => write!(f, ", depth {depth}")?,
            Pace::Open { rate, arrivals: Arrivals::Fixed } => write!(f, ", {rate} a second")?,
            Pace::Open { rate, arrivals: Arrivals::Poisson } => {
                write!(f, ", {rate} a second (poisson)")?;
            }
        }
        if self.jobs > 1 {
            write!(f, ", {} jobs", self.jobs)?;
        }
        if let Some(size) = self.size {
            write!(f, ", within {}", Bytes(size))?;
        }
        if self.sync {
            f.write_str(", sync")?;
        }
        match self.fsync {
            Some(1) => f.write_str(", a flush after each write")?,
            Some(writes) => write!(f, ", a flush every {writes} writes")?,
            None => {}
        }
        if self.cache {
            f.write_str(", through the page cache")?;
        }
        match self.client_memory {
            Some(bytes) => write!(f, ", client memory {}", Bytes(bytes)),
            None => Ok(()),
        }
    }
}

/// "lan", and with offloads, which are another cell, "lan with offloads".
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.offloads { " with offloads" } else { "" })
    }
}

impl Experiment {
    /// "nvme over lan, 4KiB randread, depth 32".
    pub fn cell_name(&self, cell: &Cell) -> String {
        let over = over(cell.path.map(|path| &self.paths[path]));
        format!("{}{over}, {}", self.systems[cell.system].name, cell.load)
    }
}

/// Of a group: "over lan, 4KiB randread, depth 32".
pub(super) fn group_name(path: Option<&Path>, load: &Load) -> String {
    match path {
        Some(path) => format!("over {path}, {load}"),
        None => load.to_string(),
    }
}

/// "IOPS of nvme against iscsi over lan, 4KiB randread, depth 32".
pub(super) fn comparison_name(
    measure: Measure,
    subject: &System,
    reference: &System,
    path: Option<&Path>,
    load: &Load,
) -> String {
    let (subject, reference, over) = (&subject.name, &reference.name, over(path));
    format!("{measure} of {subject} against {reference}{over}, {load}")
}

fn over(path: Option<&Path>) -> String {
    path.map_or(String::new(), |path| format!(" over {path}"))
}
