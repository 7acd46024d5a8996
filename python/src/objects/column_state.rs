//! The state of a column: a table, or a tensor that is converted at its first use.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossdock::Table;
use pyo3::PyResult;

use crate::dlpack::export::TensorCache;
use crate::dlpack::import_in_place::InPlace;
use crate::objects::session::Shared;
use crate::runtime::errors::{OrRaise, usage};

/// A table of one column, or an imported tensor. The tensor is converted into a table when the
/// table is first needed.
pub struct ColumnState {
    table: OnceLock<Table>,
    /// The tensor, until it is converted.
    tensor: Mutex<Option<InPlace>>,
    /// Exported tensors.
    pub tensor_cache: TensorCache,
    pub shared: Arc<Shared>,
}

impl ColumnState {
    pub fn from_table(table: Table, shared: Arc<Shared>) -> Self {
        Self { table: table.into(), tensor: Mutex::new(None), tensor_cache: TensorCache::default(), shared }
    }

    pub fn from_tensor(tensor: InPlace, shared: Arc<Shared>) -> Self {
        Self {
            table: OnceLock::new(),
            tensor: Mutex::new(Some(tensor)),
            tensor_cache: TensorCache::default(),
            shared,
        }
    }

    /// Returns the table.
    ///
    /// # Errors
    /// The tensor could not be converted. It is released then, and later calls fail too.
    pub fn table(&self) -> PyResult<&Table> {
        match self.table.get() {
            Some(table) => Ok(table),
            None => self.convert_tensor(),
        }
    }

    #[cold]
    fn convert_tensor(&self) -> PyResult<&Table> {
        let mut tensor = self.tensor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let in_place =
            tensor.take().ok_or_else(|| usage("the tensor of this column could not be converted"))?;
        let (owner, table) = in_place.into_table(&self.shared.session);
        let table = table.or_raise().map(|table| self.table.get_or_init(|| table));
        // If the conversion failed, dropping the owner calls the tensor's deleter, which may
        // release the interpreter's lock. Another thread may then acquire that lock and wait for
        // this mutex, so the mutex is unlocked first.
        drop(tensor);
        drop(owner);
        table
    }
}
