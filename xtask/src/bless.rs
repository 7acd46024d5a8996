//! `cargo xtask bless`: records the current layout of the ABI, and the layouts of releases.

use crate::cargo::Workspace;
use anyhow::{Context, Result, bail};
use crossdock_plugin_api::record::{Abi, Compatibility, Contract, FILES, releases};
use std::path::Path;

/// Options of `cargo xtask bless`.
#[derive(clap::Args)]
pub struct Options {
    /// Also record the header and the layout of a release
    #[arg(long)]
    release: bool,
}

/// Writes `plugin-api/abi/layout.txt`, and the record of a release if requested.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let abi = workspace.root.join("plugin-api/abi");
    if options.release {
        return release(&abi, &Contract::current());
    }
    let path = abi.join("layout.txt");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let now = crossdock_plugin_api::layout::render();
    if before == now {
        println!("{} is up to date", path.display());
        return Ok(());
    }
    std::fs::write(&path, &now).with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}: check with git whether the difference breaks the ABI", path.display());
    Ok(())
}

/// Records the contract `today` in `abi/released`, unless the same contract is already recorded.
fn release(abi: &Path, today: &Contract) -> Result<()> {
    let path = abi.join("layout.txt");
    let layout = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if layout != today.layout {
        bail!("{} is not up to date: run `cargo xtask bless` and check the difference", path.display());
    }
    let folder = abi.join("released");
    let on_record = releases(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let name = match next(&on_record, today)? {
        Next::OnRecord(name) => {
            println!("the contract is already recorded as ABI {name}");
            return Ok(());
        }
        Next::New(name) => name,
    };
    let folder = folder.join(name.to_string());
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (file, text) in FILES.iter().zip([&today.header, &today.layout]) {
        let path = folder.join(file);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("wrote {}: ABI {name} is recorded; commit it, and tag the commit", folder.display());
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    OnRecord(Abi),
    New(Abi),
}

/// The version under which `today` is recorded.
fn next(on_record: &[(Abi, Contract)], today: &Contract) -> Result<Next> {
    let (major, minor) = today.version().context("the layout table does not begin with its version")?;
    let first = Abi { major, minor, appended: 0 };
    let Some((abi, released)) = on_record.last() else { return Ok(Next::New(first)) };
    if let Err(words) = today.may_follow(*abi, released) {
        bail!("{words}");
    }
    if (abi.major, abi.minor) != (major, minor) {
        return Ok(Next::New(first));
    }
    Ok(match today.compare(released) {
        // The contract is already recorded, even if the comments of the header differ.
        Compatibility::Same => Next::OnRecord(*abi),
        _ => Next::New(Abi { appended: abi.appended + 1, ..*abi }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("crossdock-bless-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(abi: &Path) -> Vec<String> {
        releases(&abi.join("released")).unwrap().iter().map(|(abi, _)| abi.to_string()).collect()
    }

    fn with(layout: impl Fn(&str) -> String) -> Contract {
        let today = Contract::current();
        Contract { layout: layout(&today.layout), ..today }
    }

    #[test]
    fn records_each_abi_version_once_and_rejects_breaking_changes() {
        let abi = folder("release");
        let record = |contract: &Contract| {
            std::fs::write(abi.join("layout.txt"), &contract.layout).unwrap();
            release(&abi, contract)
        };
        let today = Contract::current();
        record(&today).unwrap();
        record(&today).unwrap();
        let (major, minor) = today.version().unwrap();
        let first = format!("{major}.{minor}");
        assert_eq!(names(&abi), std::slice::from_ref(&first));
        assert_eq!(Contract::read(&abi.join("released").join(&first)).unwrap(), today);

        let appended =
            with(|layout| layout.to_owned() + "crossdock_later: size 8 align 8\n      0 struct_size\n");
        record(&appended).unwrap();
        assert_eq!(names(&abi), [first.clone(), format!("{first}.1")]);

        let broken = with(|_| appended.layout.replacen("     40 buffers\n", "     48 buffers\n", 1));
        let message = format!("{:#}", record(&broken).unwrap_err());
        assert!(message.contains("'buffers' at 48, was 'buffers' at 40"), "{message}");
        assert!(record(&today).unwrap_err().to_string().contains("crossdock_later was removed"));
        assert_eq!(names(&abi).len(), 2, "nothing is overwritten");

        let next = format!("abi {major}.{}\n", minor + 1);
        let bumped = with(|_| broken.layout.replacen(&format!("abi {first}\n"), &next, 1));
        record(&bumped).unwrap();
        assert_eq!(names(&abi)[2], format!("{major}.{}", minor + 1));
        std::fs::remove_dir_all(abi).unwrap();
    }

    #[test]
    fn recording_an_abi_version_rejects_an_outdated_layout_file() {
        let abi = folder("unblessed");
        std::fs::write(abi.join("layout.txt"), "abi 0.0\n").unwrap();
        let message = release(&abi, &Contract::current()).unwrap_err().to_string();
        assert!(message.contains("cargo xtask bless"), "{message}");
        assert!(!abi.join("released").exists());
        std::fs::remove_dir_all(abi).unwrap();
    }
}
