//! Reads CSV texts with random changes. The plugin must either read the text or reject it with a
//! message of one line, and a table that it reads must round-trip. The seeds are fixed.
//! `CROSSDOCK_MUTATIONS` sets the number of cases; a sample (`CROSSDOCK_TEST_SAMPLE`) tests an
//! eighth of the default number.

use arrow_array::RecordBatch;
use crossdock_test_support::{Random, replay, sample};

use crate::csv::fixture::{Fixture, Pairs};
use crate::csv::tables::{batch, columns};

const CASES: u64 = 4_000;

/// Bytes that have a special meaning in CSV.
const SPECIAL_BYTES: &[u8] = b",\"\n\r\0\t;'0+-.eTZ:\xff\xc3\xef";

const OPTIONS: [Pairs<'static>; 4] = [&[], &[], &[("delimiter", ";")], &[("delimiter", "tab")]];

fn change(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = random.below(bytes.len());
    let n = 1 + random.below(20);
    let end = bytes.len().min(at + n);
    match random.below(8) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 | 2 if !bytes.is_empty() => bytes[at] = SPECIAL_BYTES[random.below(SPECIAL_BYTES.len())],
        3 => bytes.insert(at, SPECIAL_BYTES[random.below(SPECIAL_BYTES.len())]),
        4 => drop(bytes.drain(at..end)),
        5 => bytes.truncate(at),
        6 => {
            let again = bytes[at..end].repeat(1 + random.below(3));
            bytes.splice(at..at, again);
        }
        _ => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            let piece = other[from..other.len().min(from + 4 * n)].to_vec();
            bytes.splice(at..end, piece);
        }
    }
}

fn seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let mut tables: Vec<RecordBatch> = columns().into_iter().map(|column| batch(&[column])).collect();
    tables.push(batch(&columns()));
    let write = |options: Pairs<'_>| {
        let all = tables
            .iter()
            .map(|table| fixture.write(std::slice::from_ref(table), options).unwrap().into_bytes());
        all.collect::<Vec<_>>()
    };
    [write(&[]), write(&[("delimiter", ";")])].concat()
}

#[test]
fn mutated_csv_is_read_or_rejected() {
    let _replay = replay::on_failure();
    let fixture = Fixture::new();
    let seeds = seeds(&fixture);
    let cases = match std::env::var("CROSSDOCK_MUTATIONS") {
        Ok(count) => 0..count.parse().expect("CROSSDOCK_MUTATIONS is a number"),
        Err(_) => sample::range(CASES, 8),
    };
    let count = cases.end - cases.start;
    let types = columns();
    let mut read = 0;
    for case in cases {
        let mut random = Random::new(case);
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..1 + random.below(5) {
            change(&mut random, &mut bytes, &seeds);
        }
        let options = OPTIONS[random.below(OPTIONS.len())];
        let result = match random.below(3) {
            // Expects one column of a random type, so that the parser of each type also receives
            // values of other types.
            0 => {
                let (name, array) = &types[random.below(types.len())];
                fixture.read_with(&bytes, &batch(&[(name.clone(), array.clone())]).schema(), options)
            }
            1 => fixture.read_with(&bytes, &batch(&types).schema(), options),
            _ => fixture.read(&bytes, options),
        };
        match result {
            Err(error) => assert!(!error.is_empty() && error.lines().count() == 1, "case {case}: {error:?}"),
            Ok(table) if table.batches.is_empty() => read += 1,
            Ok(table) => {
                read += 1;
                let text = fixture.write(&table.batches, &[]).unwrap_or_else(|e| panic!("case {case}: {e}"));
                let again = fixture.read_with(text.as_bytes(), &table.schema, &[]);
                let again = again.unwrap_or_else(|e| panic!("case {case}: {e}\n{text}"));
                assert_eq!(again.rows(), table.rows(), "case {case}");
                let text_again = fixture.write(&again.batches, &[]).unwrap();
                assert_eq!(text_again, text, "case {case}");
            }
        }
        assert_eq!(fixture.host.ledger().live_bytes(), 0, "case {case}");
    }
    println!("{count} cases, {read} still read");
    assert!(
        read > count / 20 && read < count * 19 / 20,
        "expected between 5% and 95% to be read, got {read} of {count}"
    );
    fixture.assert_settled();
}
