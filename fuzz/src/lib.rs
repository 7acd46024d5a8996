//! Common parts of the targets: a session with one linked plugin, and values from the fuzzer's
//! bytes.

use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::memory::Backend;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Result, Session, Table};
use crossdock_arrays::{
    DeviceBatch, Level, export_batch, first_difference, format_batch, import_batch, validate,
};
use crossdock_memory::Stream;
use crossdock_plugin_api::{Code, PluginDescription, abi};

/// Budget for the memory that an input declares.
const BUDGET_BYTES: usize = 64 << 20;

/// Opens a session on the CPU with a small budget and an `untouchable` device, in which one plugin
/// is linked.
///
/// # Panics
/// Panics if the plugin does not load.
pub fn session(name: &'static str, interfaces: &'static str, entry: &'static abi::PluginEntry) -> Session {
    session_with(&[Linked { name, interfaces, encodings: "", entry }])
}

/// Opens a session like [`session`] with an importer, whose calls should use at most `byte_budget`
/// bytes; 0 for no preference.
///
/// # Panics
/// Panics if the plugin does not load.
pub fn session_with_budget(
    name: &'static str,
    entry: &'static abi::PluginEntry,
    byte_budget: u64,
) -> Session {
    let plugin = Linked { name, interfaces: "crossdock.importer/1", encodings: "", entry };
    host_with(&[plugin]).session().byte_budget(byte_budget).open().expect("a session")
}

/// A linked plugin.
pub struct Linked {
    /// The plugin's name.
    pub name: &'static str,
    /// The interfaces of the plugin, separated by spaces.
    pub interfaces: &'static str,
    /// The encodings of the plugin, separated by spaces.
    pub encodings: &'static str,
    /// The entry function.
    pub entry: &'static abi::PluginEntry,
}

/// Opens a session like [`session`], with several plugins.
///
/// # Panics
/// Panics if a plugin does not load.
pub fn session_with(plugins: &[Linked]) -> Session {
    host_with(plugins).session().open().expect("a session")
}

fn host_with(plugins: &[Linked]) -> Host {
    let about = |plugin: &Linked| PluginDescription {
        name: plugin.name,
        version: "0.1.0",
        description: "linked in",
        licence: "Apache-2.0",
        interfaces: plugin.interfaces,
        formats: "",
        encodings: plugin.encodings,
        requires: "",
        api_range: abi::API_RANGE,
    };
    let link = |search: Search, plugin: &Linked| {
        search.linked(LinkedPlugin::new(plugin.entry, about(plugin).meta()))
    };
    let search = plugins.iter().fold(Search::nowhere(), link);
    let backend = Backend::builder().untouchable(true).limit_bytes(BUDGET_BYTES).build();
    Host::builder().backend(backend).search(search).threads(1).build().expect("a host")
}

/// Reads a table from bytes in the format with the name `from`.
///
/// # Errors
/// Fails for malformed bytes.
///
/// # Panics
/// Panics if a batch is invalid.
pub fn read(session: &Session, from: &str, bytes: Vec<u8>) -> Result<Table> {
    read_with(session, bytes, &ReadOptions { from: Some(from.into()), ..ReadOptions::default() })
}

/// Reads a table from bytes like [`read`], with options.
///
/// # Errors
/// Fails for malformed bytes.
///
/// # Panics
/// Panics if a batch is invalid.
pub fn read_with(session: &Session, bytes: Vec<u8>, options: &ReadOptions) -> Result<Table> {
    let table = Table::from_reader(session, session.read(Input::bytes(bytes), options)?)?;
    for batch in table.batches() {
        validate(batch, Level::Full, session.stream()).expect("a read batch is valid");
    }
    Ok(table)
}

/// Reads some rows of bytes, of which `whole` is the table, and compares them with the table.
///
/// # Panics
/// Panics if the rows differ from the table, or if they cannot be read within the memory budget.
pub fn compare_rows(session: &Session, from: &str, bytes: Vec<u8>, whole: &Table) {
    let [batch] = whole.batches() else { return };
    // Comparing the millions of values that a few bytes can declare would take too long.
    const MAX_ROWS: usize = 2048;
    let (begin, len) = (batch.len() / 3, batch.len().div_ceil(3).min(MAX_ROWS));
    let rows = Some(vec![begin as u64..(begin + len) as u64]);
    let options = ReadOptions { from: Some(from.into()), rows, ..ReadOptions::default() };
    let rows = match read_with(session, bytes, &options) {
        Ok(rows) => rows,
        // Rows may need more memory than all values, if the values are not copied.
        Err(crossdock::Error::Plugin { source, .. }) if source.code() == Code::OUT_OF_MEMORY => return,
        Err(error) => panic!("the rows of a valid array cannot be read: {error}"),
    };
    let expected = batch.slice(begin, len).expect("the batch has the rows");
    match rows.batches() {
        [] => assert_eq!(len, 0, "no rows were read"),
        [rows] => {
            let difference = first_difference(rows, &expected, session.stream()).expect("batches on the CPU");
            assert!(difference.is_none(), "{difference:?}");
        }
        _ => panic!("one range of rows has several batches"),
    }
}

/// Runs all operations on a batch, and compares the results with the batch.
///
/// # Errors
/// Fails if the batch is invalid, or if a result would be too large.
///
/// # Panics
/// Panics if a result differs from the batch.
pub fn exercise(batch: &DeviceBatch, stream: &Stream) -> crossdock_arrays::Result<()> {
    validate(batch, Level::Full, stream)?;
    // The batch is valid, so an operation fails only if its result is too large.
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

/// The fuzzer's bytes. Reads after the end return zeros.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next four bytes as a number.
    pub fn number(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// One of the given values.
    ///
    /// # Panics
    /// Panics if there are no values.
    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.byte() as usize % from.len()]
    }

    /// Returns `usual` in most cases, and otherwise another number, which may be invalid.
    pub fn count(&mut self, usual: i64) -> i64 {
        match self.byte() {
            0..=239 => usual,
            240..=243 => i64::from(self.number() as i32),
            244..=247 => self.choose(&[-1, 0, 1, i64::MAX, i64::MIN, 1 << 32, 1 << 40, i64::MAX / 8 + 1]),
            _ => i64::from(self.byte()),
        }
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.byte()).collect()
    }

    /// Whether all bytes are used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
