//! Checksums of all files of a release, and their signature.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result};
use minisign::{SecretKey, SecretKeyBox};
use sha2::{Digest, Sha256};

use crate::work::{files, hex};

const FILE: &str = "SHA256SUMS";

/// Reads a secret key. The password is that of the variable MINISIGN_PASSWORD, or is read from the
/// terminal.
pub fn read_key(path: &Path) -> Result<SecretKey> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let key = SecretKeyBox::from_string(&text)
        .with_context(|| format!("{} is not a secret key", path.display()))?;
    let key = key.into_secret_key(std::env::var("MINISIGN_PASSWORD").ok());
    key.with_context(|| format!("cannot read the key in {}", path.display()))
}

/// Writes the checksums of all files, in the form that `sha256sum --check` reads.
pub fn write(folder: &Path, key: Option<&SecretKey>) -> Result<()> {
    let mut lines = String::new();
    for path in files(folder)? {
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let digest = Sha256::digest(&bytes);
        writeln!(lines, "{}  {}", hex(&digest), path.strip_prefix(folder)?.display())?;
    }
    let sums = folder.join(FILE);
    std::fs::write(&sums, &lines).with_context(|| format!("cannot write {}", sums.display()))?;
    let Some(key) = key else {
        eprintln!("{FILE} is not signed: pass --key FILE to sign it");
        return Ok(());
    };
    let comment = format!("crossdock {}", env!("CARGO_PKG_VERSION"));
    let signature = minisign::sign(None, key, BufReader::new(File::open(&sums)?), Some(&comment), None)?;
    Ok(std::fs::write(folder.join(format!("{FILE}.minisig")), signature.to_string())?)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use minisign::{KeyPair, SignatureBox};

    use super::*;

    #[test]
    fn checksums_cover_all_files_and_are_signed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("crates")).unwrap();
        std::fs::write(folder.path().join("crates/a"), "abc").unwrap();
        std::fs::write(folder.path().join("b"), "").unwrap();
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        write(folder.path(), Some(&pair.sk)).unwrap();
        let sums = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n\
                        ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  crates/a\n";
        assert_eq!(sums, expected);
        let signature = std::fs::read_to_string(folder.path().join("SHA256SUMS.minisig")).unwrap();
        let signature = SignatureBox::from_string(&signature).unwrap();
        minisign::verify(&pair.pk, &signature, Cursor::new(&sums), true, false, false).unwrap();
        assert!(minisign::verify(&pair.pk, &signature, Cursor::new("other"), true, false, false).is_err());
    }
}
