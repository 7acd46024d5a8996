//! `cargo xtask bench`: what Crossdock's speed is measured by, each figure beside pyarrow's or the machine's own floor
//! in the same run. Medians; the two sides take turns, so that a machine that drifts drifts for both.

mod bench;
mod c_device;
mod decode;
mod dlpack;
mod files;
mod ipc;
mod isolation;
mod kernels;
mod load;
mod long;
mod peer;
mod result;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use bench::Bench;
pub use result::Result;

/// Measures Crossdock beside pyarrow and prints a table for docs/benchmarks.md.
#[derive(Parser)]
struct Arguments {
    /// A Python with pyarrow
    #[arg(long, default_value = "target/venv/bin/python")]
    python: PathBuf,
    /// Where the files that are read are made and kept
    #[arg(long, default_value = "target/bench-data")]
    data: PathBuf,
    /// The flights table, of which these files are made
    #[arg(long, default_value = "examples/data/flights-january.arrow")]
    flights: PathBuf,
    /// How often each side runs
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Only figures whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// For `--only ipc`, which needs a GPU and no Python: how large the table is, in MiB
    #[arg(long, default_value_t = 256)]
    size_mib: u64,
    #[command(subcommand)]
    child: Option<Child>,
}

/// What this program asks of copies of itself, for figures that a process can give only once.
#[derive(Subcommand)]
enum Child {
    /// Loads the plugins and prints the time in ns
    #[command(hide = true)]
    Load,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benches: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(Child::Load) = arguments.child {
        return load::once();
    }
    let ipc = ipc::Settings {
        folder: arguments.data.clone(),
        bytes: arguments.size_mib << 20,
        runs: arguments.runs.max(1),
    };
    if arguments.only.as_deref() == Some("ipc") {
        std::fs::create_dir_all(&arguments.data)?;
        return ipc::figures(&ipc);
    }
    if arguments.only.as_deref() == Some("cuda") {
        return c_device::on_cuda();
    }
    let wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| name.contains(only));
    if wanted("kernels") {
        eprintln!("kernels ...");
        kernels::rates()?;
        // They need neither a peer nor files.
        if arguments.only.as_deref() == Some("kernels") {
            return Ok(());
        }
    }
    if wanted("decode") {
        eprintln!("decode ...");
        decode::rates()?;
        if arguments.only.as_deref() == Some("decode") {
            return Ok(());
        }
    }
    let peer = peer::Peer::new(&arguments.python)?;
    eprintln!("making the files that are read, in {} ...", arguments.data.display());
    peer.make(&arguments.data, &arguments.flights)?;
    let bench = Bench { peer, data: arguments.data.clone(), runs: arguments.runs.max(1) };
    let mut table = table::Table::new();
    type Figure = fn(&Bench, &mut table::Table) -> Result<()>;
    let figures: [(&str, Figure); 8] = [
        ("load", load::plugins),
        ("sample", files::sample),
        ("c-device", c_device::batches),
        ("dlpack", dlpack::columns),
        ("mapped", files::mapped),
        ("read", files::read),
        ("copy", files::copy),
        ("long", long::routes),
    ];
    for (name, figure) in figures.into_iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name} ...");
        figure(&bench, &mut table)?;
    }
    print!("{}", table.markdown());
    if wanted("isolation") {
        eprintln!("isolation ...");
        isolation::costs(&bench)?;
    }
    if wanted("ipc") { ipc::figures(&ipc) } else { Ok(()) }
}
