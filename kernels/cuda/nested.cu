// What nested arrays say about their children: list-views, run ends, unions.
#include "words.cuh"

KERNEL(crossdock_check_list_views) {
  PARAMS(OFFSETS, SIZES, WIDTH, LIMIT, CELL);
  FIND_JOB;
  Bytes offsets = job.read(OFFSETS), sizes = job.read(SIZES);
  u32 width = offset_width(job.value(WIDTH));
  i64 limit = limit_of(job.value(LIMIT));
  if (width == 0) return;
  u64 found = first_wrong(job, min64(offsets.len, sizes.len) / width, [=](u64 i) {
    i64 offset = offset_at(offsets, i, width), size = offset_at(sizes, i, width);
    // Two numbers that are not negative have a sum that a u64 holds.
    return offset < 0 || size < 0 || (u64)offset + (u64)size > (u64)limit;
  });
  report(job.write(CELL), found);
}

// The index after the last stands for runs that end too soon.
KERNEL(crossdock_check_run_ends) {
  PARAMS(ENDS, WIDTH, COVERED, CELL);
  FIND_JOB;
  Bytes ends = job.read(ENDS);
  u32 width = job.value(WIDTH) == 2 ? 2 : offset_width(job.value(WIDTH));
  i64 covered = limit_of(job.value(COVERED));
  if (width == 0) return;
  auto end_at = [=](u64 i) { return width == 2 ? (i64)word_at<i16>(ends, i) : offset_at(ends, i, width); };
  u64 n = ends.len / width;
  u64 found = first_wrong(job, n, [=](u64 i) { return end_at(i) <= (i == 0 ? 0 : end_at(i - 1)); });
  i64 last = n == 0 ? 0 : end_at(n - 1);
  report(job.write(CELL), last < covered ? min64(found, n) : found);
}

// The length of a child that there is not.
#define NO_CHILD NOTHING

KERNEL(crossdock_check_union) {
  PARAMS(IDS, OFFSETS, CELL, LENS);
  // By type id: one for each value that a byte has, and each thread.
  __shared__ u64 lens[THREADS];
  FIND_JOB;
  lens[threadIdx.x] = LENS + threadIdx.x < job.n ? job.value(LENS + threadIdx.x) : NO_CHILD;
  __syncthreads();
  Bytes ids = job.read(IDS), offsets = job.read(OFFSETS);
  u64 found;
  if (offsets.len == 0) {
    found = first_wrong(job, ids.len, [=](u64 i) { return lens[__ldg(ids.at + i)] == NO_CHILD; });
  } else {
    found = first_wrong(job, min64(ids.len, words_of<i32>(offsets)), [=](u64 i) {
      u64 len = lens[__ldg(ids.at + i)];
      i32 offset = word_at<i32>(offsets, i);
      return len == NO_CHILD || offset < 0 || (u64)offset >= len;
    });
  }
  report(job.write(CELL), found);
}
