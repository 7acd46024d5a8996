//! Records the hashes of the sources from which the committed images were compiled.

use crate::fnv::fnv1a;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FOLDER: &str = "kernels/cuda";
pub const IMAGES: &str = "kernels/library/images/crossdock.images.lz4";
const RECORD: &str = "kernels/library/images/sources.txt";

/// The CUDA sources, by name.
pub struct Sources(BTreeMap<String, String>);

impl Sources {
    pub fn read(root: &Path) -> Result<Self> {
        let folder = root.join(FOLDER);
        let mut sources = BTreeMap::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {FOLDER}"))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FOLDER}/{name}"))?;
            sources.insert(name, text);
        }
        Ok(Self(sources))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Writes the record of new images.
    pub fn record(&self, root: &Path, compiler: &str, images: &[u8]) -> Result<()> {
        fs::write(root.join(RECORD), self.text(compiler, images))
            .with_context(|| format!("cannot write {RECORD}"))
    }

    fn text(&self, compiler: &str, images: &[u8]) -> String {
        let mut text = format!(
            "# The sources of crossdock.images.lz4, written by `cargo xtask kernels`: 64-bit FNV-1a hashes.\nnvrtc {compiler}\n"
        );
        for (name, source) in self.iter() {
            text += &format!("{:016x} {FOLDER}/{name}\n", fnv1a(source.as_bytes()));
        }
        text + &format!("{:016x} {IMAGES}\n", fnv1a(images))
    }
}

/// Returns a violation if the images or their sources changed since the record was written.
pub fn check(root: &Path) -> Vec<String> {
    let compare = || -> Result<Vec<String>> {
        let sources = Sources::read(root)?;
        let images = fs::read(root.join(IMAGES)).with_context(|| format!("cannot read {IMAGES}"))?;
        let record =
            fs::read_to_string(root.join(RECORD)).with_context(|| format!("cannot read {RECORD}"))?;
        Ok(differences(&record, &sources.text(&super::compiler(), &images)))
    };
    compare().unwrap_or_else(|error| vec![format!("{error:#}: run `cargo xtask kernels`")])
}

fn differences(record: &str, current: &str) -> Vec<String> {
    let missing = |from: &str, within: &str| -> Vec<String> {
        from.lines().filter(|line| !within.lines().any(|l| l == *line)).map(str::to_owned).collect()
    };
    let stale = missing(record, current).into_iter().map(|line| format!("{RECORD}: `{line}` is outdated"));
    let new = missing(current, record).into_iter().map(|line| format!("{RECORD}: lacks `{line}`"));
    stale.chain(new).map(|what| format!("{what}: run `cargo xtask kernels`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> Sources {
        Sources(BTreeMap::from([("a.cu".to_owned(), text.to_owned()), ("b.cuh".to_owned(), String::new())]))
    }

    #[test]
    fn reports_changed_sources_images_and_compilers() {
        let record = sources("x").text("1.0", b"images");
        assert_eq!(differences(&record, &sources("x").text("1.0", b"images")), Vec::<String>::new());
        let named = |current: String, what: &str| {
            let differences = differences(&record, &current);
            assert_eq!(differences.len(), 2, "{differences:?}");
            assert!(differences.iter().all(|line| line.contains(what)), "{differences:?}");
        };
        named(sources("y").text("1.0", b"images"), "kernels/cuda/a.cu");
        named(sources("x").text("1.1", b"images"), "nvrtc");
        named(sources("x").text("1.0", b"other"), IMAGES);
    }
}
