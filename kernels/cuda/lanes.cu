// Adds up differences in the FastLanes layout. In each block of 1024 values, every lane becomes the
// running sum of its differences, starting at its base. The result has another order than the
// differences: the values of a lane are adjacent. In shared memory, place_of_row finds the values
// in the order of the differences, and place_of_value finds them in the order of the result.
#include "packed.cuh"

template <class T>
struct Lanes {
  static const u32 LANES = LINE_BYTES / sizeof(T), ROWS = 8 * sizeof(T);
  // BLOCKS is the number of blocks of values that a block of threads processes at once. SHARE is
  // the number of threads that share a lane.
  static const u32 BLOCKS = sizeof(T) == 1 ? 2 : sizeof(T) == 4 ? 8 : 4;
  static const u32 SHARE = THREADS / (BLOCKS * LANES), ROWS_EACH = ROWS / SHARE;
};

// Groups of 16 values are 18 apart, to reduce bank conflicts when rows are read.
#define GROUP_PITCH 18
#define BLOCK_PITCH (BLOCK_VALUES / 16 * GROUP_PITCH)
#define SHARED_BYTES (4 * BLOCK_PITCH * 8)

DEVICE u32 reversed(u32 three) { return (three & 1) << 2 | (three & 2) | three >> 2; }

// The position of the first lane's value in a row, and the position of value `i` of the result.
DEVICE u32 place_of_row(u32 row) { return (row % 8 * 8 + reversed(row / 8)) * GROUP_PITCH; }
DEVICE u32 place_of_value(u32 i) { return (i % 8 * 8 + reversed(i / 8 % 8)) * GROUP_PITCH + i / 64; }

template <class T>
DEVICE void sum_lanes(const Job& job, Bytes bases, Bytes deltas, u64 first, Target to, u64* memory, u64* totals) {
  typedef Lanes<T> L;
  const u32 EACH = 16 / sizeof(T);
  u64 blocks = words_of<T>(deltas) / BLOCK_VALUES, n = to.len / sizeof(T);
  if (words_of<T>(bases) / L::LANES < blocks || first >= BLOCK_VALUES || first + n > blocks * BLOCK_VALUES) return;
  T* values = (T*)memory;
  u32 block_index = threadIdx.x / (L::LANES * L::SHARE), share = threadIdx.x / L::LANES % L::SHARE, lane = threadIdx.x % L::LANES;
  bool aligned = is_aligned(deltas, sizeof(T)), to_aligned = ((u64)to.at & (sizeof(T) - 1)) == 0;
  u64 tiles = (first + n + L::BLOCKS * BLOCK_VALUES - 1) / (L::BLOCKS * BLOCK_VALUES);
#pragma unroll 1
  for (u64 tile = job.thread / THREADS; tile < tiles; tile += job.threads / THREADS) {
    u64 block = tile * L::BLOCKS + block_index;
    T sums[L::ROWS_EACH];
    if (block < blocks) {
      u64 begin = block * BLOCK_VALUES + lane;
      if (aligned) {
#pragma unroll
        for (u32 r = 0; r < L::ROWS_EACH; r++) {
          u32 row = share * L::ROWS_EACH + r;
          sums[r] = __ldg((const T*)deltas.at + begin + row % 8 * 128 + reversed(row / 8) * 16);
        }
      } else {
#pragma unroll
        for (u32 r = 0; r < L::ROWS_EACH; r++) {
          u32 row = share * L::ROWS_EACH + r;
          sums[r] = word_at<T>(deltas, begin + row % 8 * 128 + reversed(row / 8) * 16);
        }
      }
#pragma unroll
      for (u32 r = 1; r < L::ROWS_EACH; r++) sums[r] = (T)(sums[r] + sums[r - 1]);
    }
    // Adds the sums of the threads before this one in the same lane.
    if constexpr (L::SHARE > 1) {
      if (block < blocks) totals[threadIdx.x] = sums[L::ROWS_EACH - 1];
      __syncthreads();
    }
    if (block < blocks) {
      T before = word_at<T>(bases, block * L::LANES + lane);
      if constexpr (L::SHARE > 1) {
        for (u32 s = 0; s < share; s++) before = (T)(before + (T)totals[threadIdx.x - (share - s) * L::LANES]);
      }
#pragma unroll
      for (u32 r = 0; r < L::ROWS_EACH; r++) {
        // Lanes from 16 on are in the next groups.
        u32 place = place_of_row(share * L::ROWS_EACH + r) + lane / 16 * GROUP_PITCH + lane % 16;
        values[block_index * BLOCK_PITCH + place] = (T)(sums[r] + before);
      }
    }
    __syncthreads();
    // The range of this tile's values that belong to the target.
    u64 tile_begin = tile * L::BLOCKS * BLOCK_VALUES, end = min64(tile_begin + L::BLOCKS * BLOCK_VALUES, first + n) - first;
    u64 begin = max64(tile_begin, first) - first;
    u32 shift = (u32)(begin + first - tile_begin);
    auto value = [=](u64 o) {
      u32 i = (u32)(o - begin) + shift;
      return values[i / BLOCK_VALUES * BLOCK_PITCH + place_of_value(i % BLOCK_VALUES)];
    };
    u64 head = to_aligned ? min64(end - begin, ((0 - ((u64)to.at + begin * sizeof(T))) & 15) / sizeof(T)) : end - begin;
    u64 vectors = (end - begin - head) / EACH, after = begin + head + vectors * EACH;
#pragma unroll 1
    for (u64 v = threadIdx.x; v < vectors; v += THREADS) {
      u64 at = begin + head + v * EACH;
      T words[EACH];
#pragma unroll
      for (u32 e = 0; e < EACH; e++) words[e] = value(at + e);
      Pair pair;
      memcpy(&pair, words, 16);
      store128(to.at + at * sizeof(T), pair);
    }
#pragma unroll 1
    for (u64 i = threadIdx.x; i < head + (end - after); i += THREADS) {
      u64 at = i < head ? begin + i : after + (i - head);
      put_word(to, at, value(at));
    }
    // Waits until all threads have read the values.
    __syncthreads();
  }
}

KERNEL_BLOCKS(crossdock_sum_lanes, 3) {
  PARAMS(BASES, DELTAS, FIRST, TO, WIDTH);
  __shared__ u64 memory[SHARED_BYTES / 8];
  __shared__ u64 totals[THREADS];
  FIND_JOB;
  Bytes bases = job.read(BASES), deltas = job.read(DELTAS);
  Target to = job.write(TO);
  u64 first = job.value(FIRST);
  switch (job.value(WIDTH)) {
    case 1: return sum_lanes<u8>(job, bases, deltas, first, to, memory, totals);
    case 2: return sum_lanes<u16>(job, bases, deltas, first, to, memory, totals);
    case 4: return sum_lanes<u32>(job, bases, deltas, first, to, memory, totals);
    case 8: return sum_lanes<u64>(job, bases, deltas, first, to, memory, totals);
  }
}
