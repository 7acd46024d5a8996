// Checks that nested arrays refer to elements that their children have. The nested arrays are
// list-views, run-end encoded arrays and unions.
#include "words.cuh"

KERNEL(crossdock_check_list_views) {
  PARAMS(OFFSETS, SIZES, WIDTH, LIMIT, CELL);
  FIND_JOB;
  Bytes offsets = job.read(OFFSETS), sizes = job.read(SIZES);
  u32 width = offset_width(job.value(WIDTH));
  i64 limit = limit_of(job.value(LIMIT));
  if (width == 0) return;
  // The sum of two nonnegative i64 fits in a u64.
  auto wrong = [=](u64, Two two) { return two.a < 0 || two.b < 0 || (u64)two.a + (u64)two.b > (u64)limit; };
  u64 n = min64(offsets.len, sizes.len) / width, first_error;
  if (is_aligned(offsets, width) && is_aligned(sizes, width)) {
    if (width == 4) {
      Aligned<i32> offset = {(const i32*)offsets.at}, size = {(const i32*)sizes.at};
      first_error = first_wrong<4>(job, n, [=](u64 i) { return Two{offset(i), size(i)}; }, wrong);
    } else {
      Aligned<i64> offset = {(const i64*)offsets.at}, size = {(const i64*)sizes.at};
      first_error = first_wrong<4>(job, n, [=](u64 i) { return Two{offset(i), size(i)}; }, wrong);
    }
  } else {
    auto load = [=](u64 i) { return Two{offset_at(offsets, i, width), offset_at(sizes, i, width)}; };
    first_error = first_wrong<1>(job, n, load, wrong);
  }
  report(job.write(CELL), first_error);
}

// If the only error is a last end that is less than COVERED, the cell becomes the number of ends.
KERNEL(crossdock_check_run_ends) {
  PARAMS(ENDS, WIDTH, COVERED, CELL);
  FIND_JOB;
  Bytes ends = job.read(ENDS);
  u32 width = job.value(WIDTH) == 2 ? 2 : offset_width(job.value(WIDTH));
  i64 covered = limit_of(job.value(COVERED));
  if (width == 0) return;
  u64 n = ends.len / width;
  u64 first_error = first_wrong_step(job, ends, width, [=](i64 before, i64 end) { return end <= before; });
  i64 last = n == 0 ? 0 : integer_at(ends, n - 1, width, true);
  report(job.write(CELL), last < covered ? min64(first_error, n) : first_error);
}

// Stored as the length of the child for a type id that has no child.
#define NO_CHILD NONE

KERNEL(crossdock_check_union) {
  PARAMS(IDS, OFFSETS, CELL, LENS);
  // The length of each child, by type id. A block has 256 threads, one for each type id.
  __shared__ u64 lens[THREADS];
  FIND_JOB;
  lens[threadIdx.x] = LENS + threadIdx.x < job.n ? job.value(LENS + threadIdx.x) : NO_CHILD;
  __syncthreads();
  Bytes ids = job.read(IDS), offsets = job.read(OFFSETS);
  u64 first_error;
  auto id_at = [=](u64 i) { return (i64)__ldg(ids.at + i); };
  if (offsets.len == 0) {
    first_error = first_wrong<4>(job, ids.len, id_at, [=](u64, i64 id) { return lens[id] == NO_CHILD; });
  } else {
    auto wrong = [=](u64, Two two) {
      u64 len = lens[two.a];
      return len == NO_CHILD || two.b < 0 || (u64)two.b >= len;
    };
    u64 n = min64(ids.len, offsets.len / 4);
    first_error = with_offsets(offsets, 4, [=](auto offset) {
      return first_wrong<decltype(offset)::AT_ONCE>(job, n, [=](u64 i) { return Two{id_at(i), offset(i)}; }, wrong);
    });
  }
  report(job.write(CELL), first_error);
}
