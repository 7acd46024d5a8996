// Bit-packed integers in the FastLanes layout, with what is to be done to each value in the same pass.
//
// A block of 1024 values is `bits` rows of 128 bytes, in each a word of every lane; its values are rows of 128 bytes too. So
// eight threads with 16 bytes of each row unpack a block, whatever the width of its words, and every load and store is of
// whole lines. All lanes of all blocks shift by the same: nothing that depends on `bits` differs between threads.
#include "steps.cuh"

#define BLOCK_VALUES 1024
#define ROW_BYTES 128
#define ROW_THREADS 8

// Of a row of values: where in its block they begin, in values.
DEVICE u32 first_of_row(u32 row) {
  // The order of groups of eight rows is that of their numbers' bits, reversed.
  u32 group = row >> 3;
  u32 order = (group & 1) << 2 | (group & 2) | group >> 2;
  return order * 16 + (row & 7) * 128;
}

// The same bits in every value of a word.
template <class T>
DEVICE Register<T> in_each(T bits) {
  Register<T> word = 0;
  each_value<T>(word, [=](T) { return bits; });
  return word;
}

// So many of the lowest bits.
template <class T>
DEVICE T lowest(u32 bits) {
  return bits >= sizeof(T) * 8 ? (T)-1 : (T)(((T)1 << bits) - 1);
}

// A lane's bits in order, for all lanes of 16 bytes: the word that the next value begins in, and the one after it, which is
// under way before it is needed. Lanes of less than 4 bytes are shifted together, and what comes from the lane beside is
// masked.
template <class T>
struct Lanes {
  static const u32 BITS = sizeof(T) * 8, WORDS = 16 / sizeof(Register<T>);
  const u8* next_row;
  u32 rows_left;
  u32 at;
  bool aligned;
  Register<T> now[WORDS];
  Register<T> next[WORDS];

  __device__ __forceinline__ void load() {
    if (rows_left == 0) return;
    Pair pair = aligned ? aligned128(next_row) : Pair{bytewise(next_row, 8), bytewise(next_row + 8, 8)};
    memcpy(next, &pair, 16);
    next_row += ROW_BYTES;
    rows_left--;
  }

  __device__ __forceinline__ void advance() {
#pragma unroll
    for (u32 w = 0; w < WORDS; w++) now[w] = next[w];
    load();
  }

  __device__ __forceinline__ void begin(const u8* block, u32 bits) {
    next_row = block;
    rows_left = bits;
    at = 0;
    aligned = ((u64)block & 15) == 0;
#pragma unroll
    for (u32 w = 0; w < WORDS; w++) next[w] = 0;
    load();
    advance();
  }

  // The next value of each lane.
  __device__ __forceinline__ void take(u32 bits, Register<T>* values) {
    u32 end = at + bits, here = BITS - at;
    Register<T> mask = in_each<T>(lowest<T>(end > BITS ? here : bits));
#pragma unroll
    for (u32 w = 0; w < WORDS; w++) values[w] = now[w] >> at & mask;
    if (end > BITS) {
      mask = in_each<T>((T)(lowest<T>(bits) ^ lowest<T>(here)));
#pragma unroll
      for (u32 w = 0; w < WORDS; w++) values[w] |= next[w] << here & mask;
    }
    at = end;
    if (end >= BITS) {
      at = end - BITS;
      advance();
    }
  }
};

// Rows that are worked on together: as many as registers hold.
#define ROWS_AT_ONCE 8

// All rows of a block are under way to the second cache before the first is waited for; its eight threads share them.
DEVICE void fetch_block(const u8* block, u32 bits, u32 column) {
#ifndef EMULATED
#pragma unroll 1
  for (u32 row = column; row < bits; row += ROW_THREADS) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(block + row * ROW_BYTES));
  }
#endif
}

template <class T>
DEVICE void unpack(const Job& job, u32 steps, Bytes packed, u32 bits, u64 first, Target to) {
  const u32 BITS = sizeof(T) * 8, EACH = 16 / sizeof(T), WORDS = 16 / sizeof(Register<T>), ROWS = ROWS_AT_ONCE;
  u64 n = to.len / sizeof(T), blocks = n == 0 ? 0 : (first + n - 1) / BLOCK_VALUES + 1;
  // There are as many blocks as that, or nothing is done: a launcher gives no fewer.
  if (first >= BLOCK_VALUES || bits > BITS || packed.len / ROW_BYTES < blocks * bits) return;
  u32 column = (u32)job.thread % ROW_THREADS;
  bool whole = (((u64)to.at - first * sizeof(T)) & 15) == 0;
#pragma unroll 1
  for (u64 b = job.thread / ROW_THREADS; b < blocks; b += job.threads / ROW_THREADS) {
    fetch_block(packed.at + b * bits * ROW_BYTES, bits, column);
    Lanes<T> lanes;
    lanes.begin(packed.at + b * bits * ROW_BYTES + column * 16, bits);
    // Of the block's first value in the target; it may lie before it.
    u64 begin = b * BLOCK_VALUES - first;
    bool inside = whole && b * BLOCK_VALUES >= first && begin + BLOCK_VALUES <= n;
    u8* place = to.at + begin * sizeof(T);
#pragma unroll 1
    for (u32 row = 0; row < BITS; row += ROWS) {
      Register<T> values[ROWS * WORDS];
#pragma unroll
      for (u32 r = 0; r < ROWS; r++) lanes.take(bits, values + r * WORDS);
      take_steps<T>(job, steps, values);
#pragma unroll
      for (u32 r = 0; r < ROWS; r++) {
        u32 at = first_of_row(row + r) + column * EACH;
        if (inside) {
          Pair pair;
          memcpy(&pair, values + r * WORDS, 16);
          store128(place + at * sizeof(T), pair);
        } else {
#pragma unroll
          for (u32 e = 0; e < EACH; e++) {
            u64 i = begin + at + e;
            Register<T> word = values[r * WORDS + e / (EACH / WORDS)];
            if (b * BLOCK_VALUES + at + e < first || i >= n) continue;
            put_word(to, i, (T)(word >> e % (EACH / WORDS) * BITS % (sizeof(word) * 8)));
          }
        }
      }
    }
  }
}

KERNEL(crossdock_unpack) {
  PARAMS(PACKED, BITS, FIRST, TO, WIDTH, STEPS);
  FIND_JOB;
  Bytes packed = job.read(PACKED);
  Target to = job.write(TO);
  u64 bits = job.value(BITS), first = job.value(FIRST);
  if (bits > 64) return;
  switch (job.value(WIDTH)) {
    case 1: return unpack<u8>(job, STEPS, packed, (u32)bits, first, to);
    case 2: return unpack<u16>(job, STEPS, packed, (u32)bits, first, to);
    case 4: return unpack<u32>(job, STEPS, packed, (u32)bits, first, to);
    case 8: return unpack<u64>(job, STEPS, packed, (u32)bits, first, to);
  }
}
