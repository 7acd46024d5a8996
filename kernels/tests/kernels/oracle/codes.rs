//! Texts as codes, and the views of what they decode to.

use crossdock_kernels::{
    Checks, Codes, IntType, Integers, Jobs, Marks, Measured, Source, TOKEN_BYTES, Views,
};
use crossdock_memory::Buffer;

use super::Case;

/// Codes in a row, all of them escapes, beyond which nobody looks for where they began; and those of a chunk, of so few.
const LOOK_BACK: usize = 16384;
const CHUNK: usize = 512;

/// Whole numbers of some type that holds all of them.
struct SomeIntegers {
    len: usize,
    width_bytes: usize,
    signed: bool,
    held: Buffer,
}

impl SomeIntegers {
    fn new(case: &Case<'_>, values: &[i64]) -> Self {
        let (least, most) = values.iter().fold((0, 0), |(a, b), v| (a.min(*v), b.max(*v)));
        let fits = |width: usize, signed: bool| match signed {
            true => width == 8 || (least >= -1 << (8 * width - 1) && most < 1 << (8 * width - 1)),
            false => least >= 0 && (width == 8 || most < 1 << (8 * width)),
        };
        let types: Vec<_> = [1, 2, 4, 8].into_iter().flat_map(|w| [(w, true), (w, false)]).collect();
        let types: Vec<_> = types.into_iter().filter(|(width, signed)| fits(*width, *signed)).collect();
        let (width_bytes, signed) = types[case.below(types.len())];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()[..width_bytes].to_vec()).collect();
        Self { len: values.len(), width_bytes, signed, held: case.buffer(&bytes) }
    }

    fn get(&self) -> Integers<'_> {
        let of = IntType { width_bytes: self.width_bytes, signed: self.signed };
        Integers { buffer: &self.held, at: 0, len: self.len, of }
    }
}

fn source(buffer: &Buffer, len: usize) -> Source<'_> {
    Source { buffer: Some(buffer), at: 0, len }
}

/// Codes at random, what they decode to, and where.
struct SomeCodes {
    escapes: bool,
    width: usize,
    tokens: Vec<Vec<u8>>,
    codes: Vec<usize>,
    offsets: Vec<i64>,
    told: Vec<i64>,
    /// Of what belongs to values: all bytes, at which each code begins, and the first code that is wrong.
    bytes: Vec<u8>,
    begins: Vec<Option<u64>>,
    wrong: Option<u64>,
    held: [Buffer; 3],
    at: SomeIntegers,
}

impl SomeCodes {
    /// Of as many values as the case has; `spoil` may change what they are made of.
    fn new(case: &Case<'_>, escapes: bool, spoil: impl Fn(&mut Vec<usize>, &mut Vec<i64>, usize)) -> Self {
        let width = if escapes { 1 } else { 1 + case.below(2) };
        let n_tokens =
            [1, 3, 200, if escapes { 255 } else { 256 << (8 * (width - 1)).min(4) }][case.below(4)];
        let longest = if escapes { 8 } else { TOKEN_BYTES };
        let tokens: Vec<Vec<u8>> = (0..n_tokens).map(|_| case.bytes(1 + case.below(longest))).collect();
        let mut codes = Vec::new();
        let mut offsets = vec![];
        // What comes before the first value is anything.
        codes.extend((0..case.below(3) * case.below(700)).map(|_| case.below(256)));
        let escaped = [0, 0, 2, 10][case.below(4)];
        for i in 0..case.n {
            offsets.push(codes.len() as i64);
            let n = if i % 3000 == 1000 { 3000 } else { case.below(6) };
            // A long row of escapes, here and there.
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
        let told = offsets.windows(2).map(|pair| {
            let length =
                begin(pair[1]).zip(begin(pair[0])).map(|(end, begin)| end.wrapping_sub(begin) as i64);
            length.unwrap_or(3)
        });
        let told = told.collect();
        let packed = codes.iter().flat_map(|code| code.to_le_bytes()[..width].to_vec());
        let slot = if escapes { 8 } else { TOKEN_BYTES };
        // What is behind a token's bytes is anything, where the kernel sees to that.
        let mut table = case.bytes(if escapes { slot * n_tokens } else { 0 });
        table.resize(slot * n_tokens, 0);
        for (slot, token) in table.chunks_mut(slot).zip(&tokens) {
            slot[..token.len()].copy_from_slice(token);
        }
        let lengths: Vec<u8> = tokens.iter().map(|token| token.len() as u8).collect();
        let held = [packed.collect(), table, lengths].map(|bytes: Vec<u8>| case.buffer(&bytes));
        let at = SomeIntegers::new(case, &offsets);
        Self { escapes, width, tokens, codes, offsets, told, bytes, begins, wrong, held, at }
    }

    fn get(&self) -> Codes<'_> {
        let [codes, table, lengths] = &self.held;
        Codes {
            codes: source(codes, self.codes.len()),
            width_bytes: self.width,
            offsets: self.at.get(),
            table: source(table, self.tokens.len()),
            lengths: source(lengths, self.tokens.len()),
            escapes: self.escapes,
        }
    }

    /// Measures them; nothing where that finds something wrong, as it should.
    fn measure(&self, case: &Case<'_>, what: &str) -> Option<Marks<Buffer>> {
        let mut marks = Marks::room(case.s, &self.get()).unwrap();
        let mut checks = Checks::new();
        let Measured { table, code, bytes } = checks.measure_codes(self.get(), &mut marks).unwrap();
        let found = checks.run(case.s).unwrap();
        assert_eq!(
            [found.first_wrong(table), found.first_wrong(code)],
            [None, self.wrong],
            "{what} n {}",
            case.n
        );
        if self.wrong.is_some() {
            return None;
        }
        assert_eq!(found.number(bytes), self.bytes.len() as i64, "{what} n {}", case.n);
        Some(marks.freeze(case.s).unwrap())
    }

    fn begin(&self, offset: i64) -> Option<u64> {
        let at = usize::try_from(offset).ok()?.checked_sub(self.offsets[0] as usize)?;
        *self.begins.get(at)?
    }
}

pub fn measure(case: &Case<'_>) {
    for escapes in [true, false] {
        SomeCodes::new(case, escapes, |_, _, _| ()).measure(case, "right codes");
        let wrong = |codes: &mut Vec<usize>, offsets: &mut Vec<i64>, n: usize| {
            let at = case.below(codes.len());
            let top = if escapes { 255 } else { 256 };
            if !codes.is_empty() && n < top {
                codes[at] = n + case.below(top - n);
            }
            // Values may begin anywhere, or nowhere.
            if case.n > 0 && case.below(2) == 0 {
                offsets[0] = (offsets[0] - 1 + case.below(3) as i64).clamp(0, offsets[case.n]);
            }
        };
        SomeCodes::new(case, escapes, wrong).measure(case, "wrong codes");
    }
    // More escapes than anybody looks back over.
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
    let (held, mut marks) = (case.buffer(&lengths), Marks::room(case.s, &some.get()).unwrap());
    let mut checks = Checks::new();
    let codes = Codes { lengths: source(&held, lengths.len()), ..some.get() };
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
        // Of less room than they need nothing is left.
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
    let held = case.buffer(&dictionary);
    for spoilt in [false, true] {
        if spoilt {
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
        let cell =
            checks.make_tokens(source(&held, dictionary.len()), at.get(), &mut table, &mut lengths).unwrap();
        let found = checks.run(case.s).unwrap().first_wrong(cell);
        assert_eq!(found, (0..n).position(|i| bytes(i).is_none()).map(|i| i as u64), "n {n}");
        let [table, lengths] =
            [table, lengths].map(|made| made.freeze(case.s).unwrap().host_view(case.s).unwrap().to_vec());
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

/// What views are made of.
struct Expected<'a> {
    data: &'a [u8],
    /// Of each value, its range, where that is right.
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

    /// Launches what `make` asks for, and compares.
    fn check<'a>(
        &self,
        case: &Case<'_>,
        part: u32,
        make: impl FnOnce(&mut Checks<'a>, Views<'a, '_>) -> crossdock_kernels::Viewed,
        data: &'a Buffer,
        what: &str,
    ) {
        let n = self.ranges.len();
        let [mut views, mut offsets] =
            [n * 16, (n + 1) * 8].map(|bytes| case.s.memory().alloc(case.s, bytes).unwrap());
        let asked = case.below(2) == 0;
        let mut checks = Checks::new();
        let to = Views {
            data: source(data, self.data.len()),
            part,
            len: n,
            views: &mut views,
            offsets: asked.then_some(&mut offsets),
        };
        let parts = to.parts();
        let cells = make(&mut checks, to);
        let found = checks.run(case.s).unwrap();
        let right: Vec<_> =
            self.ranges.iter().map(|range| range.filter(|(a, b)| b - a <= 1 << part)).collect();
        let wrong = right.iter().position(Option::is_none).map(|i| i as u64);
        assert_eq!(found.first_wrong(cells.wrong), wrong, "{what} n {n}");
        let got = views.freeze(case.s).unwrap();
        let got = got.host_view(case.s).unwrap();
        for (i, range) in right.iter().enumerate() {
            assert_eq!(
                &got[i * 16..(i + 1) * 16],
                self.view(*range, part),
                "{what}: view {i} of {n}: {range:?}"
            );
        }
        let mut over = vec![None; parts];
        for (begin, end) in right.iter().flatten().filter(|(begin, end)| end - begin > 12) {
            if begin >> part != (end - 1) >> part {
                over[(begin >> part) as usize].get_or_insert(*end);
            }
        }
        let got: Vec<_> = (0..parts).map(|number| found.first_wrong(cells.over + number)).collect();
        assert!(got == over, "{what}: ends over parts, n {n}");
        if asked && wrong.is_none() && n > 0 {
            let got = offsets.freeze(case.s).unwrap();
            let ends = right.iter().flatten().map(|(_, end)| *end);
            let ends: Vec<u8> =
                right[0].iter().map(|(a, _)| *a).chain(ends).flat_map(u64::to_le_bytes).collect();
            assert!(got.host_view(case.s).unwrap()[..] == ends[..], "{what}: ends, n {n}");
        }
    }
}

pub fn views_of_codes(case: &Case<'_>) {
    for (escapes, spoilt) in [(true, 0), (false, 0), (true, 1), (false, 1), (true, 2), (false, 2), (true, 3)]
    {
        let mut some = SomeCodes::new(case, escapes, |codes, offsets, _| {
            let at = 1 + case.below(case.n);
            // A value begins where another's escape may be; or the codes end in one.
            if spoilt == 2 && case.n > 1 && at < case.n {
                offsets[at] += [-1, 1, 1, 4000, -(1 << 40)][case.below(5)];
            }
            if spoilt == 3 && escapes && case.n > 0 && offsets[case.n] > offsets[0] {
                codes[offsets[case.n] as usize - 1] = 255;
            }
        });
        if spoilt == 1 && case.n > 0 {
            let at = case.below(case.n);
            some.told[at] += [-1, 1, -1000, 1 << 40][case.below(4)];
        }
        let Some(marks) = some.measure(case, "codes") else { continue };
        let range = |i: usize| {
            let (begin, end) = (some.begin(some.offsets[i])?, some.begin(some.offsets[i + 1])?);
            (end.checked_sub(begin)? as i64 == some.told[i]).then_some((begin, end))
        };
        let expected = Expected { data: &some.bytes, ranges: (0..case.n).map(range).collect() };
        let (data, told) = (case.buffer(&some.bytes), SomeIntegers::new(case, &some.told));
        let told = told.get();
        // Of none there is no number.
        for part in [31, 5, 12] {
            let what = format!("codes of {}, escapes: {escapes}, spoilt {spoilt}, part {part}", some.width);
            expected.check(
                case,
                part,
                |checks, views| checks.views_of_codes(some.get(), &marks, told, views).unwrap(),
                &data,
                &what,
            );
        }
    }
}

pub fn views_of_offsets(case: &Case<'_>) {
    for (spoilt, part) in [(false, 31), (false, 6), (true, 31), (true, 12)] {
        let mut offsets = vec![case.below(30) as i64];
        let longest = [3, 13, 40][case.below(3)];
        (0..case.n).for_each(|i| offsets.push(offsets[i] + case.below(longest) as i64));
        let data = case.bytes(offsets[case.n] as usize + case.below(9));
        if spoilt {
            let at = case.below(case.n + 1);
            offsets[at] += [-50, -1, 1, 1 << 35, 100][case.below(5)];
        }
        let range = |pair: &[i64]| {
            let (begin, end) = (u64::try_from(pair[0]).ok()?, u64::try_from(pair[1]).ok()?);
            (begin <= end && end <= data.len() as u64).then_some((begin, end))
        };
        let expected = Expected { data: &data, ranges: offsets.windows(2).map(range).collect() };
        let (held, at) = (case.buffer(&data), SomeIntegers::new(case, &offsets));
        let at = at.get();
        let what = format!("offsets, spoilt: {spoilt}, part {part}");
        expected.check(case, part, |checks, views| checks.views_of_offsets(at, views).unwrap(), &held, &what);
    }
}
