//! Calls the encodings of a statically linked plugin through the C structs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::{
    Call, CallSettings, ChildType, Code, DecodePlan, Device, EncodedArray, EncodedNode, Encoding, Error,
    Host, Instance, LogicalType, NodeParts, Operator, Owned, Plugin, Result, abi, entry,
};

use crate::boundary::{CountingHost, counting_host};
use crate::common::batch;

/// A plugin whose behaviour is selected by the first byte of a node's metadata. By default, it
/// decodes on the CPU, declares no size and has no programs.
struct Scripted;

/// Selects a plugin that decodes on the target device, declares the size and has a program.
const ON_TARGET: u8 = 1;
/// Selects a plugin that plans to decode on a device that is neither the target nor the CPU.
const ON_THIRD_DEVICE: u8 = 2;
/// Selects a plugin whose functions all return an error.
const FAILS: u8 = 3;
/// Selects a plugin that plans to return the rows from 1 on, and no rows of its descendants.
const LATER_ROWS: u8 = 4;
/// Selects a plugin that plans to return more rows than the node has.
const MORE_ROWS: u8 = 5;
/// Selects a plugin that requests more rows of a descendant than it has.
const MORE_ROWS_BELOW: u8 = 6;

/// Selects a plugin that derives the type of one child, whatever the number of children is.
const ONE_CHILD: u8 = 7;

/// All rows of a node.
const ALL: Range<u64> = 0..5;

fn behaviour(node: EncodedNode<'_>) -> Result<u8> {
    match node.metadata().first() {
        Some(&FAILS) => Err(node.wrong("an injected error")),
        first => Ok(first.copied().unwrap_or(0)),
    }
}

impl Plugin for Scripted {
    fn create(_: Host) -> Result<Self> {
        Ok(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Scripted {
    fn ids(&self) -> &[&'static str] {
        &["scripted.a", "scripted.b"]
    }

    fn check(&self, node: EncodedNode<'_>) -> Result<()> {
        behaviour(node).map(drop)
    }

    fn children(&self, node: EncodedNode<'_>) -> Result<Vec<ChildType>> {
        let n = match behaviour(node)? {
            ONE_CHILD => 1,
            _ => node.n_children() as u64,
        };
        // The children and buffers of the node are not available.
        assert_eq!((node.children().count(), node.n_buffers(), node.index()), (0, 0, 0));
        Ok((0..n)
            .map(|i| ChildType { schema: int32(), length: (i > 0).then_some(node.length() + i) })
            .collect())
    }

    fn size(&self, node: EncodedNode<'_>, _: Range<u64>) -> Result<Option<u64>> {
        let bytes = 8 * node.length();
        Ok((behaviour(node)? == ON_TARGET).then_some(bytes))
    }

    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let program = vec![Operator::Sequence { base: 7, step: 2 }, Operator::Add(node.index() as u64)];
        Ok((behaviour(node)? == ON_TARGET).then_some(program))
    }

    fn plan(&self, node: EncodedNode<'_>, target: Device, _: Range<u64>) -> Result<DecodePlan> {
        let mut plan = DecodePlan::with_children_decoded(node);
        match behaviour(node)? {
            ON_TARGET => plan.device = target,
            ON_THIRD_DEVICE => plan.device = Device::cuda(7),
            LATER_ROWS => {
                plan.rows.start = 1;
                plan.rows_below.fill(2..2);
            }
            MORE_ROWS => plan.rows.end += 1,
            MORE_ROWS_BELOW => plan.rows_below.fill(4..6),
            _ => {}
        }
        Ok(plan)
    }

    fn decode(
        &self,
        _: &Call<'_>,
        node: EncodedNode<'_>,
        _: Range<u64>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        behaviour(node)?;
        let first = below.into_iter().flatten().next();
        first.ok_or_else(|| Error::bad_data("got no decoded node, expected one"))
    }
}

fn int32() -> Owned<abi::ArrowSchema> {
    unsafe extern "C" fn release(schema: *mut abi::ArrowSchema) {
        // SAFETY: the caller passes the schema. Its strings are constants.
        unsafe { (*schema).release = None };
    }
    let schema = abi::ArrowSchema {
        format: c"i".as_ptr(),
        name: c"".as_ptr(),
        release: Some(release),
        ..abi::ArrowSchema::default()
    };
    // SAFETY: there is no other copy of the schema.
    unsafe { Owned::new(schema) }
}

fn instance(host: &CountingHost) -> Instance {
    static ENTRY: abi::PluginEntry = entry::<Scripted>();
    // SAFETY: the entry is statically linked, and every test drops its instance before its host.
    unsafe { Instance::create(&ENTRY, host.raw()) }.unwrap()
}

/// Creates a root with two children. The first child has one child. All nodes have the given
/// metadata.
fn tree(metadata: &[u8]) -> EncodedArray {
    let node = |n_children| NodeParts {
        encoding: "scripted.a".into(),
        logical_type: LogicalType::Dtype(vec![1]),
        length: 5,
        metadata: metadata.to_vec(),
        n_buffers: 0,
        n_children,
    };
    EncodedArray::new([2, 1, 0, 0].map(node).into(), Vec::new()).unwrap()
}

#[test]
fn functions_return_the_results_of_the_plugin() {
    let host = counting_host();
    let instance = instance(&host);
    let encoding = instance.encoding().unwrap();
    assert_eq!(encoding.ids().unwrap(), ["scripted.a", "scripted.b"]);
    assert!(encoding.decodes());
    let (plain, on_target, fails) = (tree(&[]), tree(&[ON_TARGET]), tree(&[FAILS]));
    encoding.check(&plain, 0).unwrap();
    assert_eq!(encoding.size(&plain, 0, &ALL).unwrap(), None);
    assert_eq!(encoding.size(&on_target, 3, &ALL).unwrap(), Some(40));
    assert_eq!(encoding.lower(&plain, 0).unwrap(), None);
    let program = vec![Operator::Sequence { base: 7, step: 2 }, Operator::Add(3)];
    assert_eq!(encoding.lower(&on_target, 3).unwrap(), Some(program));
    let error = encoding.check(&fails, 2).unwrap_err();
    assert_eq!(error.code(), Code::BAD_DATA);
    assert!(error.message().contains("an injected error"), "{error}");
    assert!(encoding.size(&fails, 0, &ALL).is_err());
    assert!(encoding.lower(&fails, 0).is_err());
    assert!(encoding.plan(&fails, 0, Device::CPU, &ALL).is_err());
}

#[test]
fn children_are_derived_from_a_node_without_children_and_buffers() {
    let host = counting_host();
    let instance = instance(&host);
    let encoding = instance.encoding().unwrap();
    let derive = |metadata: &[u8], node| {
        let tree = tree(metadata);
        let children = encoding.children(tree.node(node).unwrap())?;
        assert!(children.iter().all(|child| child.schema.format == c"i".as_ptr()));
        Ok::<_, Error>(children.into_iter().map(|child| child.length).collect::<Vec<_>>())
    };
    assert_eq!(derive(&[], 0).unwrap(), [None, Some(6)]);
    assert_eq!(derive(&[], 1).unwrap(), [None]);
    assert_eq!(derive(&[], 2).unwrap(), []);
    assert_eq!(derive(&[FAILS], 0).unwrap_err().code(), Code::BAD_DATA);
    let error = derive(&[ONE_CHILD], 0).unwrap_err();
    assert!(error.message().contains("got 1 types of children, expected 2"), "{error}");
}

#[test]
fn rejects_plans_for_devices_that_are_not_target_or_cpu() {
    let host = counting_host();
    let instance = instance(&host);
    let encoding = instance.encoding().unwrap();
    let plan = |metadata: &[u8], node, target| {
        let plan = encoding.plan(&tree(metadata), node, target, &ALL)?;
        Ok::<_, Error>((plan.device, plan.decoded))
    };
    let below_root = vec![true, false, true];
    for target in [Device::CPU, Device::cuda(0)] {
        assert_eq!(plan(&[], 0, target).unwrap(), (Device::CPU, below_root.clone()));
        assert_eq!(plan(&[ON_TARGET], 0, target).unwrap(), (target, below_root.clone()));
        assert_eq!(plan(&[ON_TARGET], 1, target).unwrap(), (target, vec![true]));
        assert_eq!(plan(&[ON_TARGET], 2, target).unwrap(), (target, vec![]));
        let error = plan(&[ON_THIRD_DEVICE], 0, target).unwrap_err();
        let expected = format!("plan: got cuda:7 as the device for decoding, expected {target} or cpu");
        assert_eq!((error.code(), error.message()), (Code::INTERNAL, expected.as_str()));
    }
    assert_eq!(plan(&[ON_THIRD_DEVICE], 0, Device::cuda(7)).unwrap().0, Device::cuda(7));
}

#[test]
fn rejects_plans_whose_rows_lack_wanted_rows_or_do_not_exist() {
    let host = counting_host();
    let instance = instance(&host);
    let encoding = instance.encoding().unwrap();
    let plan = |behaviour: u8, rows: Range<u64>| encoding.plan(&tree(&[behaviour]), 0, Device::CPU, &rows);
    let later = plan(LATER_ROWS, 1..3).unwrap();
    assert_eq!((later.rows, later.rows_below), (1..5, vec![2..2; 3]));
    assert_eq!(plan(LATER_ROWS, 0..0).unwrap().rows, 1..5, "an empty range needs no row");
    for (behaviour, rows, expected) in [
        (LATER_ROWS, 0..2, "got rows 1..5 of 5, expected a range that includes 0..2"),
        (MORE_ROWS, 0..5, "got rows 0..6 of 5"),
        (MORE_ROWS_BELOW, 0..5, "scripted.a: plan: got rows 4..6, expected a range of the node's 5 rows"),
    ] {
        let error = plan(behaviour, rows).unwrap_err();
        assert!(error.message().contains(expected), "{error}");
    }
}

#[test]
fn decode_takes_ownership_of_all_decoded_descendants() {
    let host = counting_host();
    let instance = instance(&host);
    let encoding = instance.encoding().unwrap();
    let call = CallSettings::new(Device::CPU);
    let released = Arc::new(AtomicUsize::new(0));
    let below = || vec![None, Some(batch(&released)), Some(batch(&released))];
    let decoded = encoding.decode(&call, &tree(&[]), 0, &ALL, below()).unwrap();
    assert_eq!(released.load(Ordering::SeqCst), 1, "the first batch is the result");
    drop(decoded);
    assert_eq!(released.load(Ordering::SeqCst), 2);
    let error = encoding.decode(&call, &tree(&[FAILS]), 0, &ALL, below()).err().unwrap();
    assert!(error.message().contains("an injected error"), "{error}");
    assert_eq!(released.load(Ordering::SeqCst), 4);
    let error = encoding.decode(&call, &tree(&[]), 2, &ALL, Vec::new()).err().unwrap();
    assert!(error.message().contains("got no decoded node"), "{error}");
}
