//! What callers may wish for.

use crossdock_plugin_api::{Error, Format, Options, Result};

/// Versioned tensors; either kind is read.
pub(crate) const VERSIONED: &str = "dlpack";
/// Tensors for consumers that know no versions; either kind is read.
pub(crate) const LEGACY: &str = "dlpack-legacy";

/// A wish: its key, the values that it may have (the first is the default), and words for people.
struct Wish {
    key: &'static str,
    values: &'static [&'static str],
    words: &'static str,
}

const BOOLS: Wish = Wish {
    key: "bools",
    values: &["bytes", "bits"],
    words: "what booleans become where no schema tells: bytes (arrow.bool8, no copy; the default) or bits",
};
const MASKED: Wish = Wish {
    key: "nulls",
    values: &["error", "mask"],
    words: "mask: each tensor is followed by a boolean one that is true where a row is null [default: error, nulls have no \
            place]",
};
const COPY: Wish = Wish {
    key: "copy",
    values: &["needed", "always", "never"],
    words: "needed (the default), always (tensors that may be written), or never (an error where one is needed)",
};
const READ_ONLY: Wish = Wish {
    key: "read-only",
    values: &["copied", "lent"],
    words: "buffers that must not be written, which a legacy tensor cannot say: copied (the default), or lent to a consumer \
            that is known not to write",
};
const NAMES: &str = "names";

impl Wish {
    fn get(&self, format: &str, options: &Options) -> Result<&'static str> {
        let Some(value) = options.get(self.key) else { return Ok(self.values.first().unwrap_or(&"")) };
        self.values.iter().find(|known| **known == value).copied().ok_or_else(|| {
            let known = self.values.join(" or ");
            Error::invalid_argument(format!("{format}: option {}={value}: expected {known}", self.key))
        })
    }
}

pub(crate) fn imported() -> Vec<Format> {
    formats(["dltensor_versioned", "dltensor"].as_slice(), ["dltensor", "dltensor_versioned"].as_slice())
        .map(|format| {
            let names =
                "of the columns, separated by commas, where no schema tells [default: col_0, col_1, ...]";
            let format = format.with_option(NAMES, names);
            [BOOLS, MASKED].iter().fold(format, |format, wish| format.with_option(wish.key, wish.words))
        })
        .to_vec()
}

pub(crate) fn exported() -> Vec<Format> {
    let [versioned, legacy] = formats(&["dltensor_versioned"], &["dltensor"])
        .map(|format| [MASKED, COPY].iter().fold(format, |f, wish| f.with_option(wish.key, wish.words)));
    vec![versioned, legacy.with_option(READ_ONLY.key, READ_ONLY.words)]
}

fn formats(versioned: &[&str], legacy: &[&str]) -> [Format; 2] {
    let row = |name, words, capsules: &[&str]| Format {
        capsules: capsules.iter().map(|name| (*name).to_string()).collect(),
        ..Format::new(name, words)
    };
    [
        row(VERSIONED, "DLPack tensors, one a column: numbers and booleans, rows of any shape", versioned),
        row(LEGACY, "the same, for consumers that know no versions", legacy),
    ]
}

/// How tensors are read.
pub(crate) struct Reading {
    pub(crate) names: Option<Vec<String>>,
    pub(crate) bits: bool,
    pub(crate) masked: bool,
}

impl Reading {
    pub(crate) fn new(format: &str, options: &Options) -> Result<Self> {
        if options.is_empty() {
            return Ok(Self { names: None, bits: false, masked: false });
        }
        Ok(Self {
            names: options.get(NAMES).map(|names| names.split(',').map(str::to_string).collect()),
            bits: BOOLS.get(format, options)? == "bits",
            masked: MASKED.get(format, options)? == "mask",
        })
    }
}

/// When bytes are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    Needed,
    Always,
    Never,
}

/// How tensors are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    pub(crate) legacy: bool,
    pub(crate) masked: bool,
    pub(crate) copy: Copy,
    /// Whether the consumer may be given what it must not write without being told.
    pub(crate) trusted: bool,
}

impl Writing {
    pub(crate) fn new(format: &str, options: &Options) -> Result<Self> {
        Ok(Self {
            legacy: format == LEGACY,
            masked: MASKED.get(format, options)? == "mask",
            copy: match COPY.get(format, options)? {
                "always" => Copy::Always,
                "never" => Copy::Never,
                _ => Copy::Needed,
            },
            trusted: READ_ONLY.get(format, options)? == "lent",
        })
    }

    /// Why a column's buffers cannot be lent as they are, if they cannot.
    pub(crate) fn must_copy(&self) -> Option<&'static str> {
        match (self.copy, self.legacy && !self.trusted) {
            (Copy::Always, _) => Some("copied, as asked for"),
            (_, true) => Some("copied, for a legacy tensor cannot say that it must not be written"),
            _ => None,
        }
    }
}
