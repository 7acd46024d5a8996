//! The metadata of a plugin. The host reads the metadata before it runs any code of the plugin.

use crate::abi::{self, PluginMeta};
use crate::error::{Error, Result};

/// The description that an author gives to a plugin. See [`crate::crossdock_plugin!`].
pub struct PluginDescription {
    /// The name, such as "arrow-ipc".
    pub name: &'static str,
    /// The version, which is a semantic version.
    pub version: &'static str,
    /// A description of one line for users.
    pub description: &'static str,
    /// The licence as an SPDX expression.
    pub licence: &'static str,
    /// The ids of the interfaces, separated by spaces.
    pub interfaces: &'static str,
    /// The names of the formats, separated by spaces.
    pub formats: &'static str,
    /// The ids of the encodings, separated by spaces.
    pub encodings: &'static str,
    /// The ids of the host's interfaces without which [`crate::Plugin::create`] fails, separated by
    /// spaces.
    pub requires: &'static str,
    /// The ABI versions that the plugin works with, a range of semantic versions:
    /// [`abi::API_RANGE`], unless the plugin needs an addition of a later patch version.
    pub api_range: &'static str,
}

impl PluginDescription {
    /// Creates the metadata. If the result initialises a constant, a text that is too long for its
    /// field is a compile error.
    pub const fn meta(&self) -> PluginMeta {
        let mut sizes = [0; abi::META_SIZES];
        let mut i = 0;
        while i < abi::BUILT_SIZES.len() {
            sizes[i] = abi::BUILT_SIZES[i].bytes;
            i += 1;
        }
        PluginMeta {
            magic: abi::META_MAGIC,
            struct_size: size_of::<PluginMeta>() as u32,
            abi_major: abi::ABI_MAJOR,
            abi_minor: abi::ABI_MINOR,
            n_sizes: abi::BUILT_SIZES.len() as u32,
            name: text(self.name),
            version: text(self.version),
            api_range: text(self.api_range),
            licence: text(self.licence),
            toolchain: text(env!("CROSSDOCK_TOOLCHAIN")),
            panic: text(if cfg!(panic = "unwind") { "unwind" } else { "abort" }),
            interfaces: text(self.interfaces),
            formats: text(self.formats),
            encodings: text(self.encodings),
            description: text(self.description),
            schemes: [0; 256],
            required: text(self.requires),
            sizes,
        }
    }
}

impl PluginMeta {
    /// Sets the URI schemes that the plugin opens, separated by spaces.
    pub const fn with_schemes(mut self, schemes: &str) -> Self {
        self.schemes = text(schemes);
        self
    }
}

/// Pads a text with NULs. The result has at least one NUL at the end.
const fn text<const N: usize>(text: &str) -> [u8; N] {
    let bytes = text.as_bytes();
    assert!(bytes.len() < N, "a text of the plugin's description is too long for its field");
    let mut out = [0; N];
    let mut i = 0;
    while i < bytes.len() {
        out[i] = bytes[i];
        i += 1;
    }
    out
}

/// Returns the text of a field up to its first NUL.
///
/// # Errors
/// Returns a "bad data" error that contains the field's name `what` if there is no NUL or if the
/// text is not UTF-8.
pub fn read_text<'a>(field: &'a [u8], what: &str) -> Result<&'a str> {
    let end = field
        .iter()
        .position(|b| *b == 0)
        .ok_or_else(|| Error::bad_data(format!("the plugin's {what} is not NUL-terminated")))?;
    std::str::from_utf8(&field[..end])
        .map_err(|_| Error::bad_data(format!("the plugin's {what} is not UTF-8")))
}

/// Exports a plugin from a `cdylib` crate.
///
/// ```
/// use crossdock_plugin_api::{Host, Plugin, Result, crossdock_plugin};
///
/// struct Nothing;
/// impl Plugin for Nothing {
///     fn create(_host: Host) -> Result<Self> { Ok(Nothing) }
/// }
/// crossdock_plugin!(
///     Nothing, name: "nothing", description: "does nothing", interfaces: "", formats: "",
/// );
/// # fn main() {}
/// ```
///
/// After the formats, four optional settings may follow in this order: `encodings:`, `schemes:`
/// (the URI schemes of an opener), `requires:` (the ids of the host's interfaces without which
/// `create` fails) and `api_range:` (the versions of the ABI that the plugin works with, if it
/// needs an addition of a later patch version).
///
/// The plugin's version and licence are those of the package that invokes the macro.
#[macro_export]
macro_rules! crossdock_plugin {
    ($plugin:ty, name: $name:expr, description: $description:expr, interfaces: $interfaces:expr, formats: $formats:expr
     $(, encodings: $encodings:expr)? $(, schemes: $schemes:expr)? $(, requires: $requires:expr)?
     $(, api_range: $api_range:expr)? $(,)?) => {
        /// Creates instances.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static crossdock_plugin_v1: $crate::abi::PluginEntry = $crate::entry::<$plugin>();

        /// Describes the plugin.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static crossdock_plugin_meta_v1: $crate::abi::PluginMeta = $crate::PluginDescription {
            name: $name,
            version: env!("CARGO_PKG_VERSION"),
            description: $description,
            licence: env!("CARGO_PKG_LICENSE"),
            interfaces: $interfaces,
            formats: $formats,
            encodings: concat!($($encodings)?),
            requires: concat!($($requires)?),
            api_range: $crate::crossdock_plugin!(@or $crate::abi::API_RANGE $(, $api_range)?),
        }
        .meta()
        .with_schemes(concat!($($schemes)?));
    };
    (@or $default:expr) => { $default };
    (@or $default:expr, $value:expr) => { $value };
}
