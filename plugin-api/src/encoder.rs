//! The interface `crossdock.encoder/1`, whose functions encode columns.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::door::put;
use crate::encoded::EncodedArray;
use crate::error::{Error, Result};
use crate::lists::read_texts;
use crate::options::Options;
use crate::owned::Owned;
use crate::plugin::{Instance, Plugin, with};

/// Encodes columns. The encodings may be ones that other plugins decode.
pub trait Encoder: Send + Sync {
    /// The ids of the encodings that this plugin encodes to. The list must not change.
    fn ids(&self) -> &[&'static str];

    /// Encodes a batch of one column, which is on the call's device. `encoding` is an element of
    /// [`ids`](Encoder::ids), and `schema` is the type of the column. Returns an array whose first
    /// node has this encoding, and which has the type, the length and the values of the column.
    ///
    /// # Errors
    /// Return `UNSUPPORTED` if the encoding cannot represent the type or the values, or if the
    /// plugin cannot encode on the call's device; the host then passes the column on the CPU. May
    /// return any other error, which is passed to the caller. Reject options that are not known,
    /// see [`Options::only`].
    fn encode(
        &self,
        call: &Call<'_>,
        encoding: &str,
        options: &Options,
        schema: &abi::ArrowSchema,
        column: Owned<abi::Batch>,
    ) -> Result<EncodedArray>;
}

pub(crate) const fn table<P: Plugin>() -> abi::Encoder {
    abi::Encoder { struct_size: size_of::<abi::Encoder>(), ids: Some(ids::<P>), encode: Some(encode::<P>) }
}

/// The encoder of a plugin instance, for a caller such as the host.
#[derive(Clone, Copy)]
pub struct EncoderHandle<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) table: abi::Encoder,
}

impl EncoderHandle<'_> {
    /// The ids of the encodings that the plugin encodes to.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the list is invalid.
    pub fn ids(&self) -> Result<Vec<String>> {
        let f = self.table.ids.ok_or_else(|| missing("ids"))?;
        // SAFETY: the table belongs to the instance.
        unsafe { read_texts(self.instance, f, "encodings") }
    }

    /// Encodes a batch of one column. See [`Encoder::encode`].
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the result is not a valid tree whose first node
    /// has this encoding.
    pub fn encode(
        &self,
        call: &CallSettings,
        encoding: &str,
        options: &Options,
        schema: &abi::ArrowSchema,
        column: Owned<abi::Batch>,
    ) -> Result<EncodedArray> {
        let f = self.table.encode.ok_or_else(|| missing("encode"))?;
        let pairs = options.pairs();
        let (id, n) = (abi::Str::new(encoding), pairs.len());
        let (mut column, mut out) = (column, abi::EncodedArray::new());
        // SAFETY: the table belongs to the instance, and all pointers are valid for the call. The
        // plugin takes the ownership of the column by moving it out.
        Error::check(|err| unsafe {
            let column = column.as_mut_ptr();
            f(self.instance.raw(), &call.raw(), id, pairs.as_ptr(), n, schema, column, &mut out, err)
        })?;
        // SAFETY: on success, the callee passes the ownership of `out`.
        let array = unsafe { Owned::from_out(out) };
        if array.is_released() {
            return Err(Error::internal("encode succeeded, but returned a released array"));
        }
        // SAFETY: the array is not released, so the header guarantees that it is valid.
        let array = unsafe { EncodedArray::from_raw(array) }?;
        let actual = array.root()?.encoding();
        if actual != encoding {
            return Err(Error::internal(format!(
                "encode returned a node of '{actual}', expected '{encoding}'"
            )));
        }
        Ok(array)
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("the plugin's encoder has no function '{function}'"))
}

unsafe extern "C" fn ids<P: Plugin>(
    instance: *mut abi::Instance,
    out: *mut *const abi::Str,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires an instance of `create`, and that each pointer is null or valid
    // for writes.
    unsafe {
        with::<P>(instance, err, |shell| {
            let ids = shell.encoder_ids()?;
            put(out, "ids", || ids.as_ptr())?;
            put(n_out, "ids", || ids.len())
        })
    }
}

unsafe extern "C" fn encode<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    encoding: abi::Str,
    options: *const abi::OptionPair,
    n_options: usize,
    schema: *const abi::ArrowSchema,
    column: *mut abi::Batch,
    out: *mut abi::EncodedArray,
    err: *mut abi::Error,
) -> abi::Code {
    // Takes the ownership first, because the function must take it even if it returns an error.
    // SAFETY: the header requires a batch whose ownership the caller passes.
    let column = unsafe { Owned::take(column) };
    // SAFETY: the header requires an instance of `create`, and arguments that are valid for the
    // call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let schema = schema.as_ref().ok_or_else(|| Error::invalid_argument("the schema is NULL"))?;
            let options = Options::read(options, n_options)?;
            let array =
                shell.encoder()?.encode(&Call::read(call)?, encoding.get()?, &options, schema, column)?;
            array.into_raw().put(out, "encode")
        })
    }
}
