//! Counters, each stated once: its name, its unit and what it means. A machine counts in plain
//! fields; whoever adds up, compares, stores or shows needs no list of them.
//!
//! A *counter* only grows, from 0 at the start of whoever counts; a *level* is what there is now.
//! The names are public: they are the keys of the control API.

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    /// Of Ethernet.
    Frames,
    /// Of a protocol; reads, writes and flushes of a disk, too.
    Operations,
    Connections,
    Buffers,
    /// Times that something happened.
    Events,
    Nanoseconds,
}

/// How a number goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Level,
}

/// What is known of a counter or a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// In `snake_case`; one in bytes ends in `_bytes`, one in nanoseconds in `_ns`.
    pub name: &'static str,
    pub unit: Unit,
    pub kind: Kind,
    /// A sentence for whoever reads the number.
    pub meaning: &'static str,
}

/// A structure that [`counters!`](crate::counters!) made.
pub trait Counters: Copy + Default {
    /// In the order of the fields.
    const LIST: &'static [Counter];

    fn values(&self) -> impl Iterator<Item = u64>;

    fn values_mut(&mut self) -> impl Iterator<Item = &mut u64>;

    fn each(&self) -> impl Iterator<Item = (&'static Counter, u64)> {
        Self::LIST.iter().zip(self.values())
    }

    /// What was counted since it looked like `earlier`; levels are as they are now.
    #[must_use]
    fn since(mut self, earlier: &Self) -> Self {
        for ((counter, value), before) in
            Self::LIST.iter().zip(self.values_mut()).zip(earlier.values())
        {
            if counter.kind == Kind::Counter {
                *value -= before;
            }
        }
        self
    }
}

/// Makes a structure of counters: plain numbers that can be added up and shown by their names. A
/// field has its meaning as its comment, and its unit as its type; `now` marks a level.
///
/// ```
/// contract::counters! {
///     /// What a queue did.
///     pub struct QueueCounters {
///         /// Bytes that went through it.
///         sent_bytes: Bytes,
///         /// Connections that wait in it.
///         waiting: Connections now,
///     }
/// }
/// let mut all = QueueCounters::default();
/// all += QueueCounters { sent_bytes: 512, waiting: 1 };
/// ```
#[macro_export]
macro_rules! counters {
    (@kind) => { $crate::counters::Kind::Counter };
    (@kind now) => { $crate::counters::Kind::Level };
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[doc = $meaning:literal])+ $field:ident: $unit:ident $($now:ident)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name {
            $($(#[doc = $meaning])+ $vis $field: u64,)*
        }

        impl $crate::Counters for $name {
            const LIST: &'static [$crate::counters::Counter] = &[$($crate::counters::Counter {
                name: stringify!($field),
                unit: $crate::counters::Unit::$unit,
                kind: $crate::counters!(@kind $($now)?),
                meaning: concat!($($meaning),+).trim_ascii_start(),
            }),*];

            fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$field),*].into_iter()
            }

            fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$field),*].into_iter()
            }
        }

        impl core::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field += other.$field;)*
            }
        }

        impl core::iter::Sum for $name {
            fn sum<I: Iterator<Item = $name>>(all: I) -> $name {
                all.fold($name::default(), |mut sum, one| {
                    sum += one;
                    sum
                })
            }
        }
    };
}

/// Why something goes nowhere: an enum, and a set of counters with one for each of its reasons, so that
/// each is stated once, as a name, a sentence and a counter.
///
/// ```
/// contract::drops! {
///     /// Why a frame goes nowhere.
///     pub enum DropReason;
///     /// Frames that went nowhere, by reason.
///     pub struct Drops;
///     /// Ended before its header did.
///     Runt runt,
/// }
/// let mut drops = Drops::default();
/// drops.count(DropReason::Runt);
/// assert_eq!((drops.of(DropReason::Runt), DropReason::ALL.len()), (1, 1));
/// ```
#[macro_export]
macro_rules! drops {
    (
        $(#[$of_reasons:meta])* $vis:vis enum $reasons:ident;
        $(#[$of_counts:meta])* $counts_vis:vis struct $counts:ident;
        $($(#[doc = $meaning:literal])+ $reason:ident $field:ident,)*
    ) => {
        $(#[$of_reasons])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $reasons {
            $($(#[doc = $meaning])+ $reason,)*
        }

        impl $reasons {
            /// All of them.
            $vis const ALL: &'static [$reasons] = &[$($reasons::$reason),*];
        }

        $crate::counters! {
            $(#[$of_counts])*
            $counts_vis struct $counts {
                $($(#[doc = $meaning])+ $field: Frames,)*
            }
        }

        impl $counts {
            /// One more for this reason.
            $counts_vis fn count(&mut self, reason: $reasons) {
                *match reason {
                    $($reasons::$reason => &mut self.$field,)*
                } += 1;
            }

            /// How many there were for this reason.
            $counts_vis fn of(&self, reason: $reasons) -> u64 {
                match reason {
                    $($reasons::$reason => self.$field,)*
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::{Counters, Kind, Unit};

    counters! {
        struct Drops {
            /// Shorter than
            /// its header.
            runt: Frames,
            /// Waited for too long.
            stale: Frames,
            /// Bytes that wait.
            waiting_bytes: Bytes now,
        }
    }

    const MANY: Drops = Drops { runt: 1, stale: 5, waiting_bytes: 7 };

    #[test]
    fn a_counter_is_listed_with_its_name_its_unit_and_its_meaning() {
        let named: Vec<_> = MANY.each().map(|(counter, value)| (counter.name, value)).collect();
        assert_eq!(named, [("runt", 1), ("stale", 5), ("waiting_bytes", 7)]);
        let [runt, stale, waiting] = Drops::LIST else { panic!("{:?}", Drops::LIST) };
        assert_eq!((runt.unit, runt.kind), (Unit::Frames, Kind::Counter));
        assert_eq!(runt.meaning, "Shorter than its header.");
        assert_eq!((stale.meaning, stale.unit), ("Waited for too long.", Unit::Frames));
        assert_eq!((waiting.unit, waiting.kind), (Unit::Bytes, Kind::Level));
    }

    #[test]
    fn counters_of_many_add_up() {
        let some = Drops { stale: 2, ..Drops::default() };
        let rest = Drops { stale: 3, runt: 1, waiting_bytes: 7 };
        assert_eq!([some, rest].into_iter().sum::<Drops>(), MANY);
    }

    #[test]
    fn counters_tell_what_was_counted_since_and_levels_what_is_now() {
        let earlier = Drops { stale: 2, runt: 1, waiting_bytes: 9 };
        let since = Drops { stale: 3, runt: 0, waiting_bytes: 7 };
        assert_eq!(MANY.since(&earlier), since);
    }

    drops! {
        /// Why a letter is not delivered.
        enum Reason;
        /// Letters that were not, by reason.
        struct Letters;
        /// Without an address.
        NoAddress no_address,
        /// Too heavy.
        Heavy heavy,
    }

    #[test]
    fn each_reason_to_drop_has_a_counter_of_its_own() {
        for (index, &reason) in Reason::ALL.iter().enumerate() {
            let mut letters = Letters::default();
            letters.count(reason);
            assert_eq!(letters.of(reason), 1, "{reason:?}");
            assert_eq!(letters.values().position(|count| count == 1), Some(index), "{reason:?}");
            assert_eq!(letters.values().sum::<u64>(), 1, "{reason:?}");
        }
        assert_eq!(Reason::ALL.len(), Letters::LIST.len());
    }
}
