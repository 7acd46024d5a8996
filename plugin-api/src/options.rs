//! The options of a format. Keys and values are text.

use crate::abi;
use crate::error::{Error, Result};

/// Options for reading or writing a format, as pairs of key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(String, String)>);

impl Options {
    /// An empty list.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an option. If a key is added repeatedly, its last value is used.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.push((key.into(), value.into()));
        self
    }

    /// The last value of `key`, or `None` if the key was not added.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All pairs, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Rejects keys that are not in `known`, so that a misspelt option is not silently ignored.
    ///
    /// # Errors
    /// Returns an "invalid argument" error for the first unknown key. `who` is the subject of the
    /// message.
    pub fn only(&self, who: &str, known: &[&str]) -> Result<()> {
        match self.0.iter().find(|(k, _)| !known.contains(&k.as_str())) {
            None => Ok(()),
            Some((k, _)) => Err(Error::invalid_argument(format!(
                "{who} has no option '{k}', expected {}",
                if known.is_empty() { "none".to_string() } else { known.join(", ") }
            ))),
        }
    }

    /// The options as C structs, which borrow from `self`. Each key occurs once.
    pub(crate) fn pairs(&self) -> Vec<abi::OptionPair> {
        let is_last = |i: usize, key: &str| self.0[i + 1..].iter().all(|(later, _)| later != key);
        self.0
            .iter()
            .enumerate()
            .filter(|(i, (key, _))| is_last(*i, key))
            .map(|(_, (k, v))| abi::OptionPair { key: abi::Str::new(k), value: abi::Str::new(v) })
            .collect()
    }

    /// Copies the options of a caller.
    ///
    /// # Safety
    /// `pairs` points to `n` pairs of valid strings, or `pairs` is null, or `n` is 0.
    pub(crate) unsafe fn read(pairs: *const abi::OptionPair, n: usize) -> Result<Self> {
        if n > 0 && pairs.is_null() {
            return Err(Error::invalid_argument(format!("the list of {n} options is NULL")));
        }
        let mut options = Vec::new();
        for i in 0..n {
            // SAFETY: `pairs` is not null, and the caller guarantees that it has `n` pairs of valid
            // strings.
            let (key, value) = unsafe {
                let pair = *pairs.add(i);
                (pair.key.get()?, pair.value.get()?)
            };
            options.push((key.to_string(), value.to_string()));
        }
        Ok(Self(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_each_key_once_with_its_last_value() {
        let options = Options::new().with("a", "1").with("b", "2").with("a", "3");
        let pairs = options.pairs();
        // SAFETY: `pairs` borrows from `options`, which is still alive.
        let read = unsafe { Options::read(pairs.as_ptr(), pairs.len()) };
        assert_eq!(read, Ok(Options::new().with("b", "2").with("a", "3")));
    }
}
