//! Converts errors of the crate `vortex`.

use crossdock_plugin_api::Error;
use vortex::error::VortexError;

/// The maximum number of characters of a message.
const MAX_CHARS: usize = 600;

/// The message of an error in one line, without the backtrace that the crate adds.
pub fn text_of(error: &VortexError) -> String {
    one_line(&error.to_string())
}

fn one_line(text: &str) -> String {
    let message = text.split("Backtrace:").next().unwrap_or(text);
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

/// An error of the writer, which has accepted the types of all columns.
pub fn of_writer(error: &VortexError) -> Error {
    Error::internal(format!("the crate vortex cannot write the batch: {}", text_of(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_one_line_without_a_backtrace() {
        assert_eq!(one_line("Other error: a\n  b\u{7}\nBacktrace:\n 0: main"), "Other error: a b");
        assert_eq!(one_line(&"a".repeat(1000)).len(), MAX_CHARS);
    }
}
