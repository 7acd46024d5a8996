// Plans the gathering of lists, which may begin anywhere in the array of elements. Computes the
// offsets of the gathered lists, and the position of each gathered element in the source. A chunk
// is `1 << shift` lists, which a warp processes at a time.
#include "codes.cuh"

// The lowest number of elements that 32-bit offsets cannot address. Sizes are clamped to this
// number, so that no sum overflows.
#define TOO_MANY (1ull << 31)
// Number of elements that a warp processes at a time.
#define ELEMENTS_EACH 1024

struct Lists {
  Integers begins;
  // The ends of the lists if `has_ends` is set, else their sizes.
  Integers ends_or_sizes;
  bool has_ends;
  Bytes validity;
  u64 first;
  u64 limit;

  __device__ __forceinline__ u64 n() const { return min64(begins.n(), ends_or_sizes.n()); }

  // The number of elements of list `i`; NONE if they are out of range. A null list has no elements.
  __device__ __forceinline__ u64 size(u64 i) const {
    if (!is_set(validity, first + i)) return 0;
    i64 begin = begins[i], end_or_size = ends_or_sizes[i];
    if (begin < 0 || end_or_size < 0) return NONE;
    // The sum of two nonnegative i64 fits in a u64.
    u64 end = has_ends ? (u64)end_or_size : (u64)begin + (u64)end_or_size;
    return end < (u64)begin || end > limit ? NONE : end - (u64)begin;
  }
};

// Reads the eleven arguments from argument `at` on. An invalid shift becomes 0.
DEVICE Lists lists(const Job& job, u32 at, u64& shift) {
  shift = job.value(at + 10);
  if (shift < 5 || shift > 40) shift = 0;
  return Lists{integers(job, at), integers(job, at + 3), job.value(at + 6) != 0, job.read(at + 7), job.value(at + 8),
               (u64)limit_of(job.value(at + 9))};
}

// Sums the sizes of the lists in each chunk. The cell becomes the index of the first list whose
// elements are out of range.
KERNEL(crossdock_measure_lists) {
  PARAMS(BEGINS, BEGIN_WIDTH, BEGIN_SIGNED, ENDS_OR_SIZES, ENDS_OR_SIZES_WIDTH, ENDS_OR_SIZES_SIGNED, HAS_ENDS,
         VALIDITY, FIRST, LIMIT, SHIFT, SIZES, CELL);
  FIND_JOB;
  u64 shift, first_error = NONE;
  Lists all = lists(job, BEGINS, shift);
  Target sizes = job.write(SIZES);
  if (shift == 0) return;
#pragma unroll 1
  for (u64 chunk = job.thread / 32; chunk < sizes.len / 8; chunk += job.threads / 32) {
    u64 end = min64(all.n(), (chunk + 1) << shift), sum = 0;
#pragma unroll 4
    for (u64 i = (chunk << shift) + threadIdx.x % 32; i < end; i += 32) {
      u64 size = all.size(i);
      if (size == NONE) {
        first_error = min64(first_error, i);
      } else {
        sum += min64(size, TOO_MANY);
      }
    }
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(WARP, sum, step);
    if (threadIdx.x % 32 == 0) put_word<u64>(sizes, chunk, min64(sum, TOO_MANY));
  }
  report(job.write(CELL), first_error);
}

// Computes the offsets of the gathered lists from the positions of their chunks. The cell becomes
// the index of the first list that has elements and that gathering moves.
KERNEL(crossdock_place_lists) {
  PARAMS(BEGINS, BEGIN_WIDTH, BEGIN_SIGNED, ENDS_OR_SIZES, ENDS_OR_SIZES_WIDTH, ENDS_OR_SIZES_SIGNED, HAS_ENDS,
         VALIDITY, FIRST, LIMIT, SHIFT, BASES, OFFSETS, CELL);
  FIND_JOB;
  u64 shift, first_error = NONE;
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
      size = size == NONE ? 0 : min64(size, TOO_MANY);
      u64 prefix = size;
#pragma unroll
      for (u32 step = 1; step < 32; step *= 2) {
        u64 lower = __shfl_sync(WARP, prefix, lane - step);
        if (lane >= step) prefix += lower;
      }
      if (i < end) {
        put_word<u32>(offsets, i + 1, (u32)(base + prefix));
        if (size != 0 && (u64)all.begins[i] != base + prefix - size) first_error = min64(first_error, i);
      }
      base += __shfl_sync(WARP, prefix, 31);
    }
  }
  report(job.write(CELL), first_error);
}

// Writes, for each gathered element, its position in the source. For an element of a null list, all
// bits of the position are set.
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
    // The elements `part..stop` belong to the lists from `low` to `last`.
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
      u64 i = min64(low, lists - 1), row = NONE;
      if (is_set(validity, first + i)) row = (u64)begins[i] + (place - (u64)integer_at(offsets, i, width, false));
      if (row_width == 4) {
        put_word<u32>(rows, place, (u32)row);
      } else {
        put_word<u64>(rows, place, row);
      }
    }
  }
}

// Copies the bytes of gathered lists of bytes. The bytes of a null list are 0.
KERNEL(crossdock_gather_bytes) {
  PARAMS(BEGINS, BEGIN_WIDTH, BEGIN_SIGNED, OFFSETS, OFFSET_WIDTH, VALIDITY, FIRST, DATA, TO);
  FIND_JOB;
  Integers begins = integers(job, BEGINS);
  Bytes offsets = job.read(OFFSETS), validity = job.read(VALIDITY), data = job.read(DATA);
  Target to = job.write(TO);
  u32 width = offset_width(job.value(OFFSET_WIDTH));
  u64 first = job.value(FIRST), n = to.len;
  if (width == 0 || offsets.len / width < 2) return;
  u64 lists = min64(offsets.len / width - 1, begins.n());
  if (lists == 0) return;
  Bytes ends = {offsets.at + width, lists * width};
#pragma unroll 1
  for (u64 part = job.thread / 32 * ELEMENTS_EACH; part < n; part += job.threads / 32 * ELEMENTS_EACH) {
    // The bytes `part..stop` belong to the lists from `low` to `last`.
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
      u64 i = min64(low, lists - 1);
      u64 at = (u64)begins[i] + (place - (u64)integer_at(offsets, i, width, false));
      store(to.at + place, is_set(validity, first + i) ? byte_at(data, at) : (u8)0);
    }
  }
}
