//! The types of the table of kernels. The launchers, the host's library of kernels, the tests and a
//! simulated driver use it.

use std::ffi::CStr;

use crossdock_memory::HostKernel;
use crossdock_plugin_api::abi;

pub use crate::launch_check::check_launch;
pub use crate::rows::TABLE;

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Value,
    /// Bytes that the kernel reads.
    Read,
    /// Bytes that the kernel writes, or a cell that it changes.
    Write,
}

impl Kind {
    /// The value of `crossdock_arg.kind`.
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
    /// The name. The CUDA source has the same name in capitals.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
}

/// A kernel.
pub struct Row {
    /// The name of the function in the images, by which the host finds the kernel.
    pub name: &'static CStr,
    /// The arguments of a job, after its head.
    pub params: &'static [Param],
    /// A group of arguments after `params`. A job may repeat this group any number of times.
    pub tail: &'static [Param],
    /// The request by which a caller asks the host for the kernel.
    pub host: HostKernel,
}

impl Row {
    /// The kind of argument `i` after the head. `None` if the kernel has no such argument.
    pub fn kind(&self, i: usize) -> Option<Kind> {
        let tail = || self.tail.get((i - self.params.len()).checked_rem(self.tail.len())?);
        self.params.get(i).or_else(tail).map(|param| param.kind)
    }

    /// Whether a job may have `n` arguments, not counting its head.
    pub fn accepts(&self, n: usize) -> bool {
        match n.checked_sub(self.params.len()) {
            Some(more) => more == 0 || more.checked_rem(self.tail.len()) == Some(0),
            None => false,
        }
    }
}
