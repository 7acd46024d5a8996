//! Copies batches to another device, or to a new allocation on the same device. Each batch needs
//! one allocation and one submission of copies. If a batch is a slice, only the ranges that it uses
//! are copied.

mod block;
mod build;
mod plan;

pub use block::copy_to_block;

use crossdock_memory::{Device, Result, Stream};

use crate::layout::ChildRule;
use crate::nulls::stream_on;
use crate::{DeviceArray, DeviceBatch};
use plan::Plan;

impl DeviceBatch {
    /// Copies the batch to `device` in one allocation. If the batch is on `device` already, it is
    /// returned unchanged.
    ///
    /// If the batch is a slice, only the ranges that it uses are copied. If a slice begins within a
    /// byte of a bitmap, up to 7 preceding values are copied too, and the offset of the result is
    /// the number of these values. Dictionaries, the data of views, and the children of dense
    /// unions, list-views and run-end encoded arrays are copied in full. The call blocks while it
    /// resolves unknown sizes and reads the first and last offsets of slices. It does not wait for
    /// the copies if the device has streams.
    pub fn move_to(&self, stream: &Stream, device: Device) -> Result<DeviceBatch> {
        if device == self.device() {
            return Ok(self.clone());
        }
        let columns = relocate(self.columns(), self.device(), device, false, stream)?;
        self.with_columns(columns, device)
    }

    /// Copies the batch to a new allocation on its own device. If the batch is a slice, only the
    /// ranges that it uses are copied. All offsets become 0, except in run-end encoded arrays.
    pub fn compact(&self, stream: &Stream) -> Result<DeviceBatch> {
        let columns = relocate(self.columns(), self.device(), self.device(), true, stream)?;
        self.with_columns(columns, self.device())
    }

    /// Returns the batch unchanged if all offsets outside of run-end encoded arrays are 0.
    /// Otherwise, returns a copy created by [`DeviceBatch::compact`].
    pub fn without_offsets(&self, stream: &Stream) -> Result<DeviceBatch> {
        fn has_offset(array: &DeviceArray) -> bool {
            let is_offset = array.offset() > 0 && array.layout().child_rule != ChildRule::Runs;
            is_offset || array.children().iter().chain(array.dictionary()).any(has_offset)
        }
        if self.columns().iter().any(has_offset) { self.compact(stream) } else { Ok(self.clone()) }
    }

    fn with_columns(&self, columns: Vec<crate::DeviceArray>, device: Device) -> Result<DeviceBatch> {
        let moved = DeviceBatch::from_checked_columns(self.schema().clone(), self.len(), columns, device)?;
        Ok(moved.with_metadata(self.metadata().clone()))
    }
}

fn relocate(
    arrays: &[DeviceArray],
    from: Device,
    to: Device,
    align_bits: bool,
    stream: &Stream,
) -> Result<Vec<DeviceArray>> {
    let mut arrays = arrays.to_vec();
    crate::sizes::resolve(&mut arrays.iter_mut().collect::<Vec<_>>(), stream).map_err(|(_, e)| e)?;
    // Copies run on the caller's stream if that stream belongs to the source or target device.
    // Otherwise they run on the default stream of the target device.
    let target = stream_on(to, stream)?;
    let copier = if stream.device() == from { stream.clone() } else { target.clone() };
    let plan = Plan::new(&arrays, align_bits, &copier)?;
    build::build(plan, &target, &copier)
}
