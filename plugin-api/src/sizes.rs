//! The size of each struct in this build, and the minimum size that is accepted from other builds.

use crate::abi::*;
use crate::sized_struct::SizedStruct;
use core::mem::offset_of;

/// The ABI versions that plugins of this build work with: the one that they were built against.
pub const API_RANGE: &str = "^1.0.0";

/// Lists the structs that begin with `struct_size`. `without` names the first field that a shorter
/// struct may lack. If no field is named, the struct must have at least the size of this build. The
/// sizes of the first release of this version must stay accepted. Therefore a field that is
/// added to a struct must follow the named field or become the named field. A test in
/// `tests/cpu/released.rs` checks the accepted sizes.
macro_rules! sized_structs {
    ($($name:literal $t:ident $(without $f:ident)?),* $(,)?) => { $(
        // SAFETY: the struct is a `repr(C)` struct whose first field is `struct_size`. Its fields
        // are integers, raw pointers, optional function pointers and structs of such fields.
        unsafe impl SizedStruct for $t {
            const NAME: &'static str = $name;
            const MIN_SIZE_BYTES: usize = sized_structs!(@min $t $($f)?);
        }
    )*
        /// Every struct that begins with `struct_size`: its name in C, the minimum accepted size,
        /// and the size in this build. Both sizes are in bytes.
        pub fn sized_structs() -> Vec<(&'static str, usize, usize)> {
            vec![ $(($name, <$t as SizedStruct>::MIN_SIZE_BYTES, size_of::<$t>())),* ]
        }
    };
    (@min $t:ident) => { size_of::<$t>() };
    (@min $t:ident $f:ident) => { offset_of!($t, $f) };
}

sized_structs! {
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
    "crossdock_predicate" Predicate,
    "crossdock_read_request" ReadRequest,
    "crossdock_fragment" Fragment,
    "crossdock_fragments" Fragments,
    "crossdock_importer" Importer,
    "crossdock_opener" Opener,
    "crossdock_column_plan" ColumnPlan without reason,
    "crossdock_plan" Plan,
    "crossdock_exporter" Exporter,
    "crossdock_encoded_buffer" EncodedBuffer,
    "crossdock_encoded_node" EncodedNode without dtype,
    "crossdock_encoded_array" EncodedArray,
    "crossdock_decode_plan" DecodePlan,
    "crossdock_encoding" Encoding,
    "crossdock_encoder" Encoder,
    "crossdock_host" Host without private_data,
    "crossdock_host_log" HostLog without private_data,
    "crossdock_host_session" HostSession without memory_limit,
    "crossdock_host_decode" HostDecode without private_data,
    "crossdock_host_loader" HostLoader without private_data,
    "crossdock_host_tasks" HostTasks without private_data,
    "crossdock_pointer" Pointer without base,
    "crossdock_device_info" DeviceInfo without description,
    "crossdock_kernel" Kernel,
    "crossdock_launch" Launch,
    "crossdock_host_kernels" HostKernels without private_data,
    "crossdock_memory" Memory without call_after_all,
}

/// The size of the first part of the metadata, in bytes. This part consists of the fields before
/// the name, and is the same in every ABI version.
pub const META_HEAD_BYTES: usize = offset_of!(PluginMeta, name);

/// The minimum size of a `crossdock_plugin_meta`, in bytes. It includes all fields before the list
/// of struct sizes.
pub const MIN_META_BYTES: usize = offset_of!(PluginMeta, sizes);

/// The minimum size of a `crossdock_plugin_entry`, in bytes.
pub const MIN_ENTRY_BYTES: usize = offset_of!(PluginEntry, get_interface) + size_of::<usize>();

/// The capacity of [`PluginMeta::sizes`].
pub const META_SIZES: usize = 128;

/// The number of struct sizes that the first release of this version listed. Later releases
/// may list more.
pub const MIN_META_SIZES: usize = 33;

/// An element of `CROSSDOCK_META_SIZES_INIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltSize {
    /// The name of the struct, without the keyword `struct`.
    pub name: &'static str,
    /// The size in this build, in bytes.
    pub bytes: u32,
    /// The minimum accepted size in bytes. For structs that cannot grow, it is equal to `bytes`.
    pub min_bytes: u32,
}

impl BuiltSize {
    const fn fixed<T>(name: &'static str) -> Self {
        Self { name, bytes: size_of::<T>() as u32, min_bytes: size_of::<T>() as u32 }
    }

    const fn sized<T: SizedStruct>() -> Self {
        Self { name: T::NAME, bytes: size_of::<T>() as u32, min_bytes: T::MIN_SIZE_BYTES as u32 }
    }

    /// Whether the struct may be longer in other builds. Arrow's structs never change their size.
    pub fn can_grow(&self) -> bool {
        self.name.starts_with("crossdock_")
    }

    /// Whether the struct is accepted from another build in which its size is `bytes`.
    pub fn accepts(&self, bytes: u32) -> bool {
        if self.can_grow() { bytes >= self.min_bytes && bytes.is_multiple_of(8) } else { bytes == self.bytes }
    }
}

/// The elements of `CROSSDOCK_META_SIZES_INIT`, in its order.
pub const BUILT_SIZES: [BuiltSize; 33] = [
    BuiltSize::fixed::<ArrowSchema>("ArrowSchema"),
    BuiltSize::fixed::<ArrowArray>("ArrowArray"),
    BuiltSize::fixed::<ArrowDeviceArray>("ArrowDeviceArray"),
    BuiltSize::sized::<Error>(),
    BuiltSize::sized::<Batch>(),
    BuiltSize::sized::<Capsule>(),
    BuiltSize::sized::<Capsules>(),
    BuiltSize::sized::<Source>(),
    BuiltSize::sized::<Sink>(),
    BuiltSize::sized::<Call>(),
    BuiltSize::sized::<BatchStream>(),
    BuiltSize::sized::<Writer>(),
    BuiltSize::sized::<Format>(),
    BuiltSize::sized::<Input>(),
    BuiltSize::sized::<Importer>(),
    BuiltSize::sized::<Exporter>(),
    BuiltSize::sized::<Encoding>(),
    BuiltSize::sized::<Host>(),
    BuiltSize::sized::<Memory>(),
    BuiltSize {
        name: "crossdock_plugin_entry",
        bytes: size_of::<PluginEntry>() as u32,
        min_bytes: MIN_ENTRY_BYTES as u32,
    },
    BuiltSize::sized::<OptionInfo>(),
    BuiltSize::sized::<ColumnPlan>(),
    BuiltSize::sized::<Plan>(),
    BuiltSize::sized::<EncodedBuffer>(),
    BuiltSize::sized::<EncodedNode>(),
    BuiltSize::sized::<EncodedArray>(),
    BuiltSize::sized::<ReadRequest>(),
    BuiltSize::sized::<Predicate>(),
    BuiltSize::sized::<Fragment>(),
    BuiltSize::sized::<Fragments>(),
    BuiltSize::sized::<Opener>(),
    BuiltSize::sized::<DecodePlan>(),
    BuiltSize::sized::<Encoder>(),
];
