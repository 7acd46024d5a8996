//! Every allocation fails once: the host's, which faults make fail, and the plugin's own, in a build of its own.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use crossdock_memory_backend::{Faults, Operation};
use crossdock_tests::{assert_nothing_left, command, csv_plugin_with};

use crate::csv::bench::Bench;
use crate::csv::tables::{batch, columns};

/// Reads all of a text, and writes it again.
fn there_and_back(bench: &Bench, table: &RecordBatch, text: &str) -> Result<String, String> {
    let read = bench.read_with(text.as_bytes(), &table.schema(), &[])?;
    bench.write(&read.batches, &[])
}

#[test]
fn every_failure_of_the_host_s_memory_is_an_error_and_leaks_nothing() {
    let faults = Faults::new();
    let bench = Bench::with_faults(faults.clone());
    let table = batch(&columns());
    let text = bench.write(std::slice::from_ref(&table), &[]).unwrap();
    let before = faults.seen(Operation::Allocate);
    assert_eq!(there_and_back(&bench, &table, &text).unwrap(), text);
    let occurrences = faults.seen(Operation::Allocate) - before;
    assert!(occurrences > 12, "{occurrences} allocations");
    let live = bench.host.ledger().live_bytes();
    let mut failed = 0;
    for nth in 1..=occurrences {
        faults.fail(Operation::Allocate, nth);
        let result = there_and_back(&bench, &table, &text);
        faults.fail(Operation::Allocate, 0);
        // A pool that had something to give back has a second try. Some allocations are the host's own, who validates.
        if let Err(error) = result {
            failed += 1;
            assert!(error.contains("set to fail by the fault plan"), "{nth}: {error}");
            assert_eq!(error.lines().count(), 1, "{nth}: {error}");
        }
        assert_eq!(bench.host.ledger().live_bytes(), live, "allocation {nth}");
    }
    assert!(failed > 8, "{failed} of {occurrences} failures came up");
    assert_eq!(there_and_back(&bench, &table, &text).unwrap(), text);
    bench.end();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_failure_of_the_plugin_s_own_memory_is_an_error_and_leaks_nothing() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/failing_malloc.h");
    let plugin = csv_plugin_with("csv-plugin-failing", &format!("-include {}", text(&header)));
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
    std::fs::write(&input, "a,b,c\n1,x,2013-01-31T10:00Z\n2,,\n").unwrap();
    for step in 1..1000 {
        let out = command(&["convert", text(&input), text(&output), "--plugins", text(&plugin), "--quiet"])
            .env("CROSSDOCK_TEST_FAIL_MALLOC", step.to_string())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(!stderr.contains("still alive") && !stderr.contains("not given back"), "{step}: {stderr}");
        assert!(stderr.contains("allocations were asked for"), "{step}: the build counts nothing: {stderr}");
        match out.status.code() {
            Some(0) => {
                assert!(step > 15, "only {step} allocations");
                return;
            }
            Some(1 | 2) => assert_nothing_left(&output),
            _ => panic!("{step}: {:?}: {stderr}", out.status),
        }
    }
    panic!("it never came to an end without a failure");
}

#[test]
fn batches_outlive_the_session_and_the_host() {
    let bench = Bench::new();
    let backend = bench.host.backend().clone();
    let read = bench.read("a,b\n1,x\n2,\n", &[]).unwrap();
    let column = read.batch().column(1).clone();
    drop(bench);
    assert_eq!(read.batch().num_rows(), 2);
    drop(read);
    assert_eq!(arrow_array::cast::AsArray::as_string::<i32>(&*column).value(0), "x");
    assert!(!backend.leaks().is_empty(), "the column's memory is the host's");
    drop(column);
    assert_eq!(backend.leaks(), []);
}

#[test]
fn threads_share_an_instance() {
    let bench = Arc::new(Bench::new());
    let table = batch(&columns());
    let text = bench.write(std::slice::from_ref(&table), &[]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..20).for_each(|_| assert_eq!(there_and_back(&bench, &table, &text).unwrap(), text))
            });
        }
    });
    Arc::into_inner(bench).unwrap().end();
}
