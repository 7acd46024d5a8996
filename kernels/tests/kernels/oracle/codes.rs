//! References for kernels on strings stored as codes, and on views.

use crossdock_kernels::{
    Checks, CodeCells, Codes, IntType, Integers, Jobs, Marks, Source, TOKEN_BYTES, Views,
};
use crossdock_memory::Buffer;

use super::Case;

/// The limits of the kernel: the minimum number of consecutive escapes before a chunk for which the
/// kernel reports an error, and the number of codes in a chunk of minimum size.
const LOOK_BACK: usize = 16384;
const CHUNK: usize = 512;

/// Integers, stored in a random type that can represent all of them.
struct SomeIntegers {
    len: usize,
    width_bytes: usize,
    signed: bool,
    buffer: Buffer,
}

impl SomeIntegers {
    fn new(case: &Case<'_>, values: &[i64]) -> Self {
        let (min, max) = values.iter().fold((0, 0), |(a, b), v| (a.min(*v), b.max(*v)));
        let fits = |width: usize, signed: bool| match signed {
            true => width == 8 || (min >= -1 << (8 * width - 1) && max < 1 << (8 * width - 1)),
            false => min >= 0 && (width == 8 || max < 1 << (8 * width)),
        };
        let types: Vec<_> = [1, 2, 4, 8].into_iter().flat_map(|w| [(w, true), (w, false)]).collect();
        let types: Vec<_> = types.into_iter().filter(|(width, signed)| fits(*width, *signed)).collect();
        let (width_bytes, signed) = types[case.below(types.len())];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()[..width_bytes].to_vec()).collect();
        Self { len: values.len(), width_bytes, signed, buffer: case.buffer(&bytes) }
    }

    fn get(&self) -> Integers<'_> {
        let of = IntType { width_bytes: self.width_bytes, signed: self.signed };
        Integers { buffer: &self.buffer, at: 0, len: self.len, of }
    }
}

fn source(buffer: &Buffer, len: usize) -> Source<'_> {
    Source { buffer: Some(buffer), at: 0, len }
}

/// Random codes with their decoded bytes and positions.
struct SomeCodes {
    escapes: bool,
    width: usize,
    tokens: Vec<Vec<u8>>,
    codes: Vec<usize>,
    offsets: Vec<i64>,
    lengths: Vec<i64>,
    /// For the codes that belong to values: the decoded bytes, the position of each code's first
    /// byte in the decoded bytes, and the first wrong code.
    bytes: Vec<u8>,
    begins: Vec<Option<u64>>,
    wrong: Option<u64>,
    buffers: [Buffer; 3],
    at: SomeIntegers,
}

impl SomeCodes {
    /// Creates the codes of as many values as the case has. `spoil` may change the codes and
    /// offsets.
    fn new(case: &Case<'_>, escapes: bool, spoil: impl Fn(&mut Vec<usize>, &mut Vec<i64>, usize)) -> Self {
        let width = if escapes { 1 } else { 1 + case.below(2) };
        let n_tokens =
            [1, 3, 200, if escapes { 255 } else { 256 << (8 * (width - 1)).min(4) }][case.below(4)];
        let longest = if escapes { 8 } else { TOKEN_BYTES };
        let tokens: Vec<Vec<u8>> = (0..n_tokens).map(|_| case.bytes(1 + case.below(longest))).collect();
        let mut codes = Vec::new();
        let mut offsets = vec![];
        // Codes before the first value may be anything.
        codes.extend((0..case.below(3) * case.below(700)).map(|_| case.below(256)));
        let escaped = [0, 0, 2, 10][case.below(4)];
        for i in 0..case.n {
            offsets.push(codes.len() as i64);
            let n = if i % 3000 == 1000 { 3000 } else { case.below(6) };
            // Some values have a long sequence of escapes.
            let row = i % 3000 == 2000;
            for _ in 0..n {
                if escapes && (row || case.below(20) < escaped) {
                    codes.extend([255, if row || case.below(2) == 0 { 255 } else { case.below(256) }]);
                } else {
                    codes.push(case.below(n_tokens));
                }
            }
        }
        offsets.push(codes.len() as i64);
        codes.extend((0..case.below(3) * case.below(40)).map(|_| case.below(256)));
        spoil(&mut codes, &mut offsets, n_tokens);
        let (first, last) = (offsets[0] as usize, offsets[case.n] as usize);
        let (mut bytes, mut begins, mut wrong, mut escape) = (Vec::new(), Vec::new(), None, false);
        for (i, code) in codes.iter().enumerate().take(last).skip(first) {
            let run = i.checked_sub(LOOK_BACK).filter(|from| *from >= first && escapes && i % CHUNK == 0);
            if run.is_some_and(|from| codes[from..i].iter().all(|code| *code == 255)) {
                wrong = wrong.or(Some(i as u64));
            }
            begins.push((!escape).then_some(bytes.len() as u64));
            if escape {
                bytes.push(*code as u8);
                escape = false;
            } else if escapes && *code == 255 {
                escape = true;
            } else if let Some(token) = tokens.get(*code) {
                bytes.extend(token);
            } else {
                wrong = wrong.or(Some(i as u64));
            }
        }
        begins.push((!escape).then_some(bytes.len() as u64));
        let begin = |offset: i64| begins.get((offset as usize).checked_sub(first)?).copied()?;
        let lengths = offsets.windows(2).map(|pair| {
            let length =
                begin(pair[1]).zip(begin(pair[0])).map(|(end, begin)| end.wrapping_sub(begin) as i64);
            length.unwrap_or(3)
        });
        let lengths = lengths.collect();
        let packed = codes.iter().flat_map(|code| code.to_le_bytes()[..width].to_vec());
        let slot = if escapes { 8 } else { TOKEN_BYTES };
        // If the kernel ignores the bytes after a token, they have random values.
        let mut table = case.bytes(if escapes { slot * n_tokens } else { 0 });
        table.resize(slot * n_tokens, 0);
        for (slot, token) in table.chunks_mut(slot).zip(&tokens) {
            slot[..token.len()].copy_from_slice(token);
        }
        let token_lengths: Vec<u8> = tokens.iter().map(|token| token.len() as u8).collect();
        let buffers = [packed.collect(), table, token_lengths].map(|bytes: Vec<u8>| case.buffer(&bytes));
        let at = SomeIntegers::new(case, &offsets);
        Self { escapes, width, tokens, codes, offsets, lengths, bytes, begins, wrong, buffers, at }
    }

    fn get(&self) -> Codes<'_> {
        let [codes, table, lengths] = &self.buffers;
        Codes {
            codes: source(codes, self.codes.len()),
            width_bytes: self.width,
            offsets: self.at.get(),
            table: source(table, self.tokens.len()),
            lengths: source(lengths, self.tokens.len()),
            escapes: self.escapes,
        }
    }

    /// Measures the codes and checks the findings. Returns `None` if there is a wrong code.
    fn measure(&self, case: &Case<'_>, what: &str) -> Option<Marks<Buffer>> {
        let mut marks = Marks::alloc(case.s, &self.get()).unwrap();
        let mut checks = Checks::new();
        let CodeCells { table, code, bytes } = checks.measure_codes(self.get(), &mut marks).unwrap();
        let findings = checks.run(case.s).unwrap();
        assert_eq!(
            [findings.first_wrong(table), findings.first_wrong(code)],
            [None, self.wrong],
            "{what} n {}",
            case.n
        );
        if self.wrong.is_some() {
            return None;
        }
        assert_eq!(findings.number(bytes), self.bytes.len() as i64, "{what} n {}", case.n);
        Some(marks.freeze(case.s).unwrap())
    }

    fn begin(&self, offset: i64) -> Option<u64> {
        let at = usize::try_from(offset).ok()?.checked_sub(self.offsets[0] as usize)?;
        *self.begins.get(at)?
    }
}

pub fn measure(case: &Case<'_>) {
    for escapes in [true, false] {
        SomeCodes::new(case, escapes, |_, _, _| ()).measure(case, "ranges codes");
        let wrong = |codes: &mut Vec<usize>, offsets: &mut Vec<i64>, n: usize| {
            let at = case.below(codes.len());
            let top = if escapes { 255 } else { 256 };
            if !codes.is_empty() && n < top {
                codes[at] = n + case.below(top - n);
            }
            // Some values begin within a code or out of range.
            if case.n > 0 && case.below(2) == 0 {
                offsets[0] = (offsets[0] - 1 + case.below(3) as i64).clamp(0, offsets[case.n]);
            }
        };
        SomeCodes::new(case, escapes, wrong).measure(case, "wrong codes");
    }
    // There are more consecutive escapes than the kernel searches backwards.
    let row = |codes: &mut Vec<usize>, offsets: &mut Vec<i64>, _: usize| {
        codes.extend(std::iter::repeat_n(255, LOOK_BACK + 2 * case.below(CHUNK)));
        let last = offsets.len() - 1;
        offsets[last] = codes.len() as i64;
    };
    SomeCodes::new(case, true, row).measure(case, "many escapes");
    let some = SomeCodes::new(case, true, |_, _, _| ());
    let mut lengths: Vec<u8> = some.tokens.iter().map(|token| token.len() as u8).collect();
    let at = case.below(lengths.len());
    lengths[at] = [0, 9, 255][case.below(3)];
    let (length_buffer, mut marks) = (case.buffer(&lengths), Marks::alloc(case.s, &some.get()).unwrap());
    let mut checks = Checks::new();
    let codes = Codes { lengths: source(&length_buffer, lengths.len()), ..some.get() };
    let cells = checks.measure_codes(codes, &mut marks).unwrap();
    assert_eq!(checks.run(case.s).unwrap().first_wrong(cells.table), Some(at as u64));
}

pub fn decode(case: &Case<'_>) {
    for escapes in [true, false, true, false] {
        let some = SomeCodes::new(case, escapes, |_, _, _| ());
        let Some(marks) = some.measure(case, "codes") else { continue };
        let mut to = case.target(some.bytes.len());
        let mut jobs = Jobs::new();
        jobs.decode_codes(some.get(), &marks, &mut to.buffer, to.at, some.bytes.len()).unwrap();
        jobs.launch(case.s).unwrap();
        case.expect(to, &some.bytes, &format!("codes of {}, escapes: {escapes}", some.width));
        // The target is shorter than the output. The kernel writes nothing beyond the target.
        let mut to = case.target(some.bytes.len() / 2);
        let mut jobs = Jobs::new();
        jobs.decode_codes(some.get(), &marks, &mut to.buffer, to.at, some.bytes.len() / 2).unwrap();
        jobs.launch(case.s).unwrap();
    }
}

pub fn tokens(case: &Case<'_>) {
    let n = case.n.min(65536);
    let mut offsets = vec![case.below(5) as i64];
    (0..n).for_each(|i| offsets.push(offsets[i] + 1 + case.below(TOKEN_BYTES) as i64));
    let dictionary = case.bytes(offsets[n] as usize + 3);
    let buffer = case.buffer(&dictionary);
    for spoiled in [false, true] {
        if spoiled {
            let at = case.below(n + 1);
            offsets[at] += [-20, -1, 1, 17, 1 << 40][case.below(5)];
        }
        let bytes = |i: usize| {
            let range = usize::try_from(offsets[i]).ok()?..usize::try_from(offsets[i + 1]).ok()?;
            dictionary.get(range).filter(|bytes| (1..=TOKEN_BYTES).contains(&bytes.len()))
        };
        let at = SomeIntegers::new(case, &offsets);
        let [mut table, mut lengths] =
            [n * TOKEN_BYTES, n].map(|bytes| case.s.memory().alloc(case.s, bytes).unwrap());
        let mut checks = Checks::new();
        let cell = checks
            .make_tokens(source(&buffer, dictionary.len()), at.get(), &mut table, &mut lengths)
            .unwrap();
        let wrong = checks.run(case.s).unwrap().first_wrong(cell);
        assert_eq!(wrong, (0..n).position(|i| bytes(i).is_none()).map(|i| i as u64), "n {n}");
        let [table, lengths] =
            [table, lengths].map(|buffer| buffer.freeze(case.s).unwrap().host_view(case.s).unwrap().to_vec());
        for i in 0..n {
            let token = bytes(i).unwrap_or_default();
            let slot = &table[i * TOKEN_BYTES..(i + 1) * TOKEN_BYTES];
            assert_eq!(
                (&slot[..token.len()], usize::from(lengths[i])),
                (token, token.len()),
                "token {i} of {n}"
            );
            assert!(slot[token.len()..].iter().all(|byte| *byte == 0), "behind token {i} of {n}");
        }
    }
}

/// The expected values of views.
struct Expected<'a> {
    data: &'a [u8],
    /// The range of each value; `None` if it is wrong.
    ranges: Vec<Option<(u64, u64)>>,
}

impl Expected<'_> {
    fn view(&self, range: Option<(u64, u64)>, part: u32) -> [u8; 16] {
        let Some((begin, end)) = range else { return [0; 16] };
        let value = &self.data[begin as usize..end as usize];
        let mut view = [0; 16];
        view[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
        if value.len() <= 12 {
            view[4..4 + value.len()].copy_from_slice(value);
        } else {
            view[4..8].copy_from_slice(&value[..4]);
            view[8..12].copy_from_slice(&((begin >> part) as u32).to_le_bytes());
            view[12..].copy_from_slice(&((begin & ((1 << part) - 1)) as u32).to_le_bytes());
        }
        view
    }

    /// Launches the job that `make` adds, and compares the results.
    fn check<'a>(
        &self,
        case: &Case<'_>,
        part: u32,
        make: impl FnOnce(&mut Checks<'a>, Views<'a, '_>) -> crossdock_kernels::ViewCells,
        data: &'a Buffer,
        what: &str,
    ) {
        let n = self.ranges.len();
        let [mut views, mut offsets] =
            [n * 16, (n + 1) * 8].map(|bytes| case.s.memory().alloc(case.s, bytes).unwrap());
        let with_offsets = case.below(2) == 0;
        let mut checks = Checks::new();
        let to = Views {
            data: source(data, self.data.len()),
            part_shift: part,
            len: n,
            views: &mut views,
            offsets: with_offsets.then_some(&mut offsets),
        };
        let parts = to.parts();
        let cells = make(&mut checks, to);
        let findings = checks.run(case.s).unwrap();
        let ranges: Vec<_> =
            self.ranges.iter().map(|range| range.filter(|(a, b)| b - a <= 1 << part)).collect();
        let wrong = ranges.iter().position(Option::is_none).map(|i| i as u64);
        assert_eq!(findings.first_wrong(cells.wrong), wrong, "{what} n {n}");
        let actual = views.freeze(case.s).unwrap();
        let actual = actual.host_view(case.s).unwrap();
        for (i, range) in ranges.iter().enumerate() {
            assert_eq!(
                &actual[i * 16..(i + 1) * 16],
                self.view(*range, part),
                "{what}: view {i} of {n}: {range:?}"
            );
        }
        let mut over = vec![None; parts];
        for (begin, end) in ranges.iter().flatten().filter(|(begin, end)| end - begin > 12) {
            if begin >> part != (end - 1) >> part {
                over[(begin >> part) as usize].get_or_insert(*end);
            }
        }
        let actual: Vec<_> = (0..parts).map(|number| findings.first_wrong(cells.over + number)).collect();
        assert!(actual == over, "{what}: ends over parts, n {n}");
        if with_offsets && wrong.is_none() && n > 0 {
            let actual = offsets.freeze(case.s).unwrap();
            let ends = ranges.iter().flatten().map(|(_, end)| *end);
            let ends: Vec<u8> =
                ranges[0].iter().map(|(a, _)| *a).chain(ends).flat_map(u64::to_le_bytes).collect();
            assert!(actual.host_view(case.s).unwrap()[..] == ends[..], "{what}: ends, n {n}");
        }
    }
}

pub fn views_of_codes(case: &Case<'_>) {
    for (escapes, spoiled) in [(true, 0), (false, 0), (true, 1), (false, 1), (true, 2), (false, 2), (true, 3)]
    {
        let mut some = SomeCodes::new(case, escapes, |codes, offsets, _| {
            let at = 1 + case.below(case.n);
            // If `spoiled` is 2, one offset is wrong: it may refer to a literal byte, or be out of
            // range. If `spoiled` is 3, the codes end with an escape.
            if spoiled == 2 && case.n > 1 && at < case.n {
                offsets[at] += [-1, 1, 1, 4000, -(1 << 40)][case.below(5)];
            }
            if spoiled == 3 && escapes && case.n > 0 && offsets[case.n] > offsets[0] {
                codes[offsets[case.n] as usize - 1] = 255;
            }
        });
        if spoiled == 1 && case.n > 0 {
            let at = case.below(case.n);
            some.lengths[at] += [-1, 1, -1000, 1 << 40][case.below(4)];
        }
        let Some(marks) = some.measure(case, "codes") else { continue };
        let range = |i: usize| {
            let (begin, end) = (some.begin(some.offsets[i])?, some.begin(some.offsets[i + 1])?);
            (end.checked_sub(begin)? as i64 == some.lengths[i]).then_some((begin, end))
        };
        let expected = Expected { data: &some.bytes, ranges: (0..case.n).map(range).collect() };
        let (data, lengths) = (case.buffer(&some.bytes), SomeIntegers::new(case, &some.lengths));
        let lengths = lengths.get();
        for part in [31, 5, 12] {
            let what = format!("codes of {}, escapes: {escapes}, spoiled {spoiled}, part {part}", some.width);
            expected.check(
                case,
                part,
                |checks, views| checks.views_of_codes(some.get(), &marks, lengths, views).unwrap(),
                &data,
                &what,
            );
        }
    }
}

pub fn views_of_offsets(case: &Case<'_>) {
    for (spoiled, part) in [(false, 31), (false, 6), (true, 31), (true, 12)] {
        let mut offsets = vec![case.below(30) as i64];
        let longest = [3, 13, 40][case.below(3)];
        (0..case.n).for_each(|i| offsets.push(offsets[i] + case.below(longest) as i64));
        let data = case.bytes(offsets[case.n] as usize + case.below(9));
        if spoiled {
            let at = case.below(case.n + 1);
            offsets[at] += [-50, -1, 1, 1 << 35, 100][case.below(5)];
        }
        let range = |pair: &[i64]| {
            let (begin, end) = (u64::try_from(pair[0]).ok()?, u64::try_from(pair[1]).ok()?);
            (begin <= end && end <= data.len() as u64).then_some((begin, end))
        };
        let expected = Expected { data: &data, ranges: offsets.windows(2).map(range).collect() };
        let (buffer, at) = (case.buffer(&data), SomeIntegers::new(case, &offsets));
        let at = at.get();
        let what = format!("offsets, spoiled: {spoiled}, part {part}");
        expected.check(
            case,
            part,
            |checks, views| checks.views_of_offsets(at, views).unwrap(),
            &buffer,
            &what,
        );
    }
}
