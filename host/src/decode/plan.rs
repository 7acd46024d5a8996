//! Which plugin decodes which node, where, and how: asked of all of them before anything is allocated.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_schema::{Field, Schema, SchemaRef};
use crossdock_arrays::import_field_ref;
use crossdock_memory::{Buffer, Memory};
use crossdock_memory_backend::physical_memory_bytes;
use crossdock_plugin_api::{
    Device, EncodedArray, EncodedNode, EncodingHandle, Error as ApiError, Operator, Result as ApiResult,
};

use super::program::Program;
use crate::plugin::Plugin;

/// What becomes of a node.
pub(super) enum Step<'a> {
    /// It is decoded by its parent, or by one above that.
    Raw,
    Decoded(Decoded<'a>),
}

pub(super) struct Decoded<'a> {
    pub plugin: &'a Plugin,
    pub device: Device,
    /// For each node below it.
    pub given: Vec<Given>,
    pub schema: SchemaRef,
    /// What it takes by itself, as far as its plugin says.
    pub bytes: u64,
    pub by: By<'a>,
}

/// Who makes the values.
pub(super) enum By<'a> {
    /// The plugin.
    Plugin(EncodingHandle<'a>),
    /// Kernels of the host's, as the plugin's program says.
    Program(Program),
    /// The same, with the node above it.
    ProgramAbove(Program),
}

/// What becomes of a node below one that is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
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

pub(super) fn plan<'a>(
    array: &EncodedArray,
    wanted: Device,
    plugins: &'a [Arc<Plugin>],
    most_bytes: u64,
) -> ApiResult<Vec<Step<'a>>> {
    let mut steps: Vec<Step<'a>> = Vec::with_capacity(array.n_nodes());
    // Nodes that one above them decodes.
    let mut raw = vec![false; array.n_nodes()];
    // Where what is above each of them is decoded, so that nothing is made on a device to be brought back.
    let mut wanted_on = vec![wanted; array.n_nodes()];
    // Nodes that are the source of a program.
    let mut sources: HashMap<usize, Above> = HashMap::new();
    for index in 0..array.n_nodes() {
        let node = array.node(index)?;
        if raw.get(index).copied().unwrap_or(false) {
            steps.push(Step::Raw);
            continue;
        }
        let plugin = asked(plugins, node.encoding()).ok_or_else(|| unknown(node, plugins))?;
        let by = |error: ApiError| {
            plugin.heed(&error);
            error.context(format_args!("{plugin}: {}", node.path()))
        };
        let account = plugin.account();
        let encoding = plugin.encoding().ok_or_else(|| node.wrong("its plugin has lost its encodings"))?;
        account.call("encoding.check", || encoding.check(array, index)).map_err(by)?;
        // SAFETY: the tree was found sound: each node has a schema that lives as long as the array.
        let field = unsafe { import_field_ref(node.schema()?) }.map_err(by)?;
        let bytes = account.call("encoding.size", || encoding.size(array, index)).map_err(by)?;
        if let Some(bytes) = bytes.filter(|bytes| *bytes > most_bytes) {
            return Err(ApiError::out_of_memory(format!(
                "{}: {} values would take {bytes} bytes, more than the {most_bytes} that there are",
                node.path(),
                node.length()
            )));
        }
        let wanted = wanted_on.get(index).copied().unwrap_or(wanted);
        let program = program(array, node, &field, plugin, encoding, wanted).map_err(by)?;
        let (device, decoded) = match &program {
            Some(program) => (wanted, children_of(node, &program.children)),
            None => {
                let ask = || encoding.plan(array, index, wanted);
                let plan = account.call("encoding.plan", ask).map_err(by)?;
                (plan.device, plan.decoded)
            }
        };
        let given = given(node, &decoded)?;
        for (at, is_given) in (index + 1..node.end()).zip(&given) {
            if let (Some(raw), Some(wanted)) = (raw.get_mut(at), wanted_on.get_mut(at)) {
                *raw = matches!(is_given, Given::Raw);
                *wanted = device;
            }
        }
        // Where the node above has no nulls of its own, these are found where it would have them.
        let above = sources.remove(&index).filter(|above| above.nullable || !field.is_nullable());
        let by = match program {
            None => By::Plugin(encoding),
            Some(program) => {
                let above = above.filter(|above| above.operators + program.len() <= MOST_FUSED);
                let above = above.filter(|above| !above.wants_codes || program.makes_codes());
                if let Some(inner) = program.inner() {
                    let inner_above = Above {
                        operators: above.as_ref().map_or(0, |above| above.operators) + program.len(),
                        nullable: field.is_nullable(),
                        wants_codes: matches!(program.source, Operator::Dictionary { .. })
                            || above.as_ref().is_some_and(|above| above.wants_codes),
                    };
                    sources.insert(node.child(inner)?.index(), inner_above);
                }
                if above.is_some() { By::ProgramAbove(program) } else { By::Program(program) }
            }
        };
        let schema = Arc::new(Schema::new(vec![field.with_name("")]));
        let bytes = bytes.unwrap_or(0);
        steps.push(Step::Decoded(Decoded { plugin, device, given, schema, bytes, by }));
    }
    let together = at_once(&steps);
    if together > most_bytes {
        return Err(ApiError::out_of_memory(format!(
            "{}: its nodes would take {together} bytes together, more than the {most_bytes} that there are",
            array.root()?.path()
        )));
    }
    Ok(steps)
}

/// How many bytes the nodes take together when they take the most, as far as it is known before they are decoded: what is below a node
/// goes once that is decoded, but where it lies in what comes out.
fn at_once(steps: &[Step<'_>]) -> u64 {
    let mut held = vec![0u64; steps.len()];
    let (mut live, mut most) = (0u64, 0u64);
    for (index, step) in steps.iter().enumerate().rev() {
        let Step::Decoded(Decoded { given, schema, bytes, by, .. }) = step else { continue };
        let own = if matches!(by, By::ProgramAbove(_)) { 0 } else { *bytes };
        let decoded = given.iter().zip(index + 1..).filter(|(given, _)| **given == Given::Decoded);
        let below = decoded.filter_map(|(_, at)| held.get_mut(at).map(std::mem::take));
        let below = below.fold(0, u64::saturating_add);
        live = live.saturating_add(own);
        most = most.max(live);
        let of_others = schema.fields().iter().any(|field| field.data_type().is_nested());
        let kept = if own == 0 || of_others { below } else { 0 };
        live = live.saturating_sub(below - kept);
        if let Some(held) = held.get_mut(index) {
            *held = own.saturating_add(kept);
        }
    }
    most
}

/// What is above a node that is the source of its program.
struct Above {
    /// Of all programs of the pass so far.
    operators: usize,
    nullable: bool,
    /// Whether it looks up what the node numbers.
    wants_codes: bool,
}

/// So many operators are done in one pass; arguments of a kernel have room for twice as many.
const MOST_FUSED: usize = 32;

/// The node's program, where the host is to make its values: on a device, and where nobody else does.
fn program(
    array: &EncodedArray,
    node: EncodedNode<'_>,
    field: &Field,
    plugin: &Plugin,
    encoding: EncodingHandle<'_>,
    wanted: Device,
) -> ApiResult<Option<Program>> {
    if wanted == Device::CPU && encoding.decodes() {
        return Ok(None);
    }
    match plugin.account().call("encoding.lower", || encoding.lower(array, node.index()))? {
        Some(operators) => Program::new(node, field, &operators).map(Some),
        None if encoding.decodes() => Ok(None),
        None => Err(ApiError::unsupported(format!(
            "{}: its plugin decodes by programs alone, and gave none that this release knows",
            node.path()
        ))),
    }
}

/// A flag for each node below, set for some of its children.
fn children_of(node: EncodedNode<'_>, wanted: &[usize]) -> Vec<bool> {
    let mut decoded = vec![false; node.end() - node.index() - 1];
    for child in node.children().enumerate().filter(|(i, _)| wanted.contains(i)).map(|(_, child)| child) {
        if let Some(flag) = decoded.get_mut(child.index() - node.index() - 1) {
            *flag = true;
        }
    }
    decoded
}

/// The plugin that is asked for an id: the first one that has it. Few have any, and those dozens, which are sooner looked
/// through than put into a table.
pub(super) fn asked<'a>(plugins: &'a [Arc<Plugin>], id: &str) -> Option<&'a Arc<Plugin>> {
    plugins.iter().find(|plugin| plugin.encodings().iter().any(|known| known == id))
}

fn unknown(node: EncodedNode<'_>, plugins: &[Arc<Plugin>]) -> ApiError {
    let mut ids: Vec<_> = plugins.iter().flat_map(|plugin| plugin.encodings()).map(String::as_str).collect();
    ids.sort_unstable();
    ids.dedup();
    let known = if ids.is_empty() { "no encoding: no plugin has any".to_string() } else { ids.join(", ") };
    ApiError::unsupported(format!(
        "{}: no plugin of the session decodes '{}', and only its own plugins count; it knows {known}",
        node.path(),
        node.encoding()
    ))
}

/// What a machine without a budget can hold: what claims more is refused before anybody asks for it.
pub(super) fn machine_bytes() -> u64 {
    // It stays the same, and asking the system takes as long as planning a node.
    static BYTES: AtomicU64 = AtomicU64::new(0);
    if BYTES.load(Ordering::Relaxed) == 0 {
        let bytes = physical_memory_bytes();
        BYTES.store(if bytes == 0 { u64::MAX } else { bytes }, Ordering::Relaxed);
    }
    BYTES.load(Ordering::Relaxed)
}

/// Brings each node's buffers to where it is decoded; those of a node that is left as it is, to where the node above it is
/// decoded.
pub(super) fn stage(array: &mut EncodedArray, steps: &[Step<'_>], memory: &Memory) -> ApiResult<()> {
    // Where nobody is to look at them, they stay where they are.
    let mut devices: Vec<Option<Device>> = vec![None; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        let Step::Decoded(Decoded { device, given, by, .. }) = step else { continue };
        let raw = given.iter().zip(index + 1..).filter(|(given, _)| **given == Given::Raw).map(|(_, at)| at);
        let raw = raw.filter(|_| matches!(by, By::Plugin(_)));
        for at in std::iter::once(index).chain(raw) {
            if let Some(place) = devices.get_mut(at) {
                *place = Some(*device);
            }
        }
    }
    for (index, device) in devices.into_iter().enumerate() {
        let Some(device) = device else { continue };
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
