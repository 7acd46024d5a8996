//! Measures the bytes per second that kernels move, compared to a copy on the same device in the
//! same run.

use std::io::Write;
use std::time::Instant;

use crossdock_kernels::{BitRange, Checks, Dim, IntType, Jobs, NumberType, Offsets};
use crossdock_kernels::{gather, pack_bytes, unpack_bits};
use crossdock_memory::{Buffer, BufferMut, Device, Stream};
use crossdock_test_support::{TestHost, devices};

use crate::Result;

/// The size of each kernel's input or output, whichever is larger.
const LARGE_BYTES: usize = 1 << 30;
const ROUNDS: usize = 20;

/// Prints a table, if there is a CUDA device.
pub fn rates() -> Result<()> {
    let cuda = Device::cuda(0);
    if !devices().contains(&cuda) {
        writeln!(std::io::stderr(), "skipped: kernels: there is no CUDA device")?;
        return Ok(());
    }
    let host = TestHost::new();
    let stream = host.stream(cuda);
    let info = host.memory().devices()?.into_iter().find(|info| info.device == cuda);
    let mut rows = Rows { stream: &stream, copy: 0.0 };
    println!(
        "Kernels on {}, {} MiB:\n",
        info.map_or_else(String::new, |info| info.description),
        LARGE_BYTES >> 20
    );
    println!("| kernel | GB/s | of a copy |\n|---|---|---|");
    rows.copies()?;
    rows.bits()?;
    rows.lists()?;
    rows.text()?;
    rows.numbers()?;
    rows.tensors()?;
    Ok(())
}

struct Rows<'a> {
    stream: &'a Stream,
    /// The bytes per second that a copy reads and writes, added together.
    copy: f64,
}

impl Rows<'_> {
    /// Runs `work` once to warm up, then `ROUNDS` times, and waits for the device at the end. Each
    /// run reads and writes `bytes` bytes in total.
    fn row(&mut self, name: &str, bytes: usize, mut work: impl FnMut(&Stream) -> Result<()>) -> Result<()> {
        work(self.stream)?;
        self.stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work(self.stream)?;
        }
        self.stream.synchronize()?;
        let rate = (bytes * ROUNDS) as f64 / start.elapsed().as_secs_f64();
        if self.copy == 0.0 {
            self.copy = rate;
        }
        println!("| {name} | {:.0} | {:.0} % |", rate / 1e9, 100.0 * rate / self.copy);
        Ok(())
    }

    /// Like [`Self::row`], for jobs that return results. One launch runs `n` jobs, because reading
    /// the results blocks.
    fn checks<'a>(
        &mut self,
        name: &str,
        bytes: usize,
        n: usize,
        mut add: impl FnMut(&mut Checks<'a>) -> Result<()>,
    ) -> Result<()> {
        self.row(name, n * bytes, |s| {
            let mut checks = Checks::new();
            (0..n).try_for_each(|_| add(&mut checks))?;
            checks.run(s)?;
            Ok(())
        })
    }

    fn zeros(&self, bytes: usize) -> Result<Buffer> {
        let mut buffer = self.alloc(bytes)?;
        self.stream.fill(&mut buffer, 0, bytes, 0)?;
        Ok(buffer.freeze(self.stream)?)
    }

    fn alloc(&self, bytes: usize) -> Result<BufferMut> {
        Ok(self.stream.memory().alloc(self.stream, bytes)?)
    }

    fn copies(&mut self) -> Result<()> {
        let (from, mut to) = (self.zeros(LARGE_BYTES)?, self.alloc(LARGE_BYTES + 16)?);
        self.row("the driver's copy", 2 * LARGE_BYTES, |s| Ok(s.copy(&mut to, 0, &from, 0, LARGE_BYTES)?))?;
        for (name, at) in [("copy_ranges", 0), ("copy_ranges, misaligned by 3 bytes", 3)] {
            self.row(name, 2 * LARGE_BYTES, |s| {
                let mut jobs = Jobs::new();
                let part = LARGE_BYTES / 32;
                for i in 0..32 {
                    jobs.copy_range(&from, i * part, part, &mut to, at + i * part)?;
                }
                Ok(jobs.launch(s)?)
            })?;
        }
        Ok(())
    }

    fn bits(&mut self) -> Result<()> {
        let (from, mut to) = (self.zeros(LARGE_BYTES)?, self.alloc(LARGE_BYTES)?);
        let bits = LARGE_BYTES / 2 * 8;
        for (name, first) in [("shift_bits", 3), ("shift_bits, by whole bytes", 8)] {
            self.row(name, LARGE_BYTES, |s| {
                let mut jobs = Jobs::new();
                jobs.shift_bits(&from, first, bits, &mut to, 0)?;
                Ok(jobs.launch(s)?)
            })?;
        }
        self.row("merge_bits", LARGE_BYTES / 2 * 3, |s| {
            let mut jobs = Jobs::new();
            jobs.merge_bits((&from, 3), (&from, 5), bits, &mut to, 0)?;
            Ok(jobs.launch(s)?)
        })?;
        self.row("concatenate_bits, 8 parts", LARGE_BYTES, |s| {
            let part = BitRange { bits: Some((&from, 3)), len: bits / 8 - 1 };
            let mut jobs = Jobs::new();
            jobs.concatenate_bits(&[part; 8], &mut to, 0)?;
            Ok(jobs.launch(s)?)
        })?;
        self.checks("null_count", LARGE_BYTES, ROUNDS, |checks| {
            checks.null_count(&from, 3, LARGE_BYTES * 8 - 3)?;
            Ok(())
        })?;
        self.row("pack_bytes", LARGE_BYTES / 8 * 9, |s| {
            Ok(pack_bytes(s, &from, 0, LARGE_BYTES, false, &mut to, 0)?)
        })?;
        self.row("unpack_bits", LARGE_BYTES / 8 * 9, |s| {
            Ok(unpack_bits(s, &from, 3, LARGE_BYTES, false, &mut to, 0)?)
        })
    }

    fn lists(&mut self) -> Result<()> {
        let (from, mut to) = (self.zeros(LARGE_BYTES)?, self.alloc(LARGE_BYTES)?);
        for width_bytes in [4, 8] {
            let len = LARGE_BYTES / width_bytes - 1;
            let offsets = Offsets { buffer: &from, width_bytes, first: 0, len };
            self.checks(&format!("check_offsets, {width_bytes} bytes"), LARGE_BYTES, ROUNDS, |checks| {
                checks.offsets(offsets, 0)?;
                Ok(())
            })?;
            let key_type = IntType { width_bytes, signed: true };
            self.checks(&format!("check_indices, {width_bytes} bytes"), LARGE_BYTES, ROUNDS, |checks| {
                checks.indices(&from, key_type, 0, len, None, 1)?;
                Ok(())
            })?;
            self.row(&format!("rebase_offsets, {width_bytes} bytes"), 2 * LARGE_BYTES, |s| {
                let mut jobs = Jobs::new();
                jobs.rebase_offsets(&mut to, 0, len, width_bytes, 1)?;
                Ok(jobs.launch(s)?)
            })?;
        }
        let offsets = Offsets { buffer: &from, width_bytes: 8, first: 0, len: LARGE_BYTES / 8 - 1 };
        self.checks("convert_offsets, 8 bytes to 4", LARGE_BYTES / 2 * 3, 1, |checks| {
            checks.convert_offsets(offsets, 0, &mut to, 0, 4)?;
            Ok(())
        })?;
        self.checks("check_list_views, 4 bytes", LARGE_BYTES, ROUNDS, |checks| {
            checks.list_views(&from, &from, 4, 0, LARGE_BYTES / 8, 1)?;
            Ok(())
        })?;
        self.checks("check_union, dense", LARGE_BYTES / 4 * 5, ROUNDS, |checks| {
            checks.union(&from, Some(&from), 0, LARGE_BYTES / 4, &[(0, 1)])?;
            Ok(())
        })
    }

    /// Measures kernels on strings of 16 bytes.
    fn text(&mut self) -> Result<()> {
        let n = LARGE_BYTES / 64;
        let offsets = self.stream.memory().alloc_with(self.stream, (n + 1) * 4, |to| {
            for (i, to) in to.chunks_exact_mut(4).enumerate() {
                to.copy_from_slice(&(i as u32 * 16).to_ne_bytes());
            }
            Ok(())
        })?;
        let offsets = offsets.freeze(self.stream)?;
        for (name, letters) in [("check_utf8, ASCII", "a"), ("check_utf8, Greek", "α")] {
            let data = self.stream.memory().alloc_with(self.stream, n * 16, |to| {
                let text = letters.as_bytes().iter().cycle();
                to.iter_mut().zip(text).for_each(|(to, byte)| *to = *byte);
                Ok(())
            })?;
            let data = data.freeze(self.stream)?;
            let offsets = Offsets { buffer: &offsets, width_bytes: 4, first: 0, len: n };
            self.checks(&format!("{name}, and its offsets"), n * 20, ROUNDS, |checks| {
                let checked = checks.offsets(offsets, LARGE_BYTES as u64)?;
                checks.utf8(offsets, checked, &data, None)?;
                Ok(())
            })?;
        }
        let views = self.zeros(LARGE_BYTES)?;
        self.checks("check_views, short", LARGE_BYTES, ROUNDS, |checks| {
            checks.views(&views, 0, LARGE_BYTES / 16, None, &[], true)?;
            Ok(())
        })
    }

    fn numbers(&mut self) -> Result<()> {
        let (from, mut to) = (self.zeros(LARGE_BYTES)?, self.alloc(LARGE_BYTES)?);
        let n = LARGE_BYTES / 8;
        for (from_type, to_type) in [
            (NumberType::Int32, NumberType::Int64),
            (NumberType::Float64, NumberType::Float32),
            (NumberType::Float16, NumberType::Float32),
        ] {
            let bytes = n * (from_type.width_bytes() + to_type.width_bytes());
            self.checks(&format!("cast, {} to {}", from_type.name(), to_type.name()), bytes, 1, |checks| {
                checks.cast(&from, 0, from_type, n, &mut to, 0, to_type)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    fn tensors(&mut self) -> Result<()> {
        let (from, mut to) = (self.zeros(LARGE_BYTES)?, self.alloc(LARGE_BYTES)?);
        for width in [1usize, 2, 4, 8] {
            let side = 1usize << ((LARGE_BYTES / width).ilog2() / 2);
            let (element, row) = (width as i64, (width * side) as i64);
            let moved_bytes = side * side * width * 2;
            // Also measures a row pitch that is not a power of two, and a matrix with few columns.
            let odd = side - side / 256;
            for (name, columns, rows) in [
                ("transposed", side, side),
                ("transposed, an odd pitch", odd, odd),
                ("transposed, 64 columns", 64, LARGE_BYTES / width / 64),
            ] {
                let pitch = (width * columns) as i64;
                let dims = [Dim { size: columns, stride: element }, Dim { size: rows, stride: pitch }];
                self.row(&format!("gather, {name}, {width} bytes"), columns * rows * width * 2, |s| {
                    Ok(gather(s, &from, 0, width, &dims, &mut to, 0)?)
                })?;
            }
            let half = [Dim { size: side, stride: row }, Dim { size: side / 2, stride: element }];
            self.row(&format!("gather, half of each row, {width} bytes"), moved_bytes / 2, |s| {
                Ok(gather(s, &from, 0, width, &half, &mut to, 0)?)
            })?;
            let backwards = [Dim { size: side * side, stride: -element }];
            self.row(&format!("gather, backwards, {width} bytes"), moved_bytes, |s| {
                Ok(gather(s, &from, side * side * width - width, width, &backwards, &mut to, 0)?)
            })?;
        }
        Ok(())
    }
}
