//! Reads and writes a file's footer.

use arrow_ipc::FooterBuilder;
use crossdock_plugin_api::{Error, Result};
use flatbuffers::FlatBufferBuilder;

use super::schema::Schema;
use super::strings::Strings;
use super::{invalid_flatbuffer, private_copy, schema_read, schema_write, verifier};

/// The footer of a file.
#[derive(Debug)]
pub struct Footer {
    /// The schema of all batches.
    pub schema: Schema,
    /// Positions of the dictionary batches, in the order in which they must be applied.
    pub dictionaries: Vec<Block>,
    /// Positions of the record batches, in order.
    pub batches: Vec<Block>,
    /// The footer's key-value metadata, sorted by key.
    pub metadata: Vec<(String, String)>,
}

/// The position of a message in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Position of the message's prefix in the file.
    pub offset: u64,
    /// Size of the prefix and the metadata in bytes, including padding.
    pub metadata_bytes: usize,
    /// Size of the body in bytes, including padding.
    pub body_bytes: u64,
}

impl Block {
    /// Position of the end of the body in the file.
    pub fn end(&self) -> u64 {
        // `read_block` checked that the sum does not overflow.
        self.offset.saturating_add(self.metadata_bytes as u64).saturating_add(self.body_bytes)
    }
}

/// Reads a footer at position `footer_start` of the file.
pub fn read(bytes: &[u8], footer_start: u64) -> Result<Footer> {
    let bytes = &private_copy(bytes);
    let options = verifier(bytes.len());
    let invalid = |e| invalid_flatbuffer("footer", e);
    match arrow_ipc::root_as_footer_with_opts(&options, bytes) {
        Ok(footer) => read_footer(footer, footer_start, &Strings::verified(bytes)),
        Err(error) => {
            let verify = |bytes: &[u8]| arrow_ipc::root_as_footer_with_opts(&options, bytes).map(drop);
            let strings = Strings::repaired(bytes, error, verify).map_err(invalid)?;
            let footer = arrow_ipc::root_as_footer_with_opts(&options, strings.bytes()).map_err(invalid)?;
            read_footer(footer, footer_start, &strings)
        }
    }
}

fn read_footer(footer: arrow_ipc::Footer<'_>, footer_start: u64, strings: &Strings<'_>) -> Result<Footer> {
    // The version in the footer is ignored, because writers before Arrow 1.0 did not set it. The
    // version in each message is checked.
    let schema = footer.schema().ok_or_else(|| Error::bad_data("the footer has no schema"))?;
    let blocks = |list: Option<flatbuffers::Vector<'_, arrow_ipc::Block>>, what: &str| {
        let list = list.into_iter().flatten().enumerate();
        list.map(|(i, block)| {
            read_block(block, footer_start).map_err(|e| e.context(format_args!("{what} {i}")))
        })
        .collect::<Result<Vec<_>>>()
    };
    let metadata = schema_read::read_metadata(footer.custom_metadata(), strings);
    let metadata = metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok(Footer {
        schema: schema_read::read(schema, strings)?,
        dictionaries: blocks(footer.dictionaries(), "dictionary batch")?,
        batches: blocks(footer.recordBatches(), "record batch")?,
        metadata,
    })
}

fn read_block(block: &arrow_ipc::Block, footer_start: u64) -> Result<Block> {
    let (offset, metadata, body) = (block.offset(), block.metaDataLength(), block.bodyLength());
    let read = || {
        let block = Block {
            offset: u64::try_from(offset).ok()?,
            metadata_bytes: usize::try_from(metadata).ok().filter(|n| *n >= 8)?,
            body_bytes: u64::try_from(body).ok()?,
        };
        let end = block.offset.checked_add(block.metadata_bytes as u64)?.checked_add(block.body_bytes)?;
        (end <= footer_start && block.metadata_bytes <= crate::limits::MAX_METADATA_BYTES).then_some(block)
    };
    read().ok_or_else(|| {
        Error::bad_data(format!(
            "the footer lists it at byte {offset} with {metadata} bytes of metadata and a body of {body} bytes, expected a range \
             before the footer, at {footer_start}"
        ))
    })
}

/// Writes a footer, without the length and the magic that follow it.
pub fn write(
    schema: &Schema,
    dictionaries: &[Block],
    batches: &[Block],
    metadata: &[(String, String)],
) -> Result<Vec<u8>> {
    let mut builder = FlatBufferBuilder::new();
    let schema = schema_write::write(&mut builder, schema)?;
    let metadata = schema_write::write_map(&mut builder, &metadata.iter().cloned().collect());
    let dictionaries = dictionaries.iter().map(wire_block).collect::<Result<Vec<_>>>()?;
    let batches = batches.iter().map(wire_block).collect::<Result<Vec<_>>>()?;
    let dictionaries = builder.create_vector(&dictionaries);
    let batches = builder.create_vector(&batches);
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(arrow_ipc::MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(batches);
    if let Some(metadata) = metadata {
        footer.add_custom_metadata(metadata);
    }
    let footer = footer.finish();
    builder.finish(footer, None);
    Ok(builder.finished_data().to_vec())
}

fn wire_block(block: &Block) -> Result<arrow_ipc::Block> {
    match (i64::try_from(block.offset), i32::try_from(block.metadata_bytes), i64::try_from(block.body_bytes))
    {
        (Ok(offset), Ok(metadata), Ok(body)) => Ok(arrow_ipc::Block::new(offset, metadata, body)),
        _ => Err(Error::unsupported(format!(
            "a message at byte {} with {} bytes of metadata and a body of {} bytes is too large for a file's footer",
            block.offset, block.metadata_bytes, block.body_bytes
        ))),
    }
}
