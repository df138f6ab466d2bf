//! What a target counts: each frame that came is answered, waits, or is dropped for one of these reasons.

use contract::counters;

counters! {
    /// Frames that were dropped in silence, by reason.
    pub struct Drops {
        /// Shorter than its header and argument.
        runt,
        /// Of or to a link that is not up, or carries no sector.
        link_down,
        /// For a shelf.slot that is not exported there.
        no_such_export,
        /// A wildcard address where one target must be meant.
        wildcard,
        /// To all stations where one must be meant.
        broadcast,
        /// From a station that may not use the export: not among its hosts, or not in its mask.
        not_allowed,
        /// A query for another config string.
        no_match,
        /// Beyond the export's buffer count.
        over_buffers,
        /// No memory for its data.
        no_memory,
        /// A copy of a write that is in flight.
        repeated_in_flight,
        /// A copy of a write whose sectors were written again since.
        repeated_superseded,
        /// A copy of a write that was refused a moment ago, and would not be now.
        repeated_refused,
        /// Waited for a frame that it overlaps for too long.
        stale,
        /// A wildcard query or a change, while too many are under way; or one that is under way already.
        busy,
        /// An answer that does not fit the link.
        too_large,
        /// An answer while too many wait to be sent.
        unsent,
    }
}

counters! {
    /// What was done.
    pub struct Counters {
        /// Frames that came and were for AoE targets.
        frames,
        /// Frames that were sent.
        answers,
        /// Reads.
        reads,
        /// Writes.
        writes,
        /// Bytes read.
        read_bytes,
        /// Bytes written.
        write_bytes,
        /// Other ATA commands.
        other_ata,
        /// Queries.
        queries,
        /// Changes of config strings, masks and reservations.
        changes,
        /// Announcements.
        announcements,
        /// Answers with the E flag.
        refused,
        /// Answers with ERR.
        failed,
        /// Copies of writes that were answered and not carried out again.
        repeated_answered,
        /// Frames that waited for one that they overlap.
        waited,
        /// Flushes, each for all writes of an export that were completed before.
        flushes,
        /// Times that a write, or a thousand, were forgotten before their second was over.
        repeats_lapsed,
        /// Responses of other targets that were heard.
        responses_heard,
    }
}
