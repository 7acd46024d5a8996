//! Describes the nodes of an encoded array, for `crossdock inspect`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crossdock::api::encoded::blob;
use crossdock::api::{CancelFlag, Device, EncodedArray, EncodedNode, Result as ApiResult};
use crossdock::source::Input;
use crossdock::{Error, NodePlan, Plugin, Result, Session, one_line};
use crossdock_arrays::field_type_name;
use serde_json::{Value, json};

use super::{options, text};

/// The maximum number of bytes of a node's metadata that the text shows.
const MAX_METADATA_BYTES: usize = 16;
/// The maximum number of characters of a type that the text shows.
const MAX_TYPE_CHARACTERS: usize = 100;

/// The description of a node.
struct NodeInfo {
    /// The number of ancestors.
    depth: usize,
    encoding: String,
    data_type: Type,
    length: u64,
    metadata: Vec<u8>,
    buffers: Vec<BufferInfo>,
    n_children: usize,
    /// The plugin that decodes the node.
    plugin: Option<String>,
    /// How the node would be decoded; `None` if the command names no device.
    plan: Option<NodePlan>,
}

struct BufferInfo {
    bytes: u64,
    alignment: u64,
}

/// The text of a type and whether the type is nullable, or the reason why the type is unknown.
type Type = std::result::Result<(String, bool), String>;

/// Describes the encoded array in a file, as text or JSON. If `device` is set, the description
/// includes how the array would be decoded for this device.
pub fn of_file(
    path: &Path,
    plugins: &options::PluginArgs,
    device: Option<Device>,
    as_json: bool,
) -> Result<String> {
    let session = plugins.host(plugins.policy()?).build_lenient().session().open()?;
    let input = Input::open(path, &CancelFlag::new())?;
    let array = session.read_encoded(&input)?;
    let failed = |error| Error::Data { what: format!("cannot inspect '{}'", input.name()), source: error };
    let mut nodes = node_infos(&session, &array).map_err(failed)?;
    if let Some(device) = device {
        let plans = session.plan_decoding(&session.with_arrow_types(array)?, device)?;
        nodes.iter_mut().zip(plans).for_each(|(node, plan)| node.plan = Some(plan));
    }
    let bytes = input.shared().len().unwrap_or(0);
    Ok(if as_json { to_json(&nodes, bytes).to_string() } else { to_text(&nodes, bytes) })
}

fn node_infos(session: &Session, array: &EncodedArray) -> ApiResult<Vec<NodeInfo>> {
    let encodings = session.encodings();
    let first = |(id, plugins): &(String, Vec<Arc<Plugin>>)| {
        plugins.first().map(|plugin| (id.clone(), plugin.name().to_owned()))
    };
    let decoders: HashMap<String, String> = encodings.iter().filter_map(first).collect();
    // The texts of types are cached, because a tree has many nodes but few distinct types.
    let mut types: HashMap<Vec<u8>, Type> = HashMap::new();
    // For each ancestor, the number of children that are not visited yet.
    let mut unvisited: Vec<usize> = Vec::new();
    let mut nodes = Vec::with_capacity(array.n_nodes());
    for index in 0..array.n_nodes() {
        let node = array.node(index)?;
        while unvisited.last() == Some(&0) {
            unvisited.pop();
        }
        if let Some(n_children) = unvisited.last_mut() {
            *n_children -= 1;
        }
        let data_type = match node.dtype() {
            Some(dtype) => match types.get(dtype) {
                Some(known) => known.clone(),
                None => types.entry(dtype.to_vec()).or_insert(type_of(session, node)).clone(),
            },
            None => type_of(session, node),
        };
        let buffer = |i| node.buffer(i).map(|b| BufferInfo { bytes: b.bytes, alignment: b.alignment });
        nodes.push(NodeInfo {
            depth: unvisited.len(),
            encoding: node.encoding().to_owned(),
            data_type,
            length: node.length(),
            metadata: node.metadata().to_vec(),
            buffers: (0..node.n_buffers()).map(buffer).collect::<ApiResult<_>>()?,
            n_children: node.n_children(),
            plugin: decoders.get(node.encoding()).cloned(),
            plan: None,
        });
        unvisited.push(node.n_children());
    }
    Ok(nodes)
}

fn type_of(session: &Session, node: EncodedNode<'_>) -> Type {
    let field = session.encoded_type(node).map_err(|error| error.one_line())?;
    Ok((field_type_name(&field), field.is_nullable()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn to_text(nodes: &[NodeInfo], bytes: u64) -> String {
    let has_plan = nodes.iter().any(|node| node.plan.is_some());
    let mut heading = vec!["node", "values", "metadata", "buffers", "decoded by", "type"];
    heading.extend(has_plan.then_some("where"));
    let rows: Vec<_> = nodes.iter().map(row).collect();
    let n_buffers: usize = nodes.iter().map(|node| node.buffers.len()).sum();
    let counted =
        |n: usize, of: &str| format!("{} {of}{}", text::count(n as u64), if n == 1 { "" } else { "s" });
    format!(
        "an encoded array, version {}: {}, {}, {}\n{}",
        blob::VERSION,
        counted(nodes.len(), "node"),
        counted(n_buffers, "buffer"),
        text::bytes(bytes),
        text::table(&heading, &rows, &["values"])
    )
}

fn row(node: &NodeInfo) -> Vec<String> {
    let metadata = match node.metadata.get(..MAX_METADATA_BYTES) {
        Some(first) if node.metadata.len() > MAX_METADATA_BYTES => {
            format!("{}... ({} B)", hex(first), node.metadata.len())
        }
        _ => hex(&node.metadata),
    };
    let buffers: Vec<_> = node.buffers.iter().map(|buffer| text::bytes(buffer.bytes)).collect();
    let data_type = match &node.data_type {
        Ok((text, nullable)) => {
            let first: String = text.chars().take(MAX_TYPE_CHARACTERS).collect();
            let ellipsis = if first.len() < text.len() { "..." } else { "" };
            format!("{first}{ellipsis}{}", if *nullable { ", nullable" } else { "" })
        }
        Err(why) => format!("? ({why})"),
    };
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let mut cells = vec![
        format!("{}{}", "  ".repeat(node.depth), one_line(&node.encoding)),
        text::count(node.length),
        or_none(metadata),
        or_none(buffers.join(", ")),
        node.plugin.clone().unwrap_or_else(|| "no plugin".to_owned()),
        one_line(&data_type),
    ];
    cells.extend(node.plan.map(|plan| plan.to_string()));
    cells
}

fn to_json(nodes: &[NodeInfo], bytes: u64) -> Value {
    let buffer = |buffer: &BufferInfo| json!({ "bytes": buffer.bytes, "alignment": buffer.alignment });
    let node = |node: &NodeInfo| {
        let known = node.data_type.as_ref().ok();
        json!({
            "depth": node.depth,
            "encoding": node.encoding,
            "type": known.map(|(text, _)| text),
            "nullable": known.map(|(_, nullable)| nullable),
            "type_error": node.data_type.as_ref().err(),
            "length": node.length,
            "metadata": hex(&node.metadata),
            "buffers": node.buffers.iter().map(buffer).collect::<Vec<_>>(),
            "children": node.n_children,
            "plugin": node.plugin,
            "plan": node.plan.map(|plan| plan.to_string()),
        })
    };
    json!({
        "encoded_array": blob::VERSION,
        "bytes": bytes,
        "nodes": nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_only_long_types_and_metadata() {
        let cells = |type_length: usize, metadata_length: usize| {
            row(&NodeInfo {
                depth: 1,
                encoding: "a.b".into(),
                data_type: Ok(("x".repeat(type_length), false)),
                length: 3,
                metadata: vec![0xab; metadata_length],
                buffers: Vec::new(),
                n_children: 0,
                plugin: None,
                plan: None,
            })
        };
        let (whole, hex) = ("x".repeat(MAX_TYPE_CHARACTERS), "ab".repeat(MAX_METADATA_BYTES));
        let shown = |type_length, metadata_length| {
            let cells = cells(type_length, metadata_length);
            (cells[2].clone(), cells[5].clone())
        };
        assert_eq!(shown(100, 16), (hex.clone(), whole.clone()));
        assert_eq!(shown(101, 17), (format!("{hex}... (17 B)"), format!("{whole}...")));
        assert_eq!(shown(5, 0), ("-".into(), "xxxxx".into()));
    }
}
