//! Tests each kernel of the table against a simple reference: with many sizes, at any address and
//! any bit, and with contents that are in order, nearly in order, or random. Runs on every device,
//! and without a CUDA device on the emulated CUDA sources.

mod bits;
mod codes;
mod columns;
mod compare;
mod decode;
mod hybrid;
mod lists;
mod lz4;
mod moved_lists;
mod numbers;
mod parts;
mod tensors;
mod values;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common;
use crossdock_kernel_library::{Threads, with_threads};
use crossdock_kernels::table::TABLE;
use crossdock_memory::{Buffer, BufferMut, Device, Stream};
use crossdock_test_support::{Random, TestHost};

/// Launches a kernel on values of the case's size, and fails if the results differ from the
/// reference.
type Oracle = fn(&Case<'_>);

/// The reference of each kernel.
const ORACLES: &[(&str, Oracle)] = &[
    ("crossdock_unpack_bits", bits::unpack),
    ("crossdock_pack_bytes", bits::pack),
    ("crossdock_shift_bits", bits::shift),
    ("crossdock_merge_bits", bits::merge),
    ("crossdock_null_count", bits::null_count),
    ("crossdock_compare_bytes", compare::bytes),
    ("crossdock_compare_numbers", compare::numbers),
    ("crossdock_compare_views", compare::views),
    ("crossdock_count_bits", compare::select),
    ("crossdock_place_bits", compare::select),
    ("crossdock_concatenate_bits", bits::concatenate),
    ("crossdock_copy_ranges", bits::copy_ranges),
    ("crossdock_check_offsets", lists::offsets),
    ("crossdock_rebase_offsets", lists::rebase),
    ("crossdock_convert_offsets", lists::convert),
    ("crossdock_check_list_views", lists::list_views),
    ("crossdock_measure_lists", moved_lists::place),
    ("crossdock_place_lists", moved_lists::place),
    ("crossdock_name_elements", moved_lists::name),
    ("crossdock_gather_bytes", moved_lists::gather_bytes),
    ("crossdock_check_run_ends", lists::run_ends),
    ("crossdock_check_union", lists::union),
    ("crossdock_check_indices", lists::indices),
    ("crossdock_check_utf8", values::utf8),
    ("crossdock_check_views", values::views),
    ("crossdock_renumber_views", values::renumber_views),
    ("crossdock_cast", numbers::cast),
    ("crossdock_widen", parts::widen),
    ("crossdock_narrow", parts::narrow),
    ("crossdock_sum", parts::sum),
    ("crossdock_join", parts::join),
    ("crossdock_read_numbers", numbers::read),
    ("crossdock_check_number", numbers::check),
    ("crossdock_gather", tensors::gather),
    ("crossdock_unpack", decode::unpack),
    ("crossdock_unpack_patched_1", decode::unpack_patched::<1>),
    ("crossdock_unpack_patched_2", decode::unpack_patched::<2>),
    ("crossdock_unpack_patched_4", decode::unpack_patched::<4>),
    ("crossdock_unpack_patched_8", decode::unpack_patched::<8>),
    ("crossdock_take_packed", decode::take_packed),
    ("crossdock_sum_lanes", parts::sum_lanes),
    ("crossdock_take_blocks", parts::take_blocks),
    ("crossdock_map", decode::map),
    ("crossdock_sequence", decode::sequence),
    ("crossdock_patch", decode::patch),
    ("crossdock_measure_codes", codes::measure),
    ("crossdock_add_sizes", codes::measure),
    ("crossdock_decode_codes", codes::decode),
    ("crossdock_make_tokens", codes::tokens),
    ("crossdock_views_of_codes", codes::views_of_codes),
    ("crossdock_views_of_offsets", codes::views_of_offsets),
    ("crossdock_take", decode::take),
    ("crossdock_decode_hybrid", hybrid::decode),
    ("crossdock_decompress_lz4", lz4::decompress),
    ("crossdock_resolve_lz4", lz4::resolve),
    ("crossdock_expand_runs", decode::expand_runs),
    ("crossdock_fill_nulls", columns::fill_nulls),
    ("crossdock_check_equal", columns::check_equal),
    ("crossdock_rescale", columns::rescale),
    ("crossdock_decimal_to_float", columns::decimal_to_float),
    ("crossdock_find_equal", columns::unique),
    ("crossdock_mark_first", columns::unique),
    ("crossdock_number_slots", columns::unique),
];

const SIZES: [usize; 12] = [0, 1, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 100_003];

/// One size on one device, with random numbers.
pub struct Case<'a> {
    pub s: &'a Stream,
    pub n: usize,
    random: RefCell<Random>,
}

impl<'a> Case<'a> {
    /// The same case with other random numbers.
    pub fn again(&self) -> Case<'a> {
        Case { s: self.s, n: self.n, random: RefCell::new(Random::new(self.word())) }
    }

    /// A random number below `n`.
    pub fn below(&self, n: usize) -> usize {
        self.random.borrow_mut().below(n)
    }

    pub fn word(&self) -> u64 {
        self.random.borrow_mut().word()
    }

    pub fn bytes(&self, n: usize) -> Vec<u8> {
        self.random.borrow_mut().bytes(n)
    }

    /// Copies bytes to the device, at any address.
    pub fn buffer(&self, bytes: &[u8]) -> Buffer {
        // In half of the cases, the address is aligned, because kernels then use faster code.
        let skew = if self.below(2) == 0 { 0 } else { self.below(17) };
        let fill = |to: &mut [u8]| {
            to[skew..skew + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let whole = self.s.memory().alloc_with(self.s, bytes.len() + skew, fill).unwrap();
        whole.freeze(self.s).unwrap().slice(skew, bytes.len()).unwrap()
    }

    /// Allocates a target for `bytes` bytes at any address, with a margin around it.
    pub fn target(&self, bytes: usize) -> Target {
        let at = if self.below(2) == 0 { 16 * self.below(3) } else { self.below(33) };
        let mut buffer = self.s.memory().alloc(self.s, at + bytes + 40).unwrap();
        self.s.fill(&mut buffer, 0, at + bytes + 40, 0x77).unwrap();
        Target { buffer, at, bytes }
    }

    /// Fails unless a target has exactly the expected bytes, and its margin is unchanged.
    pub fn expect(&self, target: Target, expected: &[u8], what: &str) {
        let buffer = target.buffer.freeze(self.s).unwrap();
        let view = buffer.host_view(self.s).unwrap();
        let (before, rest) = view.split_at(target.at);
        let (actual, after) = rest.split_at(target.bytes);
        if let Some(i) = (0..actual.len().max(expected.len())).find(|i| actual.get(*i) != expected.get(*i)) {
            panic!("{what}: n {}: byte {i} is {:?}, expected {:?}", self.n, actual.get(i), expected.get(i));
        }
        assert!(
            before.iter().chain(after).all(|byte| *byte == 0x77),
            "{what}: n {}: the margin changed",
            self.n
        );
    }
}

pub struct Target {
    pub buffer: BufferMut,
    pub at: usize,
    pub bytes: usize,
}

#[test]
fn every_kernel_matches_its_reference_at_every_size() {
    common::on_each_device(|s, emulated| {
        for row in TABLE {
            let name = row.name.to_str().unwrap();
            let oracle = ORACLES.iter().find(|(oracle, _)| *oracle == name);
            let (_, oracle) = oracle.unwrap_or_else(|| panic!("{name} has no oracle"));
            for n in SIZES {
                let n = if emulated { n.min(10_007) } else { n };
                oracle(&Case { s, n, random: RefCell::new(Random::new(n as u64)) });
            }
        }
        assert_eq!(ORACLES.len(), TABLE.len(), "an oracle has no kernel");
    });
}

/// The kernels whose CPU implementations use several threads.
const PARALLEL: [Oracle; 8] = [
    compare::bytes,
    compare::numbers,
    compare::select,
    moved_lists::place,
    moved_lists::gather_bytes,
    decode::take,
    columns::fill_nulls,
    columns::rescale,
];

/// Three threads, which process the smallest parts.
#[derive(Default)]
struct SmallParts {
    n_runs: AtomicUsize,
}

impl Threads for SmallParts {
    fn run(&self, n: usize, f: &(dyn Fn() + Sync)) -> bool {
        self.n_runs.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            (1..n.min(3)).for_each(|_| drop(scope.spawn(f)));
            f();
        });
        true
    }

    fn part_rows(&self) -> usize {
        64
    }
}

#[test]
fn kernels_match_their_references_on_several_threads() {
    let host = TestHost::new();
    let s = &host.stream(Device::CPU);
    for (i, oracle) in PARALLEL.iter().enumerate() {
        let small = Arc::new(SmallParts::default());
        let threads: Arc<dyn Threads> = small.clone();
        for n in SIZES.map(|n| n.min(3001)) {
            with_threads(&threads, || oracle(&Case { s, n, random: RefCell::new(Random::new(n as u64)) }));
        }
        assert!(small.n_runs.load(Ordering::Relaxed) > 5, "kernel {i} uses one thread");
    }
}
