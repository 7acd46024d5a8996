//! Views of values that lie one after the other.

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::codes::{Begins, Codes, Marks};
use crate::door::Args;
use crate::jobs::{JobArg, chunks};
use crate::table::kernel;
use crate::words::integers;
use crate::{Checks, Integers, Source};

kernel!(
    VIEWS_OF_OFFSETS,
    c"crossdock_views_of_offsets",
    (
        offsets: Read, offset_width: Value, offset_signed: Value, data: Read, part: Value, views: Write, ends: Write,
        over: Write, cell: Write
    ),
    by_offsets
);
kernel!(
    VIEWS_OF_CODES,
    c"crossdock_views_of_codes",
    (
        n: Value, each: Value, offsets: Read, offset_width: Value, offset_signed: Value, shift: Value,
        marks: Read, bases: Read, starts: Read, told: Read, told_width: Value, told_signed: Value, data: Read,
        part: Value, views: Write, ends: Write, over: Write, cell: Write
    ),
    by_codes
);

const BYTES: usize = 16;

/// Values that the warps of a block take at a time.
const TILE: usize = 2048;
const IN_PLACE: usize = 12;

/// What is made of values: their views, and what says where they lie.
pub struct Views<'a, 't> {
    /// What they are views of.
    pub data: Source<'a>,
    /// Data buffer `i` of the array is to begin at byte `i << part` of that: at most 31.
    pub part: u32,
    /// How many values.
    pub len: usize,
    /// Where the views go.
    pub views: &'t mut BufferMut,
    /// Where it goes at which bytes values begin, and the last one ends, as numbers of 8 bytes, if anybody asks.
    pub offsets: Option<&'t mut BufferMut>,
}

/// The cells of what makes views.
#[derive(Clone, Copy, Debug)]
pub struct Viewed {
    /// The first value that is not where it says, as long as it says, or that no view can say where it lies.
    pub wrong: usize,
    /// As many as there are parts: of each, where the value ends that begins in it and ends in the next.
    pub over: usize,
}

impl Views<'_, '_> {
    /// How many parts the data has.
    pub fn parts(&self) -> usize {
        (self.data.len >> self.part) + 1
    }
}

impl<'a> Checks<'a> {
    /// Makes the views of values that lie between offsets.
    pub fn views_of_offsets(&mut self, offsets: Integers<'a>, views: Views<'a, '_>) -> Result<Viewed> {
        let (cells, blocks) = (self.viewed(&views), chunks(views.len.div_ceil(TILE)));
        let args = offsets.args_by_width()?.into_iter().chain(views.args(cells)?);
        self.push(&VIEWS_OF_OFFSETS, blocks, args)?;
        Ok(cells)
    }

    /// Makes the views of values that codes decode to, to as many bytes as is `told` of each. The codes have been measured,
    /// and found right.
    pub fn views_of_codes(
        &mut self,
        codes: Codes<'a>,
        marks: &'a Marks<Buffer>,
        told: Integers<'a>,
        views: Views<'a, '_>,
    ) -> Result<Viewed> {
        let (cells, blocks) = (self.viewed(&views), chunks(views.len.div_ceil(TILE)));
        let told = told.args_by_width()?;
        let args = codes.begins_args(marks)?.into_iter().chain(told).chain(views.args(cells)?);
        self.push(&VIEWS_OF_CODES, blocks, args)?;
        Ok(cells)
    }

    fn viewed(&mut self, views: &Views<'_, '_>) -> Viewed {
        Viewed { wrong: self.cells(1), over: self.cells(views.parts()) }
    }
}

impl<'a> Views<'a, '_> {
    fn args(self, cells: Viewed) -> Result<[JobArg<'a>; 6]> {
        let parts = self.parts();
        let none = JobArg::write(self.views, 0, 0)?;
        let views = JobArg::write(self.views, 0, self.len.saturating_mul(BYTES))?;
        let offsets = self.offsets.map(|to| JobArg::write(to, 0, (self.len + 1).saturating_mul(8)));
        Ok([
            self.data.arg(1),
            JobArg::Value(self.part.into()),
            views,
            offsets.transpose()?.unwrap_or(none),
            JobArg::Cells(cells.over, parts),
            JobArg::Cells(cells.wrong, 1),
        ])
    }
}

fn by_offsets(args: Args<'_>) -> Option<()> {
    let offsets = integers(args.read(0)?, args.index(1)?, args.value(2)? != 0)?;
    make(&args, 3, &offsets, None, |at| u64::try_from(at).ok())
}

fn by_codes(args: Args<'_>) -> Option<()> {
    let begins = Begins::of(&args)?;
    let told = integers(args.read(9)?, args.index(10)?, args.value(11)? != 0)?;
    make(&args, 12, &begins.offsets, Some(&told), |at| begins.begin(at))
}

/// Views, from argument `at` on: `begin` says at which byte the value begins whose offset it is given.
fn make(
    args: &Args<'_>,
    at: usize,
    offsets: &[i64],
    told: Option<&[i64]>,
    begin: impl Fn(i64) -> Option<u64>,
) -> Option<()> {
    let (data, part) = (args.read(at)?, u32::try_from(args.value(at + 1)?).ok()?);
    let (views, ends) = (args.write(at + 2)?.as_chunks_mut::<BYTES>().0, args.write(at + 3)?);
    let (ends, over) = (ends.as_chunks_mut::<8>().0, args.write(at + 4)?.as_chunks_mut::<8>().0);
    if offsets.len() <= views.len() || part > 31 {
        return None;
    }
    if let Some(first) = ends.first_mut() {
        *first = begin(*offsets.first()?).unwrap_or(0).to_ne_bytes();
    }
    let mut found = None;
    for (i, view) in views.iter_mut().enumerate() {
        let pair = begin(*offsets.get(i)?).zip(begin(*offsets.get(i + 1)?));
        let range = pair.filter(|(begin, end)| {
            let is_told = told.is_none_or(|told| {
                told.get(i).is_some_and(|told| Some(*told as u64) == end.checked_sub(*begin))
            });
            let limit = (1u64 << part).min(i32::MAX as u64);
            begin <= end && *end <= data.len() as u64 && end - begin <= limit && is_told
        });
        *view = [0; BYTES];
        if let Some(to) = ends.get_mut(i + 1) {
            *to = range.map_or(0, |(_, end)| end).to_ne_bytes();
        }
        let Some((begin, end)) = range else {
            found = found.or(Some(i));
            continue;
        };
        let value = data.get(begin as usize..end as usize)?;
        let number = begin >> part;
        let (head, tail) = view.split_at_mut(4);
        head.copy_from_slice(&(value.len() as u32).to_le_bytes());
        let n = if value.len() <= IN_PLACE { value.len() } else { 4 };
        tail.iter_mut().zip(value.get(..n)?).for_each(|(to, byte)| *to = *byte);
        if value.len() > IN_PLACE {
            let place = number | (begin - (number << part)) << 32;
            tail.last_chunk_mut::<8>()?.copy_from_slice(&place.to_le_bytes());
            if (end - 1) >> part != number
                && let Some(over) = over.get_mut(number as usize)
            {
                *over = u64::from_ne_bytes(*over).min(end).to_ne_bytes();
            }
        }
    }
    args.found(at + 5, found)
}
