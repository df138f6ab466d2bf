//! `plateway attach` and `detach`: any disk as a block device of this machine.
//!
//! ```text
//!   file system -> /dev/loopN -> FUSE -> kernel::Disk -> Inbox -> lab::Attached on a shard -> volume
//! ```
//! The process answers for the device until it is told to end by a signal, and ends once nothing uses the
//! device; what was written is flushed to the disk by then. It keeps its memory from being swapped out, and
//! says to the kernel that it is on the way of writing back: it may be what frees memory. Where no request is
//! answered for long, all fail and the device is given up. Three others watch: the disk's own deadline, which
//! fails requests while it is lost; [`keeper`], in case this process is stuck or killed; and the kernel, which
//! cuts the connection when the process is gone. Units: bytes. Errors name the disk or the device, and what to
//! do. Exit code 1 where the device was given up.

mod device;
mod keeper;
mod kernel;
mod place;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use block::{ByteCount, ShardId};
use comfy_table::{Table, presets};
use fuser::BackgroundSession;
use lab::attached::{Attached, Inbox};
use lab::{Place as Volume, Progress};
use rustix::mm::MlockAllFlags;
use rustix::process::{Pid, Signal};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::keeper::Keeper;
use self::kernel::{Disk, KernelAnswer, Knock};
use self::place::{Held, Place, Record, Refused};
use super::session::{Opening, Session};
use crate::cli::{AttachArgs, DetachArgs};
use crate::config::uri::DiskUri;
use crate::log::Event;

/// How much longer than a lost disk may take nothing may be answered, before the device is given up.
const GIVE_UP: Duration = Duration::from_secs(240);
/// Bytes of payload in flight at most.
const IN_FLIGHT: u64 = 64 << 20;
/// How long `detach` waits for the device to go: what is flushed meanwhile may be much.
const DETACH_LIMIT: Duration = Duration::from_secs(300);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);

/// Attaches a disk until it is detached, or shows what is attached.
pub(crate) fn run(args: &AttachArgs) -> miette::Result<()> {
    if let Some(folder) = &args.keeper {
        return keeper::run(&Place::at(folder.clone()));
    }
    must_be_root()?;
    let Some(disk) = &args.disk else { return list(args.json) };
    // Before any thread is there, which all are like this one.
    keep_memory();
    let disks = [(disk.clone(), args.read_only)];
    let opening = Opening {
        disks: &disks,
        config: args.config.as_deref(),
        cached: false,
        state: None,
        shards: 1,
        in_flight: IN_FLIGHT,
    };
    // Until here a signal ends the process, however long a disk takes to answer.
    let mut session = Session::open(&opening)?;
    let asked = Asked::watch()?;
    let (inbox, progress) = (Arc::new(Inbox::default()), Arc::new(Progress::default()));
    let guest = Attached::new(Volume(0), inbox.clone(), progress.clone());
    let mut attachment = Attachment::begin(&session, args, disk, inbox)?;
    let outcome = session.run(vec![guest], |_| attachment.turn(&asked, &progress));
    let failed = attachment.failed.take();
    let gave_up = outcome.as_ref().map_or(true, |outcome| outcome.gave_up);
    if gave_up {
        // What does not answer would not be closed either.
        session.abandon();
        attachment.give_up(failed.as_ref());
    } else {
        let closed = session.close();
        attachment.end(closed.as_ref().err());
        closed?;
    }
    failed.map_or(outcome.map(|_| ()), Err)
}

/// Devices are root's, and so is what is known of them.
fn must_be_root() -> miette::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(miette::miette!(
        help = "run it as root",
        "block devices are root's: expected root, seen another user"
    ))
}

/// Tells the kernel that this process is on the way of writing back, and to leave its memory where it is.
fn keep_memory() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        let words = format!("cannot be on the way of writing back (PR_SET_IO_FLUSHER): {error}");
        Event::debug(words).tell();
    }
    // As it is used: the pool's memory is more than most of them need.
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(all) {
        let words = format!(
            "memory cannot be locked: {error}: a machine that is short of it may stand still"
        );
        Event::warn(words).tell();
    }
    // Whoever ends it to get memory gets none, and loses a disk.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

/// The device of a process that attaches a disk, once there is one.
pub(super) fn device_of(process: u32) -> Option<PathBuf> {
    Place::of(process).record()?.device
}

/// An error unless disks can be attached here; nothing is made.
pub(super) fn allowed() -> miette::Result<()> {
    must_be_root()?;
    for (device, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        if !Path::new(device).exists() {
            return Err(miette::miette!(
                "expected {device}, seen none (modprobe {module}, or a container that has it)"
            ));
        }
    }
    Ok(())
}

/// The signals by which it is asked to end. Each is one wish, which may be refused.
struct Asked(Arc<AtomicBool>);

impl Asked {
    fn watch() -> miette::Result<Asked> {
        let raised = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, raised.clone())
                .map_err(|error| miette::miette!("cannot watch signals: {error}"))?;
        }
        Ok(Asked(raised))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no device yet.
    Making,
    Attached,
    /// The device goes as soon as nobody has it open.
    Leaving,
    /// It is gone.
    Gone,
}

/// A device, and what is behind it.
struct Attachment {
    place: Place,
    held: Held,
    keeper: Keeper,
    mounted: Option<BackgroundSession>,
    record: Record,
    json: bool,
    inbox: Arc<Inbox<KernelAnswer>>,
    knock: Knock,
    stage: Stage,
    give_up: Duration,
    /// How many requests were answered, since when.
    answered: (u64, Instant),
    failed: Option<miette::Report>,
}

impl Attachment {
    /// Shows the kernel the disk, as a file.
    fn begin(
        session: &Session,
        args: &AttachArgs,
        disk: &DiskUri,
        inbox: Arc<Inbox<KernelAnswer>>,
    ) -> miette::Result<Attachment> {
        let volume = &session.volumes()[0];
        let record = Record {
            disk: disk.to_string(),
            bytes: volume.bytes,
            block_bytes: volume.block_size,
            read_only: volume.read_only || args.read_only,
            process: std::process::id(),
            device: None,
            refused: None,
            lost: None,
        };
        let knock: Knock = Arc::new(session.knock(ShardId(0)));
        let kernel = Disk {
            inbox: inbox.clone(),
            knock: knock.clone(),
            bytes: record.bytes,
            block: record.block_bytes,
            read_only: record.read_only,
            clears: volume.discards,
        };
        let deadline = match disk {
            DiskUri::Remote(remote) => remote.deadline(),
            _ => Duration::ZERO,
        };
        let (place, held) = Place::make()?;
        let shown = place.put(&record).and_then(|()| {
            let keeper = Keeper::start(&place)?;
            let mounted = kernel.mount(&place.point(), &record.disk).map_err(|error| {
                miette::miette!(
                    help = "FUSE is the kernel's: modprobe fuse; a container needs /dev/fuse",
                    "{disk}: cannot be shown to the kernel by FUSE: {error}"
                )
            })?;
            Ok((keeper, mounted))
        });
        let (keeper, mounted) = shown.inspect_err(|_| place.leave())?;
        Ok(Attachment {
            place,
            held,
            keeper,
            mounted: Some(mounted),
            record,
            json: args.json,
            inbox,
            knock,
            stage: Stage::Making,
            give_up: args.give_up.map_or(deadline + GIVE_UP, Duration::from_secs),
            answered: (0, Instant::now()),
            failed: None,
        })
    }

    /// Does what is to be done; called several times a second.
    fn turn(&mut self, asked: &Asked, progress: &Progress) -> ControlFlow<()> {
        self.keeper.is_well(&self.place);
        if self.is_silent() {
            let seconds = self.give_up.as_secs();
            let disk = &self.record.disk;
            self.failed = Some(miette::miette!(
                "{disk}: nothing was answered for {seconds} s: its device is given up"
            ));
            return ControlFlow::Break(());
        }
        match self.stage {
            Stage::Making => match self.make() {
                Ok(()) => self.stage = Stage::Attached,
                Err(error) => {
                    self.failed = Some(error);
                    // One that nobody was told of.
                    if let Some(device) = self.device() {
                        let _ = device::free(device);
                    }
                    self.gone(progress);
                }
            },
            Stage::Attached if asked.take() => self.leave(),
            Stage::Leaving => {
                if self.device().is_none_or(|device| !device::is_over(device, &self.place.file())) {
                    self.gone(progress);
                }
            }
            Stage::Attached | Stage::Gone => {}
        }
        ControlFlow::Continue(())
    }

    fn device(&self) -> Option<&Path> {
        self.record.device.as_deref()
    }

    /// Whether requests wait, and none was answered for long.
    fn is_silent(&mut self) -> bool {
        let (answered, waiting) = self.inbox.standing();
        if waiting == 0 || answered != self.answered.0 {
            self.answered = (answered, Instant::now());
        }
        self.answered.1.elapsed() > self.give_up
    }

    /// Makes the device, and says so.
    fn make(&mut self) -> miette::Result<()> {
        let Record { block_bytes, read_only, .. } = self.record;
        let device = device::make(&self.place.file(), block_bytes, read_only)?;
        self.record.device = Some(device);
        self.place.put(&self.record)?;
        let _ = sd_notify::notify(&[
            sd_notify::NotifyState::Ready,
            sd_notify::NotifyState::Status(&self.record.line()),
        ]);
        super::show(self.json, &self.record, || format!("{}\n", self.record.line()))
    }

    /// Has the device taken away, unless something uses it.
    fn leave(&mut self) {
        let Some(device) = self.device() else { return };
        let freed = match device::user(device) {
            Some(user) => Err(user),
            None => device::free(device).map_err(|error| error.to_string()),
        };
        match freed {
            Ok(()) => self.stage = Stage::Leaving,
            Err(why) => self.refuse(why),
        }
    }

    /// Says why the device stays, to whoever reads the log and to whoever asked.
    fn refuse(&mut self, why: String) {
        let name = self.device().unwrap_or(Path::new("the device")).display();
        Event::warn(format!("{name} is not detached: {why}")).tell();
        let number = self.record.refused.as_ref().map_or(0, |refused| refused.number) + 1;
        self.record.refused = Some(Refused { number, why });
        if let Err(error) = self.place.put(&self.record) {
            Event::warn(error.to_string()).tell();
        }
    }

    /// There is no device any more: the kernel's file goes, and then the machine behind it.
    fn gone(&mut self, progress: &Progress) {
        self.stage = Stage::Gone;
        self.unmount();
        progress.stop();
        // It may sleep, and has nothing more to wait for.
        (self.knock)();
    }

    fn unmount(&mut self) {
        let Some(mounted) = self.mounted.take() else { return };
        if mounted.umount_and_join().is_err() {
            // Somebody looks at the file itself.
            self.place.abort();
        }
    }

    /// All is over, and what was written is durable, or why that is not known.
    fn end(mut self, lost: Option<&miette::Report>) {
        self.tell_lost(lost);
        self.place.leave();
        drop(self.held);
        self.keeper.end();
    }

    /// Says to who waits for the end that what was written last may be lost; the folder goes with the process.
    fn tell_lost(&mut self, lost: Option<&miette::Report>) {
        let Some(why) = lost else { return };
        self.record.lost = Some(why.to_string());
        if self.place.put(&self.record).is_ok() {
            std::thread::sleep(LOOK * 25);
        }
    }

    /// Nothing answers any more: what waits fails, and the keeper takes away what can be.
    fn give_up(mut self, why: Option<&miette::Report>) {
        self.place.abort();
        self.tell_lost(why);
        // Its thread may be in the kernel, and ends with this process.
        drop(self.mounted.take().map(|mounted| mounted.guard));
        drop(self.held);
        self.keeper.end();
    }
}

impl Record {
    /// As people read it.
    fn line(&self) -> String {
        let Record { disk, bytes, block_bytes, read_only, device, .. } = self;
        let device = device.as_ref().map(|device| device.display().to_string());
        format!(
            "{} is {disk}: {} in blocks of {block_bytes} bytes{}",
            device.unwrap_or_default(),
            ByteCount(*bytes),
            if *read_only { ", read-only" } else { "" }
        )
    }
}

/// One line of the list.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    record: Record,
    /// Where it, and its partitions, are mounted, as far as this process sees.
    mounted: Vec<String>,
    /// Whether its process is there.
    is_answered: bool,
}

fn list(json: bool) -> miette::Result<()> {
    let listed: Vec<Listed> = Place::all()
        .into_iter()
        .map(|(place, mut record)| {
            // A number of one that is gone may be another's by now.
            record.device = record.device.filter(|device| device::is_over(device, &place.file()));
            Listed {
                mounted: record.device.as_deref().map(device::mounted).unwrap_or_default(),
                is_answered: place.is_held(),
                record,
            }
        })
        .collect();
    super::show(json, &listed, || {
        if listed.is_empty() {
            return "nothing is attached\n".to_owned();
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["device", "disk", "size", "mounted at", "process"]);
        for Listed { record, mounted, is_answered } in &listed {
            let device = record.device.as_ref().map(|device| device.display().to_string());
            let process = match is_answered {
                true => record.process.to_string(),
                false => format!("{} is gone: plateway detach clears it", record.process),
            };
            table.add_row([
                device.unwrap_or_else(|| "-".to_owned()),
                record.disk.clone(),
                ByteCount(record.bytes).to_string(),
                if mounted.is_empty() { "-".to_owned() } else { mounted.join(" ") },
                process,
            ]);
        }
        format!("{}\n", table.trim_fmt())
    })
}

/// Takes a device away.
pub(crate) fn detach(args: &DetachArgs) -> miette::Result<()> {
    must_be_root()?;
    let named = PathBuf::from(&args.device);
    let all = Place::all();
    let is_it = |(_, record): &&(Place, Record)| {
        record.device.as_deref() == Some(&named) || record.disk == args.device
    };
    // Of two that had the number, the one that has it.
    let has_it = |(place, record): &&(Place, Record)| {
        record.device.as_deref().is_some_and(|device| device::is_over(device, &place.file()))
    };
    let its: Vec<&(Place, Record)> = all.iter().filter(is_it).collect();
    let found = its.iter().copied().find(has_it).or(its.first().copied());
    let Some((place, record)) = found else {
        let devices = all.iter().filter_map(|(_, record)| record.device.as_ref());
        let devices: Vec<String> = devices.map(|device| device.display().to_string()).collect();
        let expected = match devices.as_slice() {
            [] => "one that is attached, and nothing is".to_owned(),
            devices => format!("one of {}", devices.join(", ")),
        };
        return Err(miette::miette!(
            help = "plateway attach --list shows them",
            "{} is not attached: expected {expected}",
            args.device
        ));
    };
    let device = record.device.as_deref().unwrap_or(&named);
    let name = device.display();
    let refused = |why: &str| {
        miette::miette!(help = "end that first: umount, swapoff", "{name} is not detached: {why}")
    };
    if !place.is_held() {
        // Its number may be another's by now.
        if device::is_over(device, &place.file())
            && let Some(user) = device::user(device)
        {
            return Err(refused(&user));
        }
        place.clear();
        return super::print(&format!("{name}: its process was gone; cleared away\n"));
    }
    let process = Pid::from_raw(record.process as i32);
    let process = process.ok_or_else(|| miette::miette!("{name}: its process has no number"))?;
    rustix::process::kill_process(process, Signal::TERM)
        .map_err(|error| miette::miette!("{name}: its process cannot be told to end: {error}"))?;
    let until = Instant::now() + DETACH_LIMIT;
    while place.is_there() {
        if Instant::now() > until {
            let seconds = DETACH_LIMIT.as_secs();
            return Err(miette::miette!("{name} is still attached after {seconds} s"));
        }
        // Its process looks whether it is used; who looks as well would be seen as one who uses it.
        match place.record() {
            Some(Record { lost: Some(why), .. }) => {
                return Err(miette::miette!(
                    "{name} is detached, and what was written to it last may be lost: {why}"
                ));
            }
            Some(Record { refused: Some(now), .. }) if Some(&now) != record.refused.as_ref() => {
                return Err(refused(&now.why));
            }
            _ => std::thread::sleep(LOOK),
        }
    }
    super::print(&format!("{name} is detached\n"))
}
