//! Metadata that arrow-schema has no place for, kept under two reserved keys of its maps of strings.
//!
//! The C interface and IPC hold any bytes as keys and values, may repeat a key, and give the values of a dictionary a field
//! with metadata of its own, such as an extension type's name. A [`Metadata`] is a map of strings, and
//! [`DataType::Dictionary`](arrow_schema::DataType::Dictionary) has no field for its values. So
//!
//! - pairs that are not UTF-8, and those after the first of one key, are listed under [`EXTRA_PAIRS`];
//! - the metadata of a dictionary's values are listed under [`DICTIONARY_VALUES`] in those of the field.
//!
//! A list is written `key=value&key=value`, where `%XX` stands for each byte that is not printable ASCII and for `%`, `&` and
//! `=`. A producer's own pair under a reserved key is an extra pair, so that both keys always have this meaning in a map. A map
//! whose value under such a key is no list has an ordinary pair there.

use std::collections::HashSet;
use std::fmt::Write;

use arrow_schema::{DataType, Metadata};

/// The key of pairs that a map of strings cannot hold.
pub const EXTRA_PAIRS: &str = "crossdock.metadata:extra_pairs";
/// The key of the metadata of a dictionary's values.
pub const DICTIONARY_VALUES: &str = "crossdock.metadata:dictionary_values";

/// A key and its value, as bytes.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The map of a producer's pairs.
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

/// The map of the pairs of a dictionary's field where those of its values have no other place, as in Arrow IPC: a list under
/// [`DICTIONARY_VALUES`] is what it says.
pub fn from_dictionary_pairs<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Metadata {
    let mut values = None;
    let own = pairs.into_iter().filter(|(key, value)| {
        let text = std::str::from_utf8(value).ok().filter(|_| *key == DICTIONARY_VALUES.as_bytes());
        let list = text.filter(|text| values.is_none() && parse(text).is_some());
        values = values.or(list);
        list.is_none()
    });
    let mut metadata = from_pairs(own);
    if let Some(values) = values {
        metadata.insert(DICTIONARY_VALUES, values);
    }
    metadata
}

/// The pairs of a schema's metadata as a producer gave them; of one key in their order.
pub fn pairs(metadata: &Metadata) -> Vec<Pair> {
    pairs_but(metadata, &[EXTRA_PAIRS])
}

/// The pairs of a field's own metadata; those of a dictionary's values are not among them.
pub fn field_pairs(data_type: &DataType, metadata: &Metadata) -> Vec<Pair> {
    match data_type {
        DataType::Dictionary(..) => pairs_but(metadata, &[EXTRA_PAIRS, DICTIONARY_VALUES]),
        _ => pairs(metadata),
    }
}

/// The metadata of the values of a dictionary, in a map that may itself have reserved keys.
pub fn of_dictionary_values(metadata: &Metadata) -> Metadata {
    let listed = metadata.get(DICTIONARY_VALUES).and_then(|text| parse(text)).unwrap_or_default();
    let text = |bytes| String::from_utf8(bytes).ok();
    listed.into_iter().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect()
}

/// A dictionary field's metadata with those of its values.
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

/// All pairs; those under `lists` are replaced by what they list, but for a dictionary's values, which are left out.
fn pairs_but(metadata: &Metadata, lists: &[&str]) -> Vec<Pair> {
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

/// `None` for what [`list`] does not write.
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

    fn kept(given: &[(&[u8], &[u8])]) -> Vec<Pair> {
        pairs(&from_pairs(given.iter().copied()))
    }

    fn owned(pairs: &[(&[u8], &[u8])]) -> Vec<Pair> {
        pairs.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn keeps_pairs_that_a_map_of_strings_cannot_hold() {
        let reserved = EXTRA_PAIRS.as_bytes();
        for given in [
            [(b"a".as_slice(), b"1".as_slice()), (b"k", b"\xff")],
            [(b"\xfe", b"x"), (b"\xfe", b"x")],
            [(b"a", b"1"), (b"a", b"1")],
            [(b"a", b"\xff"), (b"a", b"1")],
            [(b"", b"=&%"), (b"", b"")],
            [(reserved, b"a=b"), (DICTIONARY_VALUES.as_bytes(), b"x=y")],
            [(reserved, b"%"), (reserved, "ö\0".as_bytes())],
        ] {
            assert_eq!(kept(&given), owned(&given));
        }
    }

    #[test]
    fn keeps_an_ordinary_map_as_it_is() {
        let metadata = from_pairs([(b"b".as_slice(), b"2".as_slice()), (b"a", "ä".as_bytes())]);
        assert_eq!(metadata, Metadata::new().with("a", "ä").with("b", "2"));
    }

    #[test]
    fn a_value_that_is_no_list_is_an_ordinary_pair() {
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
    fn the_values_of_dictionaries_of_dictionaries_keep_their_metadata() {
        let inner = from_pairs([(b"x".as_slice(), b"\xff".as_slice())]);
        let middle = with_dictionary_values(Metadata::new().with("m", "=&"), &inner);
        let outer = with_dictionary_values(Metadata::new().with("o", "%"), &middle);
        assert_eq!(of_dictionary_values(&outer), middle);
        assert_eq!(of_dictionary_values(&middle), inner);
        assert_eq!(pairs(&inner), owned(&[(b"x", b"\xff")]));
    }
}
