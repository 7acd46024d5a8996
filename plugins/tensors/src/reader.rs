//! Reads batches of a file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{
    DeviceBatch, call_stream, expect_schema, export_batch, export_schema, import_schema_ref,
};
use crossdock_memory::{Error, Loader, Memory, Result, StoredSource};
use crossdock_plugin_api::{
    BatchStream, Call, Honoured, Host, Options, Owned, ReadRequest, Selection, Tasks, abi,
};

use crate::batches::Batches;
use crate::convert::check_stored;
use crate::load::load;
use crate::target::{Loading, Target};
use crate::tensor::{Column, Data, File, common_rows};

/// The interfaces of the host that a reader uses.
#[derive(Clone)]
pub struct Context {
    pub host: Host,
    pub memory: Memory,
    pub loader: Loader,
    pub tasks: Tasks,
}

/// The stream of batches of a file.
pub struct Reader {
    name: String,
    context: Context,
    source: Arc<StoredSource>,
    schema: SchemaRef,
    columns: Vec<Loading>,
    /// The batches that are not read yet; the reason if the columns are not one table.
    batches: Result<Batches>,
    honoured: Honoured,
    write_options: Options,
    /// Whether the CRC-32 of members that are not compressed is checked before the next batch. That
    /// of compressed members is checked when they are decompressed.
    checks_stored: bool,
    bytes_done: u64,
}

/// The columns that a request selects.
struct Selected<'a> {
    columns: Vec<(&'a str, &'a Column)>,
    is_honoured: bool,
    /// The reason why no rows can be read.
    unreadable: Option<Error>,
}

impl Reader {
    /// Opens a file.
    ///
    /// Tensors with different numbers of rows are not one table, so reading rows of them is an
    /// error. Opening them is none, so that a caller can choose columns by the schema.
    pub fn open(
        context: &Context,
        name: &str,
        source: StoredSource,
        file: &File,
        request: &ReadRequest<'_>,
        checks_crc: bool,
    ) -> Result<Self> {
        if let Some(expected) = request.schema {
            // SAFETY: the plugin boundary requires the caller to pass a valid ArrowSchema that
            // lives until the call returns.
            let expected = unsafe { import_schema_ref(expected) }?;
            let columns = all_columns(file)?;
            let fields = columns.iter().map(|(_, column)| column.field.clone());
            expect_schema(&Schema::new(fields.collect::<Vec<_>>()), &expected)?;
        }
        let selection = request.selection;
        let selected = select(file, selection)?;
        // A selection without columns has the rows of the table.
        let all;
        let of_rows = if selected.columns.is_empty() && selected.unreadable.is_none() {
            all = all_columns(file)?;
            &all
        } else {
            &selected.columns
        };
        let rows = match &selected.unreadable {
            Some(error) => Err(error.clone()),
            None => common_rows(of_rows),
        };
        let memory_limit_bytes = context.host.session().map_or(0, |session| session.memory_limit_bytes);
        let row_bytes = selected.columns.iter().map(|(_, column)| column.shape.row_bytes() as u64);
        let row_bytes = row_bytes.fold(0, u64::saturating_add);
        let n_file_rows = rows.as_ref().ok().copied();
        let batches = rows.map(|rows| Batches::new(rows, row_bytes, selection, memory_limit_bytes));
        let n_rows = batches.as_ref().ok().map(Batches::n_rows);
        let fields: Vec<_> = selected.columns.iter().map(|(_, column)| column.field.clone()).collect();
        let is_deflated = |column: &Column| matches!(column.data, Data::Deflated { .. });
        let write_options = match selected.columns.iter().any(|(_, column)| is_deflated(column)) {
            true => Options::new().with("compression", "deflate"),
            false => Options::new(),
        };
        let columns = selected
            .columns
            .iter()
            .map(|(_, column)| Loading { column: Arc::new((*column).clone()), inflater: None });
        Ok(Self {
            name: name.to_owned(),
            context: context.clone(),
            source: Arc::new(source),
            schema: Arc::new(Schema::new(fields).with_metadata(file.metadata.clone())),
            columns: columns.collect(),
            batches,
            honoured: Honoured {
                columns: selected.is_honoured,
                rows: selection.rows.is_some(),
                n_rows,
                ..Honoured::default()
            },
            write_options,
            checks_stored: checks_crc && n_rows == n_file_rows,
            bytes_done: 0,
        })
    }

    fn next_batch(&mut self, call: &Call<'_>) -> Result<Option<DeviceBatch>> {
        call.check_cancelled()?;
        let Some(rows) = self.batches.as_mut().map_err(|error| error.clone())?.next(call.byte_budget())
        else {
            return Ok(None);
        };
        let stream = call_stream(&self.context.memory, call, call.device())?;
        let Context { memory, loader, tasks, .. } = &self.context;
        let target = Target { call, memory, loader, tasks, file: &self.source, stream: &stream };
        if std::mem::take(&mut self.checks_stored) {
            check_stored(&target, &self.columns)?;
        }
        let arrays = load(&target, &mut self.columns, &rows)?;
        self.report(call, &rows);
        let len = usize::try_from(rows.end - rows.start)
            .map_err(|_| Error::out_of_memory("a batch has too many rows"))?;
        DeviceBatch::try_new(self.schema.clone(), len, arrays)?.with_default_device(call.device()).map(Some)
    }

    fn report(&mut self, call: &Call<'_>, rows: &Range<u64>) {
        let row_bytes: u64 = self.columns.iter().map(|loading| loading.column.shape.row_bytes() as u64).sum();
        self.bytes_done += (rows.end - rows.start) * row_bytes;
        call.progress(self.bytes_done, self.honoured.n_rows.unwrap_or(0) * row_bytes);
    }
}

impl BatchStream for Reader {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let batch = self.next_batch(call);
        let batch = batch.map_err(|error| error.context(format_args!("'{}'", self.name)))?;
        let Some(batch) = batch else { return Ok(None) };
        let stream = call_stream(&self.context.memory, call, batch.device())?;
        export_batch(&batch, false, &stream).map(Some)
    }

    fn honoured(&self) -> Honoured {
        self.honoured
    }

    fn write_options(&self) -> Options {
        self.write_options.clone()
    }
}

/// All tensors as columns.
fn all_columns(file: &File) -> Result<Vec<(&str, &Column)>> {
    file.tensors.iter().map(|tensor| Ok((tensor.name.as_str(), tensor.column()?))).collect()
}

/// The columns of a request. The result has the order of the file.
///
/// If a path is not the name of a tensor, the columns are not honoured: the host finds names that
/// contain dots in the schema, and repeats the request, or reports that the column does not exist.
/// So the schema has all tensors that can be columns, and reading rows is an error if there are
/// others.
fn select<'a>(file: &'a File, selection: &Selection) -> Result<Selected<'a>> {
    let Some(paths) = &selection.columns else {
        return Ok(Selected { columns: all_columns(file)?, is_honoured: false, unreadable: None });
    };
    let indices: HashMap<&str, usize> =
        file.tensors.iter().enumerate().map(|(i, tensor)| (tensor.name.as_str(), i)).collect();
    let (mut chosen, mut is_honoured) = (vec![false; file.tensors.len()], true);
    for path in paths {
        let index = match path.as_slice() {
            [name] => indices.get(name.as_str()),
            names => {
                is_honoured = false;
                indices.get(names.join(".").as_str())
            }
        };
        let Some(index) = index.copied() else {
            is_honoured = false;
            continue;
        };
        if let (Some(chosen), Some(tensor)) = (chosen.get_mut(index), file.tensors.get(index)) {
            tensor.column()?;
            *chosen = true;
        }
    }
    let tensors = file.tensors.iter().zip(chosen).filter(|(_, chosen)| *chosen || !is_honoured);
    let columns =
        tensors.filter_map(|(tensor, _)| Some((tensor.name.as_str(), tensor.column.as_ref().ok()?)));
    let unreadable = file.tensors.iter().filter(|_| !is_honoured).find_map(|tensor| tensor.column().err());
    Ok(Selected { columns: columns.collect(), is_honoured, unreadable })
}
