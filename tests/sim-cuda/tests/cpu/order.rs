//! Tests that programs with a mistake in the order of work are reported, and that the same programs
//! without the mistake are not reported.

use crate::common::*;

const BYTES: usize = 4096;

#[test]
fn reports_read_not_ordered_after_a_write_on_another_stream() {
    for waits in [true, false] {
        let gpu = Gpu::get();
        let (writer, reader) = (stream(), stream());
        let (from, to) = (alloc(BYTES, writer), alloc(BYTES, reader));
        order(writer, reader);
        fill(from, 1, BYTES, writer);
        if waits {
            order(writer, reader);
        }
        copy(to, from, BYTES, reader);
        if waits {
            assert_eq!(gpu.violations(), 0);
        } else {
            gpu.expect("read after write");
        }
        order(reader, writer);
        free(from, writer);
        free(to, reader);
    }
}

#[test]
fn reports_write_not_ordered_after_a_read_on_another_stream() {
    for waits in [true, false] {
        let gpu = Gpu::get();
        let (home, reader) = (stream(), stream());
        let (from, to) = (alloc(BYTES, home), alloc(BYTES, home));
        fill(from, 1, BYTES, home);
        order(home, reader);
        copy(to, from, BYTES, reader);
        if waits {
            order(reader, home);
        }
        fill(from, 2, BYTES, home);
        if waits {
            assert_eq!(gpu.violations(), 0);
        } else {
            gpu.expect("write after read");
        }
        order(reader, home);
        free(from, home);
        free(to, home);
    }
}

#[test]
fn reports_unordered_writes_only_if_they_overlap() {
    for overlap in [0, 1] {
        let gpu = Gpu::get();
        let (one, two) = (stream(), stream());
        let block = alloc(BYTES, one);
        order(one, two);
        fill(block, 1, BYTES / 2 + overlap, one);
        fill(block + BYTES as u64 / 2, 2, BYTES / 2, two);
        match overlap {
            0 => assert_eq!(gpu.violations(), 0),
            _ => gpu.expect("write after write"),
        }
        order(two, one);
        free(block, one);
    }
}

#[test]
fn reports_use_on_another_stream_that_is_not_ordered_after_the_allocation() {
    let gpu = Gpu::get();
    let (home, other) = (stream(), stream());
    let block = alloc(BYTES, home);
    fill(block, 1, BYTES, other);
    gpu.expect("use before allocation");
    order(other, home);
    free(block, home);
}

#[test]
fn reports_free_not_ordered_after_a_read() {
    let gpu = Gpu::get();
    let (home, reader) = (stream(), stream());
    let block = alloc(BYTES, home);
    let host = pinned(BYTES);
    fill(block, 1, BYTES, home);
    order(home, reader);
    copy(host as u64, block, BYTES, reader);
    free(block, home);
    gpu.expect("early free");
    sync(home);
    sync(reader);
    ok!(cuMemFreeHost(host));
}

#[test]
fn reports_use_after_a_queued_or_completed_free() {
    for runs in [true, false] {
        let gpu = Gpu::get();
        let home = stream();
        let block = alloc(BYTES, home);
        free(block, home);
        if runs {
            sync(home);
        }
        assert_eq!(code!(cuMemsetD8Async(block + 8, 0, 8, home)), 1);
        gpu.expect("use after free");
    }
}

#[test]
fn reports_double_free_after_a_queued_or_completed_free() {
    for runs in [true, false] {
        let gpu = Gpu::get();
        let home = stream();
        let block = alloc(BYTES, home);
        free(block, home);
        if runs {
            sync(home);
        }
        assert_eq!(code!(cuMemFreeAsync(block, home)), 1);
        gpu.expect("double free");
    }
}

/// How the host learns that the uses of a block have run.
#[derive(Clone, Copy, PartialEq)]
enum Knows {
    Nothing,
    /// The host synchronizes with the writer but not with the reader.
    OnlyWriter,
    Synchronized,
    Queried,
}

#[test]
fn reports_synchronous_free_of_pool_memory_before_all_its_uses_have_run() {
    for knows in [Knows::Nothing, Knows::OnlyWriter, Knows::Synchronized, Knows::Queried] {
        let gpu = Gpu::get();
        let (home, reader) = (stream(), stream());
        let (block, host) = (alloc(BYTES, home), pinned(BYTES));
        fill(block, 7, BYTES, home);
        order(home, reader);
        copy(host as u64, block, BYTES, reader);
        let used = event();
        ok!(cuEventRecord(used, reader));
        match knows {
            Knows::Nothing => {}
            Knows::OnlyWriter => sync(home),
            Knows::Synchronized => ok!(cuEventSynchronize(used)),
            Knows::Queried => while code!(cuEventQuery(used)) != 0 {},
        }
        ok!(cuMemFree_v2(block));
        if matches!(knows, Knows::Nothing | Knows::OnlyWriter) {
            gpu.expect("early free");
        } else {
            assert_eq!(gpu.violations(), 0);
            // SAFETY: the pinned memory has `BYTES` bytes, and the host has waited for its writer.
            assert_eq!(unsafe { std::slice::from_raw_parts(host, BYTES) }, [7; BYTES]);
        }
        sync(reader);
        ok!(cuMemFreeHost(host));
        ok!(cuEventDestroy_v2(used));
    }
}

#[test]
fn reports_use_and_free_after_a_synchronous_free() {
    type Mistake = fn(u64, Handle) -> i32;
    let mistakes: [(Mistake, &str); 3] = [
        (|block, home| code!(cuMemsetD8Async(block, 0, 8, home)), "use after free"),
        (|block, _| code!(cuMemFree_v2(block)), "double free"),
        (|block, home| code!(cuMemFreeAsync(block, home)), "double free"),
    ];
    for (mistake, name) in mistakes {
        let gpu = Gpu::get();
        let home = stream();
        let block = alloc(BYTES, home);
        sync(home);
        ok!(cuMemFree_v2(block));
        assert_eq!(gpu.violations(), 0);
        assert_eq!(mistake(block, home), 1);
        gpu.expect(name);
    }
}

#[test]
fn reports_synchronous_free_after_a_queued_free() {
    let gpu = Gpu::get();
    let home = stream();
    let block = alloc(BYTES, home);
    sync(home);
    free(block, home);
    assert_eq!(code!(cuMemFree_v2(block)), 1);
    gpu.expect("double free");
}

#[test]
fn reports_double_free_of_cumemalloc_memory() {
    let gpu = Gpu::get();
    let mut block = 0;
    ok!(cuMemAlloc_v2(&mut block, BYTES));
    ok!(cuMemFree_v2(block));
    assert_eq!(code!(cuMemFree_v2(block)), 1);
    gpu.expect("double free");
}

#[test]
fn reports_copy_past_the_end_of_a_block() {
    for excess in [0, 1] {
        let gpu = Gpu::get();
        let home = stream();
        let (from, to) = (alloc(BYTES, home), alloc(BYTES, home));
        let code = code!(cuMemcpyAsync(to + 1, from, BYTES - 1 + excess, home));
        match excess {
            0 => assert_eq!((code, gpu.violations()), (0, 0)),
            _ => {
                assert_eq!(code, 1);
                gpu.expect("out of bounds");
            }
        }
        free(from, home);
        free(to, home);
    }
}

#[test]
fn reports_free_of_pinned_memory_that_a_queued_copy_reads() {
    for waits in [true, false] {
        let gpu = Gpu::get();
        let home = stream();
        let (block, host) = (alloc(BYTES, home), pinned(BYTES));
        copy(block, host as u64, BYTES, home);
        if waits {
            sync(home);
        }
        ok!(cuMemFreeHost(host));
        if waits {
            assert_eq!(gpu.violations(), 0);
        } else {
            gpu.expect("pinned memory freed in use");
        }
        free(block, home);
        sync(home);
    }
}

#[test]
fn reports_unregistering_of_memory_that_a_queued_copy_writes() {
    let gpu = Gpu::get();
    let home = stream();
    let block = alloc(BYTES, home);
    let mut host = vec![0u8; BYTES];
    ok!(cuMemHostRegister_v2(host.as_mut_ptr(), BYTES, 0));
    copy(host.as_mut_ptr() as u64, block, BYTES, home);
    ok!(cuMemHostUnregister(host.as_mut_ptr()));
    gpu.expect("pinned memory freed in use");
    free(block, home);
    sync(home);
    assert_eq!(host, vec![0u8; BYTES], "the copy must not write into memory that is no longer registered");
}

#[test]
fn successful_event_query_orders_later_work_of_every_stream() {
    let gpu = Gpu::get();
    let (one, two) = (stream(), stream());
    let block = alloc(BYTES, one);
    fill(block, 1, BYTES, one);
    let event = event();
    ok!(cuEventRecord(event, one));
    fill(block, 2, BYTES / 2, one);
    let mut queries = 0;
    while code!(cuEventQuery(event)) == 600 {
        queries += 1;
        assert!(queries < 100, "the event never passes");
    }
    fill(block + BYTES as u64 / 2, 3, BYTES / 2, two);
    assert_eq!(gpu.violations(), 0);
    fill(block, 3, 1, two);
    gpu.expect("write after write");
    ok!(cuEventDestroy_v2(event));
    order(two, one);
    free(block, one);
}

#[test]
fn event_recorded_on_a_context_is_ordered_after_work_of_every_stream() {
    let gpu = Gpu::get();
    let (one, two, last) = (stream(), stream(), stream());
    let blocks = [alloc(BYTES, one), alloc(BYTES, two)];
    fill(blocks[0], 1, BYTES, one);
    fill(blocks[1], 1, BYTES, two);
    let (event, mut context) = (event(), 0);
    ok!(cuCtxGetCurrent(&mut context));
    ok!(cuCtxRecordEvent(context, event));
    ok!(cuStreamWaitEvent(last, event, 0));
    blocks.iter().for_each(|block| free(*block, last));
    assert_eq!(gpu.violations(), 0);
    ok!(cuEventDestroy_v2(event));
}

#[test]
fn reports_destroyed_handles() {
    let gpu = Gpu::get();
    let event = event();
    ok!(cuEventDestroy_v2(event));
    assert_eq!(code!(cuEventQuery(event)), 400);
    gpu.expect("stale handle");
}

// The compiler may turn the last call of a function into a jump, which removes the function's stack
// frame. The `black_box` after the call prevents this.

#[inline(never)]
fn unordered_writer(block: u64, on: Handle) {
    fill(block, 1, BYTES, on);
    std::hint::black_box(block);
}

#[inline(never)]
fn unordered_reader(block: u64, on: Handle) {
    copy(block + 2048, block, 1024, on);
    std::hint::black_box(block);
}

#[test]
fn report_has_both_call_sites_and_ends_the_process() {
    let case = "order::report_has_both_call_sites_and_ends_the_process";
    if is_child(case) {
        Gpu::start();
        let (one, two) = (stream(), stream());
        let block = alloc(BYTES, one);
        order(one, two);
        unordered_writer(block, one);
        unordered_reader(block, two);
        println!("not reached");
        return;
    }
    let (output, text) = in_child(case, &[("CROSSDOCK_SIM_CUDA_SEED", "77")]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(libc::SIGABRT), "{text}");
    for word in
        ["read after write", "unordered_writer", "unordered_reader", "order.rs", "CROSSDOCK_SIM_CUDA_SEED=77"]
    {
        assert!(text.contains(word), "{word} is missing in: {text}");
    }
    assert!(!String::from_utf8_lossy(&output.stdout).contains("not reached"));
}
