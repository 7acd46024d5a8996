//! Integers, and floats over integers, in one pass; then their patches.

use crossdock_arrays::DeviceArray;
use crossdock_kernels::{Checks, Numbers, Packed, Patches, Source, Step, Words};
use crossdock_memory::BufferMut;
use crossdock_plugin_api::{Error, Result};

use super::{OnDevice, room};
use crate::cpu::alp::Scale;
use crate::job::Job;
use crate::kinds::chain::{self, BIT_PACKED, Chain, FRAME, Patched, ZIGZAG};
use crate::kinds::numbers::{alp_of, floats};
use crate::node::Node;
use crate::validity::{self, Validity};
use crate::wire::PType;
use crate::wire::metadata::{self as told, BitPacked};

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: BIT_PACKED, suits: always, decode: integers },
    OnDevice { id: FRAME, suits: always, decode: integers },
    OnDevice { id: ZIGZAG, suits: always, decode: integers },
    OnDevice { id: "vortex.alp", suits: always, decode: alp },
];

fn always(_: &Node<'_>) -> Result<bool> {
    Ok(true)
}

fn integers(job: &Job<'_>) -> Result<DeviceArray> {
    let chain = Chain::new(Node::new(job.node.raw)?)?;
    let (to, validity) = run(job, &chain, &[], None)?;
    job.array(job.node.data_type(), validity, vec![Some(to.freeze(job.stream)?)])
}

fn alp(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let alp = alp_of(node)?;
    let chain = Chain::new(node.child(0)?)?;
    let patched = alp.patches.as_ref().map(|told| Patched::of(job, node, 1, told)).transpose()?;
    let factors = match floats(node)? {
        PType::F32 => Scale::<f32>::new(alp.exp_e, alp.exp_f)?.factors().map(|f| u64::from(f.to_bits())),
        _ => Scale::<f64>::new(alp.exp_e, alp.exp_f)?.factors().map(f64::to_bits),
    };
    let [power, inverse] = factors.map(Step::Scale);
    let (to, validity) = run(job, &chain, &[Step::ToFloat, power, inverse], patched.as_ref())?;
    job.array(node.data_type(), validity, vec![Some(to.freeze(job.stream)?)])
}

/// All values, each through the chain's steps and then `then`, and where the nulls are; `last` are put in place of what came
/// out.
fn run(
    job: &Job<'_>,
    chain: &Chain<'_>,
    then: &[Step],
    last: Option<&Patched<'_>>,
) -> Result<(BufferMut, Validity)> {
    let node = &chain.last;
    let mut steps: Vec<Step> = chain.steps.iter().rev().map(|step| step.of_kernel()).collect();
    steps.extend(then);
    let words = Words { at: 0, len: job.node.len, width_bytes: job.node.width()? };
    let mut to = room(job, words.len.saturating_mul(words.width_bytes))?;
    if !chain.is_packed() {
        let array = job.decoded(node.raw)?;
        if let Some(from) = array.buffers().get(1).and_then(Option::as_ref).filter(|_| words.len > 0) {
            let mut checks = Checks::new();
            checks.map(from, array.offset() * words.width_bytes, &mut to, words, &steps)?;
            checks.run(job.stream)?;
        }
        patch(job, last, &mut to, words)?;
        return Ok((to, Validity::of(job, array)?));
    }
    let packed = BitPacked::read(node.metadata(), chain::ptype(node)?, node.len)?;
    let bytes = job.take_buffer_of(node.raw, 0, 1)?;
    let inner = packed.patches.as_ref().map(|told| Patched::of(job, node, 0, told)).transpose()?;
    let mut checks = Checks::new();
    match &bytes {
        Some(buffer) => {
            let from = Packed { buffer, bits: packed.bit_width, first: packed.offset as usize };
            checks.unpack(from, &mut to, words, &steps)?;
        }
        // No bits at all: every value is 0 before the steps.
        None => checks.sequence(0, 0, &mut to, words, &steps)?,
    }
    let inner = inner.as_ref().map(|inner| patches(inner, words)).transpose()?;
    let cell = inner.map(|inner| checks.patch(inner, &mut to, words, &steps)).transpose()?;
    let found = checks.run(job.stream)?;
    misplaced(node, cell.and_then(|cell| found.first_wrong(cell)))?;
    patch(job, last, &mut to, words)?;
    let before = packed.patches.as_ref().map_or(0, told::Patches::n_children);
    let validity = match node.raw.n_children() > before {
        true => validity::of_bools(job, job.decoded(node.raw.child(before)?)?)?,
        false => Validity::all(),
    };
    Ok((to, validity))
}

/// Puts patches in place of what is there.
fn patch(job: &Job<'_>, patched: Option<&Patched<'_>>, to: &mut BufferMut, words: Words) -> Result<()> {
    let Some(patched) = patched else { return Ok(()) };
    let mut checks = Checks::new();
    let cell = checks.patch(patches(patched, words)?, to, words, &[])?;
    misplaced(&job.node, checks.run(job.stream)?.first_wrong(cell))
}

fn patches<'a>(patched: &Patched<'a>, words: Words) -> Result<Patches<'a>> {
    let width = patched.indices.data_type().primitive_width().unwrap_or(8);
    let indices = patched.indices.buffers().get(1).and_then(Option::as_ref);
    Ok(Patches {
        indices: Numbers {
            buffer: indices.ok_or_else(|| Error::internal("patches without a buffer"))?,
            at: patched.indices.offset() * width,
            len: patched.indices.len(),
            width_bytes: width,
        },
        first: patched.offset as u64,
        values: Source {
            buffer: patched.values.buffers().get(1).and_then(Option::as_ref),
            at: patched.values.offset() * words.width_bytes,
            len: patched.values.len(),
        },
    })
}

/// Patches that are not where they can be.
pub(super) fn misplaced(node: &Node<'_>, number: Option<u64>) -> Result<()> {
    number.map_or(Ok(()), |number| {
        Err(node.wrong(format_args!(
            "patches: expected indices that rise, each within the array, got another as number {number}"
        )))
    })
}
