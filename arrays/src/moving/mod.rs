//! From one device to another, or to a fresh place on the same one: one allocation a batch, all copies together, of a
//! slice only what it needs.

mod build;
mod plan;

use crossdock_memory::{Device, Result, Stream};

use crate::layout::ChildRule;
use crate::nulls::stream_on;
use crate::{DeviceArray, DeviceBatch};
use plan::Plan;

impl DeviceBatch {
    /// The batch on `device`: itself if it is there already, else a copy in one allocation.
    ///
    /// Of a slice only the ranges that it needs are copied; a slice that does not begin on a bitmap's byte keeps up to 7
    /// values before it as the array's offset. Children of dense unions, list-views and run-end encoded arrays,
    /// dictionaries and data that views point into move whole. Unknown sizes are resolved first, and the ends of slices
    /// read, which blocks; the copies themselves do not, where the device's streams allow.
    pub fn move_to(&self, stream: &Stream, device: Device) -> Result<DeviceBatch> {
        if device == self.device() {
            return Ok(self.clone());
        }
        let columns = relocate(self.columns(), self.device(), device, false, stream)?;
        self.of_moved(columns, device)
    }

    /// The batch in one fresh allocation on its own device, of a slice only what it needs, with offset 0 everywhere but
    /// in run-end encoded arrays.
    pub fn compact(&self, stream: &Stream) -> Result<DeviceBatch> {
        let columns = relocate(self.columns(), self.device(), self.device(), true, stream)?;
        self.of_moved(columns, self.device())
    }

    /// The batch with offset 0 everywhere but in run-end encoded arrays: itself if it is so already, else [`DeviceBatch::compact`].
    pub fn without_offsets(&self, stream: &Stream) -> Result<DeviceBatch> {
        fn has_offset(array: &DeviceArray) -> bool {
            let own = array.offset() > 0 && array.layout().child_rule != ChildRule::Runs;
            own || array.children().iter().chain(array.dictionary()).any(has_offset)
        }
        if self.columns().iter().any(has_offset) { self.compact(stream) } else { Ok(self.clone()) }
    }

    fn of_moved(&self, columns: Vec<crate::DeviceArray>, device: Device) -> Result<DeviceBatch> {
        let moved = DeviceBatch::of_checked_types(self.schema().clone(), self.len(), columns, device)?;
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
    // Copies run on the caller's stream if it belongs to either end, else on the target's own.
    let target = stream_on(to, stream)?;
    let copier = if stream.device() == from { stream.clone() } else { target.clone() };
    let plan = Plan::new(&arrays, align_bits, &copier)?;
    build::build(plan, &target, &copier)
}
