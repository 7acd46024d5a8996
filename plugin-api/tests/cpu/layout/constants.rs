//! Compares the constants of the header with the constants in Rust.

use crate::layout::compiler::Language;
use crate::layout::header;
use crossdock_plugin_api::abi;
use std::fmt::Write;

/// Lists the constants that are numbers. Each entry has the name in C and the constant in Rust.
macro_rules! numbers {
    ($($name:ident = $rust:ident),* $(,)?) => { [ $((stringify!($name), abi::$rust as i128)),* ] };
}

fn numbers() -> impl Iterator<Item = (&'static str, i128)> {
    numbers! {
        CROSSDOCK_ABI_MAJOR = ABI_MAJOR,
        CROSSDOCK_ABI_MINOR = ABI_MINOR,
        CROSSDOCK_ABI_PATCH = ABI_PATCH,
        CROSSDOCK_PLUGIN_MAGIC = PLUGIN_MAGIC,
        CROSSDOCK_META_MAGIC = META_MAGIC,
        CROSSDOCK_META_SIZES = META_SIZES,
        CROSSDOCK_OK = OK,
        CROSSDOCK_INVALID_ARGUMENT = INVALID_ARGUMENT,
        CROSSDOCK_UNSUPPORTED = UNSUPPORTED,
        CROSSDOCK_BAD_DATA = BAD_DATA,
        CROSSDOCK_WRONG_VERSION = VERSION,
        CROSSDOCK_OUT_OF_MEMORY = OUT_OF_MEMORY,
        CROSSDOCK_DEVICE = DEVICE,
        CROSSDOCK_IO = IO,
        CROSSDOCK_CANCELLED = CANCELLED,
        CROSSDOCK_PANICKED = PANICKED,
        CROSSDOCK_INTERNAL = INTERNAL,
        CROSSDOCK_ERROR_RETRY = ERROR_RETRY,
        CROSSDOCK_ERROR_HAS_OFFSET = ERROR_HAS_OFFSET,
        CROSSDOCK_ERROR_HAS_ROW = ERROR_HAS_ROW,
        CROSSDOCK_VALIDATE_LAYOUT = VALIDATE_LAYOUT,
        CROSSDOCK_VALIDATE_FULL = VALIDATE_FULL,
        CROSSDOCK_FORMAT_BYTES = FORMAT_BYTES,
        CROSSDOCK_FORMAT_CAPSULES = FORMAT_CAPSULES,
        CROSSDOCK_FORMAT_FILTERS = FORMAT_FILTERS,
        CROSSDOCK_FORMAT_SEVERAL = FORMAT_SEVERAL,
        CROSSDOCK_FORMAT_DEVICE_ROWS = FORMAT_DEVICE_ROWS,
        CROSSDOCK_READ_COLUMNS = READ_COLUMNS,
        CROSSDOCK_READ_ROWS = READ_ROWS,
        CROSSDOCK_READ_FILTER = READ_FILTER,
        CROSSDOCK_COMPARE_EQUAL = COMPARE_EQUAL,
        CROSSDOCK_COMPARE_NOT_EQUAL = COMPARE_NOT_EQUAL,
        CROSSDOCK_COMPARE_LESS = COMPARE_LESS,
        CROSSDOCK_COMPARE_LESS_EQUAL = COMPARE_LESS_EQUAL,
        CROSSDOCK_COMPARE_GREATER = COMPARE_GREATER,
        CROSSDOCK_COMPARE_GREATER_EQUAL = COMPARE_GREATER_EQUAL,
        CROSSDOCK_READ_ROW_COUNT = READ_ROW_COUNT,
        CROSSDOCK_READ_WRITE_OPTIONS = READ_WRITE_OPTIONS,
        CROSSDOCK_MAX_TOKEN_BYTES = MAX_TOKEN_BYTES,
        CROSSDOCK_HONOURS_COLUMNS = HONOURS_COLUMNS,
        CROSSDOCK_HONOURS_ROWS = HONOURS_ROWS,
        CROSSDOCK_HAS_ROW_COUNT = HAS_ROW_COUNT,
        CROSSDOCK_PRUNES_ROWS = PRUNES_ROWS,
        CROSSDOCK_ZERO_COPY = ZERO_COPY,
        CROSSDOCK_CONVERTED = CONVERTED,
        CROSSDOCK_COPIED = COPIED,
        CROSSDOCK_CANNOT = CANNOT,
        CROSSDOCK_ARG_VALUE = ARG_VALUE,
        CROSSDOCK_ARG_READ = ARG_READ,
        CROSSDOCK_ARG_WRITE = ARG_WRITE,
        CROSSDOCK_FREE_EXPORTED = FREE_EXPORTED,
        CROSSDOCK_KERNEL_MANY_ARGS = KERNEL_MANY_ARGS,
        CROSSDOCK_OP_LOAD = OP_LOAD,
        CROSSDOCK_OP_UNPACK = OP_UNPACK,
        CROSSDOCK_OP_CHILD = OP_CHILD,
        CROSSDOCK_OP_SEQUENCE = OP_SEQUENCE,
        CROSSDOCK_OP_DICTIONARY = OP_DICTIONARY,
        CROSSDOCK_OP_RUNS = OP_RUNS,
        CROSSDOCK_OP_ADD = OP_ADD,
        CROSSDOCK_OP_XOR = OP_XOR,
        CROSSDOCK_OP_ZIGZAG = OP_ZIGZAG,
        CROSSDOCK_OP_TO_FLOAT = OP_TO_FLOAT,
        CROSSDOCK_OP_SCALE = OP_SCALE,
        CROSSDOCK_OP_PATCH = OP_PATCH,
        CROSSDOCK_OP_VALIDITY = OP_VALIDITY,
        CROSSDOCK_OP_CAST = OP_CAST,
        CROSSDOCK_OP_TERM = OP_TERM,
        CROSSDOCK_OP_JOIN = OP_JOIN,
        CROSSDOCK_OP_PATCH_LEFT = OP_PATCH_LEFT,
        CROSSDOCK_MAX_OPERATORS = MAX_OPERATORS,
        CROSSDOCK_MAX_KERNEL_ARGS = MAX_KERNEL_ARGS,
        CROSSDOCK_IMAGE_SET_MAGIC = IMAGE_SET_MAGIC,
        CROSSDOCK_HOST_KERNEL_THREADS = HOST_KERNEL_THREADS,
        CROSSDOCK_IMAGE_CUBIN = IMAGE_CUBIN,
        CROSSDOCK_IMAGE_PTX = IMAGE_PTX,
        CROSSDOCK_LOG_ERROR = LOG_ERROR,
        CROSSDOCK_LOG_WARN = LOG_WARN,
        CROSSDOCK_LOG_INFO = LOG_INFO,
        CROSSDOCK_LOG_DEBUG = LOG_DEBUG,
        CROSSDOCK_LOG_TRACE = LOG_TRACE,
        ARROW_FLAG_DICTIONARY_ORDERED = FLAG_DICTIONARY_ORDERED,
        ARROW_FLAG_NULLABLE = FLAG_NULLABLE,
        ARROW_FLAG_MAP_KEYS_SORTED = FLAG_MAP_KEYS_SORTED,
        ARROW_DEVICE_CPU = DEVICE_CPU,
        ARROW_DEVICE_CUDA = DEVICE_CUDA,
        ARROW_DEVICE_CUDA_HOST = DEVICE_CUDA_HOST,
        ARROW_DEVICE_EXT_DEV = DEVICE_EXT_DEV,
        ARROW_DEVICE_CUDA_MANAGED = DEVICE_CUDA_MANAGED,
    }
    .into_iter()
    .chain([("CROSSDOCK_META_N_SIZES", abi::BUILT_SIZES.len() as i128)])
}

const IDS: [(&str, &core::ffi::CStr); 12] = [
    ("CROSSDOCK_IMPORTER_ID", abi::IMPORTER_ID),
    ("CROSSDOCK_EXPORTER_ID", abi::EXPORTER_ID),
    ("CROSSDOCK_OPENER_ID", abi::OPENER_ID),
    ("CROSSDOCK_ENCODER_ID", abi::ENCODER_ID),
    ("CROSSDOCK_ENCODING_ID", abi::ENCODING_ID),
    ("CROSSDOCK_HOST_LOG_ID", abi::HOST_LOG_ID),
    ("CROSSDOCK_HOST_SESSION_ID", abi::HOST_SESSION_ID),
    ("CROSSDOCK_HOST_DECODE_ID", abi::HOST_DECODE_ID),
    ("CROSSDOCK_HOST_LOADER_ID", abi::HOST_LOADER_ID),
    ("CROSSDOCK_HOST_TASKS_ID", abi::HOST_TASKS_ID),
    ("CROSSDOCK_HOST_KERNELS_ID", abi::HOST_KERNELS_ID),
    ("CROSSDOCK_HOST_MEMORY_ID", abi::HOST_MEMORY_ID),
];

fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    let ids = IDS.iter().map(|(name, id)| (*name, id.to_str().unwrap()));
    ids.chain([("CROSSDOCK_API_RANGE", abi::API_RANGE)])
}

#[test]
fn all_constants_of_the_header_are_compared() {
    // Only Crossdock's own constants are compared, because Rust does not need all of Arrow's device
    // types.
    for (name, _) in header::constants().iter().filter(|(name, _)| name.starts_with("CROSSDOCK_")) {
        let known = numbers().any(|(n, _)| n == name) || texts().any(|(n, _)| n == name);
        assert!(known, "{name} is in crossdock.h: add it to constants.rs and to this test");
    }
}

#[test]
fn numbers_are_equal_in_c_and_rust() {
    let mut unit = String::from("#include \"crossdock.h\"\n");
    for (name, value) in numbers() {
        writeln!(unit, "_Static_assert({name} == {value:#x}, \"{name}\");").unwrap();
    }
    Language::C.check(&unit).unwrap();
    let wrong =
        "#include \"crossdock.h\"\n_Static_assert(CROSSDOCK_BAD_DATA == 4, \"CROSSDOCK_BAD_DATA\");\n";
    assert!(Language::C.check(wrong).unwrap_err().contains("CROSSDOCK_BAD_DATA"));
}

#[test]
fn texts_are_equal_in_c_and_rust() {
    let header = header::constants();
    for (name, text) in texts() {
        let (_, value) =
            header.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name} is not in crossdock.h"));
        assert_eq!(value.trim_matches('"'), text, "{name}");
    }
}

#[test]
fn header_names_the_exported_symbols() {
    for symbol in [abi::ENTRY_SYMBOL, abi::META_SYMBOL] {
        assert!(header::HEADER.contains(&format!(" {symbol}; ")), "crossdock.h does not name {symbol}");
    }
}

#[test]
fn built_size_constants_are_equal_in_c_and_rust() {
    let names: Vec<&str> = abi::BUILT_SIZES.iter().map(|size| size.name).collect();
    assert_eq!(header::meta_sizes(), names);

    let unit = "#include \"crossdock.h\"\n#include <stdio.h>\n\
        static const uint32_t sizes[CROSSDOCK_META_SIZES] = CROSSDOCK_META_SIZES_INIT;\n\
        int main(void) {\n\
          for (int i = 0; i < CROSSDOCK_META_SIZES; i++) printf(\"%u\\n\", (unsigned)sizes[i]);\n\
          return 0;\n\
        }\n";
    let program = std::env::temp_dir().join(format!("crossdock-meta-sizes-{}", std::process::id()));
    let printed = Language::C.run(unit, &program);
    std::fs::remove_file(&program).unwrap_or_default();
    let printed: Vec<u32> = printed.unwrap().lines().map(|line| line.parse().unwrap()).collect();
    let mut expected: Vec<u32> = abi::BUILT_SIZES.iter().map(|size| size.bytes).collect();
    expected.resize(abi::META_SIZES, 0);
    assert_eq!(printed, expected);
}
