// Lists that lie anywhere in their elements, put one after the other: where each of them then begins, and which elements
// those are.
#include "codes.cuh"

// More elements than offsets of 31 bits reach to: that they are more is all that is told of them, so that no sum wraps.
#define TOO_MANY (1ull << 31)
// Elements that a warp names at a time.
#define ELEMENTS_EACH 1024

struct Lists {
  Integers begins;
  // Where they end, or how many elements each has.
  Integers rest;
  bool ends;
  Bytes validity;
  u64 first;
  u64 limit;

  __device__ __forceinline__ u64 n() const { return min64(begins.n(), rest.n()); }

  // How many elements list i has; NOTHING where they are not within those that there are. One that is null has none.
  __device__ __forceinline__ u64 size(u64 i) const {
    if (!is_set(validity, first + i)) return 0;
    i64 begin = begins[i], told = rest[i];
    if (begin < 0 || told < 0) return NOTHING;
    // Two numbers that are not negative have a sum that a u64 holds.
    u64 end = ends ? (u64)told : (u64)begin + (u64)told;
    return end < (u64)begin || end > limit ? NOTHING : end - (u64)begin;
  }
};

// Nine arguments of a job, and the one behind them: lists come in chunks of 1 << shift. 0 for what is no shift.
DEVICE Lists lists(const Job& job, u32 at, u64& shift) {
  shift = job.value(at + 10);
  if (shift < 5 || shift > 40) shift = 0;
  return Lists{integers(job, at), integers(job, at + 3), job.value(at + 6) != 0, job.read(at + 7), job.value(at + 8),
               (u64)limit_of(job.value(at + 9))};
}

// How many elements the lists of each chunk have together: a chunk for a warp.
KERNEL(crossdock_measure_lists) {
  PARAMS(BEGINS, BEGIN_WIDTH, BEGIN_SIGNED, REST, REST_WIDTH, REST_SIGNED, ENDS, VALIDITY, FIRST, LIMIT, SHIFT, SIZES, CELL);
  FIND_JOB;
  u64 shift, found = NOTHING;
  Lists all = lists(job, BEGINS, shift);
  Target sizes = job.write(SIZES);
  if (shift == 0) return;
#pragma unroll 1
  for (u64 chunk = job.thread / 32; chunk < sizes.len / 8; chunk += job.threads / 32) {
    u64 end = min64(all.n(), (chunk + 1) << shift), sum = 0;
#pragma unroll 4
    for (u64 i = (chunk << shift) + threadIdx.x % 32; i < end; i += 32) {
      u64 size = all.size(i);
      if (size == NOTHING) {
        found = min64(found, i);
      } else {
        sum += min64(size, TOO_MANY);
      }
    }
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(WARP, sum, step);
    if (threadIdx.x % 32 == 0) put_word<u64>(sizes, chunk, min64(sum, TOO_MANY));
  }
  report(job.write(CELL), found);
}

// Where each list begins among all, by where those of its chunk do. The cell says which is the first that lay elsewhere.
KERNEL(crossdock_place_lists) {
  PARAMS(BEGINS, BEGIN_WIDTH, BEGIN_SIGNED, REST, REST_WIDTH, REST_SIGNED, ENDS, VALIDITY, FIRST, LIMIT, SHIFT, BASES, OFFSETS,
         CELL);
  FIND_JOB;
  u64 shift, found = NOTHING;
  Lists all = lists(job, BEGINS, shift);
  Target bases = job.write(BASES), offsets = job.write(OFFSETS);
  if (shift == 0 || offsets.len < 4 || ((u64)bases.at & 7) != 0) return;
  if (job.thread == 0) put_word<u32>(offsets, 0, 0);
  u64 n = min64(all.n(), offsets.len / 4 - 1);
  u32 lane = threadIdx.x % 32;
#pragma unroll 1
  for (u64 chunk = job.thread / 32; chunk < bases.len / 8; chunk += job.threads / 32) {
    u64 base = ((const u64*)bases.at)[chunk], end = min64(n, (chunk + 1) << shift);
#pragma unroll 1
    for (u64 tile = chunk << shift; tile < end; tile += 32) {
      u64 i = tile + lane, size = i < end ? all.size(i) : 0;
      size = size == NOTHING ? 0 : min64(size, TOO_MANY);
      u64 upto = size;
#pragma unroll
      for (u32 step = 1; step < 32; step *= 2) {
        u64 lower = __shfl_sync(WARP, upto, lane - step);
        if (lane >= step) upto += lower;
      }
      if (i < end) {
        put_word<u32>(offsets, i + 1, (u32)(base + upto));
        if (size != 0 && (u64)all.begins[i] != base + upto - size) found = min64(found, i);
      }
      base += __shfl_sync(WARP, upto, 31);
    }
  }
  report(job.write(CELL), found);
}

// For each element of lists that are put one after the other, where it lies; all ones where its list is null.
KERNEL(crossdock_name_elements) {
  PARAMS(BEGINS, BEGIN_WIDTH, BEGIN_SIGNED, OFFSETS, OFFSET_WIDTH, VALIDITY, FIRST, ROWS, ROW_WIDTH);
  FIND_JOB;
  Integers begins = integers(job, BEGINS);
  Bytes offsets = job.read(OFFSETS), validity = job.read(VALIDITY);
  Target rows = job.write(ROWS);
  u32 width = offset_width(job.value(OFFSET_WIDTH)), row_width = offset_width(job.value(ROW_WIDTH));
  u64 first = job.value(FIRST);
  if (width == 0 || row_width == 0 || offsets.len / width < 2) return;
  u64 lists = min64(offsets.len / width - 1, begins.n()), n = rows.len / row_width;
  if (lists == 0) return;
  Bytes ends = {offsets.at + width, lists * width};
#pragma unroll 1
  for (u64 part = job.thread / 32 * ELEMENTS_EACH; part < n; part += job.threads / 32 * ELEMENTS_EACH) {
    // Its elements are of lists from `low` to `last`.
    u64 stop = min64(n, part + ELEMENTS_EACH);
    u64 low = first_at_least(ends, width, false, 0, lists, part + 1);
    u64 last = first_at_least(ends, width, false, low, lists, stop);
#pragma unroll 1
    for (u64 place = part + threadIdx.x % 32; place < stop; place += 32) {
      u64 high = last;
#pragma unroll 1
      while (low < high) {
        u64 middle = low + (high - low) / 2;
        if ((u64)integer_at(ends, middle, width, false) > place) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      u64 i = min64(low, lists - 1), row = NOTHING;
      if (is_set(validity, first + i)) row = (u64)begins[i] + (place - (u64)integer_at(offsets, i, width, false));
      if (row_width == 4) {
        put_word<u32>(rows, place, (u32)row);
      } else {
        put_word<u64>(rows, place, row);
      }
    }
  }
}
