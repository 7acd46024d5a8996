//! Tests plugins in C++: `examples/cpp-plugin`, and a plugin that throws exceptions.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, Int32Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType, Field};
use crossdock::discovery::Search;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Session, Table, WriteOptions};
use crossdock_plugin_api::{Code, Options};
use crossdock_tests::vecs_plugin;

use crate::csv::fixture::error_chain;

fn session(plugin: &Path) -> (Host, Session) {
    let host = Host::builder().search(Search::nowhere().with_path(plugin)).build().unwrap();
    let session = host.session().open().unwrap();
    (host, session)
}

fn read(session: &Session, format: &str, bytes: &[u8], options: &[(&str, &str)]) -> crossdock::Result<Table> {
    let read = ReadOptions { from: Some(format.into()), options: pairs(options), ..ReadOptions::default() };
    Table::from_reader(session, session.read(Input::bytes(bytes.to_vec()), &read)?)
}

fn write(session: &Session, format: &str, batches: &[RecordBatch]) -> crossdock::Result<Vec<u8>> {
    let table = Table::from_record_batches(session, batches[0].schema(), batches)?;
    let sink = VecSink::new();
    let options = WriteOptions { to: Some(format.into()), ..WriteOptions::default() };
    table.write_to(Output::Memory(sink.clone()), &options)?;
    Ok(sink.take())
}

fn message(error: &crossdock::Error) -> String {
    error_chain(error)
}

fn pairs(options: &[(&str, &str)]) -> Options {
    options.iter().fold(Options::new(), |all, (key, value)| all.with(*key, *value))
}

/// The rows of a file: the dimension and the elements of each.
fn file<const N: usize>(rows: &[(i32, &[[u8; N]])]) -> Vec<u8> {
    let row = |(dimension, elements): &(i32, &[[u8; N]])| {
        [&dimension.to_le_bytes(), elements.as_flattened()].concat()
    };
    rows.iter().flat_map(row).collect()
}

fn vectors(items: ArrayRef, dimension: i32) -> RecordBatch {
    let field = Field::new("item", items.data_type().clone(), false);
    let lists = FixedSizeListArray::new(Arc::new(field), dimension, items, None);
    RecordBatch::try_from_iter([("vector", Arc::new(lists) as ArrayRef)]).unwrap()
}

#[test]
fn vectors_of_every_format_are_read_and_written_unchanged() {
    let Some(plugin) = vecs_plugin("vectors_of_every_format") else { return };
    let (host, session) = session(&plugin);
    let floats = [0.5_f32, -1.0, f32::MAX, 0.0, 2.5, -0.0];
    let ints = [1_i32, -2, i32::MAX, i32::MIN, 5, 6];
    let rows_of = |elements: &[[u8; 4]]| file(&[(3, &elements[..3]), (3, &elements[3..])]);
    for (format, bytes, items) in [
        (
            "fvecs",
            rows_of(&floats.map(f32::to_le_bytes)),
            Arc::new(Float32Array::from(floats.to_vec())) as ArrayRef,
        ),
        ("ivecs", rows_of(&ints.map(i32::to_le_bytes)), Arc::new(Int32Array::from(ints.to_vec()))),
        (
            "bvecs",
            file(&[(3, &[[1], [2], [255]]), (3, &[[0], [9], [8]])]),
            Arc::new(UInt8Array::from(vec![1, 2, 255, 0, 9, 8])),
        ),
    ] {
        let expected = vectors(items, 3);
        let read = read(&session, format, &bytes, &[]).unwrap().to_record_batches().unwrap();
        assert_eq!(read, std::slice::from_ref(&expected), "{format}");
        assert_eq!(write(&session, format, &read).unwrap(), bytes, "{format}");
        // The writer begins at the offset of a slice.
        let row_bytes = bytes.len() / 2;
        assert_eq!(write(&session, format, &[expected.slice(1, 1)]).unwrap(), bytes[row_bytes..], "{format}");
    }
    let named = read(&session, "bvecs", &file(&[(1, &[[7]])]), &[("name", "code")]).unwrap();
    assert_eq!(named.schema().field(0).name(), "code");
    drop((named, session));
    assert_eq!(host.settle(), []);
}

#[test]
fn many_vectors_are_read_in_batches() {
    let Some(plugin) = vecs_plugin("many_vectors_are_read_in_batches") else { return };
    let (_host, session) = session(&plugin);
    let numbers: Vec<i32> = (0..30_000).collect();
    let bytes: Vec<u8> =
        numbers.chunks(3).flat_map(|row| [3, row[0], row[1], row[2]]).flat_map(i32::to_le_bytes).collect();
    let read_options = ReadOptions { from: Some("ivecs".into()), batch_rows: 999, ..ReadOptions::default() };
    let reader = session.read(Input::bytes(bytes), &read_options).unwrap();
    let batches = Table::from_reader(&session, reader).unwrap().to_record_batches().unwrap();
    assert!(batches.len() > 10 && batches.iter().all(|batch| batch.num_rows() <= 999));
    let values = batches.iter().flat_map(|batch| {
        let lists = batch.column(0).as_any().downcast_ref::<FixedSizeListArray>().unwrap().clone();
        lists.values().as_any().downcast_ref::<Int32Array>().unwrap().values().to_vec()
    });
    assert_eq!(values.collect::<Vec<_>>(), numbers);
}

#[test]
fn malformed_vectors_are_rejected() {
    let Some(plugin) = vecs_plugin("malformed_vectors_are_rejected") else { return };
    let (host, session) = session(&plugin);
    let two = file(&[(2, &[[1], [2]]), (2, &[[3], [4]])]);
    let long = file::<1>(&[((1 << 24) + 1, &[])]);
    for (bytes, expected) in [
        (&b""[..], "the file is empty"),
        (&[2, 0], "row 0 is not complete: the input ends at byte 2"),
        (&two[..11], "the size is 11 bytes, expected a multiple of the 6 bytes"),
        (&file::<1>(&[(0, &[])]), "row 0 has the dimension 0, expected 1 to 16777216"),
        (&file(&[(-1, &[[1]])]), "row 0 has the dimension -1"),
        (&long, "row 0 has the dimension 16777217"),
        (
            &file(&[(2, &[[1], [2]]), (3, &[[3], [4]])]),
            "row 1 has the dimension 3, expected 2 as in the first row",
        ),
    ] {
        let error = read(&session, "bvecs", bytes, &[]).err().unwrap();
        assert!(message(&error).contains(expected), "{bytes:?}: {}", message(&error));
    }
    let error = read(&session, "bvecs", &two, &[("colour", "red")]).err().unwrap();
    assert!(message(&error).contains("bvecs has no option 'colour'; it has name"), "{}", message(&error));
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn tables_that_the_format_cannot_store_are_rejected() {
    let Some(plugin) = vecs_plugin("tables_that_the_format_cannot_store_are_rejected") else { return };
    let (_host, session) = session(&plugin);
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let one = vectors(ints.clone(), 2);
    let two =
        RecordBatch::try_from_iter([("a", one.column(0).clone()), ("b", one.column(0).clone())]).unwrap();
    let field = Arc::new(Field::new("item", DataType::Int32, true));
    let with_null: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let lists = |items: ArrayRef, nulls: Option<Vec<bool>>| {
        let lists = FixedSizeListArray::new(field.clone(), 1, items, nulls.map(Into::into));
        RecordBatch::try_from_iter([("vector", Arc::new(lists) as ArrayRef)]).unwrap()
    };
    for (format, batch, expected) in [
        ("fvecs", one.clone(), "column 'vector': the format stores lists of 1 to 16777216 values of float32"),
        (
            "ivecs",
            RecordBatch::try_from_iter([("a", ints.clone())]).unwrap(),
            "column 'a': the format stores lists",
        ),
        ("ivecs", two, "the table has 2: choose one column"),
        ("ivecs", lists(with_null, None), "an element in row 1 is null"),
        ("ivecs", lists(ints, Some(vec![true, false])), "the vector in row 1 is null"),
    ] {
        let error = write(&session, format, &[batch]).unwrap_err();
        assert!(message(&error).contains(expected), "{}", message(&error));
    }
}

/// Compiles the plugin that throws exceptions; `None` if no C++ compiler is installed.
fn throwing_plugin(folder: &Path) -> Option<std::path::PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let plugin = folder.join("libcrossdock_throwing_plugin.so");
    let mut cxx = Command::new("c++");
    cxx.args([
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-fPIC",
        "-fvisibility=hidden",
        "-shared",
        "-I",
    ]);
    cxx.arg(root.join("../../plugin-api/include")).arg("-o").arg(&plugin);
    match cxx.arg(root.join("tests/cpu/cpp_plugin/throwing.cpp")).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        Err(_) => return None,
    }
    Some(plugin)
}

#[test]
fn exceptions_become_errors_at_every_function() {
    let folder = tempfile::tempdir().unwrap();
    let Some(plugin) = throwing_plugin(folder.path()) else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: exceptions_become_errors_at_every_function: no C++ compiler"
        );
        return;
    };
    let batch = RecordBatch::try_from_iter([("a", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]).unwrap();
    for function in ["open", "schema", "next", "begin", "write", "finish"] {
        for (what, kind, expected) in [
            ("error", Code::BAD_DATA, "a bad byte"),
            ("standard", Code::PANICKED, "a C++ exception was caught: a broken invariant"),
            ("memory", Code::OUT_OF_MEMORY, "there is no memory left"),
            ("other", Code::PANICKED, "a C++ exception of an unknown type was caught"),
        ] {
            // After a panic, an instance accepts only releases, so each case has its own.
            let (host, session) = session(&plugin);
            let options = [("throw", what), ("in", function)];
            let error = if ["open", "schema", "next"].contains(&function) {
                read(&session, "throwing", b"", &options).err().unwrap()
            } else {
                let table =
                    Table::from_record_batches(&session, batch.schema(), std::slice::from_ref(&batch))
                        .unwrap();
                let options = WriteOptions { to: Some("throwing".into()), options: pairs(&options) };
                table.write_to(Output::Memory(VecSink::new()), &options).unwrap_err()
            };
            assert_eq!(error.code(), kind, "{function} {what}: {}", message(&error));
            assert!(message(&error).contains(expected), "{function} {what}: {}", message(&error));
            drop(session);
            assert_eq!(host.settle(), [], "{function} {what}");
        }
    }
}
