// Concatenates byte ranges and bitmaps.
#include "bytes.cuh"

struct Copied {
  Bytes from;
  __device__ u64 inner_len() const { return from.len; }
  __device__ u64 checked(u64 i) const { return byte_at(from, i); }
  __device__ Pair unchecked(u64 i) const { return bytes_unchecked(from, i); }
};

// Copies a source to a target with the same alignment.
struct CopiedAlike : Copied {
  __device__ Pair unchecked(u64 i) const { return aligned128(from.at + i); }
};

KERNEL(crossdock_copy_ranges) {
  PARAMS(FROM, TO);
  FIND_JOB;
  CopiedAlike source;
  source.from = job.read(FROM);
  Target to = job.write(TO);
  if ((((u64)source.from.at ^ (u64)to.at) & 15) == 0) {
    fill(job, to, source);
  } else {
    fill(job, to, (Copied)source);
  }
}

// A part is one of the bitmaps. It has three arguments: its bytes, the position of its first bit in
// these bytes, and its length in bits. If the bytes are empty, all bits are set.
#define ARGS_PER_PART 3
#define MAX_PARTS (CROSSDOCK_MAX_KERNEL_ARGS / ARGS_PER_PART)

struct Concatenated {
  const Job& job;
  u32 parts;
  u32 n_parts;
  // The bits of the target's first byte that belong to an earlier job, and their number.
  u64 earlier_bits;
  u32 n_earlier;
  // The exclusive end of each part in the target, in bits.
  const u64* ends;

  // The part that bit `at` of the target belongs to; n_parts if it is after the last part.
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

  __device__ Bytes bytes(u32 part) const { return job.read(parts + part * ARGS_PER_PART); }

  // The position of bit `at` of the target in the bytes of a part.
  __device__ u64 position(u32 part, u64 at) const {
    u64 begin = part == 0 ? n_earlier : ends[part - 1];
    return job.value(parts + part * ARGS_PER_PART + 1) + (at - begin);
  }

  // Byte `i` of the target.
  __device__ __noinline__ u64 checked(u64 i) const {
    u64 at = i * 8, end = at + 8;
    u64 byte = 0;
    if (at < n_earlier) {
      byte = earlier_bits & ((1ull << n_earlier) - 1);
      at = n_earlier;
    }
    for (u32 part = part_of(at); part < n_parts && at < end; part++) {
      u64 until = min64(ends[part], end);
      if (until <= at) continue;
      Bytes from = bytes(part);
      u64 bits = from.len == 0 ? 0xff : bits_at(from, position(part, at));
      byte |= (bits & ((1ull << (until - at)) - 1)) << (at - i * 8);
      at = until;
    }
    return byte;
  }

  // 16 bytes of the target, computed byte by byte.
  __device__ __noinline__ Pair by_bytes(u64 i) const {
    Pair pair = {0, 0};
#pragma unroll 1
    for (u32 k = 0; k < 8; k++) {
      pair.low |= checked(i + k) << (8 * k);
      pair.high |= checked(i + 8 + k) << (8 * k);
    }
    return pair;
  }
};

// One part, and the range of the target that unchecked loads from this part can fill.
struct Cursor {
  // The part's range in the target, in bits.
  u64 begin;
  u64 end;
  Bytes from;
  // The number that is added to a position in the target to get the position in the part, in bits.
  u64 shift;

  // Whether an unchecked load can fill the 16 bytes from byte `i` of the target on.
  __device__ __forceinline__ bool has(u64 i) const {
    u64 byte = (i * 8 + shift) / 8;
    return i * 8 >= begin && i * 8 < end && end - i * 8 >= 128 &&
           (from.len == 0 || (byte >= 7 && byte < from.len && from.len - byte >= 24));
  }

  __device__ __forceinline__ Pair at(u64 i) const {
    if (from.len == 0) return Pair{~0ull, ~0ull};
    return pair_unchecked(from, i * 8 + shift);
  }
};

static __device__ __noinline__ Cursor cursor_at(const Concatenated& all, u64 i) {
  Cursor cursor = {0, 0, {0, 0}, 0};
  u32 part = all.part_of(i * 8);
  if (part >= all.n_parts) return cursor;
  cursor.begin = part == 0 ? all.n_earlier : all.ends[part - 1];
  cursor.end = all.ends[part];
  cursor.from = all.bytes(part);
  cursor.shift = all.position(part, 0);
  return cursor;
}

// Fills the target by vectors of 16 bytes. Several are filled at once if all belong to one part.
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
    store(to.at + at, (u8)all.checked(at));
  }
}

KERNEL(crossdock_concatenate_bits) {
  PARAMS(TO, BEFORE, PARTS);
  __shared__ u64 ends[MAX_PARTS];
  __shared__ u32 earlier_bits;
  FIND_JOB;
  Target to = job.write(TO);
  u32 n_earlier = (u32)(job.value(BEFORE) % 8);
  u32 n_parts = (job.n - PARTS) / ARGS_PER_PART;
  if (threadIdx.x == 0) {
    u64 end = n_earlier;
    for (u32 part = 0; part < n_parts; part++) {
      end += job.value(PARTS + part * ARGS_PER_PART + 2);
      ends[part] = end;
    }
    // Only the block that writes the target's first byte needs the old bits of that byte. This
    // block reads the bits before it writes the byte.
    earlier_bits = to.len > 0 && n_earlier > 0 ? to.at[0] : 0;
  }
  __syncthreads();
  Concatenated all = {job, PARTS, n_parts, earlier_bits, n_earlier, ends};
  concatenate(job, to, all);
}
