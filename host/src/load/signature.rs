//! Whose a file's bytes are: their hash, and the signature beside the file.

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

/// No signature file is longer: four lines, of which two are comments.
const LIMIT_BYTES: u64 = 64 << 10;

/// What is known of a file's bytes.
#[derive(Clone, Debug)]
pub struct Fingerprint {
    /// Their hash.
    pub sha256: Sha256,
    /// Whether somebody whom the policy names signed them.
    pub signature: Signature,
}

/// A plugin's minisign signature, held against the policy's keys.
#[derive(Clone, Debug)]
pub enum Signature {
    /// There is no file for it.
    Missing,
    /// By this key of the policy's.
    By(Key),
    /// By none of the policy's keys.
    Unknown,
    /// It is no signature, or not one of these bytes; why.
    Bad(String),
}

/// Where a plugin's signature lies: FILE.minisig.
pub fn signature_file(plugin: &Path) -> PathBuf {
    let mut name = OsString::from(plugin);
    name.push(".minisig");
    name.into()
}

/// Goes once through the bytes of `plugin`, which are those of `content`.
pub(super) fn fingerprint(
    content: &File,
    plugin: &Path,
    policy: &Policy,
) -> Result<Fingerprint, std::io::Error> {
    let found = read_signature(plugin);
    let mut verifier = match &found {
        Ok(None) => Err(Signature::Missing),
        Ok(Some(found)) => verifier(found, &policy.keys),
        Err(why) => Err(Signature::Bad(why.clone())),
    };
    let mut hasher = Hasher::default();
    sealed::for_each_chunk(content, |chunk| {
        hasher.update(chunk);
        if let Ok((_, verifier)) = &mut verifier {
            verifier.update(chunk);
        }
    })?;
    let signature = verifier.map_or_else(|signature| signature, |(key, verifier)| held(key, verifier));
    Ok(Fingerprint { sha256: hasher.finish(), signature })
}

/// What has been told of the bytes, once all of them went through.
fn held(key: &Key, mut verifier: minisign::StreamVerifier<'_>) -> Signature {
    match verifier.finalize() {
        Ok(()) => Signature::By(key.clone()),
        Err(error) => Signature::Bad(error.to_string()),
    }
}

/// What a signature file of this text says of these bytes, for tests and the fuzzer.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub fn signature_in(text: &str, bytes: &[u8], policy: &Policy) -> Signature {
    let found = match decoded(text) {
        Ok(found) => found,
        Err(why) => return Signature::Bad(why),
    };
    match verifier(&found, &policy.keys) {
        Ok((key, mut verifier)) => {
            verifier.update(bytes);
            held(key, verifier)
        }
        Err(signature) => signature,
    }
}

/// The key whose signature it says to be, and what will tell whether it is.
fn verifier<'a>(
    found: &'a minisign::Signature,
    keys: &'a [Key],
) -> Result<(&'a Key, minisign::StreamVerifier<'a>), Signature> {
    for key in keys {
        match key.key.verify_stream(found) {
            Ok(verifier) => return Ok((key, verifier)),
            Err(minisign::Error::UnexpectedKeyId) => {}
            Err(error) => return Err(Signature::Bad(error.to_string())),
        }
    }
    Err(Signature::Unknown)
}

/// The signature beside the plugin, if there is one; or why what is there is none.
fn read_signature(plugin: &Path) -> Result<Option<minisign::Signature>, String> {
    let file = match trust::open(&signature_file(plugin)) {
        Ok((file, _)) => file,
        Err(Refusal::Missing) => return Ok(None),
        Err(refusal) => return Err(refusal.to_string()),
    };
    let mut text = String::new();
    file.take(LIMIT_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    decoded(&text).map(Some)
}

fn decoded(text: &str) -> Result<minisign::Signature, String> {
    minisign::Signature::decode(text).map_err(|error| error.to_string())
}

impl Fingerprint {
    /// The refusal of what a policy that asks for signatures does not take.
    pub(super) fn check_signature(&self, plugin: &Path) -> Result<(), Refusal> {
        let file = signature_file(plugin);
        let why = match &self.signature {
            Signature::By(_) => return Ok(()),
            Signature::Missing => return Err(Refusal::Unsigned(file)),
            Signature::Unknown => "it is by none of the policy's `keys`".to_string(),
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
    fn a_signature_is_of_its_own_bytes_and_by_a_key_that_is_named() {
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
        let said = |text: &str, bytes: &[u8], by| signature_in(text, bytes, &policy(by));
        assert!(matches!(said(&signature, b"bytes", &keys), Signature::By(_)));
        assert!(matches!(said(&signature, b"other", &keys), Signature::Bad(_)));
        assert!(matches!(said(&signature, b"bytes", &others), Signature::Unknown));
        assert!(matches!(said("no signature", b"bytes", &keys), Signature::Bad(_)));
    }
}
