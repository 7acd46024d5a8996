//! Predicates of read requests: comparisons of columns with literals.

use std::ffi::{CString, c_void};

use crate::abi;
use crate::error::{Error, Result};
use crate::lists::{list, read_path};
use crate::sized_struct;

/// A comparison of the values of a column with a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicate {
    /// The column, as names from the top-level column down.
    pub column: Vec<String>,
    /// The comparison, a constant `COMPARE_*`. A later release may add comparisons.
    pub comparison: u32,
    /// The literal.
    pub literal: Literal,
}

/// A value and its type, which is that of the column or, for dictionaries and run-end encoded
/// columns, of their values. The type of all strings is "u", and that of all binary values "z".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The type, a format string of the Arrow C data interface.
    pub format: String,
    /// The bytes of the value. A boolean is one byte, 0 or 1.
    pub bytes: Vec<u8>,
}

/// The greatest number of predicates, because `exact_predicates` has a bit for each of them.
pub(crate) const MAX_PREDICATES: usize = 64;

impl Predicate {
    /// Reads the predicates of a request.
    ///
    /// # Safety
    /// `raw.predicates` is null, or has `n_predicates` valid predicates.
    pub(crate) unsafe fn read_all(raw: &abi::ReadRequest) -> Result<Vec<Self>> {
        if raw.flags & abi::READ_FILTER == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the caller guarantees valid predicates.
        unsafe {
            let (all, n) = (raw.predicates, raw.n_predicates);
            sized_struct::read_list(all, n, MAX_PREDICATES, "predicates", |predicate| Self::read(&predicate))
        }
    }

    /// # Safety
    /// The predicate is valid.
    unsafe fn read(raw: &abi::Predicate) -> Result<Self> {
        // SAFETY: the caller guarantees a valid path, type and literal.
        unsafe {
            let (schema, array) = (raw.r#type.as_ref(), raw.literal.as_ref());
            let (schema, array) = schema.zip(array).ok_or_else(|| invalid("has no literal"))?;
            let column = read_path(&raw.column)?;
            Ok(Self { column, comparison: raw.comparison, literal: Literal::read(schema, array)? })
        }
    }
}

fn invalid(why: &str) -> Error {
    Error::invalid_argument(format!("a predicate of the read request {why}"))
}

/// How values of a type are stored.
enum Storage {
    Bit,
    FixedWidth(usize),
    Offsets,
}

/// The storage of the types that literals can have.
fn storage(format: &str) -> Option<Storage> {
    Some(match format {
        "b" => Storage::Bit,
        "u" | "z" => Storage::Offsets,
        "c" | "C" => Storage::FixedWidth(1),
        "s" | "S" | "e" => Storage::FixedWidth(2),
        "i" | "I" | "f" | "tdD" | "tts" | "ttm" => Storage::FixedWidth(4),
        "l" | "L" | "g" | "tdm" | "ttu" | "ttn" => Storage::FixedWidth(8),
        _ if format.starts_with("ts") || format.starts_with("tD") => Storage::FixedWidth(8),
        _ => {
            let mut parts = format.strip_prefix("d:")?.split(',');
            let bits = parts.nth(2).map_or(Some(128), |bits| bits.parse().ok())?;
            Storage::FixedWidth([32usize, 64, 128, 256].contains(&bits).then_some(bits / 8)?)
        }
    })
}

impl Literal {
    /// # Safety
    /// `schema` and `array` are valid, and the array is in host memory and has the type of the
    /// schema.
    unsafe fn read(schema: &abi::ArrowSchema, array: &abi::ArrowArray) -> Result<Self> {
        let format = if schema.format.is_null() {
            None
        } else {
            // SAFETY: the caller guarantees a NUL-terminated string.
            unsafe { std::ffi::CStr::from_ptr(schema.format) }.to_str().ok()
        };
        let format = format.ok_or_else(|| invalid("has a type without a format string"))?;
        let storage = storage(format).ok_or_else(|| {
            Error::unsupported(format!("a predicate has a literal of the unknown type '{format}'"))
        })?;
        let n_buffers = if matches!(storage, Storage::Offsets) { 3 } else { 2 };
        if array.length != 1 || array.null_count != 0 || array.offset < 0 || array.n_buffers != n_buffers {
            return Err(invalid(&format!(
                "has a literal of {} values with {} nulls and {} buffers, expected one value without nulls and \
                 {n_buffers} buffers",
                array.length, array.null_count, array.n_buffers
            )));
        }
        let offset =
            usize::try_from(array.offset).map_err(|_| invalid("has a literal with a huge offset"))?;
        // SAFETY: the caller guarantees the buffers of the type, which contain value `offset`.
        let bytes = unsafe {
            let buffers = list(array.buffers, n_buffers as usize, 3, "buffers")?;
            let at = |i: usize| buffers.get(i).copied().unwrap_or(std::ptr::null()).cast::<u8>();
            let bytes = |from: *const u8, first: usize, n: usize| match n {
                0 => Ok(Vec::new()),
                _ if from.is_null() => Err(invalid("has a literal without bytes")),
                _ => Ok(std::slice::from_raw_parts(from.add(first), n).to_vec()),
            };
            match storage {
                Storage::Bit => {
                    let byte = bytes(at(1), offset / 8, 1)?;
                    byte.iter().map(|byte| byte >> (offset % 8) & 1).collect()
                }
                Storage::FixedWidth(width) => bytes(at(1), offset * width, width)?,
                Storage::Offsets => {
                    let ends = bytes(at(1), offset * 4, 8)?;
                    let end = |i: usize| {
                        let word = ends.get(i * 4..).and_then(|rest| rest.first_chunk::<4>());
                        usize::try_from(word.map_or(-1, |word| i32::from_ne_bytes(*word))).ok()
                    };
                    let range = end(0).zip(end(1)).filter(|(begin, end)| begin <= end);
                    let (begin, end) = range.ok_or_else(|| invalid("has a literal with wrong offsets"))?;
                    bytes(at(2), begin, end - begin)?
                }
            }
        };
        Ok(Self { format: format.to_owned(), bytes })
    }
}

/// The C structs of predicates.
pub(crate) struct RawPredicates {
    raw: Vec<abi::Predicate>,
    // The structs point to each other, so their addresses must not change.
    #[allow(clippy::vec_box)]
    _parts: Vec<Box<Parts>>,
}

/// What the C struct of a predicate points to.
struct Parts {
    names: Vec<abi::Str>,
    _texts: Vec<String>,
    _format: CString,
    schema: abi::ArrowSchema,
    array: abi::ArrowArray,
    _buffers: [*const c_void; 3],
    _offsets: [i32; 2],
    _bytes: Vec<u8>,
}

impl RawPredicates {
    pub fn new(predicates: &[Predicate]) -> Result<Self> {
        let parts = predicates.iter().map(Parts::new).collect::<Result<Vec<_>>>()?;
        let raw = parts.iter().zip(predicates).map(|(parts, predicate)| abi::Predicate {
            struct_size: size_of::<abi::Predicate>(),
            column: abi::Path { names: parts.names.as_ptr(), n_names: parts.names.len() },
            comparison: predicate.comparison,
            reserved: 0,
            r#type: &raw const parts.schema,
            literal: &raw const parts.array,
        });
        Ok(Self { raw: raw.collect(), _parts: parts })
    }

    pub fn as_slice(&self) -> &[abi::Predicate] {
        &self.raw
    }
}

impl Parts {
    fn new(predicate: &Predicate) -> Result<Box<Self>> {
        let Literal { format, bytes } = &predicate.literal;
        let wrong = || Error::internal(format!("a literal of type '{format}' with {} bytes", bytes.len()));
        let has_offsets = match storage(format).ok_or_else(wrong)? {
            Storage::Bit if bytes.len() != 1 => return Err(wrong()),
            Storage::FixedWidth(width) if bytes.len() != width => return Err(wrong()),
            Storage::Bit | Storage::FixedWidth(_) => false,
            Storage::Offsets => true,
        };
        let texts = predicate.column.clone();
        let mut parts = Box::new(Self {
            names: Vec::new(),
            _texts: texts,
            _format: CString::new(format.as_str()).map_err(|_| wrong())?,
            schema: abi::ArrowSchema { release: Some(release_schema), ..Default::default() },
            array: abi::ArrowArray {
                length: 1,
                n_buffers: if has_offsets { 3 } else { 2 },
                release: Some(release_array),
                ..Default::default()
            },
            _buffers: [std::ptr::null(); 3],
            _offsets: [0, i32::try_from(bytes.len()).map_err(|_| wrong())?],
            _bytes: bytes.clone(),
        });
        parts.names = parts._texts.iter().map(|name| abi::Str::new(name)).collect();
        parts.schema.format = parts._format.as_ptr();
        parts.schema.name = c"".as_ptr();
        let data = parts._bytes.as_ptr().cast();
        let values = if has_offsets { parts._offsets.as_ptr().cast() } else { data };
        parts._buffers = [std::ptr::null(), values, data];
        parts.array.buffers = parts._buffers.as_mut_ptr();
        Ok(parts)
    }
}

/// The structs of predicates are borrowed, so their memory belongs to the caller of `open`.
unsafe extern "C" fn release_schema(schema: *mut abi::ArrowSchema) {
    // SAFETY: a release function is called with the address of its struct.
    unsafe { (*schema).release = None }
}

/// See [`release_schema`].
unsafe extern "C" fn release_array(array: *mut abi::ArrowArray) {
    // SAFETY: a release function is called with the address of its struct.
    unsafe { (*array).release = None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicate(format: &str, bytes: &[u8]) -> Predicate {
        Predicate {
            column: vec!["a".into(), "b".into()],
            comparison: abi::COMPARE_LESS,
            literal: Literal { format: format.into(), bytes: bytes.to_vec() },
        }
    }

    #[test]
    fn predicates_of_every_storage_round_trip() {
        let all = [
            predicate("b", &[1]),
            predicate("b", &[0]),
            predicate("c", &[7]),
            predicate("e", &[1, 2]),
            predicate("tsu:Europe/Paris", &[1, 2, 3, 4, 5, 6, 7, 8]),
            predicate("d:10,2", &[9; 16]),
            predicate("d:76,0,256", &[9; 32]),
            predicate("u", "text é".as_bytes()),
            predicate("z", &[]),
        ];
        let raw_predicates = RawPredicates::new(&all).unwrap();
        let raw = abi::ReadRequest {
            flags: abi::READ_FILTER,
            predicates: raw_predicates.as_slice().as_ptr(),
            n_predicates: all.len(),
            ..abi::ReadRequest::new()
        };
        // SAFETY: the structs borrow from `raw_predicates`, which is alive.
        assert_eq!(unsafe { Predicate::read_all(&raw) }.unwrap(), all);
    }

    #[test]
    fn rejects_literals_that_are_null_missing_or_of_other_types() {
        let good = RawPredicates::new(&[predicate("i", &[0; 4])]).unwrap();
        let read = |change: &dyn Fn(&mut abi::Predicate)| {
            let mut changed = *good.as_slice().first().unwrap();
            change(&mut changed);
            let raw = abi::ReadRequest {
                flags: abi::READ_FILTER,
                predicates: &raw const changed,
                n_predicates: 1,
                ..abi::ReadRequest::new()
            };
            // SAFETY: the pointers of `changed` are null or borrow from `good` or the caller.
            unsafe { Predicate::read_all(&raw) }.unwrap_err().message().to_string()
        };
        assert!(read(&|p| p.literal = std::ptr::null()).contains("no literal"));
        let two = abi::ArrowArray { length: 2, n_buffers: 2, ..Default::default() };
        assert!(read(&|p| p.literal = &raw const two).contains("one value"));
        let null = abi::ArrowArray { length: 1, null_count: 1, n_buffers: 2, ..Default::default() };
        assert!(read(&|p| p.literal = &raw const null).contains("one value"));
        let schema = abi::ArrowSchema { format: c"+s".as_ptr(), ..Default::default() };
        assert!(read(&|p| p.r#type = &raw const schema).contains("unknown type '+s'"));
        assert!(read(&|p| p.column.n_names = 0).contains("no name"));
    }
}
