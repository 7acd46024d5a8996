//! The layout of the C structs in this build. One test compares the layout with the committed
//! record `abi/layout.txt`. Another test compares `crossdock.h` with the record by means of a C
//! compiler.

use crate::abi;

/// The layout of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructLayout {
    /// The name of the type in C, such as `crossdock_error` or `struct ArrowArray`.
    pub name: &'static str,
    /// The size in bytes.
    pub size: usize,
    /// The alignment in bytes.
    pub align: usize,
    /// The fields in order. Each has its name and its offset in bytes.
    pub fields: Vec<(&'static str, usize)>,
}

macro_rules! layouts {
    ($($c:literal = $t:ident { $($f:tt),* $(,)? })*) => { vec![ $(StructLayout {
        name: $c,
        size: size_of::<abi::$t>(),
        align: align_of::<abi::$t>(),
        fields: vec![ $((layouts!(@name $f), layouts!(@offset $t, $f))),* ],
    }),* ] };
    (@name type) => { "type" };
    (@name $f:ident) => { stringify!($f) };
    (@offset $t:ident, type) => { core::mem::offset_of!(abi::$t, r#type) };
    (@offset $t:ident, $f:ident) => { core::mem::offset_of!(abi::$t, $f) };
}

/// The layouts of all C structs.
pub fn layouts() -> Vec<StructLayout> {
    layouts! {
        "struct ArrowSchema" = ArrowSchema { format, name, metadata, flags, n_children, children, dictionary, release, private_data }
        "struct ArrowArray" = ArrowArray { length, null_count, offset, n_buffers, n_children, buffers, children, dictionary, release, private_data }
        "struct ArrowDeviceArray" = ArrowDeviceArray { array, device_id, device_type, sync_event, reserved }
        "struct ArrowArrayStream" = ArrowArrayStream { get_schema, get_next, get_last_error, release, private_data }
        "struct ArrowDeviceArrayStream" = ArrowDeviceArrayStream { device_type, get_schema, get_next, get_last_error, release, private_data }
        "crossdock_error" = Error { struct_size, code, flags, message, details, release, private_data, offset, row }
        "crossdock_str" = Str { data, bytes }
        "crossdock_option" = OptionPair { key, value }
        "crossdock_device" = Device { id, type, reserved }
        "crossdock_batch" = Batch { struct_size, array, schema, buffer_sizes, n_buffer_sizes, metadata, n_rows_device }
        "crossdock_capsule" = Capsule { struct_size, name, pointer, release, private_data }
        "crossdock_capsules" = Capsules { struct_size, capsules, n_capsules, release, private_data }
        "crossdock_source" = Source { struct_size, bytes, name, read_at, map, retain_map, release_map, map_private, release, private_data, version }
        "crossdock_sink" = Sink { struct_size, name, write, release, private_data }
        "crossdock_cancel" = Cancel { is_set, reserved, struct_size, wait, subscribe, unsubscribe, private_data }
        "crossdock_call" = Call { struct_size, device, stream, cancel, progress, progress_data, byte_budget, validate, reserved }
        "crossdock_batch_stream" = BatchStream { struct_size, get_schema, get_next, release, private_data, honoured, reserved, n_rows, exact_predicates, write_options, n_write_options }
        "crossdock_writer" = Writer { struct_size, write, finish, release, private_data }
        "crossdock_magic" = Magic { offset, data, bytes }
        "crossdock_option_info" = OptionInfo { struct_size, key, description }
        "crossdock_format" = Format { struct_size, name, description, flags, reserved, magics, n_magics, extensions, n_extensions, capsules, n_capsules, device_types, n_device_types, options, n_options }
        "crossdock_input" = Input { struct_size, capsules, sources, n_sources }
        "crossdock_path" = Path { names, n_names }
        "crossdock_row_range" = RowRange { begin, end }
        "crossdock_predicate" = Predicate { struct_size, column, comparison, reserved, type, literal }
        "crossdock_read_request" = ReadRequest { struct_size, format, input, schema, options, n_options, flags, reserved, columns, n_columns, rows, n_rows, batch_rows, batch_bytes, predicates, n_predicates, fragment, fragment_bytes }
        "crossdock_fragment" = Fragment { struct_size, token, token_bytes, n_rows, bytes, statistics }
        "crossdock_fragments" = Fragments { struct_size, fragments, n_fragments, release, private_data }
        "crossdock_importer" = Importer { struct_size, formats, open, fragments }
        "crossdock_opener" = Opener { struct_size, schemes, open }
        "crossdock_column_plan" = ColumnPlan { struct_size, name, verdict, reserved, to, reason }
        "crossdock_plan" = Plan { struct_size, columns, n_columns, release, private_data }
        "crossdock_exporter" = Exporter { struct_size, formats, plan, begin }
        "crossdock_encoded_buffer" = EncodedBuffer { struct_size, address, bytes, alignment, device, sync_event, release, private_data }
        "crossdock_encoded_node" = EncodedNode { struct_size, encoding, schema, length, metadata, metadata_bytes, first_buffer, n_buffers, n_children, reserved, dtype, dtype_bytes }
        "crossdock_encoded_array" = EncodedArray { struct_size, nodes, n_nodes, buffers, n_buffers, release, private_data }
        "crossdock_operator" = Operator { code, index, a, b }
        "crossdock_decode_plan" = DecodePlan { struct_size, device, rows, decoded, rows_below, n_below }
        "crossdock_encoder" = Encoder { struct_size, ids, encode }
        "crossdock_encoding" = Encoding { struct_size, ids, check, children, size, lower, plan, decode }
        "crossdock_host" = Host { struct_size, abi_major, abi_minor, retain, release, get_interface, private_data }
        "crossdock_host_log" = HostLog { struct_size, write, private_data }
        "crossdock_host_session" = HostSession { struct_size, device, memory_limit, threads, reserved }
        "crossdock_host_decode" = HostDecode { struct_size, decode, children, private_data }
        "crossdock_load" = Load { offset, to, bytes }
        "crossdock_host_loader" = HostLoader { struct_size, load, private_data }
        "crossdock_host_tasks" = HostTasks { struct_size, group_create, run, wait, group_release, private_data }
        "crossdock_allocation" = Allocation { address, bytes, block }
        "crossdock_copy" = Copy { to, from, bytes, to_device, from_device }
        "crossdock_pointer" = Pointer { struct_size, device, base, bytes }
        "crossdock_device_info" = DeviceInfo { struct_size, device, name, description, memory_bytes, host_accessible, reserved }
        "crossdock_arg" = Arg { value, bytes, kind, reserved }
        "crossdock_kernel" = Kernel { struct_size, name, host_function, image, image_bytes, flags, reserved }
        "crossdock_kernel_args" = KernelArgs { n_args, host_function, all_args, host_args, args }
        "crossdock_image" = Image { kind, architecture, offset, bytes }
        "crossdock_image_set" = ImageSet { magic, bytes, n_images, reserved }
        "crossdock_launch" = Launch { struct_size, blocks, threads, cluster, shared_bytes, flags, reserved }
        "crossdock_host_kernels" = HostKernels { struct_size, find, private_data }
        "crossdock_memory" = Memory {
            struct_size, private_data, devices, alloc, alloc_pinned, free, copy, fill, launch, stream_default,
            stream_create, stream_destroy, stream_synchronize, stream_wait, stream_wait_raw, stream_raw,
            stream_is_capturing, event_record, event_query, event_synchronize, event_destroy, event_raw, pointer,
            host_address, call_after, stream_adopt, call_after_all,
        }
        "crossdock_plugin_entry" = PluginEntry { magic, struct_size, abi_major, abi_minor, flags, create, destroy, get_interface }
        "crossdock_plugin_meta" = PluginMeta {
            magic, struct_size, abi_major, abi_minor, n_sizes, name, version, api_range, licence, toolchain, panic,
            interfaces, formats, encodings, description, schemes, required, sizes,
        }
    }
}

/// Returns the text of the record. It has a line for each struct and for each field.
pub fn render() -> String {
    let mut text = format!("abi {}.{}.{}\n", abi::ABI_MAJOR, abi::ABI_MINOR, abi::ABI_PATCH);
    for s in layouts() {
        text += &format!("{}: size {} align {}\n", s.name, s.size, s.align);
        for (field, offset) in s.fields {
            text += &format!("  {offset:5} {field}\n");
        }
    }
    text
}
