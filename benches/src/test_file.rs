//! Files in the page cache, for the benchmarks of the loader.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crossdock::source::FileSource;

use crate::Result;

/// A file in the page cache, which is removed when dropped.
pub struct TestFile {
    pub path: PathBuf,
    pub folder: String,
}

impl TestFile {
    pub fn write(folder: &Path, bytes: u64) -> Result<Self> {
        let path = folder.join("loader-bench");
        let test = Self { folder: folder.display().to_string(), path };
        let mut file = File::create(&test.path)?;
        let mut part = vec![0; 64 << 20];
        crate::ipc::fill(&mut part, 1);
        let mut left = bytes as usize;
        while left > 0 {
            let n = left.min(part.len());
            file.write_all(part.get(..n).unwrap_or_default())?;
            left -= n;
        }
        // Dirty pages would be written back during the measurement.
        file.sync_all()?;
        Ok(test)
    }

    pub fn open(&self) -> Result<File> {
        Ok(File::open(&self.path)?)
    }

    pub fn source(&self, is_mapped: bool) -> Result<FileSource> {
        let (file, name) = (self.open()?, self.path.display().to_string());
        Ok(if is_mapped { FileSource::new(file, name)? } else { FileSource::unmapped(file, name)? })
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        // An error is ignored because the file may not exist.
        drop(std::fs::remove_file(&self.path));
    }
}
