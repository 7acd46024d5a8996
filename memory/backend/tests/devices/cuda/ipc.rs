//! Memory that other processes can be given, and another process that opens it.

use std::process::Command;
use std::ptr::null_mut;

use crossdock_memory_backend::{Account, Backend, Faults, IpcDescription, Operation};
use crossdock_plugin_api::{Code, Device, Result, abi};

use super::{GPU, backend, backend_with, content, skip, turn};
use crate::common::{Held, copy, table};

/// The description, in hexadecimal digits, in the environment of the other process.
const DESCRIPTION: &str = "CROSSDOCK_TEST_IPC";
const BYTES: usize = (5 << 20) + 17;
/// Where in its block the exported range begins.
const OFFSET: usize = 4099;
const RANGE: usize = 3 << 20;

fn shareable(account: &Account, device: Device, bytes: usize) -> Result<Held> {
    let block = account.allocate_shareable(device, bytes)?;
    assert_eq!(block.bytes, bytes);
    Ok(Held { address: block.address.cast(), block: block.block })
}

#[test]
fn shareable_blocks_are_used_counted_and_given_back_like_any_other() {
    let Some(backend) = backend("shareable_blocks_are_used") else { return };
    let account = backend.account("sharer");
    let t = table(&account);
    let (writer, reader) = (t.stream_create(GPU).unwrap(), t.stream_create(GPU).unwrap());
    for bytes in [0, 1, BYTES] {
        let held = shareable(&account, GPU, bytes).unwrap();
        assert_eq!(held.address as usize % 256, 0);
        let held_now = backend.leaks().pop().unwrap().to_string();
        assert_eq!(held_now, format!("'sharer' holds {bytes} bytes in 1 block, 2 streams on cuda:0"));
        t.free_with(held, 0);
        let held_now = backend.leaks().pop().unwrap().to_string();
        assert_eq!(held_now, "'sharer' holds 2 streams on cuda:0");
    }
    let sent = content(BYTES);
    for flags in [0, abi::FREE_LENT] {
        let held = shareable(&account, GPU, BYTES).unwrap();
        assert_eq!(t.pointer(held.address.wrapping_add(BYTES - 1)).unwrap().0, GPU);
        let copied = t.alloc_aligned(GPU, BYTES, 64, reader).unwrap();
        t.copies(writer, &[copy((GPU, held.address), (Device::CPU, sent.as_ptr()), BYTES)]).unwrap();
        let written = t.event_record(writer).unwrap();
        t.stream_wait(reader, written).unwrap();
        t.copies(reader, &[copy((GPU, copied.address), (GPU, held.address), BYTES)]).unwrap();
        let read = t.event_record(reader).unwrap();
        // Nobody waits for the reader, who reads it all the same.
        t.free_after(held, &[read], flags);
        let mut seen = vec![0; BYTES];
        t.copies(reader, &[copy((Device::CPU, seen.as_mut_ptr()), (GPU, copied.address), BYTES)]).unwrap();
        assert!(seen == sent);
        t.free_with(copied, 0);
        [written, read].into_iter().for_each(|event| t.event_destroy(event));
    }
    [writer, reader].into_iter().for_each(|stream| t.stream_destroy(stream));
    backend.settle();
    assert!(backend.leaks().is_empty());
}

#[test]
fn shareable_memory_is_within_the_budget_and_fails_by_name() {
    let faults = Faults::new();
    let builder = Backend::builder().limit_bytes(64 << 20).faults(faults.clone()).untouchable(true);
    let Some(backend) = backend_with("shareable_memory_is_within_the_budget", builder) else { return };
    let account = backend.account("sharer");
    let t = table(&account);
    let held = shareable(&account, GPU, 40 << 20).unwrap();
    let refused = t.alloc(GPU, 30 << 20).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code(abi::OUT_OF_MEMORY));
    assert!(refused.message().contains("'sharer' holds 41943040 bytes in 1 block on cuda:0"), "{refused:?}");
    let refused = shareable(&account, GPU, 30 << 20).map(drop).unwrap_err();
    assert!(refused.message().contains("'sharer' asked for 31457280 bytes on cuda:0"), "{refused:?}");
    t.free(held);
    faults.fail(Operation::Allocate, 1);
    assert!(shareable(&account, GPU, 64).map(drop).unwrap_err().message().contains("fault plan"));
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        let refused = shareable(&account, device, 64).map(drop).unwrap_err();
        assert_eq!(refused.code(), Code(abi::UNSUPPORTED));
        assert!(refused.message().contains("expected a CUDA device"), "{refused:?}");
    }
    backend.settle();
    assert!(backend.leaks().is_empty());
}

#[test]
fn memory_that_cannot_be_shared_is_refused_with_what_to_do() {
    let Some(backend) = backend("memory_that_cannot_be_shared") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let export = |address: *mut u8, bytes| {
        // SAFETY: refused, so that nobody opens it.
        unsafe { backend.export_ipc(address as u64, bytes, null_mut()) }.map(drop).unwrap_err()
    };
    let held = t.alloc(GPU, 4096).unwrap();
    let refused = export(held.address, 4096);
    assert_eq!(refused.code(), Code(abi::UNSUPPORTED));
    let words = ["cuda:0 comes from a pool", "copy it into a buffer that was allocated to be shared"];
    words.iter().for_each(|word| assert!(refused.message().contains(word), "{refused:?}"));
    t.free(held);
    let held = shareable(&account, GPU, 4096).unwrap();
    for (from, bytes) in [(0, 1 << 40), (4096, u64::MAX), (1, 2 << 20)] {
        let refused = export(held.address.wrapping_add(from), bytes);
        assert_eq!(refused.code(), Code(abi::INVALID_ARGUMENT), "{refused:?}");
        assert!(refused.message().contains("outside their allocation on cuda:0"), "{refused:?}");
    }
    t.free(held);
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
fn a_description_of_nothing_is_refused_when_it_is_opened() {
    let Some(backend) = backend("a_description_of_nothing") else { return };
    // Of another process, on a GPU that nobody has.
    let mut bytes = vec![0x5a; IpcDescription::BYTES - 8];
    bytes[..8].copy_from_slice(b"XDCUIPC1");
    bytes.extend_from_slice(&twox_hash::XxHash64::oneshot(0, &bytes).to_le_bytes());
    let refused = backend.open_ipc(&IpcDescription::from_bytes(&bytes).unwrap()).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code(abi::DEVICE));
    let words = ["UUID 5a5a5a", "CUDA_VISIBLE_DEVICES"];
    words.iter().for_each(|word| assert!(refused.message().contains(word), "{refused:?}"));
    assert!(backend.leaks().is_empty());
}

#[test]
fn another_process_reads_after_the_event_what_was_exported_and_writes_into_it() {
    const TEST: &str = "another_process_reads";
    let Some(backend) = backend(TEST) else { return };
    let account = backend.account("test");
    let t = table(&account);
    let (held, sent) = (shareable(&account, GPU, BYTES).unwrap(), content(BYTES));
    // SAFETY: nobody is told of it.
    if let Err(refused) = unsafe { backend.export_ipc(held.address as u64, 1, null_mut()) } {
        assert!(refused.message().contains("(801) to cuIpc"), "{refused:?}");
        t.free(held);
        backend.settle();
        return skip(TEST, refused.message());
    }
    let stream = t.stream_create(GPU).unwrap();
    // A second of work, in which the other process starts: the range is not ready when it is exported, nor when it is opened.
    let busy = t.alloc_aligned(GPU, 1 << 30, 64, stream).unwrap();
    (0..4000).for_each(|_| t.fill(stream, busy.address, 1, 1 << 30).unwrap());
    t.free_with(busy, 0);
    t.fill(stream, held.address, 0xee, BYTES).unwrap();
    t.copies(stream, &[copy((GPU, held.address), (Device::CPU, sent.as_ptr()), BYTES)]).unwrap();
    let written = t.event_record(stream).unwrap();
    let range = held.address.wrapping_add(OFFSET);
    // SAFETY: a live event; both are kept until the other process has ended.
    let export = unsafe { backend.export_ipc(range as u64, RANGE as u64, t.event_raw(written)) }.unwrap();
    let told = export.description().to_bytes();
    let description = IpcDescription::from_bytes(&told).unwrap();
    assert_eq!(description.range_bytes(), RANGE as u64);
    let refused = backend.open_ipc(&description).map(drop).unwrap_err();
    assert!(refused.message().contains("exported by this very process"), "{refused:?}");

    let _turn = turn();
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "cuda::ipc::the_other_process", "--nocapture"]);
    let digits: String = told.iter().map(|byte| format!("{byte:02x}")).collect();
    let output = other.env(DESCRIPTION, digits).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("it has read and written"), "{output:?}");

    let seen = t.download(GPU, held.address, BYTES).unwrap();
    assert!(seen[OFFSET..OFFSET + RANGE].iter().all(|byte| *byte == 0x77), "what the other process wrote");
    assert!(seen[..OFFSET] == sent[..OFFSET] && seen[OFFSET + RANGE..] == sent[OFFSET + RANGE..]);
    drop(export);
    t.free(held);
    t.event_destroy(written);
    t.stream_destroy(stream);
    backend.settle();
    assert!(backend.leaks().is_empty());
}

/// What the other process does; nothing in one that is not.
#[test]
fn the_other_process() {
    let Ok(digits) = std::env::var(DESCRIPTION) else { return };
    let digit = |i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap();
    let told: Vec<u8> = (0..digits.len() / 2).map(digit).collect();
    let backend = Backend::builder().build();
    let account = backend.account("other");
    let t = table(&account);

    // What does not lie in the allocation is refused, and nothing stays open.
    for (at, value) in [(32, 5u64 << 40), (40, 5 << 40), (40, u64::MAX)] {
        let mut beyond = told.clone();
        beyond[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let summed = beyond.len() - 8;
        let sum = twox_hash::XxHash64::oneshot(0, &beyond[..summed]);
        beyond[summed..].copy_from_slice(&sum.to_le_bytes());
        let refused = backend.open_ipc(&IpcDescription::from_bytes(&beyond).unwrap()).map(drop).unwrap_err();
        assert_eq!(refused.code(), Code(abi::BAD_DATA), "{refused:?}");
        assert!(refused.message().contains("outside the allocation"), "{refused:?}");
    }
    let opened = backend.open_ipc(&IpcDescription::from_bytes(&told).unwrap()).unwrap();
    // Once more, as two readers of one message do.
    let again = backend.open_ipc(&IpcDescription::from_bytes(&told).unwrap()).unwrap();
    assert_eq!((opened.device(), opened.bytes()), (GPU, RANGE as u64));
    let (address, stream) = (opened.address() as *mut u8, t.stream_create(GPU).unwrap());
    t.stream_wait_raw(stream, opened.sync_event()).unwrap();
    let mut seen = vec![0; RANGE];
    t.copies(stream, &[copy((Device::CPU, seen.as_mut_ptr()), (GPU, address), RANGE)]).unwrap();
    assert!(seen == content(BYTES)[OFFSET..OFFSET + RANGE]);
    drop(again);
    t.fill(stream, address, 0x77, RANGE).unwrap();
    // Closed after the fill, which nobody waits for here.
    drop(opened);
    t.stream_destroy(stream);
    backend.settle();
    assert!(backend.leaks().is_empty());
    println!("it has read and written");
}
