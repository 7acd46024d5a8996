//! Compares the ABI with its releases. `abi/released/` has a folder for each released ABI, with the
//! header and the layout table of this ABI. The name of the folder is the version: `1.0.0`, and
//! `1.0.1` for the first release that appended to ABI 1.0.
//!
//! The header contains types and the order of fields, and the layout table contains offsets and
//! sizes. A comparison of headers and tables shows whether the current ABI equals a released ABI,
//! appends to it, or breaks it.

mod header;
mod table;

use std::fmt;
use std::path::Path;

/// The name of the header for applications, which is recorded with each release.
pub const HOST_HEADER: &str = "crossdock-host.h";

/// The names of the files in the folder of a release that belong to the interface of plugins.
pub const FILES: [&str; 2] = ["crossdock.h", "layout.txt"];

/// The two texts that define an ABI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// `crossdock.h`.
    pub header: String,
    /// The layout table, the result of [`crate::layout::render`].
    pub layout: String,
}

/// The version of an ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Abi {
    /// The value of `CROSSDOCK_ABI_MAJOR`.
    pub major: u32,
    /// The value of `CROSSDOCK_ABI_MINOR`.
    pub minor: u32,
    /// The value of `CROSSDOCK_ABI_PATCH`, which each release that appends increments.
    pub patch: u32,
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Abi {
    /// Parses a version such as `1.0.1`.
    pub fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.split('.').map(|number| number.parse::<u32>().ok());
        let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(Self { major, minor, patch })
    }
}

/// The compatibility of an ABI with a released ABI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// The ABIs are equal.
    Same,
    /// The ABI has compatible additions. Each text describes one addition.
    Appends(Vec<String>),
    /// The ABI has incompatible differences. Each text describes one difference.
    Breaks(Vec<String>),
}

impl Compatibility {
    fn of(breaks: Vec<String>, appends: Vec<String>) -> Self {
        match (breaks.is_empty(), appends.is_empty()) {
            (false, _) => Self::Breaks(breaks),
            (true, false) => Self::Appends(appends),
            (true, true) => Self::Same,
        }
    }

    /// Checks whether an ABI of the version `current`, which was compared with the ABI of the
    /// version `released`, can be released.
    ///
    /// # Errors
    /// Returns a message for developers that lists the differences and says what to do.
    pub fn may_follow(&self, current: Abi, released: Abi) -> Result<(), String> {
        if current < released {
            return Err(format!(
                "the ABI version is {current}, expected at least {released}, which has been released"
            ));
        }
        match self {
            Self::Breaks(breaks) if current.major == released.major => Err(format!(
                "the ABI differs from the released {released}:\n  {}\nWithin a version, fields can only be appended, \
                     at the ends of structs with a struct_size. Either revert the change, or increment \
                     CROSSDOCK_ABI_MAJOR in crossdock.h (and ABI_MAJOR and API_RANGE in Rust) and write a decision \
                     record: hosts will then reject plugins of {}.{}.",
                breaks.join("\n  "),
                released.major,
                released.minor
            )),
            Self::Appends(additions) if current == released => Err(format!(
                "the ABI appends to the released {released}:\n  {}\nIncrement CROSSDOCK_ABI_PATCH in crossdock.h and \
                 ABI_PATCH in Rust.",
                additions.join("\n  ")
            )),
            _ => Ok(()),
        }
    }
}

impl Contract {
    /// The ABI of this build.
    pub fn current() -> Self {
        let header = include_str!("../../include/crossdock.h").to_owned();
        Self { header, layout: crate::layout::render() }
    }

    /// Reads the folder of a release.
    ///
    /// # Errors
    /// Returns an error of the file system.
    pub fn read(folder: &Path) -> std::io::Result<Self> {
        let [header, layout] = FILES.map(|name| std::fs::read_to_string(folder.join(name)));
        Ok(Self { header: header?, layout: layout? })
    }

    /// The version, from the first line of the layout table.
    pub fn version(&self) -> Option<Abi> {
        Abi::parse(self.layout.lines().next()?.strip_prefix("abi ")?)
    }

    /// Compares this ABI with the ABI of an earlier release of the same version.
    pub fn compare(&self, released: &Self) -> Compatibility {
        let (mut breaks, mut appends) = (Vec::new(), Vec::new());
        table::compare(&released.layout, &self.layout, &mut breaks, &mut appends);
        header::compare(&released.header, &self.header, &mut breaks, &mut appends);
        Compatibility::of(breaks, appends)
    }

    /// Checks whether this ABI can be released after `released`, which has the version `abi`.
    ///
    /// # Errors
    /// As [`Compatibility::may_follow`].
    pub fn may_follow(&self, abi: Abi, released: &Self) -> Result<(), String> {
        let current = self.version().ok_or("the layout table does not begin with its version")?;
        self.compare(released).may_follow(current, abi)
    }
}

/// Compares `crossdock-host.h`, which has no layout table, with the header of an earlier release.
pub fn compare_host_headers(released: &str, current: &str) -> Compatibility {
    let (mut breaks, mut appends) = (Vec::new(), Vec::new());
    header::compare(released, current, &mut breaks, &mut appends);
    header::compare_declarations(released, current, &mut breaks, &mut appends);
    Compatibility::of(breaks, appends)
}

/// Reads the released ABIs, oldest first. The result is empty if the folder does not exist.
///
/// # Errors
/// Returns an error of the file system, or an error if the name of a folder is not a version.
pub fn releases(folder: &Path) -> std::io::Result<Vec<(Abi, Contract)>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut releases = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let abi = path.file_name().and_then(|name| Abi::parse(&name.to_string_lossy())).ok_or_else(|| {
            std::io::Error::other(format!("{}: expected a name like 1.0.1", path.display()))
        })?;
        releases.push((abi, Contract::read(&path)?));
    }
    releases.sort_by_key(|(abi, _)| *abi);
    Ok(releases)
}
