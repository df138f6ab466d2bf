//! Codes as newtypes: what is a number on the wire, has names in the standard, and must
//! survive when nobody knows it.
//!
//! [`codes!`] declares a code (PDU types, opcodes, feature and log identifiers, FES ...),
//! [`names!`] gives names to a newtype whose code is only a part of it (a
//! [`Status`](crate::nvme::Status)). The value itself is always the public field: `Code(7)` in,
//! `code.0` out; parsing and emitting go by [`Field`](crate::field::Field), so that all of them may
//! stand in a `layout!`.

/// Named constants of a newtype, and the way back from a value to its name. `by` says which part of
/// the newtype the names are for.
macro_rules! names {
    ($name:ident by |$it:ident| $code:expr; $($konst:ident = $value:literal $text:literal,)*) => {
        impl $name {
            $(#[doc = $text] pub const $konst: Self = Self($value);)*

            /// The standard's name, if this crate knows the value.
            pub const fn name(self) -> Option<&'static str> {
                let $it = self;
                match $code {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

/// How a newtype over an integer stands in a header: as the integer does, in either byte order.
macro_rules! stands_as {
    ($name:ident($int:ty)) => {
        stands_as!(@Field $name($int));
        stands_as!(@BigEndianField $name($int));
    };
    (@$order:ident $name:ident($int:ty)) => {
        impl $crate::field::$order for $name {
            const SIZE: usize = size_of::<$int>();
            #[inline(always)]
            fn get(bytes: &[u8], at: usize) -> Self {
                Self(<$int as $crate::field::$order>::get(bytes, at))
            }
            #[inline(always)]
            fn put(&self, bytes: &mut [u8], at: usize) {
                <$int as $crate::field::$order>::put(&self.0, bytes, at);
            }
        }
    };
}

/// A code: a newtype over an integer with the standard's names for the values it knows. `Display`
/// prints the name, or the number when there is none.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($int:ty) {
            $($konst:ident = $value:literal $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        names! { $name by |code| code.0; $($konst = $value $text,)* }
        stands_as!($name($int));

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{:#04x}", self.0),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#04x} {})"), self.0, self.name().unwrap_or("?"))
            }
        }
    };
}
