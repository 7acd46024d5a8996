//! What a check found, in words. Reads the few bytes that are wrong, since by now it matters less how long it takes.

use crossdock_kernels::Findings;
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::collect::{Check, Rule};
use crate::host::integer;
use crate::layout::shown;

impl Check<'_> {
    /// What cell `at` says about this check.
    pub(super) fn verdict(&self, found: &Findings, at: usize, stream: &Stream) -> Result<()> {
        if let Rule::NullCount { claimed, .. } = self.rule {
            let counted = found.count(at);
            return if counted == claimed as u64 {
                Ok(())
            } else {
                Err(self
                    .wrong(None, format!("its null count is {claimed}, its validity bitmap has {counted}")))
            };
        }
        if let Rule::NoNulls { .. } = self.rule {
            let counted = found.count(at);
            let words = || format!("{counted} entries or keys of a map are null, Arrow's maps have none");
            return if counted == 0 { Ok(()) } else { Err(self.wrong(None, words())) };
        }
        let Some(index) = found.first_wrong(at) else { return Ok(()) };
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
        let place = self.array.offset() + index;
        let at = |buffer: &Buffer, i: usize, width: usize, signed: bool| -> Result<i128> {
            let view = buffer.host_view_of(i * width, width, stream)?;
            Ok(integer(&view, 0, width, signed).unwrap_or(0))
        };
        Ok(match &self.rule {
            Rule::NullCount { .. } | Rule::NoNulls { .. } => String::new(),
            Rule::Offsets { offsets, width, limit } => {
                let least = if index == 0 { 0 } else { at(offsets, place - 1, *width, true)? };
                let got = at(offsets, place, *width, true)?;
                format!("the offset is {got}, expected {least} to {limit}")
            }
            Rule::Utf8 { .. } => "the text is not UTF-8".into(),
            Rule::Keys { keys, key_type, limit } => {
                let got = at(keys, place, key_type.width_bytes, key_type.signed)?;
                format!("the dictionary key is {got}, expected 0 or more and below {limit}")
            }
            Rule::Views { views, data, utf8 } => {
                let got = at(views, place * 4, 4, true)?;
                let (buffer, offset) =
                    (at(views, place * 4 + 2, 4, true)?, at(views, place * 4 + 3, 4, true)?);
                let place =
                    if got <= 12 { String::new() } else { format!(" at {offset} of data buffer {buffer}") };
                let text = if *utf8 { ", and UTF-8" } else { "" };
                format!(
                    "the view of {got} bytes{place} is wrong: expected a range within its {} data buffers that begins as \
                     the view says, zeros after a short value{text}",
                    data.len()
                )
            }
            Rule::Union { ids, offsets, children } => {
                let id = at(ids, place, 1, true)?;
                match (offsets, children.iter().find(|(known, _)| i128::from(*known) == id)) {
                    (Some(offsets), Some((_, len))) => {
                        let got = at(offsets, place, 4, true)?;
                        format!("the offset is {got} into child {id}, which has {len} values")
                    }
                    _ => {
                        let known: Vec<String> = children.iter().map(|(id, _)| id.to_string()).collect();
                        format!("the type id is {id}, expected one of {}", known.join(", "))
                    }
                }
            }
            Rule::RunEnds { ends, width, covered } => {
                let before = if index == 0 { 0 } else { at(ends, place - 1, *width, true)? };
                if index == self.array.len() {
                    format!("the runs end at {before}, expected at least {covered}")
                } else {
                    format!("the run end is {}, expected more than {before}", at(ends, place, *width, true)?)
                }
            }
            Rule::ListViews { offsets, sizes, width, limit } => {
                let (offset, size) = (at(offsets, place, *width, true)?, at(sizes, place, *width, true)?);
                format!("the list has {size} elements from {offset} on, its child has {limit}")
            }
        })
    }
}

/// Column names are other people's text.
fn shown_path(path: &str) -> String {
    format!("column {}", shown(path))
}
