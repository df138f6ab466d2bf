//! What a target counts: each frame that came is answered, waits, or is dropped for one of these
//! reasons.

use contract::counters;

counters! {
    /// Frames that were dropped in silence, by reason.
    pub struct Drops {
        /// Shorter than its header and argument.
        runt: Frames,
        /// Of or to a link that is not up, or carries no sector.
        link_down: Frames,
        /// For a shelf.slot that is not exported there.
        no_such_export: Frames,
        /// A wildcard address where one target must be meant.
        wildcard: Frames,
        /// To all stations where one must be meant.
        broadcast: Frames,
        /// From a station that may not use the export: not among its hosts, or not in its mask.
        not_allowed: Frames,
        /// A query for another config string.
        no_match: Frames,
        /// Beyond the export's buffer count.
        over_buffers: Frames,
        /// No memory for its data.
        no_memory: Frames,
        /// A copy of a write that is in flight.
        repeated_in_flight: Frames,
        /// A copy of a write whose sectors were written again since.
        repeated_superseded: Frames,
        /// A copy of a write that was refused a moment ago, and would not be now.
        repeated_refused: Frames,
        /// Waited for a frame that it overlaps for too long.
        stale: Frames,
        /// A wildcard query or a change, while too many are under way; or one that is under way
        /// already.
        busy: Frames,
        /// An answer that does not fit the link.
        too_large: Frames,
        /// An answer while too many wait to be sent.
        unsent: Frames,
    }
}

counters! {
    /// What was done.
    pub struct TargetCounters {
        /// Frames that came and were for AoE targets.
        frames: Frames,
        /// Frames that were sent.
        answers: Frames,
        /// Reads that came.
        reads: Operations,
        /// Writes that came.
        writes: Operations,
        /// Bytes read.
        read_bytes: Bytes,
        /// Bytes written.
        write_bytes: Bytes,
        /// Other ATA commands that came.
        other_ata: Operations,
        /// Queries of config strings, masks and reservations.
        queries: Operations,
        /// Changes of config strings, masks and reservations.
        changes: Operations,
        /// Announcements that were sent.
        announcements: Frames,
        /// Answers with the E flag.
        refused: Frames,
        /// Answers with ERR.
        failed: Frames,
        /// Copies of writes that were answered and not carried out again.
        repeated_answered: Frames,
        /// Frames that waited for one that they overlap.
        waited: Frames,
        /// Flushes, each for all writes of an export that were completed before.
        flushes: Operations,
        /// Times that a write, or a thousand, were forgotten before their time was over.
        repeats_lapsed: Events,
        /// Bytes that are held to know repeated writes.
        repeat_bytes: Bytes now,
        /// Responses of other targets that were heard.
        responses_heard: Frames,
    }
}

counters! {
    /// What went through an export on this shard.
    pub struct Traffic {
        /// Reads that came.
        reads: Operations,
        /// Writes that came.
        writes: Operations,
        /// Bytes read.
        read_bytes: Bytes,
        /// Bytes written.
        write_bytes: Bytes,
        /// Commands beyond the export's buffer count, which were dropped.
        over_buffers: Frames,
    }
}
