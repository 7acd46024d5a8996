//! Plans, before anything is allocated, how each node is decoded: by which plugin or kernel, and on
//! which device.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_schema::{Field, Schema, SchemaRef};
use crossdock_arrays::import_field_ref;
use crossdock_memory_backend::physical_memory_bytes;
use crossdock_plugin_api::{
    DecodePlan, Device, EncodedArray, EncodedNode, EncodingHandle, Error as ApiError, Operator,
    Result as ApiResult,
};

use super::program::Program;
use crate::plugin::Plugin;

/// The plan for a node.
pub(super) enum Step<'a> {
    /// The plugin of an ancestor decodes the node.
    Raw,
    /// No row of the node, and nothing of its descendants, is needed.
    NotRead(SchemaRef),
    /// A descendant of such a node.
    BelowNotRead,
    Decoded(Decoded<'a>),
}

pub(super) struct Decoded<'a> {
    pub plugin: &'a Plugin,
    pub device: Device,
    /// One entry for each descendant of the node.
    pub inputs: Vec<ChildInput>,
    pub schema: SchemaRef,
    /// The rows of the node that are needed.
    pub rows: Range<u64>,
    /// The rows that the decoder returns, which include `rows`.
    pub decoder_rows: Range<u64>,
    /// The declared size in bytes of the node's values, without the values of its children.
    pub bytes: u64,
    pub by: By<'a>,
}

impl Decoded<'_> {
    /// Whether the decoder reads buffer `i` of the node.
    pub fn reads_buffer(&self, i: usize) -> bool {
        match &self.by {
            By::Plugin(_) => true,
            By::Program(program) | By::ProgramAbove(program) => match program.source {
                Operator::Load { buffer, .. } | Operator::Unpack { buffer, .. } => buffer as usize == i,
                _ => false,
            },
        }
    }
}

/// The component that decodes a node.
pub(super) enum By<'a> {
    /// The node's plugin.
    Plugin(EncodingHandle<'a>),
    /// The host's kernels, which run the program that the plugin returned.
    Program(Program),
    /// The host's kernels, in one pass with the program of the node's parent.
    ProgramAbove(Program),
}

/// How a node is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePlan {
    /// The node's plugin decodes the node on this device.
    Plugin(Device),
    /// The host's kernels decode the node on this device. They run the program that the node's
    /// plugin returned.
    Program(Device),
    /// The host's kernels decode the node in one pass with its parent, because the node is the
    /// source of the parent's program.
    WithParent,
    /// The node is passed, still encoded, to the plugin that decodes one of its ancestors.
    ByAncestor,
    /// No decoder needs the node.
    NotRead,
}

impl NodePlan {
    pub(super) fn from_step(step: &Step<'_>) -> Self {
        match step {
            Step::Raw => Self::ByAncestor,
            Step::NotRead(_) | Step::BelowNotRead => Self::NotRead,
            Step::Decoded(step) => match step.by {
                By::Plugin(_) => Self::Plugin(step.device),
                By::Program(_) => Self::Program(step.device),
                By::ProgramAbove(_) => Self::WithParent,
            },
        }
    }
}

impl fmt::Display for NodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(device) => write!(f, "{device}, by the plugin"),
            Self::Program(device) => write!(f, "{device}, by a program"),
            Self::WithParent => f.write_str("with its parent"),
            Self::ByAncestor => f.write_str("by an ancestor"),
            Self::NotRead => f.write_str("not read"),
        }
    }
}

/// How a plugin receives a descendant of a node that it decodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildInput {
    /// The plugin receives the descendant as a decoded array.
    Decoded,
    /// The plugin receives the descendant as an encoded array.
    Raw,
    /// The plugin receives the descendant as part of a decoded ancestor.
    Below,
    /// The plugin needs no row of an ancestor of the descendant.
    NotRead,
}

/// Returns one entry for each descendant of `node`. `decoded` states for each descendant whether
/// the plugin requests it decoded.
fn child_inputs(node: EncodedNode<'_>, decoded: &[bool]) -> ApiResult<Vec<ChildInput>> {
    let mut inputs = Vec::with_capacity(decoded.len());
    let mut below_until = 0;
    for (at, is_decoded) in (node.index() + 1..node.end()).zip(decoded) {
        inputs.push(match is_decoded {
            _ if at < below_until => ChildInput::Below,
            true => {
                below_until = node.at(at)?.end();
                ChildInput::Decoded
            }
            false => ChildInput::Raw,
        });
    }
    Ok(inputs)
}

/// Plans how `rows` of an array are decoded for the device `target`.
pub(super) fn plan<'a>(
    array: &EncodedArray,
    rows: Range<u64>,
    target: Device,
    plugins: &'a [Arc<Plugin>],
    max_bytes: u64,
) -> ApiResult<Vec<Step<'a>>> {
    let n = array.n_nodes();
    let mut needs = vec![ParentNeed { form: ChildInput::Decoded, target, rows: 0..0 }; n];
    if let Some(root) = needs.first_mut() {
        root.rows = rows;
    }
    let mut planner = Planner { array, plugins, max_bytes, needs, sources: HashMap::new() };
    (0..n).map(|index| planner.step(index)).collect()
}

/// What the decoder of an ancestor needs of a node.
#[derive(Clone)]
struct ParentNeed {
    form: ChildInput,
    /// The device on which the ancestor is decoded, so that no node is copied to a device and back.
    target: Device,
    /// The rows that are needed, if the node is needed decoded.
    rows: Range<u64>,
}

/// Plans the nodes of an array, parents before children.
struct Planner<'p, 'a> {
    array: &'p EncodedArray,
    plugins: &'a [Arc<Plugin>],
    max_bytes: u64,
    /// What the decoder of an ancestor needs of each node.
    needs: Vec<ParentNeed>,
    /// Maps the index of a node to its parent, if the node is the source of the parent's program.
    sources: HashMap<usize, ProgramAbove>,
}

impl<'a> Planner<'_, 'a> {
    fn step(&mut self, index: usize) -> ApiResult<Step<'a>> {
        let Self { array, plugins, max_bytes, .. } = *self;
        let node = array.node(index)?;
        let need = self.needs.get(index).cloned();
        let ParentNeed { form, target, rows } =
            need.ok_or_else(|| node.wrong("the parent of the node was not planned"))?;
        match form {
            ChildInput::Raw => return Ok(Step::Raw),
            ChildInput::NotRead => return Ok(Step::BelowNotRead),
            ChildInput::Decoded | ChildInput::Below => {}
        }
        // A node of which no row is needed becomes an empty array of its type, and is neither
        // checked nor read.
        if index > 0 && rows.is_empty() && node.length() > 0 {
            let below = self.needs.get_mut(index + 1..node.end()).unwrap_or_default();
            below.iter_mut().for_each(|need| need.form = ChildInput::NotRead);
            // SAFETY: `EncodedArray` checked the tree: each node's schema lives as long as the
            // array.
            let field = unsafe { import_field_ref(node.schema()?) };
            let field = field.map_err(|error| error.context(node.path()))?;
            return Ok(Step::NotRead(Arc::new(Schema::new(vec![field.with_name("")]))));
        }
        let plugin = plugin_for(plugins, node.encoding()).ok_or_else(|| unknown(node, plugins))?;
        let context = |error: ApiError| {
            plugin.note_panic(&error);
            error.context(format_args!("{plugin}: {}", node.path()))
        };
        let account = plugin.account();
        let encoding = plugin.encoding().ok_or_else(|| node.wrong("the plugin no longer has encodings"))?;
        account.trace_host_call("encoding.check", || encoding.check(array, index)).map_err(context)?;
        // SAFETY: `EncodedArray` checked the tree: each node's schema lives as long as the array.
        let field = unsafe { import_field_ref(node.schema()?) }.map_err(context)?;
        let schema = Arc::new(Schema::new(vec![field.clone().with_name("")]));
        let is_part = rows != (0..node.length());
        let program = program(array, node, &field, plugin, encoding, target, is_part).map_err(context)?;
        let plan = match &program {
            Some(program) => {
                let decoded = children_of(node, &program.children);
                let rows_below = program.rows_below(node, &rows);
                DecodePlan { device: target, rows: rows.clone(), decoded, rows_below }
            }
            None => {
                let ask = || encoding.plan(array, index, target, &rows);
                account.trace_host_call("encoding.plan", ask).map_err(context)?
            }
        };
        let size = || encoding.size(array, index, &plan.rows);
        let bytes = account.trace_host_call("encoding.size", size).map_err(context)?;
        if let Some(bytes) = bytes.filter(|bytes| *bytes > max_bytes) {
            return Err(ApiError::out_of_memory(format!(
                "{}: {} values need {bytes} bytes, expected at most {max_bytes}, the memory limit or the machine's memory",
                node.path(),
                plan.rows.end - plan.rows.start
            )));
        }
        let DecodePlan { device, rows: decoder_rows, decoded, rows_below } = plan;
        let inputs = child_inputs(node, &decoded)?;
        let below = self.needs.get_mut(index + 1..node.end()).unwrap_or_default();
        for ((need, form), rows) in below.iter_mut().zip(&inputs).zip(rows_below) {
            *need = ParentNeed { form: *form, target: device, rows };
        }
        let program = program.map(|mut program| {
            program.limit_to(&rows);
            program
        });
        let by = self.decoder(node, &field, program, encoding)?;
        let bytes = bytes.unwrap_or(0);
        Ok(Step::Decoded(Decoded { plugin, device, inputs, schema, rows, decoder_rows, bytes, by }))
    }

    /// Returns the component that decodes a node. Decides whether the node's program runs in one
    /// pass with the program of the node's parent.
    fn decoder(
        &mut self,
        node: EncodedNode<'_>,
        field: &Field,
        program: Option<Program>,
        encoding: EncodingHandle<'a>,
    ) -> ApiResult<By<'a>> {
        // A nullable node is not fused into a parent that is not nullable.
        let above = self.sources.remove(&node.index());
        let above = above.filter(|above| above.nullable || !field.is_nullable());
        let Some(program) = program else { return Ok(By::Plugin(encoding)) };
        let above = above.filter(|above| above.operators + program.len() <= MAX_FUSED);
        let above = above.filter(|above| !above.wants_codes || program.makes_codes());
        let above = above.filter(|_| program.is_fusible());
        if let Some(inner) = program.inner() {
            let inner_above = ProgramAbove {
                operators: above.as_ref().map_or(0, |above| above.operators) + program.len(),
                nullable: field.is_nullable(),
                wants_codes: matches!(program.source, Operator::Dictionary { .. })
                    || above.as_ref().is_some_and(|above| above.wants_codes),
            };
            self.sources.insert(node.child(inner)?.index(), inner_above);
        }
        Ok(if above.is_some() { By::ProgramAbove(program) } else { By::Program(program) })
    }
}

/// The parent of a node, if the node is the source of the parent's program.
struct ProgramAbove {
    /// The number of operators in the programs that the pass contains so far.
    operators: usize,
    nullable: bool,
    /// Whether the node's values are codes of the parent's dictionary.
    wants_codes: bool,
}

/// The maximum number of operators in one pass. The arguments of a kernel have space for twice this
/// number.
const MAX_FUSED: usize = 32;

/// Returns the node's program if the host decodes the node. The host decodes a node for the CPU
/// only if the node's plugin has only programs, or if only a part of the node is needed, which a
/// program decodes without the rest.
fn program(
    array: &EncodedArray,
    node: EncodedNode<'_>,
    field: &Field,
    plugin: &Plugin,
    encoding: EncodingHandle<'_>,
    target: Device,
    is_part: bool,
) -> ApiResult<Option<Program>> {
    if target == Device::CPU && encoding.decodes() && !is_part {
        return Ok(None);
    }
    match plugin.account().trace_host_call("encoding.lower", || encoding.lower(array, node.index()))? {
        Some(operators) => Program::new(node, field, &operators).map(Some),
        None if encoding.decodes() => Ok(None),
        None => Err(ApiError::unsupported(format!(
            "{}: the plugin decodes only by programs, and returned no program that this host version supports",
            node.path()
        ))),
    }
}

/// Returns a flag for each descendant, which is set for the children in `indices`.
fn children_of(node: EncodedNode<'_>, indices: &[usize]) -> Vec<bool> {
    let mut decoded = vec![false; node.end() - node.index() - 1];
    for child in node.children().enumerate().filter(|(i, _)| indices.contains(i)).map(|(_, child)| child) {
        if let Some(flag) = decoded.get_mut(child.index() - node.index() - 1) {
            *flag = true;
        }
    }
    decoded
}

/// Returns the plugin that decodes the encoding `id`: the first plugin that lists the id. A linear
/// search is faster than building a table, because few plugins have encodings.
pub(super) fn plugin_for<'a>(plugins: &'a [Arc<Plugin>], id: &str) -> Option<&'a Arc<Plugin>> {
    plugins.iter().find(|plugin| plugin.encodings().iter().any(|known| known == id))
}

pub(super) fn unknown(node: EncodedNode<'_>, plugins: &[Arc<Plugin>]) -> ApiError {
    let mut ids: Vec<_> = plugins.iter().flat_map(|plugin| plugin.encodings()).map(String::as_str).collect();
    ids.sort_unstable();
    ids.dedup();
    let known = if ids.is_empty() { "none".to_string() } else { ids.join(", ") };
    ApiError::unsupported(format!(
        "{}: no plugin of the session decodes '{}'; its plugins decode: {known}",
        node.path(),
        node.encoding()
    ))
}

/// The machine's memory, which bounds declared sizes if there is no budget.
pub(super) fn machine_bytes() -> u64 {
    // Cached: asking the system takes as long as planning a node.
    static BYTES: AtomicU64 = AtomicU64::new(0);
    if BYTES.load(Ordering::Relaxed) == 0 {
        let bytes = physical_memory_bytes();
        BYTES.store(if bytes == 0 { u64::MAX } else { bytes }, Ordering::Relaxed);
    }
    BYTES.load(Ordering::Relaxed)
}
