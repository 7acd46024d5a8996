//! Checks that the last offset of each array is within the declared size of its data.

use arrow_schema::{DataType, Schema};
use crossdock_memory::{Buffer, Device, Error, ForeignOwner, Memory, Ready, Result};
use crossdock_plugin_api::{Owned, abi};

use crate::MAX_DEPTH;
use crate::layout::{BufferKind, layout, shown};

/// Rejects a batch if the last offset of one of its arrays exceeds the declared size of the data.
///
/// Arrow's own structs have no buffer sizes, so their consumers trust the last offset and would
/// read beyond the end of the data. Call this function before such a consumer receives a batch of
/// which only the layout was checked. The check covers memory that the host can read without a
/// copy. For other memory, the device's driver rejects a copy that exceeds an allocation.
/// # Errors
///
/// Returns an error if an offset is out of range.
pub fn check_last_offsets(batch: &Owned<abi::Batch>, schema: &Schema, memory: &Memory) -> Result<()> {
    let device = Device::from_arrow(batch.array.device_type, batch.array.device_id);
    if device != Device::CPU || batch.buffer_sizes.is_null() || batch.is_released() {
        return Ok(());
    }
    // SAFETY: a valid batch has `n_buffer_sizes` sizes. They live as long as the batch, which stays
    // borrowed.
    let sizes = unsafe { std::slice::from_raw_parts(batch.buffer_sizes, batch.n_buffer_sizes) };
    let root = &batch.array.array;
    let mut walk = Walk { sizes, next: usize::try_from(root.n_buffers).unwrap_or(0), memory };
    for (i, field) in schema.fields().iter().enumerate() {
        // SAFETY: `Owned` holds a valid batch, whose arrays live at least as long as the borrow.
        let checked = unsafe { child(root, i).map_or(Ok(()), |c| walk.node(c, field.data_type(), 1)) };
        checked.map_err(|e| e.context(format_args!("'{}'", shown(field.name()))))?;
    }
    Ok(())
}

struct Walk<'a> {
    /// The declared sizes of all buffers, in pre-order, in bytes.
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
            && let Some(data_bytes @ 0..) = self.sizes.get(first + 2).copied()
            && !raw.buffers.is_null()
        {
            // SAFETY: `n` is 3, so the list of a valid array has three entries. Entry 1 is the
            // address of the offsets.
            let last = unsafe { self.last_offset(raw, *raw.buffers.add(1) as u64, first + 1, width) }?;
            if !(0..=data_bytes).contains(&last) {
                return Err(Error::bad_data(format!(
                    "an array of type {data_type} has the last offset {last}, but {data_bytes} bytes of data",
                    data_type = crate::type_name(data_type)
                )));
            }
        }
        for (i, field) in layout.children.iter().enumerate() {
            // SAFETY: the caller guarantees that `raw` is a node of a valid array that outlives
            // `self`, and this also holds for the children of `raw`.
            unsafe { child(raw, i).map_or(Ok(()), |c| self.node(c, field.data_type(), depth + 1)) }?;
        }
        // SAFETY: a valid array's dictionary is NULL or a valid array.
        match (unsafe { raw.dictionary.as_ref() }, layout.dictionary) {
            // SAFETY: the dictionary of a node of a valid array is a node of that array.
            (Some(dictionary), Some((_, values))) => unsafe { self.node(dictionary, values, depth + 1) },
            _ => Ok(()),
        }
    }

    /// # Safety
    /// `address` is the address of the offsets of `raw`, and `size` is the index of their size in
    /// `self.sizes`.
    unsafe fn last_offset(
        &self,
        raw: &abi::ArrowArray,
        address: u64,
        size: usize,
        width: usize,
    ) -> Result<i64> {
        let too_long = || {
            Error::bad_data(format!(
                "offset {} + length {} exceeds the maximum length of an array",
                raw.offset, raw.length
            ))
        };
        let entry = raw.offset.checked_add(raw.length).and_then(|end| usize::try_from(end).ok());
        let at = entry.and_then(|entry| entry.checked_mul(width)).ok_or_else(too_long)?;
        let declared_bytes = self.sizes.get(size).and_then(|bytes| u64::try_from(*bytes).ok());
        // If no size is declared, the buffer of a valid array still contains the whole last offset.
        let bytes = declared_bytes.or_else(|| u64::try_from(at.checked_add(width)?).ok());
        let no_owner = ForeignOwner::new(());
        // SAFETY: the batch stays borrowed for longer than `offsets` lives, and the buffer of a
        // valid array has the declared or implied number of bytes.
        let offsets = unsafe { Buffer::foreign(&no_owner, Device::CPU, address, bytes, Ready::Now) };
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
    // SAFETY: the list of a valid array has `n_children` pointers to valid arrays. `as_ref` turns a
    // NULL pointer into `None`.
    unsafe { (*raw.children.add(i)).as_ref() }
}
