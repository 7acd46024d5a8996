//! The structs of `include/crossdock-host.h`, which documents their fields. `tests/cpu/header.rs`
//! checks that the layouts agree.
#![allow(missing_docs)]

use core::ffi::c_void;

use crossdock_plugin_api::Release;
use crossdock_plugin_api::abi::{ArrowSchema, Device, OptionPair, Path, RowRange, Str};

pub type Progress = unsafe extern "C" fn(*mut c_void, u64, u64);
pub type Log = unsafe extern "C" fn(*mut c_void, i32, Str, Str);
pub type ReleaseData = unsafe extern "C" fn(*mut c_void);

/// Declares `repr(C)` structs whose first field is `struct_size` and for which all zeros are valid.
macro_rules! abi {
    ($(struct $name:ident = $c:literal { $($field:ident : $t:ty),* $(,)? })*) => {
        $(
            #[repr(C)]
            pub struct $name { pub struct_size: usize, $(pub $field: $t),* }

            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: every field is an integer, a raw pointer, an optional function
                    // pointer, or a struct of such fields. All zeros are valid for these types.
                    unsafe { core::mem::zeroed() }
                }
            }

            // SAFETY: the struct is `repr(C)`, and `struct_size` is its first field. All zeros are
            // valid, because every other field is an integer, a raw pointer, an optional function
            // pointer, or a struct of such fields.
            unsafe impl SizedStruct for $name {}
        )*

        /// Lists for each struct: the name in C, the size, the alignment, and the name and offset
        /// of each field. A test compares this list with the values of a C compiler.
        #[allow(clippy::type_complexity, dead_code)]
        pub fn layouts() -> Vec<(&'static str, usize, usize, Vec<(&'static str, usize)>)> {
            vec![ $((
                $c,
                size_of::<$name>(),
                align_of::<$name>(),
                vec![
                    ("struct_size", core::mem::offset_of!($name, struct_size)),
                    $((stringify!($field), core::mem::offset_of!($name, $field))),*
                ],
            )),* ]
        }
    };
}

/// A struct that begins with its `struct_size`.
///
/// # Safety
/// The type is `repr(C)`, its first field is a `usize`, and all zeros are valid for it.
pub unsafe trait SizedStruct: Default {}

abi! {
    struct HostSettings = "crossdock_host_settings" {
        plugins: *const Str,
        n_plugins: usize,
        flags: u32,
        threads: u32,
        memory_limit: u64,
        log: Option<Log>,
        log_data: *mut c_void,
        log_release: Option<ReleaseData>,
        log_level: i32,
        reserved: u32,
    }
    struct Candidate = "crossdock_candidate" {
        path: Str,
        origin: Str,
        name: Str,
        version: Str,
        description: Str,
        formats: Str,
        status: u32,
        reserved: u32,
        reason: Str,
        message: Str,
    }
    struct Candidates = "crossdock_candidates" {
        candidates: *const Candidate,
        n_candidates: usize,
        warnings: *const Str,
        n_warnings: usize,
        release: Option<unsafe extern "C" fn(*mut Candidates)>,
        private_data: *mut c_void,
    }
    struct Ledger = "crossdock_ledger" {
        live_bytes: u64,
        live_blocks: u64,
        cached_bytes: u64,
        copied_h2d: u64,
        copied_d2h: u64,
        copied_d2d: u64,
        copied_h2h: u64,
    }
    struct Leak = "crossdock_leak" {
        account: Str,
        device: Device,
        bytes: u64,
        blocks: u64,
        streams: u64,
        events: u64,
        references: u64,
    }
    struct Leaks = "crossdock_leaks" {
        leaks: *const Leak,
        n_leaks: usize,
        release: Option<unsafe extern "C" fn(*mut Leaks)>,
        private_data: *mut c_void,
    }
    struct SessionSettings = "crossdock_session_settings" {
        device: Device,
        flags: u32,
        validate: u32,
        byte_budget: u64,
    }
    struct ReadSettings = "crossdock_read_settings" {
        format: Str,
        options: *const OptionPair,
        n_options: usize,
        schema: *const ArrowSchema,
        progress: Option<Progress>,
        progress_data: *mut c_void,
        flags: u32,
        reserved: u32,
        columns: *const Path,
        n_columns: usize,
        rows: *const RowRange,
        n_rows: usize,
        limit: u64,
        batch_rows: u64,
        filters: *const Str,
        n_filters: usize,
        storage_options: *const OptionPair,
        n_storage_options: usize,
    }
    struct Part = "crossdock_part" {
        data: *const c_void,
        bytes: usize,
    }
    struct Parts = "crossdock_parts" {
        header: *const c_void,
        header_bytes: usize,
        buffers: *const Part,
        n_buffers: usize,
        release: Option<unsafe extern "C" fn(*mut Parts)>,
        private_data: *mut c_void,
    }
    struct Received = "crossdock_received" {
        data: *const c_void,
        bytes: usize,
        release: Option<ReleaseData>,
        release_data: *mut c_void,
    }
    struct WriteSettings = "crossdock_write_settings" {
        format: Str,
        options: *const OptionPair,
        n_options: usize,
    }
    struct ConvertSettings = "crossdock_convert_settings" {
        from: Str,
        to: Str,
        via: *const Str,
        n_via: usize,
        columns: *const Str,
        n_columns: usize,
        read_options: *const OptionPair,
        n_read_options: usize,
        write_options: *const OptionPair,
        n_write_options: usize,
        progress: Option<Progress>,
        progress_data: *mut c_void,
        storage_options: *const OptionPair,
        n_storage_options: usize,
    }
    struct Stage = "crossdock_stage" {
        kind: Str,
        plugin: Str,
        format: Str,
        rows: u64,
        batches: u64,
        bytes: u64,
        time_ns: u64,
        copied_h2d: u64,
        copied_d2h: u64,
        copied_d2d: u64,
        copied_h2h: u64,
    }
    struct Report = "crossdock_report" {
        rows: u64,
        batches: u64,
        bytes: u64,
        copied: u64,
        time_ns: u64,
        stages: *const Stage,
        n_stages: usize,
        release: Option<unsafe extern "C" fn(*mut Report)>,
        private_data: *mut c_void,
    }
}

macro_rules! released {
    ($($name:ident),*) => { $(
        // SAFETY: `struct_size` is the first field. `release` calls the struct's own function once,
        // because `take` clears the field.
        unsafe impl Release for $name {
            const HAS_STRUCT_SIZE: bool = true;
            fn is_released(&self) -> bool { self.release.is_none() }
            unsafe fn release(&mut self) {
                if let Some(release) = self.release.take() {
                    // SAFETY: the caller of `Release::release` guarantees a valid struct, and the
                    // function is the one that the struct contains.
                    unsafe { release(self) };
                }
            }
        }
    )* };
}
released!(Candidates, Leaks, Report, Parts);

pub const HOST_ONLY_GIVEN: u32 = 1;
pub const HOST_LENIENT: u32 = 2;
pub const HOST_UNTOUCHABLE: u32 = 4;

pub const CANDIDATE_CHOSEN: u32 = 0;
pub const CANDIDATE_REFUSED: u32 = 1;
pub const CANDIDATE_SHADOWED: u32 = 2;

pub const READ_LIMIT: u32 = 1 << 16;
pub const READ_DEVICE_ROWS: u32 = 1 << 17;

pub const SESSION_VALIDATE: u32 = 1;
