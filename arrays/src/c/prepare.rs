//! Prepares exports: determines null counts and one common event, and allocates additional buffers.

use crossdock_memory::{Buffer, Device, Error, Ready, Result, Stream};

use super::arena::Size;
use crate::layout::BufferKind;
use crate::nulls;
use crate::{DeviceArray, DeviceBatch};

/// The owners of the exported buffers, and the exported values that the tree of arrays does not
/// contain.
pub(super) struct Prepared {
    /// Owners that keep the exported memory alive: at least one buffer of each allocation and of
    /// each imported array.
    buffers: Vec<Buffer>,
    /// Null counts of the arrays with an unknown count, in pre-order.
    pub(super) null_counts: std::vec::IntoIter<usize>,
    /// For each view array, in pre-order, the address of a list with the sizes of its data buffers.
    /// The lists are in pinned memory. Empty on the CPU.
    pub(super) view_sizes: std::vec::IntoIter<u64>,
    /// The address of 8 zero bytes on the device; `None` if the zero bytes in the arena are used.
    pub(super) zero: Option<u64>,
    /// The batch's own metadata, encoded; empty if the batch has none.
    pub(super) metadata: Vec<u8>,
}

impl Prepared {
    /// Prepares the arrays of one batch on `device`, and the counter of its rows. Launches kernels
    /// or blocks only if a null count is unknown, if buffers have different events, or if CPU
    /// buffers are not ready yet. `joined` is an event after the events of all buffers in `arrays`.
    pub(super) fn new(
        arrays: &[&DeviceArray],
        counter: Option<&Buffer>,
        device: Device,
        stream: &Stream,
        joined: Option<&Ready>,
    ) -> Result<(Self, Size, Ready)> {
        let mut survey = Survey::default();
        for array in arrays {
            array.walk(&mut |node| survey.visit(node))?;
        }
        if let Some(joined) = joined {
            survey.events = vec![joined];
        }
        survey.events.extend(counter.map(Buffer::ready).filter(|ready| !ready.is_now()));
        survey.buffers.extend(counter.cloned());
        let zero = match survey.empty_offsets && device != Device::CPU {
            true => Some(zero_on(device, stream)?),
            false => None,
        };
        survey.events.extend(zero.as_ref().map(Buffer::ready).filter(|ready| !ready.is_now()));
        let ready = one_event(survey.events, device, stream)?;
        let null_counts = if survey.without_null_count.is_empty() {
            Vec::new()
        } else {
            nulls::count_nulls(&survey.without_null_count, stream)?
        };
        let mut prepared = Self {
            buffers: survey.buffers,
            null_counts: null_counts.into_iter(),
            view_sizes: Vec::new().into_iter(),
            zero: zero.as_ref().map(Buffer::address),
            metadata: Vec::new(),
        };
        prepared.buffers.extend(zero.clone());
        if device != Device::CPU {
            prepared.add_view_sizes(&survey.views, stream)?;
        }
        Ok((prepared, survey.size, ready))
    }

    fn add_view_sizes(&mut self, views: &[&DeviceArray], stream: &Stream) -> Result<()> {
        let memory = stream.memory();
        let mut addresses = Vec::new();
        for array in views {
            let sizes = variadic_sizes(array)?;
            let mut pinned = memory.alloc_pinned(sizes.len() * 8)?;
            let to = pinned.host_slice_mut().ok_or_else(|| {
                Error::internal("the host cannot reach the pinned memory that it allocated")
            })?;
            for (to, size) in to.chunks_exact_mut(8).zip(&sizes) {
                to.copy_from_slice(&size.to_ne_bytes());
            }
            let pinned = pinned.freeze_now();
            addresses.push(pinned.address());
            self.buffers.push(pinned);
        }
        self.view_sizes = addresses.into_iter();
        Ok(())
    }

    /// Marks all buffers for a consumer in another library; see [`Buffer::mark_exported`].
    pub(super) fn mark_exported(&self) {
        self.buffers.iter().for_each(Buffer::mark_exported);
    }
}

/// Allocates 8 zero bytes.
fn zero_on(device: Device, stream: &Stream) -> Result<Buffer> {
    let stream = nulls::stream_on(device, stream)?;
    let mut zero = stream.memory().alloc(&stream, 8)?;
    stream.fill(&mut zero, 0, 8, 0)?;
    zero.freeze(&stream)
}

#[derive(Default)]
struct Survey<'a> {
    size: Size,
    buffers: Vec<Buffer>,
    events: Vec<&'a Ready>,
    without_null_count: Vec<&'a DeviceArray>,
    views: Vec<&'a DeviceArray>,
    empty_offsets: bool,
}

impl<'a> Survey<'a> {
    fn visit(&mut self, node: &'a DeviceArray) -> Result<()> {
        let layout = node.layout();
        let below = node.children().len() + usize::from(node.dictionary().is_some());
        self.size.nodes += below;
        self.size.buffers += node.buffers().len() + usize::from(layout.variadic);
        self.size.other_words += node.children().len();
        if layout.variadic {
            self.size.other_words += node.buffers().len();
            if needs_own_sizes(node) {
                self.views.push(node);
            }
        }
        if node.null_count().is_none() {
            self.without_null_count.push(node);
        }
        for (i, slot) in node.buffers().iter().enumerate() {
            let Some(buffer) = slot else {
                self.empty_offsets |= matches!(layout.kind(i), Some(BufferKind::Offsets { .. }));
                continue;
            };
            self.empty_offsets |= buffer.is_empty();
            // Most batches are in one allocation or in one imported array. An owner may be stored
            // twice, so the search for an equal owner covers only the last few buffers.
            if !self.buffers.iter().rev().take(4).any(|buffers| buffers.same_owner(buffer)) {
                self.buffers.push(buffer.clone());
            }
            if !buffer.ready().is_now() {
                self.events.push(buffer.ready());
            }
        }
        if let Some(sizes) = &node.view_sizes {
            self.buffers.push(Buffer::clone(sizes));
        }
        Ok(())
    }
}

/// Whether an export creates the buffer with the sizes of the data buffers. Otherwise it exports
/// the producer's buffer, because the host has not read all sizes.
pub(super) fn needs_own_sizes(array: &DeviceArray) -> bool {
    array.view_sizes.is_none() || variadic_sizes(array).is_ok()
}

/// The sizes of a view array's data buffers, in bytes.
pub(super) fn variadic_sizes(array: &DeviceArray) -> Result<Vec<i64>> {
    let variadic = array.buffers().get(array.layout().n_buffers()..).unwrap_or(&[]);
    variadic
        .iter()
        .map(|slot| match slot.as_ref().map(Buffer::len) {
            None => Ok(0),
            Some(Some(bytes)) => Ok(bytes as i64),
            Some(None) => Err(Error::invalid_argument(format!(
                "an array of type {}: a data buffer's length is unknown; resolve the sizes first",
                crate::type_name(array.data_type())
            ))),
        })
        .collect()
}

/// Returns one event after the events of all buffers of several batches on `device`. `None` if they
/// have at most one event, or if the device has no events.
pub(super) fn join(batches: &[DeviceBatch], device: Device, stream: &Stream) -> Result<Option<Ready>> {
    if device == Device::CPU {
        return Ok(None);
    }
    let mut survey = Survey::default();
    for array in batches.iter().flat_map(DeviceBatch::columns) {
        array.walk(&mut |node| survey.visit(node))?;
    }
    // An event that is not adjacent may be waited for twice, so the search for an equal event
    // covers only the last few events.
    let mut distinct: Vec<&Ready> = Vec::new();
    for event in survey.events {
        if !distinct.iter().rev().take(4).any(|other| other.is_same(event)) {
            distinct.push(event);
        }
    }
    if distinct.len() < 2 { Ok(None) } else { one_event(distinct, device, stream).map(Some) }
}

/// Returns one event after which all buffers are ready. Arrow does not allow an event on the CPU,
/// so the host waits until CPU buffers are ready.
fn one_event(mut events: Vec<&Ready>, device: Device, stream: &Stream) -> Result<Ready> {
    events.dedup_by(|a, b| a.is_same(b));
    match events.as_slice() {
        [] => Ok(Ready::Now),
        [one] if device != Device::CPU => Ok((*one).clone()),
        several if device == Device::CPU => {
            several.iter().try_for_each(|ready| stream.wait(ready))?;
            stream.synchronize()?;
            Ok(Ready::Now)
        }
        several => {
            let stream = nulls::stream_on(device, stream)?;
            several.iter().try_for_each(|ready| stream.wait(ready))?;
            stream.record()
        }
    }
}
