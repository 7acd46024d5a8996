//! The options of the formats.

use crossdock_plugin_api::{Error, Format, Options, Result};

/// The number of rows from which types are inferred by default.
const DEFAULT_INFER_ROWS: u64 = 10_000;

/// The greatest number of columns of a file, and of fields of an object. A file with more is
/// probably not a table, and their names could need more memory than the session has.
pub const MAX_COLUMNS: usize = 100_000;

/// How a text is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// The number of bytes that decide whether a file is compressed.
    pub const MAGIC_BYTES: usize = 4;

    /// The compression of a file with these first bytes.
    pub fn of_bytes(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    /// The compression that belongs to the extension of a file name.
    pub fn of_name(name: &str) -> Self {
        match () {
            () if name.ends_with(".gz") => Self::Gzip,
            () if name.ends_with(".zst") => Self::Zstd,
            () => Self::None,
        }
    }

    /// The compression that the options name; `None` if they name none.
    ///
    /// # Errors
    /// Invalid argument if the compression is unknown.
    pub fn of_options(options: &Options) -> Result<Option<Self>> {
        match options.get("compression") {
            None | Some("auto") => Ok(None),
            Some("none") => Ok(Some(Self::None)),
            Some("gzip") => Ok(Some(Self::Gzip)),
            Some("zstd") => Ok(Some(Self::Zstd)),
            Some(other) => Err(invalid("compression", other, "auto, none, gzip or zstd")),
        }
    }
}

/// How many rows are read to infer the types of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InferRows {
    /// All rows.
    All,
    /// At most this number of rows.
    First(u64),
}

/// The characters of a CSV file. Each is a byte of ASCII, and no two are equal, except `quote` and
/// `escape`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The character between two fields.
    pub delimiter: u8,
    /// The character before and after a quoted field.
    pub quote: Option<u8>,
    /// The character that makes the next character of a quoted field a part of its text.
    pub escape: Option<u8>,
    /// The character at the start of lines that are ignored.
    pub comment: Option<u8>,
    /// Whether the first line has the names of the columns.
    pub header: bool,
}

/// The texts of nulls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nulls {
    texts: Vec<String>,
    /// The length of the longest text. Most fields are longer.
    longest: usize,
}

impl Nulls {
    /// Whether an unquoted text means null.
    #[inline]
    pub fn contains(&self, text: &[u8]) -> bool {
        text.len() <= self.longest && self.texts.iter().any(|null| null.as_bytes() == text)
    }
}

/// The options of a CSV file that is read.
#[derive(Clone, Debug)]
pub struct CsvOptions {
    /// The characters.
    pub dialect: Dialect,
    /// The texts of nulls.
    pub nulls: Nulls,
    /// Whether binary columns are hexadecimal.
    pub hex: bool,
}

/// The options of a CSV file that is written.
#[derive(Clone, Debug)]
pub struct CsvWriteOptions {
    /// The character between two fields.
    pub delimiter: u8,
    /// The character around fields.
    pub quote: u8,
    /// Whether the first line has the names of the columns.
    pub header: bool,
    /// The text of nulls.
    pub null: String,
    /// Whether binary columns are written as hexadecimal text.
    pub hex: bool,
}

/// How infinite numbers and NaN are written to JSON, which has no numbers for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonFinite {
    /// They are errors.
    Fail,
    /// As null.
    Null,
    /// As the texts "NaN", "inf" and "-inf".
    Text,
}

/// The options of an NDJSON file that is written.
#[derive(Clone, Copy, Debug)]
pub struct NdjsonWriteOptions {
    /// How infinite numbers and NaN are written.
    pub non_finite: NonFinite,
    /// Whether fields that are null are written.
    pub explicit_nulls: bool,
    /// Whether binary columns are written as hexadecimal text.
    pub hex: bool,
}

const COMPRESSION: (&str, &str) =
    ("compression", "auto (the default: the first bytes decide), none, gzip or zstd");
const WRITE_COMPRESSION: (&str, &str) =
    ("compression", "auto (the default: the extensions .gz and .zst decide), none, gzip or zstd");
const INFER_ROWS: (&str, &str) =
    ("infer_rows", "the number of rows from which the types are inferred, or all; default 10000");
const TYPES: (&str, &str) =
    ("types", "types of columns that are not inferred, as in id=int64,at=timestamp[ms]");
const BINARY: (&str, &str) =
    ("binary", "hex: binary values are hexadecimal text; without it they are errors");
const HEADER: (&str, &str) =
    ("header", "true (the default) or false: the first line has the names of columns");
const DELIMITER: (&str, &str) =
    ("delimiter", "the character between fields, or tab; default a comma, and a tab for .tsv");

fn with(format: Format, options: &[(&str, &str)]) -> Format {
    options.iter().fold(format, |format, (key, text)| format.with_option(key, text))
}

/// Adds the options for reading CSV.
pub fn describe_csv(format: Format) -> Format {
    let own = [
        DELIMITER,
        HEADER,
        ("quote", "the character around fields that contain delimiters or line ends, or none; default \""),
        ("escape", "the character before a quote that belongs to a field; default none: quotes are doubled"),
        ("comment", "the character at the start of lines that are ignored; default none"),
        ("null_values", "the texts of nulls, separated by commas; default the empty text"),
        INFER_ROWS,
        TYPES,
        BINARY,
        COMPRESSION,
    ];
    with(format, &own)
}

/// Adds the options for writing CSV.
pub fn describe_csv_output(format: Format) -> Format {
    let own = [
        DELIMITER,
        HEADER,
        ("quote", "the character around fields that contain delimiters or line ends; default \""),
        ("null_value", "the text of nulls; default the empty text"),
        BINARY,
        WRITE_COMPRESSION,
    ];
    with(format, &own)
}

/// Adds the options for reading NDJSON.
pub fn describe_ndjson(format: Format) -> Format {
    with(format, &[INFER_ROWS, TYPES, BINARY, COMPRESSION])
}

/// Adds the options for writing NDJSON.
pub fn describe_ndjson_output(format: Format) -> Format {
    let nulls = ("nulls", "explicit (the default) or omit: whether fields that are null are written");
    let non_finite =
        ("non_finite", "error (the default), null or text: how infinite numbers and NaN are written");
    with(format, &[nulls, non_finite, BINARY, WRITE_COMPRESSION])
}

impl CsvOptions {
    /// Reads the options for a file with this name.
    ///
    /// # Errors
    /// Invalid argument if a value is unknown, or if two characters are equal.
    pub fn read(options: &Options, name: &str) -> Result<Self> {
        let dialect = Dialect {
            delimiter: character(options, "delimiter")?.unwrap_or_else(|| default_delimiter(name)),
            quote: match options.get("quote") {
                Some("none") => None,
                _ => Some(character(options, "quote")?.unwrap_or(b'"')),
            },
            escape: optional_character(options, "escape")?,
            comment: optional_character(options, "comment")?,
            header: boolean(options, "header", true)?,
        };
        let Dialect { delimiter, quote, escape, comment, .. } = dialect;
        let escape = escape.filter(|escape| Some(*escape) != quote);
        let dialect = Dialect { escape, ..dialect };
        check_different(&[
            ("delimiter", Some(delimiter)),
            ("quote", quote),
            ("escape", escape),
            ("comment", comment),
        ])?;
        if escape.is_some() && quote.is_none() {
            return Err(Error::invalid_argument("the option escape needs a quote, got quote=none"));
        }
        let nulls = options.get("null_values").unwrap_or_default();
        let texts: Vec<_> = nulls.split(',').map(str::to_string).collect();
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        let nulls = Nulls { texts, longest };
        Ok(Self { dialect, nulls, hex: hex(options)? })
    }
}

impl CsvWriteOptions {
    /// Reads the options for a file with this name.
    ///
    /// # Errors
    /// Invalid argument if a value is unknown, or if two characters are equal.
    pub fn read(options: &Options, name: &str) -> Result<Self> {
        let delimiter = character(options, "delimiter")?.unwrap_or_else(|| default_delimiter(name));
        let quote = character(options, "quote")?.unwrap_or(b'"');
        check_different(&[("delimiter", Some(delimiter)), ("quote", Some(quote))])?;
        let null = options.get("null_value").unwrap_or_default().to_string();
        if null.bytes().any(|byte| byte == delimiter || byte == quote || byte == b'\n' || byte == b'\r') {
            return Err(invalid("null_value", &null, "a text without delimiters, quotes and line ends"));
        }
        Ok(Self { delimiter, quote, header: boolean(options, "header", true)?, null, hex: hex(options)? })
    }
}

impl NdjsonWriteOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// Invalid argument if a value is unknown.
    pub fn read(options: &Options) -> Result<Self> {
        let explicit_nulls = match options.get("nulls") {
            None | Some("explicit") => true,
            Some("omit") => false,
            Some(other) => return Err(invalid("nulls", other, "explicit or omit")),
        };
        let non_finite = match options.get("non_finite") {
            None | Some("error") => NonFinite::Fail,
            Some("null") => NonFinite::Null,
            Some("text") => NonFinite::Text,
            Some(other) => return Err(invalid("non_finite", other, "error, null or text")),
        };
        Ok(Self { non_finite, explicit_nulls, hex: hex(options)? })
    }
}

/// Reads the option `infer_rows`.
///
/// # Errors
/// Invalid argument if it is neither a positive number nor `all`.
pub fn infer_rows(options: &Options) -> Result<InferRows> {
    match options.get("infer_rows") {
        None => Ok(InferRows::First(DEFAULT_INFER_ROWS)),
        Some("all") => Ok(InferRows::All),
        Some(text) => match text.parse() {
            Ok(n) if n > 0 => Ok(InferRows::First(n)),
            _ => Err(invalid("infer_rows", text, "a number of at least 1, or all")),
        },
    }
}

/// Whether the option `binary` is set to `hex`.
///
/// # Errors
/// Invalid argument if it has another value.
pub fn hex(options: &Options) -> Result<bool> {
    match options.get("binary") {
        None => Ok(false),
        Some("hex") => Ok(true),
        Some(other) => Err(invalid("binary", other, "hex")),
    }
}

fn default_delimiter(name: &str) -> u8 {
    let stem = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
    if stem.ends_with(".tsv") { b'\t' } else { b',' }
}

fn check_different(characters: &[(&str, Option<u8>)]) -> Result<()> {
    for (i, (key, character)) in characters.iter().enumerate() {
        let other = characters.iter().take(i).find(|(_, other)| character.is_some() && other == character);
        if let Some((other, _)) = other {
            return Err(Error::invalid_argument(format!(
                "the options {other} and {key} are the same character, expected different ones"
            )));
        }
    }
    Ok(())
}

fn optional_character(options: &Options, key: &str) -> Result<Option<u8>> {
    if options.get(key) == Some("none") { Ok(None) } else { character(options, key) }
}

fn character(options: &Options, key: &str) -> Result<Option<u8>> {
    match options.get(key) {
        None => Ok(None),
        Some("tab") => Ok(Some(b'\t')),
        Some(text) => match text.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Ok(Some(*byte)),
            _ => Err(invalid(key, text, "one character of ASCII that is not a line end, or tab")),
        },
    }
}

fn boolean(options: &Options, key: &str, default: bool) -> Result<bool> {
    match options.get(key) {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(invalid(key, other, "true or false")),
    }
}

fn invalid(key: &str, got: &str, expected: &str) -> Error {
    Error::invalid_argument(format!("the option {key} is '{got}', expected {expected}"))
}
