//! What a target counts: each frame that came is answered, waits, or is dropped for one of these reasons.

macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[doc = $text:literal])+ $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $text])+ pub $field: u64,)*
        }

        impl $name {
            /// Each with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }

            /// Adds what another one counted.
            pub fn add(&mut self, other: &$name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Frames that were dropped in silence, by reason.
    pub struct Drops {
        /// Shorter than its header and argument.
        runt,
        /// Not of EtherType 88A2.
        other_type,
        /// Of another VLAN than the link's, or tagged where the link is not.
        other_vlan,
        /// To another station (an interface that hears all), or to a group that is not all.
        other_station,
        /// From a group address, which no station has.
        group_source,
        /// A link that is not up.
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
        /// Times that a thousand writes were forgotten before their second was over.
        repeats_lapsed,
        /// Responses of other targets that were heard.
        responses_heard,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_name_and_they_add_up() {
        let mut drops = Drops { stale: 2, ..Drops::default() };
        drops.add(&Drops { stale: 3, runt: 1, ..Drops::default() });
        let named: Vec<_> = drops.each().filter(|(_, count)| *count > 0).collect();
        assert_eq!(named, [("runt", 1), ("stale", 5)]);
    }
}
