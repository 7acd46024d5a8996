//! Descriptions of formats.

use crate::abi;
use crate::door::put;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::plugin::Instance;
use crate::sized_struct;

/// A format that a plugin reads or writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// The name, such as "arrow-ipc-file".
    pub name: String,
    /// A description of one line for users: what the format can store, and what it cannot.
    pub description: String,
    /// Whether the format is read from a source or written to a sink.
    pub bytes: bool,
    /// Whether the importer uses the predicates of requests.
    pub filters: bool,
    /// The names of the capsules that the plugin reads or writes.
    pub capsules: Vec<String>,
    /// Sequences of bytes that identify the format, each with its offset from the start of the
    /// data. Data that contains at least one sequence at its offset is recognised.
    pub magics: Vec<(u64, Vec<u8>)>,
    /// The file extensions, such as ".arrow". The entry "-" means standard output.
    pub extensions: Vec<String>,
    /// The types of the devices whose batches the plugin reads or writes, as Arrow's numbers. If
    /// the list is empty, all types are accepted.
    pub device_types: Vec<i32>,
    /// Whether the writers accept batches whose number of rows is on the device
    /// (`crossdock_batch.n_rows_device`). If not, the host reads this number.
    pub device_rows: bool,
    /// The options that the format accepts.
    pub options: Vec<OptionInfo>,
}

/// An option of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// The name of the option.
    pub key: String,
    /// A description of one line for users: the possible values and the default value.
    pub description: String,
}

impl Format {
    /// Creates a format that has only a name and a description.
    pub fn new(name: &str, description: &str) -> Self {
        Self { name: name.into(), description: description.into(), ..Self::default() }
    }

    /// Adds an option.
    pub fn with_option(mut self, key: &str, description: &str) -> Self {
        self.options.push(OptionInfo { key: key.into(), description: description.into() });
        self
    }

    /// Finds the format with this name among `formats`, and returns its name.
    ///
    /// # Errors
    /// Returns an error if there is no such format, or if it does not accept one of the options.
    pub(crate) fn find<'a>(formats: &'a [Self], name: &str, options: &Options) -> Result<&'a str> {
        let Some(format) = formats.iter().find(|format| format.name == name) else {
            let known: Vec<_> = formats.iter().map(|format| format.name.as_str()).collect();
            return Err(Error::invalid_argument(format!(
                "unknown format '{name}', expected {}",
                known.join(" or ")
            )));
        };
        if !options.iter().all(|(key, _)| format.has_option(key)) {
            let known: Vec<_> = format.options.iter().map(|option| option.key.as_str()).collect();
            options.only(&format.name, &known)?;
        }
        Ok(&format.name)
    }

    /// Whether the format accepts this option.
    pub fn has_option(&self, key: &str) -> bool {
        self.options.iter().any(|option| option.key == key)
    }

    /// Returns the options in `options` that the format accepts.
    pub fn pick(&self, options: &Options) -> Options {
        let known = options.iter().filter(|(key, _)| self.has_option(key));
        known.fold(Options::new(), |picked, (key, value)| picked.with(key, value))
    }

    /// Whether data that begins with `head` is recognised as this format.
    pub fn matches(&self, head: &[u8]) -> bool {
        self.magics.iter().any(|(offset, magic)| {
            usize::try_from(*offset)
                .ok()
                .and_then(|o| head.get(o..))
                .is_some_and(|rest| rest.starts_with(magic))
        })
    }

    /// Whether batches on devices of this type are read or written.
    pub fn accepts_device(&self, device_type: i32) -> bool {
        self.device_types.is_empty() || self.device_types.contains(&device_type)
    }

    /// # Safety
    /// `raw` is a valid `crossdock_format`, and its lists and strings are valid too.
    unsafe fn read(raw: &abi::Format) -> Result<Self> {
        // SAFETY: the caller guarantees that each list has its declared length and that all strings
        // are valid.
        unsafe {
            let texts = |list: *const abi::Str, n: usize, what: &str| -> Result<Vec<String>> {
                slice(list, n, what)?.iter().map(|s| Ok(s.get()?.to_string())).collect()
            };
            Ok(Self {
                name: raw.name.get()?.to_string(),
                description: raw.description.get()?.to_string(),
                bytes: raw.flags & abi::FORMAT_BYTES != 0,
                filters: raw.flags & abi::FORMAT_FILTERS != 0,
                capsules: texts(raw.capsules, raw.n_capsules, "capsule names")?,
                magics: slice(raw.magics, raw.n_magics, "magics")?
                    .iter()
                    .map(|m| Ok((m.offset, slice(m.data.cast::<u8>(), m.bytes, "magic bytes")?.to_vec())))
                    .collect::<Result<_>>()?,
                extensions: texts(raw.extensions, raw.n_extensions, "extensions")?,
                device_types: slice(raw.device_types, raw.n_device_types, "device types")?.to_vec(),
                device_rows: raw.flags & abi::FORMAT_DEVICE_ROWS != 0,
                options: read_options(raw)?,
            })
        }
    }

    /// Calls the function `formats` of an importer or exporter, and copies the list.
    ///
    /// # Safety
    /// `formats` is a function of `instance`. The lists that it returns are valid and live as long
    /// as the instance.
    pub(crate) unsafe fn read_all(instance: &Instance, formats: Option<ListFormats>) -> Result<Vec<Self>> {
        let formats = formats
            .ok_or_else(|| Error::internal("the plugin has an interface without the function 'formats'"))?;
        let (mut list, mut n) = (std::ptr::null(), 0);
        // SAFETY: the function belongs to the instance, and the out parameters are valid for
        // writes.
        Error::check(|err| unsafe { formats(instance.raw(), &mut list, &mut n, err) })?;
        // SAFETY: the caller guarantees that the list has `n` valid formats.
        unsafe { sized_struct::read_list(list, n, MAX_LIST_LEN, "formats", |format| Self::read(&format)) }
    }
}

/// # Safety
/// `format` is valid, and so is the list of its options.
unsafe fn read_options(format: &abi::Format) -> Result<Vec<OptionInfo>> {
    // SAFETY: the caller guarantees that the list has `n_options` options with valid strings.
    unsafe {
        sized_struct::read_list(format.options, format.n_options, MAX_LIST_LEN, "options", |option| {
            Ok(OptionInfo {
                key: option.key.get()?.to_string(),
                description: option.description.get()?.to_string(),
            })
        })
    }
}

/// The type of `crossdock_importer.formats` and `crossdock_exporter.formats`.
pub(crate) type ListFormats = unsafe extern "C" fn(
    *mut abi::Instance,
    *mut *const abi::Format,
    *mut usize,
    *mut abi::Error,
) -> abi::Code;

/// The maximum length of a list. A longer list is considered implausible and is rejected.
const MAX_LIST_LEN: usize = 4096;

/// # Safety
/// `list` points to `n` values that live for `'a`, or `n` is 0.
unsafe fn slice<'a, T>(list: *const T, n: usize, what: &str) -> Result<&'a [T]> {
    match n {
        0 => Ok(&[]),
        _ if list.is_null() || n > MAX_LIST_LEN => {
            Err(Error::invalid_argument(format!("a format's list of {n} {what} is not plausible")))
        }
        // SAFETY: `list` is not null, and the caller guarantees that it has `n` values that live
        // for `'a`.
        _ => Ok(unsafe { std::slice::from_raw_parts(list, n) }),
    }
}

/// Formats as C structs, together with the data that the structs point to.
pub(crate) struct FormatTable {
    raw: Vec<abi::Format>,
    _lists: Vec<Lists>,
}

struct Lists {
    _format: Format,
    _magics: Vec<abi::Magic>,
    _extensions: Vec<abi::Str>,
    _capsules: Vec<abi::Str>,
    _options: Vec<abi::OptionInfo>,
}

// SAFETY: the table never changes, and its pointers refer to heap blocks that it owns.
unsafe impl Send for FormatTable {}
// SAFETY: the table never changes, and its pointers refer to heap blocks that it owns.
unsafe impl Sync for FormatTable {}

impl FormatTable {
    pub(crate) fn new(formats: &[Format]) -> Self {
        let mut table = Self { raw: Vec::new(), _lists: Vec::new() };
        for format in formats {
            // The pointers in the C struct refer to the heap blocks of this clone. `_lists` takes
            // ownership of the clone, so the blocks live as long as the table.
            let format = format.clone();
            let magics: Vec<_> = format
                .magics
                .iter()
                .map(|(offset, m)| abi::Magic { offset: *offset, data: m.as_ptr().cast(), bytes: m.len() })
                .collect();
            let strs = |list: &[String]| list.iter().map(|s| abi::Str::new(s)).collect::<Vec<_>>();
            let (extensions, capsules) = (strs(&format.extensions), strs(&format.capsules));
            let options: Vec<_> = format
                .options
                .iter()
                .map(|option| abi::OptionInfo {
                    struct_size: size_of::<abi::OptionInfo>(),
                    key: abi::Str::new(&option.key),
                    description: abi::Str::new(&option.description),
                })
                .collect();
            let mut flags = 0;
            flags |= if format.bytes { abi::FORMAT_BYTES } else { 0 };
            flags |= if format.filters { abi::FORMAT_FILTERS } else { 0 };
            flags |= if format.capsules.is_empty() { 0 } else { abi::FORMAT_CAPSULES };
            flags |= if format.device_rows { abi::FORMAT_DEVICE_ROWS } else { 0 };
            table.raw.push(abi::Format {
                struct_size: size_of::<abi::Format>(),
                name: abi::Str::new(&format.name),
                description: abi::Str::new(&format.description),
                flags,
                reserved: 0,
                magics: magics.as_ptr(),
                n_magics: magics.len(),
                extensions: extensions.as_ptr(),
                n_extensions: extensions.len(),
                capsules: capsules.as_ptr(),
                n_capsules: capsules.len(),
                device_types: format.device_types.as_ptr(),
                n_device_types: format.device_types.len(),
                options: options.as_ptr(),
                n_options: options.len(),
            });
            table._lists.push(Lists {
                _format: format,
                _magics: magics,
                _extensions: extensions,
                _capsules: capsules,
                _options: options,
            });
        }
        table
    }

    /// Writes the address and length of the list to the out parameters of `formats`. The list
    /// borrows from `self`.
    ///
    /// # Safety
    /// Each pointer is null or valid for writes.
    pub(crate) unsafe fn put(&self, out: *mut *const abi::Format, n_out: *mut usize) -> Result<()> {
        // SAFETY: the caller guarantees that each pointer is null or valid for writes.
        unsafe {
            put(out, "formats", || self.raw.as_ptr())?;
            put(n_out, "formats", || self.raw.len())
        }
    }
}
