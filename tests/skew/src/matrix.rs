//! The rows of the matrix: how a fixture is built, and what it is put through.

use std::path::PathBuf;

use crate::Skipped;
use crate::build::{self, C};
use crate::exercise::{Knows, exercise};
use crate::header;
use crate::sources::Sources;

/// A row.
pub struct Row {
    /// For messages.
    pub name: &'static str,
    build: fn(&Sources) -> Result<PathBuf, Skipped>,
    knows: Knows,
}

/// All of them, for the sources of any release.
pub const ROWS: &[Row] = &[
    Row { name: "Rust, opt-level 0", build: |sources| build::rust(sources, false), knows: Knows::All },
    Row {
        name: "Rust, nightly, opt-level 3 and LTO",
        build: |sources| build::rust(sources, true),
        knows: Knows::All,
    },
    Row {
        name: "C, -O0",
        build: |sources| build::c(sources, &C { name: "c-O0", flags: &["-O0"], ..C::default() }),
        knows: Knows::All,
    },
    Row {
        name: "C, -O3 -flto",
        build: |sources| build::c(sources, &C { name: "c-O3", flags: &["-O3", "-flto"], ..C::default() }),
        knows: Knows::All,
    },
    Row {
        name: "C, clang",
        build: |sources| {
            build::c(
                sources,
                &C { name: "c-clang", compiler: Some("clang"), flags: &["-O2"], ..C::default() },
            )
        },
        knows: Knows::All,
    },
    Row {
        name: "C, structs that have grown",
        build: |sources| {
            let header = Some(header::grown(&header_of(sources)?));
            build::c(sources, &C { name: "c-grown", flags: &["-O1", "-DSKEW_GROWN"], header, ..C::default() })
        },
        knows: Knows::All,
    },
    Row {
        name: "C, structs that lack their ends",
        build: |sources| {
            let header = Some(header::shorter(&header_of(sources)?));
            build::c(
                sources,
                &C { name: "c-shorter", flags: &["-O1", "-DSKEW_SHORT"], header, ..C::default() },
            )
        },
        knows: Knows::Least,
    },
];

fn header_of(sources: &Sources) -> Result<String, Skipped> {
    sources.are_there()?;
    Ok(std::fs::read_to_string(sources.at("plugin-api/include/crossdock.h")).unwrap())
}

impl Row {
    /// Builds the fixture; its file.
    pub fn built(&self, sources: &Sources) -> Result<PathBuf, Skipped> {
        (self.build)(sources)
    }

    /// Builds the fixture and runs the host with it.
    pub fn run(&self, sources: &Sources) -> Result<(), Skipped> {
        exercise(&self.built(sources)?, self.knows);
        Ok(())
    }

    /// The same; what cannot be done here is skipped, with the reason.
    pub fn run_or_skip(&self, sources: &Sources) {
        if let Err(why) = self.run(sources) {
            crate::skipped(&format!("skew: {} from the sources of {}", self.name, sources.name), &why);
        }
    }
}
