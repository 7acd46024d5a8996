//! Measures decoding of strings that are stored as codes.

use std::time::Instant;

use crossdock_kernels::{Checks, Codes, IntType, Integers, Jobs, Marks, Source, TOKEN_BYTES, Views};
use crossdock_memory::{Buffer, BufferMut};

use super::{ROUNDS, Rows, noise};
use crate::Result;

/// Parameters of generated strings.
struct Kind {
    name: &'static str,
    values: usize,
    /// The maximum number of codes in a value, and the maximum number of bytes in a token.
    codes: usize,
    bytes: usize,
    /// Number of tokens.
    tokens: usize,
    /// For FSST, about one code out of this number is an escape. `None` for OnPair, which has no
    /// escapes.
    escapes: Option<usize>,
}

const KINDS: [Kind; 4] = [
    Kind { name: "FSST, addresses", values: 25_000_000, codes: 20, bytes: 8, tokens: 255, escapes: Some(50) },
    Kind {
        name: "FSST, short words",
        values: 100_000_000,
        codes: 5,
        bytes: 4,
        tokens: 200,
        escapes: Some(20),
    },
    Kind { name: "OnPair, addresses", values: 25_000_000, codes: 20, bytes: 12, tokens: 4096, escapes: None },
    Kind {
        name: "OnPair, short words",
        values: 100_000_000,
        codes: 4,
        bytes: 8,
        tokens: 4096,
        escapes: None,
    },
];

/// Generated codes on the host.
struct GeneratedCodes {
    codes: Vec<u8>,
    table: Vec<u8>,
    lengths: Vec<u8>,
    offsets: Vec<u8>,
    value_lengths: Vec<u8>,
    bytes: usize,
}

impl Kind {
    fn generate(&self) -> GeneratedCodes {
        let (slot, width) = if self.escapes.is_some() { (8, 1) } else { (TOKEN_BYTES, 2) };
        let lengths: Vec<u8> =
            (0..self.tokens).map(|i| 1 + (noise(i) >> 40) as u8 % self.bytes as u8).collect();
        let mut table = vec![0; self.tokens * slot];
        for (i, (token, length)) in table.chunks_mut(slot).zip(&lengths).enumerate() {
            let letters = token.iter_mut().take(usize::from(*length)).enumerate();
            letters.for_each(|(k, byte)| *byte = b'a' + (noise(i * 16 + k) >> 50) as u8 % 26);
        }
        let (mut codes, mut offsets, mut value_lengths) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        for i in 0..self.values {
            offsets.extend((codes.len() as u32 / width).to_ne_bytes());
            let mut length = 0u16;
            for k in 0..1 + (noise(i) >> 33) as usize % self.codes {
                let random = noise(i * 32 + k) >> 20;
                if self.escapes.is_some_and(|every| ((random >> 24) as usize).is_multiple_of(every)) {
                    codes.extend([255, b'a' + random as u8 % 26]);
                    length += 1;
                    continue;
                }
                let code = random as usize % self.tokens;
                codes.extend_from_slice(code.to_le_bytes().get(..width as usize).unwrap_or_default());
                length += u16::from(lengths.get(code).copied().unwrap_or(0));
            }
            value_lengths.extend(length.to_ne_bytes());
            bytes += usize::from(length);
        }
        offsets.extend((codes.len() as u32 / width).to_ne_bytes());
        GeneratedCodes { codes, table, lengths, offsets, value_lengths, bytes }
    }
}

fn source(buffer: &Buffer, len: usize) -> Source<'_> {
    Source { buffer: Some(buffer), at: 0, len }
}

impl Rows<'_> {
    pub(super) fn strings(&mut self) -> Result<()> {
        KINDS.iter().try_for_each(|kind| self.measure_kind(kind))
    }

    fn upload(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.stream.memory().alloc_with(self.stream, bytes.len(), |to| {
            to.copy_from_slice(bytes);
            Ok(())
        })?;
        Ok(buffer.freeze(self.stream)?)
    }

    /// Prints the median of five runs of `ROUNDS` rounds. Each round completes its work before the
    /// next round begins.
    fn timed(&self, name: &str, bytes: usize, mut round: impl FnMut() -> Result<()>) -> Result<()> {
        round()?;
        self.stream.synchronize()?;
        let mut rates = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            (0..ROUNDS).try_for_each(|_| round())?;
            self.stream.synchronize()?;
            rates.push((bytes * ROUNDS) as f64 / start.elapsed().as_secs_f64());
        }
        rates.sort_by(f64::total_cmp);
        let rate = rates.get(rates.len() / 2).copied().unwrap_or_default();
        println!("| {name} | {:.0} | {:.0} % |", rate / 1e9, 100.0 * rate / self.fill);
        Ok(())
    }

    fn measure_kind(&mut self, kind: &Kind) -> Result<()> {
        let generated = kind.generate();
        let [codes, table, lengths, offsets, value_lengths] = [
            &generated.codes,
            &generated.table,
            &generated.lengths,
            &generated.offsets,
            &generated.value_lengths,
        ]
        .map(|bytes| self.upload(bytes));
        let (codes, table, lengths, offsets, value_lengths) =
            (codes?, table?, lengths?, offsets?, value_lengths?);
        let numbers = |buffer, len, width_bytes| Integers {
            buffer,
            at: 0,
            len,
            of: IntType { width_bytes, signed: false },
        };
        let width_bytes = if kind.escapes.is_some() { 1 } else { 2 };
        let text = Codes {
            codes: source(&codes, generated.codes.len() / width_bytes),
            width_bytes,
            offsets: numbers(&offsets, kind.values + 1, 4),
            table: source(&table, kind.tokens),
            lengths: source(&lengths, kind.tokens),
            escapes: kind.escapes.is_some(),
        };
        let value_lengths = numbers(&value_lengths, kind.values, 2);
        let (name, bytes) = (kind.name, generated.bytes);
        let mut views = self.alloc(kind.values * 16)?;
        let mut data = self.alloc(bytes)?;
        let stream = self.stream;
        let mut marks = Marks::alloc(stream, &text)?;
        self.timed(&format!("{name}, measured"), bytes, || {
            let mut checks = Checks::new();
            let cells = checks.measure_codes(text, &mut marks)?;
            match checks.run(stream)?.number(cells.bytes) {
                measured if measured == bytes as i64 => Ok(()),
                measured => Err(format!("{name}: measured {measured} bytes, expected {bytes}").into()),
            }
        })?;
        let marks = marks.freeze(self.stream)?;
        self.timed(&format!("{name}, bytes"), bytes, || {
            let mut jobs = Jobs::new();
            jobs.decode_codes(text, &marks, &mut data, 0, bytes)?;
            Ok(jobs.launch(self.stream)?)
        })?;
        let data = data.freeze(self.stream)?;
        self.timed(&format!("{name}, views"), bytes, || {
            let mut checks = Checks::new();
            let to = views_into(&data, bytes, kind.values, &mut views);
            let cells = checks.views_of_codes(text, &marks, value_lengths, to)?;
            match checks.run(stream)?.first_wrong(cells.wrong) {
                None => Ok(()),
                Some(i) => Err(format!("{name}: value {i} is wrong").into()),
            }
        })?;
        self.timed(&format!("{name}, all steps"), bytes, || {
            let mut marks = Marks::alloc(stream, &text)?;
            let mut checks = Checks::new();
            let cells = checks.measure_codes(text, &mut marks)?;
            let bytes = checks.run(stream)?.number(cells.bytes) as usize;
            let marks = marks.freeze(stream)?;
            let mut data = stream.memory().alloc(stream, bytes)?;
            let mut jobs = Jobs::new();
            jobs.decode_codes(text, &marks, &mut data, 0, bytes)?;
            jobs.launch(stream)?;
            let data = data.freeze(stream)?;
            let mut views = stream.memory().alloc(stream, kind.values * 16)?;
            let mut checks = Checks::new();
            let to = views_into(&data, bytes, kind.values, &mut views);
            checks.views_of_codes(text, &marks, value_lengths, to)?;
            checks.run(stream)?;
            Ok(())
        })
    }
}

/// Describes `len` views to create. The data of all views is in one buffer.
fn views_into<'a, 'b>(data: &'a Buffer, bytes: usize, len: usize, views: &'b mut BufferMut) -> Views<'a, 'b> {
    Views { data: source(data, bytes), part_shift: 31, len, views, offsets: None }
}
