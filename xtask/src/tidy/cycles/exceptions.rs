//! The modules that may import each other.

/// Modules of one crate that may import each other: the crate's folder, the modules, and the
/// reason. `a::*` is the module `a` with its descendants.
pub type Exception = (&'static str, &'static [&'static str], &'static str);

pub const EXCEPTIONS: &[Exception] = &[
    (
        "plugin-api",
        &["abi", "error", "sized_struct", "sizes"],
        "C structs use minimum sizes, sizes are read with errors, and an error is a C struct",
    ),
    (
        "plugin-api",
        &["encoding", "exporter", "format", "importer", "plugin"],
        "an instance returns handles of its interfaces, and each interface refers to its instance",
    ),
    (
        "memory/client",
        &["buffer", "copies", "event", "memory", "owner", "stream", "view"],
        "the handles create each other: memory creates buffers, streams events, buffers views",
    ),
    (
        "memory/backend",
        &["account::*", "backend", "vtable::*"],
        "a backend creates accounts, an account refers to its backend and its table, whose functions get the account",
    ),
    (
        "memory/backend",
        &["cuda::file", "cuda::platform"],
        "a platform's functions for open files are in a separate file",
    ),
    ("memory/backend", &["cuda::staging::*"], "a copy passes jobs to workers, which continue the copy"),
    (
        "arrays",
        &["concatenate::nested", "concatenate::plan"],
        "the plan of a nested array contains the plans of its children",
    ),
    ("arrays", &["take::*"], "taking from a nested array takes from its children"),
    ("arrays", &["by_value::*"], "building a nested array builds its children"),
    (
        "plugins/arrow-ipc",
        &["read::messages", "read::pipe"],
        "messages come from a pipe, which may be buffered in a file",
    ),
    (
        "plugins/arrow-ipc",
        &["write::dictionaries", "write::flatten"],
        "the values of a dictionary are flattened, and may be dictionaries",
    ),
    (
        "plugins/encodings",
        &["device", "device::lists", "device::repeat", "device::sparse", "kinds::lists", "kinds::repeat"],
        "nested values are decoded by rows on the host, too, and each kind parses its own metadata",
    ),
    (
        "python",
        &[
            "arrow::import",
            "dlpack::buffer_protocol",
            "dlpack::exchange_functions",
            "dlpack::export",
            "dlpack::import",
            "dlpack::import_in_place",
            "dlpack::producer",
            "dlpack::torch",
            "cuda::array_interface",
            "objects::column",
            "objects::column_state",
            "objects::encoded",
            "objects::files",
            "objects::session",
            "objects::show",
            "objects::table",
            "vortex::import",
        ],
        "the package's classes create each other: sessions create tables, tables columns, columns tensors, tensors columns",
    ),
    (
        "python",
        &[
            "cuda::allocation",
            "cuda::context",
            "cuda::host_buffer",
            "cuda::ipc",
            "cuda::memory",
            "cuda::tensor",
        ],
        "the classes of crossdock.cuda create each other: contexts create allocations, allocations views",
    ),
    (
        "tests/sim-cuda",
        &["capture", "launch", "mapped", "memory", "pools", "run", "space", "state", "streams", "touch"],
        "a driver is one state; each module defines a part of it and uses all of it",
    ),
    ("xtask", &["kernels::*"], "the steps of one command share its options"),
    ("xtask", &["test::*"], "the steps of one command share their outcome"),
];
