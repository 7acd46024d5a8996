//! The hash that identifies a file's bytes in policies and lock files.

use std::fmt;
use std::str::FromStr;

use sha2::Digest;

/// A SHA-256 hash. As text, the hash has 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// Computes the hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }
}

/// Computes a hash incrementally.
#[derive(Default)]
pub(crate) struct Hasher(sha2::Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Sha256 {
        Sha256(self.0.finalize().into())
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Sha256 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}': expected a SHA-256 hash of 64 hexadecimal digits");
        let digit = |c: u8| char::from(c).to_digit(16);
        let mut hash = [0; 32];
        if text.len() != 64 {
            return Err(bad());
        }
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(bad)?;
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(hash))
    }
}

impl TryFrom<String> for Sha256 {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Sha256> for String {
    fn from(hash: Sha256) -> Self {
        hash.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_matches_sha256sum() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Sha256::of(b"abc").to_string(), text);
        assert_eq!(text.parse(), Ok(Sha256::of(b"abc")));
        assert_eq!(text.to_uppercase().parse(), Ok(Sha256::of(b"abc")));
        let mut pieces = Hasher::default();
        pieces.update(b"a");
        pieces.update(b"bc");
        assert_eq!(pieces.finish(), Sha256::of(b"abc"));
    }

    #[test]
    fn rejects_malformed_hashes() {
        for text in ["", "ba78", &"g".repeat(64), &"é".repeat(32)] {
            assert!(text.parse::<Sha256>().unwrap_err().contains("64 hexadecimal digits"), "{text}");
        }
    }
}
