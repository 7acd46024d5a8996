// Ranges and bitmaps, one after the other in one buffer.
#include "bytes.cuh"

struct Copied {
  Bytes from;
  __device__ u64 inner() const { return from.len; }
  __device__ u64 safe(u64 i) const { return byte_at(from, i); }
  __device__ Pair inside(u64 i) const { return bytes_inside(from, i); }
};

KERNEL(crossdock_copy_ranges) {
  PARAMS(FROM, TO);
  FIND_JOB;
  Copied of = {job.read(FROM)};
  fill(job, job.write(TO), of);
}

// Arguments of one bitmap: its bytes (none: all of its bits are set), its first bit in them, its length.
#define PARTS_EACH 3
#define MOST_PARTS (CROSSDOCK_MAX_KERNEL_ARGS / PARTS_EACH)

struct Concatenated {
  const Job& job;
  u32 parts;
  u32 n_parts;
  // Bits of the target that were there before.
  u64 kept;
  u32 before;
  // The bit of the target at which each part ends.
  const u64* ends;

  __device__ u64 inner() const { return 0xffffffffffffff00ull; }

  // The part that bit `at` of the target belongs to; n_parts: it lies after all of them.
  __device__ u32 part_of(u64 at) const {
    u32 low = 0, high = n_parts;
    while (low < high) {
      u32 middle = (low + high) / 2;
      if (ends[middle] <= at) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  __device__ Bytes bytes(u32 part) const { return job.read(parts + part * PARTS_EACH); }

  // Where bit `at` of the target lies among the bits of a part's bytes.
  __device__ u64 place(u32 part, u64 at) const {
    u64 begin = part == 0 ? before : ends[part - 1];
    return job.value(parts + part * PARTS_EACH + 1) + (at - begin);
  }

  // 8 bits of the target.
  __device__ __noinline__ u64 safe(u64 i) const {
    u64 at = i * 8, end = at + 8;
    u64 byte = 0;
    if (at < before) {
      byte = kept & ((1ull << before) - 1);
      at = before;
    }
    for (u32 part = part_of(at); part < n_parts && at < end; part++) {
      u64 until = min64(ends[part], end);
      if (until <= at) continue;
      Bytes from = bytes(part);
      u64 bits = from.len == 0 ? 0xff : bits_at(from, place(part, at));
      byte |= (bits & ((1ull << (until - at)) - 1)) << (at - i * 8);
      at = until;
    }
    return byte;
  }

  __device__ Pair inside(u64 i) const {
    u32 part = part_of(i * 8);
    if (part < n_parts && i * 8 >= before && ends[part] - i * 8 >= 128) {
      Bytes from = bytes(part);
      if (from.len == 0) {
        Pair ones = {NOTHING, NOTHING};
        return ones;
      }
      u64 bit = place(part, i * 8);
      if (bit / 8 >= 7 && bit / 8 + 24 <= from.len) return pair_inside(from, bit);
    }
    Pair pair = {0, 0};
#pragma unroll 1
    for (u32 k = 0; k < 8; k++) {
      pair.low |= safe(i + k) << (8 * k);
      pair.high |= safe(i + 8 + k) << (8 * k);
    }
    return pair;
  }
};

KERNEL(crossdock_concatenate_bits) {
  PARAMS(TO, BEFORE, PARTS);
  __shared__ u64 ends[MOST_PARTS];
  __shared__ u32 kept;
  FIND_JOB;
  Target to = job.write(TO);
  u32 before = (u32)(job.value(BEFORE) % 8);
  u32 n_parts = (job.n - PARTS) / PARTS_EACH;
  if (threadIdx.x == 0) {
    u64 end = before;
    for (u32 part = 0; part < n_parts; part++) {
      end += job.value(PARTS + part * PARTS_EACH + 2);
      ends[part] = end;
    }
    // Only the block that writes the first byte sees it before it is written; bits that others need are not in it.
    kept = to.len > 0 && before > 0 ? to.at[0] : 0;
  }
  __syncthreads();
  Concatenated of = {job, PARTS, n_parts, kept, before, ends};
  fill(job, to, of);
}
