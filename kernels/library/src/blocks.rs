//! Values by their numbers, of which every 1024 number those of a part of their own.

use crossdock_kernels::IntType;
use crossdock_kernels::limits::FASTLANES_BLOCK as BLOCK;

use crate::bits;
use crate::door::Args;
use crate::widen::integers;

pub(crate) fn take(args: Args<'_>) -> Option<()> {
    let (codes, code) = (args.read(0)?, IntType::of_code(args.index(1)?)?);
    let (validity, first_bit) = (args.read(2)?, args.index(3)?);
    let begins: Vec<i128> = integers(args.read(4)?, IntType::of_code(args.index(5)?)?)?.collect();
    let (values, first, to, width) = (args.read(6)?, args.index(7)?, args.write(8)?, args.index(9)?);
    if ![1, 2, 4, 8].contains(&width) || codes.len() / code.width_bytes < to.len() / width {
        return None;
    }
    let (n_values, zero) = ((values.len() / width) as i128, begins.first().copied().unwrap_or(0));
    let mut found = None;
    for (i, (to, code)) in to.chunks_exact_mut(width).zip(integers(codes, code)?).enumerate() {
        let block = (first + i) / BLOCK;
        let from = begins.get(block)? - zero;
        let end = begins.get(block + 1).map_or(n_values, |end| end - zero);
        let is_part = 0 <= from && from <= end && end <= n_values;
        let code = if end - from == 1 { 0 } else { code };
        if is_part && 0 <= code && code < end - from {
            let at = (from + code) as usize * width;
            to.copy_from_slice(values.get(at..at + width)?);
        } else {
            to.fill(0);
            found = found.or((!is_part || bits::is_set(validity, first_bit + i)).then_some(i));
        }
    }
    args.found(10, found)
}
