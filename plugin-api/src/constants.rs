//! Declares the constants of `include/crossdock.h`, which documents them. A test compares the
//! values of both.
#![allow(missing_docs)]

pub const ABI_MAJOR: u32 = 1;
pub const ABI_MINOR: u32 = 0;
pub const ABI_PATCH: u32 = 0;
pub const PLUGIN_MAGIC: u64 = u64::from_le_bytes(*b"XDPLGIN1");
pub const META_MAGIC: u64 = u64::from_le_bytes(*b"XDCKMTA1");
pub const ENTRY_SYMBOL: &str = "crossdock_plugin_v1";
pub const META_SYMBOL: &str = "crossdock_plugin_meta_v1";

pub type Code = i32;
pub const OK: Code = 0;
pub const INVALID_ARGUMENT: Code = 1;
pub const UNSUPPORTED: Code = 2;
pub const BAD_DATA: Code = 3;
pub const VERSION: Code = 4;
pub const OUT_OF_MEMORY: Code = 5;
pub const DEVICE: Code = 6;
pub const IO: Code = 7;
pub const CANCELLED: Code = 8;
pub const PANICKED: Code = 9;
pub const INTERNAL: Code = 10;

pub const ERROR_RETRY: u32 = 1;
pub const ERROR_HAS_OFFSET: u32 = 2;
pub const ERROR_HAS_ROW: u32 = 4;

pub const DEVICE_CPU: i32 = 1;
pub const DEVICE_CUDA: i32 = 2;
pub const DEVICE_CUDA_HOST: i32 = 3;
pub const DEVICE_EXT_DEV: i32 = 12;
pub const DEVICE_CUDA_MANAGED: i32 = 13;

pub const FLAG_DICTIONARY_ORDERED: i64 = 1;
pub const FLAG_NULLABLE: i64 = 2;
pub const FLAG_MAP_KEYS_SORTED: i64 = 4;

pub const VALIDATE_LAYOUT: u32 = 0;
pub const VALIDATE_FULL: u32 = 1;

pub const FORMAT_BYTES: u32 = 1;
pub const FORMAT_CAPSULES: u32 = 2;
pub const FORMAT_FILTERS: u32 = 4;
pub const FORMAT_SEVERAL: u32 = 8;
pub const FORMAT_DEVICE_ROWS: u32 = 16;

pub const READ_COLUMNS: u32 = 1;
pub const READ_ROWS: u32 = 2;
pub const READ_FILTER: u32 = 4;
pub const READ_ROW_COUNT: u32 = 8;
pub const READ_WRITE_OPTIONS: u32 = 16;

pub const MAX_TOKEN_BYTES: usize = 65536;

pub const COMPARE_EQUAL: u32 = 1;
pub const COMPARE_NOT_EQUAL: u32 = 2;
pub const COMPARE_LESS: u32 = 3;
pub const COMPARE_LESS_EQUAL: u32 = 4;
pub const COMPARE_GREATER: u32 = 5;
pub const COMPARE_GREATER_EQUAL: u32 = 6;

pub const HONOURS_COLUMNS: u32 = 1;
pub const HONOURS_ROWS: u32 = 2;
pub const HAS_ROW_COUNT: u32 = 4;
pub const PRUNES_ROWS: u32 = 8;

pub const ZERO_COPY: u32 = 0;
pub const CONVERTED: u32 = 1;
pub const COPIED: u32 = 2;
pub const CANNOT: u32 = 3;

pub const ARG_VALUE: u32 = 0;
pub const ARG_READ: u32 = 1;
pub const ARG_WRITE: u32 = 2;

pub const FREE_EXPORTED: u32 = 1;

pub const OP_LOAD: u32 = 1;
pub const OP_UNPACK: u32 = 2;
pub const OP_CHILD: u32 = 3;
pub const OP_SEQUENCE: u32 = 4;
pub const OP_DICTIONARY: u32 = 5;
pub const OP_RUNS: u32 = 6;
pub const OP_ADD: u32 = 7;
pub const OP_XOR: u32 = 8;
pub const OP_ZIGZAG: u32 = 9;
pub const OP_TO_FLOAT: u32 = 10;
pub const OP_SCALE: u32 = 11;
pub const OP_PATCH: u32 = 12;
pub const OP_VALIDITY: u32 = 13;
pub const OP_CAST: u32 = 14;
pub const OP_TERM: u32 = 15;
pub const OP_JOIN: u32 = 16;
pub const OP_PATCH_LEFT: u32 = 17;
pub const MAX_OPERATORS: usize = 32;

pub const KERNEL_MANY_ARGS: u32 = 1;
pub const MAX_KERNEL_ARGS: usize = 168;
pub const HOST_KERNEL_THREADS: u32 = 256;
pub const IMAGE_SET_MAGIC: u64 = u64::from_le_bytes(*b"XDIMGES1");
pub const IMAGE_CUBIN: u32 = 1;
pub const IMAGE_PTX: u32 = 2;

pub const LOG_ERROR: i32 = 1;
pub const LOG_WARN: i32 = 2;
pub const LOG_INFO: i32 = 3;
pub const LOG_DEBUG: i32 = 4;
pub const LOG_TRACE: i32 = 5;

pub const IMPORTER_ID: &core::ffi::CStr = c"crossdock.importer/1";
pub const ENCODER_ID: &core::ffi::CStr = c"crossdock.encoder/1";
pub const OPENER_ID: &core::ffi::CStr = c"crossdock.opener/1";
pub const EXPORTER_ID: &core::ffi::CStr = c"crossdock.exporter/1";
pub const ENCODING_ID: &core::ffi::CStr = c"crossdock.encoding/1";
/// `CROSSDOCK_LENGTH_UNKNOWN`.
pub const LENGTH_UNKNOWN: u64 = u64::MAX;
pub const HOST_LOG_ID: &core::ffi::CStr = c"crossdock.host.log/1";
pub const HOST_DECODE_ID: &core::ffi::CStr = c"crossdock.host.decode/1";
pub const HOST_KERNELS_ID: &core::ffi::CStr = c"crossdock.host.kernels/1";
pub const HOST_SESSION_ID: &core::ffi::CStr = c"crossdock.host.session/1";
pub const HOST_LOADER_ID: &core::ffi::CStr = c"crossdock.host.loader/1";
pub const HOST_TASKS_ID: &core::ffi::CStr = c"crossdock.host.tasks/1";
pub const HOST_MEMORY_ID: &core::ffi::CStr = c"crossdock.host.memory/1";
