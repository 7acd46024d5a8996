//! The library: each kernel with its CPU implementation and, for CUDA, the images.

use std::ffi::CStr;
use std::sync::OnceLock;

use crossdock_kernels::rows;
use crossdock_kernels::table::Row;
use crossdock_memory::{Device, Error, Kernel, Result};
use crossdock_plugin_api::abi;

use crate::{
    blocks, bools, cast, codes, compare, concatenate, fill_nulls, gather, hybrid, images, indices, lanes,
    list_views, lists, lz4, map, merge, null_count, numbers, offsets, parts, rescale, run_ends, select,
    shift, strings, take, unions, unique, unpack, utf8, views, widen,
};

/// A kernel of the library.
struct Entry {
    row: &'static Row,
    on_cpu: Kernel,
    /// The kernel with images, created at the first request for a CUDA device.
    on_cuda: OnceLock<Kernel>,
}

/// Declares the library. Each entry names a row of the table of kernels and its CPU implementation.
macro_rules! library {
    ($($row:ident => $body:path,)*) => {
        static LIBRARY: [Entry; rows::TABLE.len()] = [$({
            unsafe extern "C" fn entry(args: *const abi::Arg, n: usize) -> abi::Code {
                // SAFETY: only a launch on a host device calls a CPU implementation, with valid
                // arguments for the length of the call.
                unsafe { $crate::door::door(args, n, $body) }
            }
            Entry {
                row: &rows::$row,
                on_cpu: Kernel::host(rows::$row.name, entry),
                on_cuda: OnceLock::new(),
            }
        }),*];
    };
}

library! {
    TAKE_BLOCKS => blocks::take,
    UNPACK_BITS => bools::unpack,
    PACK_BYTES => bools::pack,
    CAST => cast::run,
    ADD_SIZES => codes::add_sizes,
    DECODE_CODES => codes::decode,
    MAKE_TOKENS => codes::make_tokens,
    MEASURE_CODES => codes::measure,
    COMPARE_BYTES => compare::bytes,
    COMPARE_NUMBERS => compare::numbers,
    COMPARE_VIEWS => compare::views,
    CONCATENATE_BITS => concatenate::concatenate,
    COPY_RANGES => concatenate::copy,
    CHECK_EQUAL => cast::check_equal,
    FILL_NULLS => fill_nulls::run,
    GATHER => gather::run,
    GATHER_BYTES => lists::gather_bytes,
    CHECK_INDICES => indices::check,
    SUM_LANES => lanes::sum_lanes,
    CHECK_LIST_VIEWS => list_views::check,
    MEASURE_LISTS => lists::measure,
    NAME_ELEMENTS => lists::name,
    PLACE_LISTS => lists::place,
    MAP => map::map,
    SEQUENCE => map::sequence,
    MERGE_BITS => merge::run,
    NULL_COUNT => null_count::run,
    CHECK_NUMBER => numbers::check,
    READ_NUMBERS => numbers::read,
    CHECK_OFFSETS => offsets::check,
    CONVERT_OFFSETS => offsets::convert,
    REBASE_OFFSETS => offsets::rebase,
    JOIN => parts::join,
    SUM => parts::sum,
    RESCALE => rescale::run,
    DECIMAL_TO_FLOAT => rescale::decimal_to_float,
    CHECK_RUN_ENDS => run_ends::check,
    COUNT_BITS => select::count,
    PLACE_BITS => select::place,
    SHIFT_BITS => shift::run,
    VIEWS_OF_CODES => strings::by_codes,
    VIEWS_OF_OFFSETS => strings::by_offsets,
    DECODE_HYBRID => hybrid::decode,
    DECOMPRESS_LZ4 => lz4::decompress,
    RESOLVE_LZ4 => lz4::resolve,
    EXPAND_RUNS => take::expand,
    PATCH => take::patch,
    TAKE => take::take,
    CHECK_UNION => unions::check,
    FIND_EQUAL => unique::find_equal,
    MARK_FIRST => unique::mark_first,
    NUMBER_SLOTS => unique::number_slots,
    TAKE_PACKED => unpack::take_packed,
    UNPACK => unpack::unpack,
    UNPACK_PATCHED_1 => unpack::unpack_patched::<u8>,
    UNPACK_PATCHED_2 => unpack::unpack_patched::<u16>,
    UNPACK_PATCHED_4 => unpack::unpack_patched::<u32>,
    UNPACK_PATCHED_8 => unpack::unpack_patched::<u64>,
    CHECK_UTF8 => utf8::check,
    CHECK_VIEWS => views::check,
    RENUMBER_VIEWS => views::renumber,
    NARROW => widen::narrow,
    WIDEN => widen::widen,
}

/// Finds the kernel `name` for devices of the type of `device`. Images are decompressed only for a
/// device that runs them.
///
/// # Errors
/// `VERSION` if there is no such kernel, or its arguments differ from `arguments`; `UNSUPPORTED` if
/// kernels do not run on such devices.
pub fn find(device: Device, name: &CStr, arguments: &CStr) -> Result<&'static Kernel> {
    let entry = LIBRARY.iter().find(|entry| entry.row.name == name);
    let (name, stated) = (name.to_string_lossy(), arguments.to_string_lossy());
    let Some(entry) = entry else {
        return Err(Error::version(format!("this host has no kernel '{name}': {ADVICE}")));
    };
    let expected = entry.row.host.arguments();
    if expected != arguments {
        return Err(Error::version(format!(
            "the kernel '{name}' takes the arguments '{}', and the caller states '{stated}': {ADVICE}",
            expected.to_string_lossy()
        )));
    }
    match device.r#type {
        abi::DEVICE_CPU | abi::DEVICE_CUDA_HOST | abi::DEVICE_EXT_DEV => Ok(&entry.on_cpu),
        abi::DEVICE_CUDA | abi::DEVICE_CUDA_MANAGED => {
            Ok(entry.on_cuda.get_or_init(|| entry.on_cpu.clone().with_image(images::images())))
        }
        _ => Err(Error::unsupported(format!("the host's kernels do not run on {device}"))),
    }
}

const ADVICE: &str = "use a newer host, or a build of the plugin for this one";
