//! Reads and checks single integers.

use crate::door::Args;
use crate::words::Word;

fn words(from: &[u8], width: u64, signed: u64) -> Option<Box<dyn Iterator<Item = i64> + '_>> {
    Some(match (width, signed != 0) {
        (4, true) => Box::new(i32::all(from).map(Word::wide)),
        (4, false) => Box::new(u32::all(from).map(Word::wide)),
        (8, true) => Box::new(i64::all(from).map(Word::wide)),
        (8, false) => Box::new(u64::all(from).map(Word::wide)),
        _ => return None,
    })
}

pub(crate) fn read(args: Args<'_>) -> Option<()> {
    let words = words(args.read(0)?, args.value(1)?, args.value(2)?)?;
    let (cells, _) = args.write(3)?.as_chunks_mut::<8>();
    cells.iter_mut().zip(words).for_each(|(cell, word)| *cell = word.to_ne_bytes());
    Some(())
}

pub(crate) fn check(args: Args<'_>) -> Option<()> {
    let number = words(args.read(0)?, args.value(1)?, args.value(2)?)?.next();
    let (min, max) = (args.value(3)? as i64, args.value(4)? as i64);
    args.report_wrong(5, number.is_some_and(|number| number < min || number > max).then_some(0))
}
