//! I/O commands: from a submission queue entry to what is asked of the volume, or to the status
//! that refuses it.
//!
//! In: the command and the facts of its namespace. Out: [`Work`], which knows its extent in bytes
//! of the volume and which way its data go. Units: LBAs and block counts are logical blocks of the
//! namespace, extents are bytes. Errors: the status of the completion, with DNR, since the same
//! command would be refused again. Pure and without memory of earlier commands: who waits for data
//! keeps the command and has it judged anew before it is submitted, so that a namespace that was
//! removed, resized or write-protected meanwhile counts. What it is to a reservation is said here
//! too, and asked by the connection, which knows its host. Spec: NVM command set, "NVM Commands";
//! NVMe base, "Data pointer", "Fused operations". Not here: whether the queue may do I/O at all
//! (`controllers`), in-capsule bounds (the transport).

use block::limits::{COPY_MAX, COPY_PAGES, DISCARD_RANGES_MAX, TRANSFER_MAX};
use block::{BlockCount, Buffer, CopySegment, Extent, Lba, Operation, PAGE_SIZE, planted};
use reservation::Access;
use wire::nvme::command::{CopyDword, CopyRange, DsmRange, IoOpcode, SglKind};
use wire::nvme::{Command, Status};

use crate::limits::{COMPARE_AND_WRITE_MAX, COPY_RANGES_MAX};
use crate::reservations;
use crate::subsystem::Namespace;

/// What a command asks of its namespace's volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Read and send to the host.
    Read(Extent),
    /// Take from the host and write; the flag is FUA.
    Write(Extent, bool),
    /// Take from the host and compare.
    Compare(Extent),
    /// Write zeros; whether space may be given up (DEAC), and FUA.
    WriteZeroes(Extent, bool, bool),
    /// Read from the media and say whether it worked.
    Verify(Extent),
    /// Make completed writes durable.
    Flush,
    /// Take this many bytes of ranges from the host, see [`ranges`].
    Ranges(u32),
    /// Take this many bytes of source ranges from the host and copy what they name, see
    /// [`segments`].
    Copy(u32),
    /// Take this many bytes of keys from the host and change the reservation, see
    /// [`reservations::change`].
    Reserve(u32),
    /// Send this many bytes about the reservation to the host.
    Report(u32),
}

/// Which way a command's data go, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// There are none.
    None,
    /// From the volume to the host.
    ToHost(u32),
    FromHost(u32),
}

impl Work {
    /// Which way its data go and how many there are.
    #[inline]
    pub(crate) fn payload(&self) -> Payload {
        match self {
            Work::Read(extent) => Payload::ToHost(extent.length.0 as u32),
            Work::Write(extent, _) | Work::Compare(extent) => {
                Payload::FromHost(extent.length.0 as u32)
            }
            Work::Ranges(length) | Work::Copy(length) | Work::Reserve(length) => {
                Payload::FromHost(*length)
            }
            Work::Report(length) => Payload::ToHost(*length),
            Work::WriteZeroes(..) | Work::Verify(_) | Work::Flush => Payload::None,
        }
    }

    /// What it is to a reservation: who may write may also read, so a copy is a write. Spec: NVMe base, "Command Behavior in the Presence of a
    /// Reservation".
    #[inline]
    pub(crate) fn access(&self) -> Access {
        match self {
            Work::Read(_) | Work::Compare(_) | Work::Verify(_) => Access::Read,
            Work::Write(..)
            | Work::WriteZeroes(..)
            | Work::Flush
            | Work::Ranges(_)
            | Work::Copy(_) => Access::Write,
            Work::Reserve(_) | Work::Report(_) => Access::Other,
        }
    }

    /// The request; `buffer` is its payload, empty if it has none. Ranges become one by their data.
    #[inline]
    pub(crate) fn operation(self, buffer: Buffer) -> Operation {
        match self {
            Work::Read(extent) => Operation::Read { extent, buffer },
            Work::Write(extent, durable) => Operation::Write { extent, buffer, durable },
            Work::Compare(extent) => Operation::Compare { extent, buffer },
            Work::WriteZeroes(extent, deallocate, durable) => {
                Operation::WriteZeroes { extent, deallocate, durable }
            }
            Work::Verify(extent) => Operation::Verify { extent },
            Work::Flush => Operation::Flush,
            Work::Ranges(_) | Work::Copy(_) => {
                panic!("{self:?} is no request before its data are there")
            }
            Work::Reserve(_) | Work::Report(_) => panic!("{self:?} is no request to a volume"),
        }
    }

    /// Bytes of the buffer that its payload comes into, and where in its first page they begin, as
    /// the volume's pages lie. Source ranges come into the memory that the copy takes.
    #[inline]
    pub(crate) fn memory(&self) -> (u32, u32) {
        match self {
            Work::Read(extent) | Work::Write(extent, _) | Work::Compare(extent) => {
                (extent.length.0 as u32, phase(extent))
            }
            Work::Copy(_) => COPY_MEMORY,
            Work::Ranges(length) | Work::Reserve(length) | Work::Report(length) => (*length, 0),
            Work::WriteZeroes(..) | Work::Verify(_) | Work::Flush => (0, 0),
        }
    }
}

/// The buffer that stands for what a copy holds: its length and phase.
pub(crate) const COPY_MEMORY: (u32, u32) = (COPY_PAGES * PAGE_SIZE, 0);

/// Where in its first page an extent begins.
#[inline]
pub(crate) fn phase(extent: &Extent) -> u32 {
    (extent.offset.0 % u64::from(block::PAGE_SIZE)) as u32
}

/// Whether PSDT says that data are described by an SGL. Fabrics commands may leave the bits out,
/// which their own formats reserve.
#[inline]
pub(crate) fn check_format(command: &Command) -> Result<(), Status> {
    if command.psdt() == 1 || (command.is_fabrics() && command.psdt() == 0) {
        return Ok(());
    }
    Err(Status::INVALID_FIELD.with_dnr())
}

/// Checks what every command must say of its data, whatever it is: an SGL, of a type that TCP knows
/// if there are data.
#[inline]
pub(crate) fn check_pointer(command: &Command) -> Result<(), Status> {
    check_format(command)?;
    let sgl = command.sgl();
    match sgl.kind {
        SglKind::TRANSPORT => Ok(()),
        SglKind::IN_CAPSULE if sgl.address == 0 => Ok(()),
        SglKind::IN_CAPSULE => Err(Status::INVALID_SGL_OFFSET.with_dnr()),
        // A command without data may leave the descriptor as zeros.
        _ if sgl.length == 0 => Ok(()),
        _ => Err(Status::INVALID_SGL_TYPE.with_dnr()),
    }
}

/// The status of a command whose namespace is not there: if there is no such command either, that
/// is the nearer reason.
#[cold]
pub(crate) fn without_namespace(command: &Command) -> Status {
    let known = matches!(
        command.io_opcode(),
        IoOpcode::FLUSH
            | IoOpcode::READ
            | IoOpcode::WRITE
            | IoOpcode::COMPARE
            | IoOpcode::WRITE_ZEROES
            | IoOpcode::VERIFY
            | IoOpcode::DATASET_MANAGEMENT
            | IoOpcode::COPY
            | IoOpcode::RESERVATION_REGISTER
            | IoOpcode::RESERVATION_REPORT
            | IoOpcode::RESERVATION_ACQUIRE
            | IoOpcode::RESERVATION_RELEASE
    );
    let status = if known { Status::INVALID_NAMESPACE } else { Status::INVALID_OPCODE };
    status.with_dnr()
}

/// Says what an I/O command asks of `namespace`, or why it is refused. FUSE is the caller's to
/// obey.
#[inline]
pub(crate) fn judge(command: &Command, namespace: &Namespace) -> Result<Work, Status> {
    let work = match command.io_opcode() {
        IoOpcode::READ => Work::Read(transfer(command, namespace)?),
        IoOpcode::WRITE => {
            writable(namespace)?;
            let durable = command.force_unit_access() && !planted("fua-is-forgotten");
            Work::Write(transfer(command, namespace)?, durable)
        }
        _ => return judge_other(command, namespace),
    };
    Ok(work)
}

fn judge_other(command: &Command, namespace: &Namespace) -> Result<Work, Status> {
    match command.io_opcode() {
        IoOpcode::FLUSH => {
            no_data(command)?;
            Ok(Work::Flush)
        }
        IoOpcode::COMPARE => Ok(Work::Compare(transfer(command, namespace)?)),
        IoOpcode::WRITE_ZEROES => {
            writable(namespace)?;
            no_data(command)?;
            let extent = extent(command, namespace)?;
            Ok(Work::WriteZeroes(extent, command.deallocate(), command.force_unit_access()))
        }
        IoOpcode::VERIFY => {
            no_data(command)?;
            Ok(Work::Verify(extent(command, namespace)?))
        }
        IoOpcode::DATASET_MANAGEMENT => {
            writable(namespace)?;
            let count = DsmRange::count(command);
            Ok(Work::Ranges(list(command, count, DISCARD_RANGES_MAX, DsmRange::SIZE)?))
        }
        IoOpcode::COPY => {
            writable(namespace)?;
            let dword = CopyDword::of(command);
            if dword.format() != 0 {
                return Err(Status::INVALID_FIELD.with_dnr());
            }
            let count = dword.count();
            if count > COPY_RANGES_MAX {
                return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr());
            }
            Ok(Work::Copy(list(command, count, CopyRange::COUNT_MAX, CopyRange::SIZE)?))
        }
        IoOpcode::RESERVATION_REGISTER
        | IoOpcode::RESERVATION_ACQUIRE
        | IoOpcode::RESERVATION_RELEASE => reservations::judge(command),
        IoOpcode::RESERVATION_REPORT => reservations::judge_report(command),
        // Write Uncorrectable among them: ONCS does not offer it.
        _ => Err(Status::INVALID_OPCODE.with_dnr()),
    }
}

/// The extents that a Dataset Management command deallocates, from its data; none when it only
/// gives hints.
pub(crate) fn ranges(
    command: &Command,
    data: &[u8],
    namespace: &Namespace,
) -> Result<Vec<Extent>, Status> {
    let count = DsmRange::count(command);
    let wanted = DsmRange::is_deallocate(command);
    let mut extents = Vec::with_capacity(if wanted { count } else { 0 });
    for range in DsmRange::parse_all(data).take(count) {
        let extent = within(namespace, range.lba, u64::from(range.blocks))?;
        if wanted && range.blocks != 0 {
            extents.push(extent);
        }
    }
    Ok(extents)
}

/// The bytes of a command's list of `count` entries of `size` bytes, which may have room for as many
/// as `count_max`: Linux always sends room for all ranges of Dataset Management.
fn list(command: &Command, count: usize, count_max: usize, size: usize) -> Result<u32, Status> {
    let length = command.sgl().length;
    match (count * size..=count_max * size).contains(&(length as usize)) {
        true => Ok(length),
        false => Err(Status::INVALID_SGL_LENGTH.with_dnr()),
    }
}

/// The most that one Copy may ask for, in logical blocks.
pub(crate) struct CopyLimits {
    /// MSSRL: of one range.
    pub(crate) range: u16,
    /// MCL: of all.
    pub(crate) total: u32,
}

pub(crate) fn copy_limits(namespace: &Namespace) -> CopyLimits {
    let total = (COPY_MAX / namespace.block_size.bytes()) as u32;
    CopyLimits { range: total.min(u16::MAX.into()) as u16, total }
}

/// What a Copy command copies, from its data, in their order; each is copied as a whole.
pub(crate) fn segments(
    command: &Command,
    data: &[u8],
    namespace: &Namespace,
) -> Result<Vec<CopySegment>, Status> {
    let left_out = usize::from(planted("copy-leaves-a-range-out"));
    let count = CopyDword::of(command).count() - left_out;
    let limits = copy_limits(namespace);
    let mut segments = Vec::with_capacity(count);
    let mut total = 0;
    for range in CopyRange::parse_all(data).take(count) {
        let (blocks, before) = (range.blocks(), total);
        total += blocks;
        if blocks > limits.range.into() || total > limits.total {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr());
        }
        let source = within(namespace, range.lba, blocks.into())?;
        let to = command.lba().checked_add(before.into());
        let to = to.ok_or(Status::LBA_OUT_OF_RANGE.with_dnr())?;
        let destination = within(namespace, to, blocks.into())?.offset;
        let volume = namespace.volume;
        segments.push(CopySegment { source: (volume, source), destination: (volume, destination) });
    }
    Ok(segments)
}

/// Whether a copy whose last block ends at this byte still fits.
pub(crate) fn check_end(namespace: &Namespace, end: u64) -> Result<(), Status> {
    within(namespace, end.div_ceil(namespace.block_size.bytes()), 0).map(|_| ())
}

#[inline]
fn within(namespace: &Namespace, lba: u64, blocks: u64) -> Result<Extent, Status> {
    let out_of_range = Status::LBA_OUT_OF_RANGE.with_dnr();
    let end = lba.checked_add(blocks).ok_or(out_of_range)?;
    if end > namespace.blocks.0 {
        return Err(out_of_range);
    }
    namespace.block_size.extent(Lba(lba), BlockCount(blocks)).ok_or(out_of_range)
}

/// The extent of SLBA and NLB.
#[inline]
fn extent(command: &Command, namespace: &Namespace) -> Result<Extent, Status> {
    within(namespace, command.lba(), u64::from(command.blocks()))
}

/// The extent of a command whose data the SGL describes: no more than MDTS, and as long as the SGL
/// says.
#[inline]
fn transfer(command: &Command, namespace: &Namespace) -> Result<Extent, Status> {
    let extent = extent(command, namespace)?;
    if extent.length.0 > u64::from(TRANSFER_MAX) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if extent.length.0 != u64::from(command.sgl().length) {
        return Err(Status::INVALID_SGL_LENGTH.with_dnr());
    }
    Ok(extent)
}

#[inline]
fn writable(namespace: &Namespace) -> Result<(), Status> {
    if namespace.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    Ok(())
}

fn no_data(command: &Command) -> Result<(), Status> {
    if command.sgl().length != 0 {
        return Err(Status::INVALID_SGL_LENGTH.with_dnr());
    }
    Ok(())
}

/// Whether the two commands may be a fused pair: a compare, then a write, of the same blocks, few
/// enough.
pub(crate) fn check_fused(first: &Command, second: &Command) -> Result<(), Status> {
    let same = first.nsid() == second.nsid()
        && first.lba() == second.lba()
        && first.blocks() == second.blocks();
    if !same || second.io_opcode() != IoOpcode::WRITE {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    Ok(())
}

/// Whether a command may be the first of a fused pair: a compare of no more than is atomic. Its
/// extent if so.
pub(crate) fn judge_fused_first(
    command: &Command,
    namespace: &Namespace,
) -> Result<Extent, Status> {
    if command.io_opcode() != IoOpcode::COMPARE {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    writable(namespace)?;
    let extent = transfer(command, namespace)?;
    if extent.length.0 > u64::from(COMPARE_AND_WRITE_MAX) {
        return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr());
    }
    Ok(extent)
}
