//! The contract on record: what each release's header and layout were, and what may become of them. `abi/released/` has a
//! folder for each ABI that was released: `0.1` for the first of its minor, `0.1.1` for the first that appended to it.
//!
//! The header shows the types and the order of everything, the layout table where it lies. Together they prove that
//! today's contract is the released one, or appends to it.

mod header;
mod table;

use std::fmt;
use std::path::Path;

/// The file names in a release's folder.
pub const FILES: [&str; 2] = ["crossdock.h", "layout.txt"];

/// A contract: its two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// `crossdock.h`.
    pub header: String,
    /// [`crate::layout::render`]'s text.
    pub layout: String,
}

/// What an ABI is called: major, minor, and how many releases of the minor have appended to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Abi {
    /// As in `CROSSDOCK_ABI_MAJOR`.
    pub major: u32,
    /// As in `CROSSDOCK_ABI_MINOR`.
    pub minor: u32,
    /// 0 for the minor's first release.
    pub appended: u32,
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.appended > 0 { write!(f, ".{}", self.appended) } else { Ok(()) }
    }
}

impl Abi {
    /// From a folder's name.
    pub fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.split('.').map(str::parse::<u32>);
        let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let appended = numbers.next().map_or(Some(0), Result::ok)?;
        numbers.next().is_none().then_some(Self { major, minor, appended })
    }
}

/// How today's contract stands to a released one. The lines name each difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the same.
    Same,
    /// It has more, where more may be.
    Appends(Vec<String>),
    /// It is another.
    Breaks(Vec<String>),
}

impl Contract {
    /// That of this build: the header is the source's.
    pub fn today() -> Self {
        let header = include_str!("../../include/crossdock.h").to_owned();
        Self { header, layout: crate::layout::render() }
    }

    /// Reads a release's folder.
    ///
    /// # Errors
    /// Of the file system.
    pub fn read(folder: &Path) -> std::io::Result<Self> {
        let [header, layout] = FILES.map(|name| std::fs::read_to_string(folder.join(name)));
        Ok(Self { header: header?, layout: layout? })
    }

    /// The version that its layout table begins with.
    pub fn version(&self) -> Option<(u32, u32)> {
        let abi = Abi::parse(self.layout.lines().next()?.strip_prefix("abi ")?)?;
        Some((abi.major, abi.minor))
    }

    /// How it stands to an earlier contract of the same minor.
    pub fn compare(&self, released: &Self) -> Standing {
        let (mut breaks, mut appends) = (Vec::new(), Vec::new());
        table::compare(&released.layout, &self.layout, &mut breaks, &mut appends);
        header::compare(&released.header, &self.header, &mut breaks, &mut appends);
        match (breaks.is_empty(), appends.is_empty()) {
            (false, _) => Standing::Breaks(breaks),
            (true, false) => Standing::Appends(appends),
            (true, true) => Standing::Same,
        }
    }

    /// An error in words if this contract may not follow `released` under the version that it has.
    ///
    /// # Errors
    /// What changed, and what to do.
    pub fn may_follow(&self, abi: Abi, released: &Self) -> Result<(), String> {
        let (today, before) = (self.version().unwrap_or_default(), (abi.major, abi.minor));
        if today < before {
            return Err(format!("the ABI is {}.{}, and {abi} was released before", today.0, today.1));
        }
        match self.compare(released) {
            Standing::Breaks(breaks) if today == before => Err(format!(
                "the contract differs from ABI {abi}, as released:\n  {}\nWithin a minor fields are only appended, at the \
                 ends of structs that have a struct_size. Either take the change back, or bump CROSSDOCK_ABI_MINOR in \
                 crossdock.h (and ABI_MINOR and API_RANGE in Rust) and write a decision record: plugins of {}.{} are \
                 refused from then on.",
                breaks.join("\n  "),
                before.0,
                before.1
            )),
            _ => Ok(()),
        }
    }
}

/// What has been released, oldest first. None if the folder is not there.
///
/// # Errors
/// Of the file system, and for a folder whose name is no ABI's.
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
