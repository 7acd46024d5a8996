//! The inputs that are changed: tables of every type in both IPC forms (file and stream), and
//! Arrow's golden files if available.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{DictionaryArray, Int8Array, RecordBatch, StringArray};

use crate::common::tables::{everything, single, small};
use crate::common::{CODECS, FORMS, peer_writes, peer_writes_deltas};

/// The maximum length in bytes. Longer inputs are skipped, because a change in them rarely has an
/// effect.
const MAX_BYTES: usize = 48 << 10;

pub fn all() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    let table = everything(9, true);
    for form in FORMS {
        for codec in CODECS {
            seeds.push((
                format!("everything, {form}, {codec}"),
                peer_writes(std::slice::from_ref(&table), form, codec),
            ));
            seeds.push((format!("small, {form}, {codec}"), peer_writes(&small(), form, codec)));
        }
        // Single columns, in which every byte matters.
        for (i, column) in table.columns().iter().enumerate() {
            let batches = [single(column.clone()), single(column.slice(2, 5))];
            let codec = CODECS[i % 3];
            seeds.push((format!("{}, {form}", column.data_type()), peer_writes(&batches, form, codec)));
        }
        seeds.push((format!("deltas, {form}"), peer_writes_deltas(&growing(), form)));
    }
    seeds.extend(golden());
    seeds
}

/// Batches whose dictionaries grow from batch to batch.
fn growing() -> Vec<RecordBatch> {
    let batch = |values: usize| {
        let keys = Int8Array::from_iter((0..20).map(|i| (i % 6 != 5).then_some((i * 7 % values) as i8)));
        let values = StringArray::from_iter_values((0..values).map(|i| "long ".repeat(i)));
        single(Arc::new(DictionaryArray::new(keys, Arc::new(values))))
    };
    [3, 3, 7, 11].map(batch).into()
}

fn golden() -> Vec<(String, Vec<u8>)> {
    use std::io::Write;
    let Some(folder) = std::env::var_os("ARROW_TEST_DATA") else {
        // Written to stderr directly, so that the harness does not capture the line.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "skipped: golden files, mutated: ARROW_TEST_DATA is not set").unwrap();
        return Vec::new();
    };
    let mut files = Vec::new();
    collect(Path::new(&folder), &mut files);
    files.sort();
    files
}

fn collect(folder: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "stream" || e == "arrow_file") {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.len() <= MAX_BYTES {
                files.push((path.file_name().unwrap().to_string_lossy().into_owned(), bytes));
            }
        }
    }
}
