//! The program of `cargo xtask bench`: measures Crossdock's speed, and compares it to pyarrow or to
//! a bound of the machine in the same run. Figures are medians. Crossdock and pyarrow run
//! alternately, so that changes of the machine's speed affect both.

mod bench;
mod c_device;
mod decode;
mod dlpack;
mod feed;
mod files;
mod ipc;
mod isolation;
mod kernels;
mod load;
mod loader;
mod long;
mod peer;
mod result;
mod table;
mod test_file;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use bench::Bench;
pub use result::Result;

/// Measures Crossdock beside pyarrow and prints a table for docs/benchmarks.md.
#[derive(Parser)]
struct Arguments {
    /// Python interpreter with pyarrow
    #[arg(long, default_value = "target/venv/bin/python")]
    python: PathBuf,
    /// Folder of the input files, which are created if they are missing
    #[arg(long, default_value = "target/bench-data")]
    data: PathBuf,
    /// Flights table from which the input files are created
    #[arg(long, default_value = "examples/data/flights-january.arrow")]
    flights: PathBuf,
    /// Number of runs of each side
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Run only the benchmarks whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Further folder for the files of `--only loader` and `--only feed`, on tmpfs
    #[arg(long, default_value = "/dev/shm")]
    tmpfs: PathBuf,
    /// Numbers of threads for `--only feed`
    #[arg(long, value_delimiter = ',', default_value = "8,12,16")]
    threads: Vec<usize>,
    /// Sizes of the chunks for `--only feed`, in KiB
    #[arg(long, value_delimiter = ',', default_value = "1024,2048,4096")]
    chunk_kib: Vec<usize>,
    /// Numbers of chunks per thread for `--only feed`
    #[arg(long, value_delimiter = ',', default_value = "2,3")]
    slots: Vec<usize>,
    /// Methods for `--only feed`
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "nothing,read,map,populate,stream,memory,memory-stream,register"
    )]
    methods: Vec<feed::Method>,
    /// Size of the table for `--only ipc`, and of the sources for `--only loader`, in MiB
    #[arg(long, default_value_t = 256)]
    size_mib: u64,
    #[command(subcommand)]
    child: Option<Child>,
}

/// Commands for child processes of this program. They measure figures that a process can measure
/// only once.
#[derive(Subcommand)]
enum Child {
    /// Load the plugins and print the time in ns
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
        return load::measure_once();
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
    if let Some(only @ ("loader" | "feed")) = arguments.only.as_deref() {
        let Arguments { threads, chunk_kib, slots, methods, .. } = arguments;
        let (threads, chunk_kib, slots) = (threads.clone(), chunk_kib.clone(), slots.clone());
        let sweep = feed::Sweep { threads, chunk_kib, slots, methods: methods.clone() };
        return loader::figures(&loader::Settings {
            folders: vec![arguments.data.clone(), arguments.tmpfs.clone()],
            bytes: arguments.size_mib << 20,
            runs: arguments.runs.max(1),
            sweeps: (only == "feed").then_some(sweep),
        });
    }
    if arguments.only.as_deref() == Some("cuda") {
        return c_device::on_cuda();
    }
    let wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| name.contains(only));
    if wanted("kernels") {
        eprintln!("kernels ...");
        kernels::rates()?;
        // The kernel benchmarks need neither pyarrow nor input files.
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
    eprintln!("creating the input files in {} ...", arguments.data.display());
    peer.create_inputs(&arguments.data, &arguments.flights)?;
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
