//! Tests CUDA IPC with a second process.

use std::process::Command;
use std::ptr::null_mut;

use crossdock_memory_backend::{Account, Backend, Faults, IpcDescription, Operation};
use crossdock_plugin_api::{Code, Device, Result, abi};

use super::{GPU, backend, backend_with, content, driver_lock, skip};
use crate::common::{TestBlock, copy, table};

/// The environment variable that passes the description to the other process, in hexadecimal.
const DESCRIPTION: &str = "CROSSDOCK_TEST_IPC";
const BYTES: usize = (5 << 20) + 17;
/// The offset of the exported range in its block, in bytes.
const OFFSET: usize = 4099;
const RANGE: usize = 3 << 20;

fn shareable(account: &Account, device: Device, bytes: usize) -> Result<TestBlock> {
    let block = account.allocate_shareable(device, bytes)?;
    assert_eq!(block.bytes, bytes);
    Ok(TestBlock { address: block.address.cast(), block: block.block })
}

#[test]
fn shareable_blocks_are_usable_counted_and_freed() {
    let Some(backend) = backend("shareable_blocks_are_usable_counted_and_freed") else { return };
    let account = backend.account("sharer");
    let t = table(&account);
    let (writer, reader) = (t.stream_create(GPU).unwrap(), t.stream_create(GPU).unwrap());
    for bytes in [0, 1, BYTES] {
        let block = shareable(&account, GPU, bytes).unwrap();
        assert_eq!(block.address as usize % 256, 0);
        let usage = backend.leaks().pop().unwrap().to_string();
        assert_eq!(usage, format!("'sharer' holds {bytes} bytes in 1 block, 2 streams on cuda:0"));
        t.free_with(block, 0);
        let usage = backend.leaks().pop().unwrap().to_string();
        assert_eq!(usage, "'sharer' holds 2 streams on cuda:0");
    }
    let source = content(BYTES);
    for flags in [0, abi::FREE_EXPORTED] {
        let block = shareable(&account, GPU, BYTES).unwrap();
        assert_eq!(t.pointer(block.address.wrapping_add(BYTES - 1)).unwrap().0, GPU);
        let copied = t.alloc_aligned(GPU, BYTES, 64, reader).unwrap();
        t.copies(writer, &[copy((GPU, block.address), (Device::CPU, source.as_ptr()), BYTES)]).unwrap();
        let written = t.event_record(writer).unwrap();
        t.stream_wait(reader, written).unwrap();
        t.copies(reader, &[copy((GPU, copied.address), (GPU, block.address), BYTES)]).unwrap();
        let read = t.event_record(reader).unwrap();
        // The block is freed while the reader is still reading it.
        t.free_after(block, &[read], flags);
        let mut target = vec![0; BYTES];
        t.copies(reader, &[copy((Device::CPU, target.as_mut_ptr()), (GPU, copied.address), BYTES)]).unwrap();
        assert!(target == source);
        t.free_with(copied, 0);
        [written, read].into_iter().for_each(|event| t.event_destroy(event));
    }
    [writer, reader].into_iter().for_each(|stream| t.stream_destroy(stream));
    backend.settle();
    assert!(backend.leaks().is_empty());
}

#[test]
fn limits_shareable_memory_by_the_budget() {
    let faults = Faults::new();
    let builder = Backend::builder().limit_bytes(64 << 20).faults(faults.clone()).untouchable(true);
    let Some(backend) = backend_with("limits_shareable_memory_by_the_budget", builder) else { return };
    let account = backend.account("sharer");
    let t = table(&account);
    let block = shareable(&account, GPU, 40 << 20).unwrap();
    let error = t.alloc(GPU, 30 << 20).map(drop).unwrap_err();
    assert_eq!(error.code(), Code(abi::OUT_OF_MEMORY));
    assert!(error.message().contains("'sharer' holds 41943040 bytes in 1 block on cuda:0"), "{error:?}");
    let error = shareable(&account, GPU, 30 << 20).map(drop).unwrap_err();
    assert!(error.message().contains("'sharer' asked for 31457280 bytes on cuda:0"), "{error:?}");
    t.free(block);
    faults.fail(Operation::Allocate, 1);
    assert!(shareable(&account, GPU, 64).map(drop).unwrap_err().message().contains("fault plan"));
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let error = shareable(&account, device, 64).map(drop).unwrap_err();
        assert_eq!(error.code(), Code(abi::UNSUPPORTED));
        assert!(error.message().contains("expected a CUDA device"), "{error:?}");
    }
    backend.settle();
    assert!(backend.leaks().is_empty());
}

#[test]
fn rejects_unshareable_memory_with_advice() {
    let Some(backend) = backend("rejects_unshareable_memory_with_advice") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let export = |address: *mut u8, bytes| {
        // SAFETY: the export is rejected, so no process opens the memory.
        unsafe { backend.export_ipc(address as u64, bytes, null_mut()) }.map(drop).unwrap_err()
    };
    let block = t.alloc(GPU, 4096).unwrap();
    let error = export(block.address, 4096);
    assert_eq!(error.code(), Code(abi::UNSUPPORTED));
    let words = ["cuda:0 comes from a pool", "copy it into a buffer that was allocated to be shared"];
    words.iter().for_each(|word| assert!(error.message().contains(word), "{error:?}"));
    t.free(block);
    let block = shareable(&account, GPU, 4096).unwrap();
    for (from, bytes) in [(0, 1 << 40), (4096, u64::MAX), (1, 2 << 20)] {
        let error = export(block.address.wrapping_add(from), bytes);
        assert_eq!(error.code(), Code(abi::INVALID_ARGUMENT), "{error:?}");
        assert!(error.message().contains("outside their allocation on cuda:0"), "{error:?}");
    }
    t.free(block);
    let mut local = 0u8;
    let pinned = t.alloc_pinned(64).unwrap();
    for address in [&raw mut local, pinned.address] {
        assert!(export(address, 1).message().contains("is no memory of a CUDA device"));
    }
    t.free(pinned);
    backend.settle();
    assert!(backend.leaks().is_empty());
}

#[test]
fn rejects_a_description_of_an_unknown_gpu() {
    let Some(backend) = backend("rejects_a_description_of_an_unknown_gpu") else { return };
    // The bytes look like a description from another process, and name a GPU that does not exist.
    let mut bytes = vec![0x5a; IpcDescription::BYTES - 8];
    bytes[..8].copy_from_slice(b"XDCUIPC1");
    bytes.extend_from_slice(&twox_hash::XxHash64::oneshot(0, &bytes).to_le_bytes());
    let error = backend.open_ipc(&IpcDescription::from_bytes(&bytes).unwrap()).map(drop).unwrap_err();
    assert_eq!(error.code(), Code(abi::DEVICE));
    let words = ["UUID 5a5a5a", "CUDA_VISIBLE_DEVICES"];
    words.iter().for_each(|word| assert!(error.message().contains(word), "{error:?}"));
    assert!(backend.leaks().is_empty());
}

#[test]
fn other_process_reads_shared_memory_after_the_event_and_writes_it() {
    const TEST: &str = "other_process_reads_shared_memory_after_the_event_and_writes_it";
    let Some(backend) = backend(TEST) else { return };
    let account = backend.account("test");
    let t = table(&account);
    let (block, source) = (shareable(&account, GPU, BYTES).unwrap(), content(BYTES));
    // SAFETY: no process opens the memory.
    if let Err(error) = unsafe { backend.export_ipc(block.address as u64, 1, null_mut()) } {
        assert!(error.message().contains("(801) from cuIpc"), "{error:?}");
        t.free(block);
        backend.settle();
        return skip(TEST, error.message());
    }
    let stream = t.stream_create(GPU).unwrap();
    // The device is busy for about one second, while the other process starts. The range is
    // therefore not ready when it is exported or when it is opened.
    let busy = t.alloc_aligned(GPU, 1 << 30, 64, stream).unwrap();
    (0..4000).for_each(|_| t.fill(stream, busy.address, 1, 1 << 30).unwrap());
    t.free_with(busy, 0);
    t.fill(stream, block.address, 0xee, BYTES).unwrap();
    t.copies(stream, &[copy((GPU, block.address), (Device::CPU, source.as_ptr()), BYTES)]).unwrap();
    let written = t.event_record(stream).unwrap();
    let range = block.address.wrapping_add(OFFSET);
    // SAFETY: the event is live. The event and the block are kept until the other process has
    // ended.
    let export = unsafe { backend.export_ipc(range as u64, RANGE as u64, t.event_raw(written)) }.unwrap();
    let bytes = export.description().to_bytes();
    let description = IpcDescription::from_bytes(&bytes).unwrap();
    assert_eq!(description.range_bytes(), RANGE as u64);
    let error = backend.open_ipc(&description).map(drop).unwrap_err();
    assert!(error.message().contains("exported by this very process"), "{error:?}");

    let _lock = driver_lock();
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "cuda::ipc::child_process_uses_exported_memory", "--nocapture"]);
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let output = other.env(DESCRIPTION, digits).output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && output_text.contains("read and written"), "{output:?}");

    let target = t.download(GPU, block.address, BYTES).unwrap();
    assert!(
        target[OFFSET..OFFSET + RANGE].iter().all(|byte| *byte == 0x77),
        "the other process did not write"
    );
    assert!(target[..OFFSET] == source[..OFFSET] && target[OFFSET + RANGE..] == source[OFFSET + RANGE..]);
    drop(export);
    t.free(block);
    t.event_destroy(written);
    t.stream_destroy(stream);
    backend.settle();
    assert!(backend.leaks().is_empty());
}

/// Runs in the other process, and does nothing in a process without the variable.
#[test]
fn child_process_uses_exported_memory() {
    let Ok(digits) = std::env::var(DESCRIPTION) else { return };
    let digit = |i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..digits.len() / 2).map(digit).collect();
    let backend = Backend::builder().build();
    let account = backend.account("other");
    let t = table(&account);

    // Ranges outside the allocation are rejected. A rejected range leaves no memory open.
    for (at, value) in [(32, 5u64 << 40), (40, 5 << 40), (40, u64::MAX)] {
        let mut out_of_bounds = bytes.clone();
        out_of_bounds[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let checksum_offset = out_of_bounds.len() - 8;
        let checksum = twox_hash::XxHash64::oneshot(0, &out_of_bounds[..checksum_offset]);
        out_of_bounds[checksum_offset..].copy_from_slice(&checksum.to_le_bytes());
        let error =
            backend.open_ipc(&IpcDescription::from_bytes(&out_of_bounds).unwrap()).map(drop).unwrap_err();
        assert_eq!(error.code(), Code(abi::BAD_DATA), "{error:?}");
        assert!(error.message().contains("outside the opened allocation"), "{error:?}");
    }
    let opened = backend.open_ipc(&IpcDescription::from_bytes(&bytes).unwrap()).unwrap();
    // The memory is opened twice, as if two readers had received one message.
    let second = backend.open_ipc(&IpcDescription::from_bytes(&bytes).unwrap()).unwrap();
    assert_eq!((opened.device(), opened.bytes()), (GPU, RANGE as u64));
    let (address, stream) = (opened.address() as *mut u8, t.stream_create(GPU).unwrap());
    t.stream_wait_raw(stream, opened.sync_event()).unwrap();
    let mut target = vec![0; RANGE];
    t.copies(stream, &[copy((Device::CPU, target.as_mut_ptr()), (GPU, address), RANGE)]).unwrap();
    assert!(target == content(BYTES)[OFFSET..OFFSET + RANGE]);
    drop(second);
    t.fill(stream, address, 0x77, RANGE).unwrap();
    // The memory is closed while the fill may still run. The test does not wait for the fill.
    drop(opened);
    t.stream_destroy(stream);
    backend.settle();
    assert!(backend.leaks().is_empty());
    println!("read and written");
}
