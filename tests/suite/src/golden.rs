//! Encoded arrays (trees) that Vortex wrote, and the values to which Vortex decodes the trees. The
//! archive has several trees for each encoding. `tests/python/vortex/make_golden.py` writes the
//! archive.

use std::collections::HashMap;

use serde_json::Value;

/// The archive of trees that the newest version of Vortex wrote.
static ARCHIVE: &[u8] = include_bytes!("../../python/vortex/golden/0.91.0.zip");
/// Encodings that Crossdock does not support yet.
const UNSUPPORTED: [&str; 3] = ["fastlanes.bitpacked.v2", "fastlanes.for.v2", "vortex.decimal_byte_parts.v2"];

/// A tree and its values.
pub struct Golden {
    /// The encoding and a description of the values, such as "vortex.fsst, utf8, no null, 37 rows".
    pub name: String,
    /// The tree as the bytes of a file.
    pub tree: Vec<u8>,
    /// The values as an Arrow IPC file with one unnamed column.
    pub values: Vec<u8>,
}

impl Golden {
    /// The id of the encoding that the tree is meant to test.
    pub fn encoding(&self) -> &str {
        self.name.split(", ").next().unwrap_or_default()
    }
}

/// All trees of supported encodings.
pub fn trees() -> Vec<Golden> {
    let mut files = unzipped(ARCHIVE);
    let index: Value = serde_json::from_slice(&files["names.json"]).unwrap();
    let names = index["names"].as_array().unwrap().iter().enumerate();
    let golden = |(i, name): (usize, &Value)| Golden {
        name: name.as_str().unwrap().to_owned(),
        tree: files.remove(&format!("{i}.cdenc")).unwrap(),
        values: files.remove(&format!("{i}.arrow")).unwrap(),
    };
    names.map(golden).filter(|tree| !UNSUPPORTED.contains(&tree.encoding())).collect()
}

/// One tree of each encoding: the last tree with 37 rows, or the first tree if none has 37 rows.
/// The tree is a slice with nulls if the encoding has such a tree.
pub fn one_of_each() -> Vec<Golden> {
    let mut each: Vec<Golden> = Vec::new();
    for tree in trees() {
        match each.last_mut().filter(|last| last.encoding() == tree.encoding()) {
            Some(last) if tree.name.contains(", 37 rows") => *last = tree,
            Some(_) => {}
            None => each.push(tree),
        }
    }
    each
}

/// The files of a ZIP archive, by name.
fn unzipped(archive: &[u8]) -> HashMap<String, Vec<u8>> {
    const ENTRY: &[u8] = b"PK\x01\x02";
    const DEFLATED: usize = 8;
    let number = |at: usize, bytes: usize| {
        archive[at..at + bytes].iter().rev().fold(0usize, |number, byte| number << 8 | usize::from(*byte))
    };
    // The end record states the offset of the central directory. The archives have no comment, so
    // the record has a fixed position.
    let mut at = number(archive.len() - 6, 4);
    let mut files = HashMap::new();
    while archive[at..].starts_with(ENTRY) {
        let [name_bytes, extra_bytes, comment_bytes] = [28, 30, 32].map(|field| number(at + field, 2));
        let (deflated, bytes, place) = (number(at + 20, 4), number(at + 24, 4), number(at + 42, 4));
        let name = String::from_utf8(archive[at + 46..][..name_bytes].to_vec()).unwrap();
        let data = &archive[place + 30 + number(place + 26, 2) + number(place + 28, 2)..][..deflated];
        let file = match number(at + 10, 2) {
            DEFLATED => miniz_oxide::inflate::decompress_to_vec(data).expect("valid deflated data"),
            _ => data.to_vec(),
        };
        assert_eq!(file.len(), bytes, "{name}");
        files.insert(name, file);
        at += 46 + name_bytes + extra_bytes + comment_bytes;
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_has_a_golden_tree_with_expected_values() {
        let each = one_of_each();
        assert!(each.len() > 30, "{}", each.len());
        let encodings: std::collections::HashSet<_> =
            each.iter().map(|tree| tree.encoding().to_owned()).collect();
        assert_eq!(encodings.len(), each.len(), "the trees are not sorted by encoding");
        for tree in trees() {
            assert!(tree.tree.starts_with(b"CDENC") && tree.values.starts_with(b"ARROW1"), "{}", tree.name);
        }
    }
}
