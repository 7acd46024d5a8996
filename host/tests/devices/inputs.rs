//! Tests of magic numbers at the end, of formats that are read from several inputs, and of URIs.

use std::path::PathBuf;

use crate::common::inputs::{bytes, host, n_open, put};
use crate::common::{mini, temporary};
use crossdock::api::{Code, Device, Options};
use crossdock::source::Input;
use crossdock::{Error, ReadOptions, Scan, ScanOptions, ScanSource, Session, Table};
use crossdock_test_support::devices;

fn session(device: Device) -> Session {
    host().session().device(device).open().unwrap()
}

fn options() -> ScanOptions {
    ScanOptions { prefetch: 0, ..ScanOptions::default() }
}

fn values(table: &Table) -> Vec<i32> {
    let batches = table.to_record_batches().unwrap();
    let column = |batch: &arrow_array::RecordBatch| {
        batch.column(0).as_any().downcast_ref::<arrow_array::Int32Array>().unwrap().values().to_vec()
    };
    batches.iter().flat_map(column).collect()
}

fn of_uris(session: &Session, uris: &[&str]) -> crossdock::Result<Scan> {
    session.scan(ScanSource::Files(uris.iter().map(PathBuf::from).collect()), options())
}

#[test]
fn format_is_recognised_by_its_last_bytes() {
    for device in devices().iter().copied() {
        let session = session(device);
        let of = |bytes: Vec<u8>| {
            let reader = session.read(Input::bytes(bytes), &ReadOptions::default())?;
            Table::from_reader(&session, reader)
        };
        assert_eq!(values(&of(bytes(b"", &[1, -2, 3], b"TAIL")).unwrap()), [1, -2, 3]);
        assert!(values(&of(bytes(b"", &[], b"TAIL")).unwrap()).is_empty());
        let long: Vec<i32> = (0..5000).collect();
        assert_eq!(values(&of(bytes(b"", &long, b"TAIL")).unwrap()), long);
        // Too short, in another place, or beyond the last four bytes.
        for other in [b"TAI".to_vec(), b"AIL".to_vec(), b"TAIL1234".to_vec(), b"TAIL1".to_vec(), Vec::new()] {
            let error = of(other).err().unwrap();
            assert!(matches!(error, Error::Unrecognised(_)), "{error}");
        }
    }
}

#[test]
fn named_format_is_compared_with_the_last_bytes_too() {
    let session = session(Device::CPU);
    let read = ReadOptions { from: Some("parts".into()), ..ReadOptions::default() };
    let error = session.read(Input::bytes(bytes(b"", &[1], b"TAIL")), &read).err().unwrap();
    assert!(error.one_line().contains("are those of tail"), "{error}");
}

#[test]
fn input_of_unknown_length_is_not_recognised_by_its_last_bytes() {
    let (read, write) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut { write }, &bytes(b"", &[1], b"TAIL")).unwrap();
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(read));
    let pipe = crossdock::source::PipeSource::new(file, "a pipe".into(), Default::default());
    let error = session(Device::CPU).read(Input::Pipe(pipe.into()), &ReadOptions::default()).err().unwrap();
    assert!(matches!(error, Error::Unrecognised(_)), "{error}");
}

#[test]
fn format_of_several_inputs_gets_all_of_them_at_once() {
    for device in devices().iter().copied() {
        let session = session(device);
        let folder = temporary();
        let parts: [&[i32]; 3] = [&[1, 2], &[], &[3]];
        let write = |(i, part): (usize, &&[i32])| {
            let path = folder.path().join(i.to_string());
            std::fs::write(&path, bytes(b"PART", part, b"")).unwrap();
            path
        };
        let files: Vec<PathBuf> = parts.iter().enumerate().map(write).collect();
        for prefetch in [0, 2] {
            let options = ScanOptions { prefetch, ..options() };
            let scan = session.scan(ScanSource::Files(files.clone()), options).unwrap();
            for _ in 0..2 {
                assert_eq!(values(&scan.to_table().unwrap()), [1, 2, 3]);
                let batches = scan.batches().unwrap().collect::<Result<Vec<_>, _>>().unwrap();
                assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), 3);
            }
            assert_eq!(values(&scan.head(2).unwrap()), [1, 2]);
        }
        let one = session.read_table(ScanSource::Files(vec![files[2].clone()]), options()).unwrap();
        assert_eq!(values(&one), [3]);
        let host = session.host().clone();
        drop((one, session));
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn format_of_one_input_refuses_several() {
    let session = mini::host().session().open().unwrap();
    let inputs = vec![Input::bytes(mini::bytes(&[1])), Input::bytes(mini::bytes(&[2]))];
    let error = session.read_several(inputs, &ReadOptions::default()).err().unwrap();
    assert!(error.one_line().contains("and 1 further inputs: the format mini is read from one"), "{error}");
    assert!(session.read_several(Vec::new(), &ReadOptions::default()).is_err());
}

#[test]
fn plugin_opens_uris_of_its_schemes() {
    for device in devices().iter().copied() {
        put(&format!("one-{device}"), &bytes(b"", &[1, 2], b"TAIL"), "a");
        put(&format!("two-{device}"), &bytes(b"", &[3], b"TAIL"), "");
        let session = session(device);
        let (one, two) = (format!("mem://one-{device}"), format!("MEM://one-{device}").replace("MEM", "mem"));
        let two = two.replace("one-", "two-");
        let scan = of_uris(&session, &[&one, &two]).unwrap();
        assert_eq!(values(&scan.to_table().unwrap()), [1, 2, 3]);
        let table = session.read_table(ScanSource::Files(vec![one.clone().into()]), options()).unwrap();
        assert_eq!(values(&table), [1, 2]);
        let input = session.open_uri(&one, &Options::new()).unwrap();
        let source = input.shared();
        assert_eq!((source.name(), source.len(), source.version()), (one.as_str(), Some(12), "a"));
        let host = session.host().clone();
        // The source keeps its plugin's instance alive.
        drop((session, scan, table, input));
        let mut all = [0; 20];
        assert_eq!(source.read_at(0, &mut all).unwrap(), 12);
        assert_eq!(source.read_at(12, &mut all).unwrap(), 0);
        assert_eq!(n_open(&format!("one-{device}")), 1);
        drop(source);
        assert_eq!(host.settle(), []);
        assert_eq!(n_open(&format!("one-{device}")) + n_open(&format!("two-{device}")), 0);
    }
}

#[test]
fn errors_of_uris_name_the_plugin_and_no_secret() {
    let session = session(Device::CPU);
    let open = |uri: &str, options: Options| session.open_input(uri, &options).err().unwrap().one_line();
    let none = Options::new;
    assert_eq!(
        open("mem://me:secret@none?secret", none().with("fail", "no answer")),
        "inputs 0.1.0 could not open 'mem://none': no answer"
    );
    assert!(open("mem://none", none().with("x", "1")).contains("has no option 'x'"));
    assert!(
        open("s3://bucket/a", none())
            .contains("no plugin opens s3:// URIs: install the plugin 'object-store'")
    );
    assert!(open("https://u:secret@h/a?secret", none()).starts_with("cannot open 'https://h/a'"));
    let other = open("ftp://host/a", none());
    assert!(other.contains("expected one of the schemes that a plugin opens: mem"), "{other}");
    assert!(open("file:///tmp/a", none()).contains("pass the path without 'file://'"));
    assert!(open("/none/such", none()).contains("No such file"));
    assert!(session.open_uri("/none", &none()).err().unwrap().one_line().contains("expected a URI"));
}

#[test]
fn existing_path_is_a_path_unless_a_plugin_opens_its_scheme() {
    let folder = temporary();
    std::fs::create_dir_all(folder.path().join("mem:")).unwrap();
    std::fs::create_dir_all(folder.path().join("other:")).unwrap();
    for name in ["mem:/file", "other:/file"] {
        std::fs::write(folder.path().join(name), bytes(b"", &[7], b"TAIL")).unwrap();
    }
    // The text of a path is only a URI if it begins with the scheme, so the folder is changed.
    let before = std::env::current_dir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    let session = session(Device::CPU);
    let open = |text: &str| session.open_input(text, &Options::new());
    let results = [open("mem://file"), open("other://file"), open("./mem://file"), open("other://none")];
    let is_uri = ["mem://file", "other://file", "other://none"].map(|text| session.is_uri(text));
    std::env::set_current_dir(before).unwrap();
    let [plugin, path, dot, none] = results.map(|result| result.map(|_| ()).map_err(|e| e.one_line()));
    assert!(plugin.unwrap_err().contains("has no content"));
    assert_eq!((path, dot), (Ok(()), Ok(())));
    assert!(none.unwrap_err().contains("it is no file"));
    assert_eq!(is_uri, [true, false, true]);
}

#[test]
fn storage_options_of_paths_are_refused() {
    let folder = temporary();
    let path = folder.path().join("a.tail");
    std::fs::write(&path, bytes(b"", &[7], b"TAIL")).unwrap();
    let storage = Options::new().with("key", "value");
    let options = ScanOptions { storage, ..options() };
    let error = session(Device::CPU).scan(ScanSource::Files(vec![path]), options).err().unwrap();
    assert!(error.one_line().contains("the storage option 'key' applies only to URIs"), "{error}");
}

#[test]
fn content_that_changes_after_the_scan_was_created_is_an_error() {
    let session = session(Device::CPU);
    let content = bytes(b"", &[1], b"TAIL");
    put("changes", &content, "a");
    put("same", &content, "x");
    let scan = of_uris(&session, &["mem://changes", "mem://same"]).unwrap();
    assert_eq!(values(&scan.to_table().unwrap()), [1, 1]);
    put("changes", &content, "b");
    let error = scan.to_table().err().unwrap().one_line();
    assert_eq!(
        error,
        "'mem://changes' has changed since the scan was created: expected the version a, got b"
    );
    put("changes", &content, "");
    assert_eq!(values(&scan.to_table().unwrap()), [1, 1], "an unknown version is no change");
}

#[test]
fn panic_of_an_opened_source_belongs_to_its_plugin_and_releases_everything() {
    put("panic", &bytes(b"", &[1], b"TAIL"), "");
    let session = session(Device::CPU);
    let storage = Options::new().with("panic", "1");
    // A reader that returned the error of the source must not seem to have panicked itself.
    let source = session.open_uri("mem://panic", &storage).unwrap().shared();
    assert_eq!(source.read_at(0, &mut [0]).unwrap_err().code(), Code::INTERNAL);
    drop(source);
    let scan = |storage| {
        let options = ScanOptions { storage, ..options() };
        session.scan(ScanSource::Files(vec!["mem://panic".into()]), options)?.to_table()
    };
    let error = scan(storage).err().unwrap().one_line();
    assert!(error.contains("inputs 0.1.0: panicked: read_at panics"), "{error}");
    // The session replaces the instance that panicked.
    assert_eq!(values(&scan(Options::new()).unwrap()), [1]);
    let host = session.host().clone();
    drop(session);
    assert_eq!(host.settle(), []);
    assert_eq!(n_open("panic"), 0);
}
