//! Compares the ABI with its releases. `abi/released/` has a folder for each released ABI, with the
//! header and the layout table of this ABI. For example, the folder of the first release of ABI 0.1
//! is named `0.1`. The folder of the first release that appended to ABI 0.1 is named `0.1.1`.
//!
//! The header contains types and the order of fields, and the layout table contains offsets and
//! sizes. A comparison of headers and tables shows whether the current ABI equals a released ABI,
//! appends to it, or breaks it.

mod header;
mod table;

use std::fmt;
use std::path::Path;

/// The names of the files in the folder of a release.
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
    /// The number of earlier releases of the same minor version. Each release appended to the
    /// previous one.
    pub appended: u32,
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.appended > 0 { write!(f, ".{}", self.appended) } else { Ok(()) }
    }
}

impl Abi {
    /// Parses the name of a folder: `0.1` or `0.1.1`.
    pub fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.split('.').map(str::parse::<u32>);
        let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let appended = numbers.next().map_or(Some(0), Result::ok)?;
        numbers.next().is_none().then_some(Self { major, minor, appended })
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

    /// The major and minor version, from the first line of the layout table.
    pub fn version(&self) -> Option<(u32, u32)> {
        let abi = Abi::parse(self.layout.lines().next()?.strip_prefix("abi ")?)?;
        Some((abi.major, abi.minor))
    }

    /// Compares this ABI with the ABI of an earlier release of the same minor version.
    pub fn compare(&self, released: &Self) -> Compatibility {
        let (mut breaks, mut appends) = (Vec::new(), Vec::new());
        table::compare(&released.layout, &self.layout, &mut breaks, &mut appends);
        header::compare(&released.header, &self.header, &mut breaks, &mut appends);
        match (breaks.is_empty(), appends.is_empty()) {
            (false, _) => Compatibility::Breaks(breaks),
            (true, false) => Compatibility::Appends(appends),
            (true, true) => Compatibility::Same,
        }
    }

    /// Checks whether this ABI can be released after `released`, which has the version `abi`.
    ///
    /// # Errors
    /// Returns a message for developers that lists the incompatible differences and says what to
    /// do.
    pub fn may_follow(&self, abi: Abi, released: &Self) -> Result<(), String> {
        let (current, previous) = (self.version().unwrap_or_default(), (abi.major, abi.minor));
        if current < previous {
            return Err(format!(
                "the ABI version is {}.{}, expected at least {abi}, which has been released",
                current.0, current.1
            ));
        }
        match self.compare(released) {
            Compatibility::Breaks(breaks) if current == previous => Err(format!(
                "the ABI differs from the released {abi}:\n  {}\nWithin a minor version, fields can only be appended, at \
                 the ends of structs with a struct_size. Either revert the change, or increment CROSSDOCK_ABI_MINOR in \
                 crossdock.h (and ABI_MINOR and API_RANGE in Rust) and write a decision record: hosts will then reject \
                 plugins of {}.{}.",
                breaks.join("\n  "),
                previous.0,
                previous.1
            )),
            _ => Ok(()),
        }
    }
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
            std::io::Error::other(format!("{}: expected a name like 0.1 or 0.1.1", path.display()))
        })?;
        releases.push((abi, Contract::read(&path)?));
    }
    releases.sort_by_key(|(abi, _)| *abi);
    Ok(releases)
}
