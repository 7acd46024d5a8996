//! Tests that bytes that need no conversion are not copied more often than necessary.

use crossdock_memory::Device;
use crossdock_plugin_api::{Options, Selection};
use crossdock_tensors::{NPZ, SAFETENSORS};
use crossdock_test_support::devices;

use crate::{Rig, aligned_tensors, tensors};

const ROWS: usize = 5000;

/// The same table in each format with tensors that need no conversion.
fn files(rig: &Rig) -> Vec<(&'static str, Vec<u8>)> {
    let tensors = aligned_tensors(ROWS);
    let all = Selection::default();
    let (schema, batches) = rig.read(&tensors, (SAFETENSORS, true), Device::CPU, &all).unwrap();
    let npz = rig.write((&schema, &batches), NPZ, &Options::new()).unwrap();
    vec![(SAFETENSORS, tensors), (NPZ, npz)]
}

#[test]
fn aligned_bytes_of_a_mapped_file_are_used_in_place_on_the_cpu() {
    let rig = Rig::new();
    for (format, bytes) in files(&rig) {
        let before = rig.host.backend().ledger();
        let (_, batches) = rig.read(&bytes, (format, true), Device::CPU, &Selection::default()).unwrap();
        assert_eq!(batches[0].len(), ROWS);
        // The ledger of the host records no allocation, no copy and no kernel.
        assert_eq!(rig.host.backend().ledger(), before, "{format}");
    }
}

#[test]
fn bytes_that_are_not_aligned_are_copied_to_aligned_memory() {
    let rig = Rig::new();
    for shift in 0..8 {
        // The header ends with spaces, so the data begins at another address.
        let bytes = tensors();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let (header, data) = bytes[8..].split_at(length);
        let length = (length + shift) as u64;
        let bytes = [&length.to_le_bytes()[..], header, &vec![b' '; shift], data].concat();
        let (_, batches) = rig.read(&bytes, (SAFETENSORS, true), Device::CPU, &Selection::default()).unwrap();
        let [_, wide, short, ..] = batches[0].columns() else { panic!("expected more columns") };
        let wide = wide.buffers()[1].as_ref().unwrap();
        let short = short.children()[0].buffers()[1].as_ref().unwrap();
        assert_eq!((wide.address() % 8, short.address() % 2), (0, 0), "{shift}");
    }
}

#[test]
fn needed_bytes_are_copied_once_to_a_device() {
    let rig = Rig::new();
    let selection = Selection {
        columns: Some(vec![vec!["a".to_owned()], vec!["c".to_owned()]]),
        rows: Some(vec![100..300]),
        ..Selection::default()
    };
    for &device in devices().iter().filter(|device| **device != Device::CPU) {
        for (format, bytes) in files(&rig) {
            for is_mapped in [true, false] {
                let before = rig.host.backend().ledger().copied();
                let (_, batches) = rig.read(&bytes, (format, is_mapped), device, &selection).unwrap();
                assert_eq!((batches[0].len(), batches[0].device()), (200, device));
                let after = rig.host.backend().ledger().copied();
                let what = format!("{format} on {device}, mapped: {is_mapped}");
                assert_eq!(after.host_to_device.bytes - before.host_to_device.bytes, 200 * 25, "{what}");
                let now = [after.host_to_host, after.device_to_device, after.device_to_host];
                assert_eq!(
                    now,
                    [before.host_to_host, before.device_to_device, before.device_to_host],
                    "{what}"
                );
            }
        }
    }
    rig.host.assert_nothing_leaked();
}
