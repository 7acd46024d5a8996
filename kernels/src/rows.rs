//! The table of kernels. A row has the kernel's name, the arguments of a job, and the repeatable
//! arguments. The row is the only declaration of a kernel; tests check the CPU implementation and
//! the CUDA function against it.

use std::ffi::CStr;

use crossdock_memory::HostKernel;

use crate::table::{Kind, Param, Row};

/// The letter of a kind of argument in `crossdock_host_kernels.find`.
macro_rules! letter {
    (Value) => {
        "v"
    };
    (Read) => {
        "r"
    };
    (Write) => {
        "w"
    };
}

/// The arguments of a kernel as letters, with the repeatable ones in parentheses.
macro_rules! arguments {
    (($($kind:ident)*) ()) => { concat!($(letter!($kind),)* "\0") };
    (($($kind:ident)*) ($($more:ident)+)) => { concat!($(letter!($kind),)* "(", $(letter!($more),)+ ")\0") };
}

macro_rules! kernels {
    ($($row:ident $name:literal ($($param:ident: $kind:ident),*) [$($more:ident: $more_kind:ident),*];)*) => {
        $(
            #[doc = stringify!($name)]
            pub static $row: Row = Row {
                name: $name,
                params: &[$(Param { name: stringify!($param), kind: Kind::$kind }),*],
                tail: &[$(Param { name: stringify!($more), kind: Kind::$more_kind }),*],
                host: HostKernel::new($name, text(arguments!(($($kind)*) ($($more_kind)*)))),
            };
        )*

        /// All kernels.
        pub static TABLE: &[&Row] = &[$(&$row),*];
    };
}

const fn text(with_nul: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(with_nul.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

kernels! {
    TAKE_BLOCKS c"crossdock_take_blocks" (
        codes: Read, code_type: Value, validity: Read, first_bit: Value, begins: Read,
        begin_type: Value, values: Read, first: Value, to: Write, width: Value, cell: Write
    ) [];
    UNPACK_BITS c"crossdock_unpack_bits" (from: Read, first: Value, invert: Value, to: Write) [];
    PACK_BYTES c"crossdock_pack_bytes" (from: Read, invert: Value, to: Write) [];
    CAST c"crossdock_cast" (from: Read, type: Value, to: Write, to_type: Value, cell: Write) [];
    ADD_SIZES c"crossdock_add_sizes" (sizes: Write, cell: Write) [];
    DECODE_CODES c"crossdock_decode_codes" (
        codes: Read, width: Value, escapes: Value, offsets: Read, offset_width: Value,
        offset_signed: Value, table: Read, lengths: Read, shift: Value, marks: Read, bases: Read,
        group: Value, to: Write
    ) [];
    MAKE_TOKENS c"crossdock_make_tokens" (
        dictionary: Read, offsets: Read, offset_width: Value, offset_signed: Value, tokens: Write,
        lengths: Write, cell: Write
    ) [];
    MEASURE_CODES c"crossdock_measure_codes" (
        codes: Read, width: Value, escapes: Value, offsets: Read, offset_width: Value,
        offset_signed: Value, table: Read, lengths: Read, shift: Value, marks: Write, starts: Write,
        sizes: Write, table_cell: Write, cell: Write
    ) [];
    COMPARE_BYTES c"crossdock_compare_bytes" (
        offsets: Read, width: Value, size: Value, len: Value, data: Read, validity: Read,
        first: Value, literal: Read, accept: Value, to: Write, cell: Write
    ) [];
    COMPARE_NUMBERS c"crossdock_compare_numbers" (
        from: Read, type: Value, literal_0: Value, literal_1: Value, literal_2: Value,
        literal_3: Value, accept: Value, to: Write
    ) [];
    COMPARE_VIEWS c"crossdock_compare_views" (
        views: Read, validity: Read, first: Value, literal: Read, accept: Value, n_data: Value,
        window: Value, to: Write, cell: Write
    ) [data: Read];
    CONCATENATE_BITS c"crossdock_concatenate_bits" (
        to: Write, before: Value
    ) [bits: Read, first: Value, len: Value];
    COPY_RANGES c"crossdock_copy_ranges" (from: Read, to: Write) [];
    CHECK_EQUAL c"crossdock_check_equal" (a: Read, b: Read, type: Value, cell: Write) [];
    FILL_NULLS c"crossdock_fill_nulls" (
        from: Read, validity: Read, first: Value, word_0: Value, word_1: Value, word_2: Value,
        word_3: Value, to: Write, width: Value
    ) [];
    GATHER c"crossdock_gather" (
        from: Read, first: Value, width: Value, to: Write
    ) [size: Value, stride: Value];
    GATHER_BYTES c"crossdock_gather_bytes" (
        begins: Read, begin_width: Value, begin_signed: Value, offsets: Read, offset_width: Value,
        validity: Read, first: Value, data: Read, to: Write
    ) [];
    CHECK_INDICES c"crossdock_check_indices" (
        keys: Read, width: Value, signed: Value, validity: Read, first: Value, limit: Value,
        cell: Write
    ) [];
    SUM_LANES c"crossdock_sum_lanes" (bases: Read, deltas: Read, first: Value, to: Write, width: Value) [];
    CHECK_LIST_VIEWS c"crossdock_check_list_views" (
        offsets: Read, sizes: Read, width: Value, limit: Value, cell: Write
    ) [];
    MEASURE_LISTS c"crossdock_measure_lists" (
        begins: Read, begin_width: Value, begin_signed: Value, ends_or_sizes: Read,
        ends_or_sizes_width: Value, ends_or_sizes_signed: Value, has_ends: Value, validity: Read,
        first: Value, limit: Value, shift: Value, sizes: Write, cell: Write
    ) [];
    NAME_ELEMENTS c"crossdock_name_elements" (
        begins: Read, begin_width: Value, begin_signed: Value, offsets: Read, offset_width: Value,
        validity: Read, first: Value, rows: Write, row_width: Value
    ) [];
    PLACE_LISTS c"crossdock_place_lists" (
        begins: Read, begin_width: Value, begin_signed: Value, ends_or_sizes: Read,
        ends_or_sizes_width: Value, ends_or_sizes_signed: Value, has_ends: Value, validity: Read,
        first: Value, limit: Value, shift: Value, bases: Write, offsets: Write, cell: Write
    ) [];
    MAP c"crossdock_map" (from: Read, to: Write, width: Value) [step: Value, operand: Value];
    SEQUENCE c"crossdock_sequence" (
        base: Value, step: Value, to: Write, width: Value
    ) [step: Value, operand: Value];
    MERGE_BITS c"crossdock_merge_bits" (
        a: Read, first_a: Value, b: Read, first_b: Value, len: Value, to: Write
    ) [];
    NULL_COUNT c"crossdock_null_count" (bits: Read, first: Value, len: Value, cell: Write) [];
    CHECK_NUMBER c"crossdock_check_number" (
        from: Read, width: Value, signed: Value, min: Value, max: Value, cell: Write
    ) [];
    READ_NUMBERS c"crossdock_read_numbers" (from: Read, width: Value, signed: Value, cells: Write) [];
    CHECK_OFFSETS c"crossdock_check_offsets" (offsets: Read, width: Value, limit: Value, cell: Write) [];
    CONVERT_OFFSETS c"crossdock_convert_offsets" (
        from: Read, width: Value, base: Value, to: Write, to_width: Value, cell: Write
    ) [];
    REBASE_OFFSETS c"crossdock_rebase_offsets" (offsets: Write, width: Value, base: Value) [];
    JOIN c"crossdock_join" (
        codes: Read, validity: Read, first: Value, rights: Read, right_bits: Value,
        has_dictionary: Value, to: Write, width: Value, cell: Write
    ) [left: Value];
    SUM c"crossdock_sum" (
        to: Write, validity: Read, first: Value, cell: Write
    ) [from: Read, type: Value, factor: Value];
    RESCALE c"crossdock_rescale" (
        from: Read, width: Value, validity: Read, first: Value, factor: Value, mode: Value, to: Write,
        to_width: Value, cell: Write
    ) [];
    DECIMAL_TO_FLOAT c"crossdock_decimal_to_float" (
        from: Read, width: Value, factor: Value, scale_up: Value, to: Write
    ) [];
    CHECK_RUN_ENDS c"crossdock_check_run_ends" (ends: Read, width: Value, covered: Value, cell: Write) [];
    COUNT_BITS c"crossdock_count_bits" (bits: Read, len: Value, shift: Value, sizes: Write) [];
    PLACE_BITS c"crossdock_place_bits" (
        bits: Read, len: Value, shift: Value, bases: Read, to: Write, width: Value
    ) [];
    SHIFT_BITS c"crossdock_shift_bits" (from: Read, first: Value, len: Value, to: Write) [];
    VIEWS_OF_CODES c"crossdock_views_of_codes" (
        n_codes: Value, segment_shift: Value, offsets: Read, offset_width: Value,
        offset_signed: Value, shift: Value, marks: Read, bases: Read, starts: Read, lengths: Read,
        length_width: Value, length_signed: Value, data: Read, part: Value, views: Write,
        ends: Write, over: Write, cell: Write
    ) [];
    VIEWS_OF_OFFSETS c"crossdock_views_of_offsets" (
        offsets: Read, offset_width: Value, offset_signed: Value, data: Read, part: Value,
        views: Write, ends: Write, over: Write, cell: Write
    ) [];
    DECODE_HYBRID c"crossdock_decode_hybrid" (
        bytes: Read, runs: Read, ends: Read, validity: Read, ranks: Read, dictionary: Read,
        limit: Value, to: Write, width: Value, cell: Write
    ) [];
    DECOMPRESS_LZ4 c"crossdock_decompress_lz4" (
        from: Read, buffers: Read, pieces: Value, to: Write, outside: Write, cell: Write
    ) [];
    RESOLVE_LZ4 c"crossdock_resolve_lz4" (
        buffers: Read, pieces: Value, step: Value, to: Write, outside: Write
    ) [];
    EXPAND_RUNS c"crossdock_expand_runs" (
        ends: Read, end_width: Value, first: Value, values: Read, to: Write, width: Value,
        cell: Write
    ) [];
    PATCH c"crossdock_patch" (
        indices: Read, index_width: Value, first: Value, values: Read, to: Write, width: Value,
        cell: Write
    ) [step: Value, operand: Value];
    TAKE c"crossdock_take" (
        codes: Read, code_width: Value, validity: Read, first_bit: Value, values: Read, to: Write,
        width: Value, cell: Write
    ) [];
    CHECK_UNION c"crossdock_check_union" (ids: Read, offsets: Read, cell: Write) [len: Value];
    FIND_EQUAL c"crossdock_find_equal" (
        offsets: Read, width: Value, size: Value, len: Value, data: Read, validity: Read,
        first: Value, seed: Value, table: Write, slots: Write, cell: Write
    ) [];
    MARK_FIRST c"crossdock_mark_first" (table: Read, slots: Read, to: Write) [];
    NUMBER_SLOTS c"crossdock_number_slots" (rows: Read, slots: Read, table: Write) [];
    TAKE_PACKED c"crossdock_take_packed" (
        packed: Read, bits: Value, first: Value, code_width: Value, validity: Read,
        first_bit: Value, values: Read, to: Write, width: Value, cell: Write
    ) [step: Value, operand: Value];
    UNPACK c"crossdock_unpack" (
        packed: Read, bits: Value, first: Value, to: Write, width: Value
    ) [step: Value, operand: Value];
    UNPACK_PATCHED_1 c"crossdock_unpack_patched_1" (
        packed: Read, bits: Value, first: Value, to: Write, indices: Read, index_width: Value,
        first_index: Value, values: Read, stepped: Value, cell: Write
    ) [step: Value, operand: Value];
    UNPACK_PATCHED_2 c"crossdock_unpack_patched_2" (
        packed: Read, bits: Value, first: Value, to: Write, indices: Read, index_width: Value,
        first_index: Value, values: Read, stepped: Value, cell: Write
    ) [step: Value, operand: Value];
    UNPACK_PATCHED_4 c"crossdock_unpack_patched_4" (
        packed: Read, bits: Value, first: Value, to: Write, indices: Read, index_width: Value,
        first_index: Value, values: Read, stepped: Value, cell: Write
    ) [step: Value, operand: Value];
    UNPACK_PATCHED_8 c"crossdock_unpack_patched_8" (
        packed: Read, bits: Value, first: Value, to: Write, indices: Read, index_width: Value,
        first_index: Value, values: Read, stepped: Value, cell: Write
    ) [step: Value, operand: Value];
    CHECK_UTF8 c"crossdock_check_utf8" (
        offsets: Read, width: Value, data: Read, validity: Read, first: Value, guard: Write,
        cell: Write
    ) [];
    CHECK_VIEWS c"crossdock_check_views" (
        views: Read, validity: Read, first: Value, utf8: Value, n_data: Value, window: Value,
        cell: Write
    ) [data: Read];
    RENUMBER_VIEWS c"crossdock_renumber_views" (views: Write, add: Value) [];
    NARROW c"crossdock_narrow" (from: Read, validity: Read, first: Value, to: Write, cell: Write) [];
    WIDEN c"crossdock_widen" (from: Read, type: Value, to: Write, width: Value) [step: Value, operand: Value];
}
