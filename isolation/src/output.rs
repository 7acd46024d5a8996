//! What a plugin's process writes on its standard output and error, on its way to this one's standard error.

use std::io::{Read, Write};

/// More of one process is dropped: a plugin could fill a disk with it.
const MAX_BYTES: usize = 1 << 20;
/// A line that is longer comes in parts.
const LINE_BYTES: usize = 4096;

/// Passes on what comes until its end, line by line, without what a terminal would obey, and no more than [`MAX_BYTES`] of it.
pub fn pass_on(mut from: impl Read, to: &mut impl Write, who: &str) {
    let (mut line, mut piece, mut left) = (Vec::new(), [0; LINE_BYTES], MAX_BYTES);
    while let Some(n) = read(&mut from, &mut piece) {
        for byte in &piece[..n] {
            line.push(*byte);
            if *byte == b'\n' || line.len() >= LINE_BYTES {
                say(&mut line, &mut left, to, who);
            }
        }
    }
    say(&mut line, &mut left, to, who);
}

/// How many bytes came; `None` at the end, and where there is nothing more to be had.
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

fn say(line: &mut Vec<u8>, left: &mut usize, to: &mut impl Write, who: &str) {
    let bytes = std::mem::take(line);
    if bytes.is_empty() || *left == 0 {
        return;
    }
    *left = left.saturating_sub(bytes.len());
    let mut text: String = String::from_utf8_lossy(&bytes).chars().map(harmless).collect();
    if *left == 0 {
        text += &format!("\nthe process of '{who}' wrote more than {MAX_BYTES} bytes: the rest is dropped\n");
    }
    // If standard error is closed, there is no place to report it.
    let _ = to.write_all(text.as_bytes());
}

/// Terminals obey control characters, and writing directions make a line read otherwise than it is.
fn harmless(letter: char) -> char {
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

    fn passed_on(bytes: &[u8]) -> String {
        let mut to = Vec::new();
        pass_on(bytes, &mut to, "x.so");
        String::from_utf8(to).unwrap_or_default()
    }

    #[test]
    fn what_a_terminal_would_obey_is_taken_out() {
        assert_eq!(passed_on(b"a\x1b[2J\x1b]0;title\x07\r\nb\tc\n"), "a?[2J?]0;title??\nb\tc\n");
        assert_eq!(passed_on("a\u{9b}2J \u{202e}é\n".as_bytes()), "a?2J ?é\n");
        assert_eq!(passed_on(b"no end, \xff"), "no end, \u{fffd}");
    }

    #[test]
    fn no_more_than_a_mebibyte_is_passed_on_and_that_is_said() {
        let text = passed_on(&b"0123456789abcde\n".repeat(MAX_BYTES / 8));
        let last = "the process of 'x.so' wrote more than 1048576 bytes: the rest is dropped\n";
        assert!(text.ends_with(last) && text.len() <= MAX_BYTES + 2 * LINE_BYTES, "{}", text.len());
        assert_eq!(passed_on(&vec![b'x'; 3 * LINE_BYTES]).len(), 3 * LINE_BYTES);
    }
}
