//! Encoded arrays to batches: which plugin decodes which node, where, and in which order.
//!
//! The tree is walked twice without recursion. Downwards every node is looked up, checked, and asked how it is to be
//! decoded; nothing is allocated before all of them have answered. Then upwards, children before parents, each is decoded,
//! and what it claimed is held against what came out.

mod plan;
mod program;
mod run;
mod source;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crossdock_arrays::{
    DeviceBatch, Level, call_stream, export_batch, forbidden_nulls, import_result, validate,
};
use crossdock_memory::Stream;
use crossdock_memory_backend::Reserved;
use crossdock_plugin_api::encoded::FEW_NODES;
use crossdock_plugin_api::{
    Call, CallSettings, CallStream, Device, EncodedArray, EncodedNode, Error as ApiError, Owned,
    Result as ApiResult, Validate, abi,
};

use plan::{By, Decoded, Given, Step, asked, machine_bytes, plan, stage};
use run::{Link, named, run};

use crate::error::{Error, Result};
use crate::instances::Instances;
use crate::outside;
use crate::plugin::Plugin;
use crate::session::Session;
use crate::traced::{self, Maker};

/// How a node is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePlan {
    /// Its plugin decodes it, there.
    Plugin(Device),
    /// The host's kernels do, there, by the plugin's program.
    Program(Device),
    /// They do, in one pass with the node that it is the source of.
    WithNodeAbove,
    /// The plugin of a node above takes it as it is.
    ByNodeAbove,
}

impl NodePlan {
    fn of(step: &Step<'_>) -> Self {
        match step {
            Step::Raw => Self::ByNodeAbove,
            Step::Decoded(step) => match step.by {
                By::Plugin(_) => Self::Plugin(step.device),
                By::Program(_) => Self::Program(step.device),
                By::ProgramAbove(_) => Self::WithNodeAbove,
            },
        }
    }
}

impl fmt::Display for NodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(device) => write!(f, "{device}, by the plugin"),
            Self::Program(device) => write!(f, "{device}, by a program"),
            Self::WithNodeAbove => f.write_str("with the node above"),
            Self::ByNodeAbove => f.write_str("by a node above"),
        }
    }
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
        self.decode_for(&call, self.stream(), array)
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
        if let Some(decode) = self.other_decoder() {
            return decode(call, array);
        }
        if self.makes_plugins_here() {
            return Err(ApiError::invalid_argument(
                "the session's plugins are being made: decode once `create`, and what says formats and encodings, have returned",
            ));
        }
        let stream = call_stream(self.memory(), call, call.device())?;
        // SAFETY: all of this happens within the call.
        let own = unsafe { CallSettings::within(call) };
        // A tree is made of bytes, wherever they lie; a plugin may ask for more than the session, not for less.
        let validate = own.validate.max(self.call_for_bytes().validate);
        let own = CallSettings { validate, ..own };
        let batch = self.decode_for(&own, &stream, array)?;
        export_batch(&batch, false, &stream)
    }

    /// How each node of an array would be decoded for `device`, with which nothing is done. Its types are Arrow's: see
    /// [`Session::with_arrow_types`].
    ///
    /// # Errors
    /// As [`Session::decode`], but for what only buffers' contents tell.
    pub fn plan_decoding(&self, array: &EncodedArray, device: Device) -> Result<Vec<NodePlan>> {
        let plugins = self.plugins_for(array);
        let steps = plan(array, device, &plugins, self.most_bytes())
            .map_err(|error| Error::data("cannot decode an array", error))?;
        Ok(steps.iter().map(NodePlan::of).collect())
    }

    /// The session's plugins, of which those that decode the array have not panicked.
    fn plugins_for(&self, array: &EncodedArray) -> Instances<Plugin> {
        self.usable_plugins(|plugins, plugin| {
            let nodes = (0..array.n_nodes()).filter_map(|index| array.node(index).ok());
            let mut by = nodes.filter_map(|node| asked(plugins, node.encoding()));
            by.any(|by| Arc::ptr_eq(by, plugin))
        })
    }

    /// Counts what planning and decoding hold for each node of a tree, apart from values.
    fn count_planning(&self, array: &EncodedArray) -> ApiResult<Option<Reserved>> {
        /// As measured, 2 KiB where nothing is isolated.
        const NODE_BYTES: usize = 3 << 10;
        match array.n_nodes().saturating_sub(FEW_NODES) {
            0 => Ok(None),
            nodes => {
                let counted = self.account().reserve(nodes * NODE_BYTES);
                counted.map(Some).map_err(|e| e.context(format_args!("a tree of {} nodes", array.n_nodes())))
            }
        }
    }

    /// No tree may say that it decodes to more.
    fn most_bytes(&self) -> u64 {
        self.host().backend().limit_bytes().map_or_else(machine_bytes, |bytes| bytes as u64)
    }

    fn decode_for(
        &self,
        call: &CallSettings,
        stream: &Stream,
        mut array: EncodedArray,
    ) -> ApiResult<DeviceBatch> {
        let _counted = self.count_planning(&array)?;
        let plugins = self.plugins_for(&array);
        if plugins.iter().any(|plugin| plugin.is_isolated()) {
            array = crossdock_isolation::share(array)?;
        }
        let steps = plan(&array, call.device, &plugins, self.most_bytes())?;
        stage(&mut array, &steps, stream.memory())?;
        let has_budget = self.host().backend().limit_bytes().is_some();
        let mut done: Done = (0..array.n_nodes()).map(|_| None).collect();
        for (index, step) in steps.iter().enumerate().rev() {
            if call.cancel.is_cancelled() {
                return Err(ApiError::cancelled("decoding was cancelled"));
            }
            let Step::Decoded(step) = step else { continue };
            let batch = match step.by {
                By::Plugin(_) => decode_node(call, stream, &array, index, step, has_budget, &mut done)?,
                By::Program(_) => run_programs(stream, &array, index, &steps, &mut done)?,
                By::ProgramAbove(_) => continue,
            };
            if let Some(place) = done.get_mut(index) {
                *place = Some(batch);
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

fn decode_node(
    call: &CallSettings,
    stream: &Stream,
    array: &EncodedArray,
    index: usize,
    step: &Decoded<'_>,
    has_budget: bool,
    done: &mut Done,
) -> ApiResult<DeviceBatch> {
    let Decoded { plugin, device, given, schema, .. } = step;
    let node = array.node(index)?;
    let memory = stream.memory();
    let here = if *device == stream.device() { stream.clone() } else { memory.default_stream(*device)? };
    let By::Plugin(encoding) = step.by else {
        return Err(ApiError::internal("a node with a program was to be decoded by its plugin"));
    };
    let account = plugin.account();
    // The process of an isolated plugin has a limit of its own.
    let is_charged = has_budget && !plugin.is_isolated();
    let mut input = if is_charged { outside::encoded_ranges(array, &node) } else { Vec::new() };
    let below = |(given, at): (&Given, usize)| {
        if *given != Given::Decoded {
            return Ok(None);
        }
        let batch = done.get_mut(at).and_then(Option::take);
        let batch = batch.ok_or_else(|| node.wrong("a node below it was not decoded before it"))?;
        let batch = moved(batch, *device, stream)?;
        if is_charged {
            input.extend(outside::ranges(&batch));
        }
        export_batch(&batch, false, &here).map(Some)
    };
    let below = given.iter().zip(index + 1..).map(below).collect::<ApiResult<Vec<_>>>()?;
    let call = if *device == call.device {
        call.clone()
    } else {
        // SAFETY: `here` lives until the call has returned.
        CallSettings { device: *device, stream: unsafe { CallStream::new(here.raw()) }, ..call.clone() }
    };
    let by = |error| named(error, plugin, node);
    let decode = || {
        let lent = |batch| traced::crossing(batch, account, Maker::Host);
        let below = below.into_iter().map(|batch| batch.map(lent)).collect();
        let batch = encoding.decode(&call, array, index, below)?;
        Ok(traced::crossing(batch, account, Maker::Plugin))
    };
    let raw = account.call("encoding.decode", decode).map_err(by)?;
    let (raw, place) = if is_charged {
        let (raw, place) = outside::with_place(raw);
        (raw, Some(place))
    } else {
        (raw, None)
    };
    let batch = import_result(raw, schema, &here).map_err(by)?;
    if let Some(place) = place {
        outside::charge(&batch, &place, account, input).map_err(by)?;
    }
    held_to_its_word(node, &batch, &here).map_err(by)?;
    Ok(batch)
}

/// Runs the program of node `index`, with those that are its source.
fn run_programs(
    stream: &Stream,
    array: &EncodedArray,
    index: usize,
    steps: &[Step<'_>],
    done: &mut Done,
) -> ApiResult<DeviceBatch> {
    // From the node inwards, then the other way round.
    let mut chain = Vec::new();
    let mut next = Some(index);
    while let Some(Step::Decoded(step)) = next.and_then(|at| steps.get(at)) {
        let (By::Program(program) | By::ProgramAbove(program)) = &step.by else { break };
        if matches!(step.by, By::Program(_)) && !chain.is_empty() {
            break;
        }
        let node = array.node(next.unwrap_or(index))?;
        next = program.inner().map(|child| node.child(child)).transpose()?.map(|child| child.index());
        chain.push(Link { node, program, plugin: step.plugin });
    }
    chain.reverse();
    let Some(Step::Decoded(Decoded { plugin, device, schema, .. })) = steps.get(index) else {
        return Err(ApiError::internal("a node that another one decodes was to be run"));
    };
    let here =
        if *device == stream.device() { stream.clone() } else { stream.memory().default_stream(*device)? };
    let mut children = HashMap::new();
    for link in &chain {
        for child in &link.program.children {
            let at = link.node.child(*child)?.index();
            if let Some(batch) = done.get_mut(at).and_then(Option::take) {
                let batch = moved(batch, *device, stream)?;
                children.insert(at, batch);
            }
        }
    }
    let child = |node: EncodedNode<'_>, child: u32| {
        let child = node.child(child as usize)?;
        let column = children.get(&child.index()).and_then(|batch| batch.column(0));
        column.ok_or_else(|| child.wrong("it was not decoded before the node above it"))
    };
    let node = array.node(index)?;
    let by = |error| named(error, plugin, node);
    // What goes wrong is said of the link that it goes wrong with.
    let batch = run(&chain, schema, &child, &here)?;
    held_to_its_word(node, &batch, &here).map_err(by)?;
    Ok(batch)
}

/// What came out is as long as the node said, and has nulls only where its type allows any, at every level.
fn held_to_its_word(node: EncodedNode<'_>, batch: &DeviceBatch, stream: &Stream) -> ApiResult<()> {
    if batch.len() as u64 != node.length() {
        return Err(ApiError::bad_data(format!(
            "{} values came out, it claimed {}",
            batch.len(),
            node.length()
        )));
    }
    if let Some((path, nulls)) = forbidden_nulls(batch, stream)? {
        let which = if path.is_empty() { String::new() } else { format!(" in its '{path}'") };
        return Err(ApiError::bad_data(format!("{nulls} nulls came out{which}, its type has none")));
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
