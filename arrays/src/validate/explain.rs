//! Describes failed checks. Reads the wrong values from the device after the failure, when speed
//! does not matter.

use crossdock_kernels::Findings;
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::collect::{Check, Rule};
use crate::host::integer;
use crate::layout::shown;

impl Check<'_> {
    /// Returns an error if `cell`, the result cell of this check, reports an error.
    pub(super) fn result(&self, findings: &Findings, cell: usize, stream: &Stream) -> Result<()> {
        if let Rule::NullCount { declared, .. } = self.rule {
            let counted = findings.count(cell);
            return if counted == declared as u64 {
                Ok(())
            } else {
                Err(self.wrong(
                    None,
                    format!("the null count is {declared}, but the validity bitmap has {counted} nulls"),
                ))
            };
        }
        if let Rule::NoNulls { .. } = self.rule {
            let counted = findings.count(cell);
            let what = || format!("{counted} entries or keys of a map are null, expected none");
            return if counted == 0 { Ok(()) } else { Err(self.wrong(None, what())) };
        }
        let Some(index) = findings.first_wrong(cell) else { return Ok(()) };
        let index = index as usize;
        let what = self.explain(index, stream)?;
        Err(self.wrong(Some(index), what))
    }

    fn wrong(&self, index: Option<usize>, what: String) -> Error {
        let path = shown_path(&self.path);
        match index {
            Some(index) => Error::bad_data(format!("{path}[{index}]: {what}")),
            None => Error::bad_data(format!("{path}: {what}")),
        }
    }

    fn explain(&self, index: usize, stream: &Stream) -> Result<String> {
        let row = self.array.offset() + index;
        let at = |buffer: &Buffer, i: usize, width: usize, signed: bool| -> Result<i128> {
            let view = buffer.host_view_of(i * width, width, stream)?;
            Ok(integer(&view, 0, width, signed).unwrap_or(0))
        };
        Ok(match &self.rule {
            Rule::NullCount { .. } | Rule::NoNulls { .. } => String::new(),
            Rule::Offsets { offsets, width, limit } => {
                let min = if index == 0 { 0 } else { at(offsets, row - 1, *width, true)? };
                let got = at(offsets, row, *width, true)?;
                format!("the offset is {got}, expected {min} to {limit}")
            }
            Rule::Utf8 { .. } => "the text is not UTF-8".into(),
            Rule::Keys { keys, key_type, limit } => {
                let got = at(keys, row, key_type.width_bytes, key_type.signed)?;
                format!("the dictionary key is {got}, expected 0 or more and below {limit}")
            }
            Rule::Views { views, data, utf8 } => {
                let got = at(views, row * 4, 4, true)?;
                let (buffer, offset) = (at(views, row * 4 + 2, 4, true)?, at(views, row * 4 + 3, 4, true)?);
                let location =
                    if got <= 12 { String::new() } else { format!(" at {offset} of data buffer {buffer}") };
                let utf8 = if *utf8 { ", and UTF-8" } else { "" };
                format!(
                    "the view of {got} bytes{location} is malformed: expected a range within its {} data buffers that \
                     begins with the view's prefix, zero bytes after an inline value{utf8}",
                    data.len()
                )
            }
            Rule::Union { ids, offsets, children } => {
                let id = at(ids, row, 1, true)?;
                match (offsets, children.iter().find(|(known, _)| i128::from(*known) == id)) {
                    (Some(offsets), Some((_, len))) => {
                        let got = at(offsets, row, 4, true)?;
                        format!("the offset is {got}, but child {id} has {len} values")
                    }
                    _ => {
                        let known: Vec<String> = children.iter().map(|(id, _)| id.to_string()).collect();
                        format!("the type id is {id}, expected one of {}", known.join(", "))
                    }
                }
            }
            Rule::RunEnds { ends, width, covered } => {
                let before = if index == 0 { 0 } else { at(ends, row - 1, *width, true)? };
                if index == self.array.len() {
                    format!("the runs end at {before}, expected at least {covered}")
                } else {
                    format!("the run end is {}, expected more than {before}", at(ends, row, *width, true)?)
                }
            }
            Rule::ListViews { offsets, sizes, width, limit } => {
                let (offset, size) = (at(offsets, row, *width, true)?, at(sizes, row, *width, true)?);
                format!("the list has {size} elements from {offset} on, but its child has {limit} values")
            }
        })
    }
}

/// Converts a path to printable text, because column names are untrusted.
fn shown_path(path: &str) -> String {
    format!("column {}", shown(path))
}
