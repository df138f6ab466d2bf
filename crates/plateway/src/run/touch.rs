//! Disks in memory that are taken whole when they are opened (`ram:SIZE?touch=1`): whether the
//! machine has the memory, and the touching, which goes on before anybody sees the disk.
//!
//! What there is: `MemAvailable`, or less where a control group of ours, or one around it, has less
//! left. Where neither can be read nothing is refused. Units: bytes.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use block::ByteCount;
use reactor::disk::Disk;

use super::error::RunError;
use super::stop;
use crate::config::disk::DiskConfig;
use crate::log::Event;
use crate::service;

/// After so much touching people are told how far it is, and again after each time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Refuses a disk for which there is not the memory, beside what other disks are going to touch.
pub(super) fn check_room(config: &DiskConfig, bytes: u64, others: u64) -> Result<(), RunError> {
    available().map_or(Ok(()), |free| check(config, bytes, others, free))
}

fn check(config: &DiskConfig, bytes: u64, others: u64, free: u64) -> Result<(), RunError> {
    if bytes <= free.saturating_sub(others) {
        return Ok(());
    }
    let beside = match others {
        0 => String::new(),
        others => format!(", of which disks before it touch {}", ByteCount(others)),
    };
    let (name, bytes, free) = (&config.name, ByteCount(bytes), ByteCount(free));
    Err(RunError::new(format!(
        "disk {name}: expected {bytes} of memory to touch, seen {free} available{beside}"
    ))
    .key("uri")
    .help("make it smaller, or leave touch=1 out: then memory is taken as it is written"))
}

/// Touches a disk that nobody uses yet.
pub(super) fn touch(config: &DiskConfig, disk: &Disk) -> Result<(), RunError> {
    touch_until(stop::flag(), PATIENCE, config, disk)
}

fn touch_until(
    stopped: &AtomicBool,
    patience: Duration,
    config: &DiskConfig,
    disk: &Disk,
) -> Result<(), RunError> {
    let (name, size) = (&config.name, disk.facts().size);
    let (begun, mut told) = (Instant::now(), Instant::now());
    let mut reached = ByteCount(0);
    let is_whole = disk.touch(|done| {
        reached = done;
        if told.elapsed() >= patience {
            told = Instant::now();
            service::takes_longer();
            let words = format!("disk {name}: {done} of {size} of memory touched");
            Event::info(words).disk(name).tell();
        }
        !stopped.load(Relaxed)
    });
    if !is_whole {
        return Err(RunError::new(format!(
            "disk {name}: a signal came while its memory was touched, {reached} of {size}"
        )));
    }
    if begun.elapsed() >= patience {
        let words = format!("disk {name}: {size} of memory touched");
        Event::info(words).disk(name).tell();
    }
    Ok(())
}

/// Memory that can be taken without anybody being killed, as far as is known.
pub(super) fn available() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(of_groups(&own, Path::new("/sys/fs/cgroup"))).min()
}

/// What `/proc/meminfo` says.
fn of_machine(text: &str) -> Option<u64> {
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = available.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// What the control groups that `/proc/self/cgroup` names have left, the least of them and of those
/// around them. Of the first version of control groups, only that of the controller `memory` counts.
fn of_groups(own: &str, root: &Path) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, names) = match controllers {
            "" => (root.to_owned(), ["memory.max", "memory.current", "inactive_file"]),
            one if one.split(',').any(|one| one == "memory") => (
                root.join("memory"),
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
            ),
            _ => continue,
        };
        let folder = root.join(path.trim_start_matches('/'));
        // Where it lies is not always to be seen from inside a container: its root is.
        let folders = folder.ancestors().take_while(|folder| folder.starts_with(&root));
        least = folders.filter_map(|folder| left_of(folder, names)).chain(least).min();
    }
    least
}

/// What a group has left: its limit, less what it uses and would not give up for others.
fn left_of(folder: &Path, [limit, used, cached]: [&str; 3]) -> Option<u64> {
    let number = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number(limit)?, number(used)?);
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let fields = stat.lines().filter_map(|line| line.split_once(' '));
    let cached = fields.filter(|(name, _)| *name == cached).find_map(|(_, n)| n.parse().ok());
    Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use reactor::disk::OpenSpec;
    use reactor::memory::Arena;

    use super::*;

    fn disk(uri: &str) -> DiskConfig {
        DiskConfig::plain("d0".to_owned(), uri.parse().unwrap())
    }

    #[test]
    fn what_is_not_there_is_refused_with_numbers() {
        let config = disk("ram:4GiB?touch=1");
        assert_eq!(check(&config, 4 << 30, 0, 4 << 30), Ok(()));
        assert_eq!(check(&config, 4 << 30, 1 << 30, 5 << 30), Ok(()));
        let error = check(&config, 4 << 30, 0, 3 << 30).unwrap_err();
        let words = "disk d0: expected 4 GiB of memory to touch, seen 3 GiB available";
        assert!(error.line().starts_with(&format!("{words} (")), "{}", error.line());
        assert!(!error.is_transient(), "the configuration is to be mended");
        let error = check(&config, 4 << 30, 2 << 30, 5 << 30).unwrap_err();
        assert!(
            error.line().contains("seen 5 GiB available, of which disks before it touch 2 GiB")
        );
        assert!(check_room(&config, 1 << 60, 0).is_err());
    }

    #[test]
    fn a_signal_ends_it_and_nobody_else_does() {
        let arena = Arc::new(Arena::new(1).unwrap());
        let config = disk("ram:40MiB?touch=1");
        let touch = |stopped: bool| {
            let disk = Disk::open(&OpenSpec::Ram { bytes: 40 << 20 }, &arena).unwrap();
            touch_until(&AtomicBool::new(stopped), Duration::ZERO, &config, &disk)
        };
        assert_eq!(touch(false), Ok(()));
        let words = "disk d0: a signal came while its memory was touched, 16 MiB of 40 MiB";
        assert_eq!(touch(true).unwrap_err().line(), words);
    }

    #[test]
    fn a_machine_says_what_is_available() {
        assert_eq!(of_machine("MemTotal: 9 kB\nMemAvailable:    1024 kB\n"), Some(1 << 20));
        assert_eq!(of_machine("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn the_least_of_our_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, files: &[(&str, &str)]| {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        };
        let left = |own: &str| of_groups(own, root.path());
        assert_eq!(left("0::/a.slice/b.service\n"), None, "nothing is limited");
        group("a.slice/b.service", &[("memory.max", "max\n"), ("memory.current", "7\n")]);
        assert_eq!(left("0::/a.slice/b.service\n"), None);
        group("a.slice", &[("memory.max", "1000\n"), ("memory.current", "300\n")]);
        assert_eq!(left("0::/a.slice/b.service\n"), Some(700), "of the group around it");
        group("a.slice", &[("memory.stat", "anon 1\ninactive_file 100\n")]);
        assert_eq!(left("0::/a.slice/b.service\n"), Some(800), "cached files are given up");
        group("a.slice/b.service", &[("memory.max", "50\n")]);
        assert_eq!(left("0::/a.slice/b.service\n"), Some(43));
        // The first version, each controller with folders of its own.
        let old = [("memory.limit_in_bytes", "90"), ("memory.usage_in_bytes", "30")];
        group("memory/c", &old);
        assert_eq!(left("4:cpu,memory:/c\n3:pids:/a.slice\n"), Some(60));
        assert_eq!(left("4:memory:/c/gone\n"), Some(60));
        assert_eq!(left("no such line"), None);
    }
}
