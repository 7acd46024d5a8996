//! The options of the format.

use std::str::FromStr;

use arrow_schema::Schema;
use crossdock_plugin_api::{Error, Options, Result};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::footer::Footer;

/// The number of rows of a row group if the option is not set.
const DEFAULT_GROUP_ROWS: usize = 1 << 20;
/// The level of Zstandard if the option is not set.
const ZSTD_LEVEL: i32 = 3;
/// The level of Brotli if the option is not set. The crate's own choice is much slower.
const BROTLI_LEVEL: u32 = 4;

/// The names and the descriptions of the options for writing.
pub const OPTIONS: [(&str, &str); 6] = [
    ("compression", "none, snappy, gzip, lz4, zstd (the default) or brotli"),
    ("compression_level", "1 to 22 for zstd, 0 to 10 for gzip, 0 to 11 for brotli"),
    ("row_group_rows", "the number of rows of a row group, 1048576 by default"),
    ("dictionary", "true (the default) or false: whether columns may have dictionaries"),
    ("statistics", "true (the default) or false: whether the least and greatest values are stored"),
    ("page_index", "true (the default) or false: whether an index of the pages is stored"),
];

/// How a file is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub compression: Compression,
    pub group_rows: usize,
    dictionary: bool,
    statistics: bool,
    page_index: bool,
}

impl Settings {
    /// Reads the options.
    ///
    /// # Errors
    /// Invalid argument if a value is unknown.
    pub fn from_options(options: &Options) -> Result<Self> {
        let truth = |key: &str| match options.get(key) {
            None | Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => {
                Err(Error::invalid_argument(format!("the option {key} is '{other}', expected true or false")))
            }
        };
        let group_rows = match options.get("row_group_rows") {
            None => DEFAULT_GROUP_ROWS,
            Some(text) => {
                text.parse().ok().filter(|rows| (1..=i32::MAX as usize).contains(rows)).ok_or_else(|| {
                    let most = i32::MAX;
                    Error::invalid_argument(format!(
                        "row_group_rows is '{text}', expected a number from 1 to {most}"
                    ))
                })?
            }
        };
        Ok(Self {
            compression: compression(options.get("compression"), options.get("compression_level"))?,
            group_rows,
            dictionary: truth("dictionary")?,
            statistics: truth("statistics")?,
            page_index: truth("page_index")?,
        })
    }

    /// The crate's properties for a file with this schema.
    pub fn properties(&self, schema: &Schema) -> WriterProperties {
        let statistics = match (self.statistics, self.page_index) {
            (false, _) => EnabledStatistics::None,
            (true, false) => EnabledStatistics::Chunk,
            (true, true) => EnabledStatistics::Page,
        };
        let mut pairs: Vec<_> = schema.metadata().iter().collect();
        pairs.sort();
        let pairs: Vec<_> =
            pairs.into_iter().map(|(key, value)| KeyValue::new(key.to_string(), value.to_string())).collect();
        WriterProperties::builder()
            .set_compression(self.compression)
            .set_dictionary_enabled(self.dictionary)
            .set_statistics_enabled(statistics)
            .set_offset_index_disabled(!self.page_index)
            .set_max_row_group_row_count(Some(self.group_rows))
            .set_created_by(format!("crossdock parquet {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata((!pairs.is_empty()).then_some(pairs))
            .build()
    }

    /// What an export does with a column, for a plan.
    pub fn description(&self) -> String {
        format!("encoded, and compressed with {}", name_of(self.compression).unwrap_or("another codec"))
    }
}

fn compression(name: Option<&str>, level: Option<&str>) -> Result<Compression> {
    fn number<T: FromStr>(level: Option<&str>, default: T) -> Result<T> {
        let wrong = |text: &str| {
            Error::invalid_argument(format!("the compression_level is '{text}', expected a whole number"))
        };
        level.map_or(Ok(default), |text| text.parse().map_err(|_| wrong(text)))
    }
    let out_of_range = |error: parquet::errors::ParquetError| {
        Error::invalid_argument(format!("the compression_level: {}", crate::error::text_of(&error)))
    };
    let codec = match name {
        None | Some("zstd") => {
            Compression::ZSTD(ZstdLevel::try_new(number(level, ZSTD_LEVEL)?).map_err(out_of_range)?)
        }
        Some("gzip") => {
            let default = GzipLevel::default().compression_level();
            Compression::GZIP(GzipLevel::try_new(number(level, default)?).map_err(out_of_range)?)
        }
        Some("brotli") => {
            Compression::BROTLI(BrotliLevel::try_new(number(level, BROTLI_LEVEL)?).map_err(out_of_range)?)
        }
        Some("none") => Compression::UNCOMPRESSED,
        Some("snappy") => Compression::SNAPPY,
        Some("lz4") => Compression::LZ4_RAW,
        Some(other) => {
            return Err(Error::invalid_argument(format!(
                "unknown compression '{other}', expected none, snappy, gzip, lz4, zstd or brotli"
            )));
        }
    };
    let has_level = matches!(codec, Compression::ZSTD(_) | Compression::GZIP(_) | Compression::BROTLI(_));
    match level {
        Some(level) if !has_level => Err(Error::invalid_argument(format!(
            "the compression '{}' has no levels, got the compression_level {level}",
            name.unwrap_or_default()
        ))),
        _ => Ok(codec),
    }
}

fn name_of(compression: Compression) -> Option<&'static str> {
    Some(match compression {
        Compression::UNCOMPRESSED => "none",
        Compression::SNAPPY => "snappy",
        Compression::GZIP(_) => "gzip",
        Compression::BROTLI(_) => "brotli",
        Compression::LZ4 | Compression::LZ4_RAW => "lz4",
        Compression::ZSTD(_) => "zstd",
        Compression::LZO => return None,
    })
}

/// The options with which a file was written, as far as the metadata show them.
pub fn of_file(footer: &Footer) -> Options {
    let chunk = footer.metadata.row_groups().first().and_then(|group| group.columns().first());
    match chunk.and_then(|chunk| name_of(chunk.compression())) {
        Some(name) => Options::new().with("compression", name),
        None => Options::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings> {
        let options = pairs.iter().fold(Options::new(), |options, (key, value)| options.with(*key, *value));
        Settings::from_options(&options)
    }

    #[test]
    fn options_are_read() {
        let default = read(&[]).unwrap();
        assert_eq!(default, read(&[("compression", "zstd"), ("compression_level", "3")]).unwrap());
        assert_eq!(default.description(), "encoded, and compressed with zstd");
        assert_eq!(read(&[("row_group_rows", "7")]).unwrap().group_rows, 7);
        assert!(!read(&[("page_index", "false")]).unwrap().page_index);
        for name in ["none", "snappy", "gzip", "lz4", "brotli"] {
            let settings = read(&[("compression", name)]).unwrap();
            assert_eq!(name_of(settings.compression), Some(name));
        }
    }

    #[test]
    fn wrong_values_are_errors() {
        for (pairs, expected) in [
            (&[("compression", "lzo")][..], "unknown compression 'lzo'"),
            (&[("compression_level", "x")], "the compression_level is 'x'"),
            (&[("compression_level", "99")], "the compression_level: "),
            (&[("compression", "snappy"), ("compression_level", "1")], "'snappy' has no levels"),
            (&[("row_group_rows", "0")], "row_group_rows is '0'"),
            (&[("dictionary", "yes")], "the option dictionary is 'yes'"),
        ] {
            let error = read(pairs).unwrap_err();
            assert!(error.message().contains(expected), "{error:?}");
        }
    }
}
