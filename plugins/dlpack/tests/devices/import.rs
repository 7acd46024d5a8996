//! Tests the types and memory of imported columns, and the errors for tensors that cannot be
//! columns.

use crate::common::*;
use arrow_schema::{DataType, Field, Schema};
use crossdock_plugin_api::{Device, Options};
use crossdock_test_support::{TestHost, device_pairs, devices};

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().fold(Options::new(), |options, (key, value)| options.with(*key, *value))
}

#[test]
fn imports_contiguous_tensors_without_copy_and_frees_them_once() {
    let host = TestHost::new();
    let instance = instance(&host);
    for device in devices().iter().copied() {
        for dtype in DTYPES {
            for versioned in [true, false] {
                let bytes: Vec<u8> = (0..48).collect();
                let n = 48 / i64::from(dtype.bits / 8);
                let spec = Spec { versioned, ..Spec::new(&host, device, dtype, &[n], &bytes) };
                let address = spec.data.as_ref().unwrap().0.address();
                let copied = || host.backend().ledger().copied().bytes();
                let before = copied();
                let (schema, batches) =
                    import(&host, &instance, device, vec![spec.capsule()], None, &Options::new()).unwrap();
                assert_eq!(copied(), before, "{dtype:?} was copied");
                assert_eq!((schema.fields().len(), batches.len(), batches[0].len()), (1, 1, n as usize));
                assert_eq!(schema.field(0).name(), "col_0");
                let values = batches[0].columns()[0].buffers()[1].clone().unwrap();
                assert_eq!(values.address(), address, "{dtype:?} is elsewhere");
                assert_eq!(spec.frees(), 0, "freed while it is in use");
                assert_eq!(value_bytes(&host, &batches[0], 0), bytes);
                drop((batches, values));
                assert_eq!(spec.frees(), 1);
            }
        }
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn option_and_schema_select_bool8_or_bits() {
    let host = TestHost::new();
    let instance = instance(&host);
    for device in devices().iter().copied() {
        let spec = || Spec::new(&host, device, BOOL, &[10], &[1, 0, 1, 1, 0, 0, 0, 2, 1, 0]);
        let of = |schema: Option<&Schema>, options: &Options| {
            import(&host, &instance, device, vec![spec().capsule()], schema, options).unwrap()
        };
        let (schema, batches) = of(None, &Options::new());
        assert_eq!(schema.field(0).data_type(), &DataType::Int8);
        assert_eq!(metadata_of(schema.field(0), "ARROW:extension:name"), Some("arrow.bool8"));
        assert_eq!(value_bytes(&host, &batches[0], 0), [1, 0, 1, 1, 0, 0, 0, 2, 1, 0]);
        for (schema, options) in [
            (None, options(&[("bools", "bits")])),
            (Some(Schema::new(vec![Field::new("b", DataType::Boolean, true)])), Options::new()),
        ] {
            let (schema, batches) = of(schema.as_ref(), &options);
            assert_eq!(schema.field(0).data_type(), &DataType::Boolean);
            assert_eq!(value_bytes(&host, &batches[0], 0), [0b1000_1101, 0b01]);
        }
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn applies_strides_and_byte_offset_and_copies_misaligned_tensors() {
    let host = TestHost::new();
    let instance = instance(&host);
    let bytes: Vec<u8> = (0..200).collect();
    for device in devices().iter().copied() {
        let whole = bytes_on(&host, device, &bytes);
        // Each case has the offset of the first element in bytes, the tensor's byte_offset, the
        // number of elements, the stride, and whether the import copies nothing.
        for (at, byte_offset, n, stride, in_place) in [
            (0, 0, 5, 1, true),
            (16, 0, 5, 1, true),
            (16, 16, 5, 1, true),
            (24, 8, 1, 77, true),
            (0, 0, 5, 2, false),
            (32, 32, 5, -1, false),
            (8, 0, 5, 0, false),
            (3, 3, 5, 1, false),
        ] {
            let mut spec = Spec::new(&host, device, INT32, &[n], &[]);
            spec.data = Some((whole.clone(), at));
            spec.byte_offset = byte_offset;
            spec.strides = Some(vec![stride]);
            let (_, batches) =
                import(&host, &instance, device, vec![spec.capsule()], None, &Options::new()).unwrap();
            let values = batches[0].columns()[0].buffers()[1].clone().unwrap();
            assert_eq!(values.address() == whole.address() + at, in_place, "at {at}, stride {stride}");
            let expected: Vec<u8> =
                (0..n).flat_map(|i| bytes[(at as i64 + i * stride * 4) as usize..][..4].to_vec()).collect();
            assert_eq!(value_bytes(&host, &batches[0], 0)[..expected.len()], expected);
        }
        // NULL strides mean row-major order. They are allowed in legacy tensors and in versions
        // before 1.2.
        let spec = Spec { strides: None, ..Spec::new(&host, device, INT32, &[2, 3], &bytes[..24]).legacy() };
        let (_, batches) =
            import(&host, &instance, device, vec![spec.capsule()], None, &Options::new()).unwrap();
        assert_eq!(value_bytes(&host, &batches[0], 0), bytes[..24]);
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn imports_row_and_column_major_tensors_without_copy() {
    let host = TestHost::new();
    let instance = instance(&host);
    let bytes: Vec<u8> = (0..96).collect();
    for device in devices().iter().copied() {
        for (strides, metadata, in_place) in [
            (vec![6, 3, 1], r#"{"shape":[2,3]}"#, true),
            (vec![6, 1, 2], r#"{"shape":[3,2],"permutation":[1,0]}"#, true),
            (vec![1, 4, 8], r#"{"shape":[2,3]}"#, false),
        ] {
            let mut spec = Spec::new(&host, device, INT32, &[4, 2, 3], &bytes);
            spec.strides = Some(strides.clone());
            let address = spec.data.as_ref().unwrap().0.address();
            let (schema, batches) =
                import(&host, &instance, device, vec![spec.capsule()], None, &Options::new()).unwrap();
            let field = schema.field(0);
            let item = Field::new("item", DataType::Int32, true);
            assert_eq!(field.data_type(), &DataType::FixedSizeList(item.into(), 6));
            assert_eq!(metadata_of(field, "ARROW:extension:name"), Some("arrow.fixed_shape_tensor"));
            assert_eq!(metadata_of(field, "ARROW:extension:metadata"), Some(metadata));
            let list = &batches[0].columns()[0];
            assert_eq!((list.len(), list.children()[0].len()), (4, 24));
            let values = list.children()[0].buffers()[1].clone().unwrap();
            assert_eq!(values.address() == address, in_place);
            // The exported tensor must refer to the same memory.
            let out = export(&host, &instance, device, &batches[0], "dlpack", &Options::new()).unwrap();
            assert_eq!(out[0].shape, [4, 2, 3]);
            assert_eq!(out[0].elements(&host, device), elements(&bytes, 0, 4, &[4, 2, 3], &strides));
            assert_eq!(out[0].address, values.address());
        }
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn rejects_tensors_that_do_not_match_names_or_schema() {
    let host = TestHost::new();
    let instance = instance(&host);
    let column = |n: usize| Spec::from_i64(&host, Device::CPU, &vec![7; n]);
    let try_import = |specs: &[&Spec], schema: Option<&Schema>, pairs: &[(&str, &str)]| {
        let capsules = specs.iter().map(|spec| spec.capsule()).collect();
        import(&host, &instance, Device::CPU, capsules, schema, &options(pairs))
    };
    let assert_rejected =
        |specs: &[&Spec], schema: Option<&Schema>, pairs: &[(&str, &str)], parts: &[&str]| {
            let error = try_import(specs, schema, pairs).unwrap_err();
            for part in parts {
                assert!(error.message().contains(part), "{:?} does not contain {part:?}", error.message());
            }
        };
    let (three, four) = (column(3), column(4));
    let (schema, _) = try_import(&[&three, &three], None, &[("names", "a,b")]).unwrap();
    assert_eq!(schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_rejected(&[&three, &three], None, &[("names", "a")], &["1 names for 2 columns"]);
    assert_rejected(&[&three, &four], None, &[], &["'col_1' is 4 rows long, expected 3"]);
    assert_rejected(&[], None, &[], &["0 tensors for 0 columns"]);
    let of = |data_type| Schema::new(vec![Field::new("x", data_type, false)]);
    assert_rejected(
        &[&three],
        Some(&of(DataType::Int32)),
        &[],
        &["'x' is a tensor of int64, expected int32"],
    );
    assert_rejected(
        &[&three],
        Some(&of(DataType::Utf8)),
        &[],
        &["'x' of type string", "numbers and booleans only"],
    );
    assert_rejected(&[&three], Some(&of(DataType::Int64)), &[("names", "a")], &["names and a schema"]);
    assert_rejected(&[&three], None, &[("name", "a")], &["no option 'name'", "names"]);
    assert_rejected(&[&three], None, &[("bools", "x")], &["bools=x: expected bytes or bits"]);
    let pair = Schema::new(vec![Field::new("x", DataType::Int64, false); 2]);
    assert_rejected(&[&three], Some(&pair), &[], &["1 tensors for 2 columns"]);
    let (_, batches) = try_import(&[&three, &three, &four, &four], Some(&pair), &[]).unwrap();
    assert_eq!(batches.iter().map(|batch| batch.len()).collect::<Vec<_>>(), [3, 4]);
    let item = Field::new("item", DataType::Int64, true);
    let list = of(DataType::FixedSizeList(item.into(), 2));
    assert_rejected(&[&three], Some(&list), &[], &["shape [3], expected [3, 2]"]);
    let bytes: Vec<u8> = (0..48).collect();
    let matrix = Spec::new(&host, Device::CPU, INT64, &[3, 2], &bytes);
    let (_, batches) = try_import(&[&matrix], Some(&list), &[]).unwrap();
    assert_eq!(value_bytes(&host, &batches[0], 0), bytes);
    drop(batches);
    // The deleters of rejected tensors must have been called too.
    assert!(three.frees() > 10);
}

#[test]
fn imports_masks_as_nulls() {
    let host = TestHost::new();
    let instance = instance(&host);
    for device in devices().iter().copied() {
        let values = Spec::from_i64(&host, device, &[1, 2, 3, 4]);
        let mask = Spec::new(&host, device, BOOL, &[4], &[0, 1, 0, 1]);
        let both = || vec![values.capsule(), mask.capsule()];
        let masked = options(&[("nulls", "mask")]);
        let (schema, batches) = import(&host, &instance, device, both(), None, &masked).unwrap();
        assert!(schema.field(0).is_nullable());
        let column = &batches[0].columns()[0];
        assert_eq!(column.count_nulls(&host.stream(device)).unwrap(), 2);
        let validity = column.buffers()[0].clone().unwrap();
        assert_eq!(validity.host_view(&host.stream(device)).unwrap()[0], 0b0101);
        // The nulls can be exported only with masks.
        let out = export(&host, &instance, device, &batches[0], "dlpack", &masked).unwrap();
        assert_eq!(out[1].elements(&host, device), [0, 1, 0, 1]);
        let error = export(&host, &instance, device, &batches[0], "dlpack", &Options::new()).err().unwrap();
        assert!(error.message().contains("column 'col_0': 2 of 4 rows are null"), "{}", error.message());

        let strict = Schema::new(vec![Field::new("x", DataType::Int64, false)]);
        let error = import(&host, &instance, device, both(), Some(&strict), &masked).unwrap_err();
        assert!(error.message().contains("'x': the mask marks 2 rows as null"), "{}", error.message());
        let error = import(&host, &instance, device, vec![values.capsule()], None, &masked).unwrap_err();
        assert!(error.message().contains("an even number"), "{}", error.message());
        let twice = vec![values.capsule(), values.capsule()];
        let error = import(&host, &instance, device, twice, None, &masked).unwrap_err();
        assert!(error.message().contains("expected bool of shape [4]"), "{}", error.message());
    }
    drop(instance);
    host.assert_nothing_leaked();
}

#[test]
fn copies_tensors_to_the_device_of_the_call() {
    let host = TestHost::new();
    let instance = instance(&host);
    for (from, to) in device_pairs().into_iter().filter(|(from, to)| from != to) {
        let spec = Spec::from_i64(&host, from, &[5, 6, 7]);
        let (_, batches) = import(&host, &instance, to, vec![spec.capsule()], None, &Options::new()).unwrap();
        assert_eq!(batches[0].device(), to);
        let bytes: Vec<u8> = [5i64, 6, 7].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(value_bytes(&host, &batches[0], 0)[..24], bytes);
        host.backend().settle();
        assert_eq!(spec.frees(), 1, "a copied tensor is freed");
    }
}
