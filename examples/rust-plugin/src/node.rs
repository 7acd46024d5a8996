//! What a node must look like. All of it comes from outside.

use std::ffi::CStr;

use crossdock_plugin_api::{EncodedNode, Result};

/// Of a schema's flags: there may be nulls. The number is Arrow's.
const ARROW_FLAG_NULLABLE: i64 = 2;

/// The types that have words, as Arrow's format strings, with the unsigned integers of the same width and its bytes.
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

/// A node of `example.xor` that fits.
pub struct XorNode {
    /// Values.
    pub len: usize,
    /// Bytes of one.
    pub width: usize,
    /// Bytes of all of them, and of the few before the first that [`crate::column`] may keep.
    pub bytes: usize,
    /// The reference words, one after the other, and from the first again where eight bytes have room.
    pattern: u64,
    n_references: usize,
}

impl XorNode {
    /// # Errors
    /// What does not fit, with the node's place in the tree.
    pub fn read(node: EncodedNode<'_>) -> Result<Self> {
        let (format, nullable) = type_of(node)?;
        let Some((_, unsigned, width)) = TYPES.iter().find(|(own, ..)| *own == format) else {
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
                "its metadata has {} bytes, expected a reference word of {width}, or so many in turn: a power of two, in 8 \
                 bytes at most",
                node.metadata().len()
            )));
        }
        if node.n_buffers() != 0 || node.n_children() != 1 {
            return Err(node.wrong(format_args!(
                "it has {} buffers and {} children, expected none and one",
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
            return Err(words.wrong("as words it has a type with nulls, expected one without"));
        }
        let mut pattern = [0; 8];
        pattern.iter_mut().zip(node.metadata().iter().cycle()).for_each(|(to, from)| *to = *from);
        let pattern = u64::from_le_bytes(pattern);
        let len = usize::try_from(node.length()).ok();
        let bytes = len.and_then(|len| len.checked_add(7)?.checked_mul(*width));
        let (Some(len), Some(bytes)) = (len, bytes.filter(|bytes| i64::try_from(*bytes).is_ok())) else {
            return Err(node.wrong(format_args!("{} values are more than there can be", node.length())));
        };
        Ok(Self { len, width: *width, bytes, pattern, n_references })
    }

    /// What eight bytes of words that begin `skip` words before the first are to be flipped with.
    pub fn pattern(&self, skip: usize) -> u64 {
        self.pattern.rotate_left((skip * self.width % 8 * 8) as u32)
    }

    /// The one reference word, where there is one.
    pub fn reference(&self) -> Option<u64> {
        (self.n_references == 1).then_some(self.pattern)
    }
}

/// A node's type as Arrow's format string says it, and whether it may have nulls.
fn type_of(node: EncodedNode<'_>) -> Result<(&str, bool)> {
    let schema = node.schema()?;
    if schema.format.is_null() || !schema.dictionary.is_null() {
        return Err(node.wrong("its type has no format, or a dictionary"));
    }
    // SAFETY: a schema's format is NUL-terminated and lives as long as the array.
    let format = unsafe { CStr::from_ptr(schema.format) };
    let format = format.to_str().map_err(|_| node.wrong("its type's format is no text"))?;
    Ok((format, schema.flags & ARROW_FLAG_NULLABLE != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_begins_where_the_words_do() {
        let of = |width, pattern| XorNode { len: 0, width, bytes: 0, pattern, n_references: 2 };
        assert_eq!(of(2, 0x1234_abcd_1234_abcd).pattern(0), 0x1234_abcd_1234_abcd);
        assert_eq!(of(2, 0x1234_abcd_1234_abcd).pattern(5), 0xabcd_1234_abcd_1234);
        assert_eq!(of(1, 0x0807_0605_0403_0201).pattern(3), 0x0504_0302_0108_0706);
        assert_eq!(of(8, 0x0807_0605_0403_0201).pattern(7), 0x0807_0605_0403_0201);
    }
}
