//! What an export needs before it can write down anything: counts, an event, and the odd extra buffer.

use crossdock_memory::{Buffer, Device, Error, Ready, Result, Stream};

use super::arena::Size;
use crate::DeviceArray;
use crate::layout::BufferKind;
use crate::nulls;

/// What the exported array keeps alive, and what could not be read off the tree.
pub(super) struct Prepared {
    /// One buffer of each allocation or stranger's array.
    kept: Vec<Buffer>,
    /// Null counts of the arrays that did not know theirs, in the order of the C interface.
    pub(super) null_counts: std::vec::IntoIter<usize>,
    /// The sizes of view arrays' variadic buffers, in pinned memory, in the same order. Empty on the CPU.
    pub(super) view_sizes: std::vec::IntoIter<u64>,
    /// 8 zero bytes on the device, where the arena's do not serve.
    pub(super) zero: Option<u64>,
    /// The batch's own metadata, encoded; empty for none.
    pub(super) metadata: Vec<u8>,
}

impl Prepared {
    /// For the arrays of one batch, which lie on `device`. Launches and waits only if a null count is unknown, if buffers
    /// become ready at different moments, or if CPU buffers are not ready yet.
    pub(super) fn new(
        arrays: &[&DeviceArray],
        device: Device,
        stream: &Stream,
    ) -> Result<(Self, Size, Ready)> {
        let mut survey = Survey::default();
        for array in arrays {
            array.walk(&mut |node| survey.look(node))?;
        }
        let zero = match survey.empty_offsets && device != Device::CPU {
            true => Some(zero_on(device, stream)?),
            false => None,
        };
        survey.events.extend(zero.as_ref().map(Buffer::ready).filter(|ready| !ready.is_now()));
        let ready = one_event(survey.events, device, stream)?;
        let null_counts = if survey.uncounted.is_empty() {
            Vec::new()
        } else {
            nulls::count_nulls(&survey.uncounted, stream)?
        };
        let mut prepared = Self {
            kept: survey.kept,
            null_counts: null_counts.into_iter(),
            view_sizes: Vec::new().into_iter(),
            zero: zero.as_ref().map(Buffer::address),
            metadata: Vec::new(),
        };
        prepared.kept.extend(zero.clone());
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
            self.kept.push(pinned);
        }
        self.view_sizes = addresses.into_iter();
        Ok(())
    }

    /// The consumer is another library: see [`Buffer::mark_lent`].
    pub(super) fn mark_lent(&self) {
        self.kept.iter().for_each(Buffer::mark_lent);
    }
}

/// 8 zero bytes.
fn zero_on(device: Device, stream: &Stream) -> Result<Buffer> {
    let stream = nulls::stream_on(device, stream)?;
    let mut zero = stream.memory().alloc(&stream, 8)?;
    stream.fill(&mut zero, 0, 8, 0)?;
    zero.freeze(&stream)
}

#[derive(Default)]
struct Survey<'a> {
    size: Size,
    kept: Vec<Buffer>,
    events: Vec<&'a Ready>,
    uncounted: Vec<&'a DeviceArray>,
    views: Vec<&'a DeviceArray>,
    empty_offsets: bool,
}

impl<'a> Survey<'a> {
    fn look(&mut self, node: &'a DeviceArray) -> Result<()> {
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
            self.uncounted.push(node);
        }
        for (i, slot) in node.buffers().iter().enumerate() {
            let Some(buffer) = slot else {
                self.empty_offsets |= matches!(layout.kind(i), Some(BufferKind::Offsets { .. }));
                continue;
            };
            self.empty_offsets |= buffer.is_empty();
            // Most batches lie in one allocation or came as one array; a stray duplicate does no harm.
            if !self.kept.iter().rev().take(4).any(|kept| kept.same_owner(buffer)) {
                self.kept.push(buffer.clone());
            }
            if !buffer.ready().is_now() {
                self.events.push(buffer.ready());
            }
        }
        if let Some(sizes) = &node.view_sizes {
            self.kept.push(Buffer::clone(sizes));
        }
        Ok(())
    }
}

/// Whether the buffer of the variadic buffers' sizes must be made, because no stranger's can be passed on.
pub(super) fn needs_own_sizes(array: &DeviceArray) -> bool {
    array.view_sizes.is_none() || variadic_sizes(array).is_ok()
}

/// The sizes of a view array's variadic buffers.
pub(super) fn variadic_sizes(array: &DeviceArray) -> Result<Vec<i64>> {
    let variadic = array.buffers().get(array.layout().n_buffers()..).unwrap_or(&[]);
    variadic
        .iter()
        .map(|slot| match slot.as_ref().map(Buffer::len) {
            None => Ok(0),
            Some(Some(bytes)) => Ok(bytes as i64),
            Some(None) => Err(Error::invalid_argument(format!(
                "an array of type {}: a data buffer's length is unknown; resolve the sizes first",
                array.data_type()
            ))),
        })
        .collect()
}

/// One event after which everything is ready. Arrow allows none on the CPU, so there the host waits.
fn one_event(mut events: Vec<&Ready>, device: Device, stream: &Stream) -> Result<Ready> {
    events.dedup_by_key(|ready| ready.sync_event());
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
