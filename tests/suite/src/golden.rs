//! Trees that Vortex itself made, some of each of its encodings, and what Vortex says that they hold: those that the tests in Python
//! keep (`tests/python/vortex/make_golden.py`).

use std::collections::HashMap;

use serde_json::Value;

/// Of the newest version.
static KEPT: &[u8] = include_bytes!("../../python/vortex/golden/0.91.0.zip");
/// Nobody here reads them yet.
const REFUSED: [&str; 3] = ["fastlanes.bitpacked.v2", "fastlanes.for.v2", "vortex.decimal_byte_parts.v2"];

/// A tree.
pub struct Golden {
    /// "vortex.fsst, utf8, no null, 37 rows": its encoding and what it holds, for messages.
    pub name: String,
    /// The tree's bytes, as files have them.
    pub tree: Vec<u8>,
    /// The values as a file of Arrow's: one column without a name.
    pub values: Vec<u8>,
}

impl Golden {
    /// The encoding that it was made for.
    pub fn encoding(&self) -> &str {
        self.name.split(", ").next().unwrap_or_default()
    }
}

/// All of them that are read here.
pub fn trees() -> Vec<Golden> {
    let mut files = unzipped(KEPT);
    let told: Value = serde_json::from_slice(&files["names.json"]).unwrap();
    let names = told["names"].as_array().unwrap().iter().enumerate();
    let of = |(i, name): (usize, &Value)| Golden {
        name: name.as_str().unwrap().to_owned(),
        tree: files.remove(&format!("{i}.cdenc")).unwrap(),
        values: files.remove(&format!("{i}.arrow")).unwrap(),
    };
    names.map(of).filter(|tree| !REFUSED.contains(&tree.encoding())).collect()
}

/// The last of few rows of each encoding: that is the one with nulls where there is one, and cut out of another.
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

/// The files of an archive, by their names.
fn unzipped(archive: &[u8]) -> HashMap<String, Vec<u8>> {
    const ENTRY: &[u8] = b"PK\x01\x02";
    const DEFLATED: usize = 8;
    let number = |at: usize, bytes: usize| {
        archive[at..at + bytes].iter().rev().fold(0usize, |number, byte| number << 8 | usize::from(*byte))
    };
    // At the end, without a comment, it says where the list of its files begins.
    let mut at = number(archive.len() - 6, 4);
    let mut files = HashMap::new();
    while archive[at..].starts_with(ENTRY) {
        let [name_bytes, extra_bytes, comment_bytes] = [28, 30, 32].map(|field| number(at + field, 2));
        let (deflated, bytes, place) = (number(at + 20, 4), number(at + 24, 4), number(at + 42, 4));
        let name = String::from_utf8(archive[at + 46..][..name_bytes].to_vec()).unwrap();
        let data = &archive[place + 30 + number(place + 26, 2) + number(place + 28, 2)..][..deflated];
        let file = match number(at + 10, 2) {
            DEFLATED => miniz_oxide::inflate::decompress_to_vec(data).expect("a deflated file"),
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
    fn there_is_a_tree_of_each_encoding_with_its_values() {
        let each = one_of_each();
        assert!(each.len() > 30, "{}", each.len());
        let encodings: std::collections::HashSet<_> =
            each.iter().map(|tree| tree.encoding().to_owned()).collect();
        assert_eq!(encodings.len(), each.len(), "they are not in the order of their encodings");
        for tree in trees() {
            assert!(tree.tree.starts_with(b"CDENC") && tree.values.starts_with(b"ARROW1"), "{}", tree.name);
        }
    }
}
