//! Searches for plugins, in a defined order, and records the result for each candidate.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossdock_isolation::Environment;

use crate::load::{Inspection, LinkedPlugin, Load, Loaded, PassedFile, PluginFile, Refusal, Refused};
use crate::metadata::Metadata;
use crate::policy::Policy;

/// The environment variable with plugin files and directories, separated by colons.
pub const PATH_VARIABLE: &str = "CROSSDOCK_PLUGIN_PATH";

/// The folders of plugins in the prefix of an executable: for `/usr/bin/crossdock`, folders in
/// `/usr`.
pub const INSTALLED: [&str; 2] = ["lib/crossdock/plugins", "lib/crossdock"];

/// How a candidate was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The plugin is linked into the executable.
    Linked,
    /// The caller named the file.
    Explicit,
    /// The file is in a directory that the caller named.
    Directory,
    /// [`PATH_VARIABLE`] names the file or its directory.
    Environment,
    /// The file is in the executable's directory.
    BesideExecutable,
    /// The file is in a plugin directory that was installed with the command or the host library.
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
            Self::Installed => "installed",
        })
    }
}

/// A candidate, and the metadata of its file.
pub struct Candidate {
    /// How the candidate was found.
    pub origin: Origin,
    /// The candidate's metadata, or the reason why the candidate is not used.
    pub metadata: Result<Arc<Metadata>, Arc<Refused>>,
    loader: Arc<dyn Load>,
}

impl Candidate {
    /// The candidate's path, or the name of a linked-in plugin.
    pub fn label(&self) -> String {
        self.loader.label()
    }

    /// The candidate's file; `None` for a linked-in plugin.
    pub fn path(&self) -> Option<&Path> {
        self.loader.path()
    }

    /// Returns the metadata of the candidate's file, even if the candidate is not used. `None` if
    /// the candidate has no file or the file has no metadata.
    pub fn inspect(&self) -> Option<Inspection> {
        crate::load::inspect(self.path()?).ok()
    }

    /// Returns the reason why the candidate is not used, if the caller named its file. The reason
    /// must be reported.
    pub(crate) fn explicit_refusal(&self) -> Option<Arc<Refused>> {
        if self.origin == Origin::Explicit { self.metadata.as_ref().err().cloned() } else { None }
    }

    /// Loads the candidate. Refuses it if the metadata in its file has changed since the search.
    pub(crate) fn load(&self) -> Result<Loaded, Refused> {
        let checked = self.loader.check()?;
        match &self.metadata {
            Ok(chosen) if chosen != checked.metadata() => Err(Refusal::Changed.into_refused(self.label())),
            _ => {
                let is_installed = matches!(self.origin, Origin::BesideExecutable | Origin::Installed);
                Ok(Loaded { is_installed, ..checked.load()? })
            }
        }
    }
}

/// The paths to search for plugins. They are searched by kind, in the order of [`Origin`]. Paths of
/// the same kind are searched in the given order, and files of a directory in the order of their
/// names.
#[derive(Default)]
pub struct Search {
    linked: Vec<Arc<dyn Load>>,
    paths: Vec<PathBuf>,
    environment: Option<OsString>,
    executable: Option<PathBuf>,
    installed: Vec<PathBuf>,
    warnings: Vec<String>,
}

/// The result of a search.
#[derive(Default)]
pub struct Catalog {
    /// The candidates, in order of precedence. A candidate with the name of an earlier candidate is
    /// refused as shadowed.
    pub candidates: Vec<Candidate>,
    /// Warnings about paths that were ignored or could not be read.
    pub warnings: Vec<String>,
    policy: Arc<Policy>,
}

impl Search {
    /// Creates a search without paths, which finds no plugins.
    pub fn nowhere() -> Self {
        Self::default()
    }

    /// Searches the paths in [`PATH_VARIABLE`].
    pub fn standard() -> Self {
        Self::default().environment_of_process()
    }

    /// Adds a linked-in plugin.
    pub fn linked(mut self, plugin: LinkedPlugin) -> Self {
        self.linked.push(Arc::new(plugin));
        self
    }

    /// Adds a plugin that another process opened and passed to this process.
    pub(crate) fn handed(mut self, plugin: PassedFile) -> Self {
        self.linked.push(Arc::new(plugin));
        self
    }

    /// Adds a plugin file, or a directory whose `*.so` files are candidates.
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Sets the value to use for [`PATH_VARIABLE`].
    pub fn environment(mut self, paths: impl Into<OsString>) -> Self {
        self.environment = Some(paths.into());
        self
    }

    /// Searches the paths in this process's [`PATH_VARIABLE`]. A privileged process ignores the
    /// variable with a warning.
    pub fn environment_of_process(self) -> Self {
        self.environment_in(&Environment::from_process())
    }

    fn environment_in(mut self, environment: &Environment) -> Self {
        self.environment = environment.value(PATH_VARIABLE, |warning| self.warnings.push(warning));
        self
    }

    /// Searches the executable's directory and [`INSTALLED`], for programs that are installed
    /// together with plugins.
    pub fn beside_executable(mut self) -> Self {
        self.executable = std::env::current_exe().ok();
        self
    }

    /// Sets the executable whose directory and [`INSTALLED`] folders are searched.
    pub fn executable(mut self, path: impl Into<PathBuf>) -> Self {
        self.executable = Some(path.into());
        self
    }

    /// Adds a directory of installed plugins, which may be missing.
    pub fn installed(mut self, directory: impl Into<PathBuf>) -> Self {
        self.installed.push(directory.into());
        self
    }

    /// Searches all paths, and reads the metadata of every candidate. No plugin code runs.
    pub fn run(self) -> Catalog {
        self.run_with_policy(Policy::default())
    }

    /// Like [`Self::run`], with a policy that decides which candidates may be loaded.
    pub fn run_with_policy(self, policy: Policy) -> Catalog {
        let mut catalog = Catalog { warnings: self.warnings, policy: Arc::new(policy), ..Catalog::default() };
        let mut seen = HashSet::new();
        for loader in self.linked {
            catalog.add(Origin::Linked, loader);
        }
        // Single files precede directories, regardless of the order in which the caller named them.
        let (directories, files): (Vec<_>, Vec<_>) = self.paths.into_iter().partition(|path| path.is_dir());
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
            catalog.add_directory(&mut seen, Origin::BesideExecutable, directory, is_crossdock_plugin);
        }
        let directory = self.executable.as_deref().and_then(Path::parent).and_then(Path::parent);
        let of_executable = directory.iter().flat_map(|prefix| INSTALLED.map(|folder| prefix.join(folder)));
        for directory in of_executable.chain(self.installed).filter(|directory| directory.is_dir()) {
            catalog.add_directory(&mut seen, Origin::Installed, &directory, is_library);
        }
        catalog
    }
}

impl Catalog {
    /// The policy of the search.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    fn add_file(&mut self, seen: &mut HashSet<PathBuf>, origin: Origin, path: PathBuf) {
        // A file that is found by two paths is one candidate, at the position of the first path. If
        // the candidate was refused because of its path, the second path is a candidate too.
        let canonical = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&canonical) {
            return;
        }
        self.add(origin, Arc::new(PluginFile::with_policy(path, self.policy.clone())));
        let refused = self.candidates.last().and_then(|candidate| candidate.metadata.as_ref().err());
        if !refused.is_some_and(|refused| refused.reason.depends_on_path()) {
            seen.insert(canonical);
        }
    }

    fn add_directory(
        &mut self,
        seen: &mut HashSet<PathBuf>,
        origin: Origin,
        directory: &Path,
        is_candidate: fn(&[u8]) -> bool,
    ) {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                self.warnings
                    .push(format!("{origin}: cannot read directory '{}': {error}", directory.display()));
                return;
            }
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .filter(|entry| is_candidate(entry.file_name().as_bytes()))
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        for path in paths {
            self.add_file(seen, origin, path);
        }
    }

    fn add(&mut self, origin: Origin, loader: Arc<dyn Load>) {
        let metadata = loader.check().and_then(|checked| {
            let metadata = checked.metadata();
            match self.chosen().find(|(_, earlier)| earlier.name == metadata.name) {
                None => Ok(metadata.clone()),
                Some((by, _)) => {
                    let shadowed = Refusal::Shadowed { name: metadata.name.clone(), by: by.label() };
                    Err(shadowed.into_refused(loader.label()))
                }
            }
        });
        self.candidates.push(Candidate { origin, metadata: metadata.map_err(Arc::new), loader });
    }

    /// The candidates that are used, with their metadata.
    pub fn chosen(&self) -> impl Iterator<Item = (&Candidate, &Arc<Metadata>)> {
        self.candidates.iter().filter_map(|candidate| Some((candidate, candidate.metadata.as_ref().ok()?)))
    }
}

fn is_library(name: &[u8]) -> bool {
    name.ends_with(b".so")
}

fn is_crossdock_plugin(name: &[u8]) -> bool {
    name.starts_with(b"libcrossdock_") && name.ends_with(b"_plugin.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileged_process_ignores_the_path_variable() {
        let variable = |name: &str| (name == PATH_VARIABLE).then(|| OsString::from("/other/plugins"));
        let search = |is_privileged| {
            Search::nowhere().environment_in(&Environment::new(variable, is_privileged)).run()
        };
        let ordinary = search(false);
        assert!(ordinary.warnings[0].contains("cannot read directory '/other/plugins'"));
        let privileged = search(true);
        assert_eq!(privileged.warnings.len(), 1);
        assert!(privileged.warnings[0].starts_with("CROSSDOCK_PLUGIN_PATH is ignored"));
    }
}
