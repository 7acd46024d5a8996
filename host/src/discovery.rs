//! Where plugins are looked for, in which order, and what became of each candidate.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::load::{LinkedPlugin, Load, PluginFile, Refusal, Refused};
use crate::metadata::Metadata;

/// The environment variable with files and directories to look at, separated by colons.
pub const PATH_VARIABLE: &str = "CROSSDOCK_PLUGIN_PATH";

/// How a candidate was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of the executable.
    Linked,
    /// Its path was given.
    Explicit,
    /// In a directory that was given.
    Directory,
    /// Through [`PATH_VARIABLE`].
    Environment,
    /// In the executable's own directory.
    BesideExecutable,
    /// In the directory that was installed with the host library.
    Installed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Linked => "linked in",
            Self::Explicit => "given",
            Self::Directory => "given directory",
            Self::Environment => PATH_VARIABLE,
            Self::BesideExecutable => "beside the executable",
            Self::Installed => "installed with the library",
        })
    }
}

/// One candidate, and what its file says.
pub struct Candidate {
    /// How it was found.
    pub origin: Origin,
    /// What it says of itself, or why it is not used.
    pub metadata: Result<Arc<Metadata>, Arc<Refused>>,
    loader: Arc<dyn Load>,
}

impl Candidate {
    /// Its path, or a linked-in plugin's name.
    pub fn who(&self) -> String {
        self.loader.who()
    }

    /// Why it is not used, if it was given by its path: what a caller names must not be skipped in silence.
    pub(crate) fn refused_though_given(&self) -> Option<Arc<Refused>> {
        if self.origin == Origin::Explicit { self.metadata.as_ref().err().cloned() } else { None }
    }

    pub(crate) fn loader(&self) -> &Arc<dyn Load> {
        &self.loader
    }
}

/// Where to look. Earlier kinds of places go before later ones, in the order of [`Origin`], and within a kind in the
/// order given; files of a directory in the order of their names.
#[derive(Default)]
pub struct Search {
    linked: Vec<Arc<dyn Load>>,
    given: Vec<PathBuf>,
    environment: Option<OsString>,
    executable: Option<PathBuf>,
    installed: Vec<PathBuf>,
}

/// Everything that was found.
#[derive(Default)]
pub struct Catalog {
    /// In order of precedence. One whose name an earlier one has is refused as shadowed.
    pub candidates: Vec<Candidate>,
    /// Places that could not be looked at.
    pub warnings: Vec<String>,
}

impl Search {
    /// Nowhere yet.
    pub fn nowhere() -> Self {
        Self::default()
    }

    /// In [`PATH_VARIABLE`] and beside the executable.
    pub fn usual() -> Self {
        let executable = std::env::current_exe().ok();
        Self { environment: std::env::var_os(PATH_VARIABLE), executable, ..Self::default() }
    }

    /// Adds a linked-in plugin.
    pub fn linked(mut self, plugin: LinkedPlugin) -> Self {
        self.linked.push(Arc::new(plugin));
        self
    }

    /// Adds a plugin file, or a directory whose `*.so` files are candidates.
    pub fn given(mut self, path: impl Into<PathBuf>) -> Self {
        self.given.push(path.into());
        self
    }

    /// Sets what [`PATH_VARIABLE`] would say.
    pub fn environment(mut self, paths: impl Into<OsString>) -> Self {
        self.environment = Some(paths.into());
        self
    }

    /// Sets the executable in whose directory to look.
    pub fn executable(mut self, path: impl Into<PathBuf>) -> Self {
        self.executable = Some(path.into());
        self
    }

    /// Adds a directory of plugins that was installed: with the host library, or with others' packages. It may be missing.
    pub fn installed(mut self, directory: impl Into<PathBuf>) -> Self {
        self.installed.push(directory.into());
        self
    }

    /// Looks at every place, and at the metadata of every candidate. No plugin's code runs.
    pub fn run(self) -> Catalog {
        let mut catalog = Catalog::default();
        let mut seen = HashSet::new();
        for loader in self.linked {
            catalog.add(Origin::Linked, loader);
        }
        // Single files go before directories, in whatever order they were given.
        let (directories, files): (Vec<_>, Vec<_>) = self.given.into_iter().partition(|path| path.is_dir());
        for path in files {
            catalog.add_file(&mut seen, Origin::Explicit, path);
        }
        for path in directories {
            catalog.add_directory(&mut seen, Origin::Directory, &path, is_library);
        }
        for path in self.environment.iter().flat_map(std::env::split_paths) {
            if path.as_os_str().is_empty() {
                continue;
            }
            if path.is_file() {
                catalog.add_file(&mut seen, Origin::Environment, path);
            } else {
                catalog.add_directory(&mut seen, Origin::Environment, &path, is_library);
            }
        }
        if let Some(directory) = self.executable.as_deref().and_then(Path::parent) {
            catalog.add_directory(&mut seen, Origin::BesideExecutable, directory, is_ours);
        }
        for directory in self.installed.iter().filter(|directory| directory.is_dir()) {
            catalog.add_directory(&mut seen, Origin::Installed, directory, is_library);
        }
        catalog
    }
}

impl Catalog {
    fn add_file(&mut self, seen: &mut HashSet<PathBuf>, origin: Origin, path: PathBuf) {
        // The same file reached twice is one candidate, where it came first.
        let same = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.insert(same) {
            self.add(origin, Arc::new(PluginFile::new(path)));
        }
    }

    fn add_directory(
        &mut self,
        seen: &mut HashSet<PathBuf>,
        origin: Origin,
        directory: &Path,
        wanted: fn(&str) -> bool,
    ) {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                self.warnings.push(format!("{origin}: cannot look into '{}': {error}", directory.display()));
                return;
            }
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_str().is_some_and(wanted))
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        for path in paths {
            self.add_file(seen, origin, path);
        }
    }

    fn add(&mut self, origin: Origin, loader: Arc<dyn Load>) {
        let metadata = loader.metadata().and_then(|metadata| {
            match self.chosen().find(|(_, earlier)| earlier.name == metadata.name) {
                None => Ok(Arc::new(metadata)),
                Some((by, _)) => {
                    let shadowed = Refusal::Shadowed { name: metadata.name, by: by.who() };
                    Err(shadowed.of(loader.who()))
                }
            }
        });
        self.candidates.push(Candidate { origin, metadata: metadata.map_err(Arc::new), loader });
    }

    /// The candidates to use, with what they say.
    pub fn chosen(&self) -> impl Iterator<Item = (&Candidate, &Arc<Metadata>)> {
        self.candidates.iter().filter_map(|candidate| Some((candidate, candidate.metadata.as_ref().ok()?)))
    }
}

fn is_library(name: &str) -> bool {
    name.ends_with(".so")
}

fn is_ours(name: &str) -> bool {
    name.starts_with("libcrossdock_") && name.ends_with("_plugin.so")
}
