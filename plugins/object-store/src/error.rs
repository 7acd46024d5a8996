//! Converts errors of requests.

use crossdock_plugin_api::Error;

/// An error and its sources in one line.
pub fn text_of(error: &dyn std::error::Error) -> String {
    const MAX_CHARS: usize = 600;
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

/// The object was replaced or modified after it was opened.
pub fn changed(uri: &str, expected: &str, got: &str) -> Error {
    Error::io(format!(
        "'{uri}' was changed while it was being read: expected the version {expected}, got {got}"
    ))
}

/// Describes the failure of a request for `uri`.
pub fn of_request(uri: &str, error: &object_store::Error) -> Error {
    use object_store::Error as Of;
    let text = text_of(error);
    match error {
        Of::NotFound { .. } => Error::io(format!("'{uri}' does not exist (status 404)")),
        Of::PermissionDenied { .. } => Error::io(format!(
            "'{uri}': the server denied access (status 403): expected valid credentials; it answered: {text}"
        )),
        Of::Unauthenticated { .. } => Error::io(format!(
            "'{uri}': the server accepts no request without valid credentials (status 401); it answered: {text}"
        )),
        Of::Precondition { .. } => {
            Error::io(format!("'{uri}' was changed while it was being read (status 412)"))
        }
        Of::NotSupported { .. } | Of::NotImplemented { .. } => Error::unsupported(format!(
            "'{uri}': the server ignores the header Range: expected the status 206; {text}"
        )),
        _ if text.contains("non-partial response") => Error::unsupported(format!(
            "'{uri}': the server ignores the header Range: expected the status 206; {text}"
        )),
        _ => Error::io(format!("'{uri}': {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::text_of;

    #[test]
    fn layers_are_joined_once_and_truncated() {
        #[derive(Debug)]
        struct Layer(&'static str, Option<Box<Layer>>);
        impl std::fmt::Display for Layer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl std::error::Error for Layer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                self.1.as_deref().map(|layer| layer as _)
            }
        }
        let inner = Layer("the\n reason\x1b[0m", None);
        assert_eq!(text_of(&Layer("what", Some(Box::new(inner)))), "what: the reason[0m");
        let twice = Layer("what: why", Some(Box::new(Layer("why", None))));
        assert_eq!(text_of(&twice), "what: why");
    }
}
