// Differences in the FastLanes layout: in each block of 1024 the lanes run on from their bases. The values are transposed then,
// so that a lane has neighbours: where value i of a block lies, its rows of 128 and groups of 16 say.
#include "packed.cuh"

template <class T>
struct Lanes {
  static const u32 LANES = LINE_BYTES / sizeof(T), ROWS = 8 * sizeof(T);
  // Blocks that the threads have at once, and threads that share a lane.
  static const u32 BLOCKS = sizeof(T) == 1 ? 2 : sizeof(T) == 4 ? 8 : 4;
  static const u32 SHARE = THREADS / (BLOCKS * LANES), ROWS_EACH = ROWS / SHARE;
};

// Groups of 16 lie 18 apart, so that threads that read rows meet in few banks.
#define GROUP_ROOM 18
#define BLOCK_ROOM (BLOCK_VALUES / 16 * GROUP_ROOM)
#define LANES_BYTES (4 * BLOCK_ROOM * 8)

DEVICE u32 reversed(u32 three) { return (three & 1) << 2 | (three & 2) | three >> 2; }

// Where the first lane's value of a row lies, and where value i of a block does.
DEVICE u32 place_of_row(u32 row) { return (row % 8 * 8 + reversed(row / 8)) * GROUP_ROOM; }
DEVICE u32 place_of_value(u32 i) { return (i % 8 * 8 + reversed(i / 8 % 8)) * GROUP_ROOM + i / 64; }

template <class T>
DEVICE void sum_lanes(const Job& job, Bytes bases, Bytes deltas, u64 first, Target to, u64* memory, u64* totals) {
  typedef Lanes<T> L;
  const u32 EACH = 16 / sizeof(T);
  u64 blocks = words_of<T>(deltas) / BLOCK_VALUES, n = to.len / sizeof(T);
  if (words_of<T>(bases) / L::LANES < blocks || first >= BLOCK_VALUES || first + n > blocks * BLOCK_VALUES) return;
  T* values = (T*)memory;
  u32 own = threadIdx.x / (L::LANES * L::SHARE), share = threadIdx.x / L::LANES % L::SHARE, lane = threadIdx.x % L::LANES;
  bool aligned = is_aligned(deltas, sizeof(T)), whole = ((u64)to.at & (sizeof(T) - 1)) == 0;
  u64 tiles = (first + n + L::BLOCKS * BLOCK_VALUES - 1) / (L::BLOCKS * BLOCK_VALUES);
#pragma unroll 1
  for (u64 tile = job.thread / THREADS; tile < tiles; tile += job.threads / THREADS) {
    u64 block = tile * L::BLOCKS + own;
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
    // What those before this one have of the same lane comes first.
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
        // Lanes beyond 16 lie in the groups that follow.
        u32 place = place_of_row(share * L::ROWS_EACH + r) + lane / 16 * GROUP_ROOM + lane % 16;
        values[own * BLOCK_ROOM + place] = (T)(sums[r] + before);
      }
    }
    __syncthreads();
    // The values that are asked for, of those that are here.
    u64 here = tile * L::BLOCKS * BLOCK_VALUES, end = min64(here + L::BLOCKS * BLOCK_VALUES, first + n) - first;
    u64 begin = max64(here, first) - first;
    u32 shift = (u32)(begin + first - here);
    auto value = [=](u64 o) {
      u32 i = (u32)(o - begin) + shift;
      return values[i / BLOCK_VALUES * BLOCK_ROOM + place_of_value(i % BLOCK_VALUES)];
    };
    u64 head = whole ? min64(end - begin, ((0 - ((u64)to.at + begin * sizeof(T))) & 15) / sizeof(T)) : end - begin;
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
    // Until all have read them.
    __syncthreads();
  }
}

KERNEL_BLOCKS(crossdock_sum_lanes, 3) {
  PARAMS(BASES, DELTAS, FIRST, TO, WIDTH);
  __shared__ u64 memory[LANES_BYTES / 8];
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
