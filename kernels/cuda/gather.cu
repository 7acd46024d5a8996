// Copies strided tensors to contiguous memory. plan.cuh explains units and words.
#include "tiles.cuh"

#define WORDS_AT_ONCE 4

// Moves words of PACK units. All loads are in flight before the first store.
template <class T, class W, u32 PACK>
DEVICE void move_words(const u8* const* at, i64 inner, const bool* is_valid, W* to, u64 threads) {
  T units[WORDS_AT_ONCE][PACK];
#pragma unroll
  for (u32 k = 0; k < WORDS_AT_ONCE; k++) {
#pragma unroll
    for (u32 p = 0; p < PACK; p++) {
      if (is_valid[k]) units[k][p] = __ldg((const T*)(at[k] + (i64)p * inner));
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
    if (is_valid[k]) store(to + k * threads, word);
  }
}

// The offset of word `i` in the source, for tensors with 2^32 units or more.
static __device__ __noinline__ i64 wide_offset(u64 i) {
  const Plan& plan = shared().plan;
  i64 offset = 0;
#pragma unroll 1
  for (u32 d = plan.n; d-- > 1;) {
    u64 above = i / plan.sizes[d];
    offset += (i64)(i - above * plan.sizes[d]) * plan.strides[d];
    i = above;
  }
  return offset + (i64)i * plan.strides[0];
}

// The offsets of several words in the source, for smaller tensors. The indices of the words are
// `threads` apart.
DEVICE void narrow_offsets(const Plan& plan, u32 i, u32 threads, i64* offset) {
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

// Moves the words in the order of the target, several per thread at once. Not inlined, for the
// reason given for gather_tiles.
template <class T, class W, u32 PACK>
static __device__ __noinline__ void gather_words(u64 thread) {
  const Plan& plan = shared().plan;
  u64 total = plan.total, threads = plan.blocks * THREADS;
#pragma unroll 1
  for (u64 i = thread; i < total; i += WORDS_AT_ONCE * threads) {
    i64 offset[WORDS_AT_ONCE];
    const u8* at[WORDS_AT_ONCE];
    bool is_valid[WORDS_AT_ONCE];
    if (plan.small) {
      narrow_offsets(plan, (u32)i, (u32)threads, offset);
    } else {
#pragma unroll
      for (u32 k = 0; k < WORDS_AT_ONCE; k++) offset[k] = wide_offset(i + k * threads);
    }
#pragma unroll
    for (u32 k = 0; k < WORDS_AT_ONCE; k++) {
      is_valid[k] = i + k * threads < total;
      at[k] = plan.from + offset[k];
    }
    move_words<T, W, PACK>(at, plan.inner, is_valid, (W*)plan.to + i, threads);
  }
}

// Reads the units of one dimension in reverse order. Units have at most 8 bytes.
struct Reversed {
  Bytes from;
  u64 len;
  u32 unit;
  __device__ u64 inner_len() const { return len < 64 ? 0 : len - 32; }
  // Byte `i` of the target.
  __device__ u64 checked(u64 i) const {
    u64 within = i & (unit - 1);
    return byte_at(from, len - unit - (i - within) + within);
  }
  __device__ Pair unchecked(u64 i) const {
    Pair pair = bytes_unchecked(from, len - 16 - i);
    Pair reversed = {reverse(pair.high), reverse(pair.low)};
    return reversed;
  }
  __device__ u64 reverse(u64 word) const {
    if (unit <= 4) word = word >> 32 | word << 32;
    if (unit <= 2) word = (word >> 16 & 0x0000ffff0000ffffull) | (word & 0x0000ffff0000ffffull) << 16;
    if (unit == 1) word = (word >> 8 & 0x00ff00ff00ff00ffull) | (word & 0x00ff00ff00ff00ffull) << 8;
    return word;
  }
};

// With four blocks per multiprocessor, enough tiles are in flight, and each thread has enough
// registers for its loads.
KERNEL_BLOCKS(crossdock_gather, 4) {
  PARAMS(FROM, FIRST, WIDTH, TO, DIMS);
  FIND_JOB;
  Plan& plan = shared().plan;
  if (threadIdx.x == 0) {
    init_plan(job, DIMS, job.value(WIDTH), job.read(FROM), job.value(FIRST), job.write(TO), plan);
    shared().tile.index = job.thread / THREADS;
  }
  __syncthreads();
  if (plan.total == 0) return;
  u32 unit = plan.unit;
  if (plan.fast < plan.n) return gather_by_tiles();
  if (plan.n > 1 || unit == 16 || plan.inner != -(i64)unit) {
    switch (unit * plan.pack) {
      case 1: return gather_words<u8, u8, 1>(job.thread);
      case 2: return gather_words<u16, u16, 1>(job.thread);
      case 4:
        if (unit == 1) return gather_words<u8, u32, 4>(job.thread);
        if (unit == 2) return gather_words<u16, u32, 2>(job.thread);
        return gather_words<u32, u32, 1>(job.thread);
      case 8: return gather_words<u64, u64, 1>(job.thread);
      default: return gather_words<ulonglong2, ulonglong2, 1>(job.thread);
    }
  }
  // The range of the source. It begins with the last element, because the stride is negative.
  u64 len = plan.total * plan.pack * unit;
  Reversed source = {{plan.from + unit - len, len}, len, unit};
  fill(job, Target{plan.to, len}, source);
}
