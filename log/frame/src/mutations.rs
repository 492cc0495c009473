//! How each crate lists the faults that can be planted in it.

/// Declares the enum `Mutation` of the faults that can be planted in a crate. Without the crate's feature
/// `mutations`, which the simulator alone enables, none of them exists.
#[macro_export]
macro_rules! mutations {
    ($($(#[$about:meta])* $fault:ident,)*) => {
        /// A planted fault.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Mutation {
            /// No fault.
            #[default]
            None,
            $(
                $(#[$about])*
                #[cfg(feature = "mutations")]
                $fault,
            )*
        }

        #[cfg(feature = "mutations")]
        impl Mutation {
            /// Every fault there is.
            pub const ALL: &'static [Self] = &[$(Self::$fault,)*];
        }
    };
}
