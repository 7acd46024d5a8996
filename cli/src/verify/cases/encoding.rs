//! Encoded arrays: malformed nodes, and samples.

use std::ffi::c_void;
use std::ops::Range;

use arrow_schema::{DataType, Field};
use crossdock::api::{Code, Device, EncodedArray, Error, LogicalType, NodeParts, Owned, Result, abi};
use crossdock::memory::Backend;
use crossdock::{Host, Session};
use crossdock_arrays::{DeviceBatch, export_field, first_difference, import_field_ref};

use super::super::case::{Case, Check, failed, missing_sample, skipped};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::coverage::{self, Part};
use super::super::encoded_trees::{self, trees};
use super::super::random::Random;
use super::super::round_trip;
use super::exporter::RELEASED_LAST;

pub const CASES: &[Case] = &[
    Case {
        name: "encoding.unknown_id",
        rule: "A node of an encoding that is not in the plugin's list is rejected.",
        spec_ref: "crossdock_encoding.check",
        depends_on: &["interfaces.answers", "errors.message"],
        on_devices: false,
        check: unknown_id,
    },
    Case {
        name: "encoding.malformed_nodes",
        rule: "check, size and lower return for any node, and do not read its buffers.",
        spec_ref: "crossdock_encoding.check, size, lower",
        depends_on: &["encoding.unknown_id"],
        on_devices: false,
        check: malformed_nodes,
    },
    Case {
        name: "encoding.children",
        rule: "children sets the type of each child of a node, or fails. The children of samples have these types and \
               lengths.",
        spec_ref: "crossdock_encoding.children",
        depends_on: &["encoding.malformed_nodes"],
        on_devices: false,
        check: children,
    },
    Case {
        name: "encoding.samples",
        rule: "A sample is decoded to the same values on all devices, by the plugin or by its programs. Inputs are released \
               once, without leaks.",
        spec_ref: "crossdock_encoding.decode, plan, lower",
        depends_on: &[
            "encoding.device_rows",
            "memory.blocks",
            "memory.streams_and_events",
            "memory.references",
            "memory.handles",
            "memory.bounds",
            "lifetimes.batch",
        ],
        on_devices: true,
        check: samples,
    },
    Case {
        name: "encoding.rows",
        rule: "Rows of a sample are decoded to the same values as all rows. The rows of a plan include the wanted rows.",
        spec_ref: "crossdock_decode_plan.rows, crossdock_encoding.decode",
        depends_on: &["encoding.samples"],
        on_devices: true,
        check: rows,
    },
    Case {
        name: "encoding.changed_samples",
        rule: "A sample whose metadata, lengths or buffers were mutated gives an error or a valid array.",
        spec_ref: "crossdock_encoding.check, decode",
        depends_on: &["encoding.samples"],
        on_devices: true,
        check: changed_samples,
    },
];

/// A buffer on a device, at an address that must not be dereferenced.
fn buffer(bytes: u64) -> Owned<abi::EncodedBuffer> {
    let address = if bytes == 0 { std::ptr::null() } else { 0x1000 as *const c_void };
    let device = Device::cuda(0);
    let raw = abi::EncodedBuffer { address, bytes, alignment: 64, device, ..abi::EncodedBuffer::new() };
    let raw = abi::EncodedBuffer { release: Some(release_nothing), ..raw };
    // SAFETY: `raw` was initialised above, and this is its only copy. It owns no memory.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release_nothing(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: the owner of a buffer calls `release` with a pointer to this buffer.
    unsafe { (*buffer).release = None };
}

fn node(random: &mut Random, id: &str, n_buffers: u32, n_children: u32) -> Result<NodeParts> {
    const TYPES: [DataType; 8] = [
        DataType::Int32,
        DataType::UInt64,
        DataType::Float64,
        DataType::Boolean,
        DataType::Utf8,
        DataType::Binary,
        DataType::Date32,
        DataType::Null,
    ];
    const LENGTHS: [u64; 6] = [0, 1, 1024, u32::MAX as u64, i64::MAX as u64, u64::MAX];
    let field = Field::new("", TYPES[random.below(TYPES.len())].clone(), random.below(2) == 0);
    let n = random.below(24);
    Ok(NodeParts {
        encoding: id.to_string(),
        logical_type: LogicalType::Schema(export_field(&field)?),
        length: LENGTHS[random.below(LENGTHS.len())],
        metadata: random.bytes(n),
        n_buffers,
        n_children,
    })
}

fn malformed(random: &mut Random, id: &str) -> Result<EncodedArray> {
    let (n_buffers, n_children) = (random.below(4) as u32, random.below(4) as u32);
    let mut nodes = vec![node(random, id, n_buffers, n_children)?];
    for _ in 0..n_children {
        nodes.push(node(random, id, 0, 0)?);
    }
    const SIZES: [u64; 5] = [0, 1, 64, 1 << 40, i64::MAX as u64];
    let buffers = (0..n_buffers).map(|_| buffer(SIZES[random.below(SIZES.len())])).collect();
    EncodedArray::new(nodes, buffers)
}

/// A node with the id of an encoding that no plugin decodes.
pub fn unknown(context: &CaseContext) -> Check<EncodedArray> {
    let array = malformed(&mut context.random(), "crossdock.verify.no-such-encoding");
    array.map_err(|error| failed("the suite's own node", "a tree", error))
}

fn unknown_id(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let encoding = subject.encoding()?;
    let array = unknown(context)?;
    match encoding.check(&array, 0) {
        Ok(()) => Err(failed("check of an unknown encoding", "an error", "success")),
        Err(_) => Ok(()),
    }
}

const N_MALFORMED: usize = 200;

fn malformed_nodes(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let encoding = subject.encoding()?;
    let ids = encoding.ids().map_err(|error| failed("ids", "a list", error))?;
    let mut random = context.random();
    for _ in 0..N_MALFORMED.div_ceil(ids.len().max(1)) {
        for id in &ids {
            // Nodes that the suite itself rejects do not reach the plugin.
            let Ok(array) = malformed(&mut random, id) else { continue };
            if result_of("check", id, encoding.check(&array, 0))?.is_some() {
                let rows = 0..array.root().map_or(0, |root| root.length());
                result_of("size", id, encoding.size(&array, 0, &rows))?;
                result_of("lower", id, encoding.lower(&array, 0))?;
            }
        }
    }
    super::entry::no_leaks(subject.end(), "after malformed nodes")
}

/// Returns the value, or `None` if the function returned an error. Any error is allowed except a
/// panic.
fn result_of<T>(function: &str, id: &str, result: Result<T>) -> Check<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == Code::PANICKED => {
            Err(failed(format!("{function} of a node of {id}"), "a result without a panic", error))
        }
        Err(_) => Ok(None),
    }
}

/// Makes a host with the plugin under test, and with the plugins next to the executable, which
/// decode nodes of other encodings. The host's backend is new, so that leaks are visible.
pub fn host(context: &CaseContext) -> Host {
    let backend = Backend::builder().untouchable(true).build();
    crate::options::host().backend(backend).plugins(&context.plugin).build_lenient()
}

pub fn session(host: &Host, device: Device) -> Check<Session> {
    host.session().device(device).open().map_err(|error: crossdock::Error| skipped(error.one_line()))
}

fn read(session: &Session, file: &std::path::Path) -> Check<EncodedArray> {
    let array = encoded_trees::read(session, file)?;
    array.ok_or_else(|| skipped(format!("'{}' is no longer an encoded array", file.display())))
}

/// The ids that the plugin decodes.
fn own_ids(context: &CaseContext) -> Check<Vec<String>> {
    let subject = context.subject()?;
    subject.encoding()?.ids().map_err(|error| failed("ids", "a list", error))
}

/// The samples with nodes of the plugin's encodings.
pub fn own_samples(context: &CaseContext) -> Check<Vec<&std::path::PathBuf>> {
    let ids = own_ids(context)?;
    let host = host(context);
    let session = session(&host, Device::CPU)?;
    let mut samples = Vec::new();
    for file in &context.samples {
        let Some(array) = encoded_trees::read(&session, file)? else { continue };
        let is_own = |i| array.node(i).is_ok_and(|node| ids.iter().any(|id| id == node.encoding()));
        if (0..array.n_nodes()).any(is_own) {
            samples.push(file);
        }
    }
    if samples.is_empty() {
        return Err(missing_sample("no sample with a node of the plugin's encodings (--sample FILE)"));
    }
    Ok(samples)
}

fn children(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let encoding = subject.encoding()?;
    for id in own_ids(context)? {
        for n_children in 0..4 {
            let place = format!("a node of '{id}' with {n_children} children");
            let fail = |error| failed(&place, "the type of each child, or an error", error);
            let schema = export_field(&Field::new("", DataType::Int32, true)).map_err(fail)?;
            let parts = NodeParts {
                encoding: id.clone(),
                logical_type: LogicalType::Schema(schema),
                length: 3,
                metadata: Vec::new(),
                n_buffers: 0,
                n_children,
            };
            match parts.alone(|node| encoding.children(node)) {
                Err(error) if [Code::INTERNAL, Code::PANICKED].contains(&error.code()) => {
                    return Err(fail(error));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    let ids = own_ids(context)?;
    for file in own_samples(context)? {
        let array = read(context.session(Device::CPU)?, file)?;
        for index in 0..array.n_nodes() {
            let fail = |error: Error| failed(file.display(), "the types of a node's children", error);
            let node = array.node(index).map_err(fail)?;
            if !ids.iter().any(|id| id == node.encoding()) {
                continue;
            }
            coverage::record_data_call();
            let derived = match encoding.children(node) {
                Err(error) if error.code() == Code::UNSUPPORTED => continue,
                derived => derived.map_err(fail)?,
            };
            for (child, derived) in node.children().zip(derived) {
                // SAFETY: both schemas are valid: the array lives, and `derived` is owned.
                let types = unsafe {
                    child.schema().and_then(|actual| {
                        Ok((import_field_ref(actual)?, import_field_ref(&derived.schema)?))
                    })
                };
                let (actual, expected) = types.map_err(fail)?;
                let length = derived.length.unwrap_or(child.length());
                if !actual.data_type().equals_datatype(expected.data_type()) || child.length() != length {
                    return Err(failed(
                        format!("'{}', {}", file.display(), child.path()),
                        format!("{} values of {}, as in the sample", child.length(), actual.data_type()),
                        format!("{length} values of {}", expected.data_type()),
                    ));
                }
            }
        }
    }
    super::entry::no_leaks(subject.end(), "after deriving the types of children")
}

fn samples(context: &CaseContext) -> Check {
    let samples = own_samples(context)?;
    decode_watched(context)?;
    let program_ids = program_ids(context)?;
    for file in samples {
        let host = host(context);
        let place = file.display().to_string();
        let on = |device| -> Check<(Session, DeviceBatch)> {
            let session = session(&host, device)?;
            coverage::record_data_call();
            let batch = session.decode(read(&session, file)?);
            let batch = batch.map_err(|error| failed(&place, "values", error.one_line()))?;
            Ok((session, batch))
        };
        let (cpu, expected) = on(Device::CPU)?;
        for device in [Device::UNTOUCHABLE, context.device] {
            let (device_session, got) = on(device)?;
            let difference = first_difference(&got, &expected, device_session.stream());
            let difference = difference.map_err(|error| failed(&place, "an array", error))?;
            if let Some(details) = difference {
                return Err(failed(format!("{place} on {device}"), "the same values as on cpu", details));
            }
        }
        drop((cpu, expected));
        for id in node_ids(context, file)?.into_iter().filter(|id| program_ids.contains(id)) {
            coverage::record_exercised(Part::decode(&id));
        }
        if let Some(leak) = host.settle().first() {
            return Err(failed(place, "no memory held after decoding", leak));
        }
    }
    Ok(())
}

/// Returns the plugin's encodings that only the host decodes, by running programs: all encodings if
/// the plugin has no `decode` function, otherwise none.
fn program_ids(context: &CaseContext) -> Check<Vec<String>> {
    let decodes = context.subject()?.encoding()?.decodes();
    if decodes { Ok(Vec::new()) } else { own_ids(context) }
}

/// The encodings of a sample's nodes.
fn node_ids(context: &CaseContext, file: &std::path::Path) -> Check<Vec<String>> {
    let array = read(context.session(Device::CPU)?, file)?;
    let ids = (0..array.n_nodes()).map(|i| array.node(i).map(|node| node.encoding().to_owned()));
    ids.collect::<Result<_>>().map_err(|error| failed(file.display(), "a tree", error))
}

/// Decodes the samples with a watched instance, and checks values, releases and leaks.
fn decode_watched(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for tree in trees(context, &subject)? {
        let (place, counts) = (&tree.place, ReleaseCounts::default());
        let fail = |error| failed(place, "values", error);
        let read = tree.decode(context, &subject, &subject.call(), &counts).map_err(fail)?;
        let read = read.read(context).map_err(fail)?;
        if let Some(details) = counts.early_release(&read.batches) {
            return Err(failed(place, RELEASED_LAST, details));
        }
        if tree.is_used_without_ownership(&read.batches).map_err(fail)? {
            let expected = "the ownership of a buffer to be taken if values use its memory";
            return Err(failed(place, expected, "the buffer still belongs to its array"));
        }
        let expected = tree.expected(context).map_err(fail)?;
        let difference = round_trip::difference(&subject, &read, &[expected]).map_err(fail)?;
        if let Some(details) = difference {
            return Err(failed(place, "the same values as in a session", details));
        }
        drop(read);
        context.backend.settle();
        if let Some(details) = counts.violation() {
            return Err(failed(place, "each input batch released once", details));
        }
        if tree.is_held() {
            return Err(failed(
                place,
                "each buffer released, by the plugin or with its array",
                "the plugin still holds a buffer",
            ));
        }
    }
    super::entry::no_leaks(subject.end(), "after decoding the samples")
}

/// Ranges of an array of `len` rows: none, the first, the last, the middle, and all but the first.
fn some_rows(len: u64) -> Vec<Range<u64>> {
    let third = len / 3;
    let ranges = [0..0, 0..len.min(1), len.saturating_sub(1)..len, third..len - third, len.min(1)..len];
    ranges.into_iter().collect()
}

fn rows(context: &CaseContext) -> Check {
    let samples = own_samples(context)?;
    let subject = context.subject()?;
    for tree in trees(context, &subject)? {
        let expected = tree.expected(context).map_err(|error| failed(&tree.place, "values", error))?;
        for rows in some_rows(expected.len() as u64) {
            let place = format!("{}, rows {rows:?}", tree.place);
            let fail = |error| failed(&place, "values", error);
            let (read, planned) = tree.decode_rows(context, &subject, rows).map_err(fail)?;
            let read = read.read(context).map_err(fail)?;
            let (at, len) = (planned.start as usize, (planned.end - planned.start) as usize);
            let expected = expected.slice(at, len).map_err(fail)?;
            if let Some(details) = round_trip::difference(&subject, &read, &[expected]).map_err(fail)? {
                return Err(failed(place, "the same values as all rows", details));
            }
        }
    }
    super::entry::no_leaks(subject.end(), "after decoding rows")?;
    for file in samples {
        let host = host(context);
        for device in [Device::CPU, Device::UNTOUCHABLE, context.device] {
            let session = session(&host, device)?;
            let decoded = |rows: Option<Range<u64>>| {
                coverage::record_data_call();
                let array = read(&session, file)?;
                let batch = match rows.clone() {
                    Some(rows) => session.decode_rows(array, rows),
                    None => session.decode(array),
                };
                let place = format!("{} on {device}, rows {rows:?}", file.display());
                batch.map_err(|error| failed(place, "values", error.one_line()))
            };
            let all = decoded(None)?;
            for rows in some_rows(all.len() as u64) {
                let place = format!("{} on {device}, rows {rows:?}", file.display());
                let fail = |error| failed(&place, "an array", error);
                let got = decoded(Some(rows.clone()))?;
                let (at, len) = (rows.start as usize, (rows.end - rows.start) as usize);
                let expected = all.slice(at, len).map_err(fail)?;
                let difference = first_difference(&got, &expected, session.stream()).map_err(fail)?;
                if let Some(details) = difference {
                    return Err(failed(place, "the same values as all rows", details));
                }
            }
        }
        if let Some(leak) = host.settle().first() {
            return Err(failed(file.display(), "no memory held after decoding rows", leak));
        }
    }
    Ok(())
}

const N_CHANGES: usize = 60;

fn changed_samples(context: &CaseContext) -> Check {
    let ids = own_ids(context)?;
    let mut random = context.random();
    for file in own_samples(context)? {
        let host = host(context);
        let session = session(&host, context.device)?;
        for _ in 0..N_CHANGES {
            let array = changed(read(&session, file)?, &ids, &mut random);
            // A tree that is invalid after the change does not reach the plugin.
            let Ok(array) = array else { continue };
            coverage::record_data_call();
            let batch = match session.decode(array) {
                Ok(batch) => batch,
                Err(crossdock::Error::Data { source, .. }) if source.code() == Code::PANICKED => {
                    return Err(failed(file.display(), "an array, or an error", source));
                }
                Err(_) => continue,
            };
            let level = crossdock_arrays::Level::Full;
            crossdock_arrays::validate(&batch, level, session.stream())
                .map_err(|error| failed(file.display(), "a valid array", error))?;
        }
        drop(session);
        if let Some(leak) = host.settle().first() {
            return Err(failed(file.display(), "no memory held after decoding", leak));
        }
    }
    Ok(())
}

/// Changes one of the plugin's nodes.
fn changed(array: EncodedArray, ids: &[String], random: &mut Random) -> Result<EncodedArray> {
    let (mut nodes, mut buffers) = encoded_trees::parts(&array, 0)?;
    // `own_nodes` has an entry for each node of the plugin's encodings: the index of the node, and
    // the index of the node's first buffer in `buffers`. In the loop, `first` is the index of the
    // current node's first buffer.
    let (mut own_nodes, mut first) = (Vec::new(), 0);
    for (index, node) in nodes.iter().enumerate() {
        if ids.contains(&node.encoding) {
            own_nodes.push((index, first));
        }
        first += node.n_buffers as usize;
    }
    let Some((index, first)) = own_nodes.get(random.below(own_nodes.len())).copied() else {
        return EncodedArray::new(nodes, buffers);
    };
    let node = &mut nodes[index];
    match random.below(3) {
        0 => node.metadata = random.mutated(&node.metadata),
        1 => {
            const LENGTHS: [u64; 4] = [0, 1, 1 << 20, u64::MAX];
            let near = node.length.wrapping_add(random.below(3) as u64).wrapping_sub(1);
            node.length = if random.below(2) == 0 { near } else { LENGTHS[random.below(LENGTHS.len())] };
        }
        _ => {
            let which = first + random.below(node.n_buffers as usize);
            if let Some(place) = buffers.get_mut(which).filter(|_| node.n_buffers > 0) {
                // SAFETY: `EncodedBuffer::new` returns an empty struct, which owns nothing.
                let mut raw =
                    std::mem::replace(place, unsafe { Owned::new(abi::EncodedBuffer::new()) }).into_raw();
                raw.bytes = random.below(raw.bytes as usize) as u64;
                // SAFETY: `raw` is the valid buffer from above, which is only shortened.
                *place = unsafe { Owned::new(raw) };
            }
        }
    }
    EncodedArray::new(nodes, buffers)
}
