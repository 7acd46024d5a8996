//! Sizes that nobody told: the last offset of each array, and the sizes of views' data buffers, read together.

use crossdock_memory::{Buffer, Device, Error, ForeignOwner, Memory, Ready, Result, Stream};

use crate::layout::BufferKind;
use crate::numbers::{self, Numbers};
use crate::{DeviceArray, DeviceBatch};

impl DeviceBatch {
    /// Makes every buffer's length known. Where some are not, reads what tells them in one copy to the host, and waits
    /// for it; where all are, does nothing.
    pub fn resolve_sizes(&mut self, stream: &Stream) -> Result<()> {
        let schema = self.schema().clone();
        let mut arrays: Vec<&mut DeviceArray> = self.columns_mut().iter_mut().collect();
        resolve(&mut arrays, stream).map_err(|(i, e)| match schema.fields().get(i) {
            Some(field) => e.context(format!("'{}'", crate::layout::shown(field.name()))),
            None => e,
        })
    }
}

impl DeviceArray {
    /// [`DeviceBatch::resolve_sizes`] for one array.
    pub fn resolve_sizes(&mut self, stream: &Stream) -> Result<()> {
        resolve(&mut [self], stream).map_err(|(_, e)| e)
    }
}

/// Numbers that tell the size of one or more buffers of one array.
struct Question {
    source: Buffer,
    at: usize,
    n: usize,
    width: usize,
}

/// An error comes with the place of its array.
pub(crate) fn resolve(arrays: &mut [&mut DeviceArray], stream: &Stream) -> Result<(), (usize, Error)> {
    let mut questions = Vec::new();
    for (i, array) in arrays.iter().enumerate() {
        let asked = array.walk(&mut |node| {
            questions.extend(question(node, stream)?);
            Ok(())
        });
        asked.map_err(|e| (i, e))?;
    }
    let asked: Vec<Numbers<'_>> = questions.iter().map(Question::numbers).collect();
    // Asks nothing where all sizes are known, or there are none but empty arrays.
    let numbers = numbers::read(&asked, stream).map_err(|e| (usize::MAX, e))?;
    let parts: Vec<usize> = questions.iter().map(|question| question.n).collect();
    let mut answers = Answers { numbers: &numbers, parts: parts.into_iter(), memory: stream.memory() };
    for (i, array) in arrays.iter_mut().enumerate() {
        array.answer(&mut answers).map_err(|e| (i, e))?;
    }
    Ok(())
}

impl Question {
    fn numbers(&self) -> Numbers<'_> {
        Numbers { source: &self.source, at: self.at, n: self.n, width: self.width }
    }
}

/// What has to be read to know the sizes of this array's own buffers.
fn question(array: &DeviceArray, stream: &Stream) -> Result<Option<Question>> {
    if !array.has_unknown_sizes() || array.is_empty() {
        return Ok(None);
    }
    if let Some(sizes) = &array.view_sizes {
        let source = where_it_lies(sizes, stream)?;
        return Ok(Some(Question { source, at: 0, n: sizes.len().unwrap_or(0) / 8, width: 8 }));
    }
    let layout = array.layout();
    let Some(BufferKind::Offsets { width }) = layout.kind(1) else {
        return Err(Error::invalid_argument(format!(
            "an array of type {}: the length of a data buffer is unknown, and nothing tells it",
            array.data_type()
        )));
    };
    let Some(Some(offsets)) = array.buffers().get(1) else { return Ok(None) };
    let at = (array.offset() + array.len()) * width;
    Ok(Some(Question { source: offsets.clone(), at, n: 1, width }))
}

/// A stranger keeps the sizes of view buffers in host memory or on the device: asks which.
fn where_it_lies(sizes: &Buffer, stream: &Stream) -> Result<Buffer> {
    if sizes.device() == Device::CPU {
        return Ok(sizes.clone());
    }
    let (device, _) = stream.memory().pointer(sizes.address())?;
    let owner = ForeignOwner::new(sizes.clone());
    let bytes = sizes.len().map(|n| n as u64);
    // Host memory was ready when its producer handed it over; the array's event is about the device's.
    let ready = if device == Device::CPU { Ready::Now } else { sizes.ready().clone() };
    // SAFETY: the range of `sizes`, which the owner keeps alive.
    Ok(unsafe { Buffer::foreign(&owner, device, sizes.address(), bytes, ready) })
}

struct Answers<'a> {
    numbers: &'a [i64],
    parts: std::vec::IntoIter<usize>,
    memory: &'a Memory,
}

impl<'a> Answers<'a> {
    fn next(&mut self) -> Result<&'a [i64]> {
        let missing = || Error::internal("a buffer's size was not asked for");
        let (answer, rest) =
            self.parts.next().and_then(|n| self.numbers.split_at_checked(n)).ok_or_else(missing)?;
        self.numbers = rest;
        Ok(answer)
    }
}

impl DeviceArray {
    fn has_unknown_sizes(&self) -> bool {
        self.buffers.iter().flatten().any(|buffer| buffer.len().is_none())
    }

    /// Takes the answers in the order in which [`question`] asked.
    fn answer(&mut self, answers: &mut Answers<'_>) -> Result<()> {
        if self.has_unknown_sizes() {
            let asked = !self.is_empty()
                && (self.view_sizes.is_some() || self.buffers.get(1).is_some_and(Option::is_some));
            let answer = if asked { answers.next()? } else { &[] };
            let mut sizes: Vec<usize> = answer.iter().copied().map(size_of).collect::<Result<_>>()?;
            if self.view_sizes.is_none() && sizes.is_empty() {
                sizes.push(0);
            }
            let first = self.buffers.len() - sizes.len().min(self.buffers.len());
            for (i, slot) in self.buffers.iter_mut().enumerate() {
                if let Some(buffer) = slot.take_if(|buffer| buffer.len().is_none()) {
                    let bytes = i.checked_sub(first).and_then(|i| sizes.get(i)).copied().unwrap_or(0);
                    check_room(&buffer, bytes, answers.memory)?;
                    // SAFETY: what a valid array's own last offset, or list of sizes, says.
                    *slot = Some(unsafe { buffer.with_len(bytes) }?);
                }
            }
            self.view_sizes = None;
        }
        self.children.iter_mut().try_for_each(|child| child.answer(answers))?;
        self.dictionary.as_deref_mut().map_or(Ok(()), |dictionary| dictionary.answer(answers))
    }
}

/// Refuses a size that goes beyond what can be addressed or, off the host, beyond the block that the device's driver
/// knows the address in: before anything is allocated for a copy of it.
fn check_room(buffer: &Buffer, bytes: usize, memory: &Memory) -> Result<()> {
    let end = buffer.address().checked_add(bytes as u64).filter(|end| *end <= i64::MAX as u64);
    let end = end.ok_or_else(|| Error::bad_data(format!("a data buffer would be {bytes} bytes long")))?;
    if buffer.device() == Device::CPU || bytes == 0 {
        return Ok(());
    }
    match memory.pointer(buffer.address())? {
        (device, Some((base, room))) if device == buffer.device() && end > base.saturating_add(room) => {
            Err(Error::bad_data(format!(
                "a data buffer would be {bytes} bytes long, beyond its block of {room} bytes on {device}"
            )))
        }
        _ => Ok(()),
    }
}

/// A size, or a last offset.
fn size_of(n: i64) -> Result<usize> {
    usize::try_from(n)
        .map_err(|_| Error::bad_data(format!("the last offset of an array is {n}, expected 0 or more")))
}
