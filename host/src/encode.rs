//! Encodes columns with the encoders of plugins.

use arrow_schema::Field;
use crossdock_arrays::{DeviceBatch, export_batch, export_field};
use crossdock_plugin_api::{
    CallSettings, CallStream, Code, Device, EncodedArray, EncoderHandle, Error as ApiError, Options,
    Result as ApiResult, abi,
};

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::session::Session;
use crate::tracing_hooks::{self, Producer};

impl Session {
    /// Encodes a batch of one column with the first plugin that encodes to `encoding`. `options`
    /// are the options of the encoding. If the plugin cannot encode on the device of the column,
    /// the column is copied to the CPU and encoded there. The buffers of the result may be on any
    /// device.
    ///
    /// # Errors
    /// [`Error::Usage`] if the batch does not have one column, or if no plugin encodes to
    /// `encoding`; [`Error::Plugin`] if the encoding cannot represent the type or the values.
    pub fn encode(&self, column: &DeviceBatch, encoding: &str, options: &Options) -> Result<EncodedArray> {
        let schema = column.schema();
        let [field] = schema.fields().as_ref() else {
            return Err(Error::usage(format!(
                "a batch of {} columns cannot be encoded, expected one column",
                column.columns().len()
            )));
        };
        self.check_cancelled()?;
        let (mut known, mut isolated) = (Vec::new(), String::new());
        for name in self.encoder_names() {
            let plugin = self.working_plugin(&name)?;
            if plugin.is_isolated() {
                isolated =
                    format!(" (the plugin '{name}' runs in a process of its own, which cannot encode)");
                continue;
            }
            let Some(encoder) = plugin.encoder() else { continue };
            let ids = plugin.account().trace_host_call("encoder.ids", || encoder.ids());
            let ids = ids.map_err(|error| plugin.failed("list its encodings", error))?;
            if !ids.iter().any(|id| id == encoding) {
                known.extend(ids);
                continue;
            }
            let encode =
                |column: &DeviceBatch| self.encode_with(&plugin, encoder, column, field, encoding, options);
            let encoded = match encode(column) {
                Err(error) if error.code() == Code::UNSUPPORTED && column.device() != Device::CPU => {
                    let stream = self.memory().default_stream(column.device());
                    stream
                        .and_then(|stream| column.move_to(&stream, Device::CPU))
                        .and_then(|column| encode(&column))
                }
                encoded => encoded,
            };
            return encoded.map_err(|error| plugin.failed(format!("encode to '{encoding}'"), error));
        }
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        Err(Error::usage(format!(
            "no plugin of the session encodes to '{encoding}'; its plugins encode to: {known}{isolated}"
        )))
    }

    /// The names of the plugins with encoders, according to their metadata.
    fn encoder_names(&self) -> Vec<String> {
        let id = abi::ENCODER_ID.to_str().unwrap_or_default();
        let plugins = self.host().plugins();
        let with_encoder = plugins.filter(|metadata| metadata.interfaces.iter().any(|known| known == id));
        with_encoder.map(|metadata| metadata.name.clone()).collect()
    }

    fn encode_with(
        &self,
        plugin: &Plugin,
        encoder: EncoderHandle<'_>,
        column: &DeviceBatch,
        field: &Field,
        encoding: &str,
        options: &Options,
    ) -> ApiResult<EncodedArray> {
        let (device, account) = (column.device(), plugin.account());
        let stream = self.memory().default_stream(device)?;
        // SAFETY: `stream` lives until the call has returned.
        let raw_stream = unsafe { CallStream::new(stream.raw()) };
        let call = CallSettings { device, stream: raw_stream, ..self.call_for_structs() };
        let schema = export_field(&field.clone().with_name(""))?;
        let encode = || {
            let raw = tracing_hooks::batch(export_batch(column, false, &stream)?, account, Producer::Host);
            encoder.encode(&call, encoding, options, &schema, raw)
        };
        let array = account.trace_host_call("encoder.encode", encode)?;
        let root = array.root()?;
        if root.length() != column.len() as u64 {
            return Err(ApiError::internal(format!(
                "encode returned {} values, expected {}",
                root.length(),
                column.len()
            )));
        }
        let same = |actual: &Field| actual.data_type().equals_datatype(field.data_type());
        match self.encoded_type(root) {
            Ok(actual) if same(&actual) => Ok(array),
            Ok(actual) => Err(ApiError::internal(format!(
                "encode returned values of {}, expected {}",
                crossdock_arrays::type_name(actual.data_type()),
                crossdock_arrays::type_name(field.data_type())
            ))),
            Err(error) => Err(ApiError::bad_data(error.one_line())),
        }
    }
}
