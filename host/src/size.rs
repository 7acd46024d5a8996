//! Parses sizes with units.

/// Parses a number of bytes such as "512MiB", "2GB" or "1000".
///
/// # Errors
/// The error describes what was expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 13] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("K", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("B", 1),
    ];
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1));
    let number: u64 = number.trim().parse().map_err(|_| "expected a size like 512MiB or 2GB".to_string())?;
    number
        .checked_mul(factor)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "expected a size from 1 to 2^64 - 1 bytes".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_binary_and_decimal_units() {
        for (text, expected) in
            [("1", 1), ("512MiB", 512 << 20), ("2GB", 2_000_000_000), ("3 KiB", 3072), ("4G", 4 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "much", "0", "-1", "1.5GB", "99999999999TiB", "GB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
