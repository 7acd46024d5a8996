//! `cargo xtask kernels`: compiles `kernels/cuda` to device images, without a GPU or a CUDA
//! toolkit.

mod lz4;
mod nvrtc;
mod plugin_source;
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

/// The compiler's package in the Python package index. Its version is the CUDA version of the
/// oldest supported driver, so that this driver and all later drivers can load the images.
const PACKAGE: &str = "nvidia-cuda-nvrtc-cu12";
const VERSION: &str = "12.2.140";

/// The source file that includes all kernels.
const ALL: &str = "all.cu";

/// A cubin runs on devices of its major version and the same or a later minor version. PTX runs on
/// devices of other major versions, and is compiled when it is loaded.
const TARGETS: &[(Output, u32)] =
    &[(Output::Cubin, 70), (Output::Cubin, 80), (Output::Cubin, 90), (Output::Ptx, 70)];

#[derive(clap::Args)]
pub struct Options {
    /// Build into the target folder, and check that the committed images have the same bytes
    #[arg(long)]
    check: bool,
    /// Print how many registers and spills the assembler reports
    #[arg(long)]
    verbose: bool,
    /// Compile this CUDA source of a plugin instead; it may include only crossdock.cuh
    #[arg(long, value_name = "FILE", requires = "output")]
    source: Option<PathBuf>,
    /// The output file for the images, which the field `image` of a crossdock_kernel refers to
    #[arg(long, value_name = "FILE", requires = "source")]
    output: Option<PathBuf>,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if let (Some(source), Some(output)) = (&options.source, &options.output) {
        return plugin_source::run(workspace, source, output, options);
    }
    if options.check {
        match check(workspace)? {
            Some(reason) => println!("skipped: kernels rebuilt: {reason}"),
            None => println!("{IMAGES}: equals the output of the compiler {VERSION}"),
        }
        return Ok(());
    }
    let sources = Sources::read(&workspace.root)?;
    let library = library(workspace)?;
    let images = build(&library, &sources, options.verbose)?;
    let path = workspace.root.join(IMAGES);
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    fs::write(&path, &images).with_context(|| format!("cannot write {IMAGES}"))?;
    sources.record(&workspace.root, &compiler(), &images)?;
    println!("{IMAGES}: {} images, {} KiB", TARGETS.len(), images.len() / 1024);
    Ok(())
}

/// Compares the images with the record of their sources, and with the compiler's output. If the
/// second comparison was skipped, returns the reason.
pub fn check(workspace: &Workspace) -> Result<Option<String>> {
    let violations = check_record(&workspace.root);
    if !violations.is_empty() {
        bail!("{}", violations.join("\n"));
    }
    let library = match library(workspace) {
        Ok(library) => library,
        Err(error) => return Ok(Some(format!("{PACKAGE}=={VERSION} is not available: {error:#}"))),
    };
    plugin_source::check_all(workspace, &library)?;
    let images = build(&library, &Sources::read(&workspace.root)?, false)?;
    let committed = fs::read(workspace.root.join(IMAGES)).with_context(|| format!("cannot read {IMAGES}"))?;
    if images != committed {
        bail!("{IMAGES}: differs from the output of the compiler {VERSION}: run `cargo xtask kernels`");
    }
    Ok(None)
}

/// The compiler's version and options, for the record.
fn compiler() -> String {
    format!("{VERSION} {}", OPTIONS.join(" "))
}

fn build(library: &Path, sources: &Sources, verbose: bool) -> Result<Vec<u8>> {
    let all = sources.get(ALL).with_context(|| format!("kernels/cuda has no {ALL}"))?;
    let headers: Vec<(&str, &str)> = sources.iter().filter(|(name, _)| *name != ALL).collect();
    let set = compile(library, all, &headers, verbose)?;
    // The file consists of the uncompressed length in bytes, followed by the compressed image set.
    Ok([(set.len() as u64).to_le_bytes().as_slice(), &lz4::encode(&set)].concat())
}

/// Compiles a program for all targets, and packs the images in one set.
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

/// The folder of the compiler's libraries in the target folder. Downloads and unpacks them if
/// necessary.
fn library(workspace: &Workspace) -> Result<PathBuf> {
    let package = workspace.target.join(format!("nvrtc-{VERSION}"));
    let library = package.join("nvidia/cuda_nvrtc/lib");
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
            run_command(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&file).arg(&package))?;
        }
        fs::remove_dir_all(&wheels)?;
    }
    if library.exists() { Ok(library) } else { bail!("{PACKAGE}=={VERSION} has no nvidia/cuda_nvrtc/lib") }
}
