//! The modules that may import each other.

/// Modules of one crate that may import each other: its folder, they, and why. `a::*` is the module `a` with all below it.
pub type Exception = (&'static str, &'static [&'static str], &'static str);

pub const EXCEPTIONS: &[Exception] = &[
    (
        "plugin-api",
        &["abi", "error", "sizes", "told"],
        "the C structs name their least sizes, sizes are read with errors, and an error is one of the structs",
    ),
    (
        "plugin-api",
        &["encoding", "exporter", "format", "importer", "plugin"],
        "an instance gives handles to its interfaces, and each interface finds its instance",
    ),
    (
        "memory/client",
        &["buffer", "copies", "event", "memory", "owner", "stream", "view"],
        "each of the handles makes others: memory buffers, streams events, buffers views",
    ),
    (
        "memory/backend",
        &["account::*", "backend", "vtable::*"],
        "a backend makes accounts, an account has its backend and its table, whose functions are given the account",
    ),
    (
        "memory/backend",
        &["cuda::file", "cuda::platform"],
        "the functions of a platform for open files are in a file of their own",
    ),
    ("memory/backend", &["cuda::staging::*"], "a copy hands its jobs to workers, which go on with the copy"),
    (
        "arrays",
        &["concatenate::nested", "concatenate::plan"],
        "the plan of a nested array is made of the plans of its children",
    ),
    ("arrays", &["take::*"], "what is taken of a nested array is made of what is taken of its children"),
    ("arrays", &["by_value::*"], "a nested array is built of arrays that are built"),
    (
        "plugins/arrow-ipc",
        &["read::messages", "read::pipe"],
        "messages come from a pipe, or from a file that one was",
    ),
    (
        "plugins/arrow-ipc",
        &["write::dictionaries", "write::flatten"],
        "a dictionary's values are flattened, and may have dictionaries",
    ),
    (
        "plugins/encodings",
        &["device", "device::lists", "device::repeat", "device::sparse", "kinds::lists", "kinds::repeat"],
        "nested values are decoded by their rows on the host too, and what a node's metadata means is said with its kind",
    ),
    (
        "python",
        &[
            "arrow_in",
            "buffer_protocol",
            "column",
            "column_held",
            "cuda_array_interface",
            "dlpack_in",
            "dlpack_in_place",
            "dlpack_in_producer",
            "dlpack_out",
            "encoded",
            "exchange_api_own",
            "files",
            "session",
            "show",
            "table",
            "torch",
            "vortex_in",
        ],
        "the classes of the package make each other: sessions tables, tables columns, columns tensors, tensors columns",
    ),
    (
        "python",
        &["cuda_allocation", "cuda_context", "cuda_host_buffer", "cuda_ipc", "cuda_memory", "cuda_tensor"],
        "the classes of crossdock.cuda make each other: contexts allocations, allocations views",
    ),
    (
        "tests/sim-cuda",
        &["capture", "launch", "mapped", "memory", "pools", "run", "space", "state", "streams", "touch"],
        "a driver is one state, of which each of these is a part and works on the whole",
    ),
    ("xtask", &["kernels::*"], "the steps of one command, with its options"),
    ("xtask", &["test::*"], "the steps of one command, with their outcome"),
];
