//! Checks nodes, which are untrusted input.

use std::ffi::CStr;

use crossdock_plugin_api::{EncodedNode, Result};

/// Arrow's schema flag for nullable fields.
const ARROW_FLAG_NULLABLE: i64 = 2;

/// For each supported type: Arrow's format string, the format string of the unsigned type of the
/// same width, and the width in bytes.
const TYPES: &[(&str, &str, usize)] = &[
    ("c", "C", 1),
    ("C", "C", 1),
    ("s", "S", 2),
    ("S", "S", 2),
    ("e", "S", 2),
    ("i", "I", 4),
    ("I", "I", 4),
    ("f", "I", 4),
    ("l", "L", 8),
    ("L", "L", 8),
    ("g", "L", 8),
];

/// A valid `example.xor` node.
pub struct XorNode {
    /// Bytes per value.
    pub width: usize,
    /// The reference words, repeated to eight bytes.
    pattern: u64,
    n_references: usize,
}

impl XorNode {
    /// # Errors
    /// The node is malformed. The message contains the node's path in the tree.
    pub fn read(node: EncodedNode<'_>) -> Result<Self> {
        let (format, nullable) = type_of(node)?;
        let Some((_, unsigned, width)) = TYPES.iter().find(|(known, ..)| *known == format) else {
            return Err(node.wrong(format_args!(
                "its type has the format '{format}', expected an integer or a float of 8 to 64 bits"
            )));
        };
        let n_references = node.metadata().len() / width;
        if !node.metadata().len().is_multiple_of(*width)
            || ![1, 2, 4, 8].contains(&n_references)
            || n_references > 8 / width
        {
            return Err(node.wrong(format_args!(
                "its metadata has {} bytes, expected 1, 2, 4 or 8 reference words of {width} bytes, at most 8 bytes in total",
                node.metadata().len()
            )));
        }
        if node.n_buffers() != 0 || node.n_children() != 1 {
            return Err(node.wrong(format_args!(
                "it has {} buffers and {} children, expected 0 and 1",
                node.n_buffers(),
                node.n_children()
            )));
        }
        let words = node.child(0)?;
        let (of_words, nullable_words) = type_of(words)?;
        if of_words != *unsigned || words.length() != node.length() {
            return Err(words.wrong(format_args!(
                "as words it has {} values of format '{of_words}', expected {} of '{unsigned}'",
                words.length(),
                node.length()
            )));
        }
        if nullable_words && !nullable {
            return Err(words.wrong("as words it has a nullable type, expected a non-nullable one"));
        }
        let mut pattern = [0; 8];
        pattern.iter_mut().zip(node.metadata().iter().cycle()).for_each(|(to, from)| *to = *from);
        let pattern = u64::from_le_bytes(pattern);
        let xor = Self { width: *width, pattern, n_references };
        if i64::try_from(xor.max_bytes(node.length())).is_err() {
            return Err(node.wrong(format_args!("its length, {}, overflows an address", node.length())));
        }
        Ok(xor)
    }

    /// Maximum size in bytes of the buffer of `n` values. It includes up to 7 values before the
    /// first value, which [`crate::column`] may keep.
    pub fn max_bytes(&self, n: u64) -> u64 {
        n.saturating_add(7).saturating_mul(self.width as u64)
    }

    /// The pattern for a sequence of words that begins `skip` words before row `row` of the node.
    pub fn pattern(&self, skip: usize, row: u64) -> u64 {
        let words = 8 / self.width as u64;
        let back = (skip as u64 + words - row % words) % words;
        self.pattern.rotate_left(back as u32 * self.width as u32 * 8)
    }

    /// The reference word, if there is only one.
    pub fn reference(&self) -> Option<u64> {
        (self.n_references == 1).then_some(self.pattern)
    }
}

/// A node's type as Arrow's format string, and whether it is nullable.
fn type_of(node: EncodedNode<'_>) -> Result<(&str, bool)> {
    let schema = node.schema()?;
    if schema.format.is_null() || !schema.dictionary.is_null() {
        return Err(node.wrong("its type has no format, or a dictionary"));
    }
    // SAFETY: the format is non-NULL (checked above), NUL-terminated, and lives as long as the
    // array.
    let format = unsafe { CStr::from_ptr(schema.format) };
    let format = format.to_str().map_err(|_| node.wrong("the format of its type is not UTF-8"))?;
    Ok((format, schema.flags & ARROW_FLAG_NULLABLE != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_words_rotates_the_pattern() {
        let of = |width, pattern| XorNode { width, pattern, n_references: 2 };
        assert_eq!(of(2, 0x1234_abcd_1234_abcd).pattern(0, 0), 0x1234_abcd_1234_abcd);
        assert_eq!(of(2, 0x1234_abcd_1234_abcd).pattern(5, 0), 0xabcd_1234_abcd_1234);
        assert_eq!(of(1, 0x0807_0605_0403_0201).pattern(3, 0), 0x0504_0302_0108_0706);
        assert_eq!(of(8, 0x0807_0605_0403_0201).pattern(7, 0), 0x0807_0605_0403_0201);
        assert_eq!(of(2, 0x1234_abcd_1234_abcd).pattern(0, 1), 0xabcd_1234_abcd_1234);
        assert_eq!(of(1, 0x0807_0605_0403_0201).pattern(2, 10), 0x0807_0605_0403_0201);
        assert_eq!(of(1, 0x0807_0605_0403_0201).pattern(0, 9), 0x0108_0706_0504_0302);
    }
}
