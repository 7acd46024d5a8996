//! The steps, with their dependencies, build folders and time budgets.

use super::sample::Tier;
use clap::ValueEnum;

/// The steps in the order in which they begin. docs/testing.md explains what only each of them can
/// find.
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
    /// A check that every ABI struct is FFI-safe, by abi_stable's derive
    StableAbi,
    /// Plugins of other releases and toolchains in this host
    Skew,
    /// A build of the wheel, which is installed in an empty environment and run
    Wheel,
    /// Fuzz targets, 20 s each, if there is a nightly toolchain: cargo xtask fuzz
    Fuzz,
    /// Mutants that a crate's own tests must find, a few of one crate, if cargo-mutants is
    /// installed: cargo xtask mutants
    Mutants,
    /// A comparison of the CUDA images with their compiler's output, if it is available: cargo
    /// xtask kernels --check
    Kernels,
}

impl Step {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }

    /// The steps that must run before this one, also if only this one is selected. Tests load
    /// plugins and start the command, which are not Cargo dependencies.
    pub fn needs(self) -> &'static [Self] {
        match self {
            Self::Rust | Self::SimCuda | Self::Skew => &[Self::Build],
            Self::Python => &[Self::Build, Self::Venv],
            Self::Wheel | Self::Asan => &[Self::Venv],
            _ => &[],
        }
    }

    /// The steps that this one waits for, if they are selected.
    pub fn comes_after(self) -> &'static [Self] {
        match self {
            // They would wait for Cargo's lock anyway, and a failed build is reported earlier.
            Self::Clippy | Self::Doc | Self::StableAbi | Self::Kernels => &[Self::Build],
            Self::Wheel => &[Self::Build, Self::Venv],
            // A fuzzer uses a whole core, and would slow down tests that measure time.
            Self::Fuzz => &[Self::Asan],
            // It builds the packages of `rust` again, and its result means nothing if that step
            // fails.
            Self::Mutants => &[Self::Rust],
            other => other.needs(),
        }
    }

    /// The target folder of its builds. Cargo allows only one build at a time in each.
    pub fn build_folder(self) -> Option<&'static str> {
        match self {
            Self::Build | Self::Clippy | Self::Doc | Self::StableAbi | Self::Wheel => Some("target"),
            Self::Asan => Some("target/asan"),
            Self::Fuzz => Some("target/fuzz"),
            Self::Mutants => Some("target/mutants"),
            Self::Skew => Some("target/skew"),
            _ => None,
        }
    }

    /// The time budget in seconds, on two cores with an empty target folder and another step in
    /// parallel: measured and rounded up.
    pub fn budget(self, tier: Tier) -> u64 {
        let (short, all) = match self {
            Self::Fmt | Self::Tidy | Self::Deny => (10, 10),
            Self::Venv => (60, 60),
            Self::Build => (280, 280),
            Self::Rust => (360, 520),
            Self::Asan => (380, 1800),
            // The machine with peer access has the fewest tests.
            Self::SimCuda => (350, 1200),
            Self::Clippy => (60, 60),
            Self::Python => (440, 600),
            Self::Doc => (10, 10),
            Self::StableAbi => (40, 40),
            Self::Skew => (200, 200),
            Self::Wheel => (80, 80),
            Self::Fuzz => (420, 420),
            Self::Mutants => (10, 600),
            Self::Kernels => (130, 130),
        };
        if tier.is_short() { short } else { all }
    }
}
