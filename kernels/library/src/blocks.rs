//! Takes values by code, where each block of 1024 codes has its own dictionary.

use crossdock_kernels::IntType;
use crossdock_kernels::limits::FASTLANES_BLOCK as BLOCK;

use crate::bits;
use crate::door::Args;
use crate::widen::integers;

pub(crate) fn take(args: Args<'_>) -> Option<()> {
    let (codes, code_type) = (args.read(0)?, IntType::from_code(args.index(1)?)?);
    let (validity, first_bit) = (args.read(2)?, args.index(3)?);
    let begins: Vec<i128> = integers(args.read(4)?, IntType::from_code(args.index(5)?)?)?.collect();
    let (values, first, to, width) = (args.read(6)?, args.index(7)?, args.write(8)?, args.index(9)?);
    if ![1, 2, 4, 8].contains(&width) || codes.len() / code_type.width_bytes < to.len() / width {
        return None;
    }
    let (n_values, base) = ((values.len() / width) as i128, begins.first().copied().unwrap_or(0));
    let mut first_wrong = None;
    for (i, (to, code)) in to.chunks_exact_mut(width).zip(integers(codes, code_type)?).enumerate() {
        let block = (first + i) / BLOCK;
        let from = begins.get(block)? - base;
        let end = begins.get(block + 1).map_or(n_values, |end| end - base);
        let is_range = 0 <= from && from <= end && end <= n_values;
        let code = if end - from == 1 { 0 } else { code };
        if is_range && 0 <= code && code < end - from {
            let at = (from + code) as usize * width;
            to.copy_from_slice(values.get(at..at + width)?);
        } else {
            to.fill(0);
            first_wrong = first_wrong.or((!is_range || bits::is_set(validity, first_bit + i)).then_some(i));
        }
    }
    args.report_wrong(10, first_wrong)
}
