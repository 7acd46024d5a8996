//! Decodes chains of frame of reference and zigzag over bit-packed or other integers, in one pass.
//! ALP applies its own step at the end of a chain.

use crossdock_arrays::DeviceArray;
use crossdock_memory::Buffer;
use crossdock_plugin_api::Result;

use crate::children::{Child, Children};
use crate::cpu::fastlanes;
use crate::cpu::patches;
use crate::cpu::words::{Index, Word};
use crate::cpu::zigzag;
use crate::job::{Job, Plain, Values};
use crate::node::{Node, in_node};
use crate::nulls::validity_from_bools;
use crate::validity::Validity;
use crate::wire::PType;
use crate::wire::metadata::{BitPacked, Patches, reference};

pub(crate) const BIT_PACKED: &str = "fastlanes.bitpacked";
pub(crate) const FRAME: &str = "fastlanes.for";
pub(crate) const ZIGZAG: &str = "vortex.zigzag";

/// An operation on each value.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// Adds a reference, given as its bits.
    Add(u64),
    ZigZag,
}

/// The steps of a node and its descendants, and the descendant whose values the steps apply to.
pub(crate) struct Chain<'a> {
    /// Outermost step first.
    pub steps: Vec<Step>,
    /// The node at the end of the chain: a bit-packed node, or a node that another decoder decodes.
    pub last: Node<'a>,
}

impl<'a> Chain<'a> {
    /// The chain that begins with `node`.
    pub fn new(mut node: Node<'a>) -> Result<Self> {
        let mut steps = Vec::new();
        loop {
            match node.raw.encoding() {
                FRAME => {
                    check_frame(&node)?;
                    frame_children(&node)?.check(&node)?;
                    steps.push(Step::Add(reference(node.metadata(), ptype(&node)?)?.bits));
                }
                ZIGZAG => {
                    check_zigzag(&node)?;
                    zigzag_children(&node)?.check(&node)?;
                    steps.push(Step::ZigZag);
                }
                BIT_PACKED => {
                    check_bit_packed(&node)?;
                    bit_packed_children(&node)?.check(&node)?;
                    return Ok(Self { steps, last: node });
                }
                _ => return Ok(Self { steps, last: node }),
            }
            node = node.child(0)?;
        }
    }

    /// Whether the last node is bit-packed, so that the chain unpacks it.
    pub fn is_packed(&self) -> bool {
        self.last.raw.encoding() == BIT_PACKED
    }

    /// Marks the descendants of `node` that must be decoded before this chain. The chain is part of
    /// the subtree of `node`.
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

    /// Decodes all values, applies `then` to each value, and returns the validity of the values.
    pub fn decode<T: Word + Plain, U: Plain>(
        &self,
        job: &Job<'_>,
        then: impl Fn(T) -> U + Copy,
    ) -> Result<(Option<Buffer>, Validity)> {
        self.decode_and(job, then, &|_| Ok(()))
    }

    /// Decodes like [`decode`](Self::decode), and finally calls `at_the_end` with all values.
    pub fn decode_and<T: Word + Plain, U: Plain>(
        &self,
        job: &Job<'_>,
        then: impl Fn(T) -> U + Copy,
        at_the_end: &dyn Fn(&mut [U]) -> Result<()>,
    ) -> Result<(Option<Buffer>, Validity)> {
        let low = T::low;
        // Each common chain has its own loop, so that the compiler can optimize its steps together.
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
        let from = Values::new(array, job.stream)?;
        let from = from.get::<T>()?;
        let values = job.make_values(from.len(), &mut |to: &mut [U]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = step(*from));
            at_the_end(to)
        })?;
        Ok((Some(values), Validity::from_array(job, array)?))
    }

    fn unpack<T: Word + Plain, U: Plain>(
        &self,
        job: &Job<'_>,
        step: impl Fn(T) -> U + Copy,
        at_the_end: &dyn Fn(&mut [U]) -> Result<()>,
    ) -> Result<(Option<Buffer>, Validity)> {
        let node = &self.last;
        let packed = BitPacked::read(node.metadata(), ptype(node)?, node.len)?;
        let with_path = |error: crossdock_plugin_api::Error| error.context(node.raw.path());
        let bytes = job.take_buffer_of(node.raw, 0, 1)?;
        let bytes = bytes.as_ref().map(|bytes| bytes.host_view(job.stream)).transpose()?;
        let patched =
            packed.patches.as_ref().map(|patches| Patched::new(job, node, 0, patches)).transpose()?;
        let values = job.make_values(node.len, &mut |to: &mut [U]| {
            let bytes: &[u8] = bytes.as_ref().map_or(&[], |view| view);
            fastlanes::unpack(bytes, packed.bit_width, packed.offset as usize, to, step)
                .map_err(with_path)?;
            patched.as_ref().map_or(Ok(()), |patched| patched.apply(job, to, step)).map_err(with_path)?;
            at_the_end(to)
        })?;
        let before = packed.patches.as_ref().map_or(0, Patches::n_children);
        let has_validity = node.raw.n_children() > before;
        let validity = match has_validity {
            true => validity_from_bools(job, job.decoded(node.raw.child(before)?)?)?,
            false => Validity::all_valid(),
        };
        Ok((Some(values), validity))
    }
}

/// Decoded patches.
pub(crate) struct Patched<'a> {
    pub offset: usize,
    pub indices: &'a DeviceArray,
    pub values: &'a DeviceArray,
}

impl<'a> Patched<'a> {
    /// Returns the patches of `node`. They are the children of `node` from index `first` on.
    pub fn new(job: &'a Job<'_>, node: &Node<'_>, first: usize, patches: &Patches) -> Result<Self> {
        let indices = job.decoded(node.raw.child(first)?)?;
        let values = job.decoded(node.raw.child(first + 1)?)?;
        // If the node's type is nullable, the type of its patches is also nullable. But a patch
        // must not be null.
        if values.null_count() != Some(0) && values.count_nulls(job.stream)? > 0 {
            return Err(node.wrong("the patches have nulls, expected values"));
        }
        Ok(Self { offset: patches.offset, indices, values })
    }

    /// Writes the patches to `to`, with `step` applied to each.
    pub fn apply<V: Plain, U>(
        &self,
        job: &Job<'_>,
        to: &mut [U],
        step: impl Fn(V) -> U + Copy,
    ) -> Result<()> {
        let (indices, values) =
            (Values::new(self.indices, job.stream)?, Values::new(self.values, job.stream)?);
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
    /// Number of children that contain the patches.
    pub fn n_children(&self) -> usize {
        2 + usize::from(self.chunk_offsets.is_some())
    }

    /// The children of `node` that contain the patches, whose values have this type.
    pub fn children(
        &self,
        node: &Node<'_>,
        data_type: arrow_schema::DataType,
        nullable: bool,
    ) -> Result<Vec<Child>> {
        let mut children = vec![
            Child::all_valid("indices of patches", self.indices_ptype.arrow(), self.len),
            Child::with_nulls("values of patches", data_type, nullable, self.len),
        ];
        if let Some(metadata) = &self.chunk_offsets {
            let chunks = (self.offset % patches::CHUNK).saturating_add(node.len).div_ceil(patches::CHUNK);
            if metadata.len != chunks {
                return Err(node.wrong(format_args!(
                    "the patches have {} chunk offsets, expected {chunks}: one per {} values",
                    metadata.len,
                    patches::CHUNK
                )));
            }
            let role = "offsets of patches' chunks";
            children.push(Child::all_valid(role, metadata.ptype.arrow(), metadata.len));
        }
        Ok(children)
    }
}

/// The integer type of a node's values in memory.
pub(crate) fn ptype(node: &Node<'_>) -> Result<PType> {
    let ptype = PType::from_arrow(node.data_type()).filter(|_| node.data_type().is_integer());
    ptype.ok_or_else(|| {
        node.wrong(format_args!(
            "the type is {}, expected an integer",
            crossdock_arrays::type_name(node.data_type())
        ))
    })
}

pub(crate) fn bit_packed_metadata(node: &Node<'_>) -> Result<BitPacked> {
    in_node(node, BitPacked::read(node.metadata(), ptype(node)?, node.len))
}

pub(crate) fn check_bit_packed(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(1)?;
    let packed = bit_packed_metadata(node)?;
    let expected = fastlanes::packed_bytes(packed.bit_width, packed.offset as usize, node.len);
    let (expected, actual) = (in_node(node, expected)?, node.buffer_bytes(0)?);
    if actual == expected as u64 {
        return Ok(());
    }
    Err(node.wrong(format_args!("the packed values have {actual} bytes, expected {expected}")))
}

pub(crate) fn bit_packed_children(node: &Node<'_>) -> Result<Children> {
    let patches = bit_packed_metadata(node)?.patches;
    let patches =
        patches.map(|p| p.children(node, node.data_type().clone(), node.is_nullable())).transpose()?;
    Ok(Children::with_validity(patches.unwrap_or_default()))
}

pub(crate) fn check_frame(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    in_node(node, reference(node.metadata(), ptype(node)?)).map(drop)
}

pub(crate) fn frame_children(node: &Node<'_>) -> Result<Children> {
    let role = "integers with a reference";
    Ok(Children::new([Child::with_nulls(role, node.data_type().clone(), node.is_nullable(), node.len)]))
}

pub(crate) fn check_zigzag(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(0)
}

pub(crate) fn zigzag_children(node: &Node<'_>) -> Result<Children> {
    let unsigned = match ptype(node)? {
        PType::I8 => PType::U8,
        PType::I16 => PType::U16,
        PType::I32 => PType::U32,
        PType::I64 => PType::U64,
        other => {
            return Err(node.wrong(format_args!("the type is {other}, expected a signed integer")));
        }
    };
    let role = "zigzag-encoded integers";
    Ok(Children::new([Child::with_nulls(role, unsigned.arrow(), node.is_nullable(), node.len)]))
}
