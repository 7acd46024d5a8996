//! The one table of kernels: what each is called and given, and its twin. The launchers, the tests and, by name, a
//! simulated driver go by it.

use std::ffi::CStr;
use std::sync::OnceLock;

use crossdock_memory::{Device, Kernel};
use crossdock_plugin_api::abi;

use crate::images::images;

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
    /// Of the function in the images.
    pub name: &'static CStr,
    /// What a job is given, after its head.
    pub params: &'static [Param],
    /// What follows any number of times.
    pub tail: &'static [Param],
    pub(crate) kernel: fn() -> Kernel,
    pub(crate) on_host: Kernel,
    pub(crate) on_cuda: OnceLock<Kernel>,
}

impl Row {
    /// The kernel as a device needs it: images are unpacked only for one that runs them.
    pub fn kernel(&'static self, device: Device) -> &'static Kernel {
        if device.r#type != abi::DEVICE_CUDA {
            return &self.on_host;
        }
        self.on_cuda.get_or_init(|| (self.kernel)().with_image(images()))
    }

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

/// Holds the arguments of a launch to the table, as a driver that has no device may: jobs whose heads lead from one to the
/// next, with the arguments that the kernel's row says, for as many blocks as there are. `None` for a kernel that is not in
/// the table.
pub fn check_launch(name: &CStr, blocks: u32, args: &[abi::Arg]) -> Option<Result<(), String>> {
    let row = TABLE.iter().find(|row| row.name == name)?;
    Some(row.check_jobs(blocks, args))
}

impl Row {
    fn check_jobs(&self, blocks: u32, mut args: &[abi::Arg]) -> Result<(), String> {
        let name = self.name.to_string_lossy();
        let mut before = 0;
        while let Some((head, rest)) = args.split_first() {
            let (n, end) = ((head.value >> 32) as usize, head.value as u32);
            let own = rest.get(..n.wrapping_sub(1));
            let Some(own) = own.filter(|own| head.kind == abi::ARG_VALUE && self.takes(own.len())) else {
                return Err(format!("{name}: a job of {n} of {} arguments", args.len()));
            };
            if end <= before || end > blocks {
                return Err(format!("{name}: a job for blocks {before}..{end} of {blocks}"));
            }
            let wrong =
                own.iter().enumerate().find(|(i, arg)| self.kind(*i).map(Kind::code) != Some(arg.kind));
            if let Some((i, arg)) = wrong {
                return Err(format!(
                    "{name}: argument {i} is of kind {}, expected {:?}",
                    arg.kind,
                    self.kind(i)
                ));
            }
            before = end;
            args = rest.get(own.len()..).unwrap_or(&[]);
        }
        if before == blocks { Ok(()) } else { Err(format!("{name}: {blocks} blocks for jobs of {before}")) }
    }
}

/// All kernels.
pub static TABLE: &[&Row] = &[
    &crate::blocks::TAKE_BLOCKS,
    &crate::bools::UNPACK_BITS,
    &crate::bools::PACK_BYTES,
    &crate::cast::CAST,
    &crate::codes::ADD_SIZES,
    &crate::codes::DECODE_CODES,
    &crate::codes::MAKE_TOKENS,
    &crate::codes::MEASURE_CODES,
    &crate::concatenate::CONCATENATE_BITS,
    &crate::concatenate::COPY_RANGES,
    &crate::gather::GATHER,
    &crate::indices::CHECK_INDICES,
    &crate::lanes::SUM_LANES,
    &crate::list_views::CHECK_LIST_VIEWS,
    &crate::lists::MEASURE_LISTS,
    &crate::lists::NAME_ELEMENTS,
    &crate::lists::PLACE_LISTS,
    &crate::map::MAP,
    &crate::map::SEQUENCE,
    &crate::merge::MERGE_BITS,
    &crate::null_count::NULL_COUNT,
    &crate::numbers::CHECK_NUMBER,
    &crate::numbers::READ_NUMBERS,
    &crate::offsets::CHECK_OFFSETS,
    &crate::offsets::CONVERT_OFFSETS,
    &crate::offsets::REBASE_OFFSETS,
    &crate::parts::JOIN,
    &crate::parts::SUM,
    &crate::run_ends::CHECK_RUN_ENDS,
    &crate::shift::SHIFT_BITS,
    &crate::strings::VIEWS_OF_CODES,
    &crate::strings::VIEWS_OF_OFFSETS,
    &crate::take::EXPAND_RUNS,
    &crate::take::PATCH,
    &crate::take::TAKE,
    &crate::unions::CHECK_UNION,
    &crate::unpack::TAKE_PACKED,
    &crate::unpack::UNPACK,
    &crate::unpack::UNPACK_PATCHED_1,
    &crate::unpack::UNPACK_PATCHED_2,
    &crate::unpack::UNPACK_PATCHED_4,
    &crate::unpack::UNPACK_PATCHED_8,
    &crate::utf8::CHECK_UTF8,
    &crate::views::CHECK_VIEWS,
    &crate::views::RENUMBER_VIEWS,
    &crate::widen::NARROW,
    &crate::widen::WIDEN,
];

/// Declares a kernel: its row in the table, with the body of its twin.
macro_rules! kernel {
    ($row:ident, $name:literal, ($($param:ident: $kind:ident),*), $body:path) => {
        $crate::table::kernel!($row, $name, ($($param: $kind),*), [], $body);
    };
    ($row:ident, $name:literal, ($($param:ident: $kind:ident),*), [$($more:ident: $more_kind:ident),*], $body:path) => {
        pub(crate) static $row: $crate::table::Row = {
            unsafe extern "C" fn entry(
                args: *const crossdock_plugin_api::abi::Arg,
                n: usize,
            ) -> crossdock_plugin_api::abi::Code {
                // SAFETY: only a launch calls the twin, with addresses of the host.
                unsafe { $crate::door::door(args, n, $body) }
            }
            use $crate::table::{Kind, Param};
            $crate::table::Row {
                name: $name,
                params: &[$(Param { name: stringify!($param), kind: Kind::$kind }),*],
                tail: &[$(Param { name: stringify!($more), kind: Kind::$more_kind }),*],
                kernel: || crossdock_memory::Kernel::host($name, entry),
                on_host: crossdock_memory::Kernel::host($name, entry),
                on_cuda: std::sync::OnceLock::new(),
            }
        };
    };
}
pub(crate) use kernel;
