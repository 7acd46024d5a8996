//! Extracts the sources of a release from git, by commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Skipped;

/// The sources of a release, and the folder for its builds.
pub struct Sources {
    /// "today" for the working tree, or the version of a release.
    pub name: String,
    /// A folder with `plugin-api/` and `tests/skew/fixtures/`.
    pub root: PathBuf,
    /// The folder for builds.
    pub output: PathBuf,
}

/// A line of `releases.txt`.
#[derive(Debug, PartialEq, Eq)]
pub struct Release {
    /// The version, such as "0.1.0".
    pub version: String,
    /// The git tag, such as "v0.1.0".
    pub tag: String,
    /// The commit, as 40 hexadecimal digits.
    pub commit: String,
}

/// The repository in which this crate was built.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder `skew` in the target folder of the tests' build.
pub fn target_folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().join("skew")
}

/// Parses the list of releases. Panics at a malformed line.
pub fn parse_releases(text: &str) -> Vec<Release> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            let [version, tag, commit] = words
                .try_into()
                .unwrap_or_else(|_| panic!("releases.txt: '{line}': expected a version, a tag and a commit"));
            let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(is_commit, "releases.txt: '{commit}': expected the 40 digits of a commit");
            Release { version, tag, commit }
        })
        .collect()
}

impl Sources {
    /// The sources of the working tree.
    pub fn today() -> Self {
        Self { name: "today".into(), root: repository(), output: target_folder().join("today") }
    }

    /// The sources of a commit, extracted from git: only the paths that its fixtures need.
    pub fn of_commit(name: &str, commit: &str) -> Result<Self, Skipped> {
        Self::extract(name, commit, "sources", &["Cargo.toml", "plugin-api", "tests/skew/fixtures"])
    }

    /// All sources of a commit, extracted from git.
    pub fn whole(name: &str, commit: &str) -> Result<Self, Skipped> {
        Self::extract(name, commit, "whole", &["."])
    }

    fn extract(name: &str, commit: &str, as_folder: &str, paths: &[&str]) -> Result<Self, Skipped> {
        let output = target_folder().join(name);
        let root = output.join(as_folder);
        let tar = output.join(as_folder.to_owned() + ".tar");
        std::fs::create_dir_all(&output).unwrap();
        let id = git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")]).map_err(|error| {
            format!("commit {commit} is not in this clone, which may be shallow or no clone: {error}")
        })?;
        // A lock is needed, because threads and concurrent test programs extract the same commit.
        let lock = std::fs::File::create(output.join(as_folder.to_owned() + ".lock")).unwrap();
        lock.lock().unwrap();
        let stamp = Stamp::new(output.join(as_folder.to_owned() + ".commit"), id.trim());
        if !stamp.is_current() {
            stamp.remove();
            let to = format!("--output={}", tar.display());
            git(&[&["archive", "--format=tar", &to, commit, "--"], paths].concat())?;
            // Removes the folder first, so that no files of another commit remain.
            if root.exists() {
                std::fs::remove_dir_all(&root).unwrap();
            }
            std::fs::create_dir_all(&root).unwrap();
            run(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&root))?;
            std::fs::remove_file(&tar).unwrap();
            stamp.write();
        }
        Ok(Self { name: name.into(), root, output })
    }

    /// Fails if the sources are missing, for example on a machine that has only the test program.
    pub fn check_fixtures(&self) -> Result<(), Skipped> {
        let fixtures = self.at("tests/skew/fixtures");
        if fixtures.is_dir() { Ok(()) } else { Err(format!("there is no {}", fixtures.display())) }
    }

    /// The ABI version in the header, as (major, minor).
    pub fn abi(&self) -> (u32, u32) {
        let header = std::fs::read_to_string(self.at("plugin-api/include/crossdock.h")).unwrap();
        let number = |name: &str| {
            let line =
                header.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        (number("CROSSDOCK_ABI_MAJOR"), number("CROSSDOCK_ABI_MINOR"))
    }

    /// The path of a file or folder of the sources.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// A stamp file, which records the inputs of the build in its folder.
pub struct Stamp {
    file: PathBuf,
    content: String,
}

impl Stamp {
    /// A stamp for a build with these inputs. The file need not exist.
    pub fn new(file: PathBuf, content: &str) -> Self {
        Self { file, content: content.to_owned() }
    }

    /// Whether the existing build was made with the same inputs.
    pub fn is_current(&self) -> bool {
        std::fs::read_to_string(&self.file).is_ok_and(|content| content == self.content)
    }

    /// Removes the stamp file. Must be called before a build.
    pub fn remove(&self) {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                panic!("{}: {error}", self.file.display());
            }
            _ => {}
        }
    }

    /// Writes the stamp file. Must be called after a complete build.
    pub fn write(&self) {
        std::fs::write(&self.file, &self.content).unwrap();
    }
}

fn git(arguments: &[&str]) -> Result<String, Skipped> {
    run(Command::new("git").arg("-C").arg(repository()).args(arguments))
}

/// Runs a command. Returns its standard output.
fn run(command: &mut Command) -> Result<String, Skipped> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program}: {}", stderr.lines().next().unwrap_or("failed").trim()))
        }
        Err(error) => Err(format!("{program}: {error}")),
    }
}
