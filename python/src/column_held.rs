//! What a column holds.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossdock::Table;
use pyo3::PyResult;

use crate::dlpack_in_place::InPlace;
use crate::dlpack_out::Lent;
use crate::errors::{OrRaise, usage};
use crate::session::Shared;

/// A table of one column, which a tensor becomes when somebody looks at it.
pub struct Held {
    table: OnceLock<Table>,
    /// Until then.
    tensor: Mutex<Option<InPlace>>,
    /// What is kept for giving it as a tensor.
    pub lent: Lent,
    pub shared: Arc<Shared>,
}

impl Held {
    pub fn of_table(table: Table, shared: Arc<Shared>) -> Self {
        Self { table: table.into(), tensor: Mutex::new(None), lent: Lent::default(), shared }
    }

    pub fn of_tensor(tensor: InPlace, shared: Arc<Shared>) -> Self {
        Self { table: OnceLock::new(), tensor: Mutex::new(Some(tensor)), lent: Lent::default(), shared }
    }

    /// The table.
    ///
    /// # Errors
    /// A tensor's could not be made; it is gone then.
    pub fn table(&self) -> PyResult<&Table> {
        match self.table.get() {
            Some(table) => Ok(table),
            None => self.of_its_tensor(),
        }
    }

    #[cold]
    fn of_its_tensor(&self) -> PyResult<&Table> {
        let mut tensor = self.tensor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let whole = tensor.take().ok_or_else(|| usage("its tensor could not be made a column"))?;
        let (owner, table) = whole.into_table(&self.shared.session);
        let table = table.or_raise().map(|table| self.table.get_or_init(|| table));
        // The tensor's deleter, which runs here where that has failed, may give way to threads that want this lock.
        drop(tensor);
        drop(owner);
        table
    }
}
