//! What is known of a kernel without running it. The launchers, the host's library of kernels, the tests and a simulated
//! driver go by it.

use std::ffi::CStr;

use crossdock_memory::HostKernel;
use crossdock_plugin_api::abi;

pub use crate::launch_check::check_launch;
pub use crate::rows::TABLE;

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Value,
    /// Bytes that the kernel reads.
    Read,
    /// Bytes that it writes, or a cell that it changes.
    Write,
}

impl Kind {
    /// As `crossdock_arg.kind` has it.
    pub fn code(self) -> u32 {
        match self {
            Self::Value => abi::ARG_VALUE,
            Self::Read => abi::ARG_READ,
            Self::Write => abi::ARG_WRITE,
        }
    }
}

/// One argument of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// As in the CUDA source, there in capitals.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
}

/// A kernel.
pub struct Row {
    /// Of the function in the images, and by which hosts know it.
    pub name: &'static CStr,
    /// What a job is given, after its head.
    pub params: &'static [Param],
    /// What follows any number of times.
    pub tail: &'static [Param],
    /// As a host is asked for it.
    pub host: HostKernel,
}

impl Row {
    /// What the `i`-th argument after the head must be, if there may be one.
    pub fn kind(&self, i: usize) -> Option<Kind> {
        let tail = || self.tail.get((i - self.params.len()).checked_rem(self.tail.len())?);
        self.params.get(i).or_else(tail).map(|param| param.kind)
    }

    /// Whether a job may have `n` arguments, its head not counted.
    pub fn takes(&self, n: usize) -> bool {
        match n.checked_sub(self.params.len()) {
            Some(more) => more == 0 || more.checked_rem(self.tail.len()) == Some(0),
            None => false,
        }
    }
}
