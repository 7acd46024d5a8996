//! Decodes encoded arrays into batches. Plans the plugin and the device for each node, and the
//! order of the nodes.
//!
//! The tree is walked twice, without recursion. The first walk goes from parents to children: it
//! finds each node's plugin, checks the node, and plans it. Nothing is allocated before every node
//! is planned. The second walk decodes children before parents, and checks each result against its
//! node. On a device, the programs of nodes that do not depend on each other run at the same time,
//! because the launch of a kernel takes longer than the decoding of a few thousand values.

mod checks;
mod errors;
mod left_parts;
mod on_host;
mod pass;
mod plan;
mod program;
mod rows;
mod run;
mod schedule;
mod source;
mod stage;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock_arrays::{
    DeviceArray, DeviceBatch, Level, call_stream, export_batch, export_batches, find_forbidden_nulls,
    import_result, resolve_null_counts, validate,
};
use crossdock_memory::{EncodedBuffers, Stream};
use crossdock_memory_backend::Reservation;
use crossdock_plugin_api::encoded::UNCHARGED_NODES;
use crossdock_plugin_api::{
    Call, CallSettings, CallStream, ChildType, Device, EncodedArray, EncodedNode, Error as ApiError, Owned,
    Result as ApiResult, Validate, abi,
};

use checks::PendingChecks;
use errors::with_context;
pub(crate) use on_host::{HostDecodes, Watch};
use pass::{Chain, Inputs, Link};
pub use plan::NodePlan;
use plan::{By, ChildInput, Decoded, Step, machine_bytes, plan, plugin_for, unknown};
use run::run_all;
use schedule::{Schedule, temporary_nodes};
use stage::stage;
pub(crate) use stage::to_host;

use crate::error::{Error, Result};
use crate::foreign_memory;
use crate::instances::Instances;
use crate::plugin::Plugin;
use crate::session::Session;
use crate::tracing_hooks::{self, Producer};

/// The decoded nodes, by node index.
type Done = Vec<Option<DeviceBatch>>;

impl Session {
    /// Decodes an encoded array into a batch of one column, on the session's device.
    ///
    /// # Errors
    /// [`Error::Data`] if no plugin of the session decodes the encoding of a node, if the metadata
    /// of a node is malformed, or if a decoded node differs from its declared length or type. The
    /// error names the node by the encoding ids on the path to the node.
    pub fn decode(&self, array: EncodedArray) -> Result<DeviceBatch> {
        self.decode_range(array, None)
    }

    /// Decodes the rows `rows` of an encoded array, like [`Session::decode`]. Nodes and buffers
    /// that these rows do not need are not read, as far as the plugins of the encodings can tell.
    /// Nodes that are not read are not checked.
    ///
    /// # Errors
    /// The errors of [`Session::decode`]; [`Error::Usage`] if the array does not have these rows.
    pub fn decode_rows(&self, array: EncodedArray, rows: Range<u64>) -> Result<DeviceBatch> {
        let len = array.root().map_err(|error| Error::data("cannot decode an array", error))?.length();
        check_rows(&rows, len).map_err(|error| Error::usage(error.message().to_owned()))?;
        self.decode_range(array, Some(rows))
    }

    fn decode_range(&self, array: EncodedArray, rows: Option<Range<u64>>) -> Result<DeviceBatch> {
        let call = self.call_for_bytes();
        self.decode_for(&call, self.stream(), array, rows)
            .map_err(|error| Error::data("cannot decode an array", error))
    }

    /// Returns the ids of the encodings that the session decodes, each with the plugins that decode
    /// it. The session uses only the first of these plugins.
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

    /// Decodes an array for a plugin of the session, on the device and stream of the plugin's call.
    pub(crate) fn decode_for_plugin(
        &self,
        call: &Call<'_>,
        array: EncodedArray,
        rows: Option<Range<u64>>,
    ) -> ApiResult<Owned<abi::Batch>> {
        if let Some(decoder) = self.other_decoder() {
            return decoder.decode(call, array, rows);
        }
        self.reject_during_creation()?;
        let stream = call_stream(self.memory(), call, call.device())?;
        // SAFETY: the settings are used only within the call that they are read from.
        let settings = unsafe { CallSettings::from_call(call) };
        // The session's settings for bytes apply, as in [`Session::decode`]. A plugin may increase
        // the session's level of validation, but not reduce it.
        let validate = settings.validate.max(self.call_for_bytes().validate);
        let settings = CallSettings { validate, ..settings };
        let batch = self.decode_for(&settings, &stream, array, rows)?;
        export_batch(&batch, false, &stream)
    }

    /// Derives the types and the lengths of a node's children for a plugin of the session.
    pub(crate) fn child_types(&self, node: EncodedNode<'_>) -> ApiResult<Vec<ChildType>> {
        if let Some(decoder) = self.other_decoder() {
            return decoder.children(node);
        }
        self.reject_during_creation()?;
        let plugins = self.working_plugins(|plugins, plugin| {
            plugin_for(plugins, node.encoding()).is_some_and(|decoder| Arc::ptr_eq(decoder, plugin))
        });
        let plugin = plugin_for(&plugins, node.encoding()).ok_or_else(|| unknown(node, &plugins))?;
        let encoding = plugin.encoding().ok_or_else(|| node.wrong("the plugin no longer has encodings"))?;
        let derive = || encoding.children(node);
        plugin.account().trace_host_call("encoding.children", derive).map_err(|error| {
            plugin.note_panic(&error);
            error.context(format_args!("{plugin}"))
        })
    }

    fn reject_during_creation(&self) -> ApiResult<()> {
        if self.is_creating_plugins_here() {
            return Err(ApiError::invalid_argument(
                "the session's plugins are being created: a plugin may decode arrays only after its `create`, \
                 `formats` and `ids` have returned",
            ));
        }
        Ok(())
    }

    /// Returns how each node of an array would be decoded for `device`, but decodes nothing. The
    /// array must have Arrow types: see [`Session::with_arrow_types`].
    ///
    /// # Errors
    /// The errors of [`Session::decode`], except errors that depend on the contents of buffers.
    pub fn plan_decoding(&self, array: &EncodedArray, device: Device) -> Result<Vec<NodePlan>> {
        let (plugins, max_bytes) = (self.plugins_for(array), self.max_decoded_bytes());
        let plan = || {
            let steps = plan(array, 0..array.root()?.length(), device, &plugins, max_bytes)?;
            Schedule::new(array, &steps, device, max_bytes)?;
            Ok(steps.iter().map(NodePlan::from_step).collect())
        };
        plan().map_err(|error| Error::data("cannot decode an array", error))
    }

    /// Returns the session's plugin instances. An instance that decodes a node of the array is
    /// replaced if it panicked.
    fn plugins_for(&self, array: &EncodedArray) -> Instances<Plugin> {
        self.working_plugins(|plugins, plugin| {
            let nodes = (0..array.n_nodes()).filter_map(|index| array.node(index).ok());
            let mut decoders = nodes.filter_map(|node| plugin_for(plugins, node.encoding()));
            decoders.any(|decoder| Arc::ptr_eq(decoder, plugin))
        })
    }

    /// Charges the memory that planning and decoding use for each node of a tree. The memory of the
    /// values is charged separately.
    fn reserve_for_nodes(&self, array: &EncodedArray) -> ApiResult<Option<Reservation>> {
        /// Measurements without isolated plugins showed 2 KiB per node.
        const NODE_BYTES: usize = 3 << 10;
        match array.n_nodes().saturating_sub(UNCHARGED_NODES) {
            0 => Ok(None),
            nodes => {
                let reservation = self.account().reserve(nodes * NODE_BYTES);
                reservation
                    .map(Some)
                    .map_err(|e| e.context(format_args!("a tree of {} nodes", array.n_nodes())))
            }
        }
    }

    /// The maximum number of bytes that a tree may declare for its values. It is the memory budget,
    /// or the machine's memory if there is no budget.
    fn max_decoded_bytes(&self) -> u64 {
        self.host().backend().limit_bytes().map_or_else(machine_bytes, |bytes| bytes as u64)
    }

    fn decode_for(
        &self,
        call: &CallSettings,
        stream: &Stream,
        mut array: EncodedArray,
        rows: Option<Range<u64>>,
    ) -> ApiResult<DeviceBatch> {
        let len = array.root()?.length();
        let rows = rows.unwrap_or(0..len);
        check_rows(&rows, len)?;
        let _reservation = self.reserve_for_nodes(&array)?;
        let plugins = self.plugins_for(&array);
        if plugins.iter().any(|plugin| plugin.is_isolated()) {
            array = crossdock_isolation::to_shared_memory(array)?;
        }
        let max_bytes = self.max_decoded_bytes();
        let steps = plan(&array, rows, call.device, &plugins, max_bytes)?;
        self.host_decodes().note(&array, &steps, call.device);
        let schedule = Schedule::new(&array, &steps, call.device, max_bytes)?;
        stage(&mut array, &steps, stream.memory())?;
        let mut done: Done = (0..array.n_nodes()).map(|_| None).collect();
        let checks = PendingChecks::new(&array, &steps);
        let decoded = self.decode_nodes(call, stream, &array, (&steps, &schedule), &checks, &mut done);
        // A failed check may be the cause of another error.
        checks.finish()?;
        decoded?;
        let root = done.first_mut().and_then(Option::take);
        let root = root.ok_or_else(|| ApiError::internal("the root of an encoded array was not decoded"))?;
        let root = move_to_device(root, call.device, stream)?;
        // By default, the plugin that decodes a node validates its contents. With full validation,
        // the host also validates the result.
        if self.validate_structs() == Validate::Full {
            validate(&root, Level::Full, stream)?;
        }
        Ok(root)
    }

    /// Decodes the nodes of an array, children before parents. Does not wait for the results of
    /// checks.
    fn decode_nodes<'a>(
        &self,
        call: &CallSettings,
        stream: &Stream,
        array: &'a EncodedArray,
        (steps, schedule): (&'a [Step<'a>], &Schedule),
        checks: &PendingChecks<'a>,
        done: &mut Done,
    ) -> ApiResult<()> {
        let has_budget = self.host().backend().limit_bytes().is_some();
        let (temporary, buffers) = (temporary_nodes(steps), EncodedBuffers::new());
        for round in schedule.rounds() {
            if call.cancel.is_cancelled() {
                return Err(ApiError::cancelled("decoding was cancelled"));
            }
            let mut programs: Vec<(Device, Vec<usize>)> = Vec::new();
            for index in round {
                let batch = match steps.get(index) {
                    Some(Step::NotRead(schema)) => empty_batch(schema)?,
                    Some(Step::Decoded(step)) => match step.by {
                        By::Plugin(_) => {
                            let batch = decode_node(call, stream, array, index, step, has_budget, done)?;
                            needed_rows(batch, step, index == 0, stream)?
                        }
                        By::Program(_) => {
                            match programs.iter_mut().find(|(device, _)| *device == step.device) {
                                Some((_, nodes)) => nodes.push(index),
                                None => programs.push((step.device, vec![index])),
                            }
                            continue;
                        }
                        By::ProgramAbove(_) => continue,
                    },
                    Some(Step::Raw | Step::BelowNotRead) | None => continue,
                };
                if let Some(slot) = done.get_mut(index) {
                    *slot = Some(batch);
                }
            }
            for (device, nodes) in programs {
                let kept = (temporary.as_slice(), &buffers, checks);
                run_programs(stream, array, (device, &nodes), steps, kept, done)?;
            }
        }
        Ok(())
    }
}

/// Returns an error unless an array of `len` values has these rows.
fn check_rows(rows: &Range<u64>, len: u64) -> ApiResult<()> {
    if rows.start <= rows.end && rows.end <= len {
        return Ok(());
    }
    Err(ApiError::invalid_argument(format!(
        "got the rows from {} to {}, expected a range of the array's {len} rows",
        rows.start, rows.end
    )))
}

fn empty_batch(schema: &SchemaRef) -> ApiResult<DeviceBatch> {
    let columns = schema.fields().iter().map(|field| DeviceArray::empty(field.data_type()));
    DeviceBatch::try_new(schema.clone(), 0, columns.collect::<ApiResult<_>>()?)
}

/// Drops the rows that a decoder returned, but that are not needed.
fn needed_rows(
    batch: DeviceBatch,
    step: &Decoded<'_>,
    is_root: bool,
    stream: &Stream,
) -> ApiResult<DeviceBatch> {
    let Decoded { rows, decoder_rows, .. } = step;
    if rows == decoder_rows {
        return Ok(batch);
    }
    let at = rows.start.saturating_sub(decoder_rows.start) as usize;
    let needed = batch.slice(at, (rows.end - rows.start) as usize)?;
    // The result of the caller must not retain the memory of many rows that are not needed. If the
    // decoder allocated nothing, the rows are in the buffers of the encoded array.
    if !is_root || step.bytes == 0 || needed.len() > batch.len() / 2 {
        return Ok(needed);
    }
    needed.compact(stream)
}

fn decode_node(
    call: &CallSettings,
    stream: &Stream,
    array: &EncodedArray,
    index: usize,
    step: &Decoded<'_>,
    has_budget: bool,
    done: &mut Done,
) -> ApiResult<DeviceBatch> {
    let Decoded { plugin, device, inputs, schema, decoder_rows, .. } = step;
    let node = array.node(index)?;
    let memory = stream.memory();
    let own_stream =
        if *device == stream.device() { stream.clone() } else { memory.default_stream(*device)? };
    let By::Plugin(encoding) = step.by else {
        return Err(ApiError::internal("a node with a program must not be decoded by its plugin"));
    };
    let account = plugin.account();
    // An isolated plugin is not charged, because its process has its own memory limit.
    let is_charged = has_budget && !plugin.is_isolated();
    let mut input = if is_charged { foreign_memory::encoded_ranges(array, &node) } else { Vec::new() };
    let child_batch = |(child, at): (&ChildInput, usize)| {
        if *child != ChildInput::Decoded {
            return Ok(None);
        }
        let batch = done.get_mut(at).and_then(Option::take);
        let batch = batch.ok_or_else(|| node.wrong("a descendant was not decoded before it"))?;
        let batch = move_to_device(batch, *device, stream)?;
        if is_charged {
            input.extend(foreign_memory::ranges(&batch));
        }
        Ok(Some(batch))
    };
    let mut children = inputs.iter().zip(index + 1..).map(child_batch).collect::<ApiResult<Vec<_>>>()?;
    resolve_null_counts(&mut children.iter_mut().flatten().collect::<Vec<_>>(), &own_stream)?;
    let decoded: Vec<bool> = children.iter().map(Option::is_some).collect();
    let children: Vec<DeviceBatch> = children.into_iter().flatten().collect();
    let mut exported = export_batches(&children, *device, &own_stream)?.into_iter();
    let children = decoded.into_iter().map(|decoded| if decoded { exported.next() } else { None });
    let call = if *device == call.device {
        call.clone()
    } else {
        // SAFETY: `own_stream` lives until the call has returned.
        CallSettings { device: *device, stream: unsafe { CallStream::new(own_stream.raw()) }, ..call.clone() }
    };
    let context = |error| with_context(error, plugin, node);
    let decode = || {
        let to_plugin = |batch| tracing_hooks::batch(batch, account, Producer::Host);
        let children = children.map(|batch| batch.map(to_plugin)).collect();
        let batch = encoding.decode(&call, array, index, decoder_rows, children)?;
        Ok(tracing_hooks::batch(batch, account, Producer::Plugin))
    };
    let raw = account.trace_host_call("encoding.decode", decode).map_err(context)?;
    if !raw.n_rows_device.is_null() {
        let wrong = "a decoded batch has a number of rows on the device, expected n_rows_device NULL";
        return Err(context(ApiError::internal(wrong)));
    }
    let (raw, charge_slot) = foreign_memory::with_charge_slot(raw, is_charged);
    let batch = import_result(raw, schema, &own_stream).map_err(context)?;
    if let Some(slot) = charge_slot {
        foreign_memory::charge(&batch, &slot, account, input).map_err(context)?;
    }
    check_decoded(node, decoder_rows, &batch, &own_stream).map_err(context)?;
    Ok(batch)
}

/// Runs the programs of nodes that do not depend on each other, together with the programs of the
/// nodes that are their sources.
fn run_programs(
    stream: &Stream,
    array: &EncodedArray,
    (device, nodes): (Device, &[usize]),
    steps: &[Step<'_>],
    (temporary, buffers, checks): (&[bool], &EncodedBuffers, &PendingChecks<'_>),
    done: &mut Done,
) -> ApiResult<()> {
    let own_stream =
        if device == stream.device() { stream.clone() } else { stream.memory().default_stream(device)? };
    let chains = nodes.iter().map(|index| chain(array, *index, steps, temporary));
    let chains = chains.collect::<ApiResult<Vec<_>>>()?;
    let mut children = HashMap::new();
    for link in chains.iter().flat_map(|chain| &chain.links) {
        for child in &link.program.children {
            let at = link.node.child(*child)?.index();
            if let Some(batch) = done.get_mut(at).and_then(Option::take) {
                children.insert(at, move_to_device(batch, device, stream)?);
            }
        }
    }
    let child = |node: EncodedNode<'_>, child: u32| {
        let child = node.child(child as usize)?;
        let column = children.get(&child.index()).and_then(|batch| batch.column(0));
        column.ok_or_else(|| child.wrong("the node was not decoded before its parent"))
    };
    // `run_all` adds the context of the node that fails to decode.
    let batches = run_all(&chains, Inputs { children: &child, buffers, checks }, &own_stream)?;
    for (index, batch) in nodes.iter().zip(batches) {
        let Some(Step::Decoded(step)) = steps.get(*index) else { continue };
        let node = array.node(*index)?;
        check_decoded(node, &step.rows, &batch, &own_stream)
            .map_err(|error| with_context(error, step.plugin, node))?;
        let batch = needed_rows(batch, step, *index == 0, stream)?;
        if let Some(slot) = done.get_mut(*index) {
            *slot = Some(batch);
        }
    }
    Ok(())
}

/// The programs that run in one pass to decode node `index`.
fn chain<'a>(
    array: &'a EncodedArray,
    index: usize,
    steps: &'a [Step<'a>],
    temporary: &[bool],
) -> ApiResult<Chain<'a>> {
    let Some(Step::Decoded(Decoded { schema, .. })) = steps.get(index) else {
        return Err(ApiError::internal("a node that is decoded with its parent must not be decoded alone"));
    };
    // The links are collected from the node to its innermost source, and then reversed.
    let mut links = Vec::new();
    let mut next = Some(index);
    while let Some(Step::Decoded(step)) = next.and_then(|at| steps.get(at)) {
        let (By::Program(program) | By::ProgramAbove(program)) = &step.by else { break };
        if matches!(step.by, By::Program(_)) && !links.is_empty() {
            break;
        }
        let node = array.node(next.unwrap_or(index))?;
        next = program.inner().map(|child| node.child(child)).transpose()?.map(|child| child.index());
        links.push(Link { node, program, plugin: step.plugin, rows: &step.rows });
    }
    links.reverse();
    Ok(Chain { links, schema, is_temporary: temporary.get(index).copied().unwrap_or_default() })
}

/// Checks that a decoded node has the length of `rows`, and that it has no nulls if its type is not
/// nullable.
fn check_decoded(
    node: EncodedNode<'_>,
    rows: &Range<u64>,
    batch: &DeviceBatch,
    stream: &Stream,
) -> ApiResult<()> {
    let (actual, expected) = (batch.len(), rows.end - rows.start);
    if actual as u64 != expected {
        return Err(ApiError::bad_data(if expected == node.length() {
            format!("decoded {actual} values, but the node declares {expected}")
        } else {
            format!("decoded {actual} values, expected the {expected} values of rows {rows:?}")
        }));
    }
    if let Some((path, nulls)) = find_forbidden_nulls(batch, stream)? {
        let child = if path.is_empty() { String::new() } else { format!(" in its '{path}'") };
        return Err(ApiError::bad_data(format!(
            "decoded {nulls} nulls{child}, expected none: the type is not nullable"
        )));
    }
    Ok(())
}

fn move_to_device(batch: DeviceBatch, device: Device, stream: &Stream) -> ApiResult<DeviceBatch> {
    if batch.device() == device || batch.columns().iter().all(|column| column.buffers().is_empty()) {
        return Ok(batch);
    }
    // A copy between host and device runs on a stream of the device.
    let copy_device = if device == Device::CPU { batch.device() } else { device };
    let copy_stream = if copy_device == stream.device() {
        stream.clone()
    } else {
        stream.memory().default_stream(copy_device)?
    };
    // Every reader on the CPU (a view, an export or a kernel) waits for the copy too.
    batch.move_to(&copy_stream, device)
}
