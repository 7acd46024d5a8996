//! Macros that declare the structs of `abi.rs`.

/// Declares `repr(C)` structs. abi_stable checks that they are FFI-safe.
macro_rules! abi {
    ($($(#[$m:meta])* struct $name:ident { $($field:ident : $t:ty),* $(,)? })*) => { $(
        $(#[$m])*
        #[repr(C)]
        #[cfg_attr(feature = "stable-abi", derive(abi_stable::StableAbi))]
        pub struct $name { $(pub $field: $t),* }
    )* };
}

/// Implements `Default` with zero in all fields, which means an empty or released struct.
macro_rules! zeroed {
    ($($name:ident),*) => { $(impl Default for $name {
        fn default() -> Self {
            // SAFETY: every field of this struct is an integer, a raw pointer, an optional function
            // pointer or a struct of such fields. Zero bytes are valid for all of them.
            unsafe { core::mem::zeroed() }
        }
    })* };
}

/// Implements `Default`, as `zeroed` does, and `new` for structs that begin with `struct_size`.
macro_rules! sized {
    ($($name:ident),*) => {
        zeroed! { $($name),* }
        $(impl $name {
            /// Creates a struct whose `struct_size` is set and whose other fields are zero.
            pub fn new() -> Self { Self { struct_size: size_of::<Self>(), ..Self::default() } }
        })*
    };
}

/// Implements `Sync` for structs that never change.
macro_rules! immutable {
    ($($name:ident),*) => { $(
        // SAFETY: the struct never changes. Its functions can be called from any thread, and its
        // pointers refer to data that never changes.
        unsafe impl Sync for $name {}
    )* };
}

macro_rules! opaque {
    ($($(#[$m:meta])* $name:ident),*) => { $(
        $(#[$m])*
        #[repr(C)]
        #[cfg_attr(feature = "stable-abi", derive(abi_stable::StableAbi))]
        pub struct $name { _private: [u8; 0] }
    )* };
}
