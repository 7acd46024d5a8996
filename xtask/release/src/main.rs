//! `cargo xtask release`: builds what is published in one folder: crates, a tarball and the Python
//! package, with the notices of all dependencies, a list of components, checksums and signatures.

mod archive;
mod check;
mod checksums;
mod crates;
mod dependencies;
mod notices;
mod sbom;
mod tarball;
mod toolchain;
mod wheel;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::work::Work;

/// Builds and verifies what is published, in one folder.
///
/// The folder then contains the crates (crates/), the tarball with the command, the plugins and the
/// library for C and C++, the wheel, the source distribution, SHA256SUMS, and the signature of
/// SHA256SUMS if --key is given. docs/releasing.md describes how to publish them.
#[derive(Parser)]
#[command(name = "cargo xtask release")]
struct Options {
    /// The folder; an existing folder must be empty [default: dist/crossdock-VERSION]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Build only these parts
    #[arg(long, value_delimiter = ',', value_name = "PART,...")]
    only: Vec<Part>,
    /// Sign with this minisign secret key. The password is read from the terminal, or from
    /// MINISIGN_PASSWORD
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Only check the release in this folder: install each part with an empty home, without a
    /// network and without a checkout, and use it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "only", "key", "glibc"])]
    check: Option<PathBuf>,
    /// The newest version of glibc that the programs may need
    #[arg(long, default_value = "2.28", value_name = "VERSION")]
    glibc: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The packages of the crates, each of which is built from its package
    Crates,
    /// The command, the plugins, the library, headers and documentation
    Tarball,
    /// The Python package: a wheel and a source distribution
    Wheel,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    if let Some(folder) = &options.check {
        let out = folder.canonicalize().with_context(|| format!("cannot open {}", folder.display()))?;
        return check::release(&Work { root, out, glibc: options.glibc.clone() });
    }
    let version = env!("CARGO_PKG_VERSION");
    let out = options.out.clone().unwrap_or_else(|| root.join(format!("dist/crossdock-{version}")));
    if std::fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty: remove it, or choose another folder with --out", out.display());
    }
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    // The key is read first, so that a wrong password is noticed before the builds.
    let key = options.key.as_deref().map(checksums::read_key).transpose()?;
    let work = Work { root, out: out.canonicalize()?, glibc: options.glibc.clone() };
    let is_chosen = |part| options.only.is_empty() || options.only.contains(&part);
    if is_chosen(Part::Crates) {
        timed("crates", || crates::package(&work))?;
    }
    if is_chosen(Part::Tarball) || is_chosen(Part::Wheel) {
        let toolchain = toolchain::prepare(&work)?;
        if is_chosen(Part::Tarball) {
            timed("tarball", || tarball::build(&work, &toolchain))?;
        }
        if is_chosen(Part::Wheel) {
            timed("wheel", || wheel::build(&work, &toolchain))?;
        }
    }
    checksums::write(&work.out, key.as_ref())?;
    println!("{}", work.out.display());
    Ok(())
}

fn timed(part: &str, build: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    eprintln!("{part}: building");
    build().with_context(|| format!("cannot build the {part}"))?;
    eprintln!("{part}: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}
