//! Identifies a file's bytes by their hash, and by the signature beside the file.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use minisign_verify as minisign;

use super::sealed;
use crate::hash::{Hasher, Sha256};
use crate::policy::{Key, Policy};
use crate::refusal::Refusal;
use crate::trust;

/// The maximum length of a signature file. Signatures have four lines, of which two are comments.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The identity of a file's bytes.
#[derive(Clone, Debug)]
pub struct Fingerprint {
    /// The hash of the bytes.
    pub sha256: Sha256,
    /// The result of checking the signature.
    pub signature: Signature,
}

/// The result of checking a plugin's minisign signature against the policy's keys.
#[derive(Clone, Debug)]
pub enum Signature {
    /// The signature file does not exist.
    Missing,
    /// The signature is valid and was made with this key of the policy.
    By(Key),
    /// The signature was made with a key that the policy does not list.
    Unknown,
    /// The signature is malformed, or does not match the bytes. Contains the reason.
    Bad(String),
}

/// The path of a plugin's signature: FILE.minisig.
pub fn signature_file(plugin: &Path) -> PathBuf {
    let mut name = OsString::from(plugin);
    name.push(".minisig");
    name.into()
}

/// Hashes and verifies the bytes of `content` in one pass. The signature is in a file beside the
/// path `plugin`.
pub(super) fn fingerprint(
    content: &File,
    plugin: &Path,
    policy: &Policy,
) -> Result<Fingerprint, std::io::Error> {
    let signature = read_signature(plugin);
    let mut verifier = match &signature {
        Ok(None) => Err(Signature::Missing),
        Ok(Some(signature)) => verifier(signature, &policy.keys),
        Err(why) => Err(Signature::Bad(why.clone())),
    };
    let mut hasher = Hasher::default();
    sealed::for_each_chunk(content, |chunk| {
        hasher.update(chunk);
        if let Ok((_, verifier)) = &mut verifier {
            verifier.update(chunk);
        }
    })?;
    let signature = verifier.map_or_else(|signature| signature, |(key, verifier)| finish(key, verifier));
    Ok(Fingerprint { sha256: hasher.finish(), signature })
}

/// Returns the result of the verifier, to which all bytes were passed.
fn finish(key: &Key, mut verifier: minisign::StreamVerifier<'_>) -> Signature {
    match verifier.finalize() {
        Ok(()) => Signature::By(key.clone()),
        Err(error) => Signature::Bad(error.to_string()),
    }
}

/// Returns the result of checking the signature `text` for `bytes`, for tests and the fuzzer.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub fn signature_in(text: &str, bytes: &[u8], policy: &Policy) -> Signature {
    let signature = match decode(text) {
        Ok(signature) => signature,
        Err(why) => return Signature::Bad(why),
    };
    match verifier(&signature, &policy.keys) {
        Ok((key, mut verifier)) => {
            verifier.update(bytes);
            finish(key, verifier)
        }
        Err(signature) => signature,
    }
}

/// Returns the key that the signature names by its id, and a verifier for the bytes.
fn verifier<'a>(
    signature: &'a minisign::Signature,
    keys: &'a [Key],
) -> Result<(&'a Key, minisign::StreamVerifier<'a>), Signature> {
    for key in keys {
        match key.key.verify_stream(signature) {
            Ok(verifier) => return Ok((key, verifier)),
            Err(minisign::Error::UnexpectedKeyId) => {}
            Err(error) => return Err(Signature::Bad(error.to_string())),
        }
    }
    Err(Signature::Unknown)
}

/// Reads the signature file beside the plugin. `Ok(None)` if the file does not exist; an error if
/// it cannot be read.
fn read_signature(plugin: &Path) -> Result<Option<minisign::Signature>, String> {
    let file = match trust::open(&signature_file(plugin)) {
        Ok((file, _)) => file,
        Err(Refusal::Missing) => return Ok(None),
        Err(refusal) => return Err(refusal.to_string()),
    };
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    decode(&text).map(Some)
}

fn decode(text: &str) -> Result<minisign::Signature, String> {
    minisign::Signature::decode(text).map_err(|error| error.to_string())
}

impl Fingerprint {
    /// Refuses bytes without a valid signature, for policies that require one.
    pub(super) fn check_signature(&self, plugin: &Path) -> Result<(), Refusal> {
        let file = signature_file(plugin);
        let why = match &self.signature {
            Signature::By(_) => return Ok(()),
            Signature::Missing => return Err(Refusal::Unsigned(file)),
            Signature::Unknown => "the signature was made with none of the policy's `keys`".to_string(),
            Signature::Bad(why) => why.clone(),
        };
        Err(Refusal::Signature { file, why })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn signature_must_match_the_bytes_and_a_key_of_the_policy() {
        let (keys, others) = (
            ::minisign::KeyPair::generate_unencrypted_keypair(),
            ::minisign::KeyPair::generate_unencrypted_keypair(),
        );
        let (keys, others) = (keys.unwrap(), others.unwrap());
        let policy = |keys: &::minisign::KeyPair| {
            let text = format!("require_signature = true\nkeys = [\"{}\"]\n", keys.pk.to_base64());
            Policy::from_text(Path::new("/etc/policy.toml"), &text).unwrap()
        };
        let signature =
            ::minisign::sign(Some(&keys.pk), &keys.sk, &b"bytes"[..], None, None).unwrap().to_string();
        let check = |text: &str, bytes: &[u8], by| signature_in(text, bytes, &policy(by));
        assert!(matches!(check(&signature, b"bytes", &keys), Signature::By(_)));
        assert!(matches!(check(&signature, b"other", &keys), Signature::Bad(_)));
        assert!(matches!(check(&signature, b"bytes", &others), Signature::Unknown));
        assert!(matches!(check("no signature", b"bytes", &keys), Signature::Bad(_)));
    }
}
