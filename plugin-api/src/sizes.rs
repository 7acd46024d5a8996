//! How long each struct is here, and how short another version's may be.

use crate::abi::*;
use crate::told::Told;
use core::mem::offset_of;

/// The ABI versions that plugins of this build work with: the one that they were built against.
pub const API_RANGE: &str = "^1.0.0";

/// Lists structs that begin with their size, each with the first field that a shorter one may lack; those that name none
/// are used whole. Fields that are added later stand beyond the one that is named, or name the first of themselves: no
/// struct of this minor's first release may be too short, which `tests/layout` checks.
macro_rules! told {
    ($($name:literal $t:ident $(without $f:ident)?),* $(,)?) => { $(
        // SAFETY: a `repr(C)` struct of integers, raw pointers, optional function pointers and structs of those, whose
        // first field is `struct_size`.
        unsafe impl Told for $t {
            const NAME: &'static str = $name;
            const LEAST: usize = told!(@least $t $($f)?);
        }
    )*
        /// Every struct that tells its size: (C name, least bytes, bytes).
        pub fn told() -> Vec<(&'static str, usize, usize)> {
            vec![ $(($name, <$t as Told>::LEAST, size_of::<$t>())),* ]
        }
    };
    (@least $t:ident) => { size_of::<$t>() };
    (@least $t:ident $f:ident) => { offset_of!($t, $f) };
}

told! {
    "crossdock_error" Error,
    "crossdock_batch" Batch without buffer_sizes,
    "crossdock_capsule" Capsule,
    "crossdock_capsules" Capsules,
    "crossdock_source" Source,
    "crossdock_sink" Sink,
    "crossdock_call" Call without stream,
    "crossdock_batch_stream" BatchStream,
    "crossdock_writer" Writer,
    "crossdock_option_info" OptionInfo without description,
    "crossdock_format" Format without magics,
    "crossdock_input" Input,
    "crossdock_importer" Importer,
    "crossdock_column_plan" ColumnPlan without reason,
    "crossdock_plan" Plan,
    "crossdock_exporter" Exporter,
    "crossdock_encoded_buffer" EncodedBuffer,
    "crossdock_encoded_node" EncodedNode without dtype,
    "crossdock_encoded_array" EncodedArray,
    "crossdock_encoding" Encoding,
    "crossdock_host" Host without private_data,
    "crossdock_host_log" HostLog without private_data,
    "crossdock_host_session" HostSession without memory_limit,
    "crossdock_host_decode" HostDecode without private_data,
    "crossdock_pointer" Pointer without base,
    "crossdock_device_info" DeviceInfo without description,
    "crossdock_kernel" Kernel without image,
    "crossdock_host_kernels" HostKernels without private_data,
    "crossdock_memory" Memory without call_after_all,
}

/// Bytes that the metadata of every ABI version, older ones too, begin with: all before the name.
pub const META_HEAD: usize = offset_of!(PluginMeta, name);

/// The shortest `crossdock_plugin_meta`: all but the sizes, of which it may list as many as it has.
pub const META_LEAST: usize = offset_of!(PluginMeta, sizes);

/// The shortest `crossdock_plugin_entry`.
pub const ENTRY_LEAST: usize = offset_of!(PluginEntry, get_interface) + size_of::<usize>();

/// How many sizes `PluginMeta` has room for.
pub const META_SIZES: usize = 128;

/// How many of them the first release of this minor listed. Later ones may list more.
pub const FEWEST_SIZES: usize = 26;

/// A line of `CROSSDOCK_META_SIZES_INIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltSize {
    /// The struct, without the word `struct`.
    pub name: &'static str,
    /// Bytes here.
    pub bytes: u32,
    /// Bytes of the shortest that is of use; the same where the struct is another standard's, or cannot grow.
    pub least: u32,
}

impl BuiltSize {
    const fn fixed<T>(name: &'static str) -> Self {
        Self { name, bytes: size_of::<T>() as u32, least: size_of::<T>() as u32 }
    }

    const fn told<T: Told>() -> Self {
        Self { name: T::NAME, bytes: size_of::<T>() as u32, least: T::LEAST as u32 }
    }

    /// Whether it is ours, and may be longer in other builds. Arrow's structs are what they are.
    pub fn is_open(&self) -> bool {
        self.name.starts_with("crossdock_")
    }

    /// Whether a build with a struct of this size can be understood.
    pub fn admits(&self, bytes: u32) -> bool {
        if self.is_open() { bytes >= self.least && bytes.is_multiple_of(8) } else { bytes == self.bytes }
    }
}

/// What `CROSSDOCK_META_SIZES_INIT` lists, in that order.
pub const BUILT_SIZES: [BuiltSize; 26] = [
    BuiltSize::fixed::<ArrowSchema>("ArrowSchema"),
    BuiltSize::fixed::<ArrowArray>("ArrowArray"),
    BuiltSize::fixed::<ArrowDeviceArray>("ArrowDeviceArray"),
    BuiltSize::told::<Error>(),
    BuiltSize::told::<Batch>(),
    BuiltSize::told::<Capsule>(),
    BuiltSize::told::<Capsules>(),
    BuiltSize::told::<Source>(),
    BuiltSize::told::<Sink>(),
    BuiltSize::told::<Call>(),
    BuiltSize::told::<BatchStream>(),
    BuiltSize::told::<Writer>(),
    BuiltSize::told::<Format>(),
    BuiltSize::told::<Input>(),
    BuiltSize::told::<Importer>(),
    BuiltSize::told::<Exporter>(),
    BuiltSize::told::<Encoding>(),
    BuiltSize::told::<Host>(),
    BuiltSize::told::<Memory>(),
    BuiltSize {
        name: "crossdock_plugin_entry",
        bytes: size_of::<PluginEntry>() as u32,
        least: ENTRY_LEAST as u32,
    },
    BuiltSize::told::<OptionInfo>(),
    BuiltSize::told::<ColumnPlan>(),
    BuiltSize::told::<Plan>(),
    BuiltSize::told::<EncodedBuffer>(),
    BuiltSize::told::<EncodedNode>(),
    BuiltSize::told::<EncodedArray>(),
];
