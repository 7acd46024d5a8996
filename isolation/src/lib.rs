//! Plugins in processes of their own (docs/security.md, "Isolation").
//!
//! The host's side of a plugin is a [`Remote`]: a plugin like any other to the rest of the host, whose functions ask a process
//! (`child`; what it asks back: `desk`) that loads the real one and serves it ([`serve()`]), after it gave up its rights
//! (`confine`, and `cgroup` where the policy has one). What they say is plain data (`wire`) in messages (`link`); arrays lie in
//! memory that both see and neither can change (`shared`, `outgoing`, `freight`), and on devices in copies (`rooms`).
//!
//! This crate stands below the host library, which gives the process its host as a [`HostLibrary`]. Applications use
//! `crossdock::isolation`.

mod cgroup;
mod child;
mod confine;
mod deadlines;
mod desk;
mod device_parts;
mod environment;
mod freight;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod hostile;
mod hosting;
mod isolated;
mod lanes;
mod link;
mod locks;
mod log;
mod mapping;
mod outgoing;
mod output;
mod places;
mod program;
mod remote;
mod remote_objects;
mod remote_place;
mod rooms;
mod serve;
mod serve_ask;
mod serve_instance;
mod serve_objects;
mod serve_rooms;
mod shared;
mod sync;
pub mod truncated;
mod wire;

pub use deadlines::Deadlines;
pub use environment::{Environment, refuse_if_privileged};
pub use freight::share;
pub use hosting::{Decoder, HostLibrary, LoadedPlugin, PluginInstance};
pub use isolated::Isolated;
pub use log::heard;
pub use mapping::{Mapping, read_from};
pub use program::{ARGUMENT, INHERITED, Program, ProgramCheck, serve_with};
pub use remote::{Process, Remote};
pub use serve::serve;
pub use shared::seal;
