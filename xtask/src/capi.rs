//! `cargo xtask capi`: installs the library for applications in C and C++, in the way a system
//! package does.

use crate::cargo::{Workspace, cargo, run as run_command};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const LIBRARY: &str = "libcrossdock.so";
const ABI_HEADER: &str = "plugin-api/include/crossdock.h";
const HEADERS: [&str; 6] = [
    ABI_HEADER,
    "plugin-api/include/crossdock.hpp",
    "plugin-api/include/crossdock-plugin.hpp",
    "capi/include/crossdock-host.h",
    "capi/include/crossdock-host.hpp",
    "capi/include/crossdock-settings.hpp",
];
/// Templates, and the files that are written from them.
const TEMPLATES: [(&str, &str); 3] = [
    ("capi/crossdock.pc.in", "lib/pkgconfig/crossdock.pc"),
    ("capi/crossdock-config.cmake.in", "lib/cmake/crossdock/crossdock-config.cmake"),
    ("capi/crossdock-config-version.cmake.in", "lib/cmake/crossdock/crossdock-config-version.cmake"),
];

/// Options of `cargo xtask capi`.
#[derive(clap::Args)]
pub struct Options {
    /// The target folder for include/, lib/, lib/crossdock/plugins/, and the files for pkg-config
    /// and CMake
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// Install the libraries from this folder, instead of building them in the release profile
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
}

/// Installs the libraries. Builds them first, unless the options name a folder that contains them.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let built = match &options.built {
        Some(built) => built.clone(),
        None => {
            let mut build = cargo();
            build.current_dir(&workspace.root).args(["build", "--release", "-p", "crossdock-capi"]);
            build.args(workspace.plugins().flat_map(|plugin| ["-p", &plugin.name]));
            run_command(&mut build)?;
            workspace.built(true)
        }
    };
    fs::create_dir_all(&options.prefix)
        .with_context(|| format!("cannot create {}", options.prefix.display()))?;
    let prefix = options.prefix.canonicalize()?;
    let plugins: Vec<_> = workspace.plugins().flat_map(|plugin| &plugin.cdylibs).collect();
    lay_out(&workspace.root, &built, &prefix, &plugins)?;
    println!("{}: {LIBRARY} {}, {} plugins", prefix.display(), version(), plugins.len());
    println!("export PKG_CONFIG_PATH={}/lib/pkgconfig", prefix.display());
    Ok(())
}

fn lay_out(root: &Path, built: &Path, prefix: &Path, plugins: &[&String]) -> Result<()> {
    let folder = |name: &str| -> Result<PathBuf> {
        let folder = prefix.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    };
    let (lib, include) = (folder("lib")?, folder("include")?);
    // Installs the library under its full version. The link with the SONAME (see capi/build.rs) is
    // for programs, and the link without a version is for the linker.
    let file = format!("{LIBRARY}.{}", version());
    let header = fs::read_to_string(root.join(ABI_HEADER)).context(ABI_HEADER)?;
    let major = header.lines().find_map(|line| line.strip_prefix("#define CROSSDOCK_ABI_MAJOR "));
    let major = major.with_context(|| format!("{ABI_HEADER}: no CROSSDOCK_ABI_MAJOR"))?;
    let soname = format!("{LIBRARY}.{major}");
    install(&built.join(LIBRARY), &lib.join(&file))?;
    link(&file, &lib.join(&soname))?;
    link(&soname, &lib.join(LIBRARY))?;
    for header in HEADERS {
        let header = root.join(header);
        install(&header, &include.join(header.file_name().unwrap_or_default()))?;
    }
    for (template, file) in TEMPLATES {
        let text = fs::read_to_string(root.join(template)).context(template)?;
        let path = prefix.join(file);
        fs::create_dir_all(path.parent().unwrap_or(prefix))?;
        let text = text.replace("@VERSION@", version()).replace("@MAJOR@", major);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let to = folder("lib/crossdock/plugins")?;
    for plugin in plugins {
        let name = format!("lib{plugin}.so");
        install(&built.join(&name), &to.join(&name))?;
    }
    Ok(())
}

/// The workspace's version, which all members have.
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Replaces a file. Programs that have mapped the old file are not affected. Only the owner may
/// write the new file, because otherwise the host would not load it as a plugin.
fn install(from: &Path, to: &Path) -> Result<()> {
    remove(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o644))?;
    Ok(())
}

fn link(to: &str, at: &Path) -> Result<()> {
    remove(at)?;
    symlink(to, at).with_context(|| format!("cannot create the link {}", at.display()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("cannot replace {}: {error}", path.display())
        }
        _ => Ok(()),
    }
}
