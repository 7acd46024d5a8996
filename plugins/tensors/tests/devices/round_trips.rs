//! Tests that tables are equal after a round trip through each format, on every device.

use crossdock_memory::Device;
use crossdock_plugin_api::{Options, Selection};
use crossdock_tensors::{NPY, NPZ, SAFETENSORS};
use crossdock_test_support::devices;

use crate::{Rig, tensors};

#[test]
fn tables_round_trip_through_every_format() {
    let rig = Rig::new();
    let everything = Selection::default();
    let (schema, expected) = rig.read(&tensors(), (SAFETENSORS, false), Device::CPU, &everything).unwrap();
    assert_eq!((expected.len(), expected[0].len()), (1, 5));
    for &device in devices() {
        let (_, batches) = rig.read(&tensors(), (SAFETENSORS, true), device, &everything).unwrap();
        assert_eq!(batches[0].device(), device);
        rig.assert_equal(&batches[0], &expected[0]);
        let deflate = Options::new().with("compression", "deflate");
        for (format, options) in [(SAFETENSORS, Options::new()), (NPZ, Options::new()), (NPZ, deflate)] {
            let bytes = rig.write((&schema, &batches), format, &options).unwrap();
            for is_mapped in [false, true] {
                let (again, got) = rig.read(&bytes, (format, is_mapped), device, &everything).unwrap();
                assert_eq!(again, schema);
                rig.assert_equal(&got[0], &expected[0]);
            }
        }
    }
    drop(expected);
    rig.host.assert_nothing_leaked();
}

#[test]
fn requested_rows_and_columns_are_those_of_the_whole_table() {
    let rig = Rig::new();
    let (schema, whole) =
        rig.read(&tensors(), (SAFETENSORS, true), Device::CPU, &Selection::default()).unwrap();
    let deflate = Options::new().with("compression", "deflate");
    let npz = rig.write((&schema, &whole), NPZ, &deflate).unwrap();
    let selection = Selection {
        columns: Some(vec![vec!["c".to_owned()], vec!["b".to_owned()]]),
        rows: Some(vec![1..2, 3..u64::MAX]),
        ..Selection::default()
    };
    for &device in devices() {
        for (format, bytes) in [(SAFETENSORS, tensors()), (NPZ, npz.clone())] {
            let (schema, batches) = rig.read(&bytes, (format, true), device, &selection).unwrap();
            assert_eq!(schema.fields().iter().map(|field| field.name()).collect::<Vec<_>>(), ["b", "c"]);
            let expected = whole[0].select(&[1, 2]).unwrap();
            rig.assert_equal(&batches[0], &expected.slice(1, 1).unwrap());
            rig.assert_equal(&batches[1], &expected.slice(3, 2).unwrap());
            assert_eq!(batches.len(), 2);
        }
    }
    drop(whole);
    rig.host.assert_nothing_leaked();
}

#[test]
fn batches_are_joined_to_one_array() {
    let rig = Rig::new();
    let (schema, whole) =
        rig.read(&tensors(), (SAFETENSORS, true), Device::CPU, &Selection::default()).unwrap();
    let only = whole[0].select(&[2]).unwrap();
    let parts: Vec<_> = [(0, 2), (2, 0), (2, 3)].iter().map(|(at, n)| only.slice(*at, *n).unwrap()).collect();
    let bytes = rig.write((only.schema(), &parts), NPY, &Options::new()).unwrap();
    let (_, got) = rig.read(&bytes, (NPY, true), Device::CPU, &Selection::default()).unwrap();
    rig.assert_equal(&got[0].clone().with_schema(only.schema().clone()).unwrap(), &only);
    let error = rig.write((&schema, &whole), NPY, &Options::new()).unwrap_err();
    assert!(error.message().contains("the table has 5 columns"), "{error}");
}
