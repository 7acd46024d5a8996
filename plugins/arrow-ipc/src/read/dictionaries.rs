//! The dictionaries of a stream, as they stand at the current position.

use std::collections::HashMap;

use arrow_schema::DataType;
use crossdock_arrays::{DeviceArray, by_value};
use crossdock_memory::{Result, Stream};
use crossdock_plugin_api::Error;

/// Dictionaries by id.
pub struct Dictionaries {
    /// Each in the parts that came so far; they are joined when somebody wants the whole.
    parts: HashMap<i64, Vec<DeviceArray>>,
    /// Whether replacing one is against the format.
    is_file: bool,
}

impl Dictionaries {
    /// None yet.
    pub fn new(is_file: bool) -> Self {
        Self { parts: HashMap::new(), is_file }
    }

    /// Takes the values of a dictionary batch.
    pub fn put(&mut self, id: i64, is_delta: bool, values: DeviceArray) -> Result<()> {
        let parts = self.parts.entry(id).or_default();
        if !is_delta {
            if self.is_file && !parts.is_empty() {
                return Err(Error::bad_data(format!(
                    "dictionary {id} is replaced, which only a stream may do, not a file"
                )));
            }
            parts.clear();
        }
        parts.push(values);
        Ok(())
    }

    /// The dictionary as it stands, whole. Where none came yet, that is no error as long as nothing points into it.
    pub fn get(&mut self, id: i64, values: &DataType, stream: &Stream, unused: bool) -> Result<DeviceArray> {
        match self.parts.get_mut(&id).map(Vec::as_mut_slice) {
            None | Some([]) if unused => DeviceArray::empty(values),
            None | Some([]) => Err(Error::bad_data(format!(
                "dictionary {id} is used before it comes (a file whose dictionaries come later is read by its footer, \
                 not as a pipe)"
            ))),
            Some([whole]) => Ok(whole.clone()),
            Some(several) => {
                let whole = by_value::concat(values, &several.iter().collect::<Vec<_>>(), stream)
                    .map_err(|e| e.context(format_args!("dictionary {id}")))?;
                self.parts.insert(id, vec![whole.clone()]);
                Ok(whole)
            }
        }
    }
}
