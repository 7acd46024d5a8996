//! Values in blocks of 1024.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::numbers;
use crossdock_kernels::{Checks, Deltas, Words};
use crossdock_plugin_api::Result;

use super::{OnDevice, always, room};
use crate::cpu::fastlanes::BLOCK;
use crate::job::Job;
use crate::kinds::blocks::{DELTA, delta_of};

pub(super) const KINDS: &[OnDevice] = &[OnDevice { id: DELTA, suits: always, decode: delta }];

fn delta(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let told = delta_of(node)?;
    let validity = job.validity(node.expect_children_and_validity(2)?.then_some(2))?;
    let (Some(bases), Some(deltas), 1..) = (numbers(job.child(0)?), numbers(job.child(1)?), node.len) else {
        return DeviceArray::empty(node.data_type());
    };
    let from = Deltas {
        bases: (bases.buffer, bases.at),
        deltas: (deltas.buffer, deltas.at),
        blocks: told.deltas_len / BLOCK,
        first: told.offset as usize,
    };
    let mut to = room(job, node.values_bytes()?)?;
    let mut checks = Checks::new();
    checks.sum_lanes(from, &mut to, Words { at: 0, len: node.len, width_bytes: node.width()? })?;
    checks.run(job.stream)?;
    job.array(node.data_type(), validity, vec![Some(to.freeze(job.stream)?)])
}
