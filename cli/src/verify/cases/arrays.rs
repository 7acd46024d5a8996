//! Arrow's C structs that say of themselves what is not so.

use std::ffi::{CStr, c_char};

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use crossdock::api::{CallSettings, Capsule, Capsules, Error, Format, Input, Owned, Result, Validate, abi};
use crossdock_arrays::DeviceBatch;
use crossdock_memory::Stream;

use super::super::case::{Case, Check, failed, not_offered};
use super::super::kept::keep;
use super::super::lent::{Counts, Kind, device_array, lent_schema};
use super::super::lies::{Lie, judge, looked_through, nonsense, unusual};
use super::super::subject::{Ground, Subject};
use super::super::tables::FORMS;
use super::super::tour;

pub const CASES: &[Case] = &[Case {
    name: "arrays.hostile",
    rule: "Arrow structs that contradict themselves are an error, or are handed on as they are and the host refuses them; each \
           is released once.",
    stands: "CROSSDOCK_BAD_DATA, crossdock_capsule, \"arrow_schema\", \"arrow_array\"",
    ground: &["importer.abandoned", "importer.batches"],
    on_devices: true,
    check: hostile,
}];

/// What is lied about.
struct Truth<'a> {
    kind: Kind,
    schema: SchemaRef,
    batch: &'a DeviceBatch,
    /// A column that has buffers.
    at: usize,
}

fn hostile(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let readable = tour::readable(ground, &subject)?;
    let mut n_told = 0;
    for (readable, kind) in readable.iter().filter_map(|readable| Some((readable, readable.kind?))) {
        let Some(table) = ground.first_table(&subject, readable, FORMS[0])? else { continue };
        let batches = ground.table_for(&readable.taker, &table)?;
        let has_buffers = |column: &ArrayRef| !column.to_data().buffers().is_empty();
        let at = table.columns().iter().position(has_buffers);
        let (Some(at), [batch]) = (at, batches.as_slice()) else { continue };
        let truth = Truth { kind, schema: table.schema(), batch, at };
        for lie in LIES.iter().filter(|lie| lie.tell.fits(kind)) {
            for validate in [Validate::Layout, Validate::Full] {
                tell(ground, &subject, &readable.format, &truth, lie, validate)?;
                n_told += 1;
            }
        }
    }
    if n_told == 0 {
        return Err(not_offered("the plugin reads no Arrow capsules"));
    }
    super::entry::nothing_left(subject.end(), "after hostile structs")
}

fn tell(
    ground: &Ground,
    subject: &Subject,
    format: &Format,
    truth: &Truth<'_>,
    lie: &Lie<Told>,
    validate: Validate,
) -> Check {
    let place = format!("'{}', {} {}", format.name, lie.tell.noun(), lie.name);
    let counts = Counts::default();
    let capsules = lie.capsules(truth, subject.stream(), &counts);
    let capsules = capsules.map_err(|error| failed("the suite's own structs", "capsules", error))?;
    let input = Input::Capsules(Capsules::from(capsules));
    let call = CallSettings { validate, ..subject.call() };
    let made = looked_through(ground, subject, &call, format, None, input);
    // What was handed on as it was the host has refused.
    judge(&place, made.and_then(|refused| refused.map_or(Ok(None), Err)), lie.is_nonsense)?;
    ground.backend.settle();
    counts.wrong().map_or(Ok(()), |words| Err(failed(place, "everything released once", words)))
}

/// What a producer hands over: the root of a batch, a column of it, and its schema.
enum Told {
    Array(fn(&mut abi::ArrowArray)),
    Column(fn(&mut abi::ArrowArray)),
    /// Where there is a place for a device.
    Device(fn(&mut abi::ArrowDeviceArray)),
    /// Where schemas lie beside arrays.
    Schema(fn(&mut abi::ArrowSchema)),
    ColumnSchema(fn(&mut abi::ArrowSchema)),
    /// Of an array beside its schema: in a stream it would be the end.
    Beside(fn(&mut abi::ArrowArray)),
}

impl Told {
    fn fits(&self, kind: Kind) -> bool {
        match self {
            Told::Array(_) | Told::Column(_) => true,
            Told::Device(_) => kind.knows_devices(),
            Told::Schema(_) | Told::ColumnSchema(_) | Told::Beside(_) => {
                matches!(kind, Kind::Data | Kind::Device)
            }
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Told::Array(_) | Told::Device(_) | Told::Beside(_) => "an array",
            Told::Column(_) => "a column",
            Told::Schema(_) => "a schema",
            Told::ColumnSchema(_) => "a column's schema",
        }
    }
}

use Told::{Array, Beside, Column, ColumnSchema, Device, Schema};

/// Of a column no fields but those that its release does without: unlike the other structs it is not a copy.
const LIES: [Lie<Told>; 33] = [
    nonsense("of -1 rows", Array(|a| a.length = -1)),
    nonsense("that begins at row -1", Array(|a| a.offset = -1)),
    nonsense("that begins beyond all rows", Array(|a| a.offset = i64::MAX)),
    unusual("of -2 nulls", Array(|a| a.null_count = -2)),
    unusual("of more nulls than rows", Array(|a| a.null_count = a.length + 1)),
    unusual("of -1 buffers", Array(|a| a.n_buffers = -1)),
    unusual("without its list of buffers", Array(|a| a.buffers = std::ptr::null_mut())),
    nonsense("of -1 columns", Array(|a| a.n_children = -1)),
    nonsense("of a column fewer than its schema", Array(|a| a.n_children -= 1)),
    unusual("of a column more than its schema, at NULL", Array(|a| (a.n_children, a.children) = one_more(a))),
    nonsense("without its list of columns", Array(|a| a.children = std::ptr::null_mut())),
    nonsense("of columns at NULL", Array(|a| a.children = nowhere(a.n_children))),
    nonsense("of -1 rows", Column(|c| c.length = -1)),
    unusual("of more rows than there can be", Column(|c| c.length = i64::MAX)),
    nonsense("of fewer rows than its array", Column(|c| c.length -= 1)),
    nonsense("that begins at row -1", Column(|c| c.offset = -1)),
    nonsense("that begins beyond all rows", Column(|c| c.offset = i64::MAX)),
    unusual("of more nulls than rows", Column(|c| c.null_count = c.length + 1)),
    unusual("of -1 buffers", Column(|c| c.n_buffers = -1)),
    unusual("of buffers without number", Column(|c| c.n_buffers = i64::MAX)),
    nonsense("without its list of buffers", Column(|c| c.buffers = std::ptr::null_mut())),
    nonsense("of buffers at NULL", Column(|c| c.buffers = nowhere::<u8>(c.n_buffers).cast())),
    nonsense("on a device that there is none of", Device(|a| a.device_type = 77)),
    nonsense("on the 99th CUDA device", Device(|a| (a.device_type, a.device_id) = (abi::DEVICE_CUDA, 99))),
    nonsense("that was released already", Beside(release)),
    nonsense("without a format", Schema(|s| s.format = std::ptr::null())),
    nonsense("of an unknown format", Schema(|s| s.format = UNKNOWN.as_ptr())),
    nonsense("of -1 columns", Schema(|s| s.n_children = -1)),
    nonsense("without its list of columns", Schema(|s| s.children = std::ptr::null_mut())),
    nonsense("of columns at NULL", Schema(|s| s.children = nowhere(s.n_children))),
    unusual("of metadata of -1 entries", Schema(|s| s.metadata = keep([-1i32; 8]).as_ptr().cast::<c_char>())),
    nonsense("without a format", ColumnSchema(|s| s.format = std::ptr::null())),
    nonsense("of an unknown format", ColumnSchema(|s| s.format = UNKNOWN.as_ptr())),
];

const UNKNOWN: &CStr = c"?!";

/// A list of so many NULLs.
fn nowhere<T>(n: i64) -> *mut *mut T {
    keep(vec![0usize; usize::try_from(n).unwrap_or(0) + 1]).as_mut_ptr().cast()
}

/// An array's columns, and NULL.
fn one_more(array: &abi::ArrowArray) -> (i64, *mut *mut abi::ArrowArray) {
    let more = nowhere(array.n_children);
    // SAFETY: a valid array's list has `n_children` entries, and the other one more.
    unsafe { std::ptr::copy_nonoverlapping(array.children, more, array.n_children as usize) };
    (array.n_children + 1, more)
}

fn release(array: &mut abi::ArrowArray) {
    if let Some(release) = array.release {
        // SAFETY: a valid array, released once.
        unsafe { release(array) };
    }
}

impl Lie<Told> {
    fn capsules(&self, truth: &Truth<'_>, stream: &Stream, counts: &Counts) -> Result<Vec<Capsule>> {
        let Truth { kind, schema, batch, at } = truth;
        let mut array = device_array(batch, stream, counts)?.into_raw();
        let mut beside = lent_schema(schema, counts)?.into_raw();
        match self.tell {
            Array(tell) | Beside(tell) => tell(&mut array.array),
            Column(tell) => nth(array.array.children, *at, tell),
            Device(tell) => tell(&mut array),
            Schema(tell) => tell(&mut beside),
            ColumnSchema(tell) => nth(beside.children, *at, tell),
        }
        // SAFETY: whatever they say, their releases go by what was kept of them, and are called once.
        let (array, beside) = unsafe { (Owned::new(array), Owned::new(beside)) };
        let mut beside = Some(beside);
        let once = || beside.take().ok_or_else(|| Error::internal("one array has one schema"));
        kind.capsules_of(schema, vec![array], stream, once)
    }
}

fn nth<T>(list: *mut *mut T, at: usize, tell: fn(&mut T)) {
    // SAFETY: the list of a struct of the suite's own, which has that column, and which nobody else looks at yet.
    tell(unsafe { &mut **list.add(at) });
}
