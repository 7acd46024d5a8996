//! Iterates over the records of a chunk.

use crossdock_arrays::MAX_DEPTH;
use crossdock_plugin_api::Result;
use memchr::{memchr_iter, memchr2_iter};

use crate::chunks::Chunk;

/// The start of each line that has more than white space, and the line without its line feed.
pub fn records(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    let ends = memchr_iter(b'\n', text.as_bytes()).chain([text.len()]);
    let lines = ends.map(move |end| {
        let line = (start, text.get(start..end).unwrap_or_default());
        start = end + 1;
        line
    });
    lines.filter(|(_, line)| !line.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')))
}

/// Checks that no record nests too deeply, because messages about a value are created by recursion.
///
/// # Errors
/// Bad data with the line.
pub fn check_depth(chunk: &Chunk, start: usize, line: &str) -> Result<()> {
    // Most records have few brackets, so that most need no exact count.
    let opened = |max: usize| memchr2_iter(b'{', b'[', line.as_bytes()).nth(max).is_some();
    if opened(MAX_DEPTH) && depth(line) > MAX_DEPTH {
        return Err(chunk.error_at(start, format_args!("more than {MAX_DEPTH} levels of nested values")));
    }
    Ok(())
}

fn depth(line: &str) -> usize {
    let (mut depth, mut deepest, mut in_string) = (0usize, 0, false);
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if in_string => drop(bytes.next()),
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_no_records() {
        let found: Vec<_> = records("{}\r\n \t\r\n\n{\"a\":1}").collect();
        assert_eq!(found, [(0, "{}\r"), (9, "{\"a\":1}")]);
    }

    #[test]
    fn brackets_in_strings_are_not_nested() {
        assert_eq!(depth(r#"{"a": ["[[\"[", {}]}"#), 3);
    }
}
