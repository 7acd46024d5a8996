//! Collects jobs, and launches each kernel once for many of them.

use crossdock_memory::{Arg, Buffer, BufferMut, Error, LaunchSize, Result, Stream, WriteRange};
use crossdock_plugin_api::abi;

use crate::Cells;
use crate::table::{Kind, Row};

/// Jobs that write to buffers. Each kernel is launched once for all its jobs, or several times if
/// one launch cannot pass all arguments.
///
/// The jobs of one kernel run in any order, so no two of them may write to the same bytes.
#[derive(Default)]
pub struct Jobs<'a> {
    kernels: Vec<Queue<'a>>,
}

/// The jobs of one kernel.
struct Queue<'a> {
    row: &'static Row,
    /// The jobs of a later round run after the jobs of an earlier round.
    round: usize,
    /// The arguments of all jobs, concatenated. The heads are added at launch.
    args: Vec<JobArg<'a>>,
    /// For each job, the number of its arguments and the number of its blocks.
    jobs: Vec<(usize, u32)>,
}

/// One argument of a job.
pub(crate) enum JobArg<'a> {
    Value(u64),
    Read(&'a Buffer, usize, usize),
    Write(WriteRange),
    /// A range of the result cells: the index of the first cell, and the number of cells.
    Cells(usize, usize),
    /// An empty range, passed instead of a missing buffer.
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

/// Threads per block.
const THREADS: usize = abi::HOST_KERNEL_THREADS as usize;

/// Multiprocessors of the largest supported device.
const MULTIPROCESSORS: usize = 132;

/// The size of a wave: the number of blocks that run at the same time, eight on each
/// multiprocessor.
const WAVE: usize = 8 * MULTIPROCESSORS;

/// Returns the number of blocks for a job that moves `bytes` bytes. A thread moves 16 bytes per
/// step. Each block has one step as long as all blocks fit into one wave. In larger jobs, a block
/// has up to four steps, because many small blocks balance differences between multiprocessors. On
/// an H200, this gives 86 % of the throughput of a copy, compared to 63 % if all blocks fit into
/// one wave. Blocks with fewer steps would spend most of their time on the search for their job.
pub(crate) fn blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 4, 65536, WAVE)
}

/// Like [`blocks`], for kernels whose blocks take longer to prepare.
pub(crate) fn long_blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 16, 4224, WAVE)
}

/// Like [`blocks`], for kernels that copy by tiles of 32 KiB. Each block copies one tile, so that
/// adjacent tiles are copied at the same time. A multiprocessor can run only half as many of these
/// blocks at the same time. More blocks than tiles would have no work and would delay the other
/// blocks.
pub(crate) fn tile_blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 8, 1 << 20, WAVE / 2)
}

/// Like [`blocks`], limited to one wave: for kernels whose blocks take the longest to prepare.
pub(crate) fn wave_blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 1, WAVE, WAVE)
}

/// Like [`blocks`], limited to half a wave: for kernels that only write sequentially.
pub(crate) fn half_wave_blocks(bytes: usize) -> u32 {
    blocks_of(bytes, 1, WAVE / 2, WAVE / 2)
}

/// Returns the number of blocks for a kernel whose warps process several pieces of work each and
/// prefetch the next piece. There is one warp per piece, but at most `for_each` blocks per
/// multiprocessor.
pub(crate) fn warps(pieces: usize, for_each: usize) -> u32 {
    let max = MULTIPROCESSORS * for_each;
    distribute(pieces.div_ceil(THREADS / 32).max(1), 1, max, max)
}

fn blocks_of(bytes: usize, steps_each: usize, max: usize, wave: usize) -> u32 {
    distribute(bytes.div_ceil(THREADS * 16).max(1), steps_each, max, wave)
}

/// Distributes steps to blocks: `steps_each` steps per block, and at most `max` blocks. If this
/// gives fewer than `wave` blocks, there are `wave` blocks, or one block per step if there are
/// fewer steps.
fn distribute(steps: usize, steps_each: usize, max: usize, wave: usize) -> u32 {
    (steps / steps_each).min(max).max(steps.min(wave)) as u32
}

/// Returns the number of blocks for a kernel whose blocks search for their first tile. A block has
/// sixteen tiles, or fewer tiles if sixteen tiles per block would give less than one wave of
/// blocks.
pub(crate) fn chunks(tiles: usize) -> u32 {
    distribute(tiles.max(1), 16, 65536, WAVE)
}

/// Blocks for a kernel that processes each piece of work with one warp.
pub(crate) fn warps_of(pieces: usize) -> u32 {
    pieces.div_ceil(THREADS / 32).clamp(1, 65536) as u32
}

/// Returns the number of consecutive pieces per warp and the number of blocks, for a kernel that is
/// faster with more pieces per warp. The number of pieces is limited so that there is at least a
/// wave of blocks.
pub(crate) fn groups(pieces: usize) -> (usize, u32) {
    let group = (pieces / (WAVE * THREADS / 32)).clamp(1, 8);
    (group, warps_of(pieces.div_ceil(group)))
}

/// Blocks for a kernel in which each block finally adds its result to a cell.
pub(crate) fn summing_blocks(bytes: usize) -> u32 {
    wave_blocks(bytes / 4)
}

impl<'a> Jobs<'a> {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job after checking its arguments against the kernel's row.
    pub(crate) fn push(
        &mut self,
        row: &'static Row,
        blocks: u32,
        args: impl IntoIterator<Item = JobArg<'a>>,
    ) -> Result<()> {
        self.push_after(row, 0, blocks, args)
    }

    /// Like [`Self::push`], for a job with a round. The job runs after the jobs that the same
    /// kernel has in earlier rounds.
    pub(crate) fn push_after(
        &mut self,
        row: &'static Row,
        round: usize,
        blocks: u32,
        args: impl IntoIterator<Item = JobArg<'a>>,
    ) -> Result<()> {
        let matches = |queue: &Queue<'_>| std::ptr::eq(queue.row, row) && queue.round == round;
        let i = match self.kernels.iter().position(matches) {
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
        let fits = row.accepts(n) && new.iter().enumerate().all(|(i, arg)| row.kind(i) == Some(arg.kind()));
        if fits && n < abi::MAX_KERNEL_ARGS {
            queue.jobs.push((n, blocks.max(1)));
            return Ok(());
        }
        queue.args.truncate(before);
        let name = row.name.to_string_lossy();
        Err(if fits {
            Error::unsupported(format!(
                "{name}: a job has {n} arguments, expected at most {}",
                abi::MAX_KERNEL_ARGS - 1
            ))
        } else {
            Error::internal(format!("{name}: the {n} arguments of a job do not match the kernel's row"))
        })
    }

    /// Enqueues all jobs on `stream`. The kernels run in the order in which they were first added.
    pub fn launch(self, stream: &Stream) -> Result<()> {
        self.launch_with(stream, None)
    }

    pub(crate) fn launch_with(mut self, stream: &Stream, mut cells: Option<&mut Cells>) -> Result<()> {
        for arg in self.kernels.iter_mut().flat_map(|queue| &mut queue.args) {
            if let JobArg::Cells(first, n) = *arg {
                let cells = cells.as_deref_mut();
                let cells = cells.ok_or_else(|| {
                    Error::internal("a job refers to a cell, but is launched without cells")
                })?;
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
            let (job, others) = rest.split_at_checked(*n).unwrap_or((rest, &[]));
            rest = others;
            end += blocks;
            args.push(Arg::Value((*n as u64 + 1) << 32 | u64::from(end)));
            for arg in job {
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
        let size = LaunchSize::new(blocks, THREADS as u32);
        // SAFETY: the arguments are jobs with heads, and `push` checked each job against the
        // kernel's row. Each written range was borrowed mutably when its job was added, and `Jobs`
        // requires that the ranges are disjoint.
        unsafe { stream.launch_by_name(&self.row.host, &size, args) }
    }
}
