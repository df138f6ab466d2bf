//! What results call cells and comparisons. A name says what it is of and nothing else, so that it
//! stays when the plan grows: "nvme over lan, 4KiB randread, depth 32".

use std::fmt;

use super::many::Files;
use super::measure::Measure;
use super::model::{Arrivals, Cell, Experiment, Load, Pace, Path, Softirqs, System};
use super::words::Bytes;

/// "4KiB randread, depth 32, 4 jobs".
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(files) = self.files {
            return self.fmt_files(files, f);
        }
        write!(f, "{} {}, {}", Bytes(self.block_bytes.into()), self.pattern, self.pace)?;
        if self.jobs > 1 {
            write!(f, ", {} jobs", self.jobs)?;
        }
        if let Some(size) = self.size {
            write!(f, ", within {}", Bytes(size))?;
        }
        if self.sync {
            f.write_str(", sync")?;
        }
        if let Some(writes) = self.fsync {
            write!(f, ", {}", flushes(writes))?;
        }
        if self.cache {
            f.write_str(", through the page cache")?;
        }
        if let Some(bytes) = self.client_memory {
            write!(f, ", client memory {}", Bytes(bytes))?;
        }
        if let Some(percent) = self.client_cpu {
            write!(f, ", {}", share(percent))?;
        }
        match self.disks {
            Some(disks) => write!(f, ", {}", stripe(disks)),
            None => Ok(()),
        }
    }
}

impl Load {
    /// "webserver, 100MiB of files, 8 jobs, client memory 64MiB".
    fn fmt_files(&self, files: Files, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(files.word())?;
        if let Some(size) = self.size {
            write!(f, ", {}", of_files(files, size))?;
        }
        if self.jobs > 1 {
            write!(f, ", {} jobs", self.jobs)?;
        }
        if let Some(bytes) = self.client_memory {
            write!(f, ", client memory {}", Bytes(bytes))?;
        }
        match self.client_cpu {
            Some(percent) => write!(f, ", {}", share(percent)),
            None => Ok(()),
        }
    }
}

/// "depth 32", "5000 a second (poisson)".
impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Closed { depth } => write!(f, "depth {depth}"),
            Pace::Open { rate, arrivals: Arrivals::Fixed } => write!(f, "{rate} a second"),
            Pace::Open { rate, arrivals: Arrivals::Poisson } => {
                write!(f, "{rate} a second (poisson)")
            }
        }
    }
}

/// "lan", and with what makes another cell of it "lan with offloads and softirqs apart".
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let softirqs = self.softirqs.map(|softirqs| match softirqs {
            Softirqs::WithClient => "softirqs on the client's CPU",
            Softirqs::Apart => "softirqs apart",
        });
        let with: Vec<&str> =
            self.offloads.then_some("offloads").into_iter().chain(softirqs).collect();
        match with.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{} with {}", self.name, with.join(" and ")),
        }
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
    [subject, reference]: &[String; 2],
    path: Option<&Path>,
    load: &Load,
) -> String {
    let over = over(path);
    format!("{measure} of {subject} against {reference}{over}, {load}")
}

/// Of a system in a group whose load is `usual`: "aoe", and with what is changed of it "aoe (over jumbo, past
/// the page cache)".
pub(super) fn member_name(
    system: &System,
    path: Option<&Path>,
    usual: &Load,
    load: &Load,
    by: Option<Measure>,
) -> String {
    let over = path.map(|path| format!("over {path}"));
    let by = by.map(|measure| measure.to_string());
    let changes: Vec<String> = over.into_iter().chain(changes(usual, load)).chain(by).collect();
    match changes.as_slice() {
        [] => system.name.clone(),
        changes => format!("{} ({})", system.name, changes.join(", ")),
    }
}

/// What of a load is not as usual, in words.
fn changes(usual: &Load, load: &Load) -> Vec<String> {
    let Load {
        block_bytes,
        pattern,
        pace,
        jobs,
        size,
        sync,
        fsync,
        cache,
        client_memory,
        client_cpu,
        disks,
        files,
    } = *load;
    let size_of = |bytes: u64| Bytes(bytes).to_string();
    let all = [
        (block_bytes != usual.block_bytes).then(|| size_of(block_bytes.into())),
        (pattern != usual.pattern).then(|| pattern.to_string()),
        (pace != usual.pace).then(|| pace.to_string()),
        (jobs != usual.jobs)
            .then(|| if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") }),
        (size != usual.size).then(|| {
            let within = |size: u64| match files {
                Some(files) => of_files(files, size),
                None => format!("within {}", size_of(size)),
            };
            size.map_or("all of it".to_owned(), within)
        }),
        (sync != usual.sync).then(|| if sync { "sync" } else { "not sync" }.to_owned()),
        (fsync != usual.fsync).then(|| fsync.map_or("without flushes".to_owned(), flushes)),
        (cache != usual.cache)
            .then(|| format!("{} the page cache", if cache { "through" } else { "past" })),
        (client_memory != usual.client_memory).then(|| match client_memory {
            Some(bytes) => format!("client memory {}", size_of(bytes)),
            None => "as much client memory as there is".to_owned(),
        }),
        (client_cpu != usual.client_cpu)
            .then(|| client_cpu.map_or("all of the client's CPUs".to_owned(), share)),
        (disks != usual.disks).then(|| disks.map_or("its own disks".to_owned(), stripe)),
    ];
    all.into_iter().flatten().collect()
}

/// "100MiB of files", and of a program that has one alone "a file of 100MiB".
fn of_files(files: Files, size: u64) -> String {
    let size = Bytes(size);
    match files {
        Files::Ours(_) | Files::Postmark => format!("{size} of files"),
        Files::Bonnie => format!("a file of {size}"),
        Files::Pgbench => format!("{size} of tables"),
        Files::MergeSort => format!("{size} to sort"),
    }
}

fn flushes(writes: u32) -> String {
    match writes {
        1 => "a flush after each write".to_owned(),
        writes => format!("a flush every {writes} writes"),
    }
}

fn share(percent: u8) -> String {
    format!("client with {percent}% of a CPU")
}

fn stripe(disks: u32) -> String {
    if disks == 1 { "1 disk".to_owned() } else { format!("{disks} disks") }
}

fn over(path: Option<&Path>) -> String {
    path.map_or(String::new(), |path| format!(" over {path}"))
}
