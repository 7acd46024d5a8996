//! Checks arrays without reading their contents.

use arrow_schema::DataType;
use crossdock_memory::{Buffer, Device, Error, Result};

use crate::layout::{BufferKind, ChildRule, Layout, layout};
use crate::{DeviceArray, MAX_DEPTH};

impl DeviceArray {
    /// Checks the parts of the array against the layout table, and sets the values that follow from
    /// the parts: buffer lengths, null counts of arrays that cannot have nulls, the depth and the
    /// device. `layout` is the row of the array's type. The types of the children must be correct
    /// already; [`Self::check_types`] checks them.
    pub(crate) fn complete(&mut self, layout: &Layout<'_>) -> Result<()> {
        let Some(end) = self.end() else {
            let (offset, len) = (self.offset, self.len);
            return Err(
                self.wrong(format!("offset {offset} + length {len} exceeds the maximum length of an array"))
            );
        };
        self.check_buffers(layout, end)?;
        self.check_nulls(layout)?;
        self.check_children(layout, end)?;
        let below = self.children.iter().chain(self.dictionary.as_deref()).map(|child| child.depth).max();
        self.depth = 1 + below.unwrap_or(0);
        if self.depth > MAX_DEPTH {
            return Err(Error::unsupported(format!("an array nests deeper than {MAX_DEPTH} levels")));
        }
        self.device = self.one_device()?;
        Ok(())
    }

    fn one_device(&self) -> Result<Option<Device>> {
        let mut first = None;
        for buffer in self.buffers.iter().flatten() {
            self.check_device(&mut first, buffer.device())?;
        }
        for below in self.children.iter().chain(self.dictionary.as_deref()) {
            if let Some(device) = below.device {
                self.check_device(&mut first, device)?;
            }
        }
        Ok(first)
    }

    #[inline]
    fn check_device(&self, first: &mut Option<Device>, device: Device) -> Result<()> {
        let expected = *first.get_or_insert(device);
        if device == expected {
            return Ok(());
        }
        Err(self
            .wrong(format!("the array has buffers on {expected} and on {device}: move them to one device")))
    }

    /// Calls [`Self::complete`] and returns the array.
    pub(crate) fn checked(mut self) -> Result<Self> {
        let data_type = self.data_type.clone();
        self.complete(&layout(&data_type))?;
        Ok(self)
    }

    /// Returns `offset + len`, the index in the buffers after the last value; `None` if it exceeds
    /// the maximum.
    fn end(&self) -> Option<usize> {
        self.offset.checked_add(self.len).filter(|end| i64::try_from(*end).is_ok())
    }

    #[cold]
    fn wrong(&self, what: String) -> Error {
        Error::bad_data(format!("an array of type {}: {what}", crate::type_name(&self.data_type)))
    }

    fn check_buffers(&mut self, layout: &Layout<'_>, end: usize) -> Result<()> {
        let (expected, got) = (layout.n_buffers(), self.buffers.len());
        if got != expected && !(layout.variadic && got > expected) {
            return Err(self.wrong(format!("the array has {got} buffers, expected {expected}")));
        }
        let empty = self.len == 0;
        let mut wrong = None;
        for (i, slot) in self.buffers.iter_mut().enumerate() {
            let Some(kind) = layout.kind(i) else { continue };
            let needed = if empty { Some(0) } else { kind.bytes_for(end) };
            if let Err(what) = fit(slot, kind, needed, layout.is_validity(i)) {
                wrong = Some(what);
                break;
            }
        }
        wrong.map_or(Ok(()), |what| Err(self.wrong(what)))
    }

    fn check_nulls(&mut self, layout: &Layout<'_>) -> Result<()> {
        let validity = layout.has_validity && self.buffers.first().is_some_and(Option::is_some);
        self.null_count = match self.null_count {
            _ if layout.all_null => Some(self.len),
            _ if self.len == 0 => Some(0),
            Some(n) if n > self.len => {
                return Err(
                    self.wrong(format!("the null count is {n}, expected at most the length {}", self.len))
                );
            }
            Some(n) if n > 0 && !layout.has_validity => {
                return Err(
                    self.wrong(format!("the null count is {n}, expected 0: the type has no validity bitmap"))
                );
            }
            Some(n) if n > 0 && !validity => {
                return Err(
                    self.wrong(format!("the null count is {n}, but the array has no validity bitmap"))
                );
            }
            known if validity => known,
            _ => Some(0),
        };
        Ok(())
    }

    fn check_children(&self, layout: &Layout<'_>, end: usize) -> Result<()> {
        let (expected, got) = (layout.children.len(), self.children.len());
        if expected != got {
            return Err(self.wrong(format!("the array has {got} children, expected {expected}")));
        }
        match (layout.dictionary.is_some(), self.dictionary.is_some()) {
            (true, false) => return Err(self.wrong("the dictionary is missing".into())),
            (false, true) => return Err(self.wrong("the array has a dictionary, expected none".into())),
            _ => {}
        }
        let min_len = match layout.child_rule {
            _ if self.len == 0 => 0,
            ChildRule::SameRows => end,
            ChildRule::Times(n) => end.checked_mul(n).ok_or_else(|| {
                self.wrong(format!("{end} lists of {n} values exceed the maximum length of an array"))
            })?,
            ChildRule::Runs => return self.check_runs(),
            ChildRule::None | ChildRule::Offsets | ChildRule::Views | ChildRule::Dense => 0,
        };
        match self.children.iter().find(|child| child.len < min_len) {
            None => Ok(()),
            Some(child) => {
                Err(self.wrong(format!("a child has {} values, expected at least {min_len}", child.len)))
            }
        }
    }

    fn check_runs(&self) -> Result<()> {
        match self.children.as_slice() {
            [ends, _] if ends.len == 0 => {
                Err(self.wrong(format!("the array has no runs, but {} values", self.len)))
            }
            [ends, values] if values.len < ends.len => {
                Err(self
                    .wrong(format!("the array has {} run ends, but {} values of runs", ends.len, values.len)))
            }
            [ends, _] if ends.null_count.is_some_and(|n| n > 0) => {
                Err(self.wrong("the run ends have nulls".into()))
            }
            _ => Ok(()),
        }
    }

    /// Checks the types of the children and of the dictionary against the array's own type.
    pub(crate) fn check_types(&self) -> Result<()> {
        let layout = layout(&self.data_type);
        if let Some((keys, _)) = layout.dictionary
            && !keys.is_integer()
        {
            return Err(
                self.wrong(format!("the dictionary keys are of type {keys}, expected an integer type"))
            );
        }
        if let DataType::FixedSizeBinary(n) | DataType::FixedSizeList(_, n) = &self.data_type
            && *n < 0
        {
            return Err(self.wrong(format!("the fixed size is {n}, expected 0 or more")));
        }
        let children = layout.children.iter().map(|field| field.data_type()).zip(&self.children);
        let dictionary = layout.dictionary.map(|(_, values)| values).into_iter().zip(self.dictionary());
        for (expected, child) in children.chain(dictionary) {
            if !expected.equals_datatype(&child.data_type) {
                let (got, expected) = (crate::type_name(&child.data_type), crate::type_name(expected));
                return Err(self.wrong(format!("a child is of type {got}, expected {expected}")));
            }
        }
        Ok(())
    }
}

/// Checks a known buffer length. Replaces an unknown buffer length by the length that the array
/// implies.
fn fit(
    slot: &mut Option<Buffer>,
    kind: BufferKind,
    needed: Option<u64>,
    is_validity: bool,
) -> Result<(), String> {
    let what = || if is_validity { "validity" } else { kind.name() };
    let Some(buffer) = slot else {
        return match needed {
            Some(1..) if !is_validity => Err(format!("the {} buffer is missing", what())),
            _ => Ok(()),
        };
    };
    let Some(needed) = needed else { return Ok(()) };
    match buffer.len() {
        Some(len) if (len as u64) < needed => {
            Err(format!("the {} buffer has {len} bytes, expected at least {needed}", what()))
        }
        Some(_) => Ok(()),
        // The end address of the buffer must not overflow.
        None if needed.checked_add(buffer.address()).is_none_or(|end| end > i64::MAX as u64) => {
            Err(format!("the {} buffer, of {needed} bytes, would end beyond the address space", what()))
        }
        None => {
            // SAFETY: `Buffer::foreign` accepts an unknown length only for a buffer of a valid
            // array, and the buffer of a valid array has at least `needed` bytes.
            let known = slot.take().map(|buffer| unsafe { buffer.with_len(needed as usize) }).transpose();
            *slot = known.map_err(|e| e.message().to_string())?;
            Ok(())
        }
    }
}
