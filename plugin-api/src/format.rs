//! What a plugin reads and writes, as it says so.

use crate::abi;
use crate::door::put;
use crate::error::{Error, Result};
use crate::plugin::Instance;
use crate::told;
use crate::words::Options;

/// A format's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// "arrow-ipc-file"
    pub name: String,
    /// One line for people: what it holds and what it cannot.
    pub description: String,
    /// Speaks through a source or a sink.
    pub bytes: bool,
    /// Names of the capsules that it takes or gives.
    pub capsules: Vec<String>,
    /// Bytes by which it is known: any of them, each at an offset from the start.
    pub magics: Vec<(u64, Vec<u8>)>,
    /// ".arrow"; "-" claims standard output.
    pub endings: Vec<String>,
    /// Device types (Arrow's numbers) that it takes or gives; empty: any.
    pub device_types: Vec<i32>,
    /// The options that it understands.
    pub options: Vec<OptionInfo>,
}

/// An option of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// What to call it.
    pub key: String,
    /// One line for people: the values, the default.
    pub description: String,
}

impl Format {
    /// A format with nothing but a name and a description.
    pub fn new(name: &str, description: &str) -> Self {
        Self { name: name.into(), description: description.into(), ..Self::default() }
    }

    /// The same with an option that it understands.
    pub fn with_option(mut self, key: &str, description: &str) -> Self {
        self.options.push(OptionInfo { key: key.into(), description: description.into() });
        self
    }

    /// The name that a caller gives, if there is a format of it that understands the options: a misspelt wish is not silently
    /// ignored.
    pub(crate) fn asked<'a>(formats: &'a [Self], name: &str, options: &Options) -> Result<&'a str> {
        let Some(format) = formats.iter().find(|format| format.name == name) else {
            let known: Vec<_> = formats.iter().map(|format| format.name.as_str()).collect();
            return Err(Error::invalid_argument(format!(
                "there is no format '{name}' here; expected {}",
                known.join(" or ")
            )));
        };
        if !options.iter().all(|(key, _)| format.understands(key)) {
            let known: Vec<_> = format.options.iter().map(|option| option.key.as_str()).collect();
            options.only(&format.name, &known)?;
        }
        Ok(&format.name)
    }

    /// Whether it understands this option.
    pub fn understands(&self, key: &str) -> bool {
        self.options.iter().any(|option| option.key == key)
    }

    /// Those of a caller's wishes that it understands.
    pub fn pick(&self, options: &Options) -> Options {
        let known = options.iter().filter(|(key, _)| self.understands(key));
        known.fold(Options::new(), |picked, (key, value)| picked.with(key, value))
    }

    /// Whether `head`, the first bytes of something, is recognised.
    pub fn matches(&self, head: &[u8]) -> bool {
        self.magics.iter().any(|(offset, magic)| {
            usize::try_from(*offset)
                .ok()
                .and_then(|o| head.get(o..))
                .is_some_and(|rest| rest.starts_with(magic))
        })
    }

    /// Whether arrays of this device type are taken or given.
    pub fn takes(&self, device_type: i32) -> bool {
        self.device_types.is_empty() || self.device_types.contains(&device_type)
    }

    /// # Safety
    /// `raw` is a valid `crossdock_format`, lists and strings included.
    unsafe fn read(raw: &abi::Format) -> Result<Self> {
        // SAFETY: the caller's word.
        unsafe {
            let texts = |list: *const abi::Str, n: usize, what: &str| -> Result<Vec<String>> {
                checked(list, n, what)?.iter().map(|s| Ok(s.get()?.to_string())).collect()
            };
            Ok(Self {
                name: raw.name.get()?.to_string(),
                description: raw.description.get()?.to_string(),
                bytes: raw.flags & abi::FORMAT_BYTES != 0,
                capsules: texts(raw.capsules, raw.n_capsules, "capsule names")?,
                magics: checked(raw.magics, raw.n_magics, "magics")?
                    .iter()
                    .map(|m| Ok((m.offset, checked(m.data.cast::<u8>(), m.bytes, "magic bytes")?.to_vec())))
                    .collect::<Result<_>>()?,
                endings: texts(raw.endings, raw.n_endings, "endings")?,
                device_types: checked(raw.device_types, raw.n_device_types, "device types")?.to_vec(),
                options: read_options(raw)?,
            })
        }
    }

    /// What an importer's or an exporter's `formats` answers, copied.
    ///
    /// # Safety
    /// `ask` is a function of `instance`, which makes valid lists that live as long as it.
    pub(crate) unsafe fn of(instance: &Instance, ask: Option<AskFormats>) -> Result<Vec<Self>> {
        let ask =
            ask.ok_or_else(|| Error::internal("the plugin has an interface without the function 'formats'"))?;
        let (mut list, mut n) = (std::ptr::null(), 0);
        // SAFETY: the instance's own function on itself.
        Error::check(|err| unsafe { ask(instance.raw(), &mut list, &mut n, err) })?;
        // SAFETY: the instance vouches for its list.
        unsafe { told::list(list, n, MOST, "formats", |format| Self::read(&format)) }
    }
}

/// # Safety
/// `format` is valid, the list of its options included.
unsafe fn read_options(format: &abi::Format) -> Result<Vec<OptionInfo>> {
    // SAFETY: the caller's word.
    unsafe {
        told::list(format.options, format.n_options, MOST, "options", |option| {
            Ok(OptionInfo {
                key: option.key.get()?.to_string(),
                description: option.description.get()?.to_string(),
            })
        })
    }
}

/// `formats` of an interface.
pub(crate) type AskFormats = unsafe extern "C" fn(
    *mut abi::Instance,
    *mut *const abi::Format,
    *mut usize,
    *mut abi::Error,
) -> abi::Code;

/// More than any list in a format's description has.
const MOST: usize = 4096;

/// # Safety
/// `list` points at `n` values that live for `'a`, or `n` is 0.
unsafe fn checked<'a, T>(list: *const T, n: usize, what: &str) -> Result<&'a [T]> {
    match n {
        0 => Ok(&[]),
        _ if list.is_null() || n > MOST => {
            Err(Error::invalid_argument(format!("a format's list of {n} {what} is not plausible")))
        }
        // SAFETY: the caller's word.
        _ => Ok(unsafe { std::slice::from_raw_parts(list, n) }),
    }
}

/// Descriptions in the boundary's own form; what they point at lives here too.
pub(crate) struct FormatTable {
    raw: Vec<abi::Format>,
    _lists: Vec<Lists>,
}

struct Lists {
    _format: Format,
    _magics: Vec<abi::Magic>,
    _endings: Vec<abi::Str>,
    _capsules: Vec<abi::Str>,
    _options: Vec<abi::OptionInfo>,
}

// SAFETY: never written after construction; its pointers are into itself.
unsafe impl Send for FormatTable {}
// SAFETY: as above.
unsafe impl Sync for FormatTable {}

impl FormatTable {
    pub(crate) fn new(formats: &[Format]) -> Self {
        let mut table = Self { raw: Vec::new(), _lists: Vec::new() };
        for format in formats {
            // Cloned first, so that everything below points into the heap blocks that `lists` will own.
            let format = format.clone();
            let magics: Vec<_> = format
                .magics
                .iter()
                .map(|(offset, m)| abi::Magic { offset: *offset, data: m.as_ptr().cast(), bytes: m.len() })
                .collect();
            let strs = |list: &[String]| list.iter().map(|s| abi::Str::new(s)).collect::<Vec<_>>();
            let (endings, capsules) = (strs(&format.endings), strs(&format.capsules));
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
            flags |= if format.capsules.is_empty() { 0 } else { abi::FORMAT_CAPSULES };
            table.raw.push(abi::Format {
                struct_size: size_of::<abi::Format>(),
                name: abi::Str::new(&format.name),
                description: abi::Str::new(&format.description),
                flags,
                reserved: 0,
                magics: magics.as_ptr(),
                n_magics: magics.len(),
                endings: endings.as_ptr(),
                n_endings: endings.len(),
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
                _endings: endings,
                _capsules: capsules,
                _options: options,
            });
        }
        table
    }

    /// Answers `formats`: the list is borrowed from here.
    ///
    /// # Safety
    /// Both are null or valid for writes.
    pub(crate) unsafe fn answer(&self, out: *mut *const abi::Format, n_out: *mut usize) -> Result<()> {
        // SAFETY: the caller's word.
        unsafe {
            put(out, "formats", || self.raw.as_ptr())?;
            put(n_out, "formats", || self.raw.len())
        }
    }
}
