//! Batches of one column of fixed width, as the C structs that they cross in: without any Arrow library.

use std::ffi::c_void;

use crossdock_memory::{Buffer, ForeignOwner, Ready, Stream};
use crossdock_plugin_api::{Device, Error, Owned, Result, abi, door::Poison};

/// Values and which of them there are, on some device.
pub struct Column {
    len: usize,
    /// Values before the first that is meant, 7 at most: bits of `validity` begin at bytes.
    skip: usize,
    null_count: i64,
    /// A bit for each value, set where there is one; `None` where there are all.
    validity: Option<Buffer>,
    /// The `skip` values and the others; `None` where there is no byte.
    values: Option<Buffer>,
}

fn wrong(what: &str) -> Error {
    Error::bad_data(format!("a batch {what}"))
}

impl Column {
    /// What a batch of `len` values of `width` bytes holds. It is released when the last buffer in it is gone.
    pub fn take(batch: Owned<abi::Batch>, width: usize, len: usize) -> Result<Self> {
        let root = &batch.array.array;
        if root.n_children != 1 || root.children.is_null() {
            return Err(wrong("of more or less than one column"));
        }
        // SAFETY: a list of one child, which lives as long as the batch.
        let column = unsafe { (*root.children).as_ref() }.ok_or_else(|| wrong("without its column"))?;
        // Both may be slices, of which the inner one is cut first.
        let [first, n] = [root.offset, root.length].map(usize::try_from);
        let [inner_first, inner_n] = [column.offset, column.length].map(usize::try_from);
        let (Ok(first), Ok(n), Ok(inner_first), Ok(inner_n)) = (first, n, inner_first, inner_n) else {
            return Err(wrong("with a negative offset or length"));
        };
        if n != len || first.checked_add(n).is_none_or(|end| end > inner_n) {
            return Err(wrong("of another length than its node"));
        }
        let start = first
            .checked_add(inner_first)
            .filter(|start| start.checked_add(len).and_then(|end| end.checked_mul(width)).is_some());
        let start = start.ok_or_else(|| wrong("of more values than there can be"))?;
        if column.n_buffers != 2 || column.buffers.is_null() {
            return Err(wrong("whose column is not of fixed width"));
        }
        // SAFETY: a list of two addresses, of which the first may be NULL.
        let [validity, values] = unsafe { [*column.buffers, *column.buffers.add(1)] };
        if values.is_null() && len > 0 {
            return Err(wrong("without its values"));
        }
        let null_count = match column.null_count {
            _ if validity.is_null() => 0,
            known if known >= 0 && n == inner_n => known,
            _ => -1,
        };
        let (event, device) = (batch.array.sync_event, (batch.array.device_type, batch.array.device_id));
        let device = Device::from_arrow(device.0, device.1);
        let owner = ForeignOwner::on_release(move || drop(batch));
        // SAFETY: the event is the batch's, which the owner keeps.
        let ready = unsafe { Ready::from_sync_event(event, &owner) };
        let skip = if validity.is_null() { 0 } else { start % 8 };
        let range = |address: *const c_void, from: usize, bytes: usize| {
            let address = address.addr() as u64 + from as u64;
            // SAFETY: the host checked what it gives: so long are the buffers of such a column, until its release.
            (bytes > 0).then(|| unsafe {
                Buffer::foreign(&owner, device, address, Some(bytes as u64), ready.clone())
            })
        };
        let validity =
            if validity.is_null() { None } else { range(validity, start / 8, (skip + len).div_ceil(8)) };
        let values = range(values, (start - skip) * width, if len == 0 { 0 } else { (skip + len) * width });
        Ok(Self { len, skip, null_count, validity, values })
    }

    /// How many values it keeps before the first.
    pub fn skip(&self) -> usize {
        self.skip
    }

    /// The bytes of its values, and of the few before them that it keeps; `None` where there are none.
    pub fn values(&self) -> Option<&Buffer> {
        self.values.as_ref()
    }

    /// The same with as many other values.
    pub fn with_values(self, values: Option<Buffer>) -> Self {
        Self { values, ..self }
    }

    /// The batch to hand over. It is ready after what `stream` has been given so far, which has waited for what was taken.
    pub fn give(self, stream: &Stream) -> Result<Owned<abi::Batch>> {
        let ready = stream.record()?;
        let device = stream.device();
        let buffers = [&self.validity, &self.values];
        // Others will see them.
        buffers.into_iter().flatten().for_each(Buffer::mark_lent);
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
        // SAFETY: made above; nobody else has it.
        Ok(unsafe { Owned::new(batch) })
    }
}

/// What the column's `private_data` points at: of its own, for it may be moved out of the batch.
struct Inner {
    addresses: [*const c_void; 2],
    _buffers: [Option<Buffer>; 2],
}

/// What the batch's `private_data` points at.
struct Outer {
    column: abi::ArrowArray,
    children: [*mut abi::ArrowArray; 1],
    addresses: [*const c_void; 1],
    sizes: [i64; 3],
    ready: Ready,
}

unsafe extern "C" fn release_column(array: *mut abi::ArrowArray) {
    // SAFETY: set by `give` only, with what it points at; released once because `release` is cleared.
    unsafe {
        (*array).release = None;
        let inner = Box::from_raw((*array).private_data.cast::<Inner>());
        Poison::new().leave(|| drop(inner));
    }
}

unsafe extern "C" fn release_batch(array: *mut abi::ArrowArray) {
    // SAFETY: as above; the column is released already if somebody moved it out.
    unsafe {
        (*array).release = None;
        let mut outer = Box::from_raw((*array).private_data.cast::<Outer>());
        if let Some(release) = outer.column.release {
            release(&mut outer.column);
        }
        Poison::new().leave(|| drop(outer));
    }
}
