//! Encodes values as bytes, so that two values of one type are equal if their encodings are equal.

use std::collections::HashMap;

use crate::layout::{BufferKind, ChildRule};
use crossdock_memory::{Error, Result};

use super::bits::bit;
use super::view::HostArray;

/// Maximum size of one encoded value. Without this limit, a list of nulls could have an encoding of
/// any length, although its input needs no bytes.
const MAX_ENCODED_BYTES: usize = 64 << 20;

fn too_long(array: &HostArray<'_>) -> Error {
    Error::unsupported(format!(
        "a dictionary value of type {} is longer than {MAX_ENCODED_BYTES} bytes",
        crate::type_name(array.data_type())
    ))
}

/// The encoded values of a growing dictionary, and the position of each distinct value.
#[derive(Default)]
pub struct ValueIndex {
    positions: HashMap<Vec<u8>, usize>,
    /// The encoded values in the order of their positions, including duplicates.
    values: Vec<Vec<u8>>,
}

impl ValueIndex {
    /// Encodes all values of an array.
    pub fn encode(array: &HostArray<'_>) -> Result<Vec<Vec<u8>>> {
        (0..array.len())
            .map(|i| {
                let mut key = Vec::new();
                write_key(array, i, &mut key)?;
                Ok(key)
            })
            .collect()
    }

    /// All encoded values, in order.
    pub fn values(&self) -> &[Vec<u8>] {
        &self.values
    }

    /// The first position at which the value occurs.
    pub fn position(&self, key: &[u8]) -> Option<usize> {
        self.positions.get(key).copied()
    }

    /// Appends a value.
    pub fn push(&mut self, key: Vec<u8>) {
        self.positions.entry(key.clone()).or_insert(self.values.len());
        self.values.push(key);
    }
}

/// Appends the encoding of value `i`: a validity byte, then the content. The content of a nested
/// value consists of the encodings of its children's values.
fn write_key(array: &HostArray<'_>, i: usize, key: &mut Vec<u8>) -> Result<()> {
    if array.is_null(i) {
        key.push(0);
        return Ok(());
    }
    if let Some(dictionary) = &array.dictionary {
        return write_row(dictionary, array.dictionary_key(i)?, key, array);
    }
    let at = array.array.offset() + i;
    key.push(1);
    match *array.layout.buffers() {
        [BufferKind::Bits] => key.push(u8::from(bit(array.buffer(0), at))),
        [BufferKind::Fixed { bytes }] => {
            key.extend_from_slice(array.range(0, at.saturating_mul(bytes), bytes)?)
        }
        [BufferKind::Offsets { width }, BufferKind::Data] => {
            let (begin, end) = array.extent(width, i)?;
            write_bytes(array.range(1, begin, end - begin)?, key);
        }
        [BufferKind::Views] => write_bytes(array.view(i)?, key),
        [BufferKind::Offsets { width }] => {
            let (begin, end) = array.extent(width, i)?;
            write_rows(array, begin, end - begin, key)?;
        }
        [BufferKind::ViewOffsets { width }, _] => {
            write_rows(array, array.index(0, width, at)?, array.index(1, width, at)?, key)?;
        }
        [BufferKind::TypeIds, ..] => {
            let (child, row) = array.member(i)?;
            key.push(child as u8);
            return array.children.get(child).map_or(Ok(()), |child| write_row(child, row, key, array));
        }
        _ => {}
    }
    match array.layout.child_rule {
        ChildRule::SameRows => array.children.iter().try_for_each(|child| write_row(child, at, key, array)),
        ChildRule::Times(n) => write_rows(array, at.saturating_mul(n), n, key),
        ChildRule::Runs => {
            let (run, _) = array.run(i)?;
            array.children.get(1).map_or(Ok(()), |values| write_row(values, run, key, array))
        }
        _ => Ok(()),
    }
}

fn write_bytes(bytes: &[u8], key: &mut Vec<u8>) {
    key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    key.extend_from_slice(bytes);
}

fn write_rows(array: &HostArray<'_>, start: usize, n: usize, key: &mut Vec<u8>) -> Result<()> {
    key.extend_from_slice(&(n as u64).to_le_bytes());
    if n > MAX_ENCODED_BYTES || key.len() > MAX_ENCODED_BYTES {
        return Err(too_long(array));
    }
    let Some(child) = array.children.first() else { return Ok(()) };
    (0..n).try_for_each(|i| write_row(child, start.saturating_add(i), key, array))
}

fn write_row(child: &HostArray<'_>, row: usize, key: &mut Vec<u8>, parent: &HostArray<'_>) -> Result<()> {
    if row >= child.len() {
        return Err(
            parent.wrong(format!("the array refers to row {row} of a child with {} rows", child.len()))
        );
    }
    write_key(child, row, key)
}
