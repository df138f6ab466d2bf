//! The bounds of iSCSI, of this target and this initiator. What holds for every protocol stands in
//! [`block::limits`], what is SCSI's in [`scsi::limits`]. A number here is either derived in the
//! comment above it or says where it comes from. Sizes in bytes, times as `Duration`, unless the
//! name says otherwise.

use core::time::Duration;

use block::limits::{DIRECT_RECEIVE_MIN, DISK_STUCK, RECEIVE_BUFFER_SMALL, TRANSFER_MAX};

/// Commands that a session may have outstanding: the command window. Linux asks for 128 by default;
/// more than twice as many would let one session fill the memory of answers.
pub const COMMANDS_MAX: u32 = 256;
/// Immediate commands (task management, NOPs) outstanding at once beyond the window.
pub const IMMEDIATE_MAX: u32 = 16;
/// FirstBurstLength, and so the data that come unasked with a command: as NVMe's capsules, 8 KiB
/// cover 4 KiB and 8 KiB writes without a round trip. More would be copied where larger payloads
/// are received straight into their buffers.
pub const FIRST_BURST_MAX: u32 = 8192;
/// MaxBurstLength: a whole transfer in answer to one R2T.
pub const BURST_MAX: u32 = TRANSFER_MAX;
/// MaxRecvDataSegmentLength of the target: what hosts use by default (open-iscsi, libiscsi).
pub const SEGMENT_MAX: u32 = 256 << 10;
/// Data of a PDU that holds text: what a login or text request may carry before it is agreed on
/// more (RFC 7143, 13.12).
pub const TEXT_SEGMENT_MAX: u32 = 8192;
/// Text that one negotiation may send in all, over any number of requests.
pub const TEXT_MAX: usize = 8192;
/// Requests of one login: more are a peer that goes round in circles.
pub const LOGIN_REQUESTS_MAX: u32 = 32;
/// Targets of a shard, and LUNs of a target.
pub const TARGETS_MAX: usize = 4096;
pub const LUNS_MAX: usize = 1024;
/// Sessions that one shard holds at most.
pub const SESSIONS_MAX: usize = 4096;

/// FirstBurstLength that an initiator offers: nothing of a write is copied where it leaves, so a
/// target that can take more unasked spares a round trip.
pub const INITIATOR_FIRST_BURST: u32 = 256 << 10;
/// R2Ts that an initiator takes per command at once (MaxOutstandingR2T).
pub const INITIATOR_R2T_MAX: usize = 4;
/// Sessions that an initiator has with a target at most, from each shard. Hosts that spread a disk
/// over several take up to 16 (`nconnect`, open-iscsi's `nr_sessions`); their number and the shard's
/// fit into the 16 bits of an ISID that its owner may choose (RFC 7143, 11.12.5), with bits to
/// spare that tell disks apart.
pub const INITIATOR_SESSIONS_MAX: u16 = 32;
/// Commands that an initiator has outstanding on a session at most, whatever window its target opens.
pub const INITIATOR_DEPTH_MAX: u16 = 1024;
/// Data of a reply (inquiry data, sense data, text) that an initiator takes: more than it asks for,
/// and little enough for the small buffer of a receive.
pub const INITIATOR_REPLY_MAX: u32 = 16 << 10;
/// Answers that an initiator takes from its stream before it lets those above it go on: their data,
/// 16 KiB of a 4 KiB read each, fit into a processor's first cache with what is done about them.
pub const ANSWERS_PER_SHARE: u32 = 4;
/// Questions of a target (NOP-In) that an initiator answers in one batch: one that asks more often
/// does not read the answers.
pub const PONGS_MAX: u32 = 16;
/// Tasks that an initiator is having aborted at once: more of them that are late are a target that
/// does not answer at all.
pub const ABORTS_MAX: usize = 4;
/// How often a question about a logical unit is asked again, because of a unit attention or since
/// it is not ready.
pub const QUESTION_TRIES_MAX: u32 = 64;
/// MaxRecvDataSegmentLength of an initiator: a whole read in one Data-In.
pub const INITIATOR_SEGMENT_MAX: u32 = TRANSFER_MAX;
/// The same of a discovery session, whose answers are text.
pub const DISCOVERY_SEGMENT_MAX: u32 = INITIATOR_REPLY_MAX;

/// Targets of a discovery, and all text that tells of them: more is not believed.
pub const DISCOVERY_TARGETS_MAX: usize = 4096;
pub const DISCOVERY_TEXT_MAX: usize = 2 << 20;

/// PDUs of one connection that are handled in a turn.
pub const TURN_PDUS: u32 = 256;

/// A connection must have logged in by then.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// A PDU once begun must be complete by then.
pub const PDU_COMPLETE: Duration = Duration::from_secs(30);
/// Data asked for by R2T, or announced, must have come by then.
pub const DATA_AFTER_R2T: Duration = Duration::from_secs(30);
/// A session without a command for so long, up to twice so long, gives its tables back.
pub const SESSION_IDLE: Duration = Duration::from_secs(5);
/// How long a login waits for what an earlier session of its initiator port has in flight, before
/// it is told "service unavailable" and to come again.
pub const REINSTATEMENT_HOLD: Duration = Duration::from_secs(2);
/// An initiator's session is silent if nothing was heard for half of its keep-alive time and a sign
/// of life, asked for then, has not come within the other half; or within so long, while that
/// question stands behind commands with their data: a target that is short of memory for those
/// reads nothing more until its disk has answered some. A third of what a disk is given before it
/// is stuck, as with NVMe.
pub const SILENT_BEHIND_DATA: Duration = Duration::from_secs(17);
/// A silence so soon after the last one doubles the patience with the next: a target that is slow
/// for all is not helped by reconnects.
pub const SILENCE_AGAIN: Duration = Duration::from_secs(60);
/// Most doublings: then a silent session is found by the deadlines of its requests.
pub const SILENCE_DOUBLINGS_MAX: u32 = 3;
/// An abort of a task must be answered by then.
pub const ABORT_PATIENCE: Duration = Duration::from_secs(5);
/// How soon a logical unit that is not ready, or busy, is asked again.
pub const READY_INTERVAL: Duration = Duration::from_millis(100);
/// The first rest of an initiator whose target has no room for a command (TASK SET FULL, BUSY), which
/// each such rest in a row doubles, and the longest.
pub const FULL_REST_FIRST: Duration = Duration::from_millis(1);
pub const FULL_REST_MAX: Duration = Duration::from_millis(64);
/// An initiator that sent no command for so long asks whether there is something to know: a target
/// tells of changes in answer to commands only.
pub const UNIT_CHECK: Duration = Duration::from_secs(10);
/// The first rest of an initiator after a break, which each break in a row doubles, and the
/// longest.
pub const REST_FIRST: Duration = Duration::from_millis(100);
pub const REST_MAX: Duration = Duration::from_secs(10);
/// DefaultTime2Wait and DefaultTime2Retain that are offered: nothing is retained at level 0.
pub const TIME_TO_WAIT: u16 = 2;
pub const TIME_TO_RETAIN: u16 = 0;

// How the bounds relate.
const _: () = {
    assert!(FIRST_BURST_MAX <= BURST_MAX && FIRST_BURST_MAX >= 512);
    assert!(SEGMENT_MAX >= FIRST_BURST_MAX && BURST_MAX < 1 << 24);
    // A command fits in what one receive can take, with its data and digests.
    assert!(RECEIVE_BUFFER_SMALL > FIRST_BURST_MAX + 4096);
    // What is received directly would not have come with its command.
    assert!(DIRECT_RECEIVE_MIN > FIRST_BURST_MAX);
    assert!(TEXT_MAX >= TEXT_SEGMENT_MAX as usize);
    assert!(TIME_TO_RETAIN == 0);
    assert!(INITIATOR_FIRST_BURST <= BURST_MAX && INITIATOR_SEGMENT_MAX < 1 << 24);
    // A reply is whole in what one receive can take.
    assert!(RECEIVE_BUFFER_SMALL > INITIATOR_REPLY_MAX + 1024 + 64);
    assert!(INITIATOR_REPLY_MAX >= TEXT_SEGMENT_MAX);
    assert!(3 * SILENT_BEHIND_DATA.as_secs() <= DISK_STUCK.as_secs());
};
