//! Runs plugins in their own processes (docs/security.md, "Isolation").
//!
//! - `host`: the code that runs in the host's process. The rest of the host uses a
//!   [`RemoteInstance`] like any other plugin instance. Its functions send requests to a child
//!   process, and handle callbacks while they wait for the responses.
//! - `child`: the code that runs in the plugin's process. [`serve()`] gives up the process's
//!   rights, loads the plugin and dispatches the host's requests to it.
//! - `wire`: messages, channels and array transfer. Both processes use them. Arrays are
//!   sent in sealed files that both processes map, or in shared segments.
//! - `sandbox`: confinement of the plugin's process.
//! - `files`: mapped files.
//!
//! This crate does not depend on the host library. The host library implements [`HostLibrary`] for
//! the plugin's process. Applications use `crossdock::isolation`.

mod child;
mod files;
mod host;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod hostile;
mod locks;
mod sandbox;
mod wire;

pub use child::library::{Decoder, HostLibrary, LoadedPlugin, PluginInstance};
pub use child::open_stream::MIN_LIMIT_TO_READ_AHEAD;
pub use child::server::serve;
pub use files::mapping::{Mapping, read_from};
pub use files::seal::seal;
pub use files::truncated;
pub use host::deadlines::Deadlines;
pub use host::isolated_plugin::IsolatedPlugin;
pub use host::log::log_plugin_message;
pub use host::program::{INHERITED_VARIABLES, Program, ProgramCheck, SERVE_ARGUMENT, serve_with};
pub use host::remote_instance::{KeptProcess, PluginProcess, RemoteInstance};
pub use host::remote_writer::with_more_to_follow;
pub use sandbox::environment::{Environment, refuse_if_privileged};
pub use wire::array_transfer::to_shared_memory;
