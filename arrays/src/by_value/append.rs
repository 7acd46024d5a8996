//! Appends the values of arrays that are not stored row by row: views, list-views, dense unions and
//! run-end encoded arrays.

use crate::Error;
use crate::layout::{BufferKind, layout};
use crossdock_memory::Result;

use super::builder::Builder;
use super::view::HostArray;

impl Builder {
    pub(super) fn append_views(&mut self, from: &HostArray<'_>, start: usize, len: usize) -> Result<()> {
        for i in start..start + len {
            let bytes = if from.is_null(i) { &[] } else { from.view(i)? };
            let mut view = [0; 16];
            let (head, rest) = view.split_at_mut(4);
            head.copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            if bytes.len() <= 12 {
                rest.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            } else {
                let data = self.buffer(1)?;
                let at = i32::try_from(data.len())
                    .map_err(|_| Error::unsupported("cannot concatenate views of more than 2 GiB of data"))?;
                data.extend_from_slice(bytes);
                rest.iter_mut().zip(bytes.iter().take(4)).for_each(|(to, from)| *to = *from);
                rest.iter_mut().skip(8).zip(at.to_le_bytes()).for_each(|(to, from)| *to = from);
            }
            self.buffer(0)?.extend_from_slice(&view);
        }
        Ok(())
    }

    pub(super) fn append_list_views(
        &mut self,
        from: &HostArray<'_>,
        start: usize,
        len: usize,
        width: usize,
    ) -> Result<()> {
        for i in start..start + len {
            let at = from.array.offset() + i;
            let size = if from.is_null(i) { 0 } else { from.index(1, width, at)? };
            let begin = self.children.first().map_or(0, Builder::len);
            put(self.buffer(0)?, begin, width)?;
            put(self.buffer(1)?, size, width)?;
            if size > 0 {
                self.append_child(from, 0, from.index(0, width, at)?, size)?;
            }
        }
        Ok(())
    }

    pub(super) fn append_dense(&mut self, from: &HostArray<'_>, start: usize, len: usize) -> Result<()> {
        self.append_bytes(from, from.array.offset() + start, len, 1)?;
        for i in start..start + len {
            let (child, row) = from.member(i)?;
            let begin = self.children.get(child).map_or(0, Builder::len);
            put(self.buffer(1)?, begin, 4)?;
            self.append_child(from, child, row, 1)?;
        }
        Ok(())
    }

    pub(super) fn append_runs(&mut self, from: &HostArray<'_>, start: usize, len: usize) -> Result<()> {
        let mut i = 0;
        while i < len {
            let (run, remaining) = from.run(start + i)?;
            i += remaining.min(len - i);
            self.append_child(from, 1, run, 1)?;
            let end = self.len + i;
            let ends = self
                .children
                .first_mut()
                .ok_or_else(|| Error::internal("a run-end encoded array has no run ends"))?;
            let width = layout(&ends.data_type).kind(1).and_then(BufferKind::width).unwrap_or(4);
            put(ends.buffer(0)?, end, width)?;
            ends.validity.extend_set(1);
            ends.len += 1;
        }
        Ok(())
    }
}

/// Appends an offset or size of `width` bytes.
pub(super) fn put(to: &mut Vec<u8>, value: usize, width: usize) -> Result<()> {
    if width == 2 && value > i16::MAX as usize || width == 4 && value > i32::MAX as usize {
        return Err(Error::unsupported(format!(
            "the concatenated values reach offset {value}, which does not fit into {width} bytes"
        )));
    }
    to.extend(value.to_le_bytes().iter().take(width));
    Ok(())
}
