//! The small words of the boundary: strings, options, devices.

use std::fmt;

use crate::abi;
use crate::error::{Error, Result};

impl abi::Str {
    /// Borrows `text`; the caller keeps it alive as long as the reader needs it.
    pub const fn new(text: &str) -> Self {
        Self { data: text.as_ptr().cast(), bytes: text.len() }
    }

    /// The text.
    ///
    /// # Safety
    /// `data` points at `bytes` readable bytes for `'a`, or `bytes` is 0.
    pub unsafe fn get<'a>(self) -> Result<&'a str> {
        if self.bytes == 0 {
            return Ok("");
        }
        if self.data.is_null() || self.bytes > isize::MAX as usize {
            return Err(Error::invalid_argument(format!("a string of {} bytes has no data", self.bytes)));
        }
        // SAFETY: the caller vouches for the range; null and absurd lengths were refused above.
        let bytes = unsafe { std::slice::from_raw_parts(self.data.cast(), self.bytes) };
        std::str::from_utf8(bytes).map_err(|e| Error::invalid_argument(format!("a string is not UTF-8: {e}")))
    }
}

/// A place where memory lives: Arrow's and DLPack's device type and number.
pub type Device = abi::Device;

impl Device {
    /// Host memory.
    pub const CPU: Device = Device { id: -1, r#type: abi::DEVICE_CPU, reserved: 0 };
    /// The test device: host memory whose published addresses fault when the host touches them.
    pub const UNTOUCHABLE: Device = Device { id: 0, r#type: abi::DEVICE_EXT_DEV, reserved: 0 };

    /// A CUDA device.
    pub const fn cuda(id: i64) -> Device {
        Device { id, r#type: abi::DEVICE_CUDA, reserved: 0 }
    }

    /// What tells it from others: not what is reserved, and of the CPU no number.
    const fn key(self) -> (i32, i64) {
        (self.r#type, if self.r#type == abi::DEVICE_CPU { -1 } else { self.id })
    }

    /// From Arrow's two fields. The CPU has one number, whatever was written.
    pub const fn from_arrow(r#type: i32, id: i64) -> Device {
        if r#type == abi::DEVICE_CPU { Device::CPU } else { Device { id, r#type, reserved: 0 } }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Device {}

impl Ord for Device {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Device {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for Device {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.r#type {
            abi::DEVICE_CPU => f.write_str("cpu"),
            abi::DEVICE_CUDA => write!(f, "cuda:{}", self.id),
            abi::DEVICE_CUDA_HOST => write!(f, "cuda_host:{}", self.id),
            abi::DEVICE_CUDA_MANAGED => write!(f, "cuda_managed:{}", self.id),
            abi::DEVICE_EXT_DEV => f.write_str("untouchable"),
            other => write!(f, "device type {other}, id {}", self.id),
        }
    }
}

impl std::str::FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "cpu" => Ok(Device::CPU),
            "untouchable" => Ok(Device::UNTOUCHABLE),
            "cuda" => Ok(Device::cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|n| n.parse::<u32>().ok())
                .map(|n| Device::cuda(n.into()))
                .ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "device '{text}' is unknown: expected cpu, cuda or cuda:N"
                    ))
                }),
        }
    }
}

/// A caller's wishes, as text: what each format understands is in its documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(String, String)>);

impl Options {
    /// No wishes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one; a later value for the same key wins.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.push((key.into(), value.into()));
        self
    }

    /// The value that was given last for `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, as they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Refuses keys that `known` does not list, so that a misspelt wish is not silently ignored.
    pub fn only(&self, who: &str, known: &[&str]) -> Result<()> {
        match self.0.iter().find(|(k, _)| !known.contains(&k.as_str())) {
            None => Ok(()),
            Some((k, _)) => Err(Error::invalid_argument(format!(
                "{who} has no option '{k}'; it knows {}",
                if known.is_empty() { "none".to_string() } else { known.join(", ") }
            ))),
        }
    }

    /// The borrowed pairs to hand across, each key once; valid as long as `self`.
    pub(crate) fn pairs(&self) -> Vec<abi::OptionPair> {
        let is_last = |i: usize, key: &str| self.0[i + 1..].iter().all(|(later, _)| later != key);
        self.0
            .iter()
            .enumerate()
            .filter(|(i, (key, _))| is_last(*i, key))
            .map(|(_, (k, v))| abi::OptionPair { key: abi::Str::new(k), value: abi::Str::new(v) })
            .collect()
    }

    /// # Safety
    /// `pairs` points at `n` pairs of valid strings, or `n` is 0.
    pub(crate) unsafe fn read(pairs: *const abi::OptionPair, n: usize) -> Result<Self> {
        if n > 0 && pairs.is_null() {
            return Err(Error::invalid_argument(format!("{n} options, but no list of them")));
        }
        let mut options = Vec::new();
        for i in 0..n {
            // SAFETY: the caller vouches for `n` pairs and their strings.
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
    fn each_key_crosses_once_with_the_value_that_was_given_last() {
        let options = Options::new().with("a", "1").with("b", "2").with("a", "3");
        let pairs = options.pairs();
        // SAFETY: the pairs of `options`, which is alive.
        let read = unsafe { Options::read(pairs.as_ptr(), pairs.len()) };
        assert_eq!(read, Ok(Options::new().with("b", "2").with("a", "3")));
    }
}
