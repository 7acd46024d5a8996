//! Tests that the host waits for the checks of all nodes of an array together.

use arrow_array::{Array, Int64Array};
use arrow_schema::DataType;
use crossdock::api::Device;
use crossdock::{Session, Table};
use crossdock_tests::tree::Node;

use super::{setup, skip};

const ROWS: u32 = 3000;

/// A run-end encoded node with three runs.
fn runs(len: u32, ends: [u32; 3], values: Node) -> Node {
    Node {
        // The metadata: three run ends of 4 bytes each.
        metadata: vec![0x08, 2, 0x10, 3],
        children: vec![Node::words(DataType::UInt32, &ends, u32::to_le_bytes), values],
        ..Node::new("vortex.runend", DataType::Int64, len.into())
    }
}

/// Runs whose values are runs, whose values are runs: each level is checked.
fn nested(inner: [u32; 3], outer: [u32; 3]) -> Node {
    let values = Node::words(DataType::Int64, &[1i64, -1, i64::MAX], i64::to_le_bytes);
    runs(ROWS, outer, runs(3, inner, runs(3, [1, 2, 3], values)))
}

fn decode(session: &Session, node: &Node) -> crossdock::Result<Table> {
    let batch = session.decode(node.tree(session, session.device()))?;
    Table::from_batches(session, batch.schema().clone(), vec![batch])
}

#[test]
fn all_kernels_are_launched_before_the_host_waits_for_checks() {
    const TEST: &str = "all_kernels_are_launched_before_the_host_waits_for_checks";
    let Some((external, host, session)) = setup(TEST) else { return };
    let Some(before) = external.calls("cuLaunchKernel") else {
        return skip(TEST, "only the simulated driver counts its calls");
    };
    let tree = nested([1, 2, 3], [1, 1500, ROWS]);
    let table = decode(&session, &tree).unwrap();
    let launched = external.calls("cuLaunchKernel").unwrap() - before;

    let batch = table.to_record_batches().unwrap().remove(0);
    let values: &Int64Array = batch.column(0).as_any().downcast_ref().unwrap();
    assert_eq!((values.len(), values.value(0), values.value(1499)), (3000, 1, -1));
    assert_eq!((values.value(1500), values.value(2999)), (i64::MAX, i64::MAX));

    // CUDA_ERROR_UNKNOWN
    external.fail_next("cuEventSynchronize", 999);
    let before = external.calls("cuLaunchKernel").unwrap();
    let error = decode(&session, &tree).map(drop).unwrap_err().one_line();
    assert!(error.contains("cuEventSynchronize"), "{error}");
    assert_eq!(external.calls("cuLaunchKernel"), Some(before + launched));
    drop((batch, table, session));
    assert_eq!(host.settle(), []);
}

#[test]
fn error_names_the_innermost_node_with_a_failed_check() {
    let Some((_external, host, session)) = setup("error_names_the_innermost_node_with_a_failed_check") else {
        return;
    };
    assert_ne!(session.device(), Device::CPU);
    for (tree, path) in [
        (nested([1, 0, 3], [1, 1500, ROWS]), "vortex.runend[1]/vortex.runend: "),
        (nested([1, 0, 3], [1, 1500, 7]), "vortex.runend[1]/vortex.runend: "),
        (nested([1, 2, 3], [1, 1500, 7]), "encodings 0.2.0: vortex.runend: "),
    ] {
        let error = decode(&session, &tree).map(drop).unwrap_err().one_line();
        assert!(error.contains(path) && error.contains("expected ascending ends"), "{error}");
    }
    drop(session);
    assert_eq!(host.settle(), []);
}
