//! Checks a release in the way in which others use it: `install.sh` installs each part with an
//! empty home, without a network and without a checkout, and uses it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::work::{Work, cargo, files, hex, output, pinned, run, write};

/// The Python packages that the programs need.
const PACKAGES: [&str; 3] = ["numpy", "pyarrow", "maturin"];
/// A C++ program is built by this version if CMake is not installed.
const CMAKE: &str = "cmake==4.4.5";

/// Examples that are built or read.
const EXAMPLES: [&str; 3] = ["examples/c-host", "examples/cpp-host", "examples/data"];

const MAIN: &str = "
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    late_flights(Path::new(&arguments[0]), Path::new(&arguments[1]))
}
";

/// Checks the release in the folder `work.out`.
pub fn release(work: &Work) -> Result<()> {
    let folder = work.target().join("check");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    for file in files(&work.out)? {
        copy(&file, &folder.join("dist").join(file.strip_prefix(&work.out)?))?;
    }
    vendor(work, &folder.join("vendor"))?;
    wheels(work, &folder.join("wheels"))?;
    programs(work, &folder.join("programs"))?;
    let script = folder.join("install.sh");
    write(&script, include_str!("install.sh"))?;
    eprintln!("check: installing in {}", folder.display());
    let mut check = Command::new("sh");
    check.arg(&script).current_dir(&folder).env_clear();
    check.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    check.env("RUST", Path::new(String::from_utf8(sysroot)?.trim()).join("bin"));
    let status = check.status().context("cannot start sh")?;
    if !status.success() {
        bail!("a check failed: {} has its complete output", folder.join("work").display());
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// A registry: the sources of all crates of the lock file, and the packages of the release.
fn vendor(work: &Work, to: &Path) -> Result<()> {
    let mut vendor = cargo();
    vendor.current_dir(&work.root).args(["vendor", "--quiet", "--locked", "--versioned-dirs"]).arg(to);
    output(&mut vendor)?;
    for package in files(&work.out.join("crates"))? {
        let name = package.file_stem().context("a package without a name")?;
        let bytes = fs::read(&package).with_context(|| format!("cannot read {}", package.display()))?;
        run(Command::new("tar").arg("xzf").arg(&package).arg("-C").arg(to))?;
        let checksum = format!(r#"{{"files":{{}},"package":"{}"}}"#, hex(&Sha256::digest(&bytes)));
        write(&to.join(name).join(".cargo-checksum.json"), checksum)?;
    }
    Ok(())
}

/// A package index with the versions of the project's tests. Downloads are kept for the next check.
fn wheels(work: &Work, to: &Path) -> Result<()> {
    let mut packages = vec![CMAKE.to_owned()];
    for name in PACKAGES {
        packages.push(pinned(work, name)?);
    }
    let kept = work.target().join("wheels");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    run(pip.arg("--dest").arg(&kept).arg("--find-links").arg(&kept).args(&packages))?;
    for package in packages {
        let prefix = package.replace("==", "-");
        let is_wheel = |path: &&PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        };
        let all = files(&kept)?;
        let wheel = all.iter().find(is_wheel).with_context(|| format!("pip has not downloaded {package}"))?;
        copy(wheel, &to.join(wheel.file_name().context("a wheel without a name")?))?;
    }
    Ok(())
}

/// The programs and commands of the documentation.
fn programs(work: &Work, to: &Path) -> Result<()> {
    let page =
        |name: &str| fs::read_to_string(work.root.join(name)).with_context(|| format!("cannot read {name}"));
    let (start, embedding, capi) =
        (page("docs/start.md")?, page("docs/embedding.md")?, page("capi/README.md")?);
    // The third program of the start page needs a GPU.
    write(&to.join("start.py"), block(&start, "python", 0)? + &block(&start, "python", 1)?)?;
    let console = block(&start, "console", 0)?;
    let commands: Vec<_> = console.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    write(&to.join("start.sh"), commands.join("\n") + "\n")?;
    write(&to.join("main.rs"), block(&embedding, "rust", 0)? + MAIN)?;
    let project = "cmake_minimum_required(VERSION 3.16)\nproject(app CXX)\n".to_owned();
    write(&to.join("CMakeLists.txt"), project + &block(&embedding, "cmake", 0)?)?;
    write(&to.join("app.c"), block(&capi, "c", 0)?)?;
    write(&to.join("main.cpp"), block(&capi, "cpp", 0)?)?;
    for file in EXAMPLES {
        for path in files(&work.root.join(file))? {
            copy(&path, &to.join(path.strip_prefix(&work.root)?))?;
        }
    }
    Ok(())
}

/// The content of a fenced block of a page: the block number `n` of the language.
fn block(page: &str, language: &str, n: usize) -> Result<String> {
    let begin = format!("\n```{language}\n");
    let block = page.split(&begin).nth(n + 1).and_then(|rest| rest.split_once("\n```"));
    let (block, _) = block.with_context(|| format!("the page has no block {n} in {language}"))?;
    Ok(format!("{block}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_language_and_number() {
        let page = "text\n```python\na\n\nb\n```\n\n```c\nc\n```\n```python\nd\n```\n";
        assert_eq!(block(page, "python", 0).unwrap(), "a\n\nb\n");
        assert_eq!(block(page, "python", 1).unwrap(), "d\n");
        assert_eq!(block(page, "c", 0).unwrap(), "c\n");
        assert!(block(page, "c", 1).is_err() && block(page, "cpp", 0).is_err());
    }
}
