//! Partitions: parts of a scan that are read one after another, each batch when it is needed.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use crossdock::{Fragment, Scan};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;

use crate::batches;

/// Batches that wait for the query.
const CAPACITY: usize = 2;

/// The parts of a scan that one task of the query reads.
pub struct Partition {
    schema: SchemaRef,
    parts: Arc<Parts>,
}

enum Parts {
    Whole(Scan),
    Fragments(Vec<Fragment>),
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.parts {
            Parts::Whole(_) => f.write_str("a scan"),
            Parts::Fragments(fragments) => write!(f, "{} fragments", fragments.len()),
        }
    }
}

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema.clone(), CAPACITY);
        let (sender, schema, parts) = (builder.tx(), self.schema.clone(), self.parts.clone());
        // Reading blocks, and a query that ends drops the receiver.
        builder.spawn_blocking(move || {
            let send = |scan: &Scan| -> Result<bool> {
                for batch in scan.record_batches().map_err(external)? {
                    let batch = batch.map_err(|error| DataFusionError::External(error.into()));
                    let batch = batch.and_then(|batch| batches::batch(batch, &schema));
                    if sender.blocking_send(batch).is_err() {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            match &*parts {
                Parts::Whole(scan) => send(scan).map(drop),
                Parts::Fragments(fragments) => {
                    for fragment in fragments {
                        if !send(&fragment.scan().map_err(external)?)? {
                            break;
                        }
                    }
                    Ok(())
                }
            }
        });
        builder.build()
    }
}

/// Divides a scan into at most `n` partitions of adjacent fragments with about the same number of
/// bytes. A scan whose input has no fragments is one partition.
pub fn divide(scan: &Scan, schema: &SchemaRef, n: usize) -> Result<Vec<Arc<dyn PartitionStream>>> {
    let partition = |parts: Parts| -> Arc<dyn PartitionStream> {
        Arc::new(Partition { schema: schema.clone(), parts: Arc::new(parts) })
    };
    if n < 2 || scan.is_once() {
        return Ok(vec![partition(Parts::Whole(scan.clone()))]);
    }
    let fragments = match scan.fragments() {
        Ok(fragments) => fragments,
        // The scan has a filter and a limit, or its plugin reads all inputs at once.
        Err(crossdock::Error::Usage(_)) => return Ok(vec![partition(Parts::Whole(scan.clone()))]),
        Err(error) => return Err(external(error)),
    };
    let size = |fragment: &Fragment| u128::from(fragment.bytes().max(1));
    let total: u128 = fragments.iter().map(size).sum();
    let (mut done, mut groups) = (0, Vec::new());
    groups.resize_with(n, Vec::new);
    for fragment in fragments {
        let bytes = size(&fragment);
        // The group that contains the middle of the fragment.
        let group = ((2 * done + bytes) * n as u128 / (2 * total)) as usize;
        done += bytes;
        if let Some(group) = groups.get_mut(group.min(n - 1)) {
            group.push(fragment);
        }
    }
    groups.retain(|group| !group.is_empty());
    if groups.is_empty() {
        // No fragment has a requested row.
        return Ok(vec![partition(Parts::Fragments(Vec::new()))]);
    }
    Ok(groups.into_iter().map(|group| partition(Parts::Fragments(group))).collect())
}

/// An error of the host.
pub fn external(error: crossdock::Error) -> DataFusionError {
    DataFusionError::External(error.into())
}
