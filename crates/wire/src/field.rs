//! How a field lies in bytes, and the macros that make tables of fields and of bits; codes are
//! declared by those of [`codes`](crate::codes).
//!
//! [`Field`] is little-endian: NVMe and ATA are. [`BigEndianField`] is for the tables of iSCSI and of
//! what carries frames; headers of few fields, like AoE's, are read by hand. They are two traits, so that a structure which is
//! little-endian cannot stand in a big-endian table. Everything is inlined, and on an array of known
//! size the bounds checks fold away, so the tables cost what hand-written loads cost.

/// A value with one little-endian representation of `SIZE` bytes; every bit pattern is a value.
pub(crate) trait Field: Sized {
    /// Size in bytes.
    const SIZE: usize;
    /// Reads the value at byte `at`; panics when the bytes end before it does.
    fn get(bytes: &[u8], at: usize) -> Self;
    /// Writes the value at byte `at`; panics when the bytes end before it does.
    fn put(&self, bytes: &mut [u8], at: usize);
}

/// A value with one big-endian representation of `SIZE` bytes; every bit pattern is a value.
pub(crate) trait BigEndianField: Sized {
    /// Size in bytes.
    const SIZE: usize;
    /// Reads the value at byte `at`; panics when the bytes end before it does.
    fn get(bytes: &[u8], at: usize) -> Self;
    /// Writes the value at byte `at`; panics when the bytes end before it does.
    fn put(&self, bytes: &mut [u8], at: usize);
}

macro_rules! integer_fields {
    ($trait:ident $from:ident $to:ident: $($int:ty),*) => {$(
        impl $trait for $int {
            const SIZE: usize = size_of::<$int>();
            #[inline(always)]
            fn get(bytes: &[u8], at: usize) -> Self {
                let mut raw = [0; size_of::<$int>()];
                raw.copy_from_slice(&bytes[at..at + size_of::<$int>()]);
                <$int>::$from(raw)
            }
            #[inline(always)]
            fn put(&self, bytes: &mut [u8], at: usize) {
                bytes[at..at + size_of::<$int>()].copy_from_slice(&self.$to());
            }
        }
    )*};
}
integer_fields!(Field from_le_bytes to_le_bytes: u8, u16, u32, u64, u128);
integer_fields!(BigEndianField from_be_bytes to_be_bytes: u8, u16, u32, u64, u128);

macro_rules! array_fields {
    ($trait:ident) => {
        impl<T: $trait, const N: usize> $trait for [T; N] {
            const SIZE: usize = T::SIZE * N;
            #[inline(always)]
            fn get(bytes: &[u8], at: usize) -> Self {
                core::array::from_fn(|index| T::get(bytes, at + index * T::SIZE))
            }
            #[inline(always)]
            fn put(&self, bytes: &mut [u8], at: usize) {
                for (index, value) in self.iter().enumerate() {
                    value.put(bytes, at + index * T::SIZE);
                }
            }
        }
    };
}
array_fields!(Field);
array_fields!(BigEndianField);

/// Panics at compile time unless the `(offset, size)` rows ascend, are disjoint and end by `total`.
pub(crate) const fn assert_layout(rows: &[(usize, usize)], total: usize) {
    let mut end = 0;
    let mut row = 0;
    while row < rows.len() {
        assert!(rows[row].0 >= end, "fields overlap or are out of order");
        end = rows[row].0 + rows[row].1;
        row += 1;
    }
    assert!(end <= total, "fields end behind the structure");
}

/// A structure of `N` bytes as one table `offset => field: type`; bytes not named are reserved:
/// ignored by `parse`, zero in `emit`. Makes `SIZE`, `parse`, `emit` and a `Default` of zeros.
/// Little-endian, unless `big_endian:` stands in front of it.
macro_rules! layout {
    (big_endian: $($table:tt)*) => { layout! { @BigEndianField $($table)* } };
    ($(#[$meta:meta])* pub struct $($table:tt)*) => {
        layout! { @Field $(#[$meta])* pub struct $($table)* }
    };
    (
        @$order:ident
        $(#[$meta:meta])*
        pub struct $name:ident [$size:literal] {
            $($(#[$field_meta:meta])* $offset:literal => $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        const _: () = $crate::field::assert_layout(
            &[$(($offset, <$type as $crate::field::$order>::SIZE)),*],
            $size,
        );

        impl $name {
            /// Size on the wire, in bytes.
            pub const SIZE: usize = $size;

            /// Reads the structure from the first [`Self::SIZE`] bytes; the only error is an input
            /// that ends before them.
            #[inline]
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::ParseError> {
                match bytes.first_chunk::<$size>() {
                    Some(bytes) => Ok(<Self as $crate::field::$order>::get(bytes, 0)),
                    None => Err($crate::ParseError::short($size, bytes.len())),
                }
            }

            /// The structure as bytes, reserved ones zero.
            #[inline]
            pub fn emit(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $(<$type as $crate::field::$order>::put(&self.$field, &mut bytes, $offset);)*
                bytes
            }

        }

        impl $crate::field::$order for $name {
            const SIZE: usize = $size;
            #[inline(always)]
            fn get(bytes: &[u8], at: usize) -> Self {
                let bytes = &bytes[at..at + $size];
                Self { $($field: <$type as $crate::field::$order>::get(bytes, $offset),)* }
            }
            #[inline(always)]
            fn put(&self, bytes: &mut [u8], at: usize) {
                bytes[at..at + $size].copy_from_slice(&self.emit());
            }
        }

        impl Default for $name {
            fn default() -> Self {
                <Self as $crate::field::$order>::get(&[0; $size], 0)
            }
        }
    };
}

/// A register: a newtype over an integer with bit fields (`get / with: first bit, width;`) and
/// flags (`get / with: bit;`). A value too wide for its field is cut, as hardware would.
macro_rules! bits {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($int:ty) {
            fields { $($(#[$field_meta:meta])* $get:ident / $with:ident: $first:literal, $width:literal;)* }
            flags { $($(#[$flag_meta:meta])* $flag:ident / $with_flag:ident: $bit:literal;)* }
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            $(
                $(#[$field_meta])*
                #[inline]
                pub const fn $get(self) -> $int {
                    (self.0 >> $first) & (<$int>::MAX >> (<$int>::BITS - $width))
                }

                #[doc = concat!("With [`Self::", stringify!($get), "`] replaced.")]
                #[inline]
                #[must_use]
                pub const fn $with(self, value: $int) -> Self {
                    let mask = <$int>::MAX >> (<$int>::BITS - $width);
                    Self(self.0 & !(mask << $first) | (value & mask) << $first)
                }
            )*
            $(
                $(#[$flag_meta])*
                #[inline]
                pub const fn $flag(self) -> bool {
                    self.0 >> $bit & 1 == 1
                }

                #[doc = concat!("With [`Self::", stringify!($flag), "`] replaced.")]
                #[inline]
                #[must_use]
                pub const fn $with_flag(self, value: bool) -> Self {
                    Self(self.0 & !(1 << $bit) | (value as $int) << $bit)
                }
            )*
        }

        stands_as!($name($int));
    };
}

/// The big-endian 16-bit number at byte `at`; panics when the bytes end before it does.
#[inline(always)]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32-bit number at byte `at`; panics when the bytes end before it does.
#[inline(always)]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
