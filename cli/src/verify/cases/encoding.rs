//! Encoded arrays: nodes that lie, and samples.

use std::ffi::c_void;

use arrow_schema::{DataType, Field};
use crossdock::api::{Code, Device, EncodedArray, LogicalType, NodeParts, Owned, Result, abi};
use crossdock::memory::Backend;
use crossdock::{Host, Session};
use crossdock_arrays::{DeviceBatch, export_field, first_difference};

use super::super::case::{Case, Check, failed, not_given, skipped};
use super::super::coverage::{self, Part};
use super::super::lent::Counts;
use super::super::random::Random;
use super::super::subject::Ground;
use super::super::tour;
use super::super::trees::{self, trees};
use super::exporter::NOT_EARLY;

pub const CASES: &[Case] = &[
    Case {
        name: "encoding.unknown_id",
        rule: "A node of an encoding that is not in the list is refused.",
        stands: "crossdock_encoding.check",
        ground: &["interfaces.answers", "errors.message"],
        on_devices: false,
        check: unknown_id,
    },
    Case {
        name: "encoding.lying_nodes",
        rule: "check, size and lower answer whatever a node says of itself, and look at no byte of its buffers.",
        stands: "crossdock_encoding.check, size, lower",
        ground: &["encoding.unknown_id"],
        on_devices: false,
        check: lying_nodes,
    },
    Case {
        name: "encoding.samples",
        rule: "A sample is decoded to the same values wherever it is, by the plugin or by its programs; what is handed over is \
               released once, and nothing is left behind.",
        stands: "crossdock_encoding.decode, plan, lower",
        ground: &[
            "encoding.unknown_id",
            "memory.blocks",
            "memory.work",
            "memory.references",
            "memory.handles",
            "memory.bounds",
            "lifetimes.batch",
        ],
        on_devices: true,
        check: samples,
    },
    Case {
        name: "encoding.changed_samples",
        rule: "A sample whose metadata, lengths or buffers were changed is an error, or an array that keeps the specification.",
        stands: "crossdock_encoding.check, decode",
        ground: &["encoding.samples"],
        on_devices: true,
        check: changed_samples,
    },
];

/// A buffer on a device: that address is nobody's to look at.
fn buffer(bytes: u64) -> Owned<abi::EncodedBuffer> {
    let address = if bytes == 0 { std::ptr::null() } else { 0x1000 as *const c_void };
    let device = Device::cuda(0);
    let raw = abi::EncodedBuffer { address, bytes, alignment: 64, device, ..abi::EncodedBuffer::new() };
    let raw = abi::EncodedBuffer { release: Some(forget), ..raw };
    // SAFETY: made above; nobody else has it, and there is nothing to free.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn forget(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: the struct's own owner calls this on it.
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

fn lie(random: &mut Random, id: &str) -> Result<EncodedArray> {
    let (n_buffers, n_children) = (random.below(4) as u32, random.below(4) as u32);
    let mut nodes = vec![node(random, id, n_buffers, n_children)?];
    for _ in 0..n_children {
        nodes.push(node(random, id, 0, 0)?);
    }
    const SIZES: [u64; 5] = [0, 1, 64, 1 << 40, i64::MAX as u64];
    let buffers = (0..n_buffers).map(|_| buffer(SIZES[random.below(SIZES.len())])).collect();
    EncodedArray::new(nodes, buffers)
}

/// A node of an encoding that there is none of.
pub fn unknown(ground: &Ground) -> Check<EncodedArray> {
    let array = lie(&mut ground.random(), "crossdock.verify.no-such-encoding");
    array.map_err(|error| failed("the suite's own node", "a tree", error))
}

fn unknown_id(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let encoding = subject.encoding()?;
    let array = unknown(ground)?;
    match encoding.check(&array, 0) {
        Ok(()) => Err(failed("check of an encoding that there is none of", "an error", "success")),
        Err(_) => Ok(()),
    }
}

const LIES: usize = 200;

fn lying_nodes(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    let encoding = subject.encoding()?;
    let ids = encoding.ids().map_err(|error| failed("ids", "a list", error))?;
    let mut random = ground.random();
    for _ in 0..LIES.div_ceil(ids.len().max(1)) {
        for id in &ids {
            // What the suite's own bounds refuse is no node.
            let Ok(array) = lie(&mut random, id) else { continue };
            // Either answer is one.
            if answer("check", id, encoding.check(&array, 0))?.is_some() {
                answer("size", id, encoding.size(&array, 0))?;
                answer("lower", id, encoding.lower(&array, 0))?;
            }
        }
    }
    super::entry::nothing_left(subject.end(), "nodes that lie")
}

/// An error is an answer, and none that its maker did not mean to give.
fn answer<T>(what: &str, id: &str, result: Result<T>) -> Check<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == Code::PANICKED => {
            Err(failed(format!("{what} of a node of {id}"), "an answer", error))
        }
        Err(_) => Ok(None),
    }
}

/// A host with the plugin, and with those beside the program for nodes that are not its own. It has memory of its own, of which
/// nothing is to be left.
fn host(ground: &Ground) -> Host {
    let backend = Backend::builder().untouchable(true).build();
    crate::options::host().backend(backend).plugins(&ground.plugin).build_lenient()
}

fn session(host: &Host, device: Device) -> Check<Session> {
    host.session().device(device).open().map_err(|error: crossdock::Error| skipped(error.one_line()))
}

fn read(session: &Session, file: &std::path::Path) -> Check<EncodedArray> {
    let array = trees::read(session, file)?;
    array.ok_or_else(|| skipped(format!("'{}' is no encoded array any more", file.display())))
}

/// The ids that the plugin decodes.
fn own_ids(ground: &Ground) -> Check<Vec<String>> {
    let subject = ground.subject()?;
    subject.encoding()?.ids().map_err(|error| failed("ids", "a list", error))
}

/// The samples that have nodes of the plugin's.
fn own_samples(ground: &Ground) -> Check<Vec<&std::path::PathBuf>> {
    let ids = own_ids(ground)?;
    let host = host(ground);
    let session = session(&host, Device::CPU)?;
    let mut own = Vec::new();
    for file in &ground.samples {
        let Some(array) = trees::read(&session, file)? else { continue };
        let is_own = |i| array.node(i).is_ok_and(|node| ids.iter().any(|id| id == node.encoding()));
        if (0..array.n_nodes()).any(is_own) {
            own.push(file);
        }
    }
    if own.is_empty() {
        return Err(not_given("no sample with a node of the plugin's (--sample FILE)"));
    }
    Ok(own)
}

fn samples(ground: &Ground) -> Check {
    let own = own_samples(ground)?;
    under_watch(ground)?;
    let by_programs = programs_alone(ground)?;
    for file in own {
        let host = host(ground);
        let place = file.display().to_string();
        let on = |device| -> Check<(Session, DeviceBatch)> {
            let session = session(&host, device)?;
            coverage::called();
            let batch = session.decode(read(&session, file)?);
            let batch = batch.map_err(|error| failed(&place, "values", error.one_line()))?;
            Ok((session, batch))
        };
        let (cpu, expected) = on(Device::CPU)?;
        for device in [Device::UNTOUCHABLE, ground.device] {
            let (there, got) = on(device)?;
            let difference = first_difference(&got, &expected, there.stream());
            let difference = difference.map_err(|error| failed(&place, "an array", error))?;
            if let Some(words) = difference {
                return Err(failed(format!("{place} on {device}"), "the values as on cpu", words));
            }
        }
        drop((cpu, expected));
        for id in nodes(ground, file)?.into_iter().filter(|id| by_programs.contains(id)) {
            coverage::exercised(Part::decode(&id));
        }
        if let Some(leak) = host.settle().first() {
            return Err(failed(place, "no memory held after decoding", leak));
        }
    }
    Ok(())
}

/// The ids whose nodes nobody but the host decodes, by programs; none where the plugin has a `decode`.
fn programs_alone(ground: &Ground) -> Check<Vec<String>> {
    let decodes = ground.subject()?.encoding()?.decodes();
    if decodes { Ok(Vec::new()) } else { own_ids(ground) }
}

/// The ids of a sample's nodes.
fn nodes(ground: &Ground, file: &std::path::Path) -> Check<Vec<String>> {
    let array = read(ground.session(Device::CPU)?, file)?;
    let ids = (0..array.n_nodes()).map(|i| array.node(i).map(|node| node.encoding().to_owned()));
    ids.collect::<Result<_>>().map_err(|error| failed(file.display(), "a tree", error))
}

/// The same values under a host that watches, and nothing of what was lent is held.
fn under_watch(ground: &Ground) -> Check {
    let subject = ground.subject()?;
    for tree in trees(ground, &subject)? {
        let (place, counts) = (&tree.place, Counts::default());
        let wrong = |error| failed(place, "values", error);
        let read = tree.decode(ground, &subject, &subject.call(), &counts).map_err(wrong)?;
        let read = read.read(ground).map_err(wrong)?;
        if let Some(words) = counts.too_early(&read.batches) {
            return Err(failed(place, NOT_EARLY, words));
        }
        if tree.is_forgotten_by(&read.batches).map_err(wrong)? {
            return Err(failed(place, "a buffer that values lie in to be taken", "it was left to its array"));
        }
        let expected = tree.expected(ground).map_err(wrong)?;
        let difference = tour::difference(&subject, &read, &[expected]).map_err(wrong)?;
        if let Some(words) = difference {
            return Err(failed(place, "the values that a session has", words));
        }
        drop(read);
        ground.backend.settle();
        if let Some(words) = counts.wrong() {
            return Err(failed(place, "each batch that was given released once", words));
        }
        if tree.is_held() {
            return Err(failed(
                place,
                "each buffer released, by the plugin or with its array",
                "one is held",
            ));
        }
    }
    super::entry::nothing_left(subject.end(), "samples that were decoded")
}

const CHANGES: usize = 60;

fn changed_samples(ground: &Ground) -> Check {
    let ids = own_ids(ground)?;
    let mut random = ground.random();
    for file in own_samples(ground)? {
        let host = host(ground);
        let session = session(&host, ground.device)?;
        for _ in 0..CHANGES {
            let array = changed(read(&session, file)?, &ids, &mut random);
            // What is no tree any more does not reach the plugin; and an error is an answer.
            let Ok(array) = array else { continue };
            coverage::called();
            let batch = match session.decode(array) {
                Ok(batch) => batch,
                Err(crossdock::Error::Data { source, .. }) if source.code() == Code::PANICKED => {
                    return Err(failed(file.display(), "an array, or an error", source));
                }
                Err(_) => continue,
            };
            let level = crossdock_arrays::Level::Full;
            crossdock_arrays::validate(&batch, level, session.stream())
                .map_err(|error| failed(file.display(), "an array that keeps the specification", error))?;
        }
        drop(session);
        if let Some(leak) = host.settle().first() {
            return Err(failed(file.display(), "no memory held after decoding", leak));
        }
    }
    Ok(())
}

/// The tree with one of the plugin's nodes changed.
fn changed(array: EncodedArray, ids: &[String], random: &mut Random) -> Result<EncodedArray> {
    let (mut nodes, mut buffers) = trees::parts(&array, 0)?;
    let (mut own, mut first) = (Vec::new(), 0);
    for (index, node) in nodes.iter().enumerate() {
        if ids.contains(&node.encoding) {
            own.push((index, first));
        }
        first += node.n_buffers as usize;
    }
    let Some((index, first)) = own.get(random.below(own.len())).copied() else {
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
                // SAFETY: a released buffer; what was there moves on.
                let mut raw =
                    std::mem::replace(place, unsafe { Owned::new(abi::EncodedBuffer::new()) }).into_raw();
                raw.bytes = random.below(raw.bytes as usize) as u64;
                // SAFETY: the buffer is ours, and now shorter than it was.
                *place = unsafe { Owned::new(raw) };
            }
        }
    }
    EncodedArray::new(nodes, buffers)
}
