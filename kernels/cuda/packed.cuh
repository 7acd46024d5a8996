// Bit-packed integers in the FastLanes layout, a block of 1024 values at a time.
//
// A block is `bits` rows of 128 bytes, in each a word of every lane, and the values with one number in all lanes are a line
// of 128 bytes of values. A warp works on one block while the rows of its next one come into shared memory, and takes lines in
// their order, eight threads a line: then all that is read and written goes by in order, which is what the memory likes.
#pragma once
#include "steps.cuh"

#define BLOCK_VALUES 1024
#define LINE_BYTES 128
#define LINE_THREADS 8
#define LINES_AT_ONCE (32 / LINE_THREADS)

// 16 bytes for shared memory, which a later `copies_wait` of the same thread waits for.
DEVICE void copy_async(u8* to, const u8* from) {
#if defined(EMULATED) || __CUDA_ARCH__ < 800
  Pair pair = aligned128(from);
  memcpy(to, &pair, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#endif
}

// Those that were begun since the last one are a group.
DEVICE void copies_end() {
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// All groups but the last are there.
DEVICE void copies_wait() {
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// So many of the lowest bits.
template <class T>
DEVICE T lowest(u32 bits) {
  return bits >= sizeof(T) * 8 ? (T)-1 : (T)(((T)1 << bits) - 1);
}

// Which of its lanes' values a line has: groups of eight lie in the order of their numbers' three bits, reversed.
template <class T>
DEVICE u32 number_of_line(u32 line) {
  const u32 GROUPS = sizeof(T), EACH = 8 / GROUPS;
  u32 order = line % GROUPS * EACH;
  return ((order & 1) << 2 | (order & 2) | order >> 2) * 8 + line / GROUPS;
}

// A warp's way through its share of a job's blocks. Warps take turns, so that all together go by in order, or have IN_A_ROW
// what is theirs.
template <bool IN_A_ROW>
struct Blocks {
  const u8* packed;
  u32 bits;
  // Of a block, in bytes.
  u32 size;
  // The one that is worked on, how many warps take turns, and where there are no more.
  u64 at;
  u64 turns;
  u64 end;
  // Where the rows of two are held, and which of the two places is that of `at`.
  u8* held;
  u32 place;
  bool aligned;

  // Of `n`, with so many bytes of shared memory for all warps of a block of threads; one for which they leave no room gets no
  // blocks.
  __device__ __forceinline__ Blocks(const Job& job, Bytes from, u32 bits_each, u64 n, u8* shared, u32 shared_bytes) {
    packed = from.at;
    bits = bits_each;
    size = bits * LINE_BYTES;
    u32 room = size == 0 ? THREADS / 32 : shared_bytes / (2 * size), warp = threadIdx.x / 32;
    u32 warps = room < THREADS / 32 ? room : THREADS / 32;
    u64 all = job.threads / THREADS * warps, each = (n + all - 1) / all;
    at = job.thread / THREADS * warps + warp;
    if (IN_A_ROW) at *= each;
    turns = IN_A_ROW ? 1 : all;
    end = warp >= warps ? 0 : IN_A_ROW ? min64(n, at + each) : n;
    held = shared + warp * 2 * size;
    place = 0;
    aligned = ((u64)packed & 15) == 0;
    fetch(at, place);
  }

  // Every thread of the warp calls this, also for a block that there is not.
  __device__ __forceinline__ void fetch(u64 block, u32 to_place) const {
    const u8* from = packed + block * size;
    u8* to = held + to_place * size;
    for (u32 i = threadIdx.x % 32 * 16; block < end && i < size; i += 32 * 16) {
      if (aligned) {
        copy_async(to + i, from + i);
      } else {
        Pair pair = {bytewise(from + i, 8), bytewise(from + i + 8, 8)};
        memcpy(to + i, &pair, 16);
      }
    }
    copies_end();
  }

  __device__ __forceinline__ u64 next() const { return at + (IN_A_ROW ? 1 : turns); }

  __device__ __forceinline__ void fetch_next() const { fetch(next(), place ^ 1); }

  // The rows of `at` are here.
  __device__ __forceinline__ void wait() const {
    copies_wait();
    __syncwarp();
  }

  // Nobody reads the rows of `at` any more.
  __device__ __forceinline__ void advance() {
    __syncwarp();
    at = next();
    place ^= 1;
  }

  // Of a line of `at`, this thread's 16 bytes of values. Lanes of less than 4 bytes are shifted together, and what comes from
  // the lane beside is masked.
  template <class T>
  __device__ __forceinline__ void values_of(u32 line, Register<T>* values) const {
    const u32 BITS = sizeof(T) * 8, WORDS = 16 / sizeof(Register<T>);
    u32 bit = number_of_line<T>(line) * bits, row = bit / BITS, shift = bit % BITS;
    const u8* column = held + place * size + threadIdx.x % LINE_THREADS * 16;
    Register<T> low[WORDS], high[WORDS];
    memcpy(low, __builtin_assume_aligned(column + row * LINE_BYTES, 16), 16);
    memcpy(high, __builtin_assume_aligned(column + (row + 1 < bits ? row + 1 : row) * LINE_BYTES, 16), 16);
    T all = lowest<T>(bits), here = lowest<T>(BITS - shift);
    Register<T> from_low = in_each<T>((T)(all & here)), from_high = in_each<T>((T)(all & ~here));
    // Nothing is shifted by a whole register.
#pragma unroll
    for (u32 w = 0; w < WORDS; w++) {
      values[w] = (low[w] >> shift & from_low) | ((high[w] << 1) << (BITS - 1 - shift) & from_high);
    }
  }
};

// Blocks that hold `n` values from value `first` of the first on.
DEVICE u64 blocks_of(u64 first, u64 n) { return n == 0 ? 0 : (first + n - 1) / BLOCK_VALUES + 1; }
