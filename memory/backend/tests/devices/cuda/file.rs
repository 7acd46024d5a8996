//! Memory that goes to other processes as an open file.

use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{Code, Device, abi};

use super::{GPU, backend, backend_with, content};
use crate::common::{Held, copy, table};

const BYTES: usize = (5 << 20) + 17;

fn exportable(account: &Account, bytes: usize) -> Held {
    let block = account.allocate_exportable(GPU, bytes).unwrap();
    Held { address: block.address.cast(), block: block.block }
}

#[test]
fn what_lies_there_is_seen_through_the_file_after_its_maker_has_let_go() {
    let Some(backend) = backend("what_lies_there_is_seen_through_the_file") else { return };
    let account = backend.account("maker");
    let t = table(&account);
    let (stream, sent) = (t.stream_create(GPU).unwrap(), content(BYTES));
    let held = exportable(&account, BYTES);
    assert_eq!(t.pointer(held.address.wrapping_add(BYTES - 1)).unwrap().0, GPU);
    t.copies(stream, &[copy((GPU, held.address), (Device::CPU, sent.as_ptr()), BYTES)]).unwrap();
    t.stream_synchronize(stream).unwrap();
    let (file, bytes) = backend.export_file(held.address as u64).unwrap();
    assert!(bytes >= BYTES as u64, "{bytes} bytes");
    let open = |bytes| backend.open_file(GPU, file.try_clone().unwrap(), bytes);
    for wrong in [bytes / 2, 2 * bytes, 0] {
        let refused = open(wrong).map(drop).unwrap_err();
        assert!(refused.message().contains("cannot be opened"), "{wrong}: {refused}");
    }
    let opened = open(bytes).unwrap();
    t.free(held);
    backend.settle();
    let mut seen = vec![0; BYTES];
    let there = (GPU, opened.address() as *const u8);
    t.copies(stream, &[copy((Device::CPU, seen.as_mut_ptr()), there, BYTES)]).unwrap();
    assert!(seen == sent);
    drop(opened);
    t.stream_destroy(stream);
    backend.settle();
    assert!(backend.leaks().is_empty());
}

#[test]
fn it_is_counted_and_limited_like_any_other() {
    let builder = Backend::builder().limit_bytes(64 << 20);
    let Some(backend) = backend_with("it_is_counted_and_limited_like_any_other", builder) else { return };
    let account = backend.account("maker");
    let t = table(&account);
    let held = exportable(&account, 40 << 20);
    let held_now = backend.leaks().pop().unwrap().to_string();
    assert_eq!(held_now, "'maker' holds 41943040 bytes in 1 block on cuda:0");
    let refused = account.allocate_exportable(GPU, 30 << 20).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code(abi::OUT_OF_MEMORY));
    t.free(held);
    backend.settle();
    assert!(backend.leaks().is_empty());
    let refused = account.allocate_exportable(Device::CPU, 64).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code(abi::UNSUPPORTED));
}

#[test]
fn what_is_no_such_memory_is_refused() {
    let Some(backend) = backend("what_is_no_such_memory_is_refused") else { return };
    let account = backend.account("maker");
    let t = table(&account);
    let pooled = t.alloc(GPU, 4096).unwrap();
    let refused = backend.export_file(pooled.address as u64).map(drop).unwrap_err();
    assert!(refused.message().contains("goes to no other process as a file"), "{refused}");
    t.free(pooled);
    let local = 0u8;
    let refused = backend.export_file((&raw const local) as u64).map(drop).unwrap_err();
    assert!(refused.message().contains("is no memory of a CUDA device"), "{refused}");
    for name in ["/dev/null", "/proc/self/exe"] {
        let file = std::fs::File::open(name).unwrap();
        let refused = backend.open_file(GPU, file.into(), 2 << 20).map(drop).unwrap_err();
        assert!(refused.message().contains("(999) to cuMemImport"), "{name}: {refused}");
    }
    backend.settle();
    assert!(backend.leaks().is_empty());
}
