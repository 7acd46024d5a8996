//! `cargo xtask sim-cuda`: builds the simulated CUDA driver in a folder that `LD_LIBRARY_PATH` can
//! name.

use crate::cargo::{Workspace, cargo, run as run_command};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const PACKAGE: &str = "crossdock-sim-cuda-driver";
const BUILT: &str = "libcrossdock_sim_cuda_driver.so";
/// The SONAME of the library, and its name for the linker. Programs may open the library by either
/// name.
const LIBRARY: &str = "libcuda.so.1";
const LINK: &str = "libcuda.so";

/// Options of `cargo xtask sim-cuda`.
#[derive(clap::Args)]
pub struct Options {
    /// Remove this function, to simulate an older driver; may be given more than once
    #[arg(long, value_name = "FUNCTION")]
    lack: Vec<String>,
}

/// Builds the driver, and prints its folder as the only line on standard output.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    println!("{}", lay_out(workspace, &options.lack)?.display());
    Ok(())
}

/// Builds the driver without the functions in `lack`. Returns the folder for `LD_LIBRARY_PATH`.
pub fn lay_out(workspace: &Workspace, lack: &[String]) -> Result<PathBuf> {
    run_command(cargo().current_dir(&workspace.root).args(["build", "--quiet", "-p", PACKAGE]))?;
    let mut library = fs::read(workspace.built(false).join(BUILT)).context(BUILT)?;
    lack.iter().try_for_each(|function| hide(&mut library, function))?;
    let mut folder = "sim-cuda".to_owned();
    for function in lack {
        folder += &format!("-without-{function}");
    }
    let folder = workspace.target.join(folder);
    // Several steps of the tests may use the same folder at the same time.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    install(&folder, &library)?;
    Ok(folder)
}

/// Hides a symbol by changing its name. The loader finds a symbol by the hash of its name and then
/// compares the names. The hash stays the same, so the loader finds neither the old nor the new
/// name.
fn hide(library: &mut [u8], function: &str) -> Result<()> {
    let name: Vec<u8> = [b"\0", function.as_bytes(), b"\0"].concat();
    let places: Vec<usize> =
        library.windows(name.len()).enumerate().filter(|(_, at)| *at == name).map(|(at, _)| at).collect();
    if places.is_empty() || function.is_empty() {
        bail!("--lack {function}: the simulated driver has no such function");
    }
    for at in places {
        library[at + 1] = b'_';
    }
    Ok(())
}

/// Replaces the file atomically. Programs that have mapped the old file are not affected.
fn install(folder: &Path, library: &[u8]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let target = folder.join(LIBRARY);
    if fs::read(&target).is_ok_and(|old| old == library) && folder.join(LINK).exists() {
        return Ok(());
    }
    let fresh = folder.join(format!("{LIBRARY}.{}", std::process::id()));
    fs::write(&fresh, library).with_context(|| format!("cannot write {}", fresh.display()))?;
    fs::rename(&fresh, &target).with_context(|| format!("cannot write {}", target.display()))?;
    if !folder.join(LINK).exists() {
        symlink(LIBRARY, folder.join(LINK)).with_context(|| format!("no link in {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hide_renames_only_the_function_with_the_exact_name() {
        let mut library = b"\0cuInit\0cuInitAll\0xcuInit\0".to_vec();
        hide(&mut library, "cuInit").unwrap();
        assert_eq!(library, b"\0_uInit\0cuInitAll\0xcuInit\0");
    }

    #[test]
    fn rejects_an_unknown_function() {
        assert!(hide(&mut b"\0cuInit\0".to_vec(), "cuExit").is_err());
    }
}
