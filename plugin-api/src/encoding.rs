//! The interface `crossdock.encoding/1`, whose functions decode nodes of encoded arrays.

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::device::Device;
use crate::encoded::{EncodedArray, EncodedNode};
use crate::error::{Code, Error, Result};
use crate::owned::Owned;
use crate::plugin::{Instance, Plugin, with};
use crate::program::{self, Operator};

/// Decodes nodes that have one of certain encodings.
pub trait Encoding: Send + Sync {
    /// The ids of the encodings that this plugin decodes, including their versions. The list must
    /// not change.
    fn ids(&self) -> &[&'static str];

    /// Compares a node with its metadata, buffers and children. Must not read device memory.
    ///
    /// # Errors
    /// Returns a "bad data" error if the node does not match its metadata, buffers or children.
    fn check(&self, node: EncodedNode<'_>) -> Result<()>;

    /// The memory in bytes that is needed to decode a node, or `None` if this depends on the
    /// contents of device memory.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn size(&self, node: EncodedNode<'_>) -> Result<Option<u64>>;

    /// Whether [`decode`](Encoding::decode) is implemented. The result must not change. If the
    /// result is false, [`lower`](Encoding::lower) must return a program for each node, the host
    /// runs the programs on all devices including the CPU, and `decode` is NULL in the C struct.
    fn decodes(&self) -> bool {
        true
    }

    /// The program that computes the values of a node, or `None` if the node has no program. If the
    /// host needs the values on a device, it runs the program in one pass with the programs of the
    /// node's parents and children, and does not call [`plan`](Encoding::plan).
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn lower(&self, node: EncodedNode<'_>) -> Result<Option<Vec<Operator>>> {
        let _ = node;
        Ok(None)
    }

    /// Plans how to decode a node whose values are needed on `wanted`. By default, the host decodes
    /// the children first, and then decodes the node on the CPU.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn plan(&self, node: EncodedNode<'_>, wanted: Device) -> Result<DecodePlan> {
        let _ = wanted;
        Ok(DecodePlan::with_children_decoded(node))
    }

    /// Decodes a node on the call's device. Returns a batch of one column that has the type and
    /// length of the node. `below` has an entry for each descendant of the node, in pre-order: a
    /// batch of one column if the descendant is decoded, else `None`. A plugin that does not
    /// implement this function must return false from [`decodes`](Encoding::decodes).
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let (_, _) = (call, below);
        let what = "the plugin does not implement `decode`: implement it, or return false from `decodes`";
        Err(Error::unsupported(format!("{}: {what}", node.path())))
    }
}

/// A plan for how to decode a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodePlan {
    /// The device on which `decode` runs.
    pub device: Device,
    /// For each descendant of the node, in pre-order: whether the host decodes the descendant
    /// before it calls `decode`. Entries for the descendants of a decoded node are ignored.
    pub decoded: Vec<bool>,
}

impl DecodePlan {
    /// Creates a plan to decode the node on the CPU after all its children.
    pub fn with_children_decoded(node: EncodedNode<'_>) -> Self {
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

/// The encodings of a plugin instance, for a caller such as the host.
#[derive(Clone, Copy)]
pub struct EncodingHandle<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) table: abi::Encoding,
}

impl EncodingHandle<'_> {
    /// The ids of the encodings that the plugin decodes.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the list is invalid.
    pub fn ids(&self) -> Result<Vec<String>> {
        const MAX_IDS: usize = 1 << 16;
        let f = self.table.ids.ok_or_else(|| missing("ids"))?;
        let (mut list, mut n) = (std::ptr::null(), 0);
        // SAFETY: the table belongs to the instance, and the out parameters are valid for writes.
        Error::check(|err| unsafe { f(self.instance.raw(), &mut list, &mut n, err) })?;
        if n > MAX_IDS || (list.is_null() && n > 0) {
            return Err(Error::internal(format!("a list of {n} encodings is not plausible")));
        }
        // SAFETY: `list` is not null, and the header requires that it has `n` valid strings that
        // live as long as the instance.
        (0..n).map(|i| unsafe { (*list.add(i)).get() }.map(str::to_string)).collect()
    }

    /// Compares a node with its metadata, buffers and children.
    ///
    /// # Errors
    /// Returns the plugin's error.
    pub fn check(&self, array: &EncodedArray, node: usize) -> Result<()> {
        let f = self.table.check.ok_or_else(|| missing("check"))?;
        // SAFETY: the table belongs to the instance, and the array is valid for the call.
        Error::check(|err| unsafe { f(self.instance.raw(), array.as_ptr(), node, err) })
    }

    /// The memory in bytes that is needed to decode a node, or `None` if this depends on the
    /// contents of device memory.
    ///
    /// # Errors
    /// Returns the plugin's error.
    pub fn size(&self, array: &EncodedArray, node: usize) -> Result<Option<u64>> {
        let f = self.table.size.ok_or_else(|| missing("size"))?;
        let mut bytes = -1;
        // SAFETY: the table belongs to the instance, and the arguments are valid for the call.
        Error::check(|err| unsafe { f(self.instance.raw(), array.as_ptr(), node, &mut bytes, err) })?;
        Ok(u64::try_from(bytes).ok())
    }

    /// Whether the plugin implements `decode`. If it does not, all nodes have programs.
    pub fn decodes(&self) -> bool {
        self.table.decode.is_some()
    }

    /// The program of a node. `None` if the node has no program, or if this build does not support
    /// all of its operators.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the program has an invalid length.
    pub fn lower(&self, array: &EncodedArray, node: usize) -> Result<Option<Vec<Operator>>> {
        let Some(f) = self.table.lower else { return Ok(None) };
        let mut operators = [abi::Operator { code: 0, index: 0, a: 0, b: 0 }; abi::MAX_OPERATORS];
        let (out, mut n) = (operators.as_mut_ptr(), 0);
        // SAFETY: the table belongs to the instance, and `out` has `MAX_OPERATORS` elements.
        match Error::check(|err| unsafe {
            f(self.instance.raw(), array.as_ptr(), node, out, abi::MAX_OPERATORS, &mut n, err)
        }) {
            Ok(()) => program::read(&operators, n),
            Err(error) if error.code() == Code::UNSUPPORTED => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Plans how to decode a node whose values are needed on `wanted`.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the plan names a device other than `wanted` and
    /// the CPU.
    pub fn plan(&self, array: &EncodedArray, node: usize, wanted: Device) -> Result<DecodePlan> {
        let mut plan = DecodePlan::with_children_decoded(array.node(node)?);
        if let Some(f) = self.table.plan {
            let mut flags: Vec<u8> = plan.decoded.iter().map(|flag| u8::from(*flag)).collect();
            let (device, list, n) = (&mut plan.device, flags.as_mut_ptr(), flags.len());
            // SAFETY: the table belongs to the instance, and the list has an element for each
            // descendant of the node.
            Error::check(|err| unsafe {
                f(self.instance.raw(), array.as_ptr(), node, wanted, device, list, n, err)
            })?;
            plan.decoded = flags.into_iter().map(|flag| flag != 0).collect();
        }
        if plan.device != wanted && plan.device != Device::CPU {
            return Err(Error::internal(format!(
                "plan: got {} as the device for decoding, expected {wanted} or cpu",
                plan.device
            )));
        }
        Ok(plan)
    }

    /// Decodes a node. See [`Encoding::decode`].
    ///
    /// # Errors
    /// Returns the plugin's error.
    pub fn decode(
        &self,
        call: &CallSettings,
        array: &EncodedArray,
        node: usize,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let f = self.table.decode.ok_or_else(|| missing("decode"))?;
        // SAFETY: a released batch owns nothing, so it may have any owner.
        let released = || unsafe { Owned::new(abi::Batch::new()) };
        let mut below: Vec<_> = below.into_iter().map(|batch| batch.unwrap_or_else(released)).collect();
        let mut out = abi::Batch::new();
        // SAFETY: the table belongs to the instance. `Owned<Batch>` has the layout of `Batch`. The
        // plugin takes ownership of a batch by moving it out. `below` still owns batches that the
        // plugin does not move out.
        let result = Error::check(|err| unsafe {
            let list = below.as_mut_ptr().cast::<abi::Batch>();
            f(self.instance.raw(), &call.raw(), array.as_ptr(), node, list, below.len(), &mut out, err)
        });
        result?;
        // SAFETY: on success the callee passes the ownership of `out`.
        let batch = unsafe { Owned::from_out(out) };
        if batch.is_released() {
            return Err(Error::internal("decode succeeded, but returned a released batch"));
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
    // SAFETY: the header requires that `create` returned the instance, and that each pointer is
    // null or valid for writes.
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
    // SAFETY: the header requires that `create` returned the instance, and that the array is valid.
    // The host has checked its tree.
    unsafe { with::<P>(instance, err, |shell| shell.encoding()?.check(EncodedNode::read(array, node)?)) }
}

unsafe extern "C" fn size<P: Plugin>(
    instance: *mut abi::Instance,
    array: *const abi::EncodedArray,
    node: usize,
    out: *mut i64,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires that `create` returned the instance, and that the array is valid.
    // The host has checked its tree.
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
    // SAFETY: the header requires that `create` returned the instance, that the array is valid, and
    // that there is room for `capacity` operators. The host has checked the tree of the array.
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
    // SAFETY: the header requires that `create` returned the instance, that the array is valid, and
    // that the list has `n_below` elements. The host has checked the tree of the array.
    unsafe {
        with::<P>(instance, err, |shell| {
            let node = EncodedNode::read(array, node)?;
            let plan = shell.encoding()?.plan(node, wanted)?;
            if plan.decoded.len() != n_below || (out_decoded.is_null() && n_below > 0) {
                return Err(node.wrong(format_args!(
                    "the plan has entries for {} descendants, but the caller expects {n_below}",
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
    // Takes the ownership first, because the function must take it even if it returns an error.
    // SAFETY: the header requires that the list has `n_below` batches, whose ownership the caller
    // passes.
    let below = unsafe { take_all(below, n_below) };
    // SAFETY: the header requires that `create` returned the instance, and that the array and the
    // other arguments are valid for the call. The host has checked the tree of the array.
    unsafe {
        with::<P>(instance, err, |shell| {
            let (node, below) = (EncodedNode::read(array, node)?, below?);
            check_count(node, "entries for descendants", node.end() - node.index() - 1, below.len())?;
            shell.encoding()?.decode(&Call::read(call)?, node, below)?.put(out, "decode")
        })
    }
}

fn check_count(node: EncodedNode<'_>, what: &str, expected: usize, actual: usize) -> Result<()> {
    if expected == actual {
        return Ok(());
    }
    Err(node.wrong(format_args!("got {actual} {what}, expected {expected}")))
}

/// # Safety
/// `list` is null or points to `n` batches, whose ownership the caller passes.
unsafe fn take_all(list: *mut abi::Batch, n: usize) -> Result<Vec<Option<Owned<abi::Batch>>>> {
    if n == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: `list` is null, or a list whose first batch begins with its `struct_size`.
    let stride = unsafe { crate::sized_struct::stride(list.cast_const()) }?;
    let take = |i: usize| {
        // SAFETY: `i` is less than `n`, and the size of each batch is `stride` bytes.
        let batch = unsafe { Owned::take(list.byte_add(i * stride)) };
        (!batch.is_released()).then_some(batch)
    };
    Ok((0..n).map(take).collect())
}
