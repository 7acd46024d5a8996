//! Where plugins are looked for, in which order, and what became of each candidate.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossdock_isolation::Environment;

use crate::load::{Handed, Inspection, LinkedPlugin, Load, Loaded, PluginFile, Refusal, Refused};
use crate::metadata::Metadata;
use crate::policy::Policy;

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

    /// Its file, unless it is linked in.
    pub fn path(&self) -> Option<&Path> {
        self.loader.path()
    }

    /// What its file says of itself, used or not, where there is one and it says anything.
    pub fn inspect(&self) -> Option<Inspection> {
        crate::load::inspect(self.path()?).ok()
    }

    /// Why it is not used, if it was given by its path: what a caller names must not be skipped in silence.
    pub(crate) fn refused_though_given(&self) -> Option<Arc<Refused>> {
        if self.origin == Origin::Explicit { self.metadata.as_ref().err().cloned() } else { None }
    }

    /// Loads it. Another plugin in its place is not what was chosen.
    pub(crate) fn load(&self) -> Result<Loaded, Refused> {
        let checked = self.loader.check()?;
        match &self.metadata {
            Ok(chosen) if chosen != checked.metadata() => Err(Refusal::Changed.of(self.who())),
            _ => checked.load(),
        }
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
    warnings: Vec<String>,
}

/// Everything that was found.
#[derive(Default)]
pub struct Catalog {
    /// In order of precedence. One whose name an earlier one has is refused as shadowed.
    pub candidates: Vec<Candidate>,
    /// Places that could not be looked at, or were not.
    pub warnings: Vec<String>,
    policy: Arc<Policy>,
}

impl Search {
    /// Nowhere yet.
    pub fn nowhere() -> Self {
        Self::default()
    }

    /// In [`PATH_VARIABLE`].
    pub fn usual() -> Self {
        Self::default().environment_of_process()
    }

    /// Adds a linked-in plugin.
    pub fn linked(mut self, plugin: LinkedPlugin) -> Self {
        self.linked.push(Arc::new(plugin));
        self
    }

    /// Adds a plugin that this process was handed.
    pub(crate) fn handed(mut self, plugin: Handed) -> Self {
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

    /// Looks where [`PATH_VARIABLE`] says, unless this process has rights that its caller need not have: that it is ignored
    /// then is a warning.
    pub fn environment_of_process(self) -> Self {
        self.environment_in(&Environment::of_process())
    }

    fn environment_in(mut self, environment: &Environment) -> Self {
        self.environment = environment.value(PATH_VARIABLE, |warning| self.warnings.push(warning));
        self
    }

    /// Looks in the directory of this process's executable, for programs that are installed together with plugins.
    pub fn beside_executable(mut self) -> Self {
        self.executable = std::env::current_exe().ok();
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
        self.run_under(Policy::default())
    }

    /// The same, where a policy says what may be loaded.
    pub fn run_under(self, policy: Policy) -> Catalog {
        let mut catalog = Catalog { warnings: self.warnings, policy: Arc::new(policy), ..Catalog::default() };
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
    /// What decided which candidates may be loaded.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    fn add_file(&mut self, seen: &mut HashSet<PathBuf>, origin: Origin, path: PathBuf) {
        // The same file reached twice is one candidate, where it came first: unless it was the way there that was refused.
        let same = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&same) {
            return;
        }
        self.add(origin, Arc::new(PluginFile::under(path, self.policy.clone())));
        let refused = self.candidates.last().and_then(|candidate| candidate.metadata.as_ref().err());
        if !refused.is_some_and(|refused| refused.reason.is_of_the_path()) {
            seen.insert(same);
        }
    }

    fn add_directory(
        &mut self,
        seen: &mut HashSet<PathBuf>,
        origin: Origin,
        directory: &Path,
        wanted: fn(&[u8]) -> bool,
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
            .filter(|entry| wanted(entry.file_name().as_bytes()))
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
                    let shadowed = Refusal::Shadowed { name: metadata.name.clone(), by: by.who() };
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

fn is_library(name: &[u8]) -> bool {
    name.ends_with(b".so")
}

fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"libcrossdock_") && name.ends_with(b"_plugin.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_process_does_not_look_where_its_environment_says() {
        let variable = |name: &str| (name == PATH_VARIABLE).then(|| OsString::from("/somebody/s/plugins"));
        let search =
            |is_privileged| Search::nowhere().environment_in(&Environment::of(variable, is_privileged)).run();
        let ordinary = search(false);
        assert!(ordinary.warnings[0].contains("cannot look into '/somebody/s/plugins'"));
        let privileged = search(true);
        assert_eq!(privileged.warnings.len(), 1);
        assert!(privileged.warnings[0].starts_with("CROSSDOCK_PLUGIN_PATH is ignored"));
    }
}
