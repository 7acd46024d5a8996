//! Measures the bytes per second that decoding kernels write, compared to a copy and a fill on the
//! same device in the same run.

mod strings;

use std::io::Write;
use std::time::Instant;

use crossdock_kernels::{
    BlockCodes, Checks, Deltas, Halves, IntType, Integers, Jobs, LeftParts, Numbers, Packed, Patches, Source,
    Step, Words,
};
use crossdock_memory::{Buffer, BufferMut, Device, Stream};
use crossdock_test_support::{TestHost, devices};

use crate::Result;

const VALUES: usize = 100_000_000;
const ROUNDS: usize = 20;
/// In a patched column, one value out of this number is patched.
const PATCH_EVERY: usize = 100;
/// The mean length of runs.
const RUN: usize = 64;

/// Prints a table, if there is a CUDA device.
pub fn rates() -> Result<()> {
    let cuda = Device::cuda(0);
    if !devices().contains(&cuda) {
        writeln!(std::io::stderr(), "skipped: decode: there is no CUDA device")?;
        return Ok(());
    }
    let host = TestHost::new();
    let stream = host.stream(cuda);
    let info = host.memory().devices()?.into_iter().find(|info| info.device == cuda);
    let info = info.map_or_else(String::new, |info| info.description);
    println!("Decoding on {info}, {} M values:\n", VALUES / 1_000_000);
    println!("| what | decoded GB/s | of the fill |\n|---|---|---|");
    let mut rows = Rows { stream: &stream, fill: 0.0 };
    rows.bounds()?;
    rows.packed()?;
    rows.repeated()?;
    rows.strings()?;
    rows.parts()
}

struct Rows<'a> {
    stream: &'a Stream,
    /// The bytes per second that a fill writes.
    fill: f64,
}

/// A pseudorandom number.
fn noise(i: usize) -> u64 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i as u64) >> 7
}

impl Rows<'_> {
    /// Runs one round to warm up, then five runs of `ROUNDS` rounds that write `bytes` bytes each.
    /// All jobs of a run are one batch, whose results are read at the end of the run.
    fn row<'b>(
        &mut self,
        name: &str,
        bytes: usize,
        mut round: impl FnMut(&mut Checks<'b>) -> Result<()>,
    ) -> Result<f64> {
        let mut run = |n: usize| -> Result<()> {
            let mut checks = Checks::new();
            (0..n).try_for_each(|_| round(&mut checks))?;
            checks.run(self.stream)?;
            Ok(self.stream.synchronize()?)
        };
        run(1)?;
        let mut rates = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            run(ROUNDS)?;
            rates.push((bytes * ROUNDS) as f64 / start.elapsed().as_secs_f64());
        }
        rates.sort_by(f64::total_cmp);
        let rate = rates[rates.len() / 2];
        let of_fill =
            if self.fill > 0.0 { format!("{:.0} %", 100.0 * rate / self.fill) } else { String::new() };
        println!("| {name} | {:.0} | {of_fill} |", rate / 1e9);
        Ok(rate)
    }

    fn filled(
        &self,
        bytes: usize,
        fill: impl FnMut((usize, &mut [u8]), usize),
        width: usize,
    ) -> Result<Buffer> {
        let mut fill = fill;
        let buffer = self.stream.memory().alloc_with(self.stream, bytes, |to| {
            to.chunks_exact_mut(width).enumerate().for_each(|at| fill(at, width));
            Ok(())
        })?;
        Ok(buffer.freeze(self.stream)?)
    }

    fn words(&self, n: usize, width: usize, of: impl Fn(usize) -> u64) -> Result<Buffer> {
        self.filled(n * width, |(i, to), width| to.copy_from_slice(&of(i).to_ne_bytes()[..width]), width)
    }

    fn alloc(&self, bytes: usize) -> Result<BufferMut> {
        Ok(self.stream.memory().alloc(self.stream, bytes)?)
    }

    fn bounds(&mut self) -> Result<()> {
        let bytes = VALUES * 8;
        let (from, mut to) = (self.words(VALUES, 8, noise)?, self.alloc(bytes)?);
        let stream = self.stream;
        let rate = |mut work: Box<dyn FnMut() -> Result<()> + '_>| -> Result<f64> {
            work()?;
            stream.synchronize()?;
            let start = Instant::now();
            (0..ROUNDS).try_for_each(|_| work())?;
            stream.synchronize()?;
            Ok((bytes * ROUNDS) as f64 / start.elapsed().as_secs_f64())
        };
        let copy = rate(Box::new(|| Ok(stream.copy(&mut to, 0, &from, 0, bytes)?)))?;
        self.fill = rate(Box::new(|| Ok(stream.fill(&mut to, 0, bytes, 1)?)))?;
        println!("| the driver's copy, read and written | {:.0} | |", 2e-9 * copy);
        println!("| the driver's fill | {:.0} | 100 % |", 1e-9 * self.fill);
        for width in [4, 8] {
            let words = Words { at: 0, len: VALUES, width_bytes: width };
            self.row(&format!("sequence, {width} bytes"), VALUES * width, |checks| {
                Ok(checks.sequence(3, 7, &mut to, words, &[])?)
            })?;
            self.row(&format!("words of {width} bytes and a reference"), VALUES * width, |checks| {
                Ok(checks.map(&from, 0, &mut to, words, &[Step::Add(1000)])?)
            })?;
        }
        Ok(())
    }

    fn packed(&mut self) -> Result<()> {
        let [power, inverse] = [100.0f32, 0.01].map(|f| Step::Scale(f.to_bits().into()));
        let alp32 = [Step::Add(1000), Step::ToFloat, power, inverse];
        let [power, inverse] = [100.0f64, 0.01].map(|f| Step::Scale(f.to_bits()));
        let alp64 = [Step::Add(1000), Step::ToFloat, power, inverse];
        let chains: [(&str, usize, u32, &[Step]); 10] = [
            ("bit-packed u8, 6 bits", 1, 6, &[]),
            ("bit-packed u16, 9 bits", 2, 9, &[]),
            ("bit-packed u32, 6 bits", 4, 6, &[]),
            ("bit-packed u32, 6 bits, zigzag and a reference", 4, 6, &[Step::ZigZag, Step::Add(1000)]),
            ("bit-packed u32, 17 bits", 4, 17, &[]),
            ("bit-packed u32, 27 bits", 4, 27, &[]),
            ("bit-packed u64, 17 bits", 8, 17, &[]),
            ("bit-packed u64, 47 bits", 8, 47, &[]),
            ("ALP f32 over 6 bits and a reference", 4, 6, &alp32),
            ("ALP f64 over 17 bits and a reference", 8, 17, &alp64),
        ];
        for (name, width, bits, steps) in chains {
            let packed = self.words(VALUES.div_ceil(1024) * 16 * bits as usize, 8, noise)?;
            let mut to = self.alloc(VALUES * width)?;
            let words = Words { at: 0, len: VALUES, width_bytes: width };
            let plain = self.row(name, VALUES * width, |checks| {
                Ok(checks.unpack(Packed { buffer: &packed, bits, first: 0 }, &mut to, words, steps)?)
            })?;
            if width < 4 || steps.is_empty() {
                continue;
            }
            let n = VALUES / PATCH_EVERY;
            let indices = self.words(n, 4, |i| (i * PATCH_EVERY + noise(i) as usize % PATCH_EVERY) as u64)?;
            let values = self.words(n, width, noise)?;
            let indices = Numbers { buffer: &indices, at: 0, len: n, width_bytes: 4 };
            let source = Source { buffer: Some(&values), at: 0, len: n };
            let patched = self.row(&format!("{name}, 1 % patched"), VALUES * width, |checks| {
                let packed = Packed { buffer: &packed, bits, first: 0 };
                let patches = Patches { indices, first: 0, values: source };
                checks.unpack_patched(packed, &mut to, words, steps, patches, true)?;
                Ok(())
            })?;
            println!("| additional time for patches | | {:.1} % |", 100.0 * (plain / patched - 1.0));
        }
        Ok(())
    }

    fn repeated(&mut self) -> Result<()> {
        let mut to = self.alloc(VALUES * 8)?;
        let codes = self.words(VALUES.div_ceil(1024) * 16 * 6, 8, noise)?;
        let mut unpacked = self.alloc(VALUES)?;
        let words = Words { at: 0, len: VALUES, width_bytes: 1 };
        let mut checks = Checks::new();
        let packed = Packed { buffer: &codes, bits: 6, first: 0 };
        checks.unpack(packed, &mut unpacked, words, &[])?;
        checks.run(self.stream)?;
        let unpacked = unpacked.freeze(self.stream)?;
        for width in [4, 8] {
            let values = self.words(64, width, noise)?;
            let source = Source { buffer: Some(&values), at: 0, len: 64 };
            let indices = Numbers { buffer: &unpacked, at: 0, len: VALUES, width_bytes: 1 };
            self.row(
                &format!("dictionary of 64, {width} bytes, by codes of a byte"),
                VALUES * width,
                |checks| {
                    checks.take(indices, None, source, &mut to, 0, width)?;
                    Ok(())
                },
            )?;
            self.row(
                &format!("dictionary of 64, {width} bytes, by codes of 6 bits"),
                VALUES * width,
                |checks| {
                    let words = Words { at: 0, len: VALUES, width_bytes: width };
                    checks.take_packed(packed, 1, &[], None, source, &mut to, words)?;
                    Ok(())
                },
            )?;
        }
        let runs = VALUES / RUN;
        let ends = self.words(runs, 4, |i| {
            if i + 1 == runs { VALUES as u64 } else { (i * RUN + 1 + noise(i) as usize % RUN) as u64 }
        })?;
        let ends = Numbers { buffer: &ends, at: 0, len: runs, width_bytes: 4 };
        for width in [4, 8] {
            let values = self.words(runs, width, noise)?;
            let source = Source { buffer: Some(&values), at: 0, len: runs };
            self.row(&format!("runs of {RUN}, {width} bytes"), VALUES * width, |checks| {
                checks.expand_runs(ends, 0, source, &mut to, 0, VALUES, width)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Measures kernels that read at least as many bytes as they write. Their rates count the bytes
    /// that are read and the bytes that are written.
    fn parts(&mut self) -> Result<()> {
        println!("| in the following rows, bytes read and written | | |");
        let from = self.words(VALUES, 8, noise)?;
        let mut to = self.alloc(VALUES * 32)?;
        let of = |width_bytes, signed| Integers {
            buffer: &from,
            at: 0,
            len: VALUES,
            of: IntType { width_bytes, signed },
        };
        for (width, to_width) in [(1, 4), (2, 4), (2, 8), (4, 8), (8, 4), (8, 1)] {
            let words = Words { at: 0, len: VALUES, width_bytes: to_width };
            let name = format!("integers of {width} bytes cast to {to_width}");
            self.row(&name, VALUES * (width + to_width), |checks| {
                Ok(checks.widen(of(width, true), &mut to, words, &[])?)
            })?;
        }
        for (width, to_width) in [(4, 16), (8, 16), (8, 32)] {
            let name = format!("decimals of {width} bytes as {to_width}");
            self.row(&name, VALUES * (width + to_width), |checks| {
                Ok(checks.widen_long(of(width, true), &mut to, 0, to_width)?)
            })?;
        }
        // All days, seconds and microseconds are small numbers.
        for widths in [[2, 4, 4], [4, 4, 8], [8, 8, 8]] {
            let parts = widths.map(|width| self.words(VALUES, width, |i| noise(i) % 20_000));
            let [days, seconds, microseconds] = parts;
            let parts = [(days?, widths[0]), (seconds?, widths[1]), (microseconds?, widths[2])];
            let factors = [86_400_000_000, 1_000_000, 1];
            let parts: Vec<_> = parts
                .iter()
                .zip(factors)
                .map(|((buffer, width_bytes), factor)| {
                    let of = IntType { width_bytes: *width_bytes, signed: true };
                    (Integers { buffer, at: 0, len: VALUES, of }, factor)
                })
                .collect();
            let bytes = VALUES * (8 + widths.iter().sum::<usize>());
            self.row(&format!("timestamps in parts of {widths:?} bytes"), bytes, |checks| {
                checks.sum(&parts, None, &mut to, 0)?;
                Ok(())
            })?;
        }
        let codes = self.words(VALUES, 2, |i| noise(i) % 8)?;
        let lefts = [1016, 1017, 1018, 1019, 1020, 1021, 1022, 1023];
        for width in [4, 8] {
            let halves = Halves {
                codes: (&codes, 0),
                rights: (&from, 0),
                right_bits: 8 * width as u32 - 12,
                len: VALUES,
                width_bytes: width,
            };
            self.row(&format!("ALP-RD of {width} bytes"), VALUES * (2 + 2 * width), |checks| {
                checks.join(halves, LeftParts::Dictionary(&lefts), None, &mut to, 0)?;
                Ok(())
            })?;
        }
        for width in [1, 2, 4, 8] {
            let blocks = VALUES / 1024;
            let deltas = Deltas { bases: (&from, 0), deltas: (&from, 0), blocks, first: 0 };
            let words = Words { at: 0, len: blocks * 1024, width_bytes: width };
            let bytes = blocks * (2048 * width + 128);
            self.row(&format!("differences of {width} bytes"), bytes, |checks| {
                Ok(checks.sum_lanes(deltas, &mut to, words)?)
            })?;
        }
        let begins = self.words(VALUES.div_ceil(1024), 4, |block| block as u64 * 8)?;
        let values = VALUES.div_ceil(1024) * 8;
        for width in [4, 8] {
            let of = |width_bytes| IntType { width_bytes, signed: false };
            let taken = BlockCodes {
                codes: Integers { buffer: &codes, at: 0, len: VALUES, of: of(2) },
                first: 0,
                begins: Integers { buffer: &begins, at: 0, len: VALUES.div_ceil(1024), of: of(4) },
                values: Source { buffer: Some(&from), at: 0, len: values },
            };
            let words = Words { at: 0, len: VALUES, width_bytes: width };
            let name = format!("runs of blocks, {width} bytes by codes of two");
            self.row(&name, VALUES * (2 + width), |checks| {
                checks.take_blocks(taken, None, &mut to, words)?;
                Ok(())
            })?;
        }
        self.row("decimals of 32 bytes as 16", VALUES / 4 * 48, |checks| {
            checks.narrow(&from, 0, VALUES / 4, None, &mut to, 0)?;
            Ok(())
        })?;
        self.stream.copy(&mut to, 0, &from, 0, VALUES * 8)?;
        let (stream, views) = (self.stream, VALUES / 2);
        self.row("views of other buffers, in place", views * 32, |_| {
            let mut jobs = Jobs::new();
            jobs.renumber_views(&mut to, 0, views, 1)?;
            Ok(jobs.launch(stream)?)
        })?;
        Ok(())
    }
}
