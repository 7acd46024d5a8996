//! Malformed structs of Arrow's C data interface.

use std::ffi::{CStr, c_char};

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use crossdock::api::{CallSettings, Capsule, Capsules, Error, Format, Input, Owned, Result, Validate, abi};
use crossdock_arrays::DeviceBatch;
use crossdock_memory::Stream;

use super::super::case::{Case, Check, failed, not_offered};
use super::super::context::CaseContext;
use super::super::counted_objects::{self, CapsuleKind, ReleaseCounts, device_array};
use super::super::leak::leak;
use super::super::malformed::{Malformation, invalid, judge, read_and_validate, unusual};
use super::super::round_trip;
use super::super::subject::Subject;
use super::super::tables::FORMS;

pub const CASES: &[Case] = &[Case {
    name: "arrays.hostile",
    rule: "Malformed Arrow structs are rejected, or passed on unchanged for the host to reject. Each is released once.",
    spec_ref: "CROSSDOCK_BAD_DATA, crossdock_capsule, \"arrow_schema\", \"arrow_array\"",
    depends_on: &["importer.abandoned", "importer.batches"],
    on_devices: true,
    check: hostile,
}];

/// The well-formed table whose structs are changed to malformed structs.
struct Template<'a> {
    kind: CapsuleKind,
    schema: SchemaRef,
    batch: &'a DeviceBatch,
    /// The index of a column that has buffers.
    column: usize,
}

fn hostile(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let readable = round_trip::readable(context, &subject)?;
    let mut n_checked = 0;
    for (readable, kind) in readable.iter().filter_map(|readable| Some((readable, readable.kind?))) {
        let Some(table) = context.first_table(&subject, readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let has_buffers = |column: &ArrayRef| !column.to_data().buffers().is_empty();
        let column = table.columns().iter().position(has_buffers);
        let (Some(column), [batch]) = (column, batches.as_slice()) else { continue };
        let template = Template { kind, schema: table.schema(), batch, column };
        for malformation in MALFORMATIONS.iter().filter(|malformation| malformation.change.fits(kind)) {
            for validate in [Validate::Layout, Validate::Full] {
                check_one(context, &subject, &readable.format, &template, malformation, validate)?;
                n_checked += 1;
            }
        }
    }
    if n_checked == 0 {
        return Err(not_offered("the plugin reads no Arrow capsules"));
    }
    super::entry::no_leaks(subject.end(), "after hostile structs")
}

fn check_one(
    context: &CaseContext,
    subject: &Subject,
    format: &Format,
    template: &Template<'_>,
    malformation: &Malformation<Change>,
    validate: Validate,
) -> Check {
    let place = format!("'{}', {} {}", format.name, malformation.change.noun(), malformation.name);
    let counts = ReleaseCounts::default();
    let capsules = malformation.capsules(template, subject.stream(), &counts);
    let capsules = capsules.map_err(|error| failed("the suite's own structs", "capsules", error))?;
    let input = Input::Capsules(Capsules::from(capsules));
    let call = CallSettings { validate, ..subject.call() };
    let result = read_and_validate(context, subject, &call, format, None, input);
    // The plugin may pass the struct to the host. If the host then rejects the struct, the
    // rejection counts as an error of the plugin.
    judge(&place, result.and_then(|rejection| rejection.map_or(Ok(None), Err)), malformation.must_fail)?;
    context.backend.settle();
    counts.violation().map_or(Ok(()), |details| Err(failed(place, "everything released once", details)))
}

/// A change of one of the structs that a producer passes.
enum Change {
    /// Changes the root array of a batch.
    Array(fn(&mut abi::ArrowArray)),
    /// Changes a column of a batch.
    Column(fn(&mut abi::ArrowArray)),
    /// Changes a device array.
    Device(fn(&mut abi::ArrowDeviceArray)),
    /// Changes a schema in its own capsule.
    Schema(fn(&mut abi::ArrowSchema)),
    /// Changes the schema of a column of a table whose schema is in its own capsule.
    ColumnSchema(fn(&mut abi::ArrowSchema)),
    /// Changes an array in its own capsule. Does not apply to streams, because a released array
    /// marks the end of a stream.
    SeparateArray(fn(&mut abi::ArrowArray)),
}

impl Change {
    fn fits(&self, kind: CapsuleKind) -> bool {
        match self {
            Change::Array(_) | Change::Column(_) => true,
            Change::Device(_) => kind.has_device(),
            Change::Schema(_) | Change::ColumnSchema(_) | Change::SeparateArray(_) => {
                matches!(kind, CapsuleKind::Data | CapsuleKind::Device)
            }
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Change::Array(_) | Change::Device(_) | Change::SeparateArray(_) => "an array",
            Change::Column(_) => "a column",
            Change::Schema(_) => "a schema",
            Change::ColumnSchema(_) => "a column's schema",
        }
    }
}

use Change::{Array, Column, ColumnSchema, Device, Schema, SeparateArray};

/// A column is changed in place, not in a copy. Therefore a change must not affect the fields that
/// the column's release function uses.
const MALFORMATIONS: [Malformation<Change>; 33] = [
    invalid("with length -1", Array(|a| a.length = -1)),
    invalid("with offset -1", Array(|a| a.offset = -1)),
    invalid("with an offset after the last row", Array(|a| a.offset = i64::MAX)),
    unusual("with null count -2", Array(|a| a.null_count = -2)),
    unusual("with more nulls than rows", Array(|a| a.null_count = a.length + 1)),
    unusual("with -1 buffers", Array(|a| a.n_buffers = -1)),
    unusual("without a list of buffers", Array(|a| a.buffers = std::ptr::null_mut())),
    invalid("with -1 columns", Array(|a| a.n_children = -1)),
    invalid("with one column fewer than its schema", Array(|a| a.n_children -= 1)),
    unusual("with an additional column at NULL", Array(|a| (a.n_children, a.children) = with_null_child(a))),
    invalid("without a list of columns", Array(|a| a.children = std::ptr::null_mut())),
    invalid("with columns at NULL", Array(|a| a.children = null_list(a.n_children))),
    invalid("with length -1", Column(|c| c.length = -1)),
    unusual("with length 2^63 - 1", Column(|c| c.length = i64::MAX)),
    invalid("with fewer rows than its batch", Column(|c| c.length -= 1)),
    invalid("with offset -1", Column(|c| c.offset = -1)),
    invalid("with an offset after the last row", Column(|c| c.offset = i64::MAX)),
    unusual("with more nulls than rows", Column(|c| c.null_count = c.length + 1)),
    unusual("with -1 buffers", Column(|c| c.n_buffers = -1)),
    unusual("with 2^63 - 1 buffers", Column(|c| c.n_buffers = i64::MAX)),
    invalid("without a list of buffers", Column(|c| c.buffers = std::ptr::null_mut())),
    invalid("with buffers at NULL", Column(|c| c.buffers = null_list::<u8>(c.n_buffers).cast())),
    invalid("on an unknown type of device", Device(|a| a.device_type = 77)),
    invalid("on CUDA device 99", Device(|a| (a.device_type, a.device_id) = (abi::DEVICE_CUDA, 99))),
    invalid("that is already released", SeparateArray(release)),
    invalid("without a format", Schema(|s| s.format = std::ptr::null())),
    invalid("with an unknown format", Schema(|s| s.format = UNKNOWN.as_ptr())),
    invalid("with -1 columns", Schema(|s| s.n_children = -1)),
    invalid("without a list of columns", Schema(|s| s.children = std::ptr::null_mut())),
    invalid("with columns at NULL", Schema(|s| s.children = null_list(s.n_children))),
    unusual("with -1 metadata entries", Schema(|s| s.metadata = leak([-1i32; 8]).as_ptr().cast::<c_char>())),
    invalid("without a format", ColumnSchema(|s| s.format = std::ptr::null())),
    invalid("with an unknown format", ColumnSchema(|s| s.format = UNKNOWN.as_ptr())),
];

const UNKNOWN: &CStr = c"?!";

/// Returns a leaked list of `n + 1` NULL pointers.
fn null_list<T>(n: i64) -> *mut *mut T {
    leak(vec![0usize; usize::try_from(n).unwrap_or(0) + 1]).as_mut_ptr().cast()
}

/// Returns the number and the list of the array's children after one NULL was appended.
fn with_null_child(array: &abi::ArrowArray) -> (i64, *mut *mut abi::ArrowArray) {
    let list = null_list(array.n_children);
    // SAFETY: the list of a valid array has `n_children` entries, and the new list has `n_children
    // + 1` entries.
    unsafe { std::ptr::copy_nonoverlapping(array.children, list, array.n_children as usize) };
    (array.n_children + 1, list)
}

fn release(array: &mut abi::ArrowArray) {
    if let Some(release) = array.release {
        // SAFETY: the template's array is valid, and its release function clears `release`, so that
        // it runs once.
        unsafe { release(array) };
    }
}

impl Malformation<Change> {
    fn capsules(
        &self,
        template: &Template<'_>,
        stream: &Stream,
        counts: &ReleaseCounts,
    ) -> Result<Vec<Capsule>> {
        let Template { kind, schema, batch, column } = template;
        let mut array = device_array(batch, stream, counts)?.into_raw();
        let mut schema_struct = counted_objects::schema(schema, counts)?.into_raw();
        match self.change {
            Array(change) | SeparateArray(change) => change(&mut array.array),
            Column(change) => change_nth(array.array.children, *column, change),
            Device(change) => change(&mut array),
            Schema(change) => change(&mut schema_struct),
            ColumnSchema(change) => change_nth(schema_struct.children, *column, change),
        }
        // SAFETY: the releases of counted objects use the original structs, which the changes do
        // not affect.
        let (array, schema_struct) = unsafe { (Owned::new(array), Owned::new(schema_struct)) };
        let mut schema_struct = Some(schema_struct);
        let once = || {
            schema_struct.take().ok_or_else(|| Error::internal("the schema of an array was requested twice"))
        };
        kind.capsules_of(schema, vec![array], stream, once)
    }
}

fn change_nth<T>(list: *mut *mut T, at: usize, change: fn(&mut T)) {
    // SAFETY: `list` is the list of children of a valid struct with more than `at` children, and
    // the plugin has not received the struct yet.
    change(unsafe { &mut **list.add(at) });
}
