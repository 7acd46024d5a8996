//! What has been written of each dictionary, and what must be written before a batch can use another.
//!
//! A stream may replace a dictionary, so one that is not the old one with more values is replaced. A file may only add
//! to it: its dictionaries are unified, new values added as deltas and keys remapped.

use std::collections::HashMap;

use arrow_schema::Field;
use crossdock_arrays::DeviceArray;
use crossdock_arrays::by_value::{Builder, HostArray, Keys, same_buffers};
use crossdock_memory::{Error, Result};

use super::flatten::Flattener;
use super::message::Flat;
use crate::wire::schema::{Column, Kind};

/// The dictionaries of one stream or file.
pub struct Dictionaries {
    written: HashMap<i64, Written>,
    may_replace: bool,
}

/// Which dictionary it is.
pub struct Dictionary<'a> {
    /// By which messages know it.
    pub id: i64,
    /// Of the keys.
    pub field: &'a Field,
    /// Of the values.
    pub values: &'a Column,
}

struct Written {
    /// The array that was compared last. It is held so that its addresses stay its own.
    last: DeviceArray,
    /// Where the values of `last` stand among those written, if not each at its own place.
    places: Option<Vec<usize>>,
    /// All values that were written, when they had to be looked at.
    keys: Option<Keys>,
}

impl Dictionaries {
    /// None yet; a stream `may_replace` them.
    pub fn new(may_replace: bool) -> Self {
        Self { written: HashMap::new(), may_replace }
    }

    /// Sees to it that `dictionary` is there under `id`. `Some` tells where each of its values stands, if not at its
    /// own place.
    pub fn write(
        flattener: &mut Flattener<'_>,
        &Dictionary { id, field, values: column }: &Dictionary<'_>,
        dictionary: &DeviceArray,
    ) -> Result<Option<Vec<usize>>> {
        let may_replace = flattener.dictionaries.may_replace;
        // Taken out, for the values may have dictionaries of their own.
        let Some(mut written) = flattener.dictionaries.written.remove(&id) else {
            emit(flattener, id, false, column, dictionary)?;
            let written = Written { last: dictionary.clone(), places: None, keys: None };
            flattener.dictionaries.written.insert(id, written);
            return Ok(None);
        };
        if !same_buffers(&written.last, dictionary) {
            if written.keys.is_none() {
                let mut keys = Keys::default();
                Keys::of(&HostArray::new(&written.last, flattener.stream)?)?
                    .into_iter()
                    .for_each(|key| keys.push(key));
                written.keys = Some(keys);
            }
            let keys = written.keys.get_or_insert_default();
            let new = Keys::of(&HostArray::new(dictionary, flattener.stream)?)?;
            written.places = if may_replace {
                replace(flattener, id, column, dictionary, keys, new)?;
                None
            } else {
                let places = unify(flattener, id, column, dictionary, keys, new)?;
                check_order(field, places.as_deref())?;
                places
            };
            written.last = dictionary.clone();
        }
        let places = written.places.clone();
        flattener.dictionaries.written.insert(id, written);
        Ok(places)
    }
}

/// Makes `new` what readers have: nothing if they have it, a delta if it begins with what they have, else whole.
fn replace(
    flattener: &mut Flattener<'_>,
    id: i64,
    column: &Column,
    dictionary: &DeviceArray,
    keys: &mut Keys,
    new: Vec<Vec<u8>>,
) -> Result<()> {
    let old = keys.all().len();
    if new.starts_with(keys.all()) && !(is_nested(column) && new.len() > old) {
        if new.len() > old {
            emit(flattener, id, true, column, &dictionary.slice(old, new.len() - old)?)?;
        }
    } else {
        emit(flattener, id, false, column, dictionary)?;
        *keys = Keys::default();
    }
    new.into_iter().skip(keys.all().len()).for_each(|key| keys.push(key));
    Ok(())
}

/// Refuses to put the values of an ordered dictionary in another order: what is greater than what would change.
fn check_order(field: &Field, places: Option<&[usize]>) -> Result<()> {
    if field.dict_is_ordered() != Some(true) || places.is_none_or(<[usize]>::is_sorted) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "column '{}': its dictionaries are ordered, and in a file, which has one of them, their values would be in another order: \
         write a stream, or decode it first (Table.decode_dictionary in Python, Table::decode_dictionaries in Rust)",
        field.name().escape_debug()
    )))
}

/// Adds the values of `new` that readers do not have, and tells where each value stands.
fn unify(
    flattener: &mut Flattener<'_>,
    id: i64,
    column: &Column,
    dictionary: &DeviceArray,
    keys: &mut Keys,
    new: Vec<Vec<u8>>,
) -> Result<Option<Vec<usize>>> {
    let mut added = Vec::new();
    let mut places = Vec::with_capacity(new.len());
    for (i, key) in new.into_iter().enumerate() {
        // A value that comes twice keeps both places, as long as they are the same as before.
        let place = if keys.all().get(i) == Some(&key) { Some(i) } else { keys.find(&key) };
        places.push(match place {
            Some(place) => place,
            None => {
                added.push(i);
                keys.push(key);
                keys.all().len() - 1
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
    let in_place = places.iter().enumerate().all(|(i, place)| i == *place);
    Ok(if in_place { None } else { Some(places) })
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

/// Whether its values have dictionaries of their own: then they change together, for a reader may resolve the inner
/// ones late.
fn is_nested(column: &Column) -> bool {
    match &column.kind {
        Kind::Dictionary { .. } => true,
        Kind::Plain { children } => children.iter().any(is_nested),
    }
}
