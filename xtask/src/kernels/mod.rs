//! `cargo xtask kernels`: what CUDA devices run, made from `kernels/cuda` without a GPU or a toolkit.

mod apart;
mod lz4;
mod nvrtc;
mod record;
mod set;

use crate::cargo::{Workspace, run as run_command};
use anyhow::{Context, Result, bail};
use nvrtc::{Compiler, OPTIONS, Output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use record::check as check_record;
use record::{IMAGES, Sources};

/// The compiler, as the Python package index has it. That of the oldest driver that the images must load on: what it makes
/// loads on every later one.
const PACKAGE: &str = "nvidia-cuda-nvrtc-cu12";
const VERSION: &str = "12.2.140";

/// The program that includes all kernels.
const ALL: &str = "all.cu";

/// A cubin runs on its own major version from its minor on; PTX is for devices of other majors, and compiled as it is
/// loaded.
const TARGETS: &[(Output, u32)] =
    &[(Output::Cubin, 70), (Output::Cubin, 80), (Output::Cubin, 90), (Output::Ptx, 70)];

#[derive(clap::Args)]
pub struct Options {
    /// Build into the target folder and compare with what is committed, which must be the same bytes
    #[arg(long)]
    check: bool,
    /// Print what the assembler says about registers and spills
    #[arg(long)]
    verbose: bool,
    /// Compile this CUDA source of a plugin's instead; it may include crossdock.cuh, and no other file
    #[arg(long, value_name = "FILE", requires = "output")]
    source: Option<PathBuf>,
    /// Where its images go: what a crossdock_kernel's `image` points at
    #[arg(long, value_name = "FILE", requires = "source")]
    output: Option<PathBuf>,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if let (Some(source), Some(output)) = (&options.source, &options.output) {
        return apart::run(workspace, source, output, options);
    }
    if options.check {
        match check(workspace)? {
            Some(why) => println!("skipped: kernels rebuilt: {why}"),
            None => println!("{IMAGES}: as the compiler {VERSION} makes it"),
        }
        return Ok(());
    }
    let sources = Sources::read(&workspace.root)?;
    let library = library(workspace)?;
    let images = build(&library, &sources, options.verbose)?;
    let place = workspace.root.join(IMAGES);
    fs::create_dir_all(place.parent().unwrap_or(&place))?;
    fs::write(&place, &images).with_context(|| format!("cannot write {IMAGES}"))?;
    sources.record(&workspace.root, &compiler(), &images)?;
    println!("{IMAGES}: {} images, {} KiB", TARGETS.len(), images.len() / 1024);
    Ok(())
}

/// Holds the images to the record always; and to what the compiler makes, or says why that was skipped.
pub fn check(workspace: &Workspace) -> Result<Option<String>> {
    let complaints = check_record(&workspace.root);
    if !complaints.is_empty() {
        bail!("{}", complaints.join("\n"));
    }
    let library = match library(workspace) {
        Ok(library) => library,
        Err(why) => return Ok(Some(format!("{PACKAGE}=={VERSION} cannot be had: {why:#}"))),
    };
    apart::check_all(workspace, &library)?;
    let images = build(&library, &Sources::read(&workspace.root)?, false)?;
    let committed = fs::read(workspace.root.join(IMAGES)).with_context(|| format!("cannot read {IMAGES}"))?;
    if images != committed {
        bail!(
            "{IMAGES}: the compiler {VERSION} makes other bytes of the same sources: run `cargo xtask kernels`"
        );
    }
    Ok(None)
}

/// The compiler as it is on record.
fn compiler() -> String {
    format!("{VERSION} {}", OPTIONS.join(" "))
}

fn build(library: &Path, sources: &Sources, verbose: bool) -> Result<Vec<u8>> {
    let all = sources.get(ALL).with_context(|| format!("kernels/cuda has no {ALL}"))?;
    let headers: Vec<(&str, &str)> = sources.iter().filter(|(name, _)| *name != ALL).collect();
    let set = compile(library, all, &headers, verbose)?;
    // How long it is, and the set compressed.
    Ok([(set.len() as u64).to_le_bytes().as_slice(), &lz4::encode(&set)].concat())
}

/// A program's images for all targets, as one set.
fn compile(library: &Path, program: &str, headers: &[(&str, &str)], verbose: bool) -> Result<Vec<u8>> {
    let compiler = Compiler::open(library)?;
    let mut images = Vec::new();
    for (output, architecture) in TARGETS {
        let compiled = compiler.compile(program, headers, *output, *architecture, verbose)?;
        if verbose {
            println!("{}", compiled.log.trim());
        }
        images.push((*output, *architecture, compiled.image));
    }
    Ok(set::pack(&images))
}

/// The folder of the compiler's libraries: unpacked in the target folder, fetched where it is not there.
fn library(workspace: &Workspace) -> Result<PathBuf> {
    let place = workspace.target.join(format!("nvrtc-{VERSION}"));
    let library = place.join("nvidia/cuda_nvrtc/lib");
    if !library.exists() {
        let wheels = workspace.target.join(format!("nvrtc-{VERSION}.download"));
        run_command(
            Command::new("python3")
                .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
                .arg("--only-binary=:all:")
                .arg("--dest")
                .arg(&wheels)
                .arg(format!("{PACKAGE}=={VERSION}")),
        )?;
        let files = fs::read_dir(&wheels).with_context(|| format!("cannot list {}", wheels.display()))?;
        for file in files {
            let file = file?.path();
            run_command(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&file).arg(&place))?;
        }
        fs::remove_dir_all(&wheels)?;
    }
    if library.exists() { Ok(library) } else { bail!("{PACKAGE}=={VERSION} has no nvidia/cuda_nvrtc/lib") }
}
