//! `ArrowArray` and `ArrowDeviceArray` in. Nothing is copied, and no device is asked anything but, of what a call gave without an
//! event, whether its stream has run.

use std::ffi::c_void;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use crossdock_memory::{Buffer, Device, Error, ForeignOwner, Memory, Ready, Result, Stream};
use crossdock_plugin_api::{Owned, abi};

use super::import_schema_ref;
use super::metadata;
use super::plain::{is_plain, plain_columns};
use super::streams_in::on_cpu;
use crate::layout::{Layout, layout, shown};
use crate::{DeviceArray, DeviceBatch, MAX_DEPTH};

/// Data buffers that one view array may have: far beyond what concatenation makes, and few enough to walk.
const MOST_VARIADIC: i64 = 1 << 20;

/// The batch that crossed the boundary, under the schema that it belongs to. What the host can see is checked; sizes that
/// the batch does not tell stay unknown. The array is released when the last of its buffers is gone.
pub fn import_batch(raw: Owned<abi::Batch>, schema: &SchemaRef, memory: &Memory) -> Result<DeviceBatch> {
    import(raw, schema, memory, None)
}

/// The same for what a call gave whose work went onto `stream`: without an event of its own it is ready when that has run, as
/// `crossdock_call.stream` says.
pub fn import_result(raw: Owned<abi::Batch>, schema: &SchemaRef, stream: &Stream) -> Result<DeviceBatch> {
    import(raw, schema, stream.memory(), Some(stream))
}

fn import(
    raw: Owned<abi::Batch>,
    schema: &SchemaRef,
    memory: &Memory,
    on: Option<&Stream>,
) -> Result<DeviceBatch> {
    let ready = on.map_or(Ok(Ready::Now), |stream| moment(&raw.array, stream))?;
    if raw.schema.release.is_some() {
        // SAFETY: `Owned` vouches for the batch, and so for its schema.
        held_to(schema, &unsafe { import_schema_ref(&raw.schema) }?)?;
    }
    let plain = plain_columns(&raw, schema);
    let raw = raw.into_raw();
    // SAFETY: both halves were the `Owned` batch's, which is gone; each is released on its own.
    let (array, _schema) = unsafe { (Owned::new(raw.array), Owned::new(raw.schema)) };
    if let Some(addresses) = plain {
        let batch = of_plain(array, addresses, schema, memory, &ready)?;
        if raw.metadata.is_null() {
            return Ok(batch);
        }
        // SAFETY: metadata lives as long as the array, which the batch keeps.
        return Ok(batch.with_metadata(unsafe { metadata::read(raw.metadata) }?));
    }
    let root = Root::of(&array);
    let mut reader = Reader::owning(array, memory, ready)?;
    reader.sizes = (raw.buffer_sizes, raw.n_buffer_sizes);
    // SAFETY: `Owned` vouched for the array, which the reader's owner keeps, and for the metadata that lives as long.
    unsafe {
        let batch = reader.batch(&root, schema, memory)?;
        if raw.metadata.is_null() {
            Ok(batch)
        } else {
            Ok(batch.with_metadata(metadata::read(raw.metadata)?))
        }
    }
}

/// A batch that tells its own types has those that it is taken for.
fn held_to(expected: &Schema, told: &Schema) -> Result<()> {
    let types = |schema: &Schema| {
        let types = schema.fields().iter().map(|field| field.data_type().to_string());
        types.collect::<Vec<_>>().join(", ")
    };
    let same = expected.fields().len() == told.fields().len()
        && expected
            .fields()
            .iter()
            .zip(told.fields())
            .all(|(e, t)| e.data_type().equals_datatype(t.data_type()));
    if same {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "a batch's own schema has [{}], expected [{}]",
        types(told),
        types(expected)
    )))
}

/// A batch of plain columns, of which it is known where the values of each begin.
fn of_plain(
    array: Owned<abi::ArrowDeviceArray>,
    addresses: Vec<u64>,
    schema: &SchemaRef,
    memory: &Memory,
    ready: &Ready,
) -> Result<DeviceBatch> {
    let device = Device::from_arrow(array.device_type, array.device_id);
    let len = count(array.array.length, "length")?;
    let owner = ForeignOwner::peer(Foreign { _array: array, _memory: memory.clone() }, device, memory);
    let column = |(field, address): (&FieldRef, u64)| {
        let data_type = field.data_type();
        let bytes = len * data_type.primitive_width().unwrap_or(0);
        // SAFETY: `Owned` vouched for the array, which the owner keeps: so many values of this type begin there, ready by then.
        let values = (address != 0)
            .then(|| unsafe { Buffer::foreign(&owner, device, address, Some(bytes as u64), ready.clone()) });
        DeviceArray {
            data_type: data_type.clone(),
            len,
            offset: 0,
            null_count: Some(0),
            claims_no_nulls: false,
            device: values.as_ref().map(|_| device),
            buffers: vec![None, values],
            children: Vec::new(),
            dictionary: None,
            view_sizes: None,
            depth: 1,
        }
    };
    let columns = schema.fields().iter().zip(addresses).map(column).collect();
    DeviceBatch::of_checked_types(schema.clone(), len, columns, device)
}

/// Makes sure that `array` is a batch of `schema` which [`import_batch`] would take, and takes nothing: for those who
/// hand it on as it is. Answers whether every node tells its null count.
pub fn check_batch_array(
    array: &Owned<abi::ArrowDeviceArray>,
    schema: &SchemaRef,
    memory: &Memory,
) -> Result<bool> {
    if is_plain(array, schema) {
        return Ok(true);
    }
    // The tree is gone before this function returns, and `array` is borrowed as long.
    let mut reader = Reader::borrowing(array)?;
    // SAFETY: `Owned` vouches for the array, which the caller's borrow keeps; nobody told its sizes.
    let batch = unsafe { reader.batch(&Root::of(array), schema, memory) }?;
    Ok(batch.columns().iter().all(DeviceArray::tells_null_counts))
}

/// An array of `field`'s type from any producer of the C Device interface. See [`import_batch`].
pub fn import_device_array(
    raw: Owned<abi::ArrowDeviceArray>,
    field: &Field,
    memory: &Memory,
) -> Result<DeviceArray> {
    let root = Root::of(&raw);
    let mut reader = Reader::owning(raw, memory, Ready::Now)?;
    // SAFETY: `Owned` vouched for the array, which the reader's owner keeps.
    unsafe { reader.array(&root.array, field.data_type(), 1) }.map_err(|e| in_field(e, field))
}

/// An array of `field`'s type, in host memory, from any producer of the C Data interface. See [`import_batch`].
pub fn import_array(raw: Owned<abi::ArrowArray>, field: &Field, memory: &Memory) -> Result<DeviceArray> {
    import_device_array(on_cpu(raw), field, memory)
}

fn in_field(e: Error, field: &Field) -> Error {
    if field.name().is_empty() { e } else { e.context(format!("'{}'", shown(field.name()))) }
}

/// A bitwise look at the outermost struct, whose owner moves away; what it points at stays. Never released.
struct Root {
    array: std::mem::ManuallyDrop<abi::ArrowArray>,
}

impl Root {
    fn of(raw: &Owned<abi::ArrowDeviceArray>) -> Self {
        // SAFETY: plain values; `abi::ArrowArray` has no drop, and the copy's release is not called.
        Self { array: std::mem::ManuallyDrop::new(unsafe { std::ptr::read(&raw.array) }) }
    }
}

/// The end of an imported array: its release. The memory stays until then, since whoever made the array may need it.
struct Foreign {
    _array: Owned<abi::ArrowDeviceArray>,
    _memory: Memory,
}

// SAFETY: shared references to it do nothing; it is only dropped, on whichever thread comes last, as releases allow.
unsafe impl Sync for Foreign {}

/// An array's buffers, NULL ones included.
type Slots = Vec<Option<Buffer>>;

struct Reader {
    owner: ForeignOwner,
    device: Device,
    ready: Ready,
    sizes: (*const i64, usize),
    next_size: usize,
}

/// Where an array lies, if it is there, and on a device of a kind that is known.
fn place(raw: &Owned<abi::ArrowDeviceArray>) -> Result<Device> {
    if raw.is_released() {
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
            "an array lies on a device of type {}; expected {known:?} (cpu, cuda, cuda_host, cuda_managed, test)",
            raw.device_type
        )));
    }
    if device != Device::CPU && !(0..=i64::from(i32::MAX)).contains(&raw.device_id) {
        return Err(Error::bad_data(format!(
            "an array lies on device {} of type {}, expected a device id of 0 or more",
            raw.device_id, raw.device_type
        )));
    }
    if device == Device::CPU && !raw.sync_event.is_null() {
        return Err(Error::bad_data("an array on the cpu has a sync_event, expected NULL"));
    }
    Ok(device)
}

/// When an array without an event is ready that came of a call which worked on `stream`. Work on another device than the call's
/// goes onto that one's default stream, and where there is none, nobody was given one.
fn moment(array: &abi::ArrowDeviceArray, stream: &Stream) -> Result<Ready> {
    let device = Device::from_arrow(array.device_type, array.device_id);
    let on_stream = match array.device_type {
        _ if !array.sync_event.is_null() => return Ok(Ready::Now),
        abi::DEVICE_CUDA => device == stream.device(),
        // A device can write these too.
        abi::DEVICE_CUDA_HOST | abi::DEVICE_CUDA_MANAGED => stream.device().r#type == abi::DEVICE_CUDA,
        _ => return Ok(Ready::Now),
    };
    if on_stream {
        return stream.record();
    }
    stream.memory().default_stream(device).map_or(Ok(Ready::Now), |stream| stream.record())
}

impl Reader {
    /// The buffers will keep the array. Without an event it is ready as is said.
    fn owning(raw: Owned<abi::ArrowDeviceArray>, memory: &Memory, ready: Ready) -> Result<Self> {
        let device = place(&raw)?;
        let sync_event = raw.sync_event;
        let owner = ForeignOwner::peer(Foreign { _array: raw, _memory: memory.clone() }, device, memory);
        let ready = if sync_event.is_null() {
            ready
        } else {
            // SAFETY: `Owned` vouched for the struct, so for the event, which lives as long as the array.
            unsafe { Ready::from_sync_event(sync_event, &owner) }
        };
        Ok(Self { owner, device, ready, sizes: (std::ptr::null(), 0), next_size: 0 })
    }

    /// The array stays the caller's.
    fn borrowing(raw: &Owned<abi::ArrowDeviceArray>) -> Result<Self> {
        let device = place(raw)?;
        let owner = ForeignOwner::new(());
        // SAFETY: as above.
        let ready = unsafe { Ready::from_sync_event(raw.sync_event, &owner) };
        Ok(Self { owner, device, ready, sizes: (std::ptr::null(), 0), next_size: 0 })
    }

    /// # Safety
    /// `root` is a valid array that `self.owner` keeps, and `self.sizes` are its sizes.
    unsafe fn batch(&mut self, root: &Root, schema: &SchemaRef, memory: &Memory) -> Result<DeviceBatch> {
        let raw = &root.array;
        let root_type = DataType::Struct(schema.fields().clone());
        // SAFETY: passed on from the caller.
        let root = unsafe { self.array(raw, &root_type, 0) }?;
        if !self.sizes.0.is_null() && self.next_size != self.sizes.1 {
            return Err(Error::bad_data(format!(
                "a batch tells the sizes of {} buffers, expected {}",
                self.sizes.1, self.next_size
            )));
        }
        if root.null_count() != Some(0) {
            let nulls = root.count_nulls(&memory.default_stream(self.device)?)?;
            if nulls > 0 {
                return Err(Error::unsupported(format!(
                    "a batch has {nulls} null rows, expected none (structs that may be null are a column)"
                )));
            }
        }
        let (offset, len) = (root.offset(), root.len());
        let mut columns = root.children;
        for column in &mut columns {
            // A root of some offset has longer columns: they were checked to reach `offset + len`.
            if column.len != len {
                *column = column.slice(offset, len)?;
            }
        }
        DeviceBatch::of_checked_types(schema.clone(), len, columns, self.device)
    }

    /// # Safety
    /// `raw` is a valid array that `self.owner` keeps.
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
                "an array of type {data_type} is released already (its release is NULL)"
            )));
        }
        let layout = layout(data_type);
        let (len, offset) = (count(raw.length, "length")?, count(raw.offset, "offset")?);
        let null_count = match raw.null_count {
            -1 => None,
            n => Some(count(n, "null count (-1 for unknown)")?),
        };
        // SAFETY: passed on from the caller.
        let (buffers, view_sizes) = unsafe { self.buffers(raw, data_type, &layout) }?;
        // SAFETY: as above.
        let children = unsafe { self.children(raw, &layout, depth) }?;
        let dictionary = match (layout.dictionary, raw.dictionary.is_null()) {
            (Some((_, values)), false) => {
                // SAFETY: not NULL; a valid array's dictionary is a valid array.
                let dictionary = unsafe { self.array(&*raw.dictionary, values, depth + 1) };
                Some(Box::new(dictionary.map_err(|e| e.context("dictionary"))?))
            }
            (None, false) => {
                return Err(Error::bad_data(format!(
                    "an array of type {data_type} has a dictionary, expected none"
                )));
            }
            (_, true) => None,
        };
        // The types without a validity bitmap have no nulls of their own, whatever a producer of old counts.
        let null_count = if layout.has_validity { null_count } else { None };
        let data_type = data_type.clone();
        let mut array = DeviceArray {
            data_type,
            len,
            offset,
            null_count,
            claims_no_nulls: false,
            buffers,
            children,
            dictionary,
            view_sizes,
            depth: 1,
            device: None,
        };
        array.complete(&layout)?;
        // A false claim would lose nulls: the bitmap is what counts.
        if array.null_count == Some(0)
            && len > 0
            && matches!(array.buffers.first(), Some(Some(_)))
            && layout.has_validity
        {
            array.null_count = None;
            array.claims_no_nulls = true;
        }
        Ok(array)
    }

    /// The buffers, and of a view array the buffer of sizes if some of them are unknown.
    ///
    /// # Safety
    /// As [`Reader::array`].
    unsafe fn buffers(
        &mut self,
        raw: &abi::ArrowArray,
        data_type: &DataType,
        layout: &Layout<'_>,
    ) -> Result<(Slots, Option<Box<Buffer>>)> {
        let least = (layout.n_buffers() + usize::from(layout.variadic)) as i64;
        let most = if layout.variadic { least + MOST_VARIADIC } else { least };
        // Unions had a validity buffer before format version 5, and some producers still write its slot, as some do for
        // nulls and runs.
        let legacy = !layout.has_validity && raw.n_buffers == least + 1;
        if !(least..=most).contains(&raw.n_buffers) && !legacy {
            let more = if layout.variadic { " or more" } else { "" };
            return Err(Error::bad_data(format!(
                "an array of type {data_type} has {} buffers, expected {least}{more}",
                raw.n_buffers
            )));
        }
        let n = raw.n_buffers as usize;
        if n > 0 && raw.buffers.is_null() {
            return Err(Error::bad_data(format!(
                "an array of type {data_type} has {n} buffers, but its list of them is NULL"
            )));
        }
        let mut buffers = Vec::with_capacity(n.min(64));
        for i in 0..n {
            // SAFETY: a valid array's list has `n_buffers` entries.
            let address = unsafe { *raw.buffers.add(i) };
            // SAFETY: as above, for the sizes.
            let buffer = unsafe { self.buffer(address) }?;
            buffers.push(buffer);
        }
        if legacy && buffers.remove(0).is_some() && raw.null_count != 0 && !layout.all_null {
            return Err(Error::unsupported(format!(
                "an array of type {data_type} has a validity bitmap of its own, as before Arrow format 5, and {} nulls; \
                 expected none",
                raw.null_count
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
                // SAFETY: a valid view array has a size for each of its data buffers there.
                Ok((buffers, Some(Box::new(unsafe { sizes.with_len(bytes) }?))))
            }
            None => Err(Error::bad_data(format!(
                "an array of type {data_type} has data buffers, but no buffer of their sizes"
            ))),
        }
    }

    /// # Safety
    /// `address` is an entry of a valid array's list, and `self.sizes` are that batch's.
    unsafe fn buffer(&mut self, address: *const c_void) -> Result<Option<Buffer>> {
        let (sizes, n) = self.sizes;
        let mut bytes = None;
        if !sizes.is_null() {
            if self.next_size >= n {
                return Err(Error::bad_data(format!(
                    "a batch tells the sizes of {n} buffers, and has more than that"
                )));
            }
            // SAFETY: within the `n` entries that the batch says it has.
            bytes = match unsafe { *sizes.add(self.next_size) } {
                -1 => None,
                size => Some(count(size, "buffer size (-1 for unknown)")? as u64),
            };
        }
        self.next_size += 1;
        if address.is_null() {
            return match bytes {
                Some(1..) => Err(Error::bad_data("a buffer is NULL, but has a size above 0")),
                _ => Ok(None),
            };
        }
        let address = address as u64;
        if address.checked_add(bytes.unwrap_or(0)).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Error::bad_data(format!("a buffer at {address:#x} is beyond what can be addressed")));
        }
        // SAFETY: the owner keeps the array that the buffer lies in; its producer vouches for the range.
        Ok(Some(unsafe { Buffer::foreign(&self.owner, self.device, address, bytes, self.ready.clone()) }))
    }

    /// # Safety
    /// As [`Reader::array`].
    unsafe fn children(
        &mut self,
        raw: &abi::ArrowArray,
        layout: &Layout<'_>,
        depth: usize,
    ) -> Result<Vec<DeviceArray>> {
        let expected = layout.children.len();
        if raw.n_children != expected as i64 {
            return Err(Error::bad_data(format!(
                "an array has {} children, its schema {expected}",
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
            // SAFETY: a valid array's list has `n_children` pointers to valid arrays; NULL ones are refused.
            let child = unsafe { (*raw.children.add(i)).as_ref() }
                .ok_or_else(|| in_field(Error::bad_data(format!("child {i} is NULL")), field))?;
            // SAFETY: as above.
            let child = unsafe { self.array(child, field.data_type(), depth + 1) };
            children.push(child.map_err(|e| in_field(e, field))?);
        }
        Ok(children)
    }
}

fn count(n: i64, what: &str) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::bad_data(format!("an array's {what} is {n}, expected 0 or more")))
}
