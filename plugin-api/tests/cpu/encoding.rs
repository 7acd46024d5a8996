//! Encodings of a plugin that is linked in, called through the C structs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::{
    Call, CallSettings, Code, DecodePlan, Device, EncodedArray, EncodedNode, Encoding, Error, Host, Instance,
    LogicalType, NodeParts, Operator, Owned, Plugin, Result, abi, entry,
};

use crate::boundary::{CountingHost, counting_host};
use crate::common::batch;

/// Does what the first byte of a node's metadata says.
struct Obedient;

/// Whether it is decoded where it is wanted.
const THERE: u8 = 1;
/// Or on a device that nobody asked for.
const ELSEWHERE: u8 = 2;
/// Everything fails.
const BAD: u8 = 3;

fn wish(node: EncodedNode<'_>) -> Result<u8> {
    match node.metadata().first() {
        Some(&BAD) => Err(node.wrong("it is bad")),
        first => Ok(first.copied().unwrap_or(0)),
    }
}

impl Plugin for Obedient {
    fn create(_: Host) -> Result<Self> {
        Ok(Self)
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Obedient {
    fn ids(&self) -> &[&'static str] {
        &["obedient.a", "obedient.b"]
    }

    fn check(&self, node: EncodedNode<'_>) -> Result<()> {
        wish(node).map(drop)
    }

    fn size(&self, node: EncodedNode<'_>) -> Result<Option<u64>> {
        let bytes = 8 * node.length();
        Ok((wish(node)? == THERE).then_some(bytes))
    }

    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let program = vec![Operator::Sequence { base: 7, step: 2 }, Operator::Add(node.index() as u64)];
        Ok((wish(node)? == THERE).then_some(program))
    }

    fn plan(&self, node: EncodedNode<'_>, wanted: Device) -> Result<DecodePlan> {
        let device = match wish(node)? {
            THERE => wanted,
            ELSEWHERE => Device::cuda(7),
            _ => Device::CPU,
        };
        Ok(DecodePlan { device, ..DecodePlan::of_children(node) })
    }

    fn decode(
        &self,
        _: &Call<'_>,
        node: EncodedNode<'_>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        wish(node)?;
        let there = below.into_iter().flatten().next();
        there.ok_or_else(|| Error::bad_data("nothing below it was decoded"))
    }
}

fn instance(host: &CountingHost) -> Instance {
    static ENTRY: abi::PluginEntry = entry::<Obedient>();
    // SAFETY: the entry is linked in; every test drops its instance before its host.
    unsafe { Instance::create(&ENTRY, host.raw()) }.unwrap()
}

/// A root with two children, the first of which has one of its own; each node has this metadata.
fn tree(metadata: &[u8]) -> EncodedArray {
    let node = |n_children| NodeParts {
        encoding: "obedient.a".into(),
        logical_type: LogicalType::Dtype(vec![1]),
        length: 5,
        metadata: metadata.to_vec(),
        n_buffers: 0,
        n_children,
    };
    EncodedArray::new([2, 1, 0, 0].map(node).into(), Vec::new()).unwrap()
}

#[test]
fn what_an_encoding_says_of_a_node_arrives() {
    let host = counting_host();
    let instance = instance(&host);
    let encoding = instance.encoding().unwrap();
    assert_eq!(encoding.ids().unwrap(), ["obedient.a", "obedient.b"]);
    assert!(encoding.decodes());
    let (plain, there, bad) = (tree(&[]), tree(&[THERE]), tree(&[BAD]));
    encoding.check(&plain, 0).unwrap();
    assert_eq!(encoding.size(&plain, 0).unwrap(), None);
    assert_eq!(encoding.size(&there, 3).unwrap(), Some(40));
    assert_eq!(encoding.lower(&plain, 0).unwrap(), None);
    let program = vec![Operator::Sequence { base: 7, step: 2 }, Operator::Add(3)];
    assert_eq!(encoding.lower(&there, 3).unwrap(), Some(program));
    let error = encoding.check(&bad, 2).unwrap_err();
    assert_eq!(error.code(), Code::BAD_DATA);
    assert!(error.message().contains("it is bad"), "{error}");
    assert!(encoding.size(&bad, 0).is_err());
    assert!(encoding.lower(&bad, 0).is_err());
    assert!(encoding.plan(&bad, 0, Device::CPU).is_err());
}

#[test]
fn a_node_is_decoded_where_it_is_wanted_or_on_the_cpu_and_nowhere_else() {
    let host = counting_host();
    let instance = instance(&host);
    let encoding = instance.encoding().unwrap();
    let plan = |metadata: &[u8], node, wanted| {
        let plan = encoding.plan(&tree(metadata), node, wanted)?;
        Ok::<_, Error>((plan.device, plan.decoded))
    };
    let below_root = vec![true, false, true];
    for wanted in [Device::CPU, Device::cuda(0)] {
        assert_eq!(plan(&[], 0, wanted).unwrap(), (Device::CPU, below_root.clone()));
        assert_eq!(plan(&[THERE], 0, wanted).unwrap(), (wanted, below_root.clone()));
        assert_eq!(plan(&[THERE], 1, wanted).unwrap(), (wanted, vec![true]));
        assert_eq!(plan(&[THERE], 2, wanted).unwrap(), (wanted, vec![]));
        let error = plan(&[ELSEWHERE], 0, wanted).unwrap_err();
        let expected = format!("a node that is wanted on {wanted} would be decoded on cuda:7");
        assert_eq!((error.code(), error.message()), (Code::INTERNAL, expected.as_str()));
    }
    assert_eq!(plan(&[ELSEWHERE], 0, Device::cuda(7)).unwrap().0, Device::cuda(7));
}

#[test]
fn what_was_decoded_below_a_node_is_handed_over_and_released_once() {
    let host = counting_host();
    let instance = instance(&host);
    let encoding = instance.encoding().unwrap();
    let call = CallSettings::new(Device::CPU);
    let released = Arc::new(AtomicUsize::new(0));
    let below = || vec![None, Some(batch(&released)), Some(batch(&released))];
    let decoded = encoding.decode(&call, &tree(&[]), 0, below()).unwrap();
    assert_eq!(released.load(Ordering::SeqCst), 1, "the other one is the answer");
    drop(decoded);
    assert_eq!(released.load(Ordering::SeqCst), 2);
    let error = encoding.decode(&call, &tree(&[BAD]), 0, below()).err().unwrap();
    assert!(error.message().contains("it is bad"), "{error}");
    assert_eq!(released.load(Ordering::SeqCst), 4);
    let error = encoding.decode(&call, &tree(&[]), 2, Vec::new()).err().unwrap();
    assert!(error.message().contains("nothing below it"), "{error}");
}
