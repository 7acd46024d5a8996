//! Reads the results of checks that kernels make while they decode. The host waits for a device
//! only once, when all nodes are decoded. Kernels stay within their buffers whatever values they
//! read, so that values whose check has failed may be decoded further.

use std::cell::RefCell;

use crossdock_kernels::{Checks, Findings, StartedChecks};
use crossdock_memory::Stream;
use crossdock_plugin_api::{Device, EncodedArray, EncodedNode, Error, Result};

use super::errors::{invalid_entry, with_context};
use super::plan::Step;

/// What a kernel checks for a node. The kernel reports the position of the first wrong value.
#[derive(Clone, Copy)]
pub(super) struct Check {
    /// The index of the node.
    pub node: usize,
    pub expected: Expected,
}

#[derive(Clone, Copy)]
pub(super) enum Expected {
    /// Ascending indices of patches within the array.
    PatchIndices,
    /// Patches of left parts that have at most as many bits as a left part.
    LeftPatches,
    /// Ascending ends of runs that cover `len` values from `first` on.
    RunEnds { len: usize, first: u64 },
    /// Codes below the number of values.
    Codes { n_values: usize },
    /// Codes below the number of left parts.
    LeftCodes { n_lefts: usize },
    /// Sums that fit into 64 bits.
    Sums,
}

impl Expected {
    fn error(self, node: EncodedNode<'_>, at: u64) -> Error {
        match self {
            Self::PatchIndices => node.wrong(format_args!(
                "patches: expected ascending indices within the array, but the index at position {at} is invalid"
            )),
            Self::LeftPatches => {
                node.wrong(format_args!("the patched left part at position {at} has too many bits"))
            }
            Self::RunEnds { len, first } => invalid_entry(
                node,
                format_args!("run-end: expected ascending ends that cover {len} values from {first} on"),
                at,
            ),
            Self::Codes { n_values } => {
                invalid_entry(node, format_args!("dictionary: expected codes below {n_values}"), at)
            }
            Self::LeftCodes { n_lefts } => {
                invalid_entry(node, format_args!("left parts: expected codes below {n_lefts}"), at)
            }
            Self::Sums => node.wrong(format_args!("the sum at index {at} does not fit into 64 bits")),
        }
    }
}

/// A check, and the cell that contains its result.
pub(super) type Cell = (usize, Check);

/// The checks of an array that is being decoded.
pub(super) struct PendingChecks<'a> {
    array: &'a EncodedArray,
    steps: &'a [Step<'a>],
    started: RefCell<Vec<(StartedChecks, Vec<Cell>)>>,
}

impl<'a> PendingChecks<'a> {
    pub fn new(array: &'a EncodedArray, steps: &'a [Step<'a>]) -> Self {
        Self { array, steps, started: RefCell::default() }
    }

    /// Launches kernels. On the CPU, their results are read at once.
    ///
    /// # Errors
    /// On the CPU, the error of the first check that has failed.
    pub fn start(&self, checks: Checks<'_>, cells: Vec<Cell>, stream: &Stream) -> Result<()> {
        let started = checks.start(stream)?;
        if stream.device() == Device::CPU {
            return self.check(&started.finish()?, &cells);
        }
        if !cells.is_empty() {
            self.started.borrow_mut().push((started, cells));
        }
        Ok(())
    }

    /// Waits for all results.
    ///
    /// # Errors
    /// The error of the first check that has failed.
    pub fn finish(self) -> Result<()> {
        // The last checks are read first, because no wait is needed for earlier ones afterwards.
        let started = self.started.take().into_iter().rev();
        let read = started.map(|(started, cells)| Ok((started.finish()?, cells)));
        let findings = read.collect::<Result<Vec<_>>>()?;
        findings.iter().rev().try_for_each(|(findings, cells)| self.check(findings, cells))
    }

    fn check(&self, findings: &Findings, cells: &[Cell]) -> Result<()> {
        for (cell, check) in cells {
            let Some(at) = findings.first_wrong(*cell) else { continue };
            let node = self.array.node(check.node)?;
            let error = check.expected.error(node, at);
            return Err(match self.steps.get(check.node) {
                Some(Step::Decoded(step)) => with_context(error, step.plugin, node),
                _ => error,
            });
        }
        Ok(())
    }
}
