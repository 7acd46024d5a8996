//! Formats numbers and tables for people.

use crossdock::printable;

/// Formats a number of bytes with a binary unit, for example "1.5 GiB" or "12 B".
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Formats a number with thousands separators, for example "1,234,567".
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a duration in seconds or milliseconds, for example "1.20 s" or "35.1 ms".
pub fn time(time: std::time::Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.2} ms", seconds * 1e3) }
}

/// A table with a heading. The columns named in `right` are right-aligned.
pub fn table(heading: &[&str], rows: &[Vec<String>], right: &[&str]) -> String {
    let cells = |i: usize| rows.iter().filter_map(move |row| row.get(i)).map(|cell| cell.chars().count());
    let widths: Vec<usize> =
        heading.iter().enumerate().map(|(i, name)| cells(i).max().unwrap_or(0).max(name.len())).collect();
    let line = |row: &[String]| {
        let cell = |(i, text): (usize, &String)| {
            let width = widths.get(i).copied().unwrap_or(0);
            let text = printable(text);
            match heading.get(i) {
                Some(name) if right.contains(name) => format!("{text:>width$}"),
                _ => format!("{text:<width$}"),
            }
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    let head: Vec<String> = heading.iter().map(|name| name.to_string()).collect();
    std::iter::once(line(&head)).chain(rows.iter().map(|row| line(row))).collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_counts_and_bytes() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(count)[..]);
        assert_eq!(["1023 B", "1.0 KiB", "1.5 MiB"], [1023, 1024, 3 << 19].map(bytes)[..]);
    }

    #[test]
    fn table_aligns_names_left_and_numbers_right() {
        let rows = [vec!["read".to_string(), "7".to_string()], vec!["w".to_string(), "1,234".to_string()]];
        assert_eq!(table(&["stage", "rows"], &rows, &["rows"]), "stage   rows\nread       7\nw      1,234\n");
    }
}
