//! Tests that a later allocation or release frees exported blocks, and that no thread waits for
//! them.

use std::io::Write;

use super::setup;

/// The maximum number of allocations or releases until a block is freed. Several may be necessary,
/// because some event queries return "not ready".
const MAX_BLOCKS: usize = 100;

#[test]
fn exported_blocks_are_freed_by_a_later_allocation_or_release() {
    const TEST: &str = "exported_blocks_are_freed_by_a_later_allocation_or_release";
    let Some((external, host, session)) = setup(TEST) else { return };
    let freed = || external.calls("cuMemFree_v2");
    if freed().is_none() || !external.records_whole_contexts() {
        // With an older driver, which lacks cuCtxRecordEvent, the reaper frees exported blocks.
        let why = "only the simulated driver counts its calls, and it must have cuCtxRecordEvent";
        return std::io::stderr().write_all(format!("skipped: {TEST}: {why}\n").as_bytes()).unwrap();
    }
    let (stream, memory) = (session.stream(), session.memory());
    let alloc = || memory.alloc(stream, 64).unwrap();
    let export = || {
        let buffer = alloc().freeze(stream).unwrap();
        buffer.mark_exported();
    };
    host.backend().settle();

    let before = freed();
    export();
    assert_eq!(freed(), before, "no query has happened yet");
    let watch = external.watch();
    let mut live: Vec<_> = (0..MAX_BLOCKS).take_while(|_| freed() == before).map(|_| alloc()).collect();
    assert_eq!(freed(), before.map(|n| n + 1), "the block is not freed by {} allocations", live.len());

    live.extend((0..MAX_BLOCKS).map(|_| alloc()));
    let before = freed();
    export();
    while freed() == before && live.pop().is_some() {}
    assert_eq!(freed(), before.map(|n| n + 1), "the block is not freed by {MAX_BLOCKS} releases");
    watch.assert_host_did_not_wait();

    let before = freed();
    export();
    host.backend().settle();
    assert_eq!(freed(), before.map(|n| n + 1), "settle waits for the block");
    drop((live, session));
    assert_eq!(host.settle(), []);
}
