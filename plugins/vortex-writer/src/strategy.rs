//! The layout of a file.
//!
//! The crate's default layout fills the chunks of each column with a number of bytes, so that
//! columns of different types have different chunks. Here, all columns have chunks of the same
//! rows: a reader of a part of the rows needs no chunk that the reader of the next part needs too.

use std::sync::Arc;

use vortex::array::{ArrayRef, ExecutionCtx};
use vortex::compressor::{BtrBlocksCompressor, BtrBlocksCompressorBuilder};
use vortex::layout::LayoutStrategy;
use vortex::layout::layouts::buffered::BufferedStrategy;
use vortex::layout::layouts::chunked::writer::ChunkedLayoutStrategy;
use vortex::layout::layouts::collect::CollectStrategy;
use vortex::layout::layouts::compressed::{CompressingStrategy, CompressorPlugin};
use vortex::layout::layouts::dict::writer::DictStrategy;
use vortex::layout::layouts::flat::writer::FlatLayoutStrategy;
use vortex::layout::layouts::repartition::{RepartitionStrategy, RepartitionWriterOptions};
use vortex::layout::layouts::table::TableStrategy;
use vortex::layout::layouts::zoned::writer::{ZonedLayoutOptions, ZonedStrategy};
use vortex::session::VortexSession;
use vortex_btrblocks::SchemeExt;
use vortex_btrblocks::schemes::integer::IntDictScheme;

use crate::settings::{Compression, Settings};

/// The number of rows by which the crate decides whether a column gets a dictionary. In the rows of
/// a single zone, a column of many values seems to have no repeated values.
const PROBED_ROWS: usize = 131_072;
/// The size of the compressed chunks of a column that are written next to each other, in bytes.
const ADJACENT_BYTES: u64 = 2 << 20;

/// The layout of a table whose columns have chunks of `chunk_rows` rows.
pub fn strategy(
    session: &VortexSession,
    settings: &Settings,
    chunk_rows: std::num::NonZeroUsize,
) -> Arc<dyn LayoutStrategy> {
    let (of_data, of_statistics) = compressors(session, settings.compression);
    let flat: Arc<dyn LayoutStrategy> = Arc::new(FlatLayoutStrategy::default());
    let buffered = BufferedStrategy::new(ChunkedLayoutStrategy::new(flat.clone()), ADJACENT_BYTES);
    let chunks = RepartitionStrategy::new(
        CompressingStrategy::new(buffered, of_data),
        repartition(chunk_rows.get(), true),
    );
    let compressed = CompressingStrategy::new(flat, of_statistics.clone());
    let with_dictionary =
        DictStrategy::new(chunks.clone(), compressed.clone(), chunks, Default::default(), of_statistics);
    let probed = RepartitionStrategy::new(
        with_dictionary,
        repartition(PROBED_ROWS.max(settings.zone_rows.get()), false),
    );
    let zones = ZonedLayoutOptions { block_size: settings.zone_rows, ..Default::default() };
    let zoned = ZonedStrategy::new(probed, compressed.clone(), zones);
    let column = RepartitionStrategy::new(zoned, repartition(settings.zone_rows.get(), false));
    Arc::new(TableStrategy::new(Arc::new(CollectStrategy::new(compressed)), Arc::new(column)))
}

fn repartition(rows: usize, canonicalize: bool) -> RepartitionWriterOptions {
    RepartitionWriterOptions {
        block_size_minimum: 0,
        block_len_multiple: rows,
        block_size_target: None,
        canonicalize,
    }
}

/// The compressor of chunks, and that of statistics and dictionaries. The integers of a chunk can
/// be the codes of a dictionary, for which another dictionary is of no use.
fn compressors(
    session: &VortexSession,
    compression: Compression,
) -> (Arc<dyn CompressorPlugin>, Arc<dyn CompressorPlugin>) {
    let builder = BtrBlocksCompressorBuilder::from_session(session);
    let both = |builder: BtrBlocksCompressorBuilder| -> (Arc<dyn CompressorPlugin>, _) {
        let of_data: BtrBlocksCompressor = builder.clone().exclude_schemes([IntDictScheme.id()]).build();
        let of_statistics: Arc<dyn CompressorPlugin> = Arc::new(builder.build());
        (Arc::new(of_data), of_statistics)
    };
    match compression {
        Compression::Default => both(builder),
        Compression::Compact => both(builder.with_compact()),
        Compression::None => {
            let none: Arc<dyn CompressorPlugin> =
                Arc::new(|chunk: &ArrayRef, _: &mut ExecutionCtx| Ok(chunk.clone()));
            (none.clone(), none)
        }
    }
}
