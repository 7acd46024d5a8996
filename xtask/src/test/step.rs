//! The steps, with their dependencies, build folders and time budgets.

use super::sample::Tier;
use clap::ValueEnum;

/// The steps in the order in which they begin. For each step, docs/testing.md explains which faults
/// only that step can find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Step {
    /// cargo fmt --check
    Fmt,
    /// The project's rules: cargo xtask tidy
    Tidy,
    /// Licences, sources and bans of dependencies, if cargo-deny is installed
    Deny,
    /// The Python environment with third-party packages, in target/venv
    Venv,
    /// The plugins, the command and the test programs
    Build,
    /// Unit and integration tests
    Rust,
    /// Tests under AddressSanitizer, if there is a nightly toolchain
    Asan,
    /// Tests for devices on the simulated CUDA driver
    SimCuda,
    /// Lints, warnings denied
    Clippy,
    /// Tests in Python: exchange with third-party packages, the Python package and its stubs
    Python,
    /// The code in the documentation
    Doc,
    /// The documentation site: cargo xtask book
    Book,
    /// A check that every ABI struct is FFI-safe, by abi_stable's derive
    StableAbi,
    /// Plugins of other releases and toolchains in the current host
    Skew,
    /// The plugin object-store, against servers on this machine
    ObjectStore,
    /// The plugin vortex-writer, whose files vortex-data and vortex-file read
    VortexWriter,
    /// The plugin parquet, compared with pyarrow and Polars
    Parquet,
    /// The example of a plugin around a crate of arrow-rs, compared with Polars
    Avro,
    /// Ray and Dask, which pass tables between their processes, and the crate for DataFusion
    Engines,
    /// A build of the wheel, which is installed in an empty environment and run
    Wheel,
    /// A build of the release, each part of which is installed in an empty home and used: cargo
    /// xtask release
    Release,
    /// Fuzz targets, 20 s each, if there is a nightly toolchain: cargo xtask fuzz
    Fuzz,
    /// A few mutants of one crate, which the crate's own tests must find, if cargo-mutants is
    /// installed: cargo xtask mutants
    Mutants,
    /// A comparison of the CUDA images with their compiler's output, if it is available: cargo
    /// xtask kernels --check
    Kernels,
}

impl Step {
    /// The name of the step on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }

    /// The steps that must run before this step, even if only this step is selected. For example,
    /// tests load plugins and start the command, which are not Cargo dependencies of the tests.
    pub fn needs(self) -> &'static [Self] {
        match self {
            Self::Rust | Self::SimCuda | Self::Skew | Self::Book => &[Self::Build],
            Self::Python
            | Self::ObjectStore
            | Self::VortexWriter
            | Self::Parquet
            | Self::Avro
            | Self::Engines => &[Self::Build, Self::Venv],
            Self::Wheel | Self::Asan => &[Self::Venv],
            _ => &[],
        }
    }

    /// The steps for which this step waits, if they are selected.
    pub fn comes_after(self) -> &'static [Self] {
        match self {
            // These steps begin after the build, so that a failed build is reported sooner. If they
            // began earlier, they would only compete with the build for Cargo's lock.
            Self::Clippy | Self::Doc | Self::StableAbi | Self::Release | Self::Kernels => &[Self::Build],
            Self::Wheel => &[Self::Build, Self::Venv],
            // Fuzzing comes after most other tests, because a fuzzer uses a whole core and would
            // slow down tests that measure time.
            Self::Fuzz => &[Self::Asan],
            // Mutants come after `rust`, because their result is meaningless if the tests fail
            // without a mutant. The step also builds the same packages again.
            Self::Mutants => &[Self::Rust],
            other => other.needs(),
        }
    }

    /// The target folder of the step's builds. Cargo allows only one build at a time in a target
    /// folder.
    pub fn build_folder(self) -> Option<&'static str> {
        match self {
            Self::Build | Self::Clippy | Self::Doc | Self::StableAbi | Self::Wheel => Some("target"),
            Self::Asan => Some("target/asan"),
            Self::Fuzz => Some("target/fuzz"),
            Self::Mutants => Some("target/mutants"),
            Self::Skew => Some("target/skew"),
            Self::ObjectStore => Some("target/object-store"),
            Self::VortexWriter => Some("target/vortex-writer"),
            Self::Parquet => Some("target/parquet"),
            Self::Avro => Some("target/avro"),
            Self::Engines => Some("target/datafusion"),
            Self::Release => Some("target/dist"),
            _ => None,
        }
    }

    /// The time budget in seconds. It was measured on two cores, with an empty target folder and
    /// another step in parallel, and rounded up.
    pub fn budget(self, tier: Tier) -> u64 {
        let (short, all) = match self {
            Self::Fmt | Self::Tidy | Self::Deny => (10, 10),
            Self::Venv => (60, 60),
            Self::Build => (280, 280),
            Self::Rust => (360, 520),
            Self::Asan => (380, 1800),
            // In the short tier, the time depends on the selected machine, because the machine with
            // peer access runs fewer tests than the others.
            Self::SimCuda => (350, 1200),
            Self::Clippy => (60, 60),
            Self::Python => (440, 600),
            Self::Doc => (10, 10),
            Self::Book => (80, 80),
            Self::StableAbi => (40, 40),
            Self::Skew => (200, 200),
            Self::ObjectStore => (10, 300),
            Self::VortexWriter => (10, 900),
            Self::Parquet => (10, 600),
            Self::Avro => (10, 300),
            Self::Engines => (10, 1200),
            Self::Wheel => (80, 80),
            Self::Release => (10, 1800),
            Self::Fuzz => (420, 420),
            Self::Mutants => (10, 600),
            Self::Kernels => (130, 130),
        };
        if tier.is_short() { short } else { all }
    }
}
