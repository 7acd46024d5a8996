//! Scans of Crossdock as tables of DataFusion.
//!
//! [`ScanTable`] is a table provider over any scan: files of each format that a plugin of the
//! session reads, at paths, at URIs or in memory. A query reads only the columns that it needs.
//! Comparisons of columns with constants are passed to the scan. Fragments of the scan become
//! partitions.

mod batches;
mod filters;
mod partitions;
mod table;

pub use table::ScanTable;
