//! Finds the files of paths and patterns.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crossdock::Error;

use crate::options::is_standard;
use crate::output::Failure;

/// Replaces each pattern by its files, ordered by their paths. A path that does not exist and
/// contains '*', '?' or '[' is a pattern.
///
/// # Errors
/// No file matches a pattern, or standard input is one of several inputs.
pub fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let is_pattern = path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte));
        if !is_pattern || path.symlink_metadata().is_ok() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        let parts: Vec<_> = path.components().collect();
        find(PathBuf::new(), &parts, &mut found);
        found.sort();
        found.dedup();
        if found.is_empty() {
            return Err(Error::Usage(format!("'{}': no file matches the pattern", path.display())).into());
        }
        files.extend(found);
    }
    if files.len() > 1 && files.iter().any(|file| is_standard(file)) {
        return Err(Error::Usage("'-': standard input can only be the only input".into()).into());
    }
    Ok(files)
}

/// Adds the files in `folder` that match the remaining parts of a pattern. A folder that cannot be
/// read contains no files.
fn find(folder: PathBuf, parts: &[Component<'_>], found: &mut Vec<PathBuf>) {
    let Some((part, rest)) = parts.split_first() else {
        if folder.is_file() {
            found.push(folder);
        }
        return;
    };
    let pattern = match part {
        Component::Normal(name) if name.as_bytes().iter().any(|byte| b"*?[".contains(byte)) => *name,
        other => return find(folder.join(other), rest, found),
    };
    let any_folders = pattern == "**";
    if any_folders {
        find(folder.clone(), rest, found);
    }
    for name in names_in(&folder) {
        let path = folder.join(&name);
        // A name that begins with '.' is hidden, unless the pattern begins with '.' too.
        let is_hidden = name.as_bytes().starts_with(b".") && !pattern.as_bytes().starts_with(b".");
        if is_hidden {
            continue;
        }
        if any_folders {
            if path.is_dir() && !path.is_symlink() {
                find(path, parts, found);
            }
        } else if matches(pattern.as_bytes(), name.as_bytes()) {
            find(path, rest, found);
        }
    }
}

fn names_in(folder: &Path) -> Vec<OsString> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect()
}

/// Whether a name matches a pattern: '*' stands for any bytes, '?' for one byte, '[a-z]' for one of
/// these bytes, and '[!a-z]' for another one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            (0..=name.len()).any(|n| name.get(n..).is_some_and(|name| matches(rest, name)))
        }
        (Some((b'?', rest)), Some((_, name))) => matches(rest, name),
        (Some((b'[', rest)), Some((byte, name))) => match set(rest) {
            Some((set, rest)) => contains(set, *byte) && matches(rest, name),
            None => *byte == b'[' && matches(rest, name),
        },
        (Some((letter, rest)), Some((byte, name))) => letter == byte && matches(rest, name),
        _ => false,
    }
}

/// The bytes before the ']' that ends a set, and the bytes after it.
fn set(pattern: &[u8]) -> Option<(&[u8], &[u8])> {
    // A ']' at the beginning is part of the set.
    let first = usize::from(pattern.starts_with(b"!")) + 1;
    let end = first + pattern.get(first..)?.iter().position(|byte| *byte == b']')?;
    Some((pattern.get(..end)?, pattern.get(end + 1..)?))
}

fn contains(set: &[u8], byte: u8) -> bool {
    let (is_negated, mut set) = match set.strip_prefix(b"!") {
        Some(set) => (true, set),
        None => (false, set),
    };
    let mut is_in = false;
    while let Some((first, rest)) = set.split_first() {
        (is_in, set) = match rest {
            [b'-', last, rest @ ..] => (is_in || (*first..=*last).contains(&byte), rest),
            _ => (is_in || *first == byte, rest),
        };
    }
    is_in != is_negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_patterns() {
        for (pattern, name, expected) in [
            ("*.arrow", "a.arrow", true),
            ("*.arrow", ".arrow", true),
            ("*.arrow", "a.arrows", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXc", false),
            ("[a-c]1", "b1", true),
            ("[!a-c]1", "b1", false),
            ("[!a-c]1", "d1", true),
            ("[]x]", "]", true),
            ("a[", "a[", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn pattern_stands_for_its_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("sub/deep")).unwrap();
        for name in ["b.x", "a.x", "c.y", ".h.x", "[1].x", "sub/d.x", "sub/deep/e.x"] {
            std::fs::write(at(name), "").unwrap();
        }
        let expand = |patterns: &[&str]| {
            let paths: Vec<_> = patterns.iter().map(|name| at(name)).collect();
            super::expand(&paths).map_err(|_| ())
        };
        assert_eq!(expand(&["[ab].x"]), Ok(vec![at("a.x"), at("b.x")]));
        assert_eq!(expand(&["c.y", "*.x"]), Ok(vec![at("c.y"), at("[1].x"), at("a.x"), at("b.x")]));
        assert_eq!(expand(&["**/*.x"]).unwrap().len(), 5);
        assert_eq!(expand(&["sub/**/e.x"]), Ok(vec![at("sub/deep/e.x")]));
        // An existing path is not a pattern, and a path that is not a pattern need not exist.
        assert_eq!(expand(&["[1].x", "missing"]), Ok(vec![at("[1].x"), at("missing")]));
        assert_eq!(expand(&["*.z"]), Err(()));
        let several = [PathBuf::from("-"), at("a.x")];
        assert!(super::expand(&several).is_err());
        assert_eq!(super::expand(&several[..1]).map_err(|_| ()), Ok(vec![PathBuf::from("-")]));
    }
}
