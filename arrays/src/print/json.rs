//! Formats values as JSON (RFC 8259).

use std::fmt::Write as _;

use arrow_schema::DataType;

use super::value::scalar;
use crate::host::{Value, integer};

/// Appends a value. Numbers are JSON numbers, except decimals and floats that are not finite, which
/// are strings. Dates, times and durations are strings in the form of the text output. Binary
/// values are strings of hexadecimal digits.
pub(super) fn append(text: &mut String, value: &Value<'_>) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(truth) => text.push_str(if *truth { "true" } else { "false" }),
        Value::Bytes(array, bytes) => append_scalar(text, array.data_type(), bytes),
        Value::List(child, range) => {
            text.push('[');
            for (n, i) in range.clone().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                append(text, &child.value(i));
            }
            text.push(']');
        }
        Value::Struct(array, row) => {
            text.push('{');
            for (n, (name, child)) in array.child_names().zip(array.children()).enumerate() {
                if n > 0 {
                    text.push(',');
                }
                append_string(text, name);
                text.push(':');
                append(text, &child.value(*row));
            }
            text.push('}');
        }
        Value::Union(child, _, row) => append(text, &child.value(*row)),
        Value::Malformed => append_string(text, "(malformed)"),
    }
}

fn append_scalar(text: &mut String, data_type: &DataType, bytes: &[u8]) {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            append_string(text, &String::from_utf8_lossy(bytes));
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            text.push('"');
            bytes.iter().for_each(|byte| {
                let _ = write!(text, "{byte:02x}");
            });
            text.push('"');
        }
        other if other.is_integer() => {
            let number = integer(bytes, 0, bytes.len(), other.is_signed_integer()).unwrap_or(0);
            let _ = write!(text, "{number}");
        }
        other => {
            let shown = scalar(data_type, bytes);
            // The text of a finite float is a JSON number.
            let is_number = other.is_floating() && shown.parse::<f64>().is_ok_and(f64::is_finite);
            if is_number { text.push_str(&shown) } else { append_string(text, &shown) }
        }
    }
}

/// Appends a string in quotation marks.
pub(super) fn append_string(text: &mut String, string: &str) {
    text.push('"');
    for letter in string.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            letter if letter.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(letter));
            }
            letter => text.push(letter),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_quotation_marks_backslashes_and_control_characters() {
        let mut text = String::new();
        append_string(&mut text, "a\"b\\c\nd\u{1}é");
        assert_eq!(text, r#""a\"b\\c\nd\u0001é""#);
    }
}
