//! Reads and writes the header of safetensors files.
//!
//! A file has the length of the header (8 bytes, little-endian), the header in JSON, and the bytes
//! of all tensors. The header lists the type, the shape and the range of bytes of each tensor. The
//! ranges cover the bytes after the header without gaps.

use std::collections::BTreeMap;
use std::fmt;

use arrow_schema::Metadata;
use crossdock_memory::{Error, Result, StoredSource};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::element::Element;
use crate::shape::{MAX_DIMS, Shape};
use crate::tensor::{Data, File, Tensor};

/// The bytes of the header's length.
const LENGTH_BYTES: u64 = 8;
/// The maximum length of a header. It is the limit of the reference implementation.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The maximum number of tensors, which bounds the memory that a header can request.
const MAX_TENSORS: usize = 1 << 16;
/// The key of the file's metadata.
const METADATA: &str = "__metadata__";
/// The data of a written file begins at a multiple of this number of bytes.
const ALIGNMENT: usize = 64;

/// Bytes that identify the format, from byte 4 on: the upper half of the header's length, and the
/// beginning of the header.
pub const MAGICS: [(i64, &[u8]); 2] = [(4, b"\0\0\0\0{\""), (4, b"\0\0\0\0{}")];

/// Reads the header of a file. The columns have the order of the header.
pub fn read(file: &StoredSource) -> Result<File> {
    let len = file.len();
    if len < LENGTH_BYTES {
        return Err(Error::bad_data(format!(
            "the file has {len} bytes, expected at least {LENGTH_BYTES}: it is not a safetensors file, or it is \
             truncated"
        )));
    }
    let mut header_bytes = [0; LENGTH_BYTES as usize];
    file.read_unmapped(0, &mut header_bytes)?;
    let header_bytes = u64::from_le_bytes(header_bytes);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(Error::bad_data(format!(
            "the header has {header_bytes} bytes, expected at most {MAX_HEADER_BYTES}: it is not a safetensors file"
        )));
    }
    let header = file.with(LENGTH_BYTES, header_bytes as usize, |json| {
        serde_json::from_slice::<Header>(json).map_err(|error| {
            Error::bad_data(format!("the header is malformed: {error}")).or_offset(LENGTH_BYTES)
        })
    })?;
    header.into_file(LENGTH_BYTES + header_bytes, len)
}

impl Header {
    /// `begin` is the offset of the data in a file of `len` bytes.
    fn into_file(self, begin: u64, len: u64) -> Result<File> {
        check_ranges(&self.tensors, len - begin)?;
        let tensors = self.tensors.into_iter().map(|(name, info)| {
            let in_tensor = |error: Error| error.context(format_args!("tensor '{name}'"));
            let (first, end) = info.data_offsets;
            let element = match Element::from_safetensors(&info.dtype) {
                Ok(element) => element,
                Err(why) => return Ok(Tensor { name, column: Err(why) }),
            };
            let shape = Shape::new(info.shape.0, element.width()).map_err(in_tensor)?;
            if shape.bytes() != end - first {
                return Err(in_tensor(Error::bad_data(format!(
                    "{} of shape {:?} has {} bytes, but its range of bytes is {first}..{end}",
                    info.dtype,
                    shape.dims(),
                    shape.bytes()
                ))));
            }
            let data = Data::Plain { offset: begin + first, member: None };
            Ok(Tensor::new(&name, element, shape, false, data))
        });
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        File::new(tensors, Metadata::from(self.metadata.unwrap_or_default()))
    }
}

/// Checks that the ranges of bytes do not overlap, and that they cover all `data_bytes` bytes.
fn check_ranges(tensors: &[(String, Info)], data_bytes: u64) -> Result<()> {
    let mut ranges: Vec<_> = tensors.iter().map(|(name, info)| (info.data_offsets, name)).collect();
    ranges.sort();
    let (mut at, mut before) = (0, None);
    for ((first, end), name) in ranges {
        let bad = |what: String| {
            Err(Error::bad_data(format!("tensor '{name}': its range of bytes is {first}..{end}, {what}")))
        };
        if end < first || end > data_bytes {
            return bad(format!("expected a range within the {data_bytes} bytes of data"));
        }
        match before {
            Some(before) if first < at => return bad(format!("but tensor '{before}' ends at byte {at}")),
            _ if first != at => return bad(format!("but no tensor has the bytes {at}..{first}")),
            _ => (at, before) = (end, Some(name)),
        }
    }
    if at == data_bytes {
        return Ok(());
    }
    Err(Error::bad_data(format!("the file has {data_bytes} bytes of data, but the tensors end at byte {at}")))
}

/// The header as JSON.
struct Header {
    /// The tensors, in the order of the header.
    tensors: Vec<(String, Info)>,
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Info {
    dtype: String,
    shape: Dims,
    data_offsets: (u64, u64),
}

/// At most [`MAX_DIMS`] dimensions.
struct Dims(Vec<u64>);

/// Pairs of texts with different keys.
struct Pairs(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with the tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
                let mut header = Header { tensors: Vec::new(), metadata: None };
                while let Some(key) = map.next_key::<String>()? {
                    if key == METADATA {
                        if header.metadata.replace(map.next_value::<Pairs>()?.0).is_some() {
                            return Err(A::Error::custom(format_args!("two values of {METADATA}")));
                        }
                    } else if header.tensors.len() < MAX_TENSORS {
                        header.tensors.push((key, map.next_value()?));
                    } else {
                        return Err(A::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct DimsVisitor;
        impl<'de> Visitor<'de> for DimsVisitor {
            type Value = Dims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX_DIMS} sizes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sizes: A) -> std::result::Result<Dims, A::Error> {
                let mut dims = Vec::new();
                while let Some(size) = sizes.next_element::<u64>()? {
                    if dims.len() == MAX_DIMS {
                        return Err(A::Error::custom(format_args!(
                            "a shape of more than {MAX_DIMS} dimensions"
                        )));
                    }
                    dims.push(size);
                }
                Ok(Dims(dims))
            }
        }
        deserializer.deserialize_seq(DimsVisitor)
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Pairs, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if let Some(_twice) = pairs.insert(key, value) {
                        return Err(A::Error::custom(format_args!("two values of a key of {METADATA}")));
                    }
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

/// A tensor to write: its name, its type in safetensors, and its shape.
pub struct Outgoing<'a> {
    pub name: &'a str,
    pub dtype: &'static str,
    pub shape: Shape,
}

/// Checks the name of a column.
///
/// # Errors
/// Unsupported if the name is that of the metadata.
pub fn check_name(name: &str) -> Result<()> {
    if name != METADATA {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "column '{METADATA}': safetensors uses this name for metadata; rename it"
    )))
}

/// Returns the bytes before the data, and the order in which the data of the tensors follows. The
/// header has the order of `tensors`. The data is ordered by the width of the elements, so that all
/// elements are aligned.
pub fn header(tensors: &[Outgoing<'_>], metadata: &Metadata) -> Result<(Vec<u8>, Vec<usize>)> {
    let width = |i: &usize| {
        let element = tensors.get(*i).and_then(|tensor| Element::from_safetensors(tensor.dtype).ok());
        std::cmp::Reverse(element.map_or(1, |element| element.width()))
    };
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(width);
    let mut begins = vec![0u64; tensors.len()];
    let mut at = 0u64;
    for i in &order {
        if let (Some(begin), Some(tensor)) = (begins.get_mut(*i), tensors.get(*i)) {
            *begin = at;
            at = at
                .checked_add(tensor.shape.bytes())
                .ok_or_else(|| Error::unsupported("the size of all tensors together overflows 64 bits"))?;
        }
    }
    let json = |value: &dyn fmt::Debug, text: serde_json::Result<String>| {
        text.map_err(|error| Error::internal(format!("{value:?} as JSON: {error}")))
    };
    let text = |text: &str| json(&text, serde_json::to_string(text));
    let mut items = Vec::with_capacity(tensors.len() + 1);
    if !metadata.is_empty() {
        let pairs: BTreeMap<&str, &str> =
            metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        items.push(format!("\"{METADATA}\":{}", json(&METADATA, serde_json::to_string(&pairs))?));
    }
    for (tensor, begin) in tensors.iter().zip(&begins) {
        let shape = json(&tensor.name, serde_json::to_string(tensor.shape.dims()))?;
        items.push(format!(
            "{}:{{\"dtype\":\"{}\",\"shape\":{shape},\"data_offsets\":[{begin},{}]}}",
            text(tensor.name)?,
            tensor.dtype,
            begin + tensor.shape.bytes()
        ));
    }
    let mut header = format!("{{{}}}", items.join(","));
    let unpadded = LENGTH_BYTES as usize + header.len();
    header.push_str(&" ".repeat(unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    if header.len() as u64 > MAX_HEADER_BYTES || tensors.len() > MAX_TENSORS {
        return Err(Error::unsupported(format!(
            "{} tensors with a header of {} bytes, expected at most {MAX_TENSORS} tensors and {MAX_HEADER_BYTES} bytes",
            tensors.len(),
            header.len()
        )));
    }
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    Ok((bytes, order))
}
