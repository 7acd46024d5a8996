//! Tests memory that is exported as an open file.

use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{Code, Device, abi};

use super::{GPU, backend, backend_with, content};
use crate::common::{TestBlock, copy, table};

const BYTES: usize = (5 << 20) + 17;

fn exportable(account: &Account, bytes: usize) -> TestBlock {
    let block = account.allocate_exportable(GPU, bytes).unwrap();
    TestBlock { address: block.address.cast(), block: block.block }
}

#[test]
fn exported_file_keeps_the_memory_after_its_block_is_freed() {
    let Some(backend) = backend("exported_file_keeps_the_memory_after_its_block_is_freed") else { return };
    let account = backend.account("exporter");
    let t = table(&account);
    let (stream, source) = (t.stream_create(GPU).unwrap(), content(BYTES));
    let block = exportable(&account, BYTES);
    assert_eq!(t.pointer(block.address.wrapping_add(BYTES - 1)).unwrap().0, GPU);
    t.copies(stream, &[copy((GPU, block.address), (Device::CPU, source.as_ptr()), BYTES)]).unwrap();
    t.stream_synchronize(stream).unwrap();
    let (file, bytes) = backend.export_file(block.address as u64).unwrap();
    assert!(bytes >= BYTES as u64, "{bytes} bytes");
    let open = |bytes| backend.open_file(GPU, file.try_clone().unwrap(), bytes);
    for wrong in [bytes / 2, 2 * bytes, 0] {
        let error = open(wrong).map(drop).unwrap_err();
        assert!(error.message().contains("cannot be opened"), "{wrong}: {error}");
    }
    let opened = open(bytes).unwrap();
    t.free(block);
    backend.settle();
    let mut target = vec![0; BYTES];
    let from = (GPU, opened.address() as *const u8);
    t.copies(stream, &[copy((Device::CPU, target.as_mut_ptr()), from, BYTES)]).unwrap();
    assert!(target == source);
    drop(opened);
    t.stream_destroy(stream);
    backend.settle();
    assert!(backend.leaks().is_empty());
}

#[test]
fn counts_and_limits_exportable_memory() {
    let builder = Backend::builder().limit_bytes(64 << 20);
    let Some(backend) = backend_with("counts_and_limits_exportable_memory", builder) else { return };
    let account = backend.account("exporter");
    let t = table(&account);
    let block = exportable(&account, 40 << 20);
    let usage = backend.leaks().pop().unwrap().to_string();
    assert_eq!(usage, "'exporter' holds 41943040 bytes in 1 block on cuda:0");
    let error = account.allocate_exportable(GPU, 30 << 20).map(drop).unwrap_err();
    assert_eq!(error.code(), Code(abi::OUT_OF_MEMORY));
    t.free(block);
    backend.settle();
    assert!(backend.leaks().is_empty());
    let error = account.allocate_exportable(Device::CPU, 64).map(drop).unwrap_err();
    assert_eq!(error.code(), Code(abi::UNSUPPORTED));
}

#[test]
fn rejects_memory_that_was_not_exportable() {
    let Some(backend) = backend("rejects_memory_that_was_not_exportable") else { return };
    let account = backend.account("exporter");
    let t = table(&account);
    let pooled = t.alloc(GPU, 4096).unwrap();
    let error = backend.export_file(pooled.address as u64).map(drop).unwrap_err();
    assert!(error.message().contains("cannot be exported as a file"), "{error}");
    t.free(pooled);
    let local = 0u8;
    let error = backend.export_file((&raw const local) as u64).map(drop).unwrap_err();
    assert!(error.message().contains("is no memory of a CUDA device"), "{error}");
    for name in ["/dev/null", "/proc/self/exe"] {
        let file = std::fs::File::open(name).unwrap();
        let error = backend.open_file(GPU, file.into(), 2 << 20).map(drop).unwrap_err();
        assert!(error.message().contains("(999) from cuMemImport"), "{name}: {error}");
    }
    backend.settle();
    assert!(backend.leaks().is_empty());
}
