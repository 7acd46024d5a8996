//! Defines the formats and their options.

use crossdock_plugin_api::{Error, Format, Options, Result};

/// The format that exports versioned tensors and imports both kinds of tensors.
pub(crate) const VERSIONED: &str = "dlpack";
/// The format that exports tensors without a version and imports both kinds of tensors.
pub(crate) const LEGACY: &str = "dlpack-legacy";

/// An option that has a fixed set of values.
struct Choice {
    key: &'static str,
    /// The first value is the default.
    values: &'static [&'static str],
    help: &'static str,
}

const BOOLS: Choice = Choice {
    key: "bools",
    values: &["bytes", "bits"],
    help: "type of booleans without a schema: bytes (arrow.bool8, no copy; the default) or bits",
};
const MASKED: Choice = Choice {
    key: "nulls",
    values: &["error", "mask"],
    help: "representation of nulls: error (nulls are rejected; the default), or mask (after each tensor, a boolean tensor \
           that is true where a row is null)",
};
const COPY: Choice = Choice {
    key: "copy",
    values: &["needed", "always", "never"],
    help: "when the values are copied: needed (only if necessary; the default), always (the consumer may write to the \
           tensors), or never (an error if a copy is necessary)",
};
const READ_ONLY: Choice = Choice {
    key: "read-only",
    values: &["copied", "lent"],
    help: "export of read-only buffers, which a legacy tensor cannot mark as read-only: copied (the default), or lent \
           to a consumer that does not write to them",
};
const NAMES: &str = "names";

impl Choice {
    fn get(&self, format: &str, options: &Options) -> Result<&'static str> {
        let Some(value) = options.get(self.key) else { return Ok(self.values.first().unwrap_or(&"")) };
        self.values.iter().find(|known| **known == value).copied().ok_or_else(|| {
            let known = self.values.join(" or ");
            Error::invalid_argument(format!("{format}: option {}={value}: expected {known}", self.key))
        })
    }
}

pub(crate) fn import_formats() -> Vec<Format> {
    formats(["dltensor_versioned", "dltensor"].as_slice(), ["dltensor", "dltensor_versioned"].as_slice())
        .map(|format| {
            let help =
                "names of the columns if there is no schema, separated by commas [default: col_0, col_1, ...]";
            let format = format.with_option(NAMES, help);
            [BOOLS, MASKED].iter().fold(format, |format, choice| format.with_option(choice.key, choice.help))
        })
        .to_vec()
}

pub(crate) fn export_formats() -> Vec<Format> {
    let [versioned, legacy] = formats(&["dltensor_versioned"], &["dltensor"])
        .map(|format| [MASKED, COPY].iter().fold(format, |f, choice| f.with_option(choice.key, choice.help)));
    vec![versioned, legacy.with_option(READ_ONLY.key, READ_ONLY.help)]
}

fn formats(versioned: &[&str], legacy: &[&str]) -> [Format; 2] {
    let row = |name, help, capsules: &[&str]| Format {
        capsules: capsules.iter().map(|name| (*name).to_string()).collect(),
        ..Format::new(name, help)
    };
    [
        row(VERSIONED, "DLPack tensors, one per column: numbers and booleans, rows of any shape", versioned),
        row(LEGACY, "DLPack tensors without a version, for consumers that predate DLPack 1.0", legacy),
    ]
}

/// The options of an import.
pub(crate) struct ImportOptions {
    pub(crate) names: Option<Vec<String>>,
    pub(crate) packs_bools: bool,
    pub(crate) has_masks: bool,
}

impl ImportOptions {
    pub(crate) fn new(format: &str, options: &Options) -> Result<Self> {
        if options.is_empty() {
            return Ok(Self { names: None, packs_bools: false, has_masks: false });
        }
        Ok(Self {
            names: options.get(NAMES).map(|names| names.split(',').map(str::to_string).collect()),
            packs_bools: BOOLS.get(format, options)? == "bits",
            has_masks: MASKED.get(format, options)? == "mask",
        })
    }
}

/// When the values of a column are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    Needed,
    Always,
    Never,
}

/// The options of an export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExportOptions {
    pub(crate) legacy: bool,
    pub(crate) has_masks: bool,
    pub(crate) copy: Copy,
    /// Whether a legacy tensor may refer to a read-only buffer.
    pub(crate) lends_read_only: bool,
}

impl ExportOptions {
    pub(crate) fn new(format: &str, options: &Options) -> Result<Self> {
        Ok(Self {
            legacy: format == LEGACY,
            has_masks: MASKED.get(format, options)? == "mask",
            copy: match COPY.get(format, options)? {
                "always" => Copy::Always,
                "never" => Copy::Never,
                _ => Copy::Needed,
            },
            lends_read_only: READ_ONLY.get(format, options)? == "lent",
        })
    }

    /// The number of tensors for each column: 1 for values, or 2 for values and masks.
    pub(crate) fn tensors_per_column(&self) -> usize {
        if self.has_masks { 2 } else { 1 }
    }

    /// The reason why the buffers of a column must be copied; `None` if no copy is required.
    pub(crate) fn must_copy(&self) -> Option<&'static str> {
        match (self.copy, self.legacy && !self.lends_read_only) {
            (Copy::Always, _) => Some("copy=always asks for a copy"),
            (_, true) => Some("copied: a legacy tensor cannot mark its memory as read-only"),
            _ => None,
        }
    }
}
