//! The interface `crossdock.encoding/1`, whose functions decode nodes of encoded arrays.

use std::ops::Range;

use crate::abi;
use crate::call::{Call, CallSettings};
use crate::child_types::{self, ChildType, write_children};
use crate::device::Device;
use crate::encoded::{EncodedArray, EncodedNode};
use crate::error::{Code, Error, Result};
use crate::lists::read_texts;
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

    /// The types and the lengths of a node's children, derived from the id, the type, the length
    /// and the metadata of the node. Must not use the node's children and buffers. Formats that
    /// store only the type of the root need this function.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller. By default, "unsupported".
    fn children(&self, node: EncodedNode<'_>) -> Result<Vec<ChildType>> {
        let what = "the plugin does not derive the types of a node's children";
        Err(Error::unsupported(format!("{}: {what}", node.encoding())))
    }

    /// The memory in bytes that is needed to decode `rows` of a node, or `None` if this depends on
    /// the contents of device memory. The rows are those that [`decode`](Encoding::decode) returns.
    /// A plugin that decodes only whole nodes can ignore them.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn size(&self, node: EncodedNode<'_>, rows: Range<u64>) -> Result<Option<u64>>;

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

    /// Plans how to decode a node, of which `rows` are needed on `wanted`. By default, the host
    /// decodes the children first, and then decodes all rows of the node on the CPU.
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn plan(&self, node: EncodedNode<'_>, wanted: Device, rows: Range<u64>) -> Result<DecodePlan> {
        let (_, _) = (wanted, rows);
        Ok(DecodePlan::with_children_decoded(node))
    }

    /// Decodes the planned `rows` of a node on the call's device. Returns a batch of one column
    /// that has the type of the node and these rows. `below` has an entry for each descendant of
    /// the node, in pre-order: a batch of one column, with the planned rows, if the descendant is
    /// decoded, else `None`. A plugin that does not implement this function must return false from
    /// [`decodes`](Encoding::decodes).
    ///
    /// # Errors
    /// May return any error, which is passed to the caller.
    fn decode(
        &self,
        call: &Call<'_>,
        node: EncodedNode<'_>,
        rows: Range<u64>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let (_, _, _) = (call, rows, below);
        let what = "the plugin does not implement `decode`: implement it, or return false from `decodes`";
        Err(Error::unsupported(format!("{}: {what}", node.path())))
    }
}

/// A plan for how to decode a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodePlan {
    /// The device on which `decode` runs.
    pub device: Device,
    /// The rows of the node that `decode` returns. They include the wanted rows.
    pub rows: Range<u64>,
    /// For each descendant of the node, in pre-order: whether the host decodes the descendant
    /// before it calls `decode`. Entries for the descendants of a decoded node are ignored.
    pub decoded: Vec<bool>,
    /// For each descendant of the node, in pre-order: the rows that `decode` needs if the host
    /// decodes the descendant.
    pub rows_below: Vec<Range<u64>>,
}

impl DecodePlan {
    /// Creates a plan to decode all rows of the node on the CPU after all its children.
    pub fn with_children_decoded(node: EncodedNode<'_>) -> Self {
        let mut decoded = vec![false; node.end() - node.index() - 1];
        for child in node.children() {
            if let Some(flag) = decoded.get_mut(child.index() - node.index() - 1) {
                *flag = true;
            }
        }
        let lengths = (node.index() + 1..node.end()).map(|at| node.at(at).map_or(0, |below| below.length()));
        let rows_below = lengths.map(|length| 0..length).collect();
        Self { device: Device::CPU, rows: 0..node.length(), decoded, rows_below }
    }

    /// Returns an error if the plan of `node` is invalid: a device other than `wanted` and the CPU,
    /// rows that do not include `wanted_rows`, or rows that a node does not have.
    fn check(&self, node: EncodedNode<'_>, wanted: Device, wanted_rows: &Range<u64>) -> Result<()> {
        if self.device != wanted && self.device != Device::CPU {
            return Err(Error::internal(format!(
                "plan: got {} as the device for decoding, expected {wanted} or cpu",
                self.device
            )));
        }
        let (rows, len) = (&self.rows, node.length());
        let has_wanted = rows.start <= wanted_rows.start && rows.end >= wanted_rows.end;
        if rows.start > rows.end || rows.end > len || !(has_wanted || wanted_rows.is_empty()) {
            return Err(Error::internal(format!(
                "plan: got rows {rows:?} of {len}, expected a range that includes {wanted_rows:?}"
            )));
        }
        for (at, rows) in (node.index() + 1..).zip(&self.rows_below) {
            let below = node.at(at)?;
            if rows.start > rows.end || rows.end > below.length() {
                return Err(below.wrong(format_args!(
                    "plan: got rows {rows:?}, expected a range of the node's {} rows",
                    below.length()
                )));
            }
        }
        Ok(())
    }
}

pub(crate) const fn table<P: Plugin>(decodes: bool) -> abi::Encoding {
    abi::Encoding {
        struct_size: size_of::<abi::Encoding>(),
        ids: Some(ids::<P>),
        check: Some(check::<P>),
        children: Some(children::<P>),
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
        let f = self.table.ids.ok_or_else(|| missing("ids"))?;
        // SAFETY: the table belongs to the instance.
        unsafe { read_texts(self.instance, f, "encodings") }
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

    /// The types and the lengths of a node's children. The children and buffers of the node are not
    /// used.
    ///
    /// # Errors
    /// Returns the plugin's error, or "unsupported" if the plugin does not derive types.
    pub fn children(&self, node: EncodedNode<'_>) -> Result<Vec<ChildType>> {
        let f = self.table.children.ok_or_else(|| {
            let what = "the plugin does not derive the types of a node's children";
            Error::unsupported(format!("{}: {what}", node.encoding()))
        })?;
        // SAFETY: the table belongs to the instance, and the arguments are valid for the call.
        child_types::derive(node, |node, schemas, lengths, err| unsafe {
            f(self.instance.raw(), node, schemas, lengths, err)
        })
    }

    /// The memory in bytes that is needed to decode `rows` of a node, or `None` if this depends on
    /// the contents of device memory.
    ///
    /// # Errors
    /// Returns the plugin's error.
    pub fn size(&self, array: &EncodedArray, node: usize, rows: &Range<u64>) -> Result<Option<u64>> {
        let f = self.table.size.ok_or_else(|| missing("size"))?;
        let (rows, mut bytes) = (raw_rows(rows), -1);
        // SAFETY: the table belongs to the instance, and the arguments are valid for the call.
        Error::check(|err| unsafe { f(self.instance.raw(), array.as_ptr(), node, &rows, &mut bytes, err) })?;
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

    /// Plans how to decode a node, of which `rows` are needed on `wanted`.
    ///
    /// # Errors
    /// Returns the plugin's error, or an error if the plan is invalid: it names a device other than
    /// `wanted` and the CPU, lacks wanted rows, or has rows that do not exist.
    pub fn plan(
        &self,
        array: &EncodedArray,
        node: usize,
        wanted: Device,
        rows: &Range<u64>,
    ) -> Result<DecodePlan> {
        let at = array.node(node)?;
        let mut plan = DecodePlan::with_children_decoded(at);
        if let Some(f) = self.table.plan {
            let mut flags: Vec<u8> = plan.decoded.iter().map(|flag| u8::from(*flag)).collect();
            let mut rows_below: Vec<_> = plan.rows_below.iter().map(raw_rows).collect();
            let mut raw = abi::DecodePlan {
                device: plan.device,
                rows: raw_rows(&plan.rows),
                decoded: flags.as_mut_ptr(),
                rows_below: rows_below.as_mut_ptr(),
                n_below: flags.len(),
                ..abi::DecodePlan::new()
            };
            let wanted_rows = raw_rows(rows);
            // SAFETY: the table belongs to the instance, and the lists of the plan have an element
            // for each descendant of the node.
            Error::check(|err| unsafe {
                f(self.instance.raw(), array.as_ptr(), node, wanted, &wanted_rows, &mut raw, err)
            })?;
            let decoded = flags.into_iter().map(|flag| flag != 0).collect();
            let (rows, rows_below) = (range(raw.rows), rows_below.into_iter().map(range).collect());
            plan = DecodePlan { device: raw.device, rows, decoded, rows_below };
        }
        plan.check(at, wanted, rows)?;
        Ok(plan)
    }

    /// Decodes the planned `rows` of a node. See [`Encoding::decode`].
    ///
    /// # Errors
    /// Returns the plugin's error.
    pub fn decode(
        &self,
        call: &CallSettings,
        array: &EncodedArray,
        node: usize,
        rows: &Range<u64>,
        below: Vec<Option<Owned<abi::Batch>>>,
    ) -> Result<Owned<abi::Batch>> {
        let f = self.table.decode.ok_or_else(|| missing("decode"))?;
        // SAFETY: a released batch owns nothing, so it may have any owner.
        let released = || unsafe { Owned::new(abi::Batch::new()) };
        let mut below: Vec<_> = below.into_iter().map(|batch| batch.unwrap_or_else(released)).collect();
        let (rows, mut out) = (raw_rows(rows), abi::Batch::new());
        // SAFETY: the table belongs to the instance. `Owned<Batch>` has the layout of `Batch`. The
        // plugin takes ownership of a batch by moving it out. `below` still owns batches that the
        // plugin does not move out.
        let result = Error::check(|err| unsafe {
            let list = below.as_mut_ptr().cast::<abi::Batch>();
            f(self.instance.raw(), &call.raw(), array.as_ptr(), node, &rows, list, below.len(), &mut out, err)
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

fn raw_rows(rows: &Range<u64>) -> abi::RowRange {
    abi::RowRange { begin: rows.start, end: rows.end }
}

fn range(rows: abi::RowRange) -> Range<u64> {
    rows.begin..rows.end
}

/// Reads a range of a node's rows.
///
/// # Safety
/// `rows` is null or points to a range.
unsafe fn read_rows(rows: *const abi::RowRange, node: EncodedNode<'_>) -> Result<Range<u64>> {
    // SAFETY: the caller guarantees that the pointer is null or valid.
    let rows =
        unsafe { rows.as_ref() }.ok_or_else(|| Error::invalid_argument("the range of rows is NULL"))?;
    if rows.begin > rows.end || rows.end > node.length() {
        return Err(Error::invalid_argument(format!(
            "{}: got rows {} to {}, expected a range of the node's {} rows",
            node.path(),
            rows.begin,
            rows.end,
            node.length()
        )));
    }
    Ok(range(*rows))
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

unsafe extern "C" fn children<P: Plugin>(
    instance: *mut abi::Instance,
    node: *const abi::EncodedNode,
    schemas: *mut abi::ArrowSchema,
    lengths: *mut u64,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires that `create` returned the instance, that the node is valid, and
    // that both lists have an element for each of its children.
    unsafe {
        with::<P>(instance, err, |shell| {
            write_children(node, schemas, lengths, |node| shell.encoding()?.children(node))
        })
    }
}

unsafe extern "C" fn size<P: Plugin>(
    instance: *mut abi::Instance,
    array: *const abi::EncodedArray,
    node: usize,
    rows: *const abi::RowRange,
    out: *mut i64,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires that `create` returned the instance, and that the array and the
    // range are valid. The host has checked the tree of the array.
    unsafe {
        with::<P>(instance, err, |shell| {
            let node = EncodedNode::read(array, node)?;
            let bytes = shell.encoding()?.size(node, read_rows(rows, node)?)?;
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
    wanted_rows: *const abi::RowRange,
    out: *mut abi::DecodePlan,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the header requires that `create` returned the instance, that the array and the range
    // are valid, and that the plan is valid and its lists have `n_below` elements. The host has
    // checked the tree of the array.
    unsafe {
        with::<P>(instance, err, |shell| {
            let node = EncodedNode::read(array, node)?;
            let plan = shell.encoding()?.plan(node, wanted, read_rows(wanted_rows, node)?)?;
            write_plan(plan, out, node)
        })
    }
}

/// # Safety
/// `out` is null or points to a valid plan, whose lists have `n_below` elements.
unsafe fn write_plan(plan: DecodePlan, out: *mut abi::DecodePlan, node: EncodedNode<'_>) -> Result<()> {
    // SAFETY: the caller guarantees a valid plan.
    let raw = unsafe { crate::sized_struct::read(out.cast_const()) }?;
    if plan.decoded.len() != raw.n_below || plan.rows_below.len() != raw.n_below {
        return Err(node.wrong(format_args!(
            "the plan has entries for {} and {} descendants, but the caller expects {}",
            plan.decoded.len(),
            plan.rows_below.len(),
            raw.n_below
        )));
    }
    if (raw.decoded.is_null() || raw.rows_below.is_null()) && raw.n_below > 0 {
        return Err(Error::invalid_argument("a list of the plan is NULL"));
    }
    for (i, (decoded, rows)) in plan.decoded.into_iter().zip(&plan.rows_below).enumerate() {
        // SAFETY: the caller guarantees that the lists have `n_below` elements.
        unsafe {
            raw.decoded.add(i).write(decoded.into());
            raw.rows_below.add(i).write(raw_rows(rows));
        }
    }
    // SAFETY: `read` succeeded, so the struct has at least the fields of this build.
    unsafe {
        (&raw mut (*out).device).write(plan.device);
        (&raw mut (*out).rows).write(raw_rows(&plan.rows));
    }
    Ok(())
}

unsafe extern "C" fn decode<P: Plugin>(
    instance: *mut abi::Instance,
    call: *const abi::Call,
    array: *const abi::EncodedArray,
    node: usize,
    rows: *const abi::RowRange,
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
            let rows = read_rows(rows, node)?;
            shell.encoding()?.decode(&Call::read(call)?, node, rows, below)?.put(out, "decode")
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
