//! `cargo xtask bless`: records the current layout of the ABI, and the layouts of releases.

use crate::cargo::Workspace;
use anyhow::{Context, Result, bail};
use crossdock_plugin_api::record::{Abi, Contract, FILES, HOST_HEADER, compare_host_headers, releases};
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
        let host = workspace.root.join("capi/include").join(HOST_HEADER);
        let host =
            std::fs::read_to_string(&host).with_context(|| format!("cannot read {}", host.display()))?;
        return release(&abi, &Contract::current(), &host);
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

/// Records the contract `today` and the header `host` in `abi/released`, unless the same contract
/// is already recorded.
fn release(abi: &Path, today: &Contract, host: &str) -> Result<()> {
    let path = abi.join("layout.txt");
    let layout = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if layout != today.layout {
        bail!("{} is not up to date: run `cargo xtask bless` and check the difference", path.display());
    }
    let folder = abi.join("released");
    let on_record = releases(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let name = today.version().context("the layout table does not begin with its version")?;
    if let Some((last, released)) = on_record.last() {
        may_follow(&folder, today, host, *last, released)?;
        if *last == name {
            println!("ABI {name} is already recorded");
            return Ok(());
        }
    }
    let folder = folder.join(name.to_string());
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let files = [(FILES[0], today.header.as_str()), (FILES[1], &today.layout), (HOST_HEADER, host)];
    for (file, text) in files {
        let path = folder.join(file);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("wrote {}: ABI {name} is recorded; commit it, and tag the commit", folder.display());
    Ok(())
}

/// Checks both headers against those of the last release.
fn may_follow(folder: &Path, today: &Contract, host: &str, last: Abi, released: &Contract) -> Result<()> {
    let path = folder.join(last.to_string()).join(HOST_HEADER);
    let old = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let version = today.version().context("the layout table does not begin with its version")?;
    let of_host = compare_host_headers(&old, host).may_follow(version, last);
    today.may_follow(last, released).and(of_host).map_err(anyhow::Error::msg)
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

    const HOST: &str = "crossdock_code crossdock_f(int a);\n";

    /// The current contract with another patch version, and further changes of its layout.
    fn with(patch: u32, layout: impl Fn(String) -> String) -> Contract {
        let today = Contract::current();
        let version = today.version().unwrap();
        let next = Abi { patch, ..version };
        let text = today.layout.replacen(&format!("abi {version}\n"), &format!("abi {next}\n"), 1);
        Contract { layout: layout(text), ..today }
    }

    #[test]
    fn records_each_abi_version_once_and_rejects_breaking_changes() {
        let abi = folder("release");
        let record = |contract: &Contract, host: &str| {
            std::fs::write(abi.join("layout.txt"), &contract.layout).unwrap();
            release(&abi, contract, host)
        };
        let version = Contract::current().version().unwrap();
        let first = with(0, |layout| layout);
        record(&first, HOST).unwrap();
        record(&first, HOST).unwrap();
        let name = |patch| Abi { patch, ..version }.to_string();
        assert_eq!(names(&abi), [name(0)]);
        assert_eq!(Contract::read(&abi.join("released").join(name(0))).unwrap(), first);

        let append = |layout: String| layout + "crossdock_later: size 8 align 8\n      0 struct_size\n";
        let message = record(&with(0, append), HOST).unwrap_err().to_string();
        assert!(
            message.contains("crossdock_later is new") && message.contains("CROSSDOCK_ABI_PATCH"),
            "{message}"
        );
        let more = HOST.to_owned() + "void crossdock_g(void);\n";
        let message = record(&first, &more).unwrap_err().to_string();
        assert!(message.contains("crossdock_g") && message.contains("CROSSDOCK_ABI_PATCH"), "{message}");
        record(&with(1, append), &more).unwrap();
        assert_eq!(names(&abi), [name(0), name(1)]);

        let broken = |layout: String| append(layout).replacen("     40 buffers\n", "     48 buffers\n", 1);
        let message = format!("{:#}", record(&with(2, broken), &more).unwrap_err());
        assert!(message.contains("'buffers' at 48, was 'buffers' at 40"), "{message}");
        let message = record(&with(2, append), HOST).unwrap_err().to_string();
        assert!(message.contains("crossdock_g(void);' was removed"), "{message}");
        assert!(record(&first, &more).unwrap_err().to_string().contains("which has been released"));
        assert_eq!(names(&abi).len(), 2, "nothing is overwritten");

        let next = Abi { major: version.major + 1, minor: 0, patch: 0 };
        let line =
            |layout: String| layout.replacen(&format!("abi {}\n", name(0)), &format!("abi {next}\n"), 1);
        record(&with(0, |layout| broken(line(layout))), HOST).unwrap();
        assert_eq!(names(&abi)[2], next.to_string());
        std::fs::remove_dir_all(abi).unwrap();
    }

    #[test]
    fn recording_an_abi_version_rejects_an_outdated_layout_file() {
        let abi = folder("unblessed");
        std::fs::write(abi.join("layout.txt"), "abi 0.0.0\n").unwrap();
        let message = release(&abi, &Contract::current(), HOST).unwrap_err().to_string();
        assert!(message.contains("cargo xtask bless"), "{message}");
        assert!(!abi.join("released").exists());
        std::fs::remove_dir_all(abi).unwrap();
    }
}
