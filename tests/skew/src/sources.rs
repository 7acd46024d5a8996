//! Where the sources of a release come from: git, by commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Skipped;

/// What is built, and where.
pub struct Sources {
    /// "today", or a release's version.
    pub name: String,
    /// A folder with `plugin-api/` and `tests/skew/fixtures/`.
    pub root: PathBuf,
    /// Where what is made of them goes.
    pub made: PathBuf,
}

/// A line of `releases.txt`.
#[derive(Debug, PartialEq, Eq)]
pub struct Release {
    /// "0.1.0"
    pub version: String,
    /// "v0.1.0"
    pub tag: String,
    /// 40 hexadecimal digits.
    pub commit: String,
}

/// The repository that this crate was built in.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `target/skew`: beside the folder that the tests were built into.
pub fn folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().join("skew")
}

/// The releases that are listed; a line that is none is the lister's mistake.
pub fn listed(text: &str) -> Vec<Release> {
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
    /// The working tree.
    pub fn today() -> Self {
        Self { name: "today".into(), root: repository(), made: folder().join("today") }
    }

    /// What the plugins of a commit are made of, taken out of git.
    pub fn of_commit(name: &str, commit: &str) -> Result<Self, Skipped> {
        Self::taken(name, commit, "sources", &["Cargo.toml", "plugin-api", "tests/skew/fixtures"])
    }

    /// All of a commit.
    pub fn whole(name: &str, commit: &str) -> Result<Self, Skipped> {
        Self::taken(name, commit, "whole", &["."])
    }

    fn taken(name: &str, commit: &str, as_folder: &str, paths: &[&str]) -> Result<Self, Skipped> {
        let made = folder().join(name);
        let root = made.join(as_folder);
        let tar = made.join(as_folder.to_owned() + ".tar");
        std::fs::create_dir_all(&made).unwrap();
        let id = git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")]).map_err(|said| {
            format!("commit {commit} is not in this clone (shallow, or no clone at all): {said}")
        })?;
        // Threads take the same commit out, and so do test programs that run side by side.
        let lock = std::fs::File::create(made.join(as_folder.to_owned() + ".lock")).unwrap();
        lock.lock().unwrap();
        let taken = Stamp::new(made.join(as_folder.to_owned() + ".commit"), id.trim());
        if !taken.holds() {
            taken.remove();
            let to = format!("--output={}", tar.display());
            git(&[&["archive", "--format=tar", &to, commit, "--"], paths].concat())?;
            // Files of another commit must not stay.
            if root.exists() {
                std::fs::remove_dir_all(&root).unwrap();
            }
            std::fs::create_dir_all(&root).unwrap();
            run(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&root))?;
            std::fs::remove_file(&tar).unwrap();
            taken.set();
        }
        Ok(Self { name: name.into(), root, made })
    }

    /// An error where a test program was taken to a machine without its checkout.
    pub fn are_there(&self) -> Result<(), Skipped> {
        let fixtures = self.at("tests/skew/fixtures");
        if fixtures.is_dir() { Ok(()) } else { Err(format!("there is no {}", fixtures.display())) }
    }

    /// The ABI that they speak, as their header says.
    pub fn abi(&self) -> (u32, u32) {
        let header = std::fs::read_to_string(self.at("plugin-api/include/crossdock.h")).unwrap();
        let number = |name: &str| {
            let line =
                header.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        (number("CROSSDOCK_ABI_MAJOR"), number("CROSSDOCK_ABI_MINOR"))
    }

    /// A file or folder of them.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// A file that says what something beside it was made of.
pub struct Stamp {
    file: PathBuf,
    content: String,
}

impl Stamp {
    /// One with this content; the file need not be there.
    pub fn new(file: PathBuf, content: &str) -> Self {
        Self { file, content: content.to_owned() }
    }

    /// Whether what is there was made of the same.
    pub fn holds(&self) -> bool {
        std::fs::read_to_string(&self.file).is_ok_and(|content| content == self.content)
    }

    /// Before it is made anew.
    pub fn remove(&self) {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                panic!("{}: {error}", self.file.display());
            }
            _ => {}
        }
    }

    /// When all of it has been made.
    pub fn set(&self) {
        std::fs::write(&self.file, &self.content).unwrap();
    }
}

fn git(arguments: &[&str]) -> Result<String, Skipped> {
    run(Command::new("git").arg("-C").arg(repository()).args(arguments))
}

/// What it wrote.
fn run(command: &mut Command) -> Result<String, Skipped> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program}: {}", said.lines().next().unwrap_or("failed").trim()))
        }
        Err(error) => Err(format!("{program}: {error}")),
    }
}
