//! Methods of an enum that are the same call to whichever of its variants it is, without a table of
//! pointers on the way of every request.

/// Makes a method of each signature, which its machine has under the same name. `$each` is a macro
/// with an arm for each variant; behind a semicolon stands a context, of which each machine is
/// given that of its protocol.
macro_rules! dispatch {
    ($each:ident:) => {};
    (
        $each:ident: $(#[$attribute:meta])*
        fn $name:ident(&mut $self:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name(&mut $self $(, $argument: $type)*) $(-> $result)? {
            $each!($self, machine => machine.$name($($argument),*))
        }
        dispatch! { $each: $($rest)* }
    };
    (
        $each:ident: $(#[$attribute:meta])*
        fn $name:ident(&mut $self:ident $(, $argument:ident: $type:ty)*; $context:ident)
            $(-> $result:ty)?;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name(
            &mut $self $(, $argument: $type)*, $context: &mut Context<'_>
        ) $(-> $result)? {
            $each!($self, $context, machine => machine.$name($($argument,)* $context))
        }
        dispatch! { $each: $($rest)* }
    };
    (
        $each:ident: $(#[$attribute:meta])*
        fn $name:ident(&$self:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name(&$self $(, $argument: $type)*) $(-> $result)? {
            $each!($self, machine => machine.$name($($argument),*))
        }
        dispatch! { $each: $($rest)* }
    };
}

pub(crate) use dispatch;
