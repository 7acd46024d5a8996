//! Orders the planned nodes of an array.

use crossdock_plugin_api::{Device, EncodedArray, Error as ApiError, Result as ApiResult};

use super::plan::{By, ChildInput, Decoded, Step};

/// The order in which nodes are decoded.
pub(super) struct Schedule {
    /// Indices of nodes, and the rounds of the nodes. A node's round is later than those of the
    /// nodes that its decoder needs.
    nodes: Vec<(u32, usize)>,
}

impl Schedule {
    /// Schedules the nodes for the device `target`. On the CPU, each node has a round of its own,
    /// so that values are read soon after they are written. Other devices decode all nodes of a
    /// round at the same time, unless the results would exceed `max_bytes`.
    ///
    /// # Errors
    /// "Out of memory" if the decoded nodes need more than `max_bytes` at the same time.
    pub fn new(array: &EncodedArray, steps: &[Step<'_>], target: Device, max_bytes: u64) -> ApiResult<Self> {
        let scheduled =
            |index: &usize| matches!(steps.get(*index), Some(Step::Decoded(_) | Step::NotRead(_)));
        if target != Device::CPU {
            let levels = levels(array, steps)?;
            let nodes = (0..steps.len()).rev().filter(scheduled);
            let mut nodes: Vec<_> =
                nodes.map(|index| (levels.get(index).copied().unwrap_or_default(), index)).collect();
            nodes.sort_by_key(|(level, _)| *level);
            let schedule = Self { nodes };
            if schedule.peak_bytes(steps) <= max_bytes {
                return Ok(schedule);
            }
        }
        let nodes = (0..steps.len()).rev().filter(scheduled);
        let schedule = Self { nodes: (0..).zip(nodes).collect() };
        match schedule.peak_bytes(steps) {
            peak if peak <= max_bytes => Ok(schedule),
            peak => Err(ApiError::out_of_memory(format!(
                "{}: the nodes together need {peak} bytes, expected at most {max_bytes}, the memory limit or the machine's memory",
                array.root()?.path()
            ))),
        }
    }

    /// The nodes of each round.
    pub fn rounds(&self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        self.nodes.chunk_by(|(a, _), (b, _)| a == b).map(|round| round.iter().map(|(_, index)| *index))
    }

    /// The maximum number of bytes that decoded nodes occupy at the same time, computed from their
    /// declared sizes. Decoded children are released when their parent is decoded, unless the
    /// parent's result contains them.
    fn peak_bytes(&self, steps: &[Step<'_>]) -> u64 {
        let mut subtree_bytes = vec![0u64; steps.len()];
        let (mut live, mut peak) = (0u64, 0u64);
        for round in self.rounds() {
            let decoded = round.filter_map(|index| match steps.get(index) {
                Some(Step::Decoded(step)) => Some((index, step)),
                _ => None,
            });
            live = decoded.clone().map(|(_, step)| allocated_bytes(step)).fold(live, u64::saturating_add);
            peak = peak.max(live);
            for (index, step) in decoded {
                let children = decoded_children(index, step);
                let children = children.filter_map(|at| subtree_bytes.get_mut(at).map(std::mem::take));
                let children = children.fold(0, u64::saturating_add);
                let retained = if retains_children(step) { children } else { 0 };
                live = live.saturating_sub(children - retained);
                if let Some(subtree) = subtree_bytes.get_mut(index) {
                    *subtree = allocated_bytes(step).saturating_add(retained);
                }
            }
        }
        peak
    }
}

fn allocated_bytes(step: &Decoded<'_>) -> u64 {
    if matches!(step.by, By::ProgramAbove(_)) { 0 } else { step.bytes }
}

fn decoded_children(index: usize, step: &Decoded<'_>) -> impl Iterator<Item = usize> {
    let decoded = step.inputs.iter().zip(index + 1..);
    decoded.filter(|(input, _)| **input == ChildInput::Decoded).map(|(_, at)| at)
}

/// Whether a node's result may contain the memory of its decoded children.
fn retains_children(step: &Decoded<'_>) -> bool {
    let is_nested = step.schema.fields().iter().any(|field| field.data_type().is_nested());
    allocated_bytes(step) == 0 || is_nested
}

/// For each node: whether its values are released when one of its ancestors is decoded.
pub(super) fn temporary_nodes(steps: &[Step<'_>]) -> Vec<bool> {
    let mut temporary = vec![false; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        let Step::Decoded(step) = step else { continue };
        let is_copied = !retains_children(step)
            && match &step.by {
                By::Plugin(_) => true,
                By::Program(program) | By::ProgramAbove(program) => program.moves_words(),
            };
        let is_temporary = is_copied || temporary.get(index).copied().unwrap_or_default();
        for at in decoded_children(index, step) {
            if let Some(below) = temporary.get_mut(at) {
                *below = is_temporary;
            }
        }
    }
    temporary
}

/// For each node, the number of levels of nodes below it that are decoded before it.
fn levels(array: &EncodedArray, steps: &[Step<'_>]) -> ApiResult<Vec<u32>> {
    // While a level is not final, it is the maximum of the levels after the node's children.
    let mut levels = vec![0u32; steps.len()];
    let mut parents = vec![None; steps.len()];
    for index in 0..steps.len() {
        for child in array.node(index)?.children() {
            if let Some(parent) = parents.get_mut(child.index()) {
                *parent = Some(index);
            }
        }
    }
    for (index, step) in steps.iter().enumerate().rev() {
        let is_decoded = matches!(step, Step::Decoded(step) if !matches!(step.by, By::ProgramAbove(_)));
        let after = levels.get(index).copied().unwrap_or_default() + u32::from(is_decoded);
        let parent = parents.get(index).copied().flatten();
        if let Some(level) = parent.and_then(|parent| levels.get_mut(parent)) {
            *level = after.max(*level);
        }
    }
    Ok(levels)
}
