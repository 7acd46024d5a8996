//! Imports `ArrowArray` and `ArrowDeviceArray`.
//!
//! An import copies nothing. If the result of a call has no event, the import asks the device
//! whether the result is ready. Other imports do not query a device.

use std::ffi::c_void;

use arrow_schema::{DataType, Field, SchemaRef};
use crossdock_memory::{Buffer, Device, Error, ForeignOwner, Memory, Ready, Result, Stream};
use crossdock_plugin_api::{Owned, abi};

use super::streams_in::on_cpu;
use crate::layout::{Layout, layout, shown};
use crate::{DeviceArray, DeviceBatch, MAX_DEPTH};

/// Maximum number of data buffers of a view array. Concatenation creates fewer buffers, and the
/// host can visit this number of buffers in reasonable time.
const MAX_VARIADIC: i64 = 1 << 20;

/// Imports an array of the type of `field` from any producer of the C Device interface. See
/// [`super::import_batch`].
pub fn import_device_array(
    raw: Owned<abi::ArrowDeviceArray>,
    field: &Field,
    memory: &Memory,
) -> Result<DeviceArray> {
    let root = Root::of(&raw);
    let mut reader = Reader::owning(raw, memory, Ready::Now)?;
    // SAFETY: `Owned` held a valid array, which the reader's owner keeps alive.
    unsafe { reader.array(&root.array, field.data_type(), 1) }.map_err(|e| in_field(e, field))
}

/// Imports an array of the type of `field` in host memory from any producer of the C Data
/// interface. See [`super::import_batch`].
pub fn import_array(raw: Owned<abi::ArrowArray>, field: &Field, memory: &Memory) -> Result<DeviceArray> {
    import_device_array(on_cpu(raw), field, memory)
}

fn in_field(e: Error, field: &Field) -> Error {
    if field.name().is_empty() { e } else { e.context(format!("'{}'", shown(field.name()))) }
}

/// A bitwise copy of the outermost struct. The copy is read after the original has moved into its
/// owner. The copy is never released.
pub(super) struct Root {
    array: std::mem::ManuallyDrop<abi::ArrowArray>,
}

impl Root {
    pub(super) fn of(raw: &Owned<abi::ArrowDeviceArray>) -> Self {
        // SAFETY: `raw` is a valid struct; `abi::ArrowArray` has no `Drop`, and the copy's
        // `release` is never called.
        Self { array: std::mem::ManuallyDrop::new(unsafe { std::ptr::read(&raw.array) }) }
    }
}

/// Releases an imported array when dropped. The field `_memory` is dropped after the array, because
/// the producer's release callback may use the host's memory.
pub(super) struct Foreign {
    pub(super) _array: Owned<abi::ArrowDeviceArray>,
    pub(super) _memory: Memory,
}

// SAFETY: a shared reference gives no access to the fields, and Arrow allows a release on any
// thread.
unsafe impl Sync for Foreign {}

/// The buffers of an array. `None` means that the pointer is NULL.
type Slots = Vec<Option<Buffer>>;

pub(super) struct Reader {
    owner: ForeignOwner,
    pub(super) device: Device,
    ready: Ready,
    sizes: (*const i64, usize),
    next_size: usize,
}

/// The device of an unreleased array.
fn checked_device(raw: &abi::ArrowDeviceArray) -> Result<Device> {
    if raw.array.release.is_none() {
        return Err(Error::invalid_argument("an array is released already (its release is NULL)"));
    }
    let device = Device::from_arrow(raw.device_type, raw.device_id);
    let known = [
        abi::DEVICE_CPU,
        abi::DEVICE_CUDA,
        abi::DEVICE_CUDA_HOST,
        abi::DEVICE_CUDA_MANAGED,
        abi::DEVICE_EXT_DEV,
    ];
    if !known.contains(&raw.device_type) {
        return Err(Error::unsupported(format!(
            "an array is on device type {}, expected one of {known:?} (cpu, cuda, cuda_host, cuda_managed, test)",
            raw.device_type
        )));
    }
    if device != Device::CPU && !(0..=i64::from(i32::MAX)).contains(&raw.device_id) {
        return Err(Error::bad_data(format!(
            "an array is on device {} of type {}, expected a device id of 0 or more",
            raw.device_id, raw.device_type
        )));
    }
    if device == Device::CPU && !raw.sync_event.is_null() {
        return Err(Error::bad_data("an array on the cpu has a sync_event, expected NULL"));
    }
    Ok(device)
}

/// Returns the state after which the result of a call on `stream` is readable. An array with an
/// event needs only this event, so the function returns `Ready::Now`. If `stream` belongs to
/// another device, the default stream of the array's device determines the state. If the array's
/// device has no default stream, the call gave this device no work, and the result is ready.
pub(super) fn readiness_of_result(array: &abi::ArrowDeviceArray, stream: &Stream) -> Result<Ready> {
    let device = Device::from_arrow(array.device_type, array.device_id);
    let on_stream = match array.device_type {
        _ if !array.sync_event.is_null() => return Ok(Ready::Now),
        abi::DEVICE_CUDA => device == stream.device(),
        // A stream of a CUDA device can write to CUDA host memory and managed memory.
        abi::DEVICE_CUDA_HOST | abi::DEVICE_CUDA_MANAGED => stream.device().r#type == abi::DEVICE_CUDA,
        _ => return Ok(Ready::Now),
    };
    if on_stream {
        return stream.record();
    }
    stream.memory().default_stream(device).map_or(Ok(Ready::Now), |stream| stream.record())
}

impl Reader {
    /// Creates a reader whose buffers keep the array alive. If the array has no event, its buffers
    /// are readable after `ready`.
    pub(super) fn owning(raw: Owned<abi::ArrowDeviceArray>, memory: &Memory, ready: Ready) -> Result<Self> {
        let device = checked_device(&raw)?;
        let sync_event = raw.sync_event;
        let owner = ForeignOwner::from_peer(Foreign { _array: raw, _memory: memory.clone() }, device, memory);
        let ready = if sync_event.is_null() {
            ready
        } else {
            // SAFETY: the event of a valid array lives as long as the array, which `owner` keeps
            // alive.
            unsafe { Ready::from_sync_event(sync_event, &owner) }
        };
        Ok(Self { owner, device, ready, sizes: (std::ptr::null(), 0), next_size: 0 })
    }

    /// Creates a reader that borrows the array.
    ///
    /// # Safety
    /// `raw` is a valid array, and stays borrowed while the reader and its buffers are in use.
    pub(super) unsafe fn borrowing(raw: &abi::ArrowDeviceArray) -> Result<Self> {
        let device = checked_device(raw)?;
        let owner = ForeignOwner::new(());
        // SAFETY: the event of a valid array lives as long as the array, which the caller keeps
        // borrowed.
        let ready = unsafe { Ready::from_sync_event(raw.sync_event, &owner) };
        Ok(Self { owner, device, ready, sizes: (std::ptr::null(), 0), next_size: 0 })
    }

    /// Sets the table of buffer sizes of the array's batch.
    pub(super) fn set_sizes(&mut self, sizes: *const i64, n: usize) {
        self.sizes = (sizes, n);
    }

    /// The counter of a batch's rows; `None` if `address` is NULL.
    ///
    /// # Safety
    /// `address` is the `n_rows_device` of a valid batch, and `self.owner` keeps its array alive.
    pub(super) unsafe fn counter(&self, address: *const i64) -> Result<Option<Buffer>> {
        if address.is_null() {
            return Ok(None);
        }
        let address = address as u64;
        if !address.is_multiple_of(8) || address > i64::MAX as u64 - 8 {
            return Err(Error::bad_data(format!(
                "the counter of a batch's rows is at {address:#x}, expected a multiple of 8 in the address space"
            )));
        }
        // SAFETY: the counter of a valid batch is an integer of 8 bytes on the array's device. It
        // is ready with the array and lives as long as the array, which the owner keeps alive.
        Ok(Some(unsafe { Buffer::foreign(&self.owner, self.device, address, Some(8), self.ready.clone()) }))
    }

    /// # Safety
    /// `root` is a valid array that `self.owner` keeps alive, and `self.sizes` are its buffer
    /// sizes.
    pub(super) unsafe fn batch(
        &mut self,
        root: &Root,
        schema: &SchemaRef,
        memory: &Memory,
    ) -> Result<DeviceBatch> {
        let raw = &root.array;
        let root_type = DataType::Struct(schema.fields().clone());
        // SAFETY: the caller guarantees that `root` is valid, that `self.owner` keeps it alive, and
        // that `self.sizes` are its buffer sizes.
        let root = unsafe { self.array(raw, &root_type, 0) }?;
        if !self.sizes.0.is_null() && self.next_size != self.sizes.1 {
            return Err(Error::bad_data(format!(
                "a batch declares the sizes of {} buffers, expected {}",
                self.sizes.1, self.next_size
            )));
        }
        if root.null_count() != Some(0) {
            let nulls = root.count_nulls(&memory.default_stream(self.device)?)?;
            if nulls > 0 {
                return Err(Error::unsupported(format!(
                    "a batch has {nulls} null rows, expected none: pass a nullable struct as a column of the batch"
                )));
            }
        }
        let (offset, len) = (root.offset(), root.len());
        let mut columns = root.children;
        for column in &mut columns {
            // If the root is a slice, its columns are longer than the root. `array` checked that
            // they have at least `offset + len` rows.
            if column.len != len {
                *column = column.slice(offset, len)?;
            }
        }
        DeviceBatch::from_checked_columns(schema.clone(), len, columns, self.device)
    }

    /// # Safety
    /// `raw` is a valid array that `self.owner` keeps alive.
    unsafe fn array(
        &mut self,
        raw: &abi::ArrowArray,
        data_type: &DataType,
        depth: usize,
    ) -> Result<DeviceArray> {
        if depth > MAX_DEPTH {
            return Err(Error::unsupported(format!("an array nests deeper than {MAX_DEPTH} levels")));
        }
        if raw.release.is_none() {
            return Err(Error::bad_data(format!(
                "an array of type {data_type} is released already (its release is NULL)",
                data_type = crate::type_name(data_type)
            )));
        }
        let layout = layout(data_type);
        let (len, offset) = (count(raw.length, "length")?, count(raw.offset, "offset")?);
        let null_count = match raw.null_count {
            -1 => None,
            n => Some(count(n, "null count (-1 for unknown)")?),
        };
        // SAFETY: the caller guarantees that `raw` is valid and that `self.owner` keeps it alive.
        let (buffers, view_sizes) = unsafe { self.buffers(raw, data_type, &layout) }?;
        // SAFETY: the caller guarantees that `raw` is valid and that `self.owner` keeps it alive.
        let children = unsafe { self.children(raw, &layout, depth) }?;
        // SAFETY: the caller guarantees that `raw` is valid and that `self.owner` keeps it alive.
        let dictionary = unsafe { self.dictionary(raw, data_type, &layout, depth) }?;
        // A type without a validity bitmap has no nulls of its own. The host ignores a null count
        // that an old producer declares for such a type.
        let null_count = if layout.has_validity { null_count } else { None };
        let data_type = data_type.clone();
        let mut array = DeviceArray {
            data_type,
            len,
            offset,
            null_count,
            declares_no_nulls: false,
            buffers,
            children,
            dictionary,
            view_sizes,
            depth: 1,
            device: None,
        };
        array.complete(&layout)?;
        // A producer may declare 0 nulls and still pass a validity bitmap with nulls. If the host
        // used the declared count, it would turn the nulls into values.
        if array.null_count == Some(0)
            && len > 0
            && matches!(array.buffers.first(), Some(Some(_)))
            && layout.has_validity
        {
            array.null_count = None;
            array.declares_no_nulls = true;
        }
        Ok(array)
    }

    /// # Safety
    /// The requirements of [`Reader::array`].
    unsafe fn dictionary(
        &mut self,
        raw: &abi::ArrowArray,
        data_type: &DataType,
        layout: &Layout<'_>,
        depth: usize,
    ) -> Result<Option<Box<DeviceArray>>> {
        match (layout.dictionary, raw.dictionary.is_null()) {
            (Some((_, values)), false) => {
                // SAFETY: the pointer is not NULL, and the dictionary of a valid array is a valid
                // array.
                let dictionary = unsafe { self.array(&*raw.dictionary, values, depth + 1) };
                Ok(Some(Box::new(dictionary.map_err(|e| e.context("dictionary"))?)))
            }
            (None, false) => Err(Error::bad_data(format!(
                "an array of type {data_type} has a dictionary, expected none",
                data_type = crate::type_name(data_type)
            ))),
            (_, true) => Ok(None),
        }
    }

    /// Imports the buffers. For a view array with data buffers of unknown size, also returns the
    /// buffer that contains these sizes.
    ///
    /// # Safety
    /// The requirements of [`Reader::array`].
    unsafe fn buffers(
        &mut self,
        raw: &abi::ArrowArray,
        data_type: &DataType,
        layout: &Layout<'_>,
    ) -> Result<(Slots, Option<Box<Buffer>>)> {
        let min_buffers = (layout.n_buffers() + usize::from(layout.variadic)) as i64;
        let max_buffers = if layout.variadic { min_buffers + MAX_VARIADIC } else { min_buffers };
        // Unions had a validity buffer before format version 5. Some producers still pass an entry
        // for this buffer in the list of buffers, also for null arrays and run-end encoded arrays.
        let legacy = !layout.has_validity && raw.n_buffers == min_buffers + 1;
        if !(min_buffers..=max_buffers).contains(&raw.n_buffers) && !legacy {
            let more = if layout.variadic { " or more" } else { "" };
            return Err(Error::bad_data(format!(
                "an array of type {data_type} has {} buffers, expected {min_buffers}{more}",
                raw.n_buffers,
                data_type = crate::type_name(data_type)
            )));
        }
        let n = raw.n_buffers as usize;
        if n > 0 && raw.buffers.is_null() {
            return Err(Error::bad_data(format!(
                "an array of type {data_type} has {n} buffers, but its list of them is NULL",
                data_type = crate::type_name(data_type)
            )));
        }
        let mut buffers = Vec::with_capacity(n.min(64));
        for i in 0..n {
            // SAFETY: a valid array's list has `n_buffers` entries.
            let address = unsafe { *raw.buffers.add(i) };
            // SAFETY: `address` is an entry of a valid array's list, and the caller guarantees that
            // `self.sizes` are the sizes of the batch that contains this array.
            let buffer = unsafe { self.buffer(address) }?;
            buffers.push(buffer);
        }
        if legacy && buffers.remove(0).is_some() && raw.null_count != 0 && !layout.all_null {
            return Err(Error::unsupported(format!(
                "an array of type {data_type} has a validity bitmap, as before format version 5, and {} nulls; expected none",
                raw.null_count,
                data_type = crate::type_name(data_type)
            )));
        }
        if !layout.variadic {
            return Ok((buffers, None));
        }
        let sizes = buffers.pop().flatten();
        let variadic = buffers.get(layout.n_buffers()..).unwrap_or(&[]);
        if variadic.iter().flatten().all(|buffer| buffer.len().is_some()) {
            return Ok((buffers, None));
        }
        match sizes {
            Some(sizes) => {
                let bytes = variadic.len() * 8;
                // SAFETY: the last buffer of a valid view array contains the size of each of its
                // data buffers, in 8 bytes each.
                Ok((buffers, Some(Box::new(unsafe { sizes.with_len(bytes) }?))))
            }
            None => Err(Error::bad_data(format!(
                "an array of type {data_type} has data buffers, but no buffer of their sizes",
                data_type = crate::type_name(data_type)
            ))),
        }
    }

    /// # Safety
    /// `address` is an entry in the list of buffers of a valid array, and `self.sizes` are the
    /// sizes of the batch that contains the array.
    unsafe fn buffer(&mut self, address: *const c_void) -> Result<Option<Buffer>> {
        let (sizes, n) = self.sizes;
        let mut bytes = None;
        if !sizes.is_null() {
            if self.next_size >= n {
                return Err(Error::bad_data(format!(
                    "a batch declares the sizes of {n} buffers, but has more buffers"
                )));
            }
            // SAFETY: a valid batch has `n` sizes, and the index is less than `n`.
            bytes = match unsafe { *sizes.add(self.next_size) } {
                -1 => None,
                size => Some(count(size, "buffer size (-1 for unknown)")? as u64),
            };
        }
        self.next_size += 1;
        if address.is_null() {
            return match bytes {
                Some(1..) => Err(Error::bad_data("a buffer is NULL, but its declared size is above 0")),
                _ => Ok(None),
            };
        }
        let address = address as u64;
        if address.checked_add(bytes.unwrap_or(0)).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Error::bad_data(format!("a buffer at {address:#x} ends beyond the address space")));
        }
        // SAFETY: the buffer belongs to a valid array, which the owner keeps alive. The buffer of a
        // valid array has the declared size, or, if none is declared, the size that its type
        // implies.
        Ok(Some(unsafe { Buffer::foreign(&self.owner, self.device, address, bytes, self.ready.clone()) }))
    }

    /// # Safety
    /// The requirements of [`Reader::array`].
    unsafe fn children(
        &mut self,
        raw: &abi::ArrowArray,
        layout: &Layout<'_>,
        depth: usize,
    ) -> Result<Vec<DeviceArray>> {
        let expected = layout.children.len();
        if raw.n_children != expected as i64 {
            return Err(Error::bad_data(format!(
                "an array has {} children, expected {expected} as in its schema",
                raw.n_children
            )));
        }
        if expected > 0 && raw.children.is_null() {
            return Err(Error::bad_data(format!(
                "an array has {expected} children, but its list of them is NULL"
            )));
        }
        let mut children = Vec::with_capacity(expected);
        for (i, field) in layout.children.iter().enumerate() {
            // SAFETY: the list of a valid array has `n_children` pointers to valid arrays. `as_ref`
            // turns a NULL pointer into an error.
            let child = unsafe { (*raw.children.add(i)).as_ref() }
                .ok_or_else(|| in_field(Error::bad_data(format!("child {i} is NULL")), field))?;
            // SAFETY: the child of a valid array is a valid array. Its parent keeps it alive, and
            // `self.owner` keeps the parent alive.
            let child = unsafe { self.array(child, field.data_type(), depth + 1) };
            children.push(child.map_err(|e| in_field(e, field))?);
        }
        Ok(children)
    }
}

pub(super) fn count(n: i64, what: &str) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::bad_data(format!("an array's {what} is {n}, expected 0 or more")))
}
