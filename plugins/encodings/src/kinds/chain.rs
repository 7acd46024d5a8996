//! Integers that are made step by step from packed ones, in one pass: frame of reference and zigzag, over bit-packed, under
//! ALP or alone.

use crossdock_arrays::DeviceArray;
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use crate::cpu::fastlanes;
use crate::cpu::patches;
use crate::cpu::words::{Index, Word};
use crate::cpu::zigzag;
use crate::job::{Job, Plain, Values};
use crate::node::{Node, in_node};
use crate::nulls::of_bools;
use crate::validity::Validity;
use crate::wire::PType;
use crate::wire::metadata::{BitPacked, Patches, reference};

pub(crate) const BIT_PACKED: &str = "fastlanes.bitpacked";
pub(crate) const FRAME: &str = "fastlanes.for";
pub(crate) const ZIGZAG: &str = "vortex.zigzag";

/// What is done to each value.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// The reference's bits are added.
    Add(u64),
    ZigZag,
}

/// A node, the steps down from it, and what they are done to.
pub(crate) struct Chain<'a> {
    /// The outermost first.
    pub steps: Vec<Step>,
    /// Bit-packed, or anything that somebody else decodes.
    pub last: Node<'a>,
}

impl<'a> Chain<'a> {
    /// From `node` down.
    pub fn new(mut node: Node<'a>) -> Result<Self> {
        let mut steps = Vec::new();
        loop {
            match node.raw.encoding() {
                FRAME => {
                    check_frame(&node)?;
                    steps.push(Step::Add(reference(node.metadata(), ptype(&node)?)?.bits));
                }
                ZIGZAG => {
                    check_zigzag(&node)?;
                    steps.push(Step::ZigZag);
                }
                BIT_PACKED => {
                    check_bit_packed(&node)?;
                    return Ok(Self { steps, last: node });
                }
                _ => return Ok(Self { steps, last: node }),
            }
            node = node.child(0)?;
        }
    }

    /// Whether the last is bit-packed, and this chain's to unpack.
    pub fn is_packed(&self) -> bool {
        self.last.raw.encoding() == BIT_PACKED
    }

    /// Says of the nodes below `node`, in which the chain is, which of them are to be decoded.
    pub fn plan(&self, node: &Node<'_>, decoded: &mut [bool]) {
        let mut set = |index: usize| {
            let place = index.checked_sub(node.raw.index() + 1).and_then(|at| decoded.get_mut(at));
            place.into_iter().for_each(|flag| *flag = true);
        };
        if self.is_packed() {
            self.last.raw.children().for_each(|child| set(child.index()));
        } else {
            set(self.last.raw.index());
        }
    }

    /// All values, each given through `then`, and where the nulls are.
    pub fn decode<T: Word + Plain, U: Plain>(
        &self,
        job: &Job<'_>,
        then: impl Fn(T) -> U + Copy,
    ) -> Result<(Option<Buffer>, Validity)> {
        self.decode_and(job, then, &|_| Ok(()))
    }

    /// The same, with `at_the_end` done to the values.
    pub fn decode_and<T: Word + Plain, U: Plain>(
        &self,
        job: &Job<'_>,
        then: impl Fn(T) -> U + Copy,
        at_the_end: &dyn Fn(&mut [U]) -> Result<()>,
    ) -> Result<(Option<Buffer>, Validity)> {
        let low = T::low;
        // The chains that there are, each a loop of its own.
        match *self.steps.as_slice() {
            [] => self.run(job, then, at_the_end),
            [Step::Add(r)] => self.run(job, move |v: T| then(v.plus(low(r))), at_the_end),
            [Step::ZigZag] => self.run(job, move |v| then(zigzag::decode(v)), at_the_end),
            [Step::Add(r), Step::ZigZag] => {
                self.run(job, move |v: T| then(zigzag::decode(v).plus(low(r))), at_the_end)
            }
            [Step::ZigZag, Step::Add(r)] => {
                self.run(job, move |v: T| then(zigzag::decode(v.plus(low(r)))), at_the_end)
            }
            ref steps => {
                let all = move |v: T| {
                    then(steps.iter().rev().fold(v, |v, step| match step {
                        Step::Add(r) => v.plus(low(*r)),
                        Step::ZigZag => zigzag::decode(v),
                    }))
                };
                self.run(job, all, at_the_end)
            }
        }
    }

    fn run<T: Word + Plain, U: Plain>(
        &self,
        job: &Job<'_>,
        step: impl Fn(T) -> U + Copy,
        at_the_end: &dyn Fn(&mut [U]) -> Result<()>,
    ) -> Result<(Option<Buffer>, Validity)> {
        if self.is_packed() { self.unpack(job, step, at_the_end) } else { self.map(job, step, at_the_end) }
    }

    fn map<T: Word + Plain, U: Plain>(
        &self,
        job: &Job<'_>,
        step: impl Fn(T) -> U + Copy,
        at_the_end: &dyn Fn(&mut [U]) -> Result<()>,
    ) -> Result<(Option<Buffer>, Validity)> {
        let array = job.decoded(self.last.raw)?;
        let from = Values::of(array, job.stream)?;
        let from = from.get::<T>()?;
        let made = job.make_values(from.len(), &mut |to: &mut [U]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = step(*from));
            at_the_end(to)
        })?;
        Ok((Some(made), Validity::of(job, array)?))
    }

    fn unpack<T: Word + Plain, U: Plain>(
        &self,
        job: &Job<'_>,
        step: impl Fn(T) -> U + Copy,
        at_the_end: &dyn Fn(&mut [U]) -> Result<()>,
    ) -> Result<(Option<Buffer>, Validity)> {
        let node = &self.last;
        let packed = BitPacked::read(node.metadata(), ptype(node)?, node.len)?;
        let wrong = |error: crossdock_plugin_api::Error| error.context(node.raw.path());
        let bytes = job.take_buffer_of(node.raw, 0, 1)?;
        let bytes = bytes.as_ref().map(|bytes| bytes.host_view(job.stream)).transpose()?;
        let patched = packed.patches.as_ref().map(|told| Patched::of(job, node, 0, told)).transpose()?;
        let made = job.make_values(node.len, &mut |to: &mut [U]| {
            let bytes: &[u8] = bytes.as_ref().map_or(&[], |view| view);
            fastlanes::unpack(bytes, packed.bit_width, packed.offset as usize, to, step).map_err(wrong)?;
            patched.as_ref().map_or(Ok(()), |patched| patched.apply(job, to, step)).map_err(wrong)?;
            at_the_end(to)
        })?;
        let before = packed.patches.as_ref().map_or(0, Patches::n_children);
        let has_validity = node.raw.n_children() > before;
        let validity = match has_validity {
            true => of_bools(job, job.decoded(node.raw.child(before)?)?)?,
            false => Validity::all(),
        };
        Ok((Some(made), validity))
    }
}

/// Patches, decoded.
pub(crate) struct Patched<'a> {
    pub offset: usize,
    pub indices: &'a DeviceArray,
    pub values: &'a DeviceArray,
}

impl<'a> Patched<'a> {
    /// Those of `node`, whose children they are from number `first` on.
    pub fn of(job: &'a Job<'_>, node: &Node<'_>, first: usize, told: &Patches) -> Result<Self> {
        let indices = job.decoded(node.raw.child(first)?)?;
        let values = job.decoded(node.raw.child(first + 1)?)?;
        // Their type may have nulls if the node's has, but a patch is there because of its value.
        if values.null_count() != Some(0) && values.count_nulls(job.stream)? > 0 {
            return Err(node.wrong("its patches have nulls, expected values"));
        }
        Ok(Self { offset: told.offset, indices, values })
    }

    /// Puts them into `to`, each through `step`.
    pub fn apply<V: Plain, U>(
        &self,
        job: &Job<'_>,
        to: &mut [U],
        step: impl Fn(V) -> U + Copy,
    ) -> Result<()> {
        let (indices, values) = (Values::of(self.indices, job.stream)?, Values::of(self.values, job.stream)?);
        let put = values.get::<V>()?;
        match self.indices.data_type().primitive_width() {
            Some(1) => self.put(indices.get::<u8>()?, put, to, step),
            Some(2) => self.put(indices.get::<u16>()?, put, to, step),
            Some(4) => self.put(indices.get::<u32>()?, put, to, step),
            _ => self.put(indices.get::<u64>()?, put, to, step),
        }
    }

    fn put<I: Index, V: Plain, U>(
        &self,
        indices: &[I],
        put: &[V],
        to: &mut [U],
        step: impl Fn(V) -> U,
    ) -> Result<()> {
        patches::apply(indices, self.offset, put, to, step)
    }
}

impl Patches {
    /// How many children they are.
    pub fn n_children(&self) -> usize {
        2 + usize::from(self.chunk_offsets.is_some())
    }

    /// They are what they say, as children of `node` from number `first` on.
    pub fn check(&self, node: &Node<'_>, first: usize, data_type: &arrow_schema::DataType) -> Result<()> {
        node.child(first)?.expect_all_valid(&self.indices_ptype.arrow(), self.len, "indices of patches")?;
        node.child(first + 1)?.expect(data_type, self.len, "values of patches")?;
        match &self.chunk_offsets {
            Some(told) => {
                let chunks = (self.offset % patches::CHUNK).saturating_add(node.len).div_ceil(patches::CHUNK);
                if told.len != chunks {
                    return Err(node.wrong(format_args!(
                        "its patches have {} chunk offsets, expected {chunks}: one for each {} values",
                        told.len,
                        patches::CHUNK
                    )));
                }
                let offsets = node.child(first + 2)?;
                offsets.expect_all_valid(&told.ptype.arrow(), told.len, "offsets of patches' chunks")
            }
            None => Ok(()),
        }
    }
}

/// The integer type that a node's values lie in memory as.
pub(crate) fn ptype(node: &Node<'_>) -> Result<PType> {
    let ptype = PType::from_arrow(node.data_type()).filter(|_| node.data_type().is_integer());
    ptype.ok_or_else(|| node.wrong(format_args!("its type is {}, expected an integer", node.data_type())))
}

pub(crate) fn check_bit_packed(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(1)?;
    let packed = in_node(node, BitPacked::read(node.metadata(), ptype(node)?, node.len))?;
    let n = packed.patches.as_ref().map_or(0, Patches::n_children);
    node.expect_children_and_validity(n)?;
    if let Some(patches) = &packed.patches {
        patches.check(node, 0, node.data_type())?;
    }
    let expected = fastlanes::packed_bytes(packed.bit_width, packed.offset as usize, node.len);
    let (expected, found) = (in_node(node, expected)?, node.buffer_bytes(0)?);
    if found == expected as u64 {
        return Ok(());
    }
    Err(node.wrong(format_args!("it is packed in {found} bytes, expected {expected}")))
}

pub(crate) fn check_frame(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    node.expect_children(1)?;
    in_node(node, reference(node.metadata(), ptype(node)?))?;
    node.child(0)?.expect(node.data_type(), node.len, "integers above a reference")
}

pub(crate) fn check_zigzag(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(0)?;
    node.expect_children(1)?;
    let unsigned = match ptype(node)? {
        PType::I8 => PType::U8,
        PType::I16 => PType::U16,
        PType::I32 => PType::U32,
        PType::I64 => PType::U64,
        other => return Err(node.wrong(format_args!("its type is {other}, expected a signed integer"))),
    };
    node.child(0)?.expect(&unsigned.arrow(), node.len, "integers of either sign")
}
