//! Exports `ArrowSchema`. All nodes and strings of a schema are in one arena, which is freed when
//! the last node is released.

use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use arrow_schema::{DataType, Field, Metadata, Schema};
use crossdock_plugin_api::{Error, Owned, Result, abi};

use super::metadata;
use crate::MAX_DEPTH;
use crate::layout::{format_of, layout};
use crate::metadata::{field_pairs, of_dictionary_values};

/// Exports a schema as an `ArrowSchema` of a struct type.
pub fn export_schema(schema: &Schema) -> Result<Owned<abi::ArrowSchema>> {
    let root = DataType::Struct(schema.fields().clone());
    export("", &root, &schema.metadata, 0)
}

/// Exports one field.
pub fn export_field(field: &Field) -> Result<Owned<abi::ArrowSchema>> {
    export(field.name(), field.data_type(), field.metadata(), flags(field))
}

struct Arena {
    /// Number of nodes that are not released yet.
    alive: AtomicUsize,
    nodes: Vec<abi::ArrowSchema>,
    lists: Vec<Vec<*mut abi::ArrowSchema>>,
    texts: Vec<CString>,
    blobs: Vec<Vec<u8>>,
}

fn export(
    name: &str,
    data_type: &DataType,
    metadata: &Metadata,
    flags: i64,
) -> Result<Owned<abi::ArrowSchema>> {
    let below = count(data_type, 1)?;
    let mut arena = Box::new(Arena {
        alive: AtomicUsize::new(0),
        nodes: Vec::with_capacity(below),
        lists: Vec::new(),
        texts: Vec::with_capacity(2 * (below + 1)),
        blobs: Vec::new(),
    });
    // Nodes refer to each other by address, so the vector must not grow. Its capacity is the result
    // of `count`.
    let mut root = arena.node(name, data_type, metadata, flags)?;
    arena.alive = AtomicUsize::new(arena.nodes.len() + 1);
    let raw = Box::into_raw(arena);
    root.private_data = raw.cast();
    // SAFETY: `raw` comes from `Box::into_raw`, and no other code has a pointer to it yet.
    for node in unsafe { &mut (*raw).nodes } {
        node.private_data = raw.cast();
    }
    // SAFETY: all fields of the struct are set, and its release frees the arena.
    Ok(unsafe { Owned::new(root) })
}

/// Counts all descendants of the root.
fn count(data_type: &DataType, depth: usize) -> Result<usize> {
    if depth > MAX_DEPTH + 1 {
        return Err(Error::unsupported(format!("a schema nests deeper than {MAX_DEPTH} levels")));
    }
    let layout = layout(data_type);
    let below = layout.children.iter().map(|field| field.data_type());
    let below = below.chain(layout.dictionary.map(|(_, values)| values));
    below.map(|child| Ok(1 + count(child, depth + 1)?)).sum()
}

fn flags(field: &Field) -> i64 {
    let nullable = if field.is_nullable() { abi::FLAG_NULLABLE } else { 0 };
    let ordered = if field.dict_is_ordered() == Some(true) { abi::FLAG_DICTIONARY_ORDERED } else { 0 };
    nullable | ordered
}

impl Arena {
    fn node(
        &mut self,
        name: &str,
        data_type: &DataType,
        metadata: &Metadata,
        flags: i64,
    ) -> Result<abi::ArrowSchema> {
        let sorted = if matches!(data_type, DataType::Map(_, true)) { abi::FLAG_MAP_KEYS_SORTED } else { 0 };
        let layout = layout(data_type);
        let mut node = abi::ArrowSchema {
            format: self.text(&format_of(data_type)?, "format")?,
            name: self.text(name, "name")?,
            flags: flags | sorted,
            release: Some(release),
            ..Default::default()
        };
        let pairs = field_pairs(data_type, metadata);
        if !pairs.is_empty() {
            let blob = metadata::write(&pairs)?;
            node.metadata = blob.as_ptr().cast();
            self.blobs.push(blob);
        }
        let mut list = Vec::with_capacity(layout.children.len());
        for field in layout.children.iter() {
            let child = self.node(field.name(), field.data_type(), field.metadata(), self::flags(field))?;
            list.push(self.push(child));
        }
        if !list.is_empty() {
            node.n_children = list.len() as i64;
            node.children = list.as_mut_ptr();
            self.lists.push(list);
        }
        if let Some((_, values)) = layout.dictionary {
            let child = self.node("", values, &of_dictionary_values(metadata), abi::FLAG_NULLABLE)?;
            node.dictionary = self.push(child);
        }
        Ok(node)
    }

    fn push(&mut self, node: abi::ArrowSchema) -> *mut abi::ArrowSchema {
        let i = self.nodes.len();
        self.nodes.push(node);
        self.nodes.as_mut_ptr().wrapping_add(i)
    }

    fn text(&mut self, text: &str, what: &str) -> Result<*const c_char> {
        if text.is_empty() {
            return Ok(c"".as_ptr());
        }
        let text = CString::new(text).map_err(|_| {
            Error::unsupported(format!(
                "the {what} '{}' contains a NUL character, which a C string cannot hold",
                crate::layout::shown(text)
            ))
        })?;
        let p = text.as_ptr();
        self.texts.push(text);
        Ok(p)
    }
}

unsafe extern "C" fn release(schema: *mut abi::ArrowSchema) {
    if schema.is_null() {
        return;
    }
    // SAFETY: the consumer passes an exported node, possibly moved, and does not use it again.
    // `export` set its `private_data` to the arena, which is freed only after its last node is
    // released.
    unsafe {
        if (*schema).release.is_none() {
            return;
        }
        let arena = (*schema).private_data.cast::<Arena>();
        let n = release_tree(schema);
        if (*arena).alive.fetch_sub(n, Ordering::Release) == n {
            fence(Ordering::Acquire);
            drop(Box::from_raw(arena));
        }
    }
}

/// Marks a node and all its unreleased descendants as released. Returns the number of nodes that it
/// marked.
///
/// # Safety
/// `node` is an unreleased node of an arena that is not freed.
unsafe fn release_tree(node: *mut abi::ArrowSchema) -> usize {
    let mut n = 1;
    // SAFETY: `Arena::node` created the node's lists in the arena, which the caller keeps alive.
    // `count` limited the depth of the recursion.
    unsafe {
        (*node).release = None;
        let children = (0..(*node).n_children as usize).map(|i| *(*node).children.add(i));
        for child in children.chain([(*node).dictionary]) {
            if !child.is_null() && (*child).release.is_some() {
                n += release_tree(child);
            }
        }
    }
    n
}
