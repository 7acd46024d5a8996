//! The Python package: a wheel and a source distribution.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::toolchain::Toolchain;
use crate::work::{Work, output, run};
use crate::{dependencies, notices, sbom, tarball};

pub fn build(work: &Work, toolchain: &Toolchain) -> Result<()> {
    // The build backend adds these files to the metadata of the wheel.
    let documents = work.target().join("wheel-documents");
    let plugins = tarball::plugin_crates(work)?;
    let mut crates = vec!["crossdock-python", "crossdock-cli"];
    crates.extend(plugins.iter().map(String::as_str));
    let dependencies = dependencies::of(work, &crates)?;
    crate::work::write(&documents.join("THIRD-PARTY-NOTICES.txt"), notices::text(work, &dependencies)?)?;
    crate::work::write(
        &documents.join("sboms/crossdock.cdx.json"),
        sbom::text("crossdock-python", &dependencies),
    )?;
    let mut pip = toolchain.python();
    pip.current_dir(&work.root).args([
        "-m",
        "pip",
        "wheel",
        "--disable-pip-version-check",
        "./python",
        "--no-deps",
    ]);
    pip.arg("--no-build-isolation").arg("--wheel-dir").arg(&work.out);
    pip.arg("--config-settings").arg(format!("documents={}", documents.display()));
    toolchain.apply(&mut pip);
    run(&mut pip)?;
    let wheels: Vec<_> = fs::read_dir(&work.out)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect();
    let [wheel] = wheels.as_slice() else { bail!("expected one wheel, got {wheels:?}") };
    let unpacked = work.target().join("wheel");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
    }
    output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked))?;
    crate::work::files(&unpacked)?.iter().try_for_each(|file| tarball::check(work, file))?;
    sources(work, toolchain)
}

/// The source distribution.
fn sources(work: &Work, toolchain: &Toolchain) -> Result<()> {
    let script = "import sys; sys.path.insert(0, 'build_backend'); import crossdock_build; \
                  print(crossdock_build.build_sdist(sys.argv[1]))";
    let mut python = toolchain.python();
    run(python.current_dir(work.root.join("python")).args(["-c", script]).arg(&work.out))
}
