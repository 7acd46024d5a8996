//! Tensors with any strides.

use crossdock_kernels::Dim;
use crossdock_memory::Buffer;

use crate::{Case, Target};

/// Shapes of about the case's number of elements, with dimensions in any order and direction.
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
            transposed(case, width);
        }
    }
}

/// Planes with rows and columns exchanged, larger than a tile, that lie so that several elements move as one.
fn transposed(case: &Case<'_>, width: usize) {
    for backwards in [false, true] {
        let (planes, rows, columns) = (1 + case.below(3), 4 * (2 + case.below(70)), 4 * (2 + case.below(40)));
        let row = (columns + 4 * case.below(2)) * width;
        let plane = Dim { size: planes, stride: (row * rows) as i64 };
        let sign = if backwards { -1 } else { 1 };
        let down = Dim { size: rows, stride: sign * row as i64 };
        let dims = [plane, Dim { size: columns, stride: width as i64 }, down];
        let source = case.bytes(planes * rows * row);
        let buffer = case.s.memory().alloc_with(case.s, source.len(), |to| {
            to.copy_from_slice(&source);
            Ok(())
        });
        let buffer = buffer.unwrap().freeze(case.s).unwrap();
        let first = if backwards { row * (rows - 1) } else { 0 };
        let mut to = case.target(planes * rows * columns * width);
        to.at = to.at / 16 * 16;
        expect_gathered(case, (&source, &buffer, first), width, &dims, to);
    }
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

/// Dimensions, where the first element lies, and how many bytes there are.
fn layout(case: &Case<'_>, width: usize) -> (Vec<Dim>, usize, usize) {
    let n = case.n.clamp(1, 20_000);
    let mut sizes: Vec<usize> = Vec::new();
    let mut left = n;
    for _ in 0..case.below(4) {
        let size = 1 + case.below((left as f64).sqrt() as usize + 1);
        sizes.push(size);
        left = (left / size).max(1);
    }
    sizes.push(if case.n == 0 { 0 } else { left });
    // Memory in another order than that of the dimensions, each perhaps with a gap, or backwards, or repeated.
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
