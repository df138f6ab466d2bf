//! Network namespaces that end with us: when their value is dropped, when this process ends, and
//! also when it is killed.
//!
//! In: a prefix and the names of the ends. A namespace is called by the prefix, our process's
//! number, a number and the end, as in `plateway-bench-4711-0-target`. Who removes them is a shell
//! in a session of its own, the sweeper, which waits for the end of a pipe from us: so they go even
//! if this process is killed in a way that it cannot see, and with them whatever still runs in them,
//! such as what went into the background. Should the sweeper be killed as well, what
//! is left goes when the next one begins ([`remove_leftovers`]): what has the prefix and the number
//! of a process that is no more, and nothing else. Files in shared memory that are called so
//! are leftovers, too, and so is a temporary [`Folder`] to the next one. Errors: no right to make namespaces, or no `ip`.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu::namespace_number;
use crate::error::{Error, Result};
use crate::interface::Interface;
use crate::mounts;
use crate::network::{Cable, End, Network};
use crate::tool::{self, ip};

/// Where `ip netns` keeps a file for each.
const FOLDER: &str = "/run/netns";
/// Where files live in memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// Some namespaces, which are removed with the value or with this process.
#[derive(Debug)]
pub struct Namespaces {
    ends: Vec<String>,
    /// In the order of the ends.
    made: Vec<Namespace>,
    /// Waits for the end of its standard input, and removes them.
    sweeper: Child,
}

impl Namespaces {
    /// Makes one for each of these ends. The prefix says whose they are, and ends with `-`.
    pub fn make(prefix: &str, ends: &[&str]) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        assert!(prefix.ends_with('-'), "{prefix:?} does not end with '-'");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let own = own_name(prefix);
        let name = |end: &&str| Namespace { name: format!("{own}-{number}-{end}") };
        let made: Vec<Namespace> = ends.iter().map(name).collect();
        // A session of its own: what is typed at the terminal ends us and not this.
        let script = "trap '' INT TERM HUP; cat > /dev/null; for name; do \
                      kill -KILL $(ip netns pids \"$name\"); ip netns delete \"$name\"; done";
        let mut sweeper = Command::new("setsid");
        sweeper.args(["sh", "-c", script, "sh"]).args(made.iter().map(Namespace::name));
        sweeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let sweeper = sweeper.spawn().map_err(|error| tool::not_started("setsid", error))?;
        let ends = ends.iter().map(|end| (*end).to_owned()).collect();
        let namespaces = Self { ends, made, sweeper };
        for namespace in &namespaces.made {
            ip(&["netns", "add", namespace.name()])?;
        }
        Ok(namespaces)
    }

    /// The ends that there are.
    pub fn ends(&self) -> &[String] {
        &self.ends
    }

    /// The namespace of an end.
    pub fn at(&self, end: &str) -> &Namespace {
        let at = self.ends.iter().position(|other| other == end);
        &self.made[at.unwrap_or_else(|| panic!("{end} is no end; there are {:?}", self.ends))]
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // The interfaces go with their namespaces.
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

/// One of them, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// The one in which this process is, which nobody made here.
    pub fn here() -> Self {
        Self { name: String::new() }
    }

    fn is_here(&self) -> bool {
        self.name.is_empty()
    }

    /// As `ip netns` lists it; empty of the one in which this process is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number, by which a process is known to be in it; `None` once it is removed.
    pub fn number(&self) -> Option<u64> {
        namespace_number(&Path::new(FOLDER).join(&self.name))
    }

    /// A program inside, on any CPU; it may outlive us.
    pub fn tool(&self, program: &str) -> Command {
        if self.is_here() {
            return Command::new(program);
        }
        let way = self.way();
        let mut command = Command::new(&way[0]);
        command.args(&way[1..]).arg(program);
        command
    }

    /// Runs a program inside to its end; what it wrote to standard output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let mut command = self.tool(program);
        command.args(args);
        tool::finish(command)
    }

    /// `ip` with these arguments, on what is inside.
    pub fn ip(&self, args: &[&str]) -> Result<()> {
        ip(&[&["-netns", &self.name], args].concat())
    }

    /// An interface inside, of which nothing is asked yet.
    pub fn interface<'a>(&'a self, name: &'a str) -> Interface<'a> {
        Interface::new(self, name)
    }

    /// What comes before a program that is to run inside.
    pub(crate) fn way(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec()
    }

    /// The same with the mounts of this process, and so with its `/sys`, which shows this process's
    /// interfaces.
    pub(crate) fn way_with_mounts(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--net={FOLDER}/{}", self.name)]
    }
}

/// Whether namespaces and interfaces may be made here; if not, why. Leftovers of the prefix are
/// removed first.
pub fn allowed(prefix: &str) -> Result<()> {
    remove_leftovers(prefix);
    let network = Network::make(prefix, &["a", "b"])?;
    let ends = [("a", "left"), ("b", "right")];
    let ends = ends.map(|(node, interface)| End { node, interface, mac: None });
    network.cable(ends, Cable::of(1500))?;
    network.at("a").interface("left").steer(0)?;
    network.at("b").run("true", &[]).map(|_| ())
}

/// How everything of this process is called; a file in shared memory may be called so as it is.
pub fn own_name(prefix: &str) -> String {
    format!("{prefix}{}", std::process::id())
}

/// Removes what processes left behind that have ended without doing so: namespaces with what runs in
/// them, and files in shared memory.
pub fn remove_leftovers(prefix: &str) {
    // Without `ip` there are none that we made.
    let namespaces = tool::run("ip", &["netns", "list"]).unwrap_or_default();
    for name in leftovers(prefix, &namespaces, is_alive) {
        // Somebody else may be doing the same: what is gone already is as good.
        let left = tool::run("ip", &["netns", "pids", &name]).unwrap_or_default();
        let script = "kill -KILL \"$@\"";
        let pids: Vec<&str> = left.split_whitespace().collect();
        let _ = tool::run("sh", &[&["-c", script, "sh"], &pids[..]].concat());
        let _ = ip(&["netns", "delete", &name]);
    }
    remove_leftovers_in(Path::new(SHARED_MEMORY), prefix);
}

/// The same of the files and folders in a folder.
fn remove_leftovers_in(folder: &Path, prefix: &str) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    for name in leftovers(prefix, &names.join("\n"), is_alive) {
        let left = folder.join(name);
        // One of the two it is, or another user's, who removes it.
        let _ = fs::remove_file(&left).or_else(|_| remove_folder(&left));
    }
}

/// Removes a folder, but nothing of what is mounted below it, which is unmounted.
fn remove_folder(folder: &Path) -> std::io::Result<()> {
    mounts::unmount_below(folder).map_err(std::io::Error::other)?;
    fs::remove_dir_all(folder)
}

/// Whether there is such a process.
pub(crate) fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// A folder of this process's for temporary files, which goes with the value; that of a process which
/// was killed goes when the next one is made.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it, for its owner alone; there is one of each prefix.
    pub fn make(prefix: &str) -> Result<Self> {
        remove_leftovers_in(&std::env::temp_dir(), prefix);
        let path = std::env::temp_dir().join(own_name(prefix));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|source| Error::System { doing: format!("make {}", path.display()), source })?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = remove_folder(&self.0);
    }
}

/// Those of our names among lines that begin with one (as in `ip netns list`) whose process is no
/// longer alive.
fn leftovers(prefix: &str, list: &str, alive: impl Fn(u32) -> bool) -> Vec<String> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let is_left = |name: &&str| owner(prefix, name).is_some_and(|pid| !alive(pid));
    names.filter(is_left).map(str::to_owned).collect()
}

/// The number of the process whose a name is, if it is one of ours.
pub(crate) fn owner(prefix: &str, name: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::tests::PREFIX;

    /// Set for a process that is to be killed.
    const VICTIM: &str = "TESTBED_VICTIM";
    /// Only guards against hanging.
    const HANG: Duration = Duration::from_secs(60);

    fn exists(name: &str) -> bool {
        tool::run("ip", &["netns", "list"]).unwrap().split_whitespace().any(|word| word == name)
    }

    #[test]
    fn only_what_ended_processes_left_is_a_leftover() {
        let list = "plateway-bench-12-0-target (id: 3)\nplateway-bench-13-0-load\nother\nplateway-bench-x-1\nplateway-lab-12-0-a\n";
        let found = leftovers("plateway-bench-", list, |pid| pid == 13);
        assert_eq!(found, ["plateway-bench-12-0-target"]);
        assert_eq!(leftovers("plateway-", list, |_| false), Vec::<String>::new());
    }

    #[test]
    fn a_namespace_goes_with_its_value() {
        let Some(network) = crate::tests::pair() else { return };
        let name = network.at("l").name().to_owned();
        assert!(exists(&name));
        drop(network);
        assert!(!exists(&name));
    }

    #[test]
    fn what_went_into_the_background_goes_with_its_namespace() {
        let Some(network) = crate::tests::pair() else { return };
        let script = "sleep 600 > /dev/null 2>&1 & echo $!";
        let pid = network.at("l").run("sh", &["-c", script]).unwrap();
        let process = Path::new("/proc").join(pid.trim());
        assert!(process.exists());
        drop(network);
        let end = Instant::now() + HANG;
        // Whoever inherited it has to take note of its end.
        let runs =
            || fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() {
            assert!(Instant::now() < end, "{} still runs", process.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_folder_goes_with_its_value_and_one_of_a_dead_process_with_the_next() {
        let prefix = "plateway-testbed-folder-";
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let left = std::env::temp_dir().join(format!("{prefix}{}", ended.id()));
        fs::create_dir_all(left.join("inside")).unwrap();
        let folder = Folder::make(prefix).unwrap();
        assert!(!left.exists() && folder.path().is_dir());
        let again = Folder::make(prefix).unwrap_err().to_string();
        assert!(again.contains(&folder.path().display().to_string()), "{again}");
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_a_living_one_has_is_not() {
        let Some(network) = crate::tests::pair() else { return };
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let left = format!("{PREFIX}{}-0-left", ended.id());
        let file = Path::new(SHARED_MEMORY).join(format!("{PREFIX}{}", ended.id()));
        ip(&["netns", "add", &left]).unwrap();
        let has_file = fs::write(&file, "left").is_ok();
        remove_leftovers(PREFIX);
        assert!(!exists(&left) && exists(network.at("r").name()));
        assert!(!has_file || !file.exists());
    }

    #[test]
    fn a_namespace_goes_when_its_process_is_killed() {
        if std::env::var_os(VICTIM).is_some() {
            let namespaces = Namespaces::make(PREFIX, &["killed"]).unwrap();
            println!("\nname={}", namespaces.at("killed").name());
            std::thread::sleep(HANG);
            return;
        }
        if let Err(why) = allowed(PREFIX) {
            return testkit::skipped(why);
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let this = "namespaces::tests::a_namespace_goes_when_its_process_is_killed";
        command.args([this, "--exact", "--nocapture"]).env(VICTIM, "1").stdout(Stdio::piped());
        let mut victim = command.spawn().unwrap();
        let said = BufReader::new(victim.stdout.take().unwrap());
        let mut lines = said.lines().map(|line| line.unwrap());
        let name = lines.find_map(|line| Some(line.strip_prefix("name=")?.to_owned())).unwrap();
        assert!(exists(&name));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let end = Instant::now() + HANG;
        while exists(&name) {
            assert!(Instant::now() < end, "{name} is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
