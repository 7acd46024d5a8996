//! Lines, and texts in messages.

/// The number of characters of a text that a message shows.
const SHOWN: usize = 40;

/// The number of line ends: line feeds, and carriage returns without a line feed.
pub fn count_lines(text: &[u8]) -> u64 {
    let line_feeds = memchr::memchr_iter(b'\n', text).count();
    let lone = memchr::memchr_iter(b'\r', text).filter(|at| text.get(at + 1) != Some(&b'\n')).count();
    (line_feeds + lone) as u64
}

/// The text in quotes, with escaped control characters. The end of a long text is replaced by its
/// length.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => {
            let head = text.get(..end).unwrap_or_default();
            format!("{head:?}... ({} bytes)", text.len())
        }
    }
}

/// The text without quotes, with U+FFFD instead of control characters. The end of a long text
/// is left out.
pub fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short += "...";
    }
    short.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_line_feeds_and_lone_carriage_returns() {
        assert_eq!(count_lines(b"a\nb\r\nc\rd"), 3);
        assert_eq!(count_lines(b"\r"), 1);
        assert_eq!(count_lines(b""), 0);
    }

    #[test]
    fn shortens_long_texts() {
        assert_eq!(shortened("a\"\n"), r#""a\"\n""#);
        assert_eq!(shortened(&"é".repeat(41)), format!("\"{}\"... (82 bytes)", "é".repeat(40)));
    }
}
