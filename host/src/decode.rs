//! Encoded arrays to batches: which plugin decodes which node, where, and in which order.
//!
//! The tree is walked twice without recursion. Downwards every node is looked up, checked, and asked how it is to be
//! decoded; nothing is allocated before all of them have answered. Then upwards, children before parents, each is decoded,
//! and what it claimed is held against what came out.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use crossdock_arrays::{
    DeviceBatch, Level, call_stream, export_batch, import_batch, import_field_ref, validate,
};
use crossdock_memory::{Buffer, Memory, Stream};
use crossdock_memory_backend::physical_memory_bytes;
use crossdock_plugin_api::{
    Call, CallSettings, CallStream, Device, EncodedArray, EncodedNode, EncodingHandle, Error as ApiError,
    Owned, Result as ApiResult, Validate, abi,
};

use crate::error::{Error, Result};
use crate::plugin::Plugin;
use crate::session::Session;

/// How a node is decoded.
enum Step<'a> {
    /// By its parent, or by one above that.
    Raw,
    Decoded {
        plugin: &'a Plugin,
        encoding: EncodingHandle<'a>,
        device: Device,
        given: Vec<Given>,
        schema: SchemaRef,
    },
}

/// What becomes of a node below one that is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    /// It is given decoded.
    Decoded,
    /// It is left as it is.
    Raw,
    /// It is below one that is given decoded.
    Below,
}

/// For each node below `node`, as its plugin wishes it.
fn given(node: EncodedNode<'_>, decoded: &[bool]) -> ApiResult<Vec<Given>> {
    let mut given = Vec::with_capacity(decoded.len());
    let mut below_until = 0;
    for (at, wished) in (node.index() + 1..node.end()).zip(decoded) {
        given.push(match wished {
            _ if at < below_until => Given::Below,
            true => {
                below_until = node.at(at)?.end();
                Given::Decoded
            }
            false => Given::Raw,
        });
    }
    Ok(given)
}

/// What is decoded already, by node.
type Done = Vec<Option<DeviceBatch>>;

impl Session {
    /// The column that an encoded array holds, in a batch of its own, on the session's device.
    ///
    /// # Errors
    /// [`Error::Data`] names the node by the ids that lead to it: an encoding that no plugin of the session knows, metadata
    /// that does not fit, a length or a type that the tree does not keep.
    pub fn decode(&self, array: EncodedArray) -> Result<DeviceBatch> {
        let call = self.call_for_bytes();
        let check = || if self.cancel_flag().is_cancelled() { Err(cancelled()) } else { Ok(()) };
        self.decode_for(&call, self.stream(), check, array)
            .map_err(|error| Error::data("cannot decode an array", error))
    }

    /// The ids that the session decodes, each with its plugins: the first one is asked, the others stand in its shadow.
    pub fn encodings(&self) -> Vec<(String, Vec<Arc<Plugin>>)> {
        let mut ids: Vec<(String, Vec<Arc<Plugin>>)> = Vec::new();
        for plugin in self.plugins().iter() {
            for id in plugin.encodings() {
                match ids.iter_mut().find(|(known, _)| known == id) {
                    Some((_, plugins)) => plugins.push(plugin.clone()),
                    None => ids.push((id.clone(), vec![plugin.clone()])),
                }
            }
        }
        ids
    }

    /// The same for a plugin of the session, whose call it is: on its device and stream.
    pub(crate) fn decode_for_plugin(
        &self,
        call: &Call<'_>,
        array: EncodedArray,
    ) -> ApiResult<Owned<abi::Batch>> {
        let stream = call_stream(self.memory(), call, call.device())?;
        let own = CallSettings {
            device: call.device(),
            // SAFETY: the call's own stream, alive as long as the call, in which all of this happens.
            stream: unsafe { CallStream::new(call.stream()) },
            ..self.call_for_bytes()
        };
        let batch = self.decode_for(&own, &stream, || call.check_cancelled(), array)?;
        export_batch(&batch, false, &stream)
    }

    fn decode_for(
        &self,
        call: &CallSettings,
        stream: &Stream,
        check: impl Fn() -> ApiResult<()>,
        mut array: EncodedArray,
    ) -> ApiResult<DeviceBatch> {
        let plugins = self.plugins();
        let mut known: HashMap<&str, &Arc<Plugin>> = HashMap::new();
        for plugin in plugins.iter() {
            for id in plugin.encodings() {
                known.entry(id).or_insert(plugin);
            }
        }
        let most = self.host().backend().limit_bytes().map_or_else(machine_bytes, |bytes| bytes as u64);
        let steps = plan(&array, call.device, &known, most)?;
        stage(&mut array, &steps, stream.memory())?;
        let mut done: Done = (0..array.n_nodes()).map(|_| None).collect();
        for (index, step) in steps.iter().enumerate().rev() {
            check()?;
            if !matches!(step, Step::Raw) {
                let batch = decode_node(call, stream, &array, index, step, &mut done)?;
                done[index] = Some(batch);
            }
        }
        let root = done.first_mut().and_then(Option::take);
        let root = root.ok_or_else(|| ApiError::internal("the root of an encoded array was not decoded"))?;
        let root = moved(root, call.device, stream)?;
        // By default contents are validated by the plugins that decode; whoever asks for it does not trust them.
        if self.validate_structs() == Validate::Full {
            validate(&root, Level::Full, stream)?;
        }
        Ok(root)
    }
}

fn plan<'a>(
    array: &EncodedArray,
    wanted: Device,
    known: &HashMap<&str, &'a Arc<Plugin>>,
    most_bytes: u64,
) -> ApiResult<Vec<Step<'a>>> {
    let mut steps: Vec<Step<'a>> = Vec::with_capacity(array.n_nodes());
    // Nodes that one above them decodes.
    let mut raw = vec![false; array.n_nodes()];
    // Where what is above each of them is decoded, so that nothing is made on a device to be brought back.
    let mut wanted_on = vec![wanted; array.n_nodes()];
    for index in 0..array.n_nodes() {
        let node = array.node(index)?;
        if raw.get(index).copied().unwrap_or(false) {
            steps.push(Step::Raw);
            continue;
        }
        let id = node.encoding();
        let plugin = *known.get(id).ok_or_else(|| unknown(node, known))?;
        let by = |error: ApiError| error.context(format_args!("{plugin}: {}", node.path()));
        let encoding = plugin.encoding().ok_or_else(|| node.wrong("its plugin has lost its encodings"))?;
        encoding.check(array, index).map_err(by)?;
        // SAFETY: the tree was found sound: each node has a schema that lives as long as the array.
        let field = unsafe { import_field_ref(node.schema()?) }.map_err(by)?;
        let bytes = encoding.size(array, index).map_err(by)?;
        if let Some(bytes) = bytes.filter(|bytes| *bytes > most_bytes) {
            return Err(ApiError::out_of_memory(format!(
                "{}: {} values would take {bytes} bytes, more than the {most_bytes} that there are",
                node.path(),
                node.length()
            )));
        }
        let wanted = wanted_on.get(index).copied().unwrap_or(wanted);
        let plan = encoding.plan(array, index, wanted).map_err(by)?;
        let given = given(node, &plan.decoded)?;
        for (at, is_given) in (index + 1..node.end()).zip(&given) {
            if let (Some(raw), Some(wanted)) = (raw.get_mut(at), wanted_on.get_mut(at)) {
                *raw = matches!(is_given, Given::Raw);
                *wanted = plan.device;
            }
        }
        let schema =
            Arc::new(Schema::new(vec![Field::new("", field.data_type().clone(), field.is_nullable())]));
        steps.push(Step::Decoded { plugin, encoding, device: plan.device, given, schema });
    }
    Ok(steps)
}

fn cancelled() -> ApiError {
    ApiError::cancelled("decoding was cancelled")
}

fn unknown(node: EncodedNode<'_>, known: &HashMap<&str, &Arc<Plugin>>) -> ApiError {
    let mut ids: Vec<_> = known.keys().copied().collect();
    ids.sort_unstable();
    let known = if ids.is_empty() { "no encoding: no plugin has any".to_string() } else { ids.join(", ") };
    ApiError::unsupported(format!(
        "{}: no plugin of the session decodes '{}', and only its own plugins count; it knows {known}",
        node.path(),
        node.encoding()
    ))
}

/// What a machine without a budget can hold: what claims more is refused before anybody asks for it.
fn machine_bytes() -> u64 {
    match physical_memory_bytes() {
        0 => u64::MAX,
        bytes => bytes,
    }
}

/// Brings each node's buffers to where it is decoded; those of a node that is left as it is, to where the node above it is
/// decoded.
fn stage(array: &mut EncodedArray, steps: &[Step<'_>], memory: &Memory) -> ApiResult<()> {
    let mut devices: Vec<Device> = vec![Device::CPU; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        let Step::Decoded { device, given, .. } = step else { continue };
        let raw = given.iter().zip(index + 1..).filter(|(given, _)| **given == Given::Raw).map(|(_, at)| at);
        for at in std::iter::once(index).chain(raw) {
            if let Some(place) = devices.get_mut(at) {
                *place = *device;
            }
        }
    }
    for (index, device) in devices.into_iter().enumerate() {
        for i in 0..array.node(index)?.n_buffers() {
            let buffer = array.node(index)?.buffer(i)?;
            let lies_on = Device::from_arrow(buffer.device.r#type, buffer.device.id);
            if lies_on == device || buffer.bytes == 0 {
                continue;
            }
            let on = memory.default_stream(if device == Device::CPU { lies_on } else { device })?;
            array.replace_buffer(index, i, |raw| {
                // SAFETY: whoever made the array vouches for its buffers.
                let from = unsafe { Buffer::of_encoded(raw) };
                let from = from.ok_or_else(|| ApiError::internal("a buffer with bytes has none"))?;
                let bytes = from.len().unwrap_or(0);
                let mut to = memory.alloc(&memory.default_stream(device)?, bytes)?;
                on.wait(from.ready())?;
                on.copy(&mut to, 0, &from, 0, bytes)?;
                let to = if device == Device::CPU {
                    // The host looks at it next.
                    on.synchronize()?;
                    to.freeze_now()
                } else {
                    to.freeze(&on)?
                };
                Ok(to.to_encoded())
            })?;
        }
    }
    Ok(())
}

fn decode_node(
    call: &CallSettings,
    stream: &Stream,
    array: &EncodedArray,
    index: usize,
    step: &Step<'_>,
    done: &mut Done,
) -> ApiResult<DeviceBatch> {
    let Step::Decoded { plugin, encoding, device, given, schema } = step else {
        return Err(ApiError::internal("a node that another one decodes was to be decoded"));
    };
    let node = array.node(index)?;
    let memory = stream.memory();
    let here = if *device == stream.device() { stream.clone() } else { memory.default_stream(*device)? };
    let below = |(given, at): (&Given, usize)| {
        if *given != Given::Decoded {
            return Ok(None);
        }
        let batch = done.get_mut(at).and_then(Option::take);
        let batch = batch.ok_or_else(|| node.wrong("a node below it was not decoded before it"))?;
        let batch = moved(batch, *device, stream)?;
        export_batch(&batch, false, &here).map(Some)
    };
    let below = given.iter().zip(index + 1..).map(below).collect::<ApiResult<Vec<_>>>()?;
    let call = if *device == call.device {
        call.clone()
    } else {
        CallSettings { cancel: call.cancel.clone(), validate: call.validate, ..CallSettings::new(*device) }
    };
    let by = |error: ApiError| {
        if error.message().starts_with(node.encoding()) || error.message().contains(&node.path()) {
            return error.context(plugin);
        }
        error.context(format_args!("{plugin}: {}", node.path()))
    };
    let raw = encoding.decode(&call, array, index, below).map_err(by)?;
    let batch = import_batch(raw, schema, memory).map_err(by)?;
    held_to_its_word(node, &batch, &here).map_err(by)?;
    Ok(batch)
}

/// What came out is as long as the node said, and has nulls only where its type allows any.
fn held_to_its_word(node: EncodedNode<'_>, batch: &DeviceBatch, stream: &Stream) -> ApiResult<()> {
    if batch.len() as u64 != node.length() {
        return Err(ApiError::bad_data(format!(
            "{} values came out, it claimed {}",
            batch.len(),
            node.length()
        )));
    }
    let nullable = batch.schema().fields().iter().all(|field| field.is_nullable());
    for column in batch.columns() {
        if !nullable && column.buffers().first().is_some_and(Option::is_some) {
            let nulls = column.count_nulls(stream)?;
            if nulls > 0 && column.layout().has_validity {
                return Err(ApiError::bad_data(format!("{nulls} nulls came out, its type has none")));
            }
        }
    }
    Ok(())
}

fn moved(batch: DeviceBatch, device: Device, stream: &Stream) -> ApiResult<DeviceBatch> {
    if batch.device() == device || batch.columns().iter().all(|column| column.buffers().is_empty()) {
        return Ok(batch);
    }
    // A copy between devices runs where the accelerator is, on either side of it.
    let on = if device == Device::CPU { batch.device() } else { device };
    let on = if on == stream.device() { stream.clone() } else { stream.memory().default_stream(on)? };
    let batch = batch.move_to(&on, device)?;
    if device == Device::CPU {
        on.synchronize()?;
    }
    Ok(batch)
}
