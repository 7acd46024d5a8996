//! What the targets share: a session with one plugin linked in, and numbers out of the fuzzer's bytes.

use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Result, Session, Table};
use crossdock_arrays::{DeviceBatch, Level, export_batch, first_difference, format_batch, import_batch, validate};
use crossdock_memory::Stream;
use crossdock_plugin_api::{About, abi};

/// What input may claim before it is refused.
const BUDGET_BYTES: usize = 64 << 20;

/// On the cpu, within a small budget; `untouchable` is there too.
///
/// # Panics
/// The plugin does not load.
pub fn session(name: &'static str, interfaces: &'static str, entry: &'static abi::PluginEntry) -> Session {
    let about = About {
        name,
        version: "0.1.0",
        description: "linked in",
        licence: "Apache-2.0",
        interfaces,
        formats: "",
        encodings: "",
    };
    let search = Search::nowhere().linked(LinkedPlugin::new(entry, about.meta()));
    let backend = Backend::builder().untouchable(true).limit_bytes(BUDGET_BYTES).build();
    let host = Host::builder().backend(backend).search(search).threads(1).build();
    host.and_then(|host| host.session().open()).expect("a session")
}

/// What the plugin makes of the bytes.
///
/// # Errors
/// What it says of bytes that are none of its format.
///
/// # Panics
/// What it read is not what Arrow says of its types.
pub fn read(session: &Session, from: &str, bytes: Vec<u8>) -> Result<Table> {
    let options = ReadOptions { from: Some(from.into()), ..ReadOptions::default() };
    let table = Table::from_reader(session, session.read(Input::bytes(bytes), &options)?)?;
    for batch in table.batches() {
        validate(batch, Level::Full, session.stream()).expect("what was read is sound");
    }
    Ok(table)
}

/// Uses a batch in all ways.
///
/// # Errors
/// It is not sound, or what is made of it would be too large.
///
/// # Panics
/// What is made of it is not the same.
pub fn use_up(batch: &DeviceBatch, stream: &Stream) -> crossdock_arrays::Result<()> {
    validate(batch, Level::Full, stream)?;
    // What is sound can be used: an error from here on is one of ours, but for what is too large.
    let compact = batch.compact(stream)?;
    let difference = first_difference(batch, &compact, stream)?;
    assert!(difference.is_none(), "{difference:?}");
    format_batch(&compact, 10, stream)?;
    let half = batch.slice(batch.len() / 2, batch.len() - batch.len() / 2)?;
    let again = import_batch(export_batch(&half, false, stream)?, batch.schema(), stream.memory())?;
    let difference = first_difference(&half, &again, stream)?;
    assert!(difference.is_none(), "{difference:?}");
    Ok(())
}

/// The fuzzer's bytes, from the first to the last; zeros after those.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// The next one.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next four, as a number.
    pub fn number(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// One of these.
    ///
    /// # Panics
    /// There are none.
    pub fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.byte() as usize % from.len()]
    }

    /// A count as honest makers give it, and now and then any number.
    pub fn count(&mut self, usual: i64) -> i64 {
        match self.byte() {
            0..=239 => usual,
            240..=243 => i64::from(self.number() as i32),
            244..=247 => self.of(&[-1, 0, 1, i64::MAX, i64::MIN, 1 << 32, 1 << 40, i64::MAX / 8 + 1]),
            _ => i64::from(self.byte()),
        }
    }

    /// So many of the next ones.
    pub fn some(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.byte()).collect()
    }

    /// Whether there are no more.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
