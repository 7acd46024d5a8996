//! Tests that the host passes predicates to importers of formats that use them, and applies those
//! that the importer does not apply.

use std::path::{Path, PathBuf};

use crossdock::discovery::Search;
use crossdock::{Host, Literal, Operator, Predicate, ReadOptions, ScanOptions, ScanSource, Session};

use crate::objects::Objects;

const FRAMES: [std::ops::Range<i64>; 3] = [0..5, 5..5, 5..20];

/// Writes a file with the numbers 0 to 19, of which every seventh is null.
fn write_rows(path: &Path) {
    let name = b"n";
    let mut bytes = [b"BASEROWS", &(name.len() as u32).to_le_bytes()[..], name].concat();
    for frame in FRAMES {
        bytes.extend((frame.end - frame.start).to_le_bytes());
        for n in frame {
            bytes.push(u8::from(n % 7 != 0));
            bytes.extend(n.to_le_bytes());
        }
    }
    bytes.extend(u64::MAX.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

fn session(plugin: &Path) -> Session {
    Host::builder().search(Search::nowhere().with_path(plugin)).build().unwrap().session().open().unwrap()
}

/// The predicate that compares the column with a number.
fn predicate(operator: Operator, number: i128) -> Predicate {
    Predicate { column: "n".into(), operator, literal: Literal::Decimal(number.into()) }
}

fn numbers(session: &Session, files: &[PathBuf], read: ReadOptions) -> Vec<i64> {
    let source = ScanSource::Files(files.to_vec());
    let table = session.read_table(source, ScanOptions { read, ..ScanOptions::default() }).unwrap();
    let batches = table.to_record_batches().unwrap();
    let values = |batch: &arrow_array::RecordBatch| {
        let column = batch.column(0).as_any().downcast_ref::<arrow_array::Int64Array>().unwrap();
        column.values().to_vec()
    };
    batches.iter().flat_map(values).collect()
}

#[test]
fn importer_gets_predicates_unless_positions_of_rows_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.baserows");
    write_rows(&file);
    let objects = Objects::compile(folder.path());
    let filter = vec![predicate(Operator::Greater, 10), predicate(Operator::Less, 13)];
    let read = |filter: &[Predicate]| ReadOptions { filter: filter.to_vec(), ..ReadOptions::default() };
    let single = [file.clone()];
    let twice = [file.clone(), file.clone()];
    let rows = Some(vec![0..12, 15..40]);

    let correct = session(&objects.plugin(None));
    assert_eq!(numbers(&correct, &single, read(&filter)), [11, 12]);
    assert_eq!(numbers(&correct, &twice, read(&filter)), [11, 12, 11, 12]);
    let limited = ReadOptions { limit: Some(3), ..read(&filter) };
    assert_eq!(numbers(&correct, &twice, limited), [11, 12, 11]);
    let selected = ReadOptions { rows: rows.clone(), ..read(&filter) };
    assert_eq!(numbers(&correct, &twice, selected), [11, 11, 12]);

    // The bug shows that the importer got the predicates: the first row that fulfils them is
    // missing. If rows are requested, the importer must not leave out rows, so the host filters.
    let pruning = session(&objects.plugin(Some("MATCHING_ROW_PRUNED")));
    assert_eq!(numbers(&pruning, &single, read(&filter)), [12]);
    let selected = ReadOptions { rows, ..read(&filter) };
    assert_eq!(numbers(&pruning, &single, selected.clone()), [11]);
    assert_eq!(numbers(&pruning, &twice, selected), [11, 11, 12]);

    // The bug shows that the host relies on the statement that the importer applies predicates.
    let claiming = session(&objects.plugin(Some("PREDICATE_NOT_APPLIED")));
    assert_eq!(numbers(&claiming, &single, read(&filter)).len(), 20);
    // A comparison that holds for no number, or for each, needs no importer.
    let never = [Predicate { literal: Literal::Float(0.5), ..predicate(Operator::Equal, 0) }];
    assert_eq!(numbers(&claiming, &single, read(&never)), Vec::<i64>::new());
    let always = [Predicate { literal: Literal::Float(1e300), ..predicate(Operator::Less, 0) }];
    assert_eq!(numbers(&claiming, &single, read(&always)).len(), 20 - 3);
}
