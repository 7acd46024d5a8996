//! Whether an array whose sizes are told would show the same sizes to those who have only its offsets.

use arrow_schema::{DataType, Schema};
use crossdock_memory::{Buffer, Device, Error, ForeignOwner, Memory, Ready, Result};
use crossdock_plugin_api::{Owned, abi};

use crate::MAX_DEPTH;
use crate::layout::{BufferKind, layout, shown};

/// Refuses a batch whose last offsets point beyond data of a told size. Arrow's own structs carry no sizes: whoever gets
/// them takes the last offset's word for it, and would read on into what lies behind. So this stands where a batch that
/// only its layout was checked of leaves for them.
///
/// Looks where the host may look at no cost; elsewhere the device's driver refuses to copy what no block has.
pub fn check_ends(batch: &Owned<abi::Batch>, schema: &Schema, memory: &Memory) -> Result<()> {
    let device = Device::from_arrow(batch.array.device_type, batch.array.device_id);
    if device != Device::CPU || batch.buffer_sizes.is_null() || batch.is_released() {
        return Ok(());
    }
    // SAFETY: a batch's sizes are as many as it says, and live as long as it, which is borrowed here.
    let sizes = unsafe { std::slice::from_raw_parts(batch.buffer_sizes, batch.n_buffer_sizes) };
    let root = &batch.array.array;
    let mut walk = Walk { sizes, next: usize::try_from(root.n_buffers).unwrap_or(0), memory };
    for (i, field) in schema.fields().iter().enumerate() {
        // SAFETY: `Owned` vouches for the array, whose tree lives as long.
        let checked = unsafe { child(root, i).map_or(Ok(()), |c| walk.node(c, field.data_type(), 1)) };
        checked.map_err(|e| e.context(format_args!("'{}'", shown(field.name()))))?;
    }
    Ok(())
}

struct Walk<'a> {
    /// By buffer, in pre-order.
    sizes: &'a [i64],
    next: usize,
    memory: &'a Memory,
}

impl Walk<'_> {
    /// # Safety
    /// `raw` is a node of a valid array that outlives `self`.
    unsafe fn node(&mut self, raw: &abi::ArrowArray, data_type: &DataType, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::unsupported(format!("an array nests deeper than {MAX_DEPTH} levels")));
        }
        let layout = layout(data_type);
        let (first, n) = (self.next, usize::try_from(raw.n_buffers).unwrap_or(0));
        self.next = first.saturating_add(n);
        if let (Some(BufferKind::Offsets { width }), Some(BufferKind::Data), 3) =
            (layout.kind(1), layout.kind(2), n)
            && raw.length > 0
            && let Some(told @ 0..) = self.sizes.get(first + 2).copied()
            && !raw.buffers.is_null()
        {
            // SAFETY: a valid array's list has its three entries.
            let last = unsafe { self.last_offset(raw, *raw.buffers.add(1) as u64, first + 1, width) }?;
            if !(0..=told).contains(&last) {
                return Err(Error::bad_data(format!(
                    "an array of type {data_type} ends at byte {last} of its data, which has {told} bytes"
                )));
            }
        }
        for (i, field) in layout.children.iter().enumerate() {
            // SAFETY: passed on from the caller.
            unsafe { child(raw, i).map_or(Ok(()), |c| self.node(c, field.data_type(), depth + 1)) }?;
        }
        // SAFETY: a valid array's dictionary is NULL or a valid array.
        match (unsafe { raw.dictionary.as_ref() }, layout.dictionary) {
            // SAFETY: passed on from the caller.
            (Some(dictionary), Some((_, values))) => unsafe { self.node(dictionary, values, depth + 1) },
            _ => Ok(()),
        }
    }

    /// # Safety
    /// `address` is that of the offsets of `raw`, whose size is at `size`.
    unsafe fn last_offset(
        &self,
        raw: &abi::ArrowArray,
        address: u64,
        size: usize,
        width: usize,
    ) -> Result<i64> {
        let too_long =
            || Error::bad_data(format!("offset {} + length {} is beyond counting", raw.offset, raw.length));
        let entry = raw.offset.checked_add(raw.length).and_then(|end| usize::try_from(end).ok());
        let at = entry.and_then(|entry| entry.checked_mul(width)).ok_or_else(too_long)?;
        let told = self.sizes.get(size).and_then(|bytes| u64::try_from(*bytes).ok());
        // A valid array's offsets reach to their last one.
        let bytes = told.or_else(|| u64::try_from(at.checked_add(width)?).ok());
        let nobody = ForeignOwner::new(());
        // SAFETY: the batch outlives this function, and its producer vouches for the range.
        let offsets = unsafe { Buffer::foreign(&nobody, Device::CPU, address, bytes, Ready::Now) };
        let view = offsets.host_view_of(at, width, &self.memory.default_stream(Device::CPU)?)?;
        Ok(match *view {
            [a, b, c, d] => i32::from_ne_bytes([a, b, c, d]).into(),
            [a, b, c, d, e, f, g, h] => i64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        })
    }
}

/// # Safety
/// `raw` is a node of a valid array.
unsafe fn child(raw: &abi::ArrowArray, i: usize) -> Option<&abi::ArrowArray> {
    if i as i64 >= raw.n_children || raw.children.is_null() {
        return None;
    }
    // SAFETY: a valid array's list has `n_children` pointers to valid arrays; NULL becomes None.
    unsafe { (*raw.children.add(i)).as_ref() }
}
