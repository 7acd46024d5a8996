//! Malformed inputs, and what a plugin may do with them.

use std::fmt::Display;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock::api::{BatchStreamHandle, CallSettings, Code, Device, Error, Format, Input, Result};
use crossdock_arrays::{Level, import_batch, import_schema, validate};

use super::case::{Check, failed};
use super::context::CaseContext;
use super::round_trip;
use super::subject::Subject;

/// A change that makes a well-formed struct malformed or unusual.
pub struct Malformation<T> {
    pub name: &'static str,
    /// Whether the plugin must return an error. Otherwise it may also read the input.
    pub must_fail: bool,
    pub change: T,
}

/// A change after which the plugin must return an error.
pub const fn invalid<T>(name: &'static str, change: T) -> Malformation<T> {
    Malformation { name, must_fail: true, change }
}

/// A change after which the plugin may read the input or return an error.
pub const fn unusual<T>(name: &'static str, change: T) -> Malformation<T> {
    Malformation { name, must_fail: false, change }
}

/// Reads an input to its end and validates the batches. `Some` describes an error in a batch or in
/// the schema.
///
/// # Errors
/// The plugin's own errors.
pub fn read_and_validate(
    context: &CaseContext,
    subject: &Subject,
    call: &CallSettings,
    format: &Format,
    expected_schema: Option<&SchemaRef>,
    input: Input,
) -> Result<Option<Error>> {
    let stream = round_trip::open(subject, call, format, input, expected_schema)?;
    drain_and_validate(context, subject, call, stream)
}

/// Reads a stream to its end, like [`read_and_validate`].
pub fn drain_and_validate(
    context: &CaseContext,
    subject: &Subject,
    call: &CallSettings,
    mut stream: BatchStreamHandle,
) -> Result<Option<Error>> {
    let schema: SchemaRef = match import_schema(&stream.schema()?) {
        Ok(schema) => Arc::new(schema),
        Err(error) => return Ok(Some(error)),
    };
    let memory = context.session(Device::CPU).map_err(round_trip::to_error)?.memory();
    while let Some(batch) = stream.next(call)? {
        let imported = import_batch(batch, &schema, memory);
        let valid = imported.and_then(|batch| validate(&batch, Level::Full, subject.stream()));
        if let Err(error) = valid {
            return Ok(Some(error));
        }
    }
    Ok(None)
}

/// Checks the result of [`read_and_validate`]: any error of the plugin is allowed except a panic.
pub fn judge(place: impl Display, result: Result<Option<Error>>, must_fail: bool) -> Check {
    match result {
        Ok(None) if must_fail => Err(failed(place, "an error", "success")),
        Ok(Some(error)) => Err(failed(place, "valid batches, or an error", error)),
        Err(error) if error.code() == Code::PANICKED => Err(failed(place, "an error", error)),
        _ => Ok(()),
    }
}
