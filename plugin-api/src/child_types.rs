//! The types of the children of nodes, as the plugins of the encodings derive them.

use crate::abi;
use crate::encoded::{EncodedNode, MAX_NODES};
use crate::error::{Error, Result};
use crate::owned::Owned;

/// The type and the length of a child of a node, as far as they follow from the node.
pub struct ChildType {
    /// The logical type.
    pub schema: Owned<abi::ArrowSchema>,
    /// The number of values; `None` if it does not follow from the node.
    pub length: Option<u64>,
}

/// Calls a function that derives the types of a node's children.
pub(crate) fn derive(
    node: EncodedNode<'_>,
    f: impl FnOnce(*const abi::EncodedNode, *mut abi::ArrowSchema, *mut u64, *mut abi::Error) -> abi::Code,
) -> Result<Vec<ChildType>> {
    let raw = node.alone();
    let n = node.n_children();
    if n > MAX_NODES {
        return Err(Error::bad_data(format!(
            "{}: the node has {n} children, expected at most {MAX_NODES}",
            node.encoding()
        )));
    }
    // SAFETY: a released schema owns nothing, so it may have any owner.
    let released = || unsafe { Owned::new(abi::ArrowSchema::default()) };
    let mut schemas: Vec<_> = (0..n).map(|_| released()).collect();
    let mut lengths = vec![abi::LENGTH_UNKNOWN; n];
    // `Owned<ArrowSchema>` has the layout of `ArrowSchema`.
    let list = schemas.as_mut_ptr().cast::<abi::ArrowSchema>();
    Error::check(|err| f(&raw, list, lengths.as_mut_ptr(), err))?;
    if let Some(i) = schemas.iter().position(Owned::is_released) {
        return Err(Error::internal(format!(
            "{}: `children` succeeded, but returned no type for child {i} of {n}",
            node.encoding()
        )));
    }
    let length = |length: u64| (length != abi::LENGTH_UNKNOWN).then_some(length);
    let pairs = schemas.into_iter().zip(lengths);
    Ok(pairs.map(|(schema, n)| ChildType { schema, length: length(n) }).collect())
}

/// Implements the function `children` of an interface: writes the result of `derive` to the lists.
///
/// # Safety
/// `node` is null or points to a valid node. `schemas` and `lengths` are null or have an element
/// for each child of the node.
pub unsafe fn write_children(
    node: *const abi::EncodedNode,
    schemas: *mut abi::ArrowSchema,
    lengths: *mut u64,
    derive: impl FnOnce(EncodedNode<'_>) -> Result<Vec<ChildType>>,
) -> Result<()> {
    // SAFETY: the caller guarantees that the node is null or valid.
    let (children, n) = unsafe {
        EncodedNode::with_alone(node, |node| {
            let children = derive(node)?;
            let n = node.n_children();
            if children.len() != n {
                return Err(
                    node.wrong(format_args!("got {} types of children, expected {n}", children.len()))
                );
            }
            Ok((children, n))
        })
    }?;
    if n > 0 && (schemas.is_null() || lengths.is_null()) {
        return Err(Error::invalid_argument("children: a list is NULL"));
    }
    for (i, child) in children.into_iter().enumerate() {
        // SAFETY: the caller guarantees that the lists have `n` elements. The header requires that
        // the schemas are released structs, which own nothing.
        unsafe {
            schemas.add(i).write(child.schema.into_raw());
            lengths.add(i).write(child.length.unwrap_or(abi::LENGTH_UNKNOWN));
        }
    }
    Ok(())
}
