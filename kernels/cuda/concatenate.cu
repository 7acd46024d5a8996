// Ranges and bitmaps, one after the other in one buffer.
#include "bytes.cuh"

struct Copied {
  Bytes from;
  __device__ u64 inner() const { return from.len; }
  __device__ u64 safe(u64 i) const { return byte_at(from, i); }
  __device__ Pair inside(u64 i) const { return bytes_inside(from, i); }
};

// Source and target lie alike.
struct CopiedAlike : Copied {
  __device__ Pair inside(u64 i) const { return aligned128(from.at + i); }
};

KERNEL(crossdock_copy_ranges) {
  PARAMS(FROM, TO);
  FIND_JOB;
  CopiedAlike of;
  of.from = job.read(FROM);
  Target to = job.write(TO);
  if ((((u64)of.from.at ^ (u64)to.at) & 15) == 0) {
    fill(job, to, of);
  } else {
    fill(job, to, (Copied)of);
  }
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

  // 16 bytes of the target, by its bytes.
  __device__ __noinline__ Pair by_bytes(u64 i) const {
    Pair pair = {0, 0};
#pragma unroll 1
    for (u32 k = 0; k < 8; k++) {
      pair.low |= safe(i + k) << (8 * k);
      pair.high |= safe(i + 8 + k) << (8 * k);
    }
    return pair;
  }
};

// One part, and what of the target lies deep within it.
struct Cursor {
  // Bits of the target.
  u64 begin;
  u64 end;
  Bytes from;
  // From bits of the target to those of the part.
  u64 shift;

  // Whether the 16 bytes from byte `i` of the target on are all of this part, with what is read around them.
  __device__ __forceinline__ bool has(u64 i) const {
    u64 byte = (i * 8 + shift) / 8;
    return i * 8 >= begin && i * 8 < end && end - i * 8 >= 128 &&
           (from.len == 0 || (byte >= 7 && byte < from.len && from.len - byte >= 24));
  }

  __device__ __forceinline__ Pair at(u64 i) const {
    if (from.len == 0) return Pair{NOTHING, NOTHING};
    return pair_inside(from, i * 8 + shift);
  }
};

static __device__ __noinline__ Cursor cursor_at(const Concatenated& all, u64 i) {
  Cursor cursor = {0, 0, {0, 0}, 0};
  u32 part = all.part_of(i * 8);
  if (part >= all.n_parts) return cursor;
  cursor.begin = part == 0 ? all.before : all.ends[part - 1];
  cursor.end = all.ends[part];
  cursor.from = all.bytes(part);
  cursor.shift = all.place(part, 0);
  return cursor;
}

// Vector by vector, several at once where they lie within one part.
DEVICE void concatenate(const Job& job, Target to, const Concatenated& all) {
  const u32 AT_ONCE = 4;
  u64 head = min64(to.len, (0 - (u64)to.at) & 15);
  u64 vectors = (to.len - head) / 16;
  Cursor cursor = {0, 0, {0, 0}, 0};
#pragma unroll 1
  for (u64 v = job.thread; v < vectors; v += AT_ONCE * job.threads) {
    u64 i = head + v * 16, step = job.threads * 16;
    if (!cursor.has(i)) cursor = cursor_at(all, i);
    if (v + (AT_ONCE - 1) * job.threads < vectors && cursor.has(i) && cursor.has(i + (AT_ONCE - 1) * step)) {
      Pair pairs[AT_ONCE];
#pragma unroll
      for (u32 k = 0; k < AT_ONCE; k++) pairs[k] = cursor.at(i + k * step);
#pragma unroll
      for (u32 k = 0; k < AT_ONCE; k++) store128(to.at + i + k * step, pairs[k]);
      continue;
    }
#pragma unroll 1
    for (u32 k = 0; k < AT_ONCE && v + k * job.threads < vectors; k++, i += step) {
      if (!cursor.has(i)) cursor = cursor_at(all, i);
      store128(to.at + i, cursor.has(i) ? cursor.at(i) : all.by_bytes(i));
    }
  }
  u64 after = head + vectors * 16;
#pragma unroll 1
  for (u64 i = job.thread; i < head + (to.len - after); i += job.threads) {
    u64 at = i < head ? i : after + (i - head);
    store(to.at + at, (u8)all.safe(at));
  }
}

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
  Concatenated all = {job, PARTS, n_parts, kept, before, ends};
  concatenate(job, to, all);
}
