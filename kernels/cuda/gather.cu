// Tensors with any strides, made contiguous.
#include "tiles.cuh"

#define WORDS_AT_ONCE 4

// Moves words of PACK units: all loads are under way before the first store.
template <class T, class W, u32 PACK>
DEVICE void move_words(const u8* const* at, i64 inner, const bool* there, W* to, u64 threads) {
  T units[WORDS_AT_ONCE][PACK];
#pragma unroll
  for (u32 k = 0; k < WORDS_AT_ONCE; k++) {
#pragma unroll
    for (u32 p = 0; p < PACK; p++) {
      if (there[k]) units[k][p] = __ldg((const T*)(at[k] + (i64)p * inner));
    }
  }
#pragma unroll
  for (u32 k = 0; k < WORDS_AT_ONCE; k++) {
    W word;
    if constexpr (PACK == 1) {
      word = units[k][0];
    } else {
      word = 0;
#pragma unroll
      for (u32 p = 0; p < PACK; p++) word |= (W)units[k][p] << (8 * sizeof(T) * p);
    }
    if (there[k]) store(to + k * threads, word);
  }
}

// Where word `i` lies in the source, for tensors of so many words that 32 bits do not count them.
static __device__ __noinline__ i64 far_offset(const Plan& plan, u64 i) {
  i64 offset = 0;
#pragma unroll 1
  for (u32 d = plan.n; d-- > 1;) {
    u64 above = i / plan.sizes[d];
    offset += (i64)(i - above * plan.sizes[d]) * plan.strides[d];
    i = above;
  }
  return offset + (i64)i * plan.strides[0];
}

// The same for several, `threads` apart.
DEVICE void near_offsets(const Plan& plan, u32 i, u32 threads, i64* offset) {
  u32 rest[WORDS_AT_ONCE];
#pragma unroll
  for (u32 k = 0; k < WORDS_AT_ONCE; k++) rest[k] = i + k * threads, offset[k] = 0;
#pragma unroll 1
  for (u32 d = plan.n; d-- > 1;) {
    u32 size = (u32)plan.sizes[d];
    i64 stride = plan.strides[d];
#pragma unroll
    for (u32 k = 0; k < WORDS_AT_ONCE; k++) {
      u32 above = rest[k] / size;
      offset[k] += (i64)(rest[k] - above * size) * stride;
      rest[k] = above;
    }
  }
#pragma unroll
  for (u32 k = 0; k < WORDS_AT_ONCE; k++) offset[k] += (i64)rest[k] * plan.strides[0];
}

// Word by word of the target, each thread several at once.
static __device__ __noinline__ void gather_words(const Job& job, const Plan& plan, const u8* from, u8* to) {
  u32 unit = plan.unit, pack = plan.pack;
  i64 inner = plan.inner;
  u64 total = plan.total;
#pragma unroll 1
  for (u64 i = job.thread; i < total; i += WORDS_AT_ONCE * job.threads) {
    i64 offset[WORDS_AT_ONCE];
    const u8* at[WORDS_AT_ONCE];
    bool there[WORDS_AT_ONCE];
    if (plan.small) {
      near_offsets(plan, (u32)i, (u32)job.threads, offset);
    } else {
#pragma unroll
      for (u32 k = 0; k < WORDS_AT_ONCE; k++) offset[k] = far_offset(plan, i + k * job.threads);
    }
#pragma unroll
    for (u32 k = 0; k < WORDS_AT_ONCE; k++) {
      there[k] = i + k * job.threads < total;
      at[k] = from + offset[k];
    }
    // The same for all threads.
    u8* word = to + i * (unit * pack);
    switch (unit * pack) {
      case 1: move_words<u8, u8, 1>(at, inner, there, word, job.threads); break;
      case 2: move_words<u16, u16, 1>(at, inner, there, (u16*)word, job.threads); break;
      case 4:
        if (unit == 1) move_words<u8, u32, 4>(at, inner, there, (u32*)word, job.threads);
        if (unit == 2) move_words<u16, u32, 2>(at, inner, there, (u32*)word, job.threads);
        if (unit == 4) move_words<u32, u32, 1>(at, inner, there, (u32*)word, job.threads);
        break;
      case 8: move_words<u64, u64, 1>(at, inner, there, (u64*)word, job.threads); break;
      case 16: move_words<ulonglong2, ulonglong2, 1>(at, inner, there, (ulonglong2*)word, job.threads); break;
    }
  }
}

// One dimension from its end to its begin, of units of 8 bytes or fewer.
struct Reversed {
  Bytes from;
  u64 len;
  u32 unit;
  __device__ u64 inner() const { return len < 64 ? 0 : len - 32; }
  // What lies at byte `i` of the target.
  __device__ u64 safe(u64 i) const {
    u64 within = i & (unit - 1);
    return byte_at(from, len - unit - (i - within) + within);
  }
  __device__ Pair inside(u64 i) const {
    Pair pair = bytes_inside(from, len - 16 - i);
    Pair turned = {turn(pair.high), turn(pair.low)};
    return turned;
  }
  __device__ u64 turn(u64 word) const {
    if (unit <= 4) word = word >> 32 | word << 32;
    if (unit <= 2) word = (word >> 16 & 0x0000ffff0000ffffull) | (word & 0x0000ffff0000ffffull) << 16;
    if (unit == 1) word = (word >> 8 & 0x00ff00ff00ff00ffull) | (word & 0x00ff00ff00ff00ffull) << 8;
    return word;
  }
};

// Three blocks a multiprocessor: with four the words under way go to memory instead of registers.
KERNEL_BLOCKS(crossdock_gather, 3) {
  PARAMS(FROM, FIRST, WIDTH, TO, DIMS);
  __shared__ Plan plan;
  __shared__ Corner corner;
  __shared__ ulonglong2 tile[TILE_BYTES / 16];
  FIND_JOB;
  Bytes bytes = job.read(FROM);
  Target target = job.write(TO);
  u64 first = job.value(FIRST), width = job.value(WIDTH);
  if (threadIdx.x == 0) make_plan(job, DIMS, width, bytes, first, target, plan);
  __syncthreads();
  if (plan.total == 0) return;
  const u8* from = bytes.at + first;
  u8* to = target.at;
  u32 unit = plan.unit, pack = plan.pack;
  if (plan.fast == plan.n) {
    if (plan.n > 1 || unit == 16 || plan.inner != -(i64)unit) return gather_words(job, plan, from, to);
    // The bytes from the last element's first to the first one's last.
    u64 len = plan.total * pack * unit;
    Reversed of = {{from + unit - len, len}, len, unit};
    return fill(job, Target{to, len}, of);
  }
  if (threadIdx.x == 0) first_tile(plan, job.thread / THREADS, from, to, corner);
  __syncthreads();
  switch (unit * pack) {
    case 1: return gather_tiles<u8, u32, 1, 64>(plan, corner, from, to, tile);
    case 2: return gather_tiles<u16, u32, 1, 64>(plan, corner, from, to, tile);
    case 4:
      if (unit == 1) return gather_tiles<u32, u32, 4, 128>(plan, corner, from, to, tile);
      if (unit == 2) return gather_tiles<u32, u32, 2, 128>(plan, corner, from, to, tile);
      return gather_tiles<u32, u32, 1, 64>(plan, corner, from, to, tile);
    case 8: return gather_tiles<u64, u64, 1, 64>(plan, corner, from, to, tile);
    default: return gather_tiles<ulonglong2, ulonglong2, 1, 32>(plan, corner, from, to, tile);
  }
}
