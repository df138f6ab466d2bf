//! The bounds of NVMe, of this target and these initiators. What holds for every protocol stands in
//! [`block::limits`]. A number here is either derived in the comment above it or says where it
//! comes from. Sizes in bytes, times as `Duration`, unless the name says otherwise.

use core::time::Duration;

use block::limits::{
    DIRECT_RECEIVE_MIN, DISK_STUCK, RECEIVE_BUFFER, RECEIVE_BUFFER_SMALL, TRANSFER_MAX,
};

/// MDTS: transfers have up to 2^8 pages of 4 KiB.
pub const MDTS: u8 = 8;
/// Payload that a command may carry in its capsule: 8 KiB, which admin commands may always use
/// (NVMe/TCP) and which covers 4 KiB and 8 KiB writes without a round trip.
pub const CAPSULE_DATA_MAX: u32 = 8192;
/// Commands that one queue may have outstanding (MQES + 1).
pub const QUEUE_DEPTH_MAX: u32 = 1024;
/// Commands that an admin queue may have outstanding.
pub const ADMIN_QUEUE_DEPTH_MAX: u32 = 128;
/// I/O queues of one controller.
pub const IO_QUEUES_MAX: u16 = 128;
/// Namespaces of one subsystem, and so the largest NSID.
pub const NAMESPACES_MAX: u32 = 1024;
/// The most that a fused compare and write may concern: what its atomicity is promised for. At
/// least one block of every block size; ACWU says one block.
pub const COMPARE_AND_WRITE_MAX: u32 = 4096;

/// Source ranges of one Copy (MSRC + 1): as many as a host that copies extents of files gathers, and
/// 4 KiB of them.
pub const COPY_RANGES_MAX: usize = 128;

/// The largest CNTLID; those above have other meanings.
pub const CONTROLLER_ID_MAX: u32 = 0xffef;
/// Controllers that one shard owns at most, so that a peer cannot fill the memory with them; a
/// controller takes about 4 KiB.
pub const CONTROLLERS_MAX: usize = 4096;
/// Controllers that one host may have on one shard with one subsystem; hosts open one for each
/// path.
pub const CONTROLLERS_PER_HOST_MAX: usize = 64;
/// Asynchronous event requests that a controller holds (AERL + 1).
pub const ASYNC_EVENT_REQUESTS_MAX: usize = 4;
/// Reservation notifications that a controller keeps for its host: more than a cluster makes between
/// two looks, and about 2 KiB.
pub const NOTIFICATIONS_MAX: usize = 64;
/// Entries of the error log (ELPE + 1).
pub const ERROR_ENTRIES_MAX: usize = 16;

/// PDUs of one connection that are handled in a turn.
pub const TURN_PDUS: u32 = 256;
/// Entries of an initiator's admin queue.
pub const INITIATOR_ADMIN_DEPTH: u16 = 32;
/// R2Ts that an initiator takes per command at once (MAXR2T + 1).
pub const GRANTS_MAX: usize = 4;
/// Answers that an initiator takes from its stream before it lets those above it go on: their data,
/// 16 KiB of a 4 KiB read each, fit into a processor's first cache with what is done about them.
pub const ANSWERS_PER_SHARE: u32 = 4;
/// Data of one reply that an initiator takes: more than it asks for.
pub const INITIATOR_REPLY_MAX: usize = 16 << 10;
/// Entries of a discovery log that are read at once.
pub const DISCOVERY_PAGE_ENTRIES: u64 = 4;
/// A discovery log of more entries than this is not believed.
pub const DISCOVERY_ENTRIES_MAX: u64 = 4096;
/// How often a discovery log may change while it is read.
pub const DISCOVERY_ROUNDS_MAX: u32 = 16;

/// A connection must have introduced itself (ICReq, then Connect) by then.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// A PDU once begun must be complete by then.
pub const PDU_COMPLETE: Duration = Duration::from_secs(30);
/// Data asked for by R2T must have come by then.
pub const DATA_AFTER_R2T: Duration = Duration::from_secs(30);
/// A connection without a command for so long, up to twice so long, gives its tables back.
pub const QUEUE_IDLE: Duration = Duration::from_secs(5);
/// How long a discovery controller without KATO may be silent: whoever wants to stay says so with
/// KATO.
pub const DISCOVERY_SILENCE_MAX: Duration = Duration::from_secs(120);
/// How long a Connect waits for what an earlier association of its host has in flight, before it is
/// told "busy".
pub const HOST_HOLD: Duration = Duration::from_secs(2);
/// An initiator's I/O queue on which something is asked and nothing was heard for so long is probed
/// with a command that takes no disk.
pub const QUEUE_QUIET: Duration = Duration::from_secs(3);
/// A queue that has not answered the probe for so long is silent: its connection carries nothing
/// any more.
pub const QUEUE_SILENT: Duration = Duration::from_secs(3);
/// The same while the probe stands behind commands with their data in the capsule: a target that is
/// short of memory for those reads nothing more, not even the probe, until its disk has answered
/// some. With [`QUEUE_QUIET`] a third of what a disk is given before it is stuck: a request may
/// meet two silent queues, one after the other, and still has time.
pub const QUEUE_SILENT_BEHIND_DATA: Duration = Duration::from_secs(17);
/// A silence so soon after the last one doubles the patience with the next: a target that is slow
/// for all is not helped by reconnects.
pub const SILENCE_AGAIN: Duration = Duration::from_secs(60);
/// Most doublings: then a silent queue is found by the deadlines of its requests.
pub const SILENCE_DOUBLINGS_MAX: u32 = 3;
/// How often CSTS.RDY is asked for.
pub const READY_INTERVAL: Duration = Duration::from_millis(20);
/// The first rest of an initiator after a break, which each break in a row doubles, and the
/// longest.
pub const REST_FIRST: Duration = Duration::from_millis(100);
pub const REST_MAX: Duration = Duration::from_secs(10);

// How the bounds relate.
const _: () = {
    assert!(TRANSFER_MAX == 4096 << MDTS);
    assert!(QUEUE_DEPTH_MAX <= u16::MAX as u32);
    assert!(IO_QUEUES_MAX > 0);
    // MSRC is a byte.
    assert!(COPY_RANGES_MAX <= 256);
    assert!(DISCOVERY_PAGE_ENTRIES * 1024 <= INITIATOR_REPLY_MAX as u64);
    // A capsule fits in what one receive can take, with its headers and digests: in a small buffer,
    // and in a large one many times over.
    assert!(RECEIVE_BUFFER_SMALL > CAPSULE_DATA_MAX + 4096);
    assert!(RECEIVE_BUFFER >= 16 * (CAPSULE_DATA_MAX + 256));
    // What is received directly would not have fitted a capsule.
    assert!(DIRECT_RECEIVE_MIN > CAPSULE_DATA_MAX);
    assert!(HANDSHAKE.as_secs() <= PDU_COMPLETE.as_secs());
    // A silent queue is noticed before its requests could be taken for those of a stuck disk.
    assert!(QUEUE_SILENT.as_secs() < QUEUE_SILENT_BEHIND_DATA.as_secs());
    assert!(
        3 * (QUEUE_QUIET.as_secs() + QUEUE_SILENT_BEHIND_DATA.as_secs()) <= DISK_STUCK.as_secs()
    );
};
