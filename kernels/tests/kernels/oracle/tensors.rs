//! References for strided copies.

use crossdock_kernels::Dim;
use crossdock_memory::Buffer;

use super::{Case, Target};

/// Gathers tensors of about the case's number of elements, with dimensions in any order and
/// direction.
pub fn gather(case: &Case<'_>) {
    for width in [1usize, 2, 4, 8, 16, 3, 12] {
        for _ in 0..4 {
            let (dims, first, bytes) = layout(case, width);
            let source = case.bytes(bytes);
            let buffer = case.buffer(&source);
            let to = case.target(dims.iter().map(|dim| dim.size).product::<usize>() * width);
            expect_gathered(case, (&source, &buffer, first), width, &dims, to);
        }
        if case.n > 1000 {
            [1, 2, 4, 8, 16].into_iter().for_each(|grain| transposed(case, width, grain));
        }
    }
}

/// Gathers transposed planes, smaller or larger than a tile, with up to two more dimensions. All
/// positions, lengths and distances are multiples of `grain` bytes; or one of them is a multiple of
/// `grain` bytes and all others are multiples of 16 bytes.
fn transposed(case: &Case<'_>, width: usize, grain: usize) {
    let one = case.below(6);
    let grain_of = |which: usize| if one == 0 || one == which { grain } else { 16 };
    let size = |which: usize, max: usize| {
        let n = 8 + case.below(if case.below(3) == 0 { 9 } else { max / width.min(4) });
        n.next_multiple_of((grain_of(which) / width).max(1))
    };
    let (columns, rows, gap) = (size(1, 640), size(2, 320), grain_of(3));
    let skew = grain_of(4) % 16;
    let (mut first, mut stride) = (skew, (columns * width).next_multiple_of(gap) + gap * case.below(3));
    // The next outer dimension in memory, with `n` elements, perhaps backwards.
    let mut outer = |n: usize| {
        let backwards = case.below(3) == 0;
        let dim = Dim { size: n, stride: if backwards { -(stride as i64) } else { stride as i64 } };
        if backwards {
            first += stride * (n - 1);
        }
        stride = stride * n + gap * case.below(2);
        dim
    };
    let down = outer(rows);
    let mut dims: Vec<Dim> = (0..case.below(3)).map(|_| outer(1 + case.below(3))).rev().collect();
    dims.insert(case.below(dims.len() + 1), Dim { size: columns, stride: width as i64 });
    dims.push(down);
    let source = case.bytes(skew + stride);
    let buffer = case.s.memory().alloc_with(case.s, source.len(), |to| {
        to.copy_from_slice(&source);
        Ok(())
    });
    let buffer = buffer.unwrap().freeze(case.s).unwrap();
    let mut to = case.target(dims.iter().map(|dim| dim.size).product::<usize>() * width);
    to.at = to.at / 16 * 16 + grain_of(5) % 16;
    expect_gathered(case, (&source, &buffer, first), width, &dims, to);
}

fn expect_gathered(
    case: &Case<'_>,
    (source, buffer, first): (&[u8], &Buffer, usize),
    width: usize,
    dims: &[Dim],
    mut to: Target,
) {
    crossdock_kernels::gather(case.s, buffer, first, width, dims, &mut to.buffer, to.at).unwrap();
    let mut expected = Vec::with_capacity(to.bytes);
    for i in 0..to.bytes / width {
        let (mut rest, mut at) = (i, first as i64);
        for dim in dims.iter().rev() {
            at += (rest % dim.size) as i64 * dim.stride;
            rest /= dim.size;
        }
        expected.extend(&source[at as usize..at as usize + width]);
    }
    case.expect(to, &expected, &format!("width {width} {dims:?} from {first}"));
}

/// Random dimensions, the position of the first element, and the size of the buffer.
fn layout(case: &Case<'_>, width: usize) -> (Vec<Dim>, usize, usize) {
    let n = case.n.clamp(1, 20_000);
    let mut sizes: Vec<usize> = Vec::new();
    let mut remaining = n;
    for _ in 0..case.below(4) {
        let size = 1 + case.below((remaining as f64).sqrt() as usize + 1);
        sizes.push(size);
        remaining = (remaining / size).max(1);
    }
    sizes.push(if case.n == 0 { 0 } else { remaining });
    // In most cases, the order of the dimensions in memory is random. Each dimension may have a
    // gap, be backwards or be repeated.
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    if case.below(3) > 0 {
        (0..order.len()).for_each(|i| order.swap(i, i + case.below(sizes.len() - i)));
    }
    let mut dims: Vec<Dim> = sizes.iter().map(|size| Dim { size: *size, stride: 0 }).collect();
    let (mut stride, mut first, mut end) = (width, case.below(20), 0);
    for d in order {
        let size = dims[d].size;
        if case.below(12) == 0 {
            continue;
        }
        let backwards = case.below(6) == 0;
        dims[d].stride = if backwards { -(stride as i64) } else { stride as i64 };
        let reach = stride * size.saturating_sub(1);
        if backwards {
            first += reach
        } else {
            end += reach
        }
        stride = stride * size.max(1) + if case.below(3) == 0 { case.below(3) * width } else { 0 };
    }
    (dims, first, first + end + width)
}
