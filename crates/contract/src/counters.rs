//! Counters with names, so that whoever shows them needs no list of them.

/// Makes a structure of counters: plain numbers that can be added up and shown by their names.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$about:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$about])* pub $field: u64,)*
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

#[cfg(test)]
mod tests {
    #![allow(unreachable_pub)]

    counters! {
        pub struct Drops {
            runt,
            stale,
            busy,
        }
    }

    #[test]
    fn each_counter_has_its_name_and_they_add_up() {
        let mut drops = Drops { stale: 2, ..Drops::default() };
        drops.add(&Drops { stale: 3, runt: 1, ..Drops::default() });
        let named: Vec<_> = drops.each().filter(|(_, count)| *count > 0).collect();
        assert_eq!(named, [("runt", 1), ("stale", 5)]);
    }
}
