//! Converts errors of the host to errors of the plugin interface.

use crossdock_plugin_api::{Code, Error};

use crate::error::Error as HostError;
use crate::metadata::MetadataError;
use crate::refusal::{Refusal, Refused};

impl From<HostError> for Error {
    /// The message is one line with the texts of all layers of the error. The code is taken from
    /// the innermost layer that has a code, and the details from the plugin's error.
    fn from(error: HostError) -> Self {
        let line = error.one_line();
        match &error {
            HostError::Usage(_) => Error::invalid_argument(line),
            HostError::Unrecognised(_) | HostError::Policy(_) => Error::unsupported(line),
            HostError::Refused(refused) => from_refusal(refused, line),
            HostError::Plugin { source, .. }
            | HostError::Data { source, .. }
            | HostError::Device { source, .. } => {
                let error = Error::new(source.code(), line).with_position_of(source);
                match source.details() {
                    Some(details) => error.with_details(details),
                    None => error,
                }
            }
            HostError::Io { .. } => Error::io(line),
            HostError::Cancelled => Error::cancelled(line),
        }
    }
}

fn from_refusal(refused: &Refused, line: String) -> Error {
    let code = match &refused.reason {
        Refusal::Missing | Refusal::Unreadable(_) | Refusal::Copy(_) => Code::IO,
        Refusal::AbiVersion { .. }
        | Refusal::AbiRange { .. }
        | Refusal::MissingInterface(_)
        | Refusal::StructSizes(_)
        | Refusal::Glibc { .. } => Code::VERSION,
        Refusal::Metadata(MetadataError::Damaged(_) | MetadataError::Bad(_))
        | Refusal::NoEntry
        | Refusal::BadEntry(_) => Code::BAD_DATA,
        Refusal::Create(error) => error.code(),
        // The file is readable but must not be loaded because of its kind, its owner, the policy or
        // its precedence.
        _ => Code::UNSUPPORTED,
    };
    let details = match &refused.reason {
        Refusal::Create(error) if error.details().is_some() => {
            format!("refused: {}\n{}", refused.reason.id(), error.details().unwrap_or_default())
        }
        reason => format!("refused: {}", reason.id()),
    };
    let error = Error::new(code, line).with_details(details);
    match &refused.reason {
        Refusal::Create(cause) => error.with_position_of(cause),
        _ => error,
    }
}
