//! The Python package: wheels and a source distribution.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::toolchain::Toolchain;
use crate::work::{Work, files, output, run};
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
    for mut pip in toolchain.pythons() {
        pip.current_dir(&work.root).args(["-m", "pip", "wheel", "--disable-pip-version-check"]);
        pip.args(["./python", "--no-deps", "--no-build-isolation"]).arg("--wheel-dir").arg(&work.out);
        pip.arg("--config-settings").arg(format!("documents={}", documents.display()));
        toolchain.apply(&mut pip);
        run(&mut pip)?;
    }
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let wheels: Vec<_> = files(&work.out)?.into_iter().filter(is_wheel).collect();
    ensure!(!wheels.is_empty(), "no wheel was built");
    for wheel in wheels {
        let unpacked = work.target().join("wheel");
        if unpacked.exists() {
            fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
        }
        output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked))?;
        files(&unpacked)?.iter().try_for_each(|file| tarball::check(work, file))?;
    }
    sources(work, toolchain)
}

/// The source distribution.
fn sources(work: &Work, toolchain: &Toolchain) -> Result<()> {
    let script = "import sys; sys.path.insert(0, 'build_backend'); import crossdock_build; \
                  print(crossdock_build.build_sdist(sys.argv[1]))";
    let mut python = toolchain.pythons().next().context("no Python interpreter")?;
    run(python.current_dir(work.root.join("python")).args(["-c", script]).arg(&work.out))
}
