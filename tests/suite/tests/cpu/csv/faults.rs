//! Makes every allocation fail once. Fault injection makes allocations of the host fail, and a
//! special build of the plugin makes allocations of the plugin fail.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use crossdock_memory_backend::{Faults, Operation};
use crossdock_tests::{assert_nothing_left, command, csv_plugin_with};

use crate::csv::fixture::Fixture;
use crate::csv::tables::{batch, columns};

/// Reads a CSV text, and writes the table as CSV.
fn round_trip(fixture: &Fixture, table: &RecordBatch, text: &str) -> Result<String, String> {
    let read = fixture.read_with(text.as_bytes(), &table.schema(), &[])?;
    fixture.write(&read.batches, &[])
}

#[test]
fn every_failed_host_allocation_is_an_error_without_leaks() {
    let faults = Faults::new();
    let fixture = Fixture::with_faults(faults.clone());
    let table = batch(&columns());
    let text = fixture.write(std::slice::from_ref(&table), &[]).unwrap();
    let before = faults.count(Operation::Allocate);
    assert_eq!(round_trip(&fixture, &table, &text).unwrap(), text);
    let occurrences = faults.count(Operation::Allocate) - before;
    assert!(occurrences > 12, "{occurrences} allocations");
    let live = fixture.host.ledger().live_bytes();
    let mut failed = 0;
    for nth in 1..=occurrences {
        faults.fail(Operation::Allocate, nth);
        let result = round_trip(&fixture, &table, &text);
        faults.fail(Operation::Allocate, 0);
        // A run may succeed, because a pool with cached memory repeats a failed allocation once.
        if let Err(error) = result {
            failed += 1;
            assert!(error.contains("set to fail by the fault plan"), "{nth}: {error}");
            assert_eq!(error.lines().count(), 1, "{nth}: {error}");
        }
        assert_eq!(fixture.host.ledger().live_bytes(), live, "allocation {nth}");
    }
    assert!(failed > 8, "{failed} of {occurrences} failures were errors");
    assert_eq!(round_trip(&fixture, &table, &text).unwrap(), text);
    fixture.assert_settled();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_failed_plugin_allocation_is_an_error_without_leaks() {
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
        assert!(!stderr.contains("still alive") && !stderr.contains("memory leak: "), "{step}: {stderr}");
        assert!(
            stderr.contains("allocations were requested"),
            "{step}: the build does not count allocations: {stderr}"
        );
        let requested = stderr
            .split(" allocations were requested")
            .next()
            .and_then(|before| before.lines().last().and_then(|count| count.parse::<u32>().ok()));
        match out.status.code() {
            // The plugin was refused when it was created, and another plugin has this format.
            Some(0) if requested.is_some_and(|requested| requested >= step) => {
                std::fs::remove_file(&output).unwrap();
            }
            Some(0) => {
                assert!(step > 15, "only {step} allocations");
                return;
            }
            Some(1 | 2) => assert_nothing_left(&output),
            _ => panic!("{step}: {:?}: {stderr}", out.status),
        }
    }
    panic!("more than 1000 allocations");
}

#[test]
fn batches_outlive_the_session_and_the_host() {
    let fixture = Fixture::new();
    let backend = fixture.host.backend().clone();
    let read = fixture.read("a,b\n1,x\n2,\n", &[]).unwrap();
    let column = read.batch().column(1).clone();
    drop(fixture);
    assert_eq!(read.batch().num_rows(), 2);
    drop(read);
    assert_eq!(arrow_array::cast::AsArray::as_string::<i32>(&*column).value(0), "x");
    assert!(!backend.leaks().is_empty(), "the host's memory of the column is alive");
    drop(column);
    assert_eq!(backend.leaks(), []);
}

#[test]
fn threads_share_an_instance() {
    let fixture = Arc::new(Fixture::new());
    let table = batch(&columns());
    let text = fixture.write(std::slice::from_ref(&table), &[]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..20).for_each(|_| assert_eq!(round_trip(&fixture, &table, &text).unwrap(), text))
            });
        }
    });
    Arc::into_inner(fixture).unwrap().assert_settled();
}
