//! References for kernels that decode encoded arrays.

use crossdock_kernels::{Checks, Numbers, Packed, Patches, Source, Step, Words};
use crossdock_memory::Buffer;

use super::Case;

const WIDTHS: [usize; 4] = [1, 2, 4, 8];

/// The order of the groups of eight rows in a block, as FastLanes defines it.
const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

pub fn words(values: &[u64], width: usize) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()[..width].to_vec()).collect()
}

pub fn low(value: u64, bits: usize) -> u64 {
    if bits == 64 { value } else { value & ((1 << bits) - 1) }
}

/// Packs values in blocks of 1024, bit by bit.
fn pack(values: &[u64], bits: usize, width: usize) -> Vec<u8> {
    let lanes = 128 / width;
    let mut packed = vec![0; values.len().div_ceil(1024) * 128 * bits];
    for (b, block) in values.chunks(1024).enumerate() {
        for row in 0..8 * width {
            for lane in 0..lanes {
                let value = block.get(ORDER[row / 8] * 16 + row % 8 * 128 + lane).copied().unwrap_or(0);
                for bit in (0..bits).filter(|bit| value >> bit & 1 != 0) {
                    let at = row * bits + bit;
                    let byte =
                        b * 128 * bits + (at / (8 * width) * lanes + lane) * width + at % (8 * width) / 8;
                    packed[byte] |= 1 << (at % 8);
                }
            }
        }
    }
    packed
}

/// Random steps that apply to words of `width` bytes.
pub fn some_steps(case: &Case<'_>, width: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = (0..case.below(4))
        .map(|_| match case.below(3) {
            0 => Step::Add(case.word()),
            1 => Step::Xor(case.word()),
            _ => Step::ZigZag,
        })
        .collect();
    if width >= 4 && case.below(2) == 0 {
        let factor = [10.0f64, 0.01, -3.0, 1e-30][case.below(4)];
        let bits = if width == 4 { u64::from((factor as f32).to_bits()) } else { factor.to_bits() };
        steps.extend([Step::ToFloat, Step::Scale(bits)]);
    }
    steps
}

/// Applies steps to a word.
pub fn stepped(word: u64, width: usize, steps: &[Step]) -> u64 {
    steps.iter().fold(low(word, 8 * width), |word, step| {
        let next = match *step {
            Step::Add(by) => word.wrapping_add(by),
            Step::Xor(by) => word ^ by,
            Step::ZigZag => (word / 2) ^ (word % 2).wrapping_neg(),
            Step::ToFloat if width == 4 => u64::from((word as u32 as i32 as f32).to_bits()),
            Step::ToFloat => (word as i64 as f64).to_bits(),
            Step::Scale(by) if width == 4 => {
                u64::from((f32::from_bits(word as u32) * f32::from_bits(by as u32)).to_bits())
            }
            Step::Scale(by) => (f64::from_bits(word) * f64::from_bits(by)).to_bits(),
        };
        low(next, 8 * width)
    })
}

/// Random bit-packed values: the position in the first block of the first value to decode, the
/// values, and the packed blocks.
fn some_packed(
    case: &Case<'_>,
    bits: usize,
    width: usize,
    value: &dyn Fn() -> u64,
) -> (usize, Vec<u64>, Buffer) {
    let first = case.below(3) * case.below(1024) / 2;
    let values: Vec<u64> = (0..first + case.n).map(|_| low(value(), bits)).collect();
    let packed = case.buffer(&pack(&values, bits, width));
    (first, values[first..].to_vec(), packed)
}

const BITS: [usize; 15] = [0, 1, 3, 6, 7, 8, 9, 13, 16, 17, 31, 32, 33, 63, 64];

pub fn unpack(case: &Case<'_>) {
    for width in WIDTHS {
        for bits in BITS.into_iter().filter(|bits| *bits <= 8 * width) {
            let (first, values, packed) = some_packed(case, bits, width, &|| case.word());
            let steps = some_steps(case, width);
            let mut to = case.target(case.n * width);
            let mut checks = Checks::new();
            let place = Words { at: to.at, len: case.n, width_bytes: width };
            let from = Packed { buffer: &packed, bits: bits as u32, first };
            checks.unpack(from, &mut to.buffer, place, &steps).unwrap();
            checks.run(case.s).unwrap();
            let expected: Vec<u64> = values.iter().map(|v| stepped(*v, width, &steps)).collect();
            case.expect(to, &words(&expected, width), &format!("{bits} bits of {width} bytes, {steps:?}"));
        }
    }
}

pub fn unpack_patched<const WIDTH: usize>(case: &Case<'_>) {
    for (width, index_width) in WIDTHS.map(|i| (WIDTH, i)) {
        for (noise, every) in [(0, 7), (0, 300), (0, 1), (1, 7), (3, 40)] {
            let bits = case.below(8 * width + 1);
            let (first, values, packed) = some_packed(case, bits, width, &|| case.word());
            let steps = some_steps(case, width);
            let with_steps = case.below(2) == 0;
            let patches = SomePatches::new(case, width, index_width, noise, every);
            let mut to = case.target(case.n * width);
            let mut checks = Checks::new();
            let place = Words { at: to.at, len: case.n, width_bytes: width };
            let from = Packed { buffer: &packed, bits: bits as u32, first };
            let cell = checks
                .unpack_patched(from, &mut to.buffer, place, &steps, patches.patches(), with_steps)
                .unwrap();
            let findings = checks.run(case.s).unwrap();
            assert_eq!(
                findings.first_wrong(cell),
                patches.wrong(case.n),
                "n {} indices of {index_width}",
                case.n
            );
            if patches.wrong(case.n).is_none() {
                let all: Vec<u64> = values.iter().map(|v| stepped(*v, width, &steps)).collect();
                let expected = patches.apply(words(&all, width), if with_steps { &steps } else { &[] });
                case.expect(to, &expected, &format!("{bits} bits of {width} bytes, patched, {steps:?}"));
            }
        }
    }
}

pub fn map(case: &Case<'_>) {
    for width in WIDTHS {
        let values: Vec<u64> = (0..case.n).map(|_| case.word()).collect();
        let (from, steps) = (case.buffer(&words(&values, width)), some_steps(case, width));
        let mut to = case.target(case.n * width);
        let mut checks = Checks::new();
        let place = Words { at: to.at, len: case.n, width_bytes: width };
        checks.map(&from, 0, &mut to.buffer, place, &steps).unwrap();
        checks.run(case.s).unwrap();
        let expected: Vec<u64> = values.iter().map(|v| stepped(*v, width, &steps)).collect();
        case.expect(to, &words(&expected, width), &format!("mapped by {steps:?}"));
    }
}

pub fn sequence(case: &Case<'_>) {
    for width in WIDTHS {
        let (base, step, steps) = (case.word(), case.word(), some_steps(case, width));
        let mut to = case.target(case.n * width);
        let mut checks = Checks::new();
        let place = Words { at: to.at, len: case.n, width_bytes: width };
        checks.sequence(base, step, &mut to.buffer, place, &steps).unwrap();
        checks.run(case.s).unwrap();
        let value = |i| stepped(base.wrapping_add(step.wrapping_mul(i)), width, &steps);
        let expected: Vec<u64> = (0..case.n as u64).map(value).collect();
        case.expect(to, &words(&expected, width), "counted");
    }
}

/// Random patches, in buffers.
struct SomePatches {
    width: usize,
    index_width: usize,
    first: u64,
    indices: Vec<u64>,
    values: Vec<u64>,
    numbers: Buffer,
    words: Buffer,
}

impl SomePatches {
    /// Creates about one patch per `every` positions of the case. `noise` of the patches get random
    /// indices.
    fn new(case: &Case<'_>, width: usize, index_width: usize, noise: usize, every: usize) -> Self {
        let first = case.below(40) as u64;
        let limit = (case.n as u64 + first).min(low(u64::MAX, 8 * index_width));
        let mut indices: Vec<u64> = (first..limit).filter(|_| case.below(every) == 0).collect();
        for _ in 0..noise.min(indices.len()) {
            let i = case.below(indices.len());
            indices[i] = low(case.word() >> case.below(64), 8 * index_width);
        }
        let values: Vec<u64> = indices.iter().map(|_| case.word()).collect();
        let (numbers, put) =
            (case.buffer(&words(&indices, index_width)), case.buffer(&words(&values, width)));
        Self { width, index_width, first, indices, values, numbers, words: put }
    }

    fn patches(&self) -> Patches<'_> {
        let len = self.indices.len();
        Patches {
            indices: Numbers { buffer: &self.numbers, at: 0, len, width_bytes: self.index_width },
            first: self.first,
            values: Source { buffer: Some(&self.words), at: 0, len },
        }
    }

    /// The number of the first wrong index: not greater than the preceding index, or with a
    /// position that is not below `n`.
    fn wrong(&self, n: usize) -> Option<u64> {
        let small = |index: u64| index.min(i64::MAX as u64);
        let wrong = |i: &usize| {
            let is_not_ascending = *i > 0 && small(self.indices[i - 1]) >= small(self.indices[*i]);
            is_not_ascending || self.indices[*i].checked_sub(self.first).is_none_or(|place| place >= n as u64)
        };
        (0..self.indices.len()).find(wrong).map(|i| i as u64)
    }

    /// Applies the patches, with steps, to the bytes of words.
    fn apply(&self, mut all: Vec<u8>, steps: &[Step]) -> Vec<u8> {
        for (index, value) in self.indices.iter().zip(&self.values) {
            let at = (index - self.first) as usize * self.width;
            all[at..at + self.width]
                .copy_from_slice(&words(&[stepped(*value, self.width, steps)], self.width));
        }
        all
    }
}

pub fn patch(case: &Case<'_>) {
    for width in WIDTHS {
        for (index_width, noise) in WIDTHS.into_iter().flat_map(|w| [(w, 0), (w, 1), (w, 3)]) {
            let patches = SomePatches::new(case, width, index_width, noise, 7);
            let steps = some_steps(case, width);
            let mut to = case.target(case.n * width);
            let mut checks = Checks::new();
            let place = Words { at: to.at, len: case.n, width_bytes: width };
            let cell = checks.patch(patches.patches(), &mut to.buffer, place, &steps).unwrap();
            let findings = checks.run(case.s).unwrap();
            let expected = patches.wrong(case.n);
            assert_eq!(findings.first_wrong(cell), expected, "n {} index width {index_width}", case.n);
            // Wrong patches are not written. If indices descend, two patches may have the same
            // position.
            if expected.is_none() {
                case.expect(to, &patches.apply(vec![0x77u8; case.n * width], &steps), "patched");
            }
        }
    }
}

/// Random codes, some of them null, and their values.
struct SomeCodes {
    width: usize,
    codes: Vec<u64>,
    n_values: usize,
    values: Vec<u8>,
    first_bit: usize,
    bits: Vec<u8>,
    has_validity: bool,
    buffer: Buffer,
    validity: Buffer,
}

impl SomeCodes {
    fn new(case: &Case<'_>, width: usize, code_bits: usize) -> Self {
        // In some cases, the values fit into the kernel's shared memory; in others, they do not.
        let n_values = case.below([200, 3000][case.below(2)]);
        let values = case.bytes(n_values * width);
        let noise = case.below(2) * 3;
        let mut codes: Vec<u64> =
            (0..case.n).map(|_| low(case.below(n_values.max(1)) as u64, code_bits)).collect();
        for _ in 0..noise.min(case.n) {
            let i = case.below(case.n);
            codes[i] = low(case.word() >> case.below(64), code_bits);
        }
        let first_bit = case.below(20);
        let bits = case.bytes((first_bit + case.n).div_ceil(8));
        let (buffer, validity) = (case.buffer(&values), case.buffer(&bits));
        let has_validity = case.below(2) == 0;
        Self { width, codes, n_values, values, first_bit, bits, has_validity, buffer, validity }
    }

    fn validity(&self) -> Option<(&Buffer, usize)> {
        self.has_validity.then_some((&self.validity, self.first_bit))
    }

    fn source(&self) -> Source<'_> {
        Source { buffer: Some(&self.buffer), at: 0, len: self.n_values }
    }

    /// The first valid code that is out of range.
    fn wrong(&self) -> Option<u64> {
        let is_valid = |i: usize| self.bits[(self.first_bit + i) / 8] >> ((self.first_bit + i) % 8) & 1 != 0;
        let wrong =
            |i: &usize| self.codes[*i] >= self.n_values as u64 && (!self.has_validity || is_valid(*i));
        (0..self.codes.len()).find(wrong).map(|i| i as u64)
    }

    fn expected(&self) -> Vec<u8> {
        let value = |code: &u64| match self.values.chunks(self.width).nth(*code as usize) {
            Some(value) if *code < self.n_values as u64 => value.to_vec(),
            _ => vec![0; self.width],
        };
        self.codes.iter().flat_map(value).collect()
    }
}

pub fn take(case: &Case<'_>) {
    for (width, code_width) in [1, 2, 4, 8, 16, 32].into_iter().flat_map(|w| WIDTHS.map(|c| (w, c))) {
        let some = SomeCodes::new(case, width, 8 * code_width);
        let ids = case.buffer(&words(&some.codes, code_width));
        let mut to = case.target(case.n * width);
        let mut checks = Checks::new();
        let numbers = Numbers { buffer: &ids, at: 0, len: case.n, width_bytes: code_width };
        let cell =
            checks.take(numbers, some.validity(), some.source(), &mut to.buffer, to.at, width).unwrap();
        let findings = checks.run(case.s).unwrap();
        assert_eq!(findings.first_wrong(cell), some.wrong(), "n {} width {width}", case.n);
        case.expect(to, &some.expected(), "taken");
    }
}

pub fn take_packed(case: &Case<'_>) {
    for (width, code_width) in WIDTHS.into_iter().flat_map(|w| [(w, 1), (w, 2)]) {
        for bits in BITS.into_iter().filter(|bits| *bits <= 8 * code_width) {
            // The inverse of the step was applied to the words before packing.
            let by = case.word() * case.below(2) as u64;
            let steps = if by == 0 { vec![] } else { vec![Step::Xor(by)] };
            let some = SomeCodes::new(case, width, bits);
            let some =
                SomeCodes { codes: some.codes.iter().map(|c| low(c ^ by, 8 * code_width)).collect(), ..some };
            let first = case.below(3) * case.below(1024) / 2;
            let mut packed: Vec<u64> = vec![0; first];
            packed.extend(some.codes.iter().map(|code| low(code ^ by, bits)));
            let packed = case.buffer(&pack(&packed, bits, code_width));
            let mut to = case.target(case.n * width);
            let mut checks = Checks::new();
            let place = Words { at: to.at, len: case.n, width_bytes: width };
            let from = Packed { buffer: &packed, bits: bits as u32, first };
            let cell = checks
                .take_packed(from, code_width, &steps, some.validity(), some.source(), &mut to.buffer, place)
                .unwrap();
            let findings = checks.run(case.s).unwrap();
            assert_eq!(findings.first_wrong(cell), some.wrong(), "n {} width {width}, {bits} bits", case.n);
            case.expect(to, &some.expected(), &format!("taken by {bits} bits of {code_width} bytes"));
        }
    }
}

pub fn expand_runs(case: &Case<'_>) {
    for (width, end_width) in [1, 2, 4, 8, 16, 32].into_iter().flat_map(|w| WIDTHS.map(|e| (w, e))) {
        let first = case.below(100);
        let max = low(u64::MAX, 8 * end_width) as usize;
        let (mut ends, mut at, mean) = (Vec::new(), 0, 1 + case.below(150));
        while at < first + case.n && at < max {
            at = (at + 1 + case.below(mean)).min(max);
            ends.push(at as u64);
        }
        // Run ends of this width may cover fewer positions than the case has.
        let n = case.n.min(at.saturating_sub(first));
        let values = case.bytes(ends.len() * width);
        let (list, value_buffer) = (case.buffer(&words(&ends, end_width)), case.buffer(&values));
        let mut to = case.target(n * width);
        let mut checks = Checks::new();
        let numbers = Numbers { buffer: &list, at: 0, len: ends.len(), width_bytes: end_width };
        let source = Source { buffer: Some(&value_buffer), at: 0, len: ends.len() };
        let cell =
            checks.expand_runs(numbers, first as u64, source, &mut to.buffer, to.at, n, width).unwrap();
        let findings = checks.run(case.s).unwrap();
        // Narrow ends stop at the maximum of their type.
        let short = ends.last().is_none_or(|last| *last < (first + n) as u64) && first + n > 0;
        assert_eq!(findings.first_wrong(cell), short.then_some(ends.len() as u64), "n {n} of {end_width}");
        let mut run = 0;
        let mut expected = Vec::new();
        for place in first..first + n {
            while ends[run] <= place as u64 {
                run += 1;
            }
            expected.extend(&values[run * width..(run + 1) * width]);
        }
        case.expect(to, &expected, &format!("expanded from {end_width} to {width}"));
        // The kernel must stay within its ranges even if the ends are in random order.
        let wild: Vec<u64> = ends.iter().map(|_| low(case.word() >> case.below(64), 8 * end_width)).collect();
        let list = case.buffer(&words(&wild, end_width));
        let numbers = Numbers { buffer: &list, ..numbers };
        let mut to = case.target(n * width);
        let mut checks = Checks::new();
        let cell =
            checks.expand_runs(numbers, first as u64, source, &mut to.buffer, to.at, n, width).unwrap();
        let findings = checks.run(case.s).unwrap();
        let small = |end: u64| end.min(i64::MAX as u64);
        let not_ascending =
            (0..wild.len()).find(|i| small(wild[*i]) <= if *i == 0 { 0 } else { small(wild[i - 1]) });
        let short = wild.last().is_none_or(|last| small(*last) < (first + n) as u64) && first + n > 0;
        assert_eq!(
            findings.first_wrong(cell),
            not_ascending.or(short.then_some(wild.len())).map(|i| i as u64)
        );
    }
}
