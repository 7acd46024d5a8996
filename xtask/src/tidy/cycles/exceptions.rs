//! Lists the modules that may import each other.

/// Modules of one crate that may import each other: the crate's folder, the modules, and the
/// reason. `a::*` is the module `a` with its descendants.
pub type Exception = (&'static str, &'static [&'static str], &'static str);

pub const EXCEPTIONS: &[Exception] = &[
    (
        "plugin-api",
        &["abi", "error", "sized_struct", "sizes"],
        "C structs use minimum sizes, reading a size returns errors, and an error is a C struct",
    ),
    (
        "plugin-api",
        &["encoder", "encoding", "exporter", "format", "importer", "opener", "plugin"],
        "an instance returns handles of its interfaces, and each interface refers to its instance",
    ),
    (
        "memory/client",
        &["buffer", "copies", "event", "memory", "owner", "stream", "view"],
        "handles return other handles: memory returns buffers, streams return events, buffers return views",
    ),
    (
        "memory/backend",
        &["account::*", "backend", "vtable::*"],
        "a backend creates accounts; an account refers to its backend and to its function table, and the functions use the account",
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
        "messages are read from a pipe, which may be buffered in a file",
    ),
    (
        "plugins/arrow-ipc",
        &["write::dictionaries", "write::flatten"],
        "the values of a dictionary are flattened and may themselves be dictionaries",
    ),
    (
        "plugins/encodings",
        &["device", "device::lists", "device::repeat", "device::sparse", "kinds::lists", "kinds::repeat"],
        "on the host, nested values are also decoded by rows, and each kind parses its own metadata",
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
            "objects::compute",
            "objects::encoded",
            "objects::files",
            "objects::scan",
            "objects::rebuild",
            "objects::session",
            "objects::session_state",
            "objects::shared",
            "objects::show",
            "objects::table",
            "objects::writer",
            "vortex::import",
        ],
        "classes return objects of other classes: sessions create tables, tables have columns, and columns and tensors are converted to each other",
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
        "classes of crossdock.cuda return objects of other classes: contexts create allocations, and allocations create views",
    ),
    (
        "tests/sim-cuda",
        &["capture", "launch", "mapped", "memory", "pools", "run", "space", "state", "streams", "touch"],
        "a driver has one state; each module defines a part of the state and uses all of it",
    ),
    ("xtask", &["kernels::*"], "the steps of one command share its options"),
    ("xtask", &["test::*"], "the steps of one command share their outcome"),
];
