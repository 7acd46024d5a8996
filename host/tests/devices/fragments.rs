//! Tests of fragments and of the rows of several files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::parts::{bytes, host, host_with, statistics};
use crate::common::{mini, temporary};
use crossdock::api::Device;
use crossdock::source::Input;
use crossdock::{Error, Fragment, Predicate, ReadOptions, Scan, ScanOptions, ScanSource, Session};
use crossdock_arrays::DeviceBatch;
use crossdock_test_support::{Random, devices};

fn session(device: Device) -> Session {
    host().session().device(device).open().unwrap()
}

fn write(folder: &Path, name: &str, content: Vec<u8>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn part(folder: &Path, name: &str, values: std::ops::Range<i32>) -> PathBuf {
    write(folder, name, bytes(b"PART", &values.collect::<Vec<_>>()))
}

/// Files with the values 0 to 9, none, 10 to 13, and 14 to 31.
fn files(folder: &Path) -> Vec<PathBuf> {
    let ranges = [0..10, 10..10, 10..14, 14..32];
    ranges.into_iter().enumerate().map(|(i, range)| part(folder, &i.to_string(), range)).collect()
}

fn values(session: &Session, batch: &DeviceBatch) -> Vec<i32> {
    let host = batch.move_to(session.stream(), Device::CPU).unwrap();
    let column = host.column(0).unwrap();
    let buffer = column.buffers()[1].clone().unwrap();
    let view = buffer.host_view(session.stream()).unwrap();
    let values = view.chunks_exact(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()));
    values.skip(column.offset()).take(column.len()).collect()
}

fn all(scan: &Scan) -> Vec<i32> {
    scan.batches().unwrap().flat_map(|batch| values(scan.session(), &batch.unwrap())).collect()
}

fn scan_of(session: &Session, source: ScanSource, read: ReadOptions) -> Scan {
    session.scan(source, ScanOptions { read, prefetch: 0, ..ScanOptions::default() }).unwrap()
}

fn of_file(session: &Session, path: &Path) -> Vec<Fragment> {
    scan_of(session, ScanSource::Files(vec![path.into()]), ReadOptions::default()).fragments().unwrap()
}

/// Opens a token as a file in a session.
fn open(session: &Session, path: &Path, token: &[u8]) -> crossdock::Result<Scan> {
    let read = ReadOptions { fragment: Some(Arc::from(token)), ..ReadOptions::default() };
    session.scan(ScanSource::Files(vec![path.into()]), ScanOptions { read, ..ScanOptions::default() })
}

#[test]
fn fragments_contain_each_row_once_and_open_in_another_session() {
    let folder = temporary();
    let files = files(folder.path());
    for device in devices().iter().copied() {
        let (session, other) = (session(device), session(device));
        let fragments =
            scan_of(&session, ScanSource::Files(files.clone()), ReadOptions::default()).fragments().unwrap();
        let rows: Vec<_> = fragments.iter().map(|fragment| fragment.n_rows().unwrap()).collect();
        assert_eq!(rows, [4, 4, 2, 4, 4, 4, 4, 4, 2]);
        assert_eq!(
            fragments.iter().map(Fragment::bytes).collect::<Vec<_>>(),
            [16, 16, 8, 16, 16, 16, 16, 16, 8]
        );
        let mut next = 0;
        for fragment in &fragments {
            let expected: Vec<_> = (next..next + fragment.n_rows().unwrap() as i32).collect();
            assert_eq!(all(&fragment.scan().unwrap()), expected, "{device}");
            let scan = fragment.scan_in(&other).unwrap();
            assert_eq!((scan.n_rows(), all(&scan)), (fragment.n_rows(), expected.clone()));
            let ScanSource::Files(path) = fragment.source() else { panic!("expected a file") };
            assert_eq!(all(&open(&other, &path[0], fragment.token()).unwrap()), expected);
            let statistics_batch = fragment.statistics().unwrap().to_record_batches().unwrap();
            assert_eq!(statistics_batch, [statistics(expected.len() as i64, next)]);
            next += expected.len() as i32;
        }
        assert_eq!(next, 32);
        let hosts = [session.host().clone(), other.host().clone()];
        drop((fragments, session, other));
        assert!(hosts.iter().all(|host| host.settle().is_empty()));
    }
}

#[test]
fn rows_and_limit_apply_to_the_fragments_of_all_files_together() {
    let folder = temporary();
    let files = files(folder.path());
    let session = session(Device::CPU);
    let mut random = Random::new(3);
    for _ in 0..200 {
        let mut ends: Vec<_> = (0..2 * random.below(5)).map(|_| random.below(40) as u64).collect();
        ends.sort_unstable();
        let rows: Vec<_> = ends.chunks(2).map(|pair| pair[0]..pair[1]).collect();
        let limit = Some(random.below(40) as u64).filter(|_| random.one_in(2));
        let read = ReadOptions { rows: Some(rows.clone()), limit, ..ReadOptions::default() };
        let selected = rows.iter().cloned().flatten().filter(|row| *row < 32).map(|row| row as i32);
        let expected: Vec<_> = selected.take(limit.unwrap_or(u64::MAX) as usize).collect();
        let scan = scan_of(&session, ScanSource::Files(files.clone()), read);
        assert_eq!(all(&scan), expected, "{rows:?} {limit:?}");
        let fragments = scan.fragments().unwrap();
        let parts: Vec<_> = fragments.iter().map(|fragment| all(&fragment.scan().unwrap())).collect();
        assert_eq!(parts.concat(), expected, "{rows:?} {limit:?}");
        for (fragment, part) in fragments.iter().zip(&parts) {
            assert_eq!(fragment.n_rows(), Some(part.len() as u64));
            assert!(!part.is_empty(), "{rows:?} {limit:?}");
            // The rows of a fragment's scan are positions in the fragment.
            let ScanSource::Files(path) = fragment.source() else { panic!("expected a file") };
            let read = ReadOptions { rows: Some(vec![1..3]), ..fragment.options().read.clone() };
            let scan = scan_of(&session, ScanSource::Files(path.clone()), read);
            assert_eq!(all(&scan), part[1.min(part.len())..3.min(part.len())]);
            let nested = scan.fragments().unwrap();
            assert_eq!(
                nested.iter().flat_map(|nested| all(&nested.scan().unwrap())).collect::<Vec<_>>(),
                all(&scan)
            );
        }
    }
}

#[test]
fn input_without_row_counts_is_one_fragment() {
    let folder = temporary();
    let session = session(Device::CPU);
    let values: Vec<_> = (0..10).collect();
    let lonely = write(folder.path(), "lonely", bytes(b"LONE", &values));
    let mini = write(folder.path(), "mini", mini::bytes(&values));
    for path in [&lonely, &mini] {
        for (rows, expected) in [(None, values.clone()), (Some(vec![1..2, 8..20]), vec![1, 8, 9])] {
            let read = ReadOptions { rows, ..ReadOptions::default() };
            let scan = scan_of(&session, ScanSource::Files(vec![path.clone()]), read.clone());
            let fragments = scan.fragments().unwrap();
            assert_eq!((fragments.len(), fragments[0].n_rows()), (1, None));
            assert_eq!(all(&fragments[0].scan().unwrap()), expected);
            let both = ScanSource::Files(vec![path.clone(), path.clone()]);
            let result = scan_of(&session, both, read.clone()).fragments();
            match read.rows {
                None => assert_eq!(result.unwrap().len(), 2),
                Some(_) => {
                    let error = result.err().unwrap();
                    assert!(matches!(error, Error::Usage(_)), "{error:?}");
                    assert!(error.to_string().contains("unknown number of rows"), "{error}");
                }
            }
        }
    }
    let pipe = ScanSource::Input(Input::bytes(bytes(b"PART", &values)));
    assert_eq!(scan_of(&session, pipe, ReadOptions::default()).fragments().unwrap().len(), 3);
}

#[test]
fn files_without_requested_rows_are_not_read() {
    let folder = temporary();
    let files = [
        write(folder.path(), "first", bytes(b"PART", &[-1, -1, -1])),
        part(folder.path(), "second", 0..10),
        write(folder.path(), "third", bytes(b"PART", &[-1])),
        part(folder.path(), "fourth", 10..12),
        // This file is not even opened.
        folder.path().join("missing"),
    ];
    for device in devices().iter().copied() {
        let session = session(device);
        let read = ReadOptions { rows: Some(vec![4..6, 12..13, 14..15]), ..ReadOptions::default() };
        let scan = scan_of(&session, ScanSource::Files(files.to_vec()), read);
        assert_eq!(all(&scan), [1, 2, 9, 10]);
        assert_eq!(scan.head(3).unwrap().rows(), 3);
        let fragments = scan.fragments().unwrap();
        assert_eq!(
            fragments.iter().flat_map(|part| all(&part.scan().unwrap())).collect::<Vec<_>>(),
            [1, 2, 9, 10]
        );
    }
}

#[test]
fn number_of_rows_is_known_also_if_rows_are_requested() {
    let folder = temporary();
    let path = part(folder.path(), "a", 0..10);
    let session = session(Device::CPU);
    let n_rows = |path: &Path, rows| {
        let read = ReadOptions { rows, ..ReadOptions::default() };
        scan_of(&session, ScanSource::Files(vec![path.into()]), read).n_rows()
    };
    assert_eq!(n_rows(&path, None), Some(10));
    assert_eq!(n_rows(&path, Some(vec![2..4, 8..100])), Some(4));
    assert_eq!(n_rows(&path, Some(Vec::new())), Some(0));
    let lonely = write(folder.path(), "lonely", bytes(b"LONE", &[1]));
    assert_eq!(n_rows(&lonely, None), None);
}

#[test]
fn token_of_another_or_a_changed_input_is_an_error() {
    let folder = temporary();
    let session = session(Device::CPU);
    let path = part(folder.path(), "a", 0..10);
    let same = part(folder.path(), "b", 0..10);
    let token = of_file(&session, &path)[1].token().to_vec();
    assert_eq!(all(&open(&session, &path, &token).unwrap()), [4, 5, 6, 7]);
    let data = |result: crossdock::Result<Scan>| match result.err().unwrap() {
        error @ Error::Data { .. } => error.one_line(),
        error => panic!("{error:?}"),
    };
    let message = data(open(&session, &same, &token));
    assert!(message.contains("'") && message.contains("another input"), "{message}");
    // A write of the same length.
    std::thread::sleep(std::time::Duration::from_millis(20));
    part(folder.path(), "a", 10..20);
    let message = data(open(&session, &path, &token));
    assert!(message.contains("has changed"), "{message}");
    // Bytes in memory.
    let source = |values| ScanSource::Input(Input::bytes(bytes(b"PART", values)));
    let fragment =
        &scan_of(&session, source(&[1, 2, 3, 4, 5]), ReadOptions::default()).fragments().unwrap()[1];
    let again = |values| session.scan(source(values), fragment.options().clone());
    assert_eq!(all(&again(&[1, 2, 3, 4, 5]).unwrap()), [5]);
    data(again(&[1, 2, 3, 4, 6]));
    data(again(&[1, 2, 3, 4, 5, 6]));
}

#[test]
fn token_of_another_plugin_version_is_a_usage_error() {
    let folder = temporary();
    let session = session(Device::CPU);
    let path = part(folder.path(), "a", 0..10);
    let token = of_file(&session, &path)[0].token().to_vec();
    let newer = host_with("1.1.0").session().open().unwrap();
    let error = open(&newer, &path, &token).err().unwrap();
    assert!(matches!(&error, Error::Usage(_)), "{error:?}");
    assert!(
        error.to_string().contains("parts 1.0.0") && error.to_string().contains("parts 1.1.0"),
        "{error}"
    );
}

#[test]
fn changed_tokens_never_panic_and_never_read_other_rows() {
    let folder = temporary();
    let session = session(Device::CPU);
    let path = part(folder.path(), "a", 0..10);
    let fragments = of_file(&session, &path);
    let mut random = Random::new(11);
    for i in 0..3000 {
        let token = random.pick(&fragments).token().to_vec();
        let mut changed = token.clone();
        let n = 1 + random.below(100);
        match i % 4 {
            0 => changed.truncate(random.below(token.len())),
            1 => changed = random.bytes(n),
            2 => changed.extend(random.bytes(n)),
            _ => {
                let at = random.below(token.len());
                changed[at] ^= 1 << random.below(8);
            }
        }
        assert!(matches!(open(&session, &path, &changed), Err(Error::Usage(_))), "{changed:?}");
    }
}

#[test]
fn fragment_of_several_files_is_a_usage_error() {
    let folder = temporary();
    let session = session(Device::CPU);
    let files = files(folder.path());
    let fragment = &of_file(&session, &files[0])[0];
    let error = session.scan(ScanSource::Files(files), fragment.options().clone()).err().unwrap();
    assert!(matches!(&error, Error::Usage(text) if text.contains("expected one file")), "{error:?}");
}

#[test]
fn fragments_of_a_scan_with_a_filter_have_the_filter() {
    let folder = temporary();
    let filter = vec![Predicate::parse("v < 12").unwrap()];
    let files = files(folder.path());
    for device in devices().iter().copied() {
        let session = session(device);
        for rows in [None, Some(vec![3..5, 9..20])] {
            let read = ReadOptions { rows: rows.clone(), filter: filter.clone(), ..ReadOptions::default() };
            let scan = scan_of(&session, ScanSource::Files(files.clone()), read.clone());
            let expected: Vec<_> = match &rows {
                None => (0..12).collect(),
                Some(_) => vec![3, 4, 9, 10, 11],
            };
            assert_eq!(all(&scan), expected);
            let fragments = scan.fragments().unwrap();
            assert!(fragments.iter().all(|fragment| fragment.n_rows().is_none()));
            assert_eq!(
                fragments.iter().flat_map(|part| all(&part.scan().unwrap())).collect::<Vec<_>>(),
                expected
            );
            let limited = ReadOptions { limit: Some(4), ..read };
            let scan = scan_of(&session, ScanSource::Files(files.clone()), limited);
            assert_eq!(all(&scan), expected[..4]);
            let error = scan.fragments().err().unwrap();
            assert!(
                matches!(&error, Error::Usage(text) if text.contains("a filter and a limit")),
                "{error:?}"
            );
        }
    }
}
