//! Declares the structs of `include/crossdock.h`, which documents each field. Tests compare the
//! layout of the C structs and of these Rust structs with `abi/layout.txt`.
#![allow(missing_docs)]
#![cfg_attr(feature = "stable-abi", allow(non_local_definitions))]

use core::ffi::{c_char, c_int, c_void};

pub use crate::constants::*;
pub use crate::sizes::{
    API_RANGE, BUILT_SIZES, META_HEAD_BYTES, META_SIZES, MIN_ENTRY_BYTES, MIN_META_BYTES, MIN_META_SIZES,
};

/// A function pointer that is an argument of another function pointer. It is a separate type
/// because abi_stable does not support function pointers in the signatures of function pointers.
#[repr(transparent)]
#[derive(Clone, Copy)]
#[cfg_attr(feature = "stable-abi", derive(abi_stable::StableAbi))]
pub struct Callback(pub Option<unsafe extern "C" fn(*mut c_void)>);

opaque! {
    /// An instance of a plugin.
    Instance,
    /// A stream of the memory interface.
    Stream,
    /// An event of the memory interface.
    Event,
    /// A block of the memory interface.
    Block,
    /// A group of tasks.
    TaskGroup
}

abi! {
    struct ArrowSchema {
        format: *const c_char,
        name: *const c_char,
        metadata: *const c_char,
        flags: i64,
        n_children: i64,
        children: *mut *mut ArrowSchema,
        dictionary: *mut ArrowSchema,
        release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
        private_data: *mut c_void,
    }
    struct ArrowArray {
        length: i64,
        null_count: i64,
        offset: i64,
        n_buffers: i64,
        n_children: i64,
        buffers: *mut *const c_void,
        children: *mut *mut ArrowArray,
        dictionary: *mut ArrowArray,
        release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
        private_data: *mut c_void,
    }
    struct ArrowDeviceArray {
        array: ArrowArray,
        device_id: i64,
        device_type: i32,
        sync_event: *mut c_void,
        reserved: [i64; 3],
    }
    struct ArrowArrayStream {
        get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
        get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
        get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
        release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
        private_data: *mut c_void,
    }
    struct ArrowDeviceArrayStream {
        device_type: i32,
        get_schema: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowSchema) -> c_int>,
        get_next: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowDeviceArray) -> c_int>,
        get_last_error: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream) -> *const c_char>,
        release: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream)>,
        private_data: *mut c_void,
    }
    struct Error {
        struct_size: usize,
        code: Code,
        flags: u32,
        message: *const c_char,
        details: *const c_char,
        release: Option<unsafe extern "C" fn(*mut Error)>,
        private_data: *mut c_void,
        offset: u64,
        row: u64,
    }
    #[derive(Clone, Copy)]
    struct Str {
        data: *const c_char,
        bytes: usize,
    }
    #[derive(Clone, Copy)]
    struct OptionPair {
        key: Str,
        value: Str,
    }
    #[derive(Clone, Copy, Debug)]
    struct Device {
        id: i64,
        r#type: i32,
        reserved: i32,
    }
    struct Batch {
        struct_size: usize,
        array: ArrowDeviceArray,
        schema: ArrowSchema,
        buffer_sizes: *const i64,
        n_buffer_sizes: usize,
        metadata: *const c_char,
        n_rows_device: *const i64,
    }
    struct Capsule {
        struct_size: usize,
        name: *const c_char,
        pointer: *mut c_void,
        release: Option<unsafe extern "C" fn(*mut Capsule)>,
        private_data: *mut c_void,
    }
    struct Capsules {
        struct_size: usize,
        capsules: *mut Capsule,
        n_capsules: usize,
        release: Option<unsafe extern "C" fn(*mut Capsules)>,
        private_data: *mut c_void,
    }
    struct Source {
        struct_size: usize,
        bytes: i64,
        name: Str,
        read_at: Option<unsafe extern "C" fn(*mut Source, u64, *mut c_void, usize, *mut usize, *mut Error) -> Code>,
        map: *const c_void,
        retain_map: Option<unsafe extern "C" fn(*mut c_void)>,
        release_map: Option<unsafe extern "C" fn(*mut c_void)>,
        map_private: *mut c_void,
        release: Option<unsafe extern "C" fn(*mut Source)>,
        private_data: *mut c_void,
        version: Str,
    }
    struct Sink {
        struct_size: usize,
        name: Str,
        write: Option<unsafe extern "C" fn(*mut Sink, *const c_void, usize, *mut Error) -> Code>,
        release: Option<unsafe extern "C" fn(*mut Sink)>,
        private_data: *mut c_void,
    }
    struct Cancel {
        is_set: u32,
        reserved: u32,
        struct_size: usize,
        wait: Option<unsafe extern "C" fn(*const Cancel, u32) -> u32>,
        subscribe: Option<unsafe extern "C" fn(*const Cancel, Callback, *mut c_void, *mut u64, *mut Error) -> Code>,
        unsubscribe: Option<unsafe extern "C" fn(*const Cancel, u64)>,
        private_data: *mut c_void,
    }
    #[derive(Clone, Copy)]
    struct Call {
        struct_size: usize,
        device: Device,
        stream: *mut Stream,
        cancel: *const Cancel,
        progress: Option<unsafe extern "C" fn(*mut c_void, u64, u64)>,
        progress_data: *mut c_void,
        byte_budget: u64,
        validate: u32,
        reserved: u32,
    }
    struct BatchStream {
        struct_size: usize,
        get_schema: Option<unsafe extern "C" fn(*mut BatchStream, *mut ArrowSchema, *mut Error) -> Code>,
        get_next: Option<unsafe extern "C" fn(*mut BatchStream, *const Call, *mut Batch, *mut Error) -> Code>,
        release: Option<unsafe extern "C" fn(*mut BatchStream)>,
        private_data: *mut c_void,
        honoured: u32,
        reserved: u32,
        n_rows: u64,
        exact_predicates: u64,
        write_options: *const OptionPair,
        n_write_options: usize,
    }
    struct Writer {
        struct_size: usize,
        write: Option<unsafe extern "C" fn(*mut Writer, *const Call, *mut Batch, *mut Capsules, *mut Error) -> Code>,
        finish: Option<unsafe extern "C" fn(*mut Writer, *const Call, *mut Capsules, *mut Error) -> Code>,
        release: Option<unsafe extern "C" fn(*mut Writer)>,
        private_data: *mut c_void,
    }
    struct Magic {
        offset: i64,
        data: *const c_void,
        bytes: usize,
    }
    struct OptionInfo {
        struct_size: usize,
        key: Str,
        description: Str,
    }
    struct Format {
        struct_size: usize,
        name: Str,
        description: Str,
        flags: u32,
        reserved: u32,
        magics: *const Magic,
        n_magics: usize,
        extensions: *const Str,
        n_extensions: usize,
        capsules: *const Str,
        n_capsules: usize,
        device_types: *const i32,
        n_device_types: usize,
        options: *const OptionInfo,
        n_options: usize,
    }
    struct Input {
        struct_size: usize,
        capsules: *mut Capsules,
        sources: *mut Source,
        n_sources: usize,
    }
    #[derive(Clone, Copy)]
    struct Path {
        names: *const Str,
        n_names: usize,
    }
    #[derive(Clone, Copy)]
    struct RowRange {
        begin: u64,
        end: u64,
    }
    #[derive(Clone, Copy)]
    struct Predicate {
        struct_size: usize,
        column: Path,
        comparison: u32,
        reserved: u32,
        r#type: *const ArrowSchema,
        literal: *const ArrowArray,
    }
    struct ReadRequest {
        struct_size: usize,
        format: Str,
        input: *const Input,
        schema: *const ArrowSchema,
        options: *const OptionPair,
        n_options: usize,
        flags: u32,
        reserved: u32,
        columns: *const Path,
        n_columns: usize,
        rows: *const RowRange,
        n_rows: usize,
        batch_rows: u64,
        batch_bytes: u64,
        predicates: *const Predicate,
        n_predicates: usize,
        fragment: *const c_void,
        fragment_bytes: usize,
    }
    struct Fragment {
        struct_size: usize,
        token: *const c_void,
        token_bytes: usize,
        n_rows: i64,
        bytes: u64,
        statistics: *mut Batch,
    }
    struct Fragments {
        struct_size: usize,
        fragments: *const Fragment,
        n_fragments: usize,
        release: Option<unsafe extern "C" fn(*mut Fragments)>,
        private_data: *mut c_void,
    }
    #[derive(Clone, Copy)]
    struct Importer {
        struct_size: usize,
        formats: Option<unsafe extern "C" fn(*mut Instance, *mut *const Format, *mut usize, *mut Error) -> Code>,
        open: Option<unsafe extern "C" fn(*mut Instance, *const Call, *const ReadRequest, *mut BatchStream,
            *mut Error) -> Code>,
        fragments: Option<unsafe extern "C" fn(*mut Instance, *const Call, *const ReadRequest, *mut Fragments,
            *mut Error) -> Code>,
    }
    #[derive(Clone, Copy)]
    struct Opener {
        struct_size: usize,
        schemes: Option<unsafe extern "C" fn(*mut Instance, *mut *const Str, *mut usize, *mut Error) -> Code>,
        open: Option<unsafe extern "C" fn(*mut Instance, *const Call, Str, *const OptionPair, usize, *mut Source,
            *mut Error) -> Code>,
    }
    struct ColumnPlan {
        struct_size: usize,
        name: Str,
        verdict: u32,
        reserved: u32,
        to: Device,
        reason: Str,
    }
    struct Plan {
        struct_size: usize,
        columns: *const ColumnPlan,
        n_columns: usize,
        release: Option<unsafe extern "C" fn(*mut Plan)>,
        private_data: *mut c_void,
    }
    #[derive(Clone, Copy)]
    struct Exporter {
        struct_size: usize,
        formats: Option<unsafe extern "C" fn(*mut Instance, *mut *const Format, *mut usize, *mut Error) -> Code>,
        plan: Option<unsafe extern "C" fn(*mut Instance, *const Call, Str, *const ArrowSchema, Device,
            *const OptionPair, usize, *mut Plan, *mut Error) -> Code>,
        begin: Option<unsafe extern "C" fn(*mut Instance, *const Call, Str, *const ArrowSchema, *const OptionPair,
            usize, *mut Sink, *mut Writer, *mut Error) -> Code>,
    }
    struct EncodedBuffer {
        struct_size: usize,
        address: *const c_void,
        bytes: u64,
        alignment: u64,
        device: Device,
        sync_event: *mut c_void,
        release: Option<unsafe extern "C" fn(*mut EncodedBuffer)>,
        private_data: *mut c_void,
    }
    struct EncodedNode {
        struct_size: usize,
        encoding: Str,
        schema: *const ArrowSchema,
        length: u64,
        metadata: *const c_void,
        metadata_bytes: usize,
        first_buffer: u32,
        n_buffers: u32,
        n_children: u32,
        reserved: u32,
        dtype: *const c_void,
        dtype_bytes: usize,
    }
    struct EncodedArray {
        struct_size: usize,
        nodes: *const EncodedNode,
        n_nodes: usize,
        buffers: *mut EncodedBuffer,
        n_buffers: usize,
        release: Option<unsafe extern "C" fn(*mut EncodedArray)>,
        private_data: *mut c_void,
    }
    #[derive(Clone, Copy)]
    struct Operator {
        code: u32,
        index: u32,
        a: u64,
        b: u64,
    }
    #[derive(Clone, Copy)]
    struct Encoding {
        struct_size: usize,
        ids: Option<unsafe extern "C" fn(*mut Instance, *mut *const Str, *mut usize, *mut Error) -> Code>,
        check: Option<unsafe extern "C" fn(*mut Instance, *const EncodedArray, usize, *mut Error) -> Code>,
        children: Option<unsafe extern "C" fn(*mut Instance, *const EncodedNode, *mut ArrowSchema, *mut u64, *mut Error) -> Code>,
        size: Option<unsafe extern "C" fn(*mut Instance, *const EncodedArray, usize, *const RowRange, *mut i64,
            *mut Error) -> Code>,
        lower: Option<unsafe extern "C" fn(*mut Instance, *const EncodedArray, usize, *mut Operator, usize, *mut usize,
            *mut Error) -> Code>,
        plan: Option<unsafe extern "C" fn(*mut Instance, *const EncodedArray, usize, Device, *const RowRange,
            *mut DecodePlan, *mut Error) -> Code>,
        decode: Option<unsafe extern "C" fn(*mut Instance, *const Call, *const EncodedArray, usize, *const RowRange,
            *mut Batch, usize, *mut Batch, *mut Error) -> Code>,
    }
    #[derive(Clone, Copy)]
    struct DecodePlan {
        struct_size: usize,
        device: Device,
        rows: RowRange,
        decoded: *mut u8,
        rows_below: *mut RowRange,
        n_below: usize,
    }
    #[derive(Clone, Copy)]
    struct Encoder {
        struct_size: usize,
        ids: Option<unsafe extern "C" fn(*mut Instance, *mut *const Str, *mut usize, *mut Error) -> Code>,
        encode: Option<unsafe extern "C" fn(*mut Instance, *const Call, Str, *const OptionPair, usize, *const ArrowSchema,
            *mut Batch, *mut EncodedArray, *mut Error) -> Code>,
    }
    #[derive(Clone, Copy)]
    struct Host {
        struct_size: usize,
        abi_major: u32,
        abi_minor: u32,
        retain: Option<unsafe extern "C" fn(*const Host)>,
        release: Option<unsafe extern "C" fn(*const Host)>,
        get_interface: Option<unsafe extern "C" fn(*const Host, *const c_char) -> *const c_void>,
        private_data: *mut c_void,
    }
    #[derive(Clone, Copy)]
    struct HostLog {
        struct_size: usize,
        write: Option<unsafe extern "C" fn(*const HostLog, i32, Str)>,
        private_data: *mut c_void,
    }
    #[derive(Clone, Copy)]
    struct HostSession {
        struct_size: usize,
        device: Device,
        memory_limit: u64,
        threads: u32,
        reserved: u32,
    }
    #[derive(Clone, Copy)]
    struct HostDecode {
        struct_size: usize,
        decode: Option<unsafe extern "C" fn(*const HostDecode, *const Call, *mut EncodedArray, *const RowRange, *mut Batch, *mut Error) -> Code>,
        children: Option<unsafe extern "C" fn(*const HostDecode, *const EncodedNode, *mut ArrowSchema, *mut u64, *mut Error) -> Code>,
        private_data: *mut c_void,
    }
    #[derive(Clone, Copy, Debug)]
    struct Load {
        offset: u64,
        to: *mut c_void,
        bytes: usize,
    }
    #[derive(Clone, Copy)]
    struct HostLoader {
        struct_size: usize,
        load: Option<unsafe extern "C" fn(*const HostLoader, *const Call, *mut Source, *const Load, usize, *mut Stream,
            *mut Error) -> Code>,
        private_data: *mut c_void,
    }
    #[derive(Clone, Copy)]
    struct HostTasks {
        struct_size: usize,
        group_create: Option<unsafe extern "C" fn(*const HostTasks, *mut *mut TaskGroup, *mut Error) -> Code>,
        run: Option<unsafe extern "C" fn(*const HostTasks, *mut TaskGroup, Callback, *mut c_void, *mut Error) -> Code>,
        wait: Option<unsafe extern "C" fn(*const HostTasks, *mut TaskGroup, u32, *mut u32, *mut Error) -> Code>,
        group_release: Option<unsafe extern "C" fn(*const HostTasks, *mut TaskGroup)>,
        private_data: *mut c_void,
    }
    struct Allocation {
        address: *mut c_void,
        bytes: usize,
        block: *mut Block,
    }
    #[derive(Clone, Copy)]
    struct Copy {
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        to_device: Device,
        from_device: Device,
    }
    struct Pointer {
        struct_size: usize,
        device: Device,
        base: *const c_void,
        bytes: u64,
    }
    struct DeviceInfo {
        struct_size: usize,
        device: Device,
        name: Str,
        description: Str,
        memory_bytes: u64,
        host_accessible: u32,
        reserved: u32,
    }
    #[derive(Clone, Copy)]
    struct Arg {
        value: u64,
        bytes: u64,
        kind: u32,
        reserved: u32,
    }
    #[derive(Clone, Copy)]
    struct Kernel {
        struct_size: usize,
        name: *const c_char,
        host_function: Option<unsafe extern "C" fn(*const Arg, usize) -> Code>,
        image: *const c_void,
        image_bytes: usize,
        flags: u32,
        reserved: u32,
    }
    struct KernelArgs {
        n_args: u64,
        host_function: Option<unsafe extern "C" fn(*const Arg, usize) -> Code>,
        all_args: *const Arg,
        host_args: *const Arg,
        args: [Arg; MAX_KERNEL_ARGS],
    }
    #[derive(Clone, Copy, Debug)]
    struct Image {
        kind: u32,
        architecture: u32,
        offset: u64,
        bytes: u64,
    }
    #[derive(Clone, Copy, Debug)]
    struct ImageSet {
        magic: u64,
        bytes: u64,
        n_images: u32,
        reserved: u32,
    }
    #[derive(Clone, Copy)]
    struct Launch {
        struct_size: usize,
        blocks: [u32; 3],
        threads: [u32; 3],
        cluster: [u32; 3],
        shared_bytes: u32,
        flags: u32,
        reserved: u32,
    }
    #[derive(Clone, Copy)]
    struct HostKernels {
        struct_size: usize,
        find: Option<unsafe extern "C" fn(*const HostKernels, Device, *const c_char, *const c_char, *mut *const Kernel, *mut Error) -> Code>,
        private_data: *mut c_void,
    }
    struct Memory {
        struct_size: usize,
        private_data: *mut c_void,
        devices: Option<unsafe extern "C" fn(*const Memory, *mut DeviceInfo, usize, *mut usize, *mut Error) -> Code>,
        alloc: Option<unsafe extern "C" fn(*const Memory, Device, usize, usize, *mut Stream, u32, *mut Allocation,
            *mut Error) -> Code>,
        alloc_pinned: Option<unsafe extern "C" fn(*const Memory, usize, *mut Allocation, *mut Error) -> Code>,
        free: Option<unsafe extern "C" fn(*const Memory, *mut Block, *const *mut Event, usize, u32)>,
        copy: Option<unsafe extern "C" fn(*const Memory, *mut Stream, *const Copy, usize, *mut Error) -> Code>,
        fill: Option<unsafe extern "C" fn(*const Memory, *mut Stream, *mut c_void, u8, usize, *mut Error) -> Code>,
        launch: Option<unsafe extern "C" fn(*const Memory, *mut Stream, *const Kernel, *const Launch, *const Arg, usize,
            *mut Error) -> Code>,
        stream_default: Option<unsafe extern "C" fn(*const Memory, Device, *mut *mut Stream, *mut Error) -> Code>,
        stream_create: Option<unsafe extern "C" fn(*const Memory, Device, i32, u32, *mut *mut Stream, *mut Error) -> Code>,
        stream_destroy: Option<unsafe extern "C" fn(*const Memory, *mut Stream)>,
        stream_synchronize: Option<unsafe extern "C" fn(*const Memory, *mut Stream, *mut Error) -> Code>,
        stream_wait: Option<unsafe extern "C" fn(*const Memory, *mut Stream, *mut Event, *mut Error) -> Code>,
        stream_wait_raw: Option<unsafe extern "C" fn(*const Memory, *mut Stream, *mut c_void, *mut Error) -> Code>,
        stream_raw: Option<unsafe extern "C" fn(*const Memory, *mut Stream) -> *mut c_void>,
        stream_is_capturing: Option<unsafe extern "C" fn(*const Memory, *mut Stream, *mut u32, *mut Error) -> Code>,
        event_record: Option<unsafe extern "C" fn(*const Memory, *mut Stream, *mut *mut Event, *mut Error) -> Code>,
        event_query: Option<unsafe extern "C" fn(*const Memory, *mut Event, *mut u32, *mut Error) -> Code>,
        event_synchronize: Option<unsafe extern "C" fn(*const Memory, *mut Event, *mut Error) -> Code>,
        event_destroy: Option<unsafe extern "C" fn(*const Memory, *mut Event)>,
        event_raw: Option<unsafe extern "C" fn(*const Memory, *mut Event) -> *mut c_void>,
        pointer: Option<unsafe extern "C" fn(*const Memory, *const c_void, *mut Pointer, *mut Error) -> Code>,
        host_address: Option<unsafe extern "C" fn(*const Memory, Device, *const c_void, usize) -> *mut c_void>,
        call_after: Option<unsafe extern "C" fn(*const Memory, *const *mut Event, usize, Callback, *mut c_void)>,
        stream_adopt: Option<unsafe extern "C" fn(*const Memory, Device, *mut c_void, *mut *mut Stream, *mut Error) -> Code>,
        call_after_all: Option<unsafe extern "C" fn(*const Memory, *const *mut Event, usize, Callback, *mut c_void)>,
    }
    struct PluginEntry {
        magic: u64,
        struct_size: usize,
        abi_major: u32,
        abi_minor: u32,
        flags: u64,
        create: Option<unsafe extern "C" fn(*const Host, *mut *mut Instance, *mut Error) -> Code>,
        destroy: Option<unsafe extern "C" fn(*mut Instance)>,
        get_interface: Option<unsafe extern "C" fn(*mut Instance, *const c_char) -> *const c_void>,
    }
    #[derive(Clone)]
    struct PluginMeta {
        magic: u64,
        struct_size: u32,
        abi_major: u32,
        abi_minor: u32,
        n_sizes: u32,
        name: [u8; 64],
        version: [u8; 32],
        api_range: [u8; 32],
        licence: [u8; 64],
        toolchain: [u8; 96],
        panic: [u8; 16],
        interfaces: [u8; 256],
        formats: [u8; 1024],
        encodings: [u8; 4096],
        description: [u8; 256],
        schemes: [u8; 256],
        required: [u8; 512],
        sizes: [u32; META_SIZES],
    }
}

zeroed! {
    ArrowSchema, ArrowArray, ArrowDeviceArray, ArrowArrayStream, ArrowDeviceArrayStream, Str, Cancel, Allocation,
    KernelArgs, PluginEntry, PluginMeta
}

sized! {
    Error, Batch, Capsule, Capsules, Source, Sink, Call, BatchStream, Writer, OptionInfo, Format, Input,
    Predicate, ReadRequest, Fragment, Fragments, ColumnPlan, Plan, EncodedBuffer, EncodedNode, EncodedArray,
    DecodePlan, Host, HostLog, HostSession, HostDecode, HostLoader, HostTasks, Pointer, DeviceInfo, Kernel, Launch,
    HostKernels, Memory
}

// A plugin's entry, interfaces and kernels are static variables, which must be `Sync`.
immutable! { PluginEntry, Importer, Opener, Exporter, Encoding, Encoder, Kernel }
