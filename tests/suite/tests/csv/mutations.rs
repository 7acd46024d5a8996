//! CSV with bytes changed at random: read or refused, with one line, and what is read can be written and read again. A
//! fixed seed; `CROSSDOCK_MUTATIONS` asks for more cases.

use arrow_array::RecordBatch;

use crate::bench::{Bench, Pairs};
use crate::tables::{batch, columns};

const CASES: usize = 4_000;

/// Bytes that mean something to a reader of CSV.
const MARKS: &[u8] = b",\"\n\r\0\t;'0+-.eTZ:\xff\xc3\xef";

const OPTIONS: [Pairs<'static>; 4] =
    [&[], &[("header", "false")], &[("delimiter", ";")], &[("delimiter", "tab"), ("header", "false")]];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as usize % n.max(1)
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(bytes.len());
        let n = 1 + self.below(20);
        let end = bytes.len().min(at + n);
        match self.below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            1 | 2 if !bytes.is_empty() => bytes[at] = MARKS[self.below(MARKS.len())],
            3 => bytes.insert(at, MARKS[self.below(MARKS.len())]),
            4 => drop(bytes.drain(at..end)),
            5 => bytes.truncate(at),
            6 => {
                let again = bytes[at..end].repeat(1 + self.below(3));
                bytes.splice(at..at, again);
            }
            _ => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len());
                let piece = other[from..other.len().min(from + 4 * n)].to_vec();
                bytes.splice(at..end, piece);
            }
        }
    }
}

fn seeds(bench: &Bench) -> Vec<Vec<u8>> {
    let mut tables: Vec<RecordBatch> = columns().into_iter().map(|column| batch(&[column])).collect();
    tables.push(batch(&columns()));
    let write = |options: Pairs<'_>| {
        let all = tables
            .iter()
            .map(|table| bench.write(std::slice::from_ref(table), options).unwrap().into_bytes());
        all.collect::<Vec<_>>()
    };
    [write(&[]), write(&[("delimiter", ";")])].concat()
}

#[test]
fn changed_bytes_are_read_or_refused_and_never_more() {
    let bench = Bench::new();
    let seeds = seeds(&bench);
    let cases = std::env::var("CROSSDOCK_MUTATIONS").map_or(CASES, |n| n.parse().expect("a number"));
    let types = columns();
    let mut read = 0;
    for case in 0..cases {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (case as u64) << 20);
        random.below(1);
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..1 + random.below(5) {
            random.change(&mut bytes, &seeds);
        }
        let options = OPTIONS[random.below(OPTIONS.len())];
        let result = match random.below(3) {
            // Every parser gets to see what was not meant for it.
            0 => {
                let (name, array) = &types[random.below(types.len())];
                bench.read_with(&bytes, &batch(&[(name.clone(), array.clone())]).schema(), options)
            }
            1 => bench.read_with(&bytes, &batch(&types).schema(), options),
            _ => bench.read(&bytes, options),
        };
        match result {
            Err(error) => assert!(!error.is_empty() && error.lines().count() == 1, "case {case}: {error:?}"),
            Ok(table) if table.batches.is_empty() => read += 1,
            Ok(table) => {
                read += 1;
                let text = bench.write(&table.batches, &[]).unwrap_or_else(|e| panic!("case {case}: {e}"));
                let again = bench.read_with(text.as_bytes(), &table.schema, &[]);
                let again = again.unwrap_or_else(|e| panic!("case {case}: {e}\n{text}"));
                assert_eq!(again.rows(), table.rows(), "case {case}");
                let text_again = bench.write(&again.batches, &[]).unwrap();
                assert_eq!(text_again, text, "case {case}");
            }
        }
        assert_eq!(bench.host.ledger().live_bytes(), 0, "case {case}");
    }
    println!("{cases} cases, {read} still read");
    assert!(
        read > cases / 20 && read < cases * 19 / 20,
        "changes of every kind: {read} of {cases} were read"
    );
    bench.end();
}
