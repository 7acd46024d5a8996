//! How long arrays can be.

use crossdock_memory::Error;

pub(super) fn too_long() -> Error {
    Error::unsupported("together they are longer than an array can be: leave them apart")
}
