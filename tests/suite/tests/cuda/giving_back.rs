//! When what strangers have seen goes back to the driver: who allocates or releases next gives it back, and nobody waits.

use std::io::Write;

use super::setting;

/// So many blocks are enough for a query that is behind.
const BLOCKS: usize = 100;

#[test]
fn what_was_lent_goes_back_with_the_next_allocation_or_release_after_its_last_use() {
    const TEST: &str = "what_was_lent_goes_back_with_the_next";
    let Some((stranger, host, session)) = setting(TEST) else { return };
    let freed = || stranger.calls("cuMemFree_v2");
    if freed().is_none() || !stranger.records_whole_contexts() {
        // Under an older driver it is the reaper that gives it back.
        let why = "only the simulated driver counts its calls, and it must have cuCtxRecordEvent";
        return std::io::stderr().write_all(format!("skipped: {TEST}: {why}\n").as_bytes()).unwrap();
    }
    let (stream, memory) = (session.stream(), session.memory());
    let alloc = || memory.alloc(stream, 64).unwrap();
    let lend = || {
        let buffer = alloc().freeze(stream).unwrap();
        buffer.mark_lent();
    };
    host.backend().settle();

    let before = freed();
    lend();
    assert_eq!(freed(), before, "nothing has been looked for yet");
    let watch = stranger.watch();
    let mut kept: Vec<_> = (0..BLOCKS).take_while(|_| freed() == before).map(|_| alloc()).collect();
    assert_eq!(freed(), before.map(|n| n + 1), "not by {} allocations", kept.len());

    kept.extend((0..BLOCKS).map(|_| alloc()));
    let before = freed();
    lend();
    while freed() == before && kept.pop().is_some() {}
    assert_eq!(freed(), before.map(|n| n + 1), "not by {BLOCKS} releases");
    watch.nobody_waited();

    let before = freed();
    lend();
    host.backend().settle();
    assert_eq!(freed(), before.map(|n| n + 1), "it was waited for");
    drop((kept, session));
    assert_eq!(host.settle(), []);
}
