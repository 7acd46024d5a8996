//! What contradicts itself, and what a plugin makes of it.

use std::fmt::Display;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock::api::{CallSettings, Code, Device, Error, Format, Input, Result};
use crossdock_arrays::{Level, import_batch, import_schema, validate};

use super::case::{Check, failed};
use super::subject::{Ground, Subject};
use super::tour;

/// What a struct says of itself that is not so.
pub struct Lie<T> {
    pub name: &'static str,
    /// Whether nothing can be made of it. Else it may be something that a plugin reads, or has no use for.
    pub is_nonsense: bool,
    pub tell: T,
}

pub const fn nonsense<T>(name: &'static str, tell: T) -> Lie<T> {
    Lie { name, is_nonsense: true, tell }
}

pub const fn unusual<T>(name: &'static str, tell: T) -> Lie<T> {
    Lie { name, is_nonsense: false, tell }
}

/// What is wrong with what the plugin makes of an input, if anything is. Its own errors are errors.
pub fn looked_through(
    ground: &Ground,
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    asked: Option<&SchemaRef>,
    input: Input,
) -> Result<Option<Error>> {
    let mut stream = tour::open(subject, call, format, input, asked)?;
    let schema: SchemaRef = match import_schema(&stream.schema()?) {
        Ok(schema) => Arc::new(schema),
        Err(error) => return Ok(Some(error)),
    };
    let memory = ground.session(Device::CPU).map_err(tour::lost)?.memory();
    while let Some(batch) = stream.next(call)? {
        let imported = import_batch(batch, &schema, memory);
        let valid = imported.and_then(|batch| validate(&batch, Level::Full, subject.stream()));
        if let Err(error) = valid {
            return Ok(Some(error));
        }
    }
    Ok(None)
}

/// An error of the plugin's is an answer, but for a panic. To nonsense it is the only one.
pub fn judge(place: impl Display, made: Result<Option<Error>>, is_nonsense: bool) -> Check {
    match made {
        Ok(None) if is_nonsense => Err(failed(place, "an error", "success")),
        Ok(Some(error)) => Err(failed(place, "batches that keep the specification, or an error", error)),
        Err(error) if error.code() == Code::PANICKED => Err(failed(place, "an error", error)),
        _ => Ok(()),
    }
}
