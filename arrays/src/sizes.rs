//! Resolves unknown buffer sizes. Reads the last offset of each array and the sizes of the data
//! buffers of view arrays, all at once.

use crossdock_memory::{Buffer, Device, Error, ForeignOwner, Memory, Ready, Result, Stream};

use crate::layout::BufferKind;
use crate::numbers::{self, Numbers};
use crate::{DeviceArray, DeviceBatch};

impl DeviceBatch {
    /// Determines all unknown buffer lengths. Reads the lengths with one copy to the host, and
    /// blocks until the copy has run.
    ///
    /// # Errors
    ///
    /// Returns an error if a length is negative or exceeds the buffer's allocation.
    pub fn resolve_sizes(&mut self, stream: &Stream) -> Result<()> {
        let schema = self.schema().clone();
        let mut arrays: Vec<&mut DeviceArray> = self.columns_mut().iter_mut().collect();
        resolve(&mut arrays, stream).map_err(|(i, e)| match schema.fields().get(i) {
            Some(field) => e.context(format!("'{}'", crate::layout::shown(field.name()))),
            None => e,
        })
    }

    /// Whether [`Self::resolve_sizes`] has a length to determine.
    pub(crate) fn has_unknown_sizes(&self) -> bool {
        self.columns().iter().any(DeviceArray::has_unknown_sizes_anywhere)
    }
}

impl DeviceArray {
    /// Like [`DeviceBatch::resolve_sizes`], for one array.
    pub fn resolve_sizes(&mut self, stream: &Stream) -> Result<()> {
        resolve(&mut [self], stream).map_err(|(_, e)| e)
    }
}

/// The integers to read for the sizes of one or more buffers of an array.
struct SizeRequest {
    source: Buffer,
    at: usize,
    n: usize,
    width: usize,
}

/// Resolves the sizes of several arrays. An error is returned with the index of the array in which
/// it occurred.
pub(crate) fn resolve(arrays: &mut [&mut DeviceArray], stream: &Stream) -> Result<(), (usize, Error)> {
    let mut requests = Vec::new();
    for (i, array) in arrays.iter().enumerate() {
        let visited = array.walk(&mut |node| {
            requests.extend(size_request(node, stream)?);
            Ok(())
        });
        visited.map_err(|e| (i, e))?;
    }
    let reads: Vec<Numbers<'_>> = requests.iter().map(SizeRequest::numbers).collect();
    // If there are no requests, `read` reads nothing.
    let numbers = numbers::read(&reads, stream).map_err(|e| (usize::MAX, e))?;
    let parts: Vec<usize> = requests.iter().map(|request| request.n).collect();
    let mut results = SizeResults { numbers: &numbers, parts: parts.into_iter(), memory: stream.memory() };
    for (i, array) in arrays.iter_mut().enumerate() {
        array.set_sizes(&mut results).map_err(|e| (i, e))?;
    }
    Ok(())
}

impl SizeRequest {
    fn numbers(&self) -> Numbers<'_> {
        Numbers { source: &self.source, at: self.at, n: self.n, width: self.width }
    }
}

/// The integers to read for the sizes of this array's own buffers.
fn size_request(array: &DeviceArray, stream: &Stream) -> Result<Option<SizeRequest>> {
    if !array.has_unknown_sizes() || array.is_empty() {
        return Ok(None);
    }
    if let Some(sizes) = &array.view_sizes {
        let source = with_actual_device(sizes, stream)?;
        return Ok(Some(SizeRequest { source, at: 0, n: sizes.len().unwrap_or(0) / 8, width: 8 }));
    }
    let layout = array.layout();
    let Some(BufferKind::Offsets { width }) = layout.kind(1) else {
        return Err(Error::invalid_argument(format!(
            "an array of type {}: the length of a data buffer is unknown, and the array has no offsets or sizes that determine it",
            crate::type_name(array.data_type())
        )));
    };
    let Some(Some(offsets)) = array.buffers().get(1) else { return Ok(None) };
    let at = (array.offset() + array.len()) * width;
    Ok(Some(SizeRequest { source: offsets.clone(), at, n: 1, width }))
}

/// Returns the buffer of sizes with its actual device. A view array on a device may have its buffer
/// of sizes in host memory or on the device, so the function asks the driver.
fn with_actual_device(sizes: &Buffer, stream: &Stream) -> Result<Buffer> {
    if sizes.device() == Device::CPU {
        return Ok(sizes.clone());
    }
    let (device, _) = stream.memory().pointer(sizes.address())?;
    let owner = ForeignOwner::new(sizes.clone());
    let bytes = sizes.len().map(|n| n as u64);
    // Host memory is readable from the moment of its export. The array's event applies only to
    // device memory.
    let ready = if device == Device::CPU { Ready::Now } else { sizes.ready().clone() };
    // SAFETY: `sizes` is readable in this address range, and `owner` keeps `sizes` alive.
    Ok(unsafe { Buffer::foreign(&owner, device, sizes.address(), bytes, ready) })
}

struct SizeResults<'a> {
    numbers: &'a [i64],
    parts: std::vec::IntoIter<usize>,
    memory: &'a Memory,
}

impl<'a> SizeResults<'a> {
    fn next(&mut self) -> Result<&'a [i64]> {
        let missing = || Error::internal("a buffer's size was not requested");
        let (sizes, rest) =
            self.parts.next().and_then(|n| self.numbers.split_at_checked(n)).ok_or_else(missing)?;
        self.numbers = rest;
        Ok(sizes)
    }
}

impl DeviceArray {
    fn has_unknown_sizes(&self) -> bool {
        self.buffers.iter().flatten().any(|buffer| buffer.len().is_none())
    }

    fn has_unknown_sizes_anywhere(&self) -> bool {
        self.has_unknown_sizes()
            || self.children.iter().any(Self::has_unknown_sizes_anywhere)
            || self.dictionary().is_some_and(Self::has_unknown_sizes_anywhere)
    }

    /// Sets the unknown sizes. The results have the order of the requests.
    fn set_sizes(&mut self, results: &mut SizeResults<'_>) -> Result<()> {
        if self.has_unknown_sizes() {
            let is_requested = !self.is_empty()
                && (self.view_sizes.is_some() || self.buffers.get(1).is_some_and(Option::is_some));
            let sizes = if is_requested { results.next()? } else { &[] };
            let mut sizes: Vec<usize> = sizes.iter().copied().map(size_of).collect::<Result<_>>()?;
            if self.view_sizes.is_none() && sizes.is_empty() {
                sizes.push(0);
            }
            let first = self.buffers.len() - sizes.len().min(self.buffers.len());
            for (i, slot) in self.buffers.iter_mut().enumerate() {
                if let Some(buffer) = slot.take_if(|buffer| buffer.len().is_none()) {
                    let bytes = i.checked_sub(first).and_then(|i| sizes.get(i)).copied().unwrap_or(0);
                    check_allocation(&buffer, bytes, results.memory)?;
                    // SAFETY: the buffer of a valid array has the number of bytes that its last
                    // offset or its list of sizes states.
                    *slot = Some(unsafe { buffer.with_len(bytes) }?);
                }
            }
            self.view_sizes = None;
        }
        self.children.iter_mut().try_for_each(|child| child.set_sizes(results))?;
        self.dictionary.as_deref_mut().map_or(Ok(()), |dictionary| dictionary.set_sizes(results))
    }
}

/// Returns an error if a size exceeds the address space or, on a device, the allocation that
/// contains the buffer. Callers check a size before they allocate memory for a copy.
fn check_allocation(buffer: &Buffer, bytes: usize, memory: &Memory) -> Result<()> {
    let end = buffer.address().checked_add(bytes as u64).filter(|end| *end <= i64::MAX as u64);
    let end = end.ok_or_else(|| {
        Error::bad_data(format!("a data buffer of {bytes} bytes exceeds the address space"))
    })?;
    if buffer.device() == Device::CPU || bytes == 0 {
        return Ok(());
    }
    match memory.pointer(buffer.address())? {
        (device, Some((base, allocated)))
            if device == buffer.device() && end > base.saturating_add(allocated) =>
        {
            Err(Error::bad_data(format!(
                "a data buffer of {bytes} bytes exceeds its allocation of {allocated} bytes on {device}"
            )))
        }
        _ => Ok(()),
    }
}

/// Converts a size or a last offset.
fn size_of(n: i64) -> Result<usize> {
    usize::try_from(n)
        .map_err(|_| Error::bad_data(format!("the last offset of an array is {n}, expected 0 or more")))
}
