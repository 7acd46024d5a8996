//! A file's table of contents.

use arrow_ipc::FooterBuilder;
use crossdock_plugin_api::{Error, Result};
use flatbuffers::FlatBufferBuilder;

use super::schema::Schema;
use super::strings::Strings;
use super::{broken, private_copy, schema_read, schema_write, verifier};

/// A file's table of contents.
#[derive(Debug)]
pub struct Footer {
    /// The schema of all batches.
    pub schema: Schema,
    /// Where dictionary batches lie, in the order in which they apply.
    pub dictionaries: Vec<Block>,
    /// Where record batches lie, in order.
    pub batches: Vec<Block>,
    /// The footer's own key-value metadata, sorted by key.
    pub metadata: Vec<(String, String)>,
}

/// Where a message lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bytes from the file's beginning to the message's prefix.
    pub offset: u64,
    /// Bytes of prefix and metadata, padding included.
    pub metadata_bytes: usize,
    /// Bytes of body, padding included.
    pub body_bytes: u64,
}

impl Block {
    /// Bytes from the file's beginning to the end of the body.
    pub fn end(&self) -> u64 {
        // `read_block` made sure that there are so many.
        self.offset.saturating_add(self.metadata_bytes as u64).saturating_add(self.body_bytes)
    }
}

/// Reads a footer; `room` is how many bytes of the file come before it.
pub fn read(bytes: &[u8], room: u64) -> Result<Footer> {
    let bytes = &private_copy(bytes);
    let options = verifier(bytes.len());
    let invalid = |e| broken("footer", e);
    match arrow_ipc::root_as_footer_with_opts(&options, bytes) {
        Ok(footer) => read_footer(footer, room, &Strings::verified(bytes)),
        Err(error) => {
            let verify = |bytes: &[u8]| arrow_ipc::root_as_footer_with_opts(&options, bytes).map(drop);
            let strings = Strings::mended(bytes, error, verify).map_err(invalid)?;
            let footer = arrow_ipc::root_as_footer_with_opts(&options, strings.bytes()).map_err(invalid)?;
            read_footer(footer, room, &strings)
        }
    }
}

fn read_footer(footer: arrow_ipc::Footer<'_>, room: u64, strings: &Strings<'_>) -> Result<Footer> {
    // The version counts in each message: writers before Arrow 1.0 left that of the footer at its default, V1.
    let schema = footer.schema().ok_or_else(|| Error::bad_data("the footer holds no schema"))?;
    let blocks = |list: Option<flatbuffers::Vector<'_, arrow_ipc::Block>>, what: &str| {
        let list = list.into_iter().flatten().enumerate();
        list.map(|(i, block)| read_block(block, room).map_err(|e| e.context(format_args!("{what} {i}"))))
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

fn read_block(block: &arrow_ipc::Block, room: u64) -> Result<Block> {
    let (offset, metadata, body) = (block.offset(), block.metaDataLength(), block.bodyLength());
    let read = || {
        let block = Block {
            offset: u64::try_from(offset).ok()?,
            metadata_bytes: usize::try_from(metadata).ok().filter(|n| *n >= 8)?,
            body_bytes: u64::try_from(body).ok()?,
        };
        let end = block.offset.checked_add(block.metadata_bytes as u64)?.checked_add(block.body_bytes)?;
        (end <= room && block.metadata_bytes <= crate::limits::MOST_METADATA_BYTES).then_some(block)
    };
    read().ok_or_else(|| {
        Error::bad_data(format!(
            "the footer places it at {offset} with {metadata} bytes of metadata and {body} of body; \
             there are {room} bytes before the footer"
        ))
    })
}

/// Writes a footer, without the length and magic that follow it.
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
            "a message at {} with {} bytes of metadata and {} of body is too large for a file's footer",
            block.offset, block.metadata_bytes, block.body_bytes
        ))),
    }
}
