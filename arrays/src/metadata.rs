//! Stores metadata that arrow-schema cannot represent, under two reserved keys of arrow-schema's
//! string maps.
//!
//! In the C interface and in IPC, keys and values are arbitrary bytes, and a key may repeat. The
//! values of a dictionary are a field that has its own metadata, such as the name of an extension
//! type. But a [`Metadata`] is a map of strings, and
//! [`DataType::Dictionary`](arrow_schema::DataType::Dictionary) has no field for its values.
//! Therefore:
//!
//! - Pairs that are not UTF-8, and later pairs of a repeated key, are listed under [`EXTRA_PAIRS`].
//! - The metadata of a dictionary's values are listed under [`DICTIONARY_VALUES`] in the metadata
//!   of the field.
//!
//! A list is written `key=value&key=value`, in which `%XX` represents each byte that is `%`, `&`,
//! `=` or not printable ASCII. If a producer uses a reserved key itself, the producer's pair is
//! stored as an extra pair. Therefore a reserved key in a map always has the meaning that is
//! described here. If the value of a reserved key is not a list in this format, the pair is an
//! ordinary pair.

use std::collections::HashSet;
use std::fmt::Write;

use arrow_schema::{DataType, Metadata};

/// The reserved key of the pairs that a map of strings cannot hold.
pub const EXTRA_PAIRS: &str = "crossdock.metadata:extra_pairs";
/// The reserved key of the metadata of a dictionary's values.
pub const DICTIONARY_VALUES: &str = "crossdock.metadata:dictionary_values";

/// A key and its value, as bytes.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Converts a producer's pairs to a map.
pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Metadata {
    let mut metadata = Metadata::new();
    let mut extra: Vec<Pair> = Vec::new();
    let mut keys_of_extra = HashSet::new();
    for (key, value) in pairs {
        match (std::str::from_utf8(key), std::str::from_utf8(value)) {
            (Ok(name), Ok(text))
                if !is_reserved(name) && !metadata.contains_key(name) && !keys_of_extra.contains(key) =>
            {
                metadata.insert(name, text);
            }
            _ => {
                keys_of_extra.insert(key);
                extra.push((key.to_vec(), value.to_vec()));
            }
        }
    }
    if !extra.is_empty() {
        metadata.insert(EXTRA_PAIRS, list(&extra));
    }
    metadata
}

/// Converts the pairs of a dictionary's field to a map. Formats such as Arrow IPC have no separate
/// place for the metadata of a dictionary's values. Therefore a list under [`DICTIONARY_VALUES`] is
/// read as the metadata of the values, and not as an ordinary pair of the producer.
pub fn from_dictionary_pairs<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Metadata {
    let mut values = None;
    let of_field = pairs.into_iter().filter(|(key, value)| {
        let text = std::str::from_utf8(value).ok().filter(|_| *key == DICTIONARY_VALUES.as_bytes());
        let list = text.filter(|text| values.is_none() && parse(text).is_some());
        values = values.or(list);
        list.is_none()
    });
    let mut metadata = from_pairs(of_field);
    if let Some(values) = values {
        metadata.insert(DICTIONARY_VALUES, values);
    }
    metadata
}

/// Converts a schema's metadata to the pairs of the producer. Pairs with the same key keep their
/// order.
pub fn pairs(metadata: &Metadata) -> Vec<Pair> {
    pairs_without_lists(metadata, &[EXTRA_PAIRS])
}

/// Converts a field's own metadata to pairs, without the metadata of a dictionary's values.
pub fn field_pairs(data_type: &DataType, metadata: &Metadata) -> Vec<Pair> {
    match data_type {
        DataType::Dictionary(..) => pairs_without_lists(metadata, &[EXTRA_PAIRS, DICTIONARY_VALUES]),
        _ => pairs(metadata),
    }
}

/// Returns the metadata of a dictionary's values. This map may contain reserved keys itself.
pub fn of_dictionary_values(metadata: &Metadata) -> Metadata {
    let listed = metadata.get(DICTIONARY_VALUES).and_then(|text| parse(text)).unwrap_or_default();
    let text = |bytes| String::from_utf8(bytes).ok();
    listed.into_iter().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect()
}

/// Adds the metadata of a dictionary's values to the metadata of its field.
pub fn with_dictionary_values(mut metadata: Metadata, values: &Metadata) -> Metadata {
    if !values.is_empty() {
        let pairs = values.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone().into_bytes()));
        metadata.insert(DICTIONARY_VALUES, list(&pairs.collect::<Vec<_>>()));
    }
    metadata
}

fn is_reserved(key: &str) -> bool {
    [EXTRA_PAIRS, DICTIONARY_VALUES].contains(&key)
}

/// Returns the producer's pairs. Omits the lists under the keys in `lists`, and adds the pairs of
/// the list [`EXTRA_PAIRS`].
fn pairs_without_lists(metadata: &Metadata, lists: &[&str]) -> Vec<Pair> {
    let mut pairs = Vec::with_capacity(metadata.len());
    let mut extra = Vec::new();
    for (key, value) in metadata.iter() {
        let listed = if lists.contains(&key.as_str()) { parse(value) } else { None };
        match listed {
            Some(listed) if key == EXTRA_PAIRS => extra = listed,
            Some(_) => {}
            None => pairs.push((key.clone().into_bytes(), value.clone().into_bytes())),
        }
    }
    pairs.extend(extra);
    pairs
}

fn list(pairs: &[Pair]) -> String {
    let mut out = String::new();
    for (i, (key, value)) in pairs.iter().enumerate() {
        out += if i > 0 { "&" } else { "" };
        escape(key, &mut out);
        out.push('=');
        escape(value, &mut out);
    }
    out
}

fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) && !b"%&=".contains(&byte)
}

fn escape(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        if is_plain(*byte) {
            out.push(char::from(*byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Parses a list; `None` if the text is not a list that [`list`] writes.
fn parse(text: &str) -> Option<Vec<Pair>> {
    text.split('&')
        .map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((unescape(key)?, unescape(value)?))
        })
        .collect()
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let byte = digit(*high)? << 4 | digit(*low)?;
                if is_plain(byte) {
                    return None;
                }
                out.push(byte);
                after
            }
            _ if is_plain(*first) => {
                out.push(*first);
                after
            }
            _ => return None,
        };
    }
    Some(out)
}

fn digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'A'..=b'F' => Some(c - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(input: &[(&[u8], &[u8])]) -> Vec<Pair> {
        pairs(&from_pairs(input.iter().copied()))
    }

    fn owned(pairs: &[(&[u8], &[u8])]) -> Vec<Pair> {
        pairs.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn round_trip_keeps_repeated_reserved_and_non_utf8_metadata_pairs() {
        let reserved = EXTRA_PAIRS.as_bytes();
        for input in [
            [(b"a".as_slice(), b"1".as_slice()), (b"k", b"\xff")],
            [(b"\xfe", b"x"), (b"\xfe", b"x")],
            [(b"a", b"1"), (b"a", b"1")],
            [(b"a", b"\xff"), (b"a", b"1")],
            [(b"", b"=&%"), (b"", b"")],
            [(reserved, b"a=b"), (DICTIONARY_VALUES.as_bytes(), b"x=y")],
            [(reserved, b"%"), (reserved, "ö\0".as_bytes())],
        ] {
            assert_eq!(round_trip(&input), owned(&input));
        }
    }

    #[test]
    fn keeps_ordinary_map_unchanged() {
        let metadata = from_pairs([(b"b".as_slice(), b"2".as_slice()), (b"a", "ä".as_bytes())]);
        assert_eq!(metadata, Metadata::new().with("a", "ä").with("b", "2"));
    }

    #[test]
    fn malformed_list_is_ordinary_pair() {
        for value in ["", "x", "a=%ff", "a=%4", "a=%41", "a=b=c", "a=ä"] {
            for key in [EXTRA_PAIRS, DICTIONARY_VALUES] {
                let metadata = Metadata::new().with(key, value);
                let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
                let ordinary = owned(&[(key.as_bytes(), value.as_bytes())]);
                assert_eq!(field_pairs(&dictionary, &metadata), ordinary, "{key} {value}");
                assert!(of_dictionary_values(&metadata).is_empty());
            }
        }
    }

    #[test]
    fn nested_dictionary_values_keep_metadata() {
        let inner = from_pairs([(b"x".as_slice(), b"\xff".as_slice())]);
        let middle = with_dictionary_values(Metadata::new().with("m", "=&"), &inner);
        let outer = with_dictionary_values(Metadata::new().with("o", "%"), &middle);
        assert_eq!(of_dictionary_values(&outer), middle);
        assert_eq!(of_dictionary_values(&middle), inner);
        assert_eq!(pairs(&inner), owned(&[(b"x", b"\xff")]));
    }
}
