//! `crossdock encoded`: writes an encoded array from its parts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use clap::Args;
use crossdock::api::encoded::blob;
use crossdock::api::{CancelFlag, EncodedArray};
use crossdock::sink::Output;
use crossdock::source::Input;
use crossdock::{EncodedParts, Error, Result, Session, Table};

use crate::output::{Failure, write_output};
use crate::{inspect_tree, options};

#[derive(Args)]
#[command(after_help = "\
BYTES are a file, or `hex:` and digits: hex:e8030000. A child is a .cdenc file, or a table of one column in any format that
a plugin reads, whose values are stored without an encoding. The command prints the nodes of the file as `crossdock inspect`
does. It does not check whether the parts fit the encoding: `crossdock verify PLUGIN --sample FILE.cdenc` does, by decoding
the file with the plugin.

Example:
  crossdock encoded sample.cdenc --encoding packer.bits --type int32 --length 3 --metadata hex:e8030000 --buffer values.bin")]
pub struct Encoded {
    /// The file to write
    #[arg(value_name = "FILE.cdenc")]
    file: PathBuf,
    /// The id of the encoding
    #[arg(long, value_name = "ID")]
    encoding: String,
    /// The Arrow type of the values, as `inspect` shows types: int32, string, timestamp[ms]
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    data_type: DataType,
    /// Allows null values
    #[arg(long)]
    nullable: bool,
    /// The number of values
    #[arg(long, value_name = "N")]
    length: u64,
    /// The encoding's metadata [default: none]
    #[arg(long, value_name = "BYTES")]
    metadata: Option<String>,
    /// A buffer of the node. May be given several times, in order
    #[arg(long = "buffer", value_name = "BYTES")]
    buffers: Vec<String>,
    /// A child of the node. May be given several times, in order
    #[arg(long = "child", value_name = "FILE")]
    children: Vec<PathBuf>,
    #[command(flatten)]
    plugins: options::PluginArgs,
}

/// Reads a type as `inspect` shows it, or in the notation of arrow-rs.
fn parse_type(text: &str) -> Result<DataType, String> {
    crossdock_arrays::parse_type(text).or_else(|error| text.parse().map_err(|_| error.message().to_owned()))
}

impl Encoded {
    pub fn run(self) -> Result<(), Failure> {
        let session = self.plugins.host(self.plugins.policy()?).build_lenient().session().open()?;
        let metadata = self.metadata.as_deref().map_or_else(|| Ok(Vec::new()), content)?;
        let parts = EncodedParts {
            encoding: self.encoding,
            field: Field::new("", self.data_type, self.nullable),
            length: self.length,
            metadata,
            buffers: self.buffers.iter().map(|text| bytes(text)).collect::<Result<_>>()?,
            children: self.children.iter().map(|file| child(&session, file)).collect::<Result<_>>()?,
        };
        let whole = session.encoded_to_bytes(session.build_encoded(parts)?)?;
        let output = Output::create(&self.file, &CancelFlag::new())?;
        let failed = |source| Error::Data { what: format!("cannot write '{}'", self.file.display()), source };
        output.sink().write(&whole).map_err(failed)?;
        output.commit()?;
        write_output(&inspect_tree::of_file(&self.file, &self.plugins, None, false)?)
    }
}

/// Parses `hex:` and hexadecimal digits, or opens the file with this path.
fn bytes(text: &str) -> Result<Input> {
    match text.strip_prefix("hex:") {
        Some(digits) => Ok(Input::bytes(from_hex(digits)?)),
        None => Input::open(text, &CancelFlag::new()),
    }
}

fn content(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("hex:") {
        Some(digits) => from_hex(digits),
        None => std::fs::read(text).map_err(|source| Error::file("cannot read", text.as_ref(), source)),
    }
}

fn from_hex(digits: &str) -> Result<Vec<u8>> {
    let error = || Error::Usage(format!("'hex:{digits}': expected two hexadecimal digits for each byte"));
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(|pair| byte(pair).ok_or_else(error)).collect()
}

/// Reads an encoded array, or the only column of a table.
fn child(session: &Session, file: &Path) -> Result<EncodedArray> {
    let what = || format!("cannot read '{}'", file.display());
    let head = {
        use std::io::Read;
        let mut head = Vec::new();
        let opened = std::fs::File::open(file);
        let read = opened.and_then(|file| file.take(blob::MAGIC.len() as u64).read_to_end(&mut head));
        read.map_err(|source| Error::file("cannot read", file, source))?;
        head
    };
    if head == blob::MAGIC {
        return session.read_encoded(&Input::open(file, &CancelFlag::new())?);
    }
    let table = Table::read(session, file)?;
    let [field] = table.schema().fields().as_ref() else {
        let names: Vec<_> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        return Err(Error::Usage(format!(
            "'{}' has {} columns, expected one: {}; select one with `crossdock convert --columns NAME`",
            file.display(),
            names.len(),
            names.join(", ")
        )));
    };
    // The name is removed, because a column with a name would become the field of a struct.
    let schema = Arc::new(Schema::new(vec![field.as_ref().clone().with_name("")]));
    let nameless = table.batches().iter().map(|batch| batch.clone().with_schema(schema.clone()));
    let nameless = nameless.collect::<crossdock::api::Result<Vec<_>>>();
    let nameless = nameless.map_err(|source| Error::Data { what: what(), source })?;
    session.encode_uncompressed(&schema, &nameless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_hex_accepts_only_pairs_of_digits() {
        assert_eq!(from_hex("e8030000").ok(), Some(vec![0xe8, 3, 0, 0]));
        assert_eq!(from_hex("").ok(), Some(Vec::new()));
        for wrong in ["e", "e8 0", "gg", "é", "+1"] {
            assert!(from_hex(wrong).is_err(), "{wrong}");
        }
    }
}
