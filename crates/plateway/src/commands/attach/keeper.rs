//! Who watches over an attached disk: a process of its own, since one that is stuck or was killed cannot help
//! itself, and what it leaves would hold up others for ever.
//!
//! The process that answers for the disk says at least once a second that it still does, through a pipe. When
//! it has been silent for [`SILENCE`], the kernel's requests fail, those that wait and those that come. When
//! it has ended, what it left is taken away: its device once nobody uses it, what is mounted, its folder.
//! Signals by which a terminal or a service manager ends a whole group do not end this one, and it is in no network
//! namespace of anybody else's, since who removes one kills what runs there; it lives no longer than that pipe.
//! Errors: none that anybody waits for.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::place::Place;
use crate::log::Event;

/// How often it is told that its process lives.
const OFTEN: Duration = Duration::from_secs(1);
/// How long that may be silent: longer than a machine that is short of everything is.
const SILENCE: Duration = Duration::from_secs(120);

/// The watcher, as its process has it.
pub(super) struct Keeper {
    child: Child,
    pipe: Option<ChildStdin>,
    told: Instant,
}

impl Keeper {
    /// Starts one for the disk of a folder.
    pub(super) fn start(place: &Place) -> miette::Result<Keeper> {
        let tell = |error: io::Error| miette::miette!("cannot start what watches over it: {error}");
        let program = std::env::current_exe().map_err(tell)?;
        let mut command = Command::new(program);
        command.args(["attach", "--keeper"]).arg(place.folder());
        // Where it is started is not held by it.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(tell)?;
        let pipe = child.stdin.take();
        let keeper = Keeper { child, pipe, told: Instant::now() };
        keeper.wait_until_it_watches().map_err(tell)
    }

    fn wait_until_it_watches(mut self) -> io::Result<Keeper> {
        let mut said = self.child.stdout.take().expect("it was piped");
        let words = "it ended before it watched";
        said.read_exact(&mut [0]).map_err(|error| io::Error::new(error.kind(), words))?;
        Ok(self)
    }

    /// All is well; to be said often. Where nobody is there any more who hears it, another one watches from
    /// then on, or is started the next time.
    pub(super) fn is_well(&mut self, place: &Place) {
        if self.told.elapsed() < OFTEN {
            return;
        }
        self.told = Instant::now();
        if self.pipe.as_mut().is_some_and(|pipe| pipe.write_all(b".").is_ok()) {
            return;
        }
        let disk = place.record().map(|record| record.disk).unwrap_or_default();
        let words = match Keeper::start(place) {
            Ok(other) => {
                std::mem::replace(self, other).end();
                "another one does from now on".to_owned()
            }
            Err(why) => format!("{why}; it is tried again"),
        };
        Event::warn(format!("{disk}: who watched over it has ended: {words}")).tell();
    }

    /// There is nothing to watch over any more; waits until it has ended.
    pub(super) fn end(mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

/// Watches over the disk of a folder until its process ends.
pub(super) fn run(place: &Place) -> miette::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // Caught, and nothing else.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|error| miette::miette!("cannot watch signals: {error}"))?;
    }
    // It needs no network. Where a limit forbids it one of its own, it goes with the namespace, and `detach` clears.
    let _ = unshare(CloneFlags::CLONE_NEWNET);
    super::super::print(".")?;
    watch(place, io::stdin(), SILENCE);
    place.clear();
    Ok(())
}

/// Returns when the pipe is over; where it is silent for so long, requests fail from then on.
fn watch(place: &Place, mut pipe: impl io::Read + AsFd, silence: Duration) {
    let limit = Timespec::try_from(silence).ok();
    let mut limit = limit.as_ref();
    let mut said = [0; 64];
    loop {
        match poll(&mut [PollFd::new(&pipe.as_fd(), PollFlags::IN)], limit) {
            Ok(0) => {
                let seconds = silence.as_secs();
                let disk = place.record().map(|record| record.disk).unwrap_or_default();
                let words =
                    format!("{disk}: its process has not moved for {seconds} s: its device fails");
                Event::error(words).tell();
                place.abort();
                // There is no more to be done until it ends.
                limit = None;
            }
            Ok(_) => match pipe.read(&mut said) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use lab::attached::Inbox;

    use super::super::kernel::Disk;
    use super::*;

    /// A disk that nobody answers for, and who reads it.
    #[test]
    fn who_waits_for_a_process_that_is_silent_is_told_that_it_fails() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::at(directory.path().join("1"));
        std::fs::create_dir_all(place.point()).unwrap();
        let inbox = Arc::new(Inbox::default());
        let (bytes, block) = (1 << 20, 512);
        let knock = Arc::new(|| {});
        let disk =
            Disk { inbox: inbox.clone(), knock, bytes, block, read_only: false, clears: true };
        let mounted = match disk.mount(&place.point(), "silent") {
            Ok(mounted) => mounted,
            Err(why) => {
                return testkit::skipped(format_args!("no file system can be mounted: {why}"));
            }
        };
        let file = place.file();
        let read = move || std::fs::File::open(file)?.read_exact(&mut [0; 512]);
        let reader = std::thread::spawn(read);
        let until = Instant::now() + Duration::from_secs(60);
        while inbox.standing().1 == 0 {
            assert!(Instant::now() < until, "nothing was asked");
            std::thread::yield_now();
        }
        let (mut process, pipe) = UnixStream::pair().unwrap();
        process.write_all(b".").unwrap();
        let kept = place.clone();
        let keeper = std::thread::spawn(move || watch(&kept, pipe, Duration::from_millis(100)));
        assert!(reader.join().unwrap().is_err(), "it was silent");
        assert!(!keeper.is_finished(), "its process has not ended");
        drop(process);
        keeper.join().unwrap();
        drop(mounted);
        place.clear();
        assert!(!place.is_there());
    }
}
