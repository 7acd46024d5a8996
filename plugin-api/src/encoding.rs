//! `crossdock.encoding/1`: encoded arrays to batches.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::encoded::{EncodedArray, EncodedNode};
use crate::error::{Code, Error, Result};
use crate::owned::Owned;
use crate::plugin::{Instance, Plugin, with};
use crate::program::{self, Operator};
use crate::words::Device;

/// Decodes encodings.
pub trait Encoding: Send + Sync {
    /// The ids that it decodes, with their versions; the same answer every time.
    fn ids(&self) -> &[&'static str];

    /// Does the node fit its metadata, buffers and children? Looks at no device memory.
    fn check(&self, node: EncodedNode<'_>) -> Result<()>;

    /// How many bytes decoding needs, or `None` where only the device knows.
    fn size(&self, node: EncodedNode<'_>) -> Result<Option<u64>>;

    /// Whether [`decode`](Encoding::decode) is written; the same answer every time. Where it is not, hosts find NULL in its place and ask
    /// for programs everywhere, on the CPU too: [`lower`](Encoding::lower) has one for each node then.
    fn decodes(&self) -> bool {
        true
    }

    /// What the node's values are made of, if the host can make them: it does so where they are wanted on a device, in one pass
    /// with what is above and below, and does not ask for a plan then.
    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let _ = node;
        Ok(None)
    }

    /// Where it decodes the node if it is wanted on `wanted`, and which of the nodes below it it wants decoded.
    fn plan(&self, node: EncodedNode<'_>, wanted: Device) -> Result<DecodePlan> {
        let _ = wanted;
        Ok(DecodePlan::of_children(node))
    }

    /// Decodes the node on the call's device: a batch of one column, of the node's type and length. `below` has an entry for
    /// each node below it, in pre-order: a batch of one column for those that are decoded already. Whoever does not write it says
    /// so in [`decodes`](Encoding::decodes).
    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let (_, _) = (call, below);
        let what = "its plugin says that it decodes, and has no `decode`: write it, or have `decodes` say so";
        Err(Error::unsupported(format!("{}: {what}", node.path())))
    }
}

/// How a node would be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodePlan {
    /// Where.
    pub device: Device,
    /// For each node below it, in pre-order, whether it is decoded first; what is below such a one does not count.
    pub decoded: Vec<bool>,
}

impl DecodePlan {
    /// On the CPU, all children decoded.
    pub fn of_children(node: EncodedNode<'_>) -> Self {
        let mut decoded = vec![false; node.end() - node.index() - 1];
        for child in node.children() {
            if let Some(flag) = decoded.get_mut(child.index() - node.index() - 1) {
                *flag = true;
            }
        }
        Self { device: Device::CPU, decoded }
    }
}

pub(crate) const fn table<P: Plugin>(decodes: bool) -> abi::Encoding {
    abi::Encoding {
        struct_size: size_of::<abi::Encoding>(),
        ids: Some(ids::<P>),
        check: Some(check::<P>),
        size: Some(size::<P>),
        lower: Some(lower::<P>),
        plan: Some(plan::<P>),
        decode: if decodes { Some(decode::<P>) } else { None },
    }
}

/// A loaded plugin's encodings, on the calling side.
#[derive(Clone, Copy)]
pub struct EncodingHandle<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) table: abi::Encoding,
}

impl EncodingHandle<'_> {
    /// The ids that it decodes.
    pub fn ids(&self) -> Result<Vec<String>> {
        const MOST: usize = 1 << 16;
        let f = self.table.ids.ok_or_else(|| missing("ids"))?;
        let (mut list, mut n) = (std::ptr::null(), 0);
        // SAFETY: the instance's own function on itself.
        Error::check(|err| unsafe { f(self.instance.raw(), &mut list, &mut n, err) })?;
        if n > MOST || (list.is_null() && n > 0) {
            return Err(Error::internal(format!("a list of {n} encodings is not plausible")));
        }
        // SAFETY: so many texts, borrowed from the instance.
        (0..n).map(|i| unsafe { (*list.add(i)).get() }.map(str::to_string)).collect()
    }

    /// Whether the node fits its metadata, buffers and children.
    pub fn check(&self, array: &EncodedArray, node: usize) -> Result<()> {
        let f = self.table.check.ok_or_else(|| missing("check"))?;
        // SAFETY: the instance's own function on itself; the array is borrowed for the call.
        Error::check(|err| unsafe { f(self.instance.raw(), array.as_ptr(), node, err) })
    }

    /// How many bytes decoding the node needs, if that is known without looking at a device.
    pub fn size(&self, array: &EncodedArray, node: usize) -> Result<Option<u64>> {
        let f = self.table.size.ok_or_else(|| missing("size"))?;
        let mut bytes = -1;
        // SAFETY: as above.
        Error::check(|err| unsafe { f(self.instance.raw(), array.as_ptr(), node, &mut bytes, err) })?;
        Ok(u64::try_from(bytes).ok())
    }

    /// Whether it decodes nodes itself; else all of them have programs.
    pub fn decodes(&self) -> bool {
        self.table.decode.is_some()
    }

    /// The program that makes the node's values, where there is one whose operators this build knows.
    pub fn lower(&self, array: &EncodedArray, node: usize) -> Result<Option<Vec<Operator>>> {
        let Some(f) = self.table.lower else { return Ok(None) };
        let mut room = [abi::Operator { code: 0, index: 0, a: 0, b: 0 }; abi::MAX_OPERATORS];
        let (out, mut n) = (room.as_mut_ptr(), 0);
        // SAFETY: as above; the room is as large as is said.
        match Error::check(|err| unsafe {
            f(self.instance.raw(), array.as_ptr(), node, out, abi::MAX_OPERATORS, &mut n, err)
        }) {
            Ok(()) => program::read(&room, n),
            Err(error) if error.code() == Code::UNSUPPORTED => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How the node would be decoded for `wanted`.
    pub fn plan(&self, array: &EncodedArray, node: usize, wanted: Device) -> Result<DecodePlan> {
        let mut plan = DecodePlan::of_children(array.node(node)?);
        if let Some(f) = self.table.plan {
            let mut flags: Vec<u8> = plan.decoded.iter().map(|flag| u8::from(*flag)).collect();
            let (device, list, n) = (&mut plan.device, flags.as_mut_ptr(), flags.len());
            // SAFETY: as above; the list has a place for each node below.
            Error::check(|err| unsafe {
                f(self.instance.raw(), array.as_ptr(), node, wanted, device, list, n, err)
            })?;
            plan.decoded = flags.into_iter().map(|flag| flag != 0).collect();
        }
        if plan.device != wanted && plan.device != Device::CPU {
            return Err(Error::internal(format!(
                "a node that is wanted on {wanted} would be decoded on {}",
                plan.device
            )));
        }
        Ok(plan)
    }

    /// Decodes the node; see [`Encoding::decode`].
    pub fn decode(
        &self,
        call: &CallSettings,
        array: &EncodedArray,
        node: usize,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let f = self.table.decode.ok_or_else(|| missing("decode"))?;
        // SAFETY: one that holds nothing.
        let nothing = || unsafe { Owned::new(abi::Batch::new()) };
        let mut below: Vec<_> = below.into_iter().map(|batch| batch.unwrap_or_else(nothing)).collect();
        let mut out = abi::Batch::new();
        // SAFETY: the instance's own function on itself; `Owned` is laid out as what it owns, and what the function did not
        // take (it should have) is still ours to release.
        let result = Error::check(|err| unsafe {
            let list = below.as_mut_ptr().cast::<abi::Batch>();
            f(self.instance.raw(), &call.raw(), array.as_ptr(), node, list, below.len(), &mut out, err)
        });
        result?;
        // SAFETY: on success the batch is ours.
        let batch = unsafe { Owned::given(out) };
        if batch.is_released() {
            return Err(Error::internal("decode succeeded and gave a released batch"));
        }
        Ok(batch)
    }
}

fn missing(function: &str) -> Error {
    Error::internal(format!("the plugin's encoding interface has no function '{function}'"))
}

unsafe extern "C" fn ids<P: Plugin>(
    instance: *mut abi::Instance,
    out: *mut *const abi::Str,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the host's instance, out parameters and error struct; the list lives in the instance.
    unsafe {
        with::<P>(instance, err, |shell| {
            let ids = shell.encoding_ids()?;
            crate::door::put(out, "ids", || ids.as_ptr())?;
            crate::door::put(n_out, "ids", || ids.len())
        })
    }
}

unsafe extern "C" fn check<P: Plugin>(
    instance: *mut abi::Instance,
    array: *const abi::EncodedArray,
    node: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the host's instance, array and error struct, alive for the call.
    unsafe { with::<P>(instance, err, |shell| shell.encoding()?.check(EncodedNode::read(array, node)?)) }
}

unsafe extern "C" fn size<P: Plugin>(
    instance: *mut abi::Instance,
    array: *const abi::EncodedArray,
    node: usize,
    out: *mut i64,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as above.
    unsafe {
        with::<P>(instance, err, |shell| {
            let bytes = shell.encoding()?.size(EncodedNode::read(array, node)?)?;
            crate::door::put(out, "size", || {
                bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
            })
        })
    }
}

unsafe extern "C" fn lower<P: Plugin>(
    instance: *mut abi::Instance,
    array: *const abi::EncodedArray,
    node: usize,
    out: *mut abi::Operator,
    capacity: usize,
    n_out: *mut usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as above; the room is as large as is said.
    unsafe {
        with::<P>(instance, err, |shell| {
            let program = shell.encoding()?.lower(EncodedNode::read(array, node)?)?;
            let program = program.ok_or_else(|| Error::unsupported("the node has no program"))?;
            program::write(&program, out, capacity, n_out)
        })
    }
}

unsafe extern "C" fn plan<P: Plugin>(
    instance: *mut abi::Instance,
    array: *const abi::EncodedArray,
    node: usize,
    wanted: abi::Device,
    out_device: *mut abi::Device,
    out_decoded: *mut u8,
    n_below: usize,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: as above; the list has as many places as it says.
    unsafe {
        with::<P>(instance, err, |shell| {
            let node = EncodedNode::read(array, node)?;
            let plan = shell.encoding()?.plan(node, wanted)?;
            if plan.decoded.len() != n_below || (out_decoded.is_null() && n_below > 0) {
                return Err(node.wrong(format_args!(
                    "its plan speaks of {} nodes below it, the caller of {n_below}",
                    plan.decoded.len()
                )));
            }
            for (i, decoded) in plan.decoded.into_iter().enumerate() {
                out_decoded.add(i).write(decoded.into());
            }
            crate::door::put(out_device, "plan", || plan.device)
        })
    }
}

unsafe extern "C" fn decode<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    array: *const abi::EncodedArray,
    node: usize,
    below: *mut abi::Batch,
    n_below: usize,
    out: *mut abi::Batch,
    err: *mut abi::Error,
) -> abi::Code {
    // Taken before anything can fail, for the caller does not release them any more.
    // SAFETY: the caller hands over a list of so many.
    let below = unsafe { take_all(below, n_below) };
    // SAFETY: the host's instance, call, array and structs, all alive for the call.
    unsafe {
        with::<P>(instance, err, |shell| {
            let (node, below) = (EncodedNode::read(array, node)?, below?);
            same_count(node, "nodes below it", node.end() - node.index() - 1, below.len())?;
            shell.encoding()?.decode(&Call::read(call)?, node, below)?.put(out, "decode")
        })
    }
}

fn same_count(node: EncodedNode<'_>, what: &str, expected: usize, given: usize) -> Result<()> {
    if expected == given {
        return Ok(());
    }
    Err(node.wrong(format_args!("{given} {what} are given, it has {expected}")))
}

/// # Safety
/// `list` has `n` batches, which are the callee's from now on.
unsafe fn take_all(list: *mut abi::Batch, n: usize) -> Result<Vec<Option<Owned<abi::Batch>>>> {
    if n == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: a list that is not empty has a first one, whose size, which it begins with, is that of all.
    let stride = unsafe { crate::told::stride(list.cast_const()) }?;
    let take = |i: usize| {
        // SAFETY: one of the list's.
        let batch = unsafe { Owned::take(list.byte_add(i * stride)) };
        (!batch.is_released()).then_some(batch)
    };
    Ok((0..n).map(take).collect())
}
