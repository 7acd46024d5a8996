//! Compiles the CUDA source of a plugin: `cargo xtask kernels --source FILE --output FILE`.

use super::{Options, TARGETS, compile, library};
use crate::cargo::Workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// The only header that the source may include, because no other header is passed to the compiler.
/// It defines the types of crossdock.h.
const HEADER: &str = "crossdock.cuh";

/// The sources of the examples, and their committed images.
const EXAMPLES: &[(&str, &str)] =
    &[("examples/rust-plugin/cuda/xor.cu", "examples/rust-plugin/cuda/xor.images")];

pub fn run(workspace: &Workspace, source: &Path, output: &Path, options: &Options) -> Result<()> {
    let library = library(workspace)?;
    if options.check {
        check(workspace, &library, source, output)?;
        println!("{}: equals the compiler's output", output.display());
        return Ok(());
    }
    let images = build(workspace, &library, source, options.verbose)?;
    fs::write(output, &images).with_context(|| format!("cannot write {}", output.display()))?;
    println!("{}: {} images, {} KiB", output.display(), TARGETS.len(), images.len().div_ceil(1024));
    Ok(())
}

/// Compares the examples' images with the compiler's output.
pub fn check_all(workspace: &Workspace, library: &Path) -> Result<()> {
    let in_root = |path| workspace.root.join(path);
    EXAMPLES
        .iter()
        .try_for_each(|(source, output)| check(workspace, library, &in_root(source), &in_root(output)))
}

fn check(workspace: &Workspace, library: &Path, source: &Path, output: &Path) -> Result<()> {
    let committed = fs::read(output).with_context(|| format!("cannot read {}", output.display()))?;
    if build(workspace, library, source, false)? != committed {
        let (source, output) = (source.display(), output.display());
        bail!(
            "{output}: differs from the compiler's output for {source}: run `cargo xtask kernels --source {source} \
             --output {output}`"
        );
    }
    Ok(())
}

fn build(workspace: &Workspace, library: &Path, source: &Path, verbose: bool) -> Result<Vec<u8>> {
    let read =
        |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let program = read(source)?;
    let header = read(&workspace.root.join("kernels/cuda").join(HEADER))?;
    compile(library, &program, &[(HEADER, &header)], verbose)
        .with_context(|| format!("cannot compile {}", source.display()))
}
