//! Tracks the dictionaries that have been written, and writes the dictionaries that a batch needs
//! before the batch.
//!
//! In a stream, a changed dictionary is replaced. If it begins with the old values, it is extended
//! by a delta instead. In a file, a dictionary can only be extended. Therefore dictionaries are
//! unified: new values are written as deltas, and keys are remapped.

use std::collections::HashMap;

use arrow_schema::Field;
use crossdock_arrays::DeviceArray;
use crossdock_arrays::by_value::{Builder, HostArray, ValueIndex, same_buffers};
use crossdock_memory::{Error, Result};

use super::flatten::Flattener;
use super::message::Flat;
use crate::wire::schema::{Column, Kind};

/// The dictionaries of one stream or file.
pub struct Dictionaries {
    written: HashMap<i64, Written>,
    may_replace: bool,
}

/// The description of a dictionary.
pub struct Dictionary<'a> {
    /// The id of the dictionary in messages.
    pub id: i64,
    /// The field of the keys.
    pub field: &'a Field,
    /// The column of the values.
    pub values: &'a Column,
}

struct Written {
    /// The array that was compared last. It is kept alive because the comparison uses the addresses
    /// of its buffers, which must not be reused.
    last: DeviceArray,
    /// For each value of `last`, its position among the written values. `None` if the positions are
    /// 0, 1, 2, ...
    positions: Option<Vec<usize>>,
    /// All values that were written; `None` until a comparison needs them.
    keys: Option<ValueIndex>,
}

impl Dictionaries {
    /// Creates the state before the first dictionary. `may_replace` is true for a stream.
    pub fn new(may_replace: bool) -> Self {
        Self { written: HashMap::new(), may_replace }
    }

    /// Writes the values of `dictionary` that were not written yet. Returns the positions of its
    /// values among the written values, or `None` if they are 0, 1, 2, ...
    pub fn write(
        flattener: &mut Flattener<'_>,
        &Dictionary { id, field, values: column }: &Dictionary<'_>,
        dictionary: &DeviceArray,
    ) -> Result<Option<Vec<usize>>> {
        let may_replace = flattener.dictionaries.may_replace;
        // The dictionary is removed from the map during the call, because the call may write
        // dictionaries that the values contain.
        let Some(mut written) = flattener.dictionaries.written.remove(&id) else {
            emit(flattener, id, false, column, dictionary)?;
            let written = Written { last: dictionary.clone(), positions: None, keys: None };
            flattener.dictionaries.written.insert(id, written);
            return Ok(None);
        };
        if !same_buffers(&written.last, dictionary) {
            if written.keys.is_none() {
                let mut keys = ValueIndex::default();
                ValueIndex::encode(&HostArray::new(&written.last, flattener.stream)?)?
                    .into_iter()
                    .for_each(|key| keys.push(key));
                written.keys = Some(keys);
            }
            let keys = written.keys.get_or_insert_default();
            let new = ValueIndex::encode(&HostArray::new(dictionary, flattener.stream)?)?;
            written.positions = if may_replace {
                replace(flattener, id, column, dictionary, keys, new)?;
                None
            } else {
                let positions = unify(flattener, id, column, dictionary, keys, new)?;
                check_order(field, positions.as_deref())?;
                positions
            };
            written.last = dictionary.clone();
        }
        let positions = written.positions.clone();
        flattener.dictionaries.written.insert(id, written);
        Ok(positions)
    }
}

/// Replaces the written values of a dictionary with `new`. Writes a delta if `new` begins with the
/// old values, and a replacement otherwise.
fn replace(
    flattener: &mut Flattener<'_>,
    id: i64,
    column: &Column,
    dictionary: &DeviceArray,
    keys: &mut ValueIndex,
    new: Vec<Vec<u8>>,
) -> Result<()> {
    let old = keys.values().len();
    if new.starts_with(keys.values()) && !(is_nested(column) && new.len() > old) {
        if new.len() > old {
            emit(flattener, id, true, column, &dictionary.slice(old, new.len() - old)?)?;
        }
    } else {
        emit(flattener, id, false, column, dictionary)?;
        *keys = ValueIndex::default();
    }
    new.into_iter().skip(keys.values().len()).for_each(|key| keys.push(key));
    Ok(())
}

/// Returns an error if the positions would change the order of an ordered dictionary.
fn check_order(field: &Field, positions: Option<&[usize]>) -> Result<()> {
    if field.dict_is_ordered() != Some(true) || positions.is_none_or(<[usize]>::is_sorted) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "column '{}': its dictionaries are ordered, but unifying them for a file would change the order: write a stream, \
         or decode it first (Table.decode_dictionary in Python, Table::decode_dictionaries in Rust)",
        field.name().escape_debug()
    )))
}

/// Writes the values of `new` that were not written yet. Returns the positions of all values, or
/// `None` if they are 0, 1, 2, ...
fn unify(
    flattener: &mut Flattener<'_>,
    id: i64,
    column: &Column,
    dictionary: &DeviceArray,
    keys: &mut ValueIndex,
    new: Vec<Vec<u8>>,
) -> Result<Option<Vec<usize>>> {
    let mut added = Vec::new();
    let mut positions = Vec::with_capacity(new.len());
    for (i, key) in new.into_iter().enumerate() {
        // A value may occur several times in the dictionary. Each occurrence keeps its position if
        // the same value was written at this position before.
        let position = if keys.values().get(i) == Some(&key) { Some(i) } else { keys.position(&key) };
        positions.push(match position {
            Some(position) => position,
            None => {
                added.push(i);
                keys.push(key);
                keys.values().len() - 1
            }
        });
    }
    if let (Some(first), Some(last)) = (added.first(), added.last()) {
        let delta = if last - first + 1 == added.len() {
            dictionary.slice(*first, added.len())?
        } else {
            let values = HostArray::new(dictionary, flattener.stream)?;
            let mut delta = Builder::new(dictionary.data_type());
            added.iter().try_for_each(|i| delta.append(&values, *i, 1))?;
            delta.finish(flattener.stream)?
        };
        emit(flattener, id, true, column, &delta)?;
    }
    let in_place = positions.iter().enumerate().all(|(i, position)| i == *position);
    Ok(if in_place { None } else { Some(positions) })
}

fn emit(
    flattener: &mut Flattener<'_>,
    id: i64,
    is_delta: bool,
    column: &Column,
    values: &DeviceArray,
) -> Result<()> {
    let mut flat = Flat { rows: values.len(), ..Flat::default() };
    flattener.add(column, values, 0, values.len(), &mut flat)?;
    flattener.before.push((id, is_delta, flat));
    Ok(())
}

/// Whether the values contain dictionaries. In this case, a delta is not allowed, because a reader
/// may use the inner dictionaries only after they have changed.
fn is_nested(column: &Column) -> bool {
    match &column.kind {
        Kind::Dictionary { .. } => true,
        Kind::Plain { children } => children.iter().any(is_nested),
    }
}
