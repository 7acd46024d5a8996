// Bit-packed integers in the FastLanes layout, in blocks of 1024 values.
//
// A packed block is `bits` rows of 128 bytes; a row has one word of each lane. An unpacked block
// consists of lines of 128 bytes; a line has one value of each lane. A warp unpacks one block while
// it copies the rows of its next block to shared memory. Eight threads unpack one line. Lines are
// unpacked in their order, so that all memory accesses are sequential.
#pragma once
#include "steps.cuh"

#define BLOCK_VALUES 1024
#define LINE_BYTES 128
#define LINE_THREADS 8
#define LINES_AT_ONCE (32 / LINE_THREADS)

// Copies 16 bytes to shared memory. A later `wait_for_copies` of the same thread waits for the
// copy.
DEVICE void copy_async(u8* to, const u8* from) {
#if defined(EMULATED) || __CUDA_ARCH__ < 800
  Pair pair = aligned128(from);
  memcpy(to, &pair, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#endif
}

// Closes a group of copies: all copies that this thread started since the last call.
DEVICE void close_copies() {
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all closed groups except the last one.
DEVICE void wait_for_copies() {
#if !defined(EMULATED) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// The `bits` lowest bits.
template <class T>
DEVICE T low_mask(u32 bits) {
  return bits >= sizeof(T) * 8 ? (T)-1 : (T)(((T)1 << bits) - 1);
}

// The values of a line have the same index in their lanes. Returns this index. Groups of eight
// lines are in bit-reversed order.
template <class T>
DEVICE u32 index_of_line(u32 line) {
  const u32 GROUPS = sizeof(T), EACH = 8 / GROUPS;
  u32 order = line % GROUPS * EACH;
  return ((order & 1) << 2 | (order & 2) | order >> 2) * 8 + line / GROUPS;
}

// The sequence of blocks that a warp unpacks. With IN_A_ROW, these blocks are adjacent. Otherwise
// blocks are assigned to the warps in turn, so that concurrent accesses are adjacent.
template <bool IN_A_ROW>
struct Blocks {
  const u8* packed;
  u32 bits;
  // Bytes per packed block.
  u32 size;
  // The current block, the distance to the next one, and the exclusive end.
  u64 at;
  u64 stride;
  u64 end;
  // The rows of two blocks in shared memory, and the index (0 or 1) of the current block's rows.
  u8* rows;
  u32 slot;
  bool aligned;

  // Assigns `n` blocks to the warps. `shared_bytes` is the size of the shared memory for all warps.
  // If it is too small for all warps, the remaining warps get no blocks.
  __device__ __forceinline__ Blocks(const Job& job, Bytes from, u32 bits_each, u64 n, u8* shared, u32 shared_bytes) {
    packed = from.at;
    bits = bits_each;
    size = bits * LINE_BYTES;
    u32 max_warps = size == 0 ? THREADS / 32 : shared_bytes / (2 * size), warp = threadIdx.x / 32;
    u32 warps = max_warps < THREADS / 32 ? max_warps : THREADS / 32;
    u64 all = job.threads / THREADS * warps, each = (n + all - 1) / all;
    at = job.thread / THREADS * warps + warp;
    if (IN_A_ROW) at *= each;
    stride = IN_A_ROW ? 1 : all;
    end = warp >= warps ? 0 : IN_A_ROW ? min64(n, at + each) : n;
    rows = shared + warp * 2 * size;
    slot = 0;
    aligned = ((u64)packed & 15) == 0;
    fetch(at, slot);
  }

  // Starts to copy the rows of a block. All threads of the warp must call this. If `block` is not
  // below `end`, nothing is copied.
  __device__ __forceinline__ void fetch(u64 block, u32 to_slot) const {
    const u8* from = packed + block * size;
    u8* to = rows + to_slot * size;
    for (u32 i = threadIdx.x % 32 * 16; block < end && i < size; i += 32 * 16) {
      if (aligned) {
        copy_async(to + i, from + i);
      } else {
        Pair pair = {bytewise(from + i, 8), bytewise(from + i + 8, 8)};
        memcpy(to + i, &pair, 16);
      }
    }
    close_copies();
  }

  __device__ __forceinline__ u64 next() const { return at + (IN_A_ROW ? 1 : stride); }

  __device__ __forceinline__ void fetch_next() const { fetch(next(), slot ^ 1); }

  // Waits until the rows of the current block have been copied.
  __device__ __forceinline__ void wait() const {
    wait_for_copies();
    __syncwarp();
  }

  // Moves to the next block, after all threads have read the rows of the current one.
  __device__ __forceinline__ void advance() {
    __syncwarp();
    at = next();
    slot ^= 1;
  }

  // Unpacks this thread's 16 bytes of a line of the current block. If values have less than 4
  // bytes, those of several lanes are shifted together. Bits that enter from the adjacent lane are
  // masked.
  template <class T>
  __device__ __forceinline__ void values_of(u32 line, Register<T>* values) const {
    const u32 BITS = sizeof(T) * 8, WORDS = 16 / sizeof(Register<T>);
    u32 bit = index_of_line<T>(line) * bits, row = bit / BITS, shift = bit % BITS;
    const u8* column = rows + slot * size + threadIdx.x % LINE_THREADS * 16;
    Register<T> low[WORDS], high[WORDS];
    memcpy(low, __builtin_assume_aligned(column + row * LINE_BYTES, 16), 16);
    memcpy(high, __builtin_assume_aligned(column + (row + 1 < bits ? row + 1 : row) * LINE_BYTES, 16), 16);
    T all = low_mask<T>(bits), low_bits = low_mask<T>(BITS - shift);
    Register<T> from_low = in_each<T>((T)(all & low_bits)), from_high = in_each<T>((T)(all & ~low_bits));
    // Shifts in two steps, because a shift by the width of a register is undefined.
#pragma unroll
    for (u32 w = 0; w < WORDS; w++) {
      values[w] = (low[w] >> shift & from_low) | ((high[w] << 1) << (BITS - 1 - shift) & from_high);
    }
  }
};

// The number of blocks that contain `n` values, if the values begin at value `first` of a block.
DEVICE u64 blocks_of(u64 first, u64 n) { return n == 0 ? 0 : (first + n - 1) / BLOCK_VALUES + 1; }
