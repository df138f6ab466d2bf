//! A control group with a limit of memory, of processor time, or of both, for one program at a time.
//!
//! In: a prefix and limits. The group is made by cgroup v2 where its controllers are there, below
//! the nearest group above this process that hands them on, else by v1, below the groups of this process;
//! where they are mounted is read from `/proc/self/mountinfo`, which group is ours from
//! `/proc/self/cgroup` (cgroups(7)). It is called as everything of ours, by our process's number, and
//! is removed with its value; what was left by a killed process goes with [`remove_leftovers`]. There is
//! no swap beyond the limit where the kernel can say so. A share of processor time is given a millisecond at a
//! time, the least that the kernel takes. Units: bytes, percent of a CPU. Errors: a controller that cannot be had
//! here, or no right to make groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::mounts::Mounts;
use crate::namespaces::{is_alive, own_name, owner};
use crate::process::LOOK;

/// How long the last program of a group may take to be gone.
const GOING: Duration = Duration::from_secs(5);

/// What a program may have; as much as there is of what is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, its page cache among them.
    pub memory: Option<u64>,
    /// Percent of one CPU's time, from 20 to 100.
    pub cpu: Option<u8>,
}

/// The limits, with their controllers.
const MEMORY: &str = "memory";
const CPU: &str = "cpu";
/// How long a program runs at a time that has a share of a CPU, in microseconds.
const CPU_QUOTA: u64 = 1000;

/// The control group, which is removed with its value.
#[derive(Debug)]
pub struct Group {
    /// Its folders: one of v2, and of v1 one for each controller.
    paths: Vec<PathBuf>,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Where groups with a controller can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Above {
    /// The group in which ours are made.
    folder: PathBuf,
    /// The root of its hierarchy, as far as it is seen here.
    root: PathBuf,
    version: Version,
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + GOING;
        for path in &self.paths {
            // What ran there has been killed, and may not be gone yet.
            while fs::remove_dir(path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
                && Instant::now() < end
            {
                kill(path);
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl Group {
    /// Makes one whose programs have so much together.
    pub fn make(prefix: &str, limits: Limits) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut group = Self { paths: Vec::new(), version: Version::V2 };
        let all = [(MEMORY, limits.memory), (CPU, limits.cpu.map(u64::from))];
        for (controller, limit) in all {
            let Some(limit) = limit else { continue };
            let above = Above::find(controller)?;
            let path = above.folder.join(format!("{}-{number}", own_name(prefix)));
            let failed = |what: &str| {
                let doing = format!("{what} {}", path.display());
                move |source| Error::System { doing, source }
            };
            // Controllers may share a hierarchy.
            if !group.paths.contains(&path) {
                fs::create_dir(&path).map_err(failed("make the control group"))?;
                group.paths.push(path.clone());
            }
            group.version = above.version;
            let limited = match controller {
                CPU => limit_cpu(&path, above.version, limit),
                _ => limit_memory(&path, above.version, limit),
            };
            limited.map_err(failed("set a limit of the control group"))?;
        }
        Ok(group)
    }

    /// What a shell does before it becomes a program that is to run inside.
    pub(crate) fn entry(&self) -> Vec<String> {
        let files = self.paths.iter().map(|path| path.join("cgroup.procs").display().to_string());
        let enter = "echo $$ > \"$1\" && shift && ".repeat(self.paths.len());
        let script = format!("{enter}exec \"$@\"");
        ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
            .into_iter()
            .chain(files)
            .collect()
    }

    /// How many programs the kernel killed there, since they needed more than the limit.
    pub fn killed(&self) -> u64 {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let killed = |path: &PathBuf| {
            let text = fs::read_to_string(path.join(file)).unwrap_or_default();
            let found = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            found.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
        };
        self.paths.iter().map(killed).sum()
    }

    /// The numbers of the processes inside.
    pub fn processes(&self) -> Vec<u32> {
        self.paths.first().map_or(Vec::new(), |path| processes(path))
    }
}

fn limit_memory(path: &Path, version: Version, bytes: u64) -> io::Result<()> {
    let (limit, swap) = match version {
        Version::V1 => ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", bytes)),
        Version::V2 => ("memory.max", ("memory.swap.max", 0)),
    };
    fs::write(path.join(limit), bytes.to_string())?;
    // A kernel without accounting of swap has no such file.
    let _ = fs::write(path.join(swap.0), swap.1.to_string());
    Ok(())
}

fn limit_cpu(path: &Path, version: Version, percent: u64) -> io::Result<()> {
    let period = CPU_QUOTA * 100 / percent.clamp(20, 100);
    match version {
        Version::V1 => {
            fs::write(path.join("cpu.cfs_period_us"), period.to_string())?;
            fs::write(path.join("cpu.cfs_quota_us"), CPU_QUOTA.to_string())
        }
        Version::V2 => fs::write(path.join("cpu.max"), format!("{CPU_QUOTA} {period}")),
    }
}

/// Whether groups with such limits can be made here; if not, why. Leftovers of the prefix are
/// removed first.
pub fn allowed(prefix: &str, limits: Limits) -> Result<()> {
    remove_leftovers(prefix);
    Group::make(prefix, limits).map(drop)
}

/// Removes groups of processes of this prefix that have ended without doing so, wherever they are.
pub fn remove_leftovers(prefix: &str) {
    let all: Vec<Above> =
        [MEMORY, CPU].into_iter().filter_map(|name| Above::find(name).ok()).collect();
    let Some(version) = all.first().map(|above| above.version) else { return };
    let mut folders: Vec<PathBuf> = all.into_iter().map(|above| above.root).collect();
    folders.dedup();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| owner(prefix, name));
            match pid {
                Some(pid) if !is_alive(pid) => {
                    drop(Group { paths: vec![entry.path()], version });
                }
                _ => folders.push(entry.path()),
            }
        }
    }
}

impl Above {
    fn find(controller: &str) -> Result<Self> {
        let file = "/proc/self/cgroup";
        let own = fs::read_to_string(file)
            .map_err(|source| Error::System { doing: format!("read {file}"), source })?;
        let mounts = Mounts::now()?;
        let of_v1 = || Self::of_v1(&mounts, &own, controller);
        Self::of_v2(&mounts, &own, controller).or_else(of_v1).ok_or_else(|| Error::Unexpected {
            what: format!("control groups with the {controller} controller"),
            expected: "one of cgroup v2 or v1 that is handed on to groups of this process's",
            seen: "none in /proc/self/mountinfo and /proc/self/cgroup".to_owned(),
        })
    }

    /// The nearest group above this process's own, or that itself, whose groups have the controller.
    fn of_v2(mounts: &Mounts, own: &str, controller: &str) -> Option<Self> {
        let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let mount = mounts.of_kind("cgroup2").next()?;
        let own = mount.point.join(below(path, &mount.root)?);
        let has = |folder: &&Path| {
            let file = fs::read_to_string(folder.join("cgroup.subtree_control"));
            file.is_ok_and(|names| names.split_whitespace().any(|name| name == controller))
        };
        let inside = own.ancestors().take_while(|folder| folder.starts_with(&mount.point));
        let folder = inside.into_iter().find(has)?.to_owned();
        Some(Self { folder, root: mount.point.clone(), version: Version::V2 })
    }

    fn of_v1(mounts: &Mounts, own: &str, controller: &str) -> Option<Self> {
        let is_there = |names: &str| names.split(',').any(|name| name == controller);
        let path = own.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            is_there(names).then_some(path)
        })?;
        let mount = mounts.of_kind("cgroup").find(|mount| is_there(&mount.options))?;
        let folder = mount.point.join(below(path, &mount.root)?);
        let root = mount.point.clone();
        folder.is_dir().then_some(Self { folder, root, version: Version::V1 })
    }
}

/// A group below what of its hierarchy is mounted.
fn below(path: &str, root: &Path) -> Option<PathBuf> {
    let inside = Path::new(path).strip_prefix(root).ok()?;
    Some(inside.to_owned())
}

fn processes(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Kills whatever runs in a group.
fn kill(group: &Path) {
    for pid in processes(group) {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::load;
    use crate::process::command_in;

    const PREFIX: &str = "plateway-testbed-group-";

    fn memory(bytes: u64) -> Limits {
        Limits { memory: Some(bytes), cpu: None }
    }

    /// A group; none where this machine does not let us, which is told.
    fn group(limits: Limits) -> Option<Group> {
        match Group::make(PREFIX, limits) {
            Ok(group) => Some(group),
            Err(why) => {
                testkit::skipped(why);
                None
            }
        }
    }

    #[test]
    fn a_program_runs_inside_and_the_group_goes_with_its_value() {
        let Some(group) = group(memory(64 << 20)) else { return };
        let path = group.paths[0].clone();
        let mut command = command_in(Some(&group), None, "0", Path::new("sh"));
        command.args(["-c", "echo $$; exec sleep 600"]);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while group.processes() != [child.id()] {
            assert!(Instant::now() < end, "{:?}", group.processes());
            std::thread::sleep(LOOK);
        }
        drop(group);
        assert!(!path.exists());
        assert!(!child.wait().unwrap().success(), "it was left running");
    }

    #[test]
    fn who_needs_more_is_killed_and_counted_and_who_does_not_is_not() {
        for (bytes, kills) in [(256 << 20, false), (16 << 20, true)] {
            let Some(group) = group(memory(bytes)) else { return };
            let mut command = command_in(Some(&group), None, "0", Path::new("sh"));
            // A shell that holds 64 MB in a word.
            command.args(["-c", "x=$(head -c 64000000 /dev/zero | tr '\\0' x); echo ${#x}"]);
            let ended = load::watch(command, Duration::from_secs(60), |_, _| {
                std::ops::ControlFlow::Continue(())
            });
            let ended = ended.unwrap();
            assert_eq!((group.killed() > 0, ended.printed == "64000000\n"), (kills, !kills));
        }
    }

    #[test]
    fn who_has_a_share_of_a_cpu_gets_no_more_and_its_memory_is_bounded_beside_that() {
        let limits = Limits { memory: Some(64 << 20), cpu: Some(25) };
        let Some(group) = group(limits) else { return };
        let mut command = command_in(Some(&group), None, "0", Path::new("sh"));
        let mut child = command.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let ran = || crate::cpu::run_time(child.id());
        while group.processes() != [child.id()] {
            assert!(Instant::now() < end, "{:?}", group.processes());
            std::thread::sleep(LOOK);
        }
        let (before, at) = (ran(), Instant::now());
        std::thread::sleep(Duration::from_millis(400));
        let share = (ran() - before) as f64 / 1e9 / at.elapsed().as_secs_f64();
        // Others may take more of the CPU, and nothing gives it more.
        assert!(share > 0.0 && share < 0.4, "{share}");
        let inside = |name: &str| {
            let told = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
            let own = group.paths[0].file_name().unwrap().to_str().unwrap();
            let of =
                |line: &str| line.contains(own) && (line.starts_with("0::") || line.contains(name));
            assert!(told.lines().any(of), "{name}: {told}");
        };
        inside(MEMORY);
        inside(CPU);
        let paths = group.paths.clone();
        drop(group);
        child.wait().unwrap();
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_a_living_one_has_is_not() {
        let Some(group) = group(Limits { cpu: Some(50), ..memory(64 << 20) }) else { return };
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        // In each hierarchy.
        let name = format!("{PREFIX}{}-0", ended.id());
        let left: Vec<PathBuf> =
            group.paths.iter().map(|path| path.with_file_name(&name)).collect();
        left.iter().for_each(|path| fs::create_dir(path).unwrap());
        remove_leftovers(PREFIX);
        assert!(left.iter().all(|path| !path.exists()));
        assert!(group.paths.iter().all(|path| path.exists()));
    }

    /// A hierarchy of groups, mounted at a folder as this type with these options.
    fn hierarchy(kind: &str, options: &str) -> (tempfile::TempDir, Mounts) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("system/session/scope")).unwrap();
        let point = root.path().display();
        let line = format!("31 27 0:9 / {point} rw - {kind} none rw,{options}");
        (root, Mounts::read(&line))
    }

    #[test]
    fn of_v2_it_is_made_in_the_nearest_group_above_that_hands_the_controller_on() {
        let (root, mounts) = hierarchy("cgroup2", "nsdelegate");
        let own = "4:cpu:/elsewhere\n0::/system/session/scope\n";
        let at = |folder: &str| root.path().join(folder);
        let controls = |folder: &str, names: &str| {
            fs::write(at(folder).join("cgroup.subtree_control"), names).unwrap();
        };
        controls("system/session/scope", "");
        controls("system/session", "cpu pids");
        assert_eq!(Above::of_v2(&mounts, own, MEMORY), None);
        controls("", "cpu memory");
        let folder = || Above::of_v2(&mounts, own, MEMORY).unwrap().folder;
        assert_eq!(folder(), root.path());
        controls("system", "cpu memory pids");
        assert_eq!(folder(), at("system"));
        assert_eq!(Above::of_v2(&mounts, "4:memory:/\n", MEMORY), None, "we are in no group of v2");
    }

    #[test]
    fn of_v1_it_is_made_in_our_own_group_of_the_controller() {
        let own = "5:cpu,memory:/system/session\n4:pids:/\n0::/system\n";
        let (root, mounts) = hierarchy("cgroup", "cpu,memory");
        let above = Above::of_v1(&mounts, own, MEMORY).unwrap();
        assert_eq!(
            (above.folder, above.version),
            (root.path().join("system/session"), Version::V1)
        );
        assert_eq!(Above::of_v1(&mounts, "4:pids:/\n0::/system\n", MEMORY), None);
        let (_root, mounts) = hierarchy("cgroup", "pids");
        assert_eq!(Above::of_v1(&mounts, own, MEMORY), None);
    }

    #[test]
    fn a_group_is_below_what_is_mounted_of_its_hierarchy() {
        assert_eq!(below("/a/b", Path::new("/")), Some(PathBuf::from("a/b")));
        assert_eq!(below("/a/b", Path::new("/a")), Some(PathBuf::from("b")));
        assert_eq!(below("/a/b", Path::new("/c")), None);
    }
}
