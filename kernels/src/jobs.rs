//! Many jobs, few launches.

use crossdock_memory::{Arg, Buffer, BufferMut, Error, Result, Stream, WriteRange};
use crossdock_plugin_api::abi;

use crate::Cells;
use crate::table::{Kind, Row};

/// Work on buffers that are being filled, collected and then launched: each kernel once, or as often as its arguments
/// have no room in one launch.
///
/// The jobs of one kernel are in no order, and no two may write the same bytes.
#[derive(Default)]
pub struct Jobs<'a> {
    kernels: Vec<Queue<'a>>,
}

/// The jobs of one kernel.
struct Queue<'a> {
    row: &'static Row,
    /// What is in a later round runs after what is in an earlier one.
    round: usize,
    /// Of all jobs, one after the other, without heads.
    args: Vec<JobArg<'a>>,
    /// How many arguments each has, and how many blocks work for it.
    jobs: Vec<(usize, u32)>,
}

/// One argument of a job.
pub(crate) enum JobArg<'a> {
    Value(u64),
    Read(&'a Buffer, usize, usize),
    Write(WriteRange),
    /// Of the cells that the jobs are launched with: the first, and how many.
    Cells(usize, usize),
    /// Nothing to read, where there is no buffer to name.
    NoBytes,
}

impl JobArg<'_> {
    pub(crate) fn write(buffer: &mut BufferMut, offset: usize, bytes: usize) -> Result<Self> {
        Ok(Self::Write(buffer.write_range(offset, bytes)?))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Value(_) => Kind::Value,
            Self::Read(..) | Self::NoBytes => Kind::Read,
            Self::Write(_) | Self::Cells(..) => Kind::Write,
        }
    }
}

/// Threads of a block.
const THREADS: usize = abi::HOST_KERNEL_THREADS as usize;

/// Those of the largest device.
const MULTIPROCESSORS: usize = 132;

/// As many blocks as fill it once, eight at once on each.
const WAVE: usize = 8 * MULTIPROCESSORS;

/// Blocks for a job that moves so many bytes, 16 a thread and step: as many as there are steps, up to a wave; beyond, four
/// steps each. Small blocks even out that some multiprocessors are slower than others (on an H200 63 % of a copy's rate in
/// one wave became 86 %), and smaller ones would do little but find their job.
pub(crate) fn blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 4, 65536, WAVE)
}

/// Likewise for one whose blocks have more to prepare.
pub(crate) fn long_blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 16, 4224, WAVE)
}

/// Likewise for one that goes by tiles of 32 KiB: one each, so that those that run at the same time are next to each other
/// however long each takes. A multiprocessor has room for half as many as of others; more would find no tile, and keep
/// those that do waiting.
pub(crate) fn tile_blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 8, 1 << 20, WAVE / 2)
}

/// Likewise, where that takes the longest.
pub(crate) fn wave_blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 1, WAVE, WAVE)
}

/// Likewise, in half a wave: for what only writes, one place after the other.
pub(crate) fn half_wave_blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 1, WAVE / 2, WAVE / 2)
}

/// For one whose warps take so many pieces in turn, each with the next one under way: a warp each, up to so many blocks for
/// each multiprocessor.
pub(crate) fn warps(pieces: usize, for_each: usize) -> u32 {
    let most = MULTIPROCESSORS * for_each;
    shared(pieces.div_ceil(THREADS / 32).max(1), 1, most, most)
}

fn blocks_of(bytes: usize, steps_each: usize, most: usize, wave: usize) -> u32 {
    shared(bytes.div_ceil(THREADS * 16).max(1), steps_each, most, wave)
}

/// Where there are fewer than `wave`, a step each.
fn shared(steps: usize, steps_each: usize, most: usize, wave: usize) -> u32 {
    (steps / steps_each).min(most).max(steps.min(wave)) as u32
}

/// For one that looks for where it begins, and is the faster the longer it goes on from there: sixteen tiles each, where that
/// leaves a wave.
pub(crate) fn chunks(tiles: usize) -> u32 {
    shared(tiles.max(1), 16, 65536, WAVE)
}

/// A warp for each of so many pieces.
pub(crate) fn warps_of(pieces: usize) -> u32 {
    pieces.div_ceil(THREADS / 32).clamp(1, 65536) as u32
}

/// For one whose warps take pieces one after the other, the more of them in a row the faster: how many in a row, so that a
/// wave is left, and for how many blocks.
pub(crate) fn groups(pieces: usize) -> (usize, u32) {
    let group = (pieces / (WAVE * THREADS / 32)).clamp(1, 8);
    (group, warps_of(pieces.div_ceil(group)))
}

/// For one that ends in an addition to a cell by each block.
pub(crate) fn summing_blocks(bytes: usize) -> u32 {
    wave_blocks(bytes / 4)
}

impl<'a> Jobs<'a> {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job, after a look at whether its arguments are what the kernel's row says.
    pub(crate) fn push(
        &mut self,
        row: &'static Row,
        blocks: u32,
        args: impl IntoIterator<Item = JobArg<'a>>,
    ) -> Result<()> {
        self.push_after(row, 0, blocks, args)
    }

    /// The same, to run after the jobs of this kernel in the rounds before.
    pub(crate) fn push_after(
        &mut self,
        row: &'static Row,
        round: usize,
        blocks: u32,
        args: impl IntoIterator<Item = JobArg<'a>>,
    ) -> Result<()> {
        let is_its = |queue: &Queue<'_>| std::ptr::eq(queue.row, row) && queue.round == round;
        let i = match self.kernels.iter().position(is_its) {
            Some(i) => i,
            None => {
                self.kernels.push(Queue { row, round, args: Vec::new(), jobs: Vec::new() });
                self.kernels.len() - 1
            }
        };
        let Some(queue) = self.kernels.get_mut(i) else { return Ok(()) };
        let before = queue.args.len();
        queue.args.extend(args);
        let new = queue.args.get(before..).unwrap_or(&[]);
        let n = new.len();
        let fits = row.takes(n) && new.iter().enumerate().all(|(i, arg)| row.kind(i) == Some(arg.kind()));
        if fits && n < abi::MAX_KERNEL_ARGS {
            queue.jobs.push((n, blocks.max(1)));
            return Ok(());
        }
        queue.args.truncate(before);
        let name = row.name.to_string_lossy();
        Err(if fits {
            Error::unsupported(format!(
                "{name} was given {n} arguments, and a launch has room for {}",
                abi::MAX_KERNEL_ARGS - 1
            ))
        } else {
            Error::internal(format!("{name} was given {n} arguments that are not those of its row"))
        })
    }

    /// Enqueues all of them on `stream`, the kernels in the order in which they were first asked for.
    pub fn launch(self, stream: &Stream) -> Result<()> {
        self.launch_with(stream, None)
    }

    pub(crate) fn launch_with(mut self, stream: &Stream, mut cells: Option<&mut Cells>) -> Result<()> {
        for arg in self.kernels.iter_mut().flat_map(|queue| &mut queue.args) {
            if let JobArg::Cells(first, n) = *arg {
                let cells = cells.as_deref_mut();
                let cells = cells.ok_or_else(|| Error::internal("a job without cells asked for one"))?;
                *arg = JobArg::Write(cells.range(first, n)?);
            }
        }
        self.kernels.iter().try_for_each(|queue| queue.launch(stream))
    }
}

impl Queue<'_> {
    fn launch(&self, stream: &Stream) -> Result<()> {
        let mut rest = self.args.as_slice();
        let mut args: Vec<Arg<'_>> = Vec::with_capacity(abi::MAX_KERNEL_ARGS);
        let mut end = 0;
        for (n, blocks) in &self.jobs {
            if args.len() + 1 + n > abi::MAX_KERNEL_ARGS {
                self.launch_one(stream, end, &mut args)?;
                (args, end) = (Vec::with_capacity(abi::MAX_KERNEL_ARGS), 0);
            }
            let (own, others) = rest.split_at_checked(*n).unwrap_or((rest, &[]));
            rest = others;
            end += blocks;
            args.push(Arg::Value((*n as u64 + 1) << 32 | u64::from(end)));
            for arg in own {
                args.push(match arg {
                    JobArg::Value(value) => Arg::Value(*value),
                    JobArg::Read(buffer, offset, bytes) => {
                        Arg::Read { buffer, offset: *offset, bytes: *bytes }
                    }
                    JobArg::Write(range) => Arg::WriteTo(range),
                    JobArg::NoBytes => Arg::ReadNothing,
                    JobArg::Cells(..) => return Err(Error::internal("a cell was not resolved")),
                });
            }
        }
        if args.is_empty() { Ok(()) } else { self.launch_one(stream, end, &mut args) }
    }

    fn launch_one(&self, stream: &Stream, blocks: u32, args: &mut [Arg<'_>]) -> Result<()> {
        let grid = abi::Grid { blocks, threads: THREADS as u32, shared_bytes: 0, reserved: 0 };
        // SAFETY: jobs with their heads, each of which `push` held to the kernel's row; what they write was borrowed
        // mutably by whoever added them, and lies apart by the word of `Jobs`.
        unsafe { stream.launch_by_name(&self.row.host, grid, args) }
    }
}
