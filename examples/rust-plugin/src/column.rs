//! Imports and exports batches of one column of fixed width as C structs, without an Arrow library.

use std::ffi::c_void;

use crossdock_memory::{Buffer, ForeignOwner, Ready, Stream};
use crossdock_plugin_api::{Device, Error, Owned, Result, abi, door::Poison};

/// A column of fixed width, on any device.
pub struct Column {
    len: usize,
    /// The number of values in the buffers before the first value of the column, at most 7. The
    /// buffers begin with such values if the first bit of the column in `validity` is not at the
    /// start of a byte.
    skip: usize,
    null_count: i64,
    /// The validity bitmap; `None` if all values are valid.
    validity: Option<Buffer>,
    /// The buffer of values. It begins with `skip` values that do not belong to the column. `None`
    /// if the column has no values.
    values: Option<Buffer>,
}

fn bad_batch(what: &str) -> Error {
    Error::bad_data(format!("a batch {what}"))
}

impl Column {
    /// Imports a batch of `len` values of `width` bytes. The batch is released when the last of its
    /// buffers is dropped.
    pub fn from_batch(batch: Owned<abi::Batch>, width: usize, len: usize) -> Result<Self> {
        let root = &batch.array.array;
        if root.n_children != 1 || root.children.is_null() {
            return Err(bad_batch("of more or less than one column"));
        }
        // SAFETY: the array has one child (checked above), whose struct lives as long as the batch.
        let column = unsafe { (*root.children).as_ref() }.ok_or_else(|| bad_batch("without its column"))?;
        // The root may be a slice of the column, and the column may be a slice of its buffers.
        let [first, n] = [root.offset, root.length].map(usize::try_from);
        let [inner_first, inner_n] = [column.offset, column.length].map(usize::try_from);
        let (Ok(first), Ok(n), Ok(inner_first), Ok(inner_n)) = (first, n, inner_first, inner_n) else {
            return Err(bad_batch("with a negative offset or length"));
        };
        if n != len || first.checked_add(n).is_none_or(|end| end > inner_n) {
            return Err(bad_batch("of another length than its node"));
        }
        let start = first
            .checked_add(inner_first)
            .filter(|start| start.checked_add(len).and_then(|end| end.checked_mul(width)).is_some());
        let start = start.ok_or_else(|| bad_batch("of more values than there can be"))?;
        if column.n_buffers != 2 || column.buffers.is_null() {
            return Err(bad_batch("whose column is not of fixed width"));
        }
        // SAFETY: the array has two buffers (checked above), so the list has two addresses.
        let [validity, values] = unsafe { [*column.buffers, *column.buffers.add(1)] };
        if values.is_null() && len > 0 {
            return Err(bad_batch("without its values"));
        }
        let null_count = match column.null_count {
            _ if validity.is_null() => 0,
            known if known >= 0 && n == inner_n => known,
            _ => -1,
        };
        let (event, device) = (batch.array.sync_event, (batch.array.device_type, batch.array.device_id));
        let device = Device::from_arrow(device.0, device.1);
        let owner = ForeignOwner::on_release(move || drop(batch));
        // SAFETY: the batch owns the event, and `owner` keeps the batch alive.
        let ready = unsafe { Ready::from_sync_event(event, &owner) };
        let skip = if validity.is_null() { 0 } else { start % 8 };
        let range = |address: *const c_void, from: usize, bytes: usize| {
            let address = address.addr() as u64 + from as u64;
            // SAFETY: the host has checked the batch, so a column of this type and length has
            // buffers of this size. They are valid until the batch is released, and `owner` keeps
            // the batch alive.
            (bytes > 0).then(|| unsafe {
                Buffer::foreign(&owner, device, address, Some(bytes as u64), ready.clone())
            })
        };
        let validity =
            if validity.is_null() { None } else { range(validity, start / 8, (skip + len).div_ceil(8)) };
        let values = range(values, (start - skip) * width, if len == 0 { 0 } else { (skip + len) * width });
        Ok(Self { len, skip, null_count, validity, values })
    }

    /// The number of values in the buffers before the first value of the column.
    pub fn skip(&self) -> usize {
        self.skip
    }

    /// The buffer of values. It begins with `skip` values that do not belong to the column. `None`
    /// if the column has no values.
    pub fn values(&self) -> Option<&Buffer> {
        self.values.as_ref()
    }

    /// Replaces the values by `values`, which must have the same number of bytes.
    pub fn with_values(self, values: Option<Buffer>) -> Self {
        Self { values, ..self }
    }

    /// Exports the column. The result is ready after the work that is enqueued on `stream`. This
    /// work has waited for the imported batch.
    pub fn into_batch(self, stream: &Stream) -> Result<Owned<abi::Batch>> {
        let ready = stream.record()?;
        let device = stream.device();
        let buffers = [&self.validity, &self.values];
        // The consumer may release the buffers while the consumer's own work on them still runs.
        buffers.into_iter().flatten().for_each(Buffer::mark_exported);
        let addresses = buffers.map(|b| b.as_ref().map_or(0, Buffer::address) as *const c_void);
        let bytes = buffers.map(|b| b.as_ref().and_then(Buffer::len).unwrap_or(0) as i64);
        let len = self.len as i64;
        let (offset, null_count) = (self.skip as i64, self.null_count);
        let mut inner = Box::new(Inner { addresses, _buffers: [self.validity, self.values] });
        let column = abi::ArrowArray {
            length: len,
            null_count,
            offset,
            n_buffers: 2,
            buffers: inner.addresses.as_mut_ptr(),
            release: Some(release_column),
            private_data: Box::into_raw(inner).cast(),
            ..abi::ArrowArray::default()
        };
        let mut outer = Box::new(Outer {
            column,
            children: [std::ptr::null_mut()],
            addresses: [std::ptr::null()],
            sizes: [0, bytes[0], bytes[1]],
            ready,
        });
        outer.children = [&raw mut outer.column];
        let mut batch = abi::Batch::new();
        batch.buffer_sizes = outer.sizes.as_ptr();
        batch.n_buffer_sizes = outer.sizes.len();
        batch.array.device_type = device.r#type;
        batch.array.device_id = device.id;
        batch.array.sync_event = outer.ready.sync_event();
        batch.array.array = abi::ArrowArray {
            length: len,
            n_buffers: 1,
            n_children: 1,
            buffers: outer.addresses.as_mut_ptr(),
            children: outer.children.as_mut_ptr(),
            release: Some(release_batch),
            private_data: Box::into_raw(outer).cast(),
            ..abi::ArrowArray::default()
        };
        // SAFETY: all fields of `batch` are set above, and only the result owns the batch.
        Ok(unsafe { Owned::new(batch) })
    }
}

/// The `private_data` of the column. It is separate from the `private_data` of the batch, because a
/// consumer may move the column out of the batch.
struct Inner {
    addresses: [*const c_void; 2],
    _buffers: [Option<Buffer>; 2],
}

/// The `private_data` of the batch.
struct Outer {
    column: abi::ArrowArray,
    children: [*mut abi::ArrowArray; 1],
    addresses: [*const c_void; 1],
    sizes: [i64; 3],
    ready: Ready,
}

unsafe extern "C" fn release_column(array: *mut abi::ArrowArray) {
    // SAFETY: only `into_batch` sets this function, and stores a boxed `Inner` in `private_data`.
    // The caller passes an array that has not been released.
    unsafe {
        (*array).release = None;
        let inner = Box::from_raw((*array).private_data.cast::<Inner>());
        Poison::new().run_release(|| drop(inner));
    }
}

unsafe extern "C" fn release_batch(array: *mut abi::ArrowArray) {
    // SAFETY: only `into_batch` sets this function, and stores a boxed `Outer` in `private_data`.
    // The caller passes an array that has not been released. If the column was moved out, its
    // `release` is NULL.
    unsafe {
        (*array).release = None;
        let mut outer = Box::from_raw((*array).private_data.cast::<Outer>());
        if let Some(release) = outer.column.release {
            release(&mut outer.column);
        }
        Poison::new().run_release(|| drop(outer));
    }
}
