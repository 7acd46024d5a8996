//! The rows of the matrix. A row says how a fixture is built and how it is exercised.

use std::path::PathBuf;

use crate::Skipped;
use crate::build::{self, C};
use crate::exercise::{Coverage, exercise};
use crate::header;
use crate::sources::Sources;

/// A row of the matrix.
pub struct Row {
    /// The name for messages.
    pub name: &'static str,
    build: fn(&Sources) -> Result<PathBuf, Skipped>,
    coverage: Coverage,
}

/// All rows. Each can be run with the sources of any release.
pub const ROWS: &[Row] = &[
    Row { name: "Rust, opt-level 0", build: |sources| build::rust(sources, false), coverage: Coverage::All },
    Row {
        name: "Rust, nightly, opt-level 3 and LTO",
        build: |sources| build::rust(sources, true),
        coverage: Coverage::All,
    },
    Row {
        name: "C, -O0",
        build: |sources| build::c(sources, &C { name: "c-O0", flags: &["-O0"], ..C::default() }),
        coverage: Coverage::All,
    },
    Row {
        name: "C, -O3 -flto",
        build: |sources| build::c(sources, &C { name: "c-O3", flags: &["-O3", "-flto"], ..C::default() }),
        coverage: Coverage::All,
    },
    Row {
        name: "C, clang",
        build: |sources| {
            build::c(
                sources,
                &C { name: "c-clang", compiler: Some("clang"), flags: &["-O2"], ..C::default() },
            )
        },
        coverage: Coverage::All,
    },
    Row {
        name: "C, grown structs",
        build: |sources| {
            let header = Some(header::grown(&header_of(sources)?));
            build::c(sources, &C { name: "c-grown", flags: &["-O1", "-DSKEW_GROWN"], header, ..C::default() })
        },
        coverage: Coverage::All,
    },
    Row {
        name: "C, structs without optional fields",
        build: |sources| {
            let header = Some(header::shorter(&header_of(sources)?));
            build::c(
                sources,
                &C { name: "c-shorter", flags: &["-O1", "-DSKEW_SHORT"], header, ..C::default() },
            )
        },
        coverage: Coverage::Required,
    },
];

fn header_of(sources: &Sources) -> Result<String, Skipped> {
    sources.check_fixtures()?;
    Ok(std::fs::read_to_string(sources.at("plugin-api/include/crossdock.h")).unwrap())
}

impl Row {
    /// Builds the fixture. Returns the path of the library.
    pub fn build_fixture(&self, sources: &Sources) -> Result<PathBuf, Skipped> {
        (self.build)(sources)
    }

    /// Builds the fixture and runs the host with it.
    pub fn run(&self, sources: &Sources) -> Result<(), Skipped> {
        exercise(&self.build_fixture(sources)?, self.coverage);
        Ok(())
    }

    /// Builds the fixture and runs the host with it. If the fixture cannot be built, reports a
    /// skipped check.
    pub fn run_or_skip(&self, sources: &Sources) {
        if let Err(why) = self.run(sources) {
            crate::skipped(&format!("skew: {} from the sources of {}", self.name, sources.name), &why);
        }
    }
}
