//! Mistakes about the order of work, each caught and named; and the same programs without the mistake.

use crate::common::*;

const BYTES: usize = 4096;

#[test]
fn a_read_that_does_not_wait_for_the_write_on_another_stream_is_named() {
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
fn a_write_that_does_not_wait_for_the_read_on_another_stream_is_named() {
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
fn two_writers_of_the_same_bytes_are_named_and_of_different_bytes_are_not() {
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
fn a_block_is_used_elsewhere_only_after_its_allocation() {
    let gpu = Gpu::get();
    let (home, other) = (stream(), stream());
    let block = alloc(BYTES, home);
    fill(block, 1, BYTES, other);
    gpu.expect("use before allocation");
    order(other, home);
    free(block, home);
}

#[test]
fn a_free_that_does_not_wait_for_a_reader_is_named() {
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
fn a_use_after_the_free_is_named_before_and_after_the_free_has_run() {
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
fn a_second_free_is_named_before_and_after_the_first_has_run() {
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

/// What the host knows to have run, and how.
#[derive(Clone, Copy, PartialEq)]
enum Knows {
    Nothing,
    /// Of the writer, and not of the reader.
    OfAnother,
    Synchronised,
    Queried,
}

#[test]
fn a_free_at_once_of_pool_memory_is_named_unless_the_host_knows_that_every_use_has_run() {
    for knows in [Knows::Nothing, Knows::OfAnother, Knows::Synchronised, Knows::Queried] {
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
            Knows::OfAnother => sync(home),
            Knows::Synchronised => ok!(cuEventSynchronize(used)),
            Knows::Queried => while code!(cuEventQuery(used)) != 0 {},
        }
        ok!(cuMemFree_v2(block));
        if matches!(knows, Knows::Nothing | Knows::OfAnother) {
            gpu.expect("early free");
        } else {
            assert_eq!(gpu.violations(), 0);
            // SAFETY: pinned memory of that length, whose writer has been waited for.
            assert_eq!(unsafe { std::slice::from_raw_parts(host, BYTES) }, [7; BYTES]);
        }
        sync(reader);
        ok!(cuMemFreeHost(host));
        ok!(cuEventDestroy_v2(used));
    }
}

#[test]
fn pool_memory_that_was_freed_at_once_may_not_be_used_nor_freed_again() {
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
fn pool_memory_whose_free_is_queued_may_not_be_freed_at_once() {
    let gpu = Gpu::get();
    let home = stream();
    let block = alloc(BYTES, home);
    sync(home);
    free(block, home);
    assert_eq!(code!(cuMemFree_v2(block)), 1);
    gpu.expect("double free");
}

#[test]
fn memory_of_cumemalloc_is_freed_once() {
    let gpu = Gpu::get();
    let mut block = 0;
    ok!(cuMemAlloc_v2(&mut block, BYTES));
    ok!(cuMemFree_v2(block));
    assert_eq!(code!(cuMemFree_v2(block)), 1);
    gpu.expect("double free");
}

#[test]
fn a_copy_beyond_the_end_of_a_block_is_named() {
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
fn pinned_memory_that_a_queued_copy_reads_may_not_be_freed() {
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
fn a_registration_may_not_end_while_a_queued_copy_writes_there() {
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
    assert_eq!(host, vec![0u8; BYTES], "the copy must not write into memory that was taken away");
}

#[test]
fn an_event_that_the_host_has_seen_pass_orders_every_stream() {
    let gpu = Gpu::get();
    let (one, two) = (stream(), stream());
    let block = alloc(BYTES, one);
    fill(block, 1, BYTES, one);
    let event = event();
    ok!(cuEventRecord(event, one));
    fill(block, 2, BYTES / 2, one);
    let mut asked = 0;
    while code!(cuEventQuery(event)) == 600 {
        asked += 1;
        assert!(asked < 100, "the event never passes");
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
fn an_event_over_the_whole_context_comes_after_every_stream() {
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
fn a_handle_that_was_destroyed_is_named() {
    let gpu = Gpu::get();
    let event = event();
    ok!(cuEventDestroy_v2(event));
    assert_eq!(code!(cuEventQuery(event)), 400);
    gpu.expect("stale handle");
}

// A call at a function's end may become a jump, and the function's frame is gone: hence something after it.

#[inline(never)]
fn the_writer(block: u64, on: Handle) {
    fill(block, 1, BYTES, on);
    std::hint::black_box(block);
}

#[inline(never)]
fn the_reader(block: u64, on: Handle) {
    copy(block + 2048, block, 1024, on);
    std::hint::black_box(block);
}

#[test]
fn a_report_names_both_call_sites_and_ends_the_process() {
    let case = "order::a_report_names_both_call_sites_and_ends_the_process";
    if is_child(case) {
        Gpu::start();
        let (one, two) = (stream(), stream());
        let block = alloc(BYTES, one);
        order(one, two);
        the_writer(block, one);
        the_reader(block, two);
        println!("not reached");
        return;
    }
    let (output, text) = in_child(case, &[("CROSSDOCK_SIM_CUDA_SEED", "77")]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(libc::SIGABRT), "{text}");
    for word in ["read after write", "the_writer", "the_reader", "order.rs", "CROSSDOCK_SIM_CUDA_SEED=77"] {
        assert!(text.contains(word), "{word} is missing in: {text}");
    }
    assert!(!String::from_utf8_lossy(&output.stdout).contains("not reached"));
}
