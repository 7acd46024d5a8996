//! Finds and loads Crossdock plugins, and moves tables between the formats that they read and
//! write.
//!
//! A [`Host`] owns memory and the plugins that were found. A [`Session`] has a device, settings,
//! and its own plugin instances; it reads ([`Session::read`]), writes ([`Session::write`]),
//! converts ([`Session::conversion`]) and plans ([`Session::plan`]). A [`Table`] is built from
//! slices, record batches, files or device arrays, and converts back to them.
//!
//! ```
//! use std::sync::Arc;
//! use arrow_schema::{DataType, Field, Schema};
//! use crossdock::{ColumnSlice, Host, Table};
//!
//! let host = Host::builder().build()?;
//! let session = host.session().open()?;
//! let schema = Arc::new(Schema::new(vec![
//!     Field::new("id", DataType::Int64, false),
//!     Field::new("name", DataType::Utf8, true),
//! ]));
//! let columns = [
//!     ColumnSlice::new(&[1i64, 2, 3][..]),
//!     ColumnSlice::new(&["a", "b", ""][..]).with_validity(&[true, true, false]),
//! ];
//! let table = Table::from_columns(&session, schema, &columns)?;
//! let batches = table.to_record_batches()?;
//! assert_eq!(batches[0].num_rows(), 3);
//!
//! drop((batches, table, session));
//! assert!(host.settle().is_empty(), "no memory is leaked");
//! # Ok::<(), crossdock::Error>(())
//! ```
//!
//! **Lifetimes.** Batches, exported arrays and tables own what they need: they may outlive their
//! session and their host. A plugin instance is destroyed on a separate thread, once its handles
//! are dropped and everything that it exported is released. The plugin's code stays mapped until
//! the process ends.
//!
//! **Threads.** All functions may be called from any thread. A plugin must not call
//! [`Host::settle`].

mod api_error;
mod arrow_streams;
mod capsules;
mod column_name;
pub mod convert;
mod decode;
pub mod discovery;
mod encode;
mod encoded;
mod encoded_parts;
mod error;
mod filter;
mod foreign_memory;
mod fragments;
mod hash;
mod host;
mod host_object;
mod instances;
pub mod isolation;
mod kernels;
pub mod load;
mod lock_file;
pub mod metadata;
mod opener;
mod parts;
mod place;
mod plugin;
pub mod policy;
mod processes;
mod read_options;
mod reader;
mod readiness;
mod received;
mod reclaimer;
mod refusal;
pub mod registry;
mod row_ranges;
mod scan;
mod selection;
mod session;
mod sharing;
pub mod sink;
mod size;
pub mod source;
mod stated_rows;
mod table;
mod tracing_hooks;
mod trust;
mod uri;
mod vortex_types;
mod whole_ranges;
mod writer;

pub use arrow_streams::RecordBatches;
pub use capsules::CapsuleFormat;
pub use column_name::ColumnName;
pub use crossdock_arrays::CastMode;
pub use crossdock_arrays::filter::{Decimal, Literal, Operator};
pub use crossdock_isolation::refuse_if_privileged;
pub use crossdock_isolation::truncated;
pub use crossdock_memory_backend as memory;
pub use crossdock_plugin_api as api;
pub use decode::NodePlan;
pub use encoded_parts::EncodedParts;
pub use error::{Error, Result, one_line, printable};
pub use filter::Predicate;
pub use fragments::check_statistics_schema;
pub use host::{Host, HostBuilder};
pub use parts::{Parts, PartsHeader, Rebuilt, received_bytes};
pub use plugin::Plugin;
pub use policy::Policy;
pub use read_options::ReadOptions;
pub use reader::Reader;
pub use scan::{Batches, Fragment, Scan, ScanOptions, ScanSource};
pub use session::{Session, SessionBuilder};
pub use sharing::{DeviceParts, SharedTable, SharingWay};
pub use size::parse_bytes;
pub use table::{ColumnSlice, IpcForm, Native, PendingTable, Shown, Table, TensorNulls, Validity, Values};
pub use tracing_hooks::{TRACE_VARIABLE, trace_from_environment, trace_to};
pub use uri::scheme_of;
pub use writer::{Finished, WriteOptions, Writer};
