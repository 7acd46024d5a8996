//! Tracks the dictionaries that are valid at the current position of a stream.

use std::collections::HashMap;

use arrow_schema::DataType;
use crossdock_arrays::{DeviceArray, by_value};
use crossdock_memory::{Result, Stream};
use crossdock_plugin_api::Error;

/// The dictionaries, which are found by their id.
pub struct Dictionaries {
    /// The parts of each dictionary that were received so far: the first batch and deltas. `get`
    /// concatenates them.
    parts: HashMap<i64, Vec<DeviceArray>>,
    /// Whether the input is a file. In a file, dictionaries must not be replaced.
    is_file: bool,
}

impl Dictionaries {
    /// Creates the state before the first dictionary.
    pub fn new(is_file: bool) -> Self {
        Self { parts: HashMap::new(), is_file }
    }

    /// Adds the values of a dictionary batch.
    pub fn put(&mut self, id: i64, is_delta: bool, values: DeviceArray) -> Result<()> {
        let parts = self.parts.entry(id).or_default();
        if !is_delta {
            if self.is_file && !parts.is_empty() {
                return Err(Error::bad_data(format!(
                    "dictionary {id} is replaced, which is allowed in a stream but not in a file"
                )));
            }
            parts.clear();
        }
        parts.push(values);
        Ok(())
    }

    /// Returns the current dictionary. If no batch of the dictionary was received, the result is an
    /// empty dictionary if `unused` is true, and an error otherwise.
    pub fn get(&mut self, id: i64, values: &DataType, stream: &Stream, unused: bool) -> Result<DeviceArray> {
        match self.parts.get_mut(&id).map(Vec::as_mut_slice) {
            None | Some([]) if unused => DeviceArray::empty(values),
            None | Some([]) => Err(Error::bad_data(format!(
                "dictionary {id} is used before its first batch (a file with later dictionaries can be read by its \
                 path, but not as a pipe)"
            ))),
            Some([dictionary]) => Ok(dictionary.clone()),
            Some(parts) => {
                let dictionary = by_value::concat(values, &parts.iter().collect::<Vec<_>>(), stream)
                    .map_err(|e| e.context(format_args!("dictionary {id}")))?;
                self.parts.insert(id, vec![dictionary.clone()]);
                Ok(dictionary)
            }
        }
    }
}
