//! The plugin's process: loads the plugin and dispatches the host's requests to it.

mod dispatch;
mod host_client;
mod host_objects;
mod instance;
pub(crate) mod library;
mod log;
mod object_table;
pub(crate) mod open_stream;
mod received_segments;
pub(crate) mod server;
mod sink;
