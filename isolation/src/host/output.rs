//! Forwards the standard output and error of a plugin's process to the host's standard error.

use std::io::{Read, Write};

/// Output of the process after this many bytes is dropped, so that a plugin cannot fill a disk.
const MAX_BYTES: usize = 1 << 20;
/// The maximum length of a forwarded line. A longer line is split.
const MAX_LINE_BYTES: usize = 4096;

/// Forwards the first [`MAX_BYTES`] of the output, line by line. Replaces characters that control a
/// terminal.
pub fn forward_output(mut from: impl Read, to: &mut impl Write, plugin: &str) {
    let (mut line, mut piece, mut remaining) = (Vec::new(), [0; MAX_LINE_BYTES], MAX_BYTES);
    while let Some(n) = read(&mut from, &mut piece) {
        for byte in &piece[..n] {
            line.push(*byte);
            if *byte == b'\n' || line.len() >= MAX_LINE_BYTES {
                write_line(&mut line, &mut remaining, to, plugin);
            }
        }
    }
    write_line(&mut line, &mut remaining, to, plugin);
}

/// Reads bytes into `piece`. Returns their number, or `None` at the end and after an error.
fn read(from: &mut impl Read, piece: &mut [u8]) -> Option<usize> {
    loop {
        match from.read(piece) {
            Ok(0) => return None,
            Ok(n) => return Some(n),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

fn write_line(line: &mut Vec<u8>, remaining: &mut usize, to: &mut impl Write, plugin: &str) {
    let bytes = std::mem::take(line);
    if bytes.is_empty() || *remaining == 0 {
        return;
    }
    *remaining = remaining.saturating_sub(bytes.len());
    let mut text: String = String::from_utf8_lossy(&bytes).chars().map(printable).collect();
    if *remaining == 0 {
        text +=
            &format!("\nthe process of '{plugin}' wrote more than {MAX_BYTES} bytes: the rest is dropped\n");
    }
    // If standard error is closed, the error cannot be reported.
    let _ = to.write_all(text.as_bytes());
}

/// Replaces control characters and characters that change the writing direction. With such
/// characters, a line looks different from its contents.
fn printable(letter: char) -> char {
    match letter {
        '\n' | '\t' => letter,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        _ if letter.is_control() => '?',
        _ => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(bytes: &[u8]) -> String {
        let mut to = Vec::new();
        forward_output(bytes, &mut to, "x.so");
        String::from_utf8(to).unwrap_or_default()
    }

    #[test]
    fn replaces_characters_that_control_a_terminal() {
        assert_eq!(forwarded(b"a\x1b[2J\x1b]0;title\x07\r\nb\tc\n"), "a?[2J?]0;title??\nb\tc\n");
        assert_eq!(forwarded("a\u{9b}2J \u{202e}é\n".as_bytes()), "a?2J ?é\n");
        assert_eq!(forwarded(b"no end, \xff"), "no end, \u{fffd}");
    }

    #[test]
    fn reports_and_drops_output_beyond_the_limit() {
        let text = forwarded(&b"0123456789abcde\n".repeat(MAX_BYTES / 8));
        let last = "the process of 'x.so' wrote more than 1048576 bytes: the rest is dropped\n";
        assert!(text.ends_with(last) && text.len() <= MAX_BYTES + 2 * MAX_LINE_BYTES, "{}", text.len());
        assert_eq!(forwarded(&vec![b'x'; 3 * MAX_LINE_BYTES]).len(), 3 * MAX_LINE_BYTES);
    }
}
