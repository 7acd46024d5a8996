//! The reference of LZ4 frames. The test makes sequences and their content together.

use crossdock_kernels::{Checks, Lz4Buffers, Lz4Content};

use super::{Case, Target};

/// A buffer as it is stored, and its content.
struct Stored {
    bytes: Vec<u8>,
    content: Vec<u8>,
    kind: Lz4Content,
}

fn write_length(to: &mut Vec<u8>, n: usize) {
    if let Some(rest) = n.checked_sub(15) {
        to.extend(std::iter::repeat_n(255, rest / 255));
        to.push((rest % 255) as u8);
    }
}

/// A number that is usually small.
fn skewed(case: &Case<'_>, max: usize) -> usize {
    let limit = [4, 16, 40, 300, 3000][case.below(5)];
    case.below(limit.min(max) + 1)
}

/// Appends a block with `n` bytes of content. Matches refer to bytes of `content` from `floor` on.
fn block(case: &Case<'_>, to: &mut Vec<u8>, content: &mut Vec<u8>, n: usize, floor: usize) {
    let end = content.len() + n;
    loop {
        let n_literals = skewed(case, end - content.len());
        let literals = case.bytes(n_literals);
        let known = content.len() + literals.len() - floor;
        let rest = end - content.len() - literals.len();
        if known == 0 || rest < 4 || case.below(400) == 0 {
            // The last sequence has only literals.
            let literals = case.bytes(end - content.len());
            to.push((literals.len().min(15) << 4) as u8);
            write_length(to, literals.len());
            to.extend(&literals);
            content.extend(literals);
            return;
        }
        let length = 4 + skewed(case, rest - 4);
        let offset = 1 + skewed(case, known.min(65535) - 1);
        let offset = if case.below(8) == 0 { 1 + case.below(known.min(65535)) } else { offset };
        to.push((literals.len().min(15) << 4 | (length - 4).min(15)) as u8);
        write_length(to, literals.len());
        to.extend(&literals);
        to.extend((offset as u16).to_le_bytes());
        write_length(to, length - 4);
        content.extend(literals);
        for _ in 0..length {
            content.push(content[content.len() - offset]);
        }
    }
}

fn buffer(case: &Case<'_>, n: usize) -> Stored {
    if case.below(6) == 0 {
        let content = case.bytes(n);
        return Stored { bytes: content.clone(), content, kind: Lz4Content::Plain };
    }
    frame(case, n, [100, 3000, 65536][case.below(3)], case.below(2) == 0)
}

fn frame(case: &Case<'_>, n: usize, block_bytes: usize, are_linked: bool) -> Stored {
    let (mut bytes, mut content) = (Vec::new(), Vec::new());
    while content.len() < n {
        let n = (n - content.len()).min(block_bytes);
        let header = bytes.len();
        bytes.extend([0; 4]);
        let mut flag = 0;
        if case.below(5) == 0 {
            let plain = case.bytes(n);
            flag = 1 << 31;
            bytes.extend(&plain);
            content.extend(plain);
        } else {
            let floor = if are_linked { 0 } else { content.len() };
            block(case, &mut bytes, &mut content, n, floor);
        }
        let stored = (bytes.len() - header - 4) as u32 | flag;
        bytes[header..header + 4].copy_from_slice(&stored.to_le_bytes());
    }
    bytes.extend(vec![0; 4 + case.below(3) * 5]);
    Stored { bytes, content, kind: Lz4Content::Blocks { block_bytes, are_linked } }
}

/// What a job decompresses: stored bytes, their list, and the size of the output.
type Job<'a> = (&'a [u8], &'a Lz4Buffers, usize);

/// Runs a job. Returns the first wrong buffer too.
fn run(case: &Case<'_>, from: &[u8], list: &Lz4Buffers, bytes: usize) -> (Target, Option<u64>) {
    run_all(case, &[(from, list, bytes)]).remove(0)
}

/// Runs jobs at the same time.
fn run_all(case: &Case<'_>, jobs: &[Job<'_>]) -> Vec<(Target, Option<u64>)> {
    let sources = jobs.iter().map(|(from, list, _)| (case.buffer(from), case.buffer(list.words())));
    let sources: Vec<_> = sources.collect();
    let bytes = jobs.iter().map(|(_, list, bytes)| list.scratch_bytes(*bytes)).sum();
    let mut scratch = case.s.memory().alloc(case.s, bytes).unwrap();
    case.s.fill(&mut scratch, 0, bytes, 0).unwrap();
    let (mut checks, mut scratch_at, mut targets) = (Checks::new(), 0, Vec::new());
    for ((_, list, bytes), (from, words)) in jobs.iter().zip(&sources) {
        let mut to = case.target(*bytes);
        let range = to.at..to.at + to.bytes;
        let scratch_end = scratch_at + list.scratch_bytes(*bytes);
        let scratch_range = (&mut scratch, scratch_at..scratch_end);
        let cell = checks.decompress_lz4(from, list, words, (&mut to.buffer, range), scratch_range).unwrap();
        scratch_at = scratch_end;
        targets.push((to, cell));
    }
    let findings = checks.run(case.s).unwrap();
    targets.into_iter().map(|(to, cell)| (to, findings.first_wrong(cell))).collect()
}

/// Frames with linked blocks in several groups, which are longer than the distance of a match.
pub fn resolve(case: &Case<'_>) {
    if case.n < 10_000 {
        return;
    }
    let n = 200_000 + case.below(50_000);
    let frames = [n, 30_000].map(|n| {
        let stored = frame(case, n, 7000, true);
        let mut list = Lz4Buffers::new();
        list.push(0..stored.bytes.len(), 0..n, stored.kind);
        (stored, list)
    });
    let jobs = frames.each_ref().map(|(stored, list)| (&*stored.bytes, list, stored.content.len()));
    for ((to, wrong), (stored, _)) in run_all(case, &jobs).into_iter().zip(&frames) {
        assert_eq!(wrong, None);
        case.expect(to, &stored.content, "resolved");
    }
}

pub fn decompress(case: &Case<'_>) {
    let buffers: Vec<Stored> = (0..3)
        .map(|i| buffer(case, if i == 1 { case.n } else { 1 + case.below(case.n.min(5000) + 1) }))
        .filter(|stored| !stored.content.is_empty())
        .collect();
    let (mut all, mut expected, mut ranges) = (case.bytes(5), vec![0x77; 3], Vec::new());
    for stored in &buffers {
        let (from, to) = (all.len(), expected.len());
        all.extend(&stored.bytes);
        expected.extend(&stored.content);
        ranges.push((from..all.len(), to..expected.len()));
        let gap = case.below(9);
        all.extend(case.bytes(gap));
        expected.extend(vec![0x77; gap]);
    }
    // A list in which the bytes of one buffer end too early.
    let list = |wrong: Option<usize>| {
        let mut list = Lz4Buffers::new();
        for (i, (stored, (from, to))) in buffers.iter().zip(&ranges).enumerate() {
            let end = if wrong == Some(i) { from.end - 13.min(from.len()) } else { from.end };
            list.push(from.start..end, to.clone(), stored.kind);
        }
        list
    };
    let run = |from: &[u8], list: &Lz4Buffers| run(case, from, list, expected.len());
    let right = list(None);
    assert_eq!(right.bytes(), buffers.iter().map(|stored| stored.content.len()).sum::<usize>());
    let (to, wrong) = run(&all, &right);
    assert_eq!(wrong, None, "n {}", case.n);
    case.expect(to, &expected, "decompressed");
    let i = case.below(buffers.len());
    let (_, wrong) = run(&all, &list(Some(i)));
    assert_eq!(wrong, Some(i as u64), "n {}: {:?}", case.n, buffers[i].kind);
    // All blocks but the last must have the size that the list states.
    let mut smaller = Lz4Buffers::new();
    for (stored, (from, to)) in buffers.iter().zip(&ranges) {
        let Lz4Content::Blocks { block_bytes, are_linked } = stored.kind else { continue };
        if to.len() > block_bytes {
            let kind = Lz4Content::Blocks { block_bytes: block_bytes + 1, are_linked };
            smaller.push(from.clone(), to.clone(), kind);
        }
    }
    if !smaller.words().is_empty() {
        assert_eq!(run(&all, &smaller).1, Some(0), "n {}", case.n);
    }
    // The kernel stays within its ranges, whatever they contain. `case.target` has a margin.
    let mut damaged = all.clone();
    for _ in 0..1 + case.below(20) {
        let at = case.below(damaged.len());
        damaged[at] = case.word() as u8;
    }
    for bytes in [case.bytes(all.len()), damaged] {
        let (to, _) = run(&bytes, &right);
        let written = to.buffer.freeze(case.s).unwrap().host_view(case.s).unwrap().to_vec();
        assert!(written[..to.at].iter().chain(&written[to.at + to.bytes..]).all(|byte| *byte == 0x77));
    }
    let mut wild = Lz4Buffers::new();
    for _ in 0..3 {
        let range = || {
            let begin = case.below(all.len() * 2);
            begin..begin + 1 + case.below(all.len())
        };
        let block = Lz4Content::Blocks { block_bytes: 1 + case.below(5000), are_linked: case.below(2) == 0 };
        wild.push(range(), range(), block);
    }
    run(&all, &wild);
}
