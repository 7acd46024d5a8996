//! The steps: what they need, what they may not run beside, and how long they may take.

use super::sample::Tier;
use clap::ValueEnum;

/// In the order in which they begin, where several can. docs/testing.md says what only each of them can find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Step {
    /// cargo fmt --check
    Fmt,
    /// The rules of the house: cargo xtask tidy
    Tidy,
    /// What may be depended on: licences, sources and bans, where cargo-deny is installed
    Deny,
    /// The Python environment with the peers, in target/venv
    Venv,
    /// The plugins, the command and the test programs
    Build,
    /// Unit and integration tests
    Rust,
    /// The boundary's tests under AddressSanitizer, where there is a nightly toolchain
    Asan,
    /// The tests of everything that works with devices, over the simulated CUDA driver
    SimCuda,
    /// Lints, warnings denied
    Clippy,
    /// Third-party peers: pyarrow reads what we write and writes what we read; the Python package and its stubs
    Python,
    /// The code in the documentation
    Doc,
    /// Every ABI struct is FFI-safe, by abi_stable's derive
    StableAbi,
    /// Plugins of other releases and toolchains under this host
    Skew,
    /// The wheel builds, installs where nothing else is, and runs
    Wheel,
    /// Malformed and random bytes, 20 s for each target of fuzz/, where there is a nightly toolchain: cargo xtask fuzz
    Fuzz,
    /// Small faults that a crate's own tests must find, a few of one crate, where cargo-mutants is installed: cargo xtask mutants
    Mutants,
    /// The CUDA images are what their compiler makes of their sources, where it can be had: cargo xtask kernels --check
    Kernels,
}

impl Step {
    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }

    /// What has to run before it, and runs with it if it alone is asked for: the tests load plugins and start the command, which
    /// are nobody's Cargo dependency.
    pub fn needs(self) -> &'static [Self] {
        match self {
            Self::Rust | Self::SimCuda | Self::Skew => &[Self::Build],
            Self::Python => &[Self::Build, Self::Venv],
            Self::Wheel | Self::Asan => &[Self::Venv],
            _ => &[],
        }
    }

    /// Those that it waits for, where they run.
    pub fn comes_after(self) -> &'static [Self] {
        match self {
            // They would wait for the lock of the folder anyway, and a build that failed is shown sooner.
            Self::Clippy | Self::Doc | Self::StableAbi | Self::Kernels => &[Self::Build],
            Self::Wheel => &[Self::Build, Self::Venv],
            // A fuzzer uses a core all the time: beside tests that look at the clock it would slow them down.
            Self::Fuzz => &[Self::Asan],
            // It builds what `rust` tests once more, and means nothing where that fails.
            Self::Mutants => &[Self::Rust],
            other => other.needs(),
        }
    }

    /// The target folder that it builds in for most of its time: Cargo lets one build into each at a time.
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

    /// Seconds that it may take on two cores with an empty target folder, another step beside it: measured and rounded
    /// up.
    pub fn budget(self, tier: Tier) -> u64 {
        let (short, all) = match self {
            Self::Fmt | Self::Tidy | Self::Deny => (10, 10),
            Self::Venv => (60, 60),
            Self::Build => (280, 280),
            Self::Rust => (360, 520),
            Self::Asan => (380, 1800),
            // The machine whose devices reach each other has the least to do.
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
