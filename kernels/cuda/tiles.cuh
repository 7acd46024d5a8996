// Tensors whose last dimension is another than that along which their units lie: by tiles, read along the one and written
// along the other.
#pragma once

#include "plan.cuh"

// Bytes, or pairs of bytes, change places between words: what was the p-th of word q becomes the q-th of word p.
template <u32 P>
DEVICE void turn_halves(u32* words) {
  if constexpr (P == 2) {
    u32 a = words[0], b = words[1];
    words[0] = __byte_perm(a, b, 0x5410);
    words[1] = __byte_perm(a, b, 0x7632);
  }
  if constexpr (P == 4) {
    u32 ab = __byte_perm(words[0], words[1], 0x5140), cd = __byte_perm(words[2], words[3], 0x5140);
    u32 ef = __byte_perm(words[0], words[1], 0x7362), gh = __byte_perm(words[2], words[3], 0x7362);
    words[0] = __byte_perm(ab, cd, 0x5410);
    words[1] = __byte_perm(ab, cd, 0x7632);
    words[2] = __byte_perm(ef, gh, 0x5410);
    words[3] = __byte_perm(ef, gh, 0x7632);
  }
}

// The same of words of any width, by the four quarters of what they are together.
template <u32 P, class W>
DEVICE void turn(W* words) {
  if constexpr (P > 1 && sizeof(W) == 4) turn_halves<P>(words);
  if constexpr (P > 1 && sizeof(W) == 8) {
    const u32 H = P / 2;
    u32 quarters[2][2][H];
#pragma unroll
    for (u32 p = 0; p < P; p++) {
      quarters[p / H][0][p % H] = (u32)words[p];
      quarters[p / H][1][p % H] = (u32)(words[p] >> 32);
    }
#pragma unroll
    for (u32 q = 0; q < 4; q++) turn_halves<H>(quarters[q / 2][q % 2]);
#pragma unroll
    for (u32 p = 0; p < P; p++) words[p] = quarters[0][p / H][p % H] | (u64)quarters[1][p / H][p % H] << 32;
  }
}

// Where the block's tile lies. One thread goes from tile to tile; the others have their registers for what they move.
struct Tile {
  // The one that comes next.
  u64 number;
  const u8* source;
  u8* target;
  // Words of it along either dimension; no words where there is no tile left.
  u32 wide;
  u32 high;
};

// The largest, of words of 8 bytes with 8 units.
#define TILE_BYTES (8 * 32 * 17 * 8)

// What the threads of a block share. By this function and no pointer, so that the compiler knows that it is shared memory.
struct Shared {
  Plan plan;
  Tile tile;
  ulonglong2 words[TILE_BYTES / 16];
};
DEVICE Shared& shared() {
  __shared__ Shared memory;
  return memory;
}

DEVICE u64 tiles_of(u64 units, u32 side) { return (units + side - 1) >> (__ffs(side) - 1); }

// The block's next tile, of at most so many units along either dimension. Tiles are counted along the target's rows, and
// blocks take turns: so those that run at the same time write whole rows, whatever they skip in the source.
static __device__ __noinline__ void next_tile(u32 wide, u32 high) {
  const Plan& plan = shared().plan;
  Tile& tile = shared().tile;
  u32 last = plan.n - 1, shift = __ffs(plan.pack) - 1;
  u64 across = tiles_of(plan.sizes[plan.fast], wide), along = tiles_of(plan.sizes[last], high);
  tile.wide = 0;
  // Most blocks have one tile only: they are not to wait for a division.
  if (tile.number >= across * along * plan.planes) return;
  u64 row = quotient(tile.number, along, plan.small), plane = quotient(row, across, plan.small);
  u64 l = (tile.number - row * along) * high, a = (row - plane * across) * wide;
  tile.number += plan.blocks;
  const u8* from = plan.from + a * plan.unit + (i64)l * plan.strides[last];
  u8* to = plan.to + l * plan.unit + a * plan.steps[plan.fast];
#pragma unroll 1
  for (u32 d = last; d-- > 0;) {
    if (d == plan.fast) continue;
    u64 above = quotient(plane, plan.sizes[d], plan.small);
    u64 digit = plane - above * plan.sizes[d];
    plane = above;
    from += (i64)digit * plan.strides[d];
    to += digit * plan.steps[d];
  }
  tile.source = from;
  tile.target = to;
  tile.wide = (u32)min64(wide, plan.sizes[plan.fast] - a) >> shift;
  tile.high = (u32)min64(high, plan.sizes[last] - l) >> shift;
}

// T: what is read and written as one, of P units. W: what it is within the tile, which is WIDE words wide where it is read
// and HIGH where it is written. Not inlined, so that the compiler has registers for one of them, not for what it finds common
// to all.
template <class T, class W, u32 P, u32 WIDE, u32 HIGH>
static __device__ __noinline__ void gather_tiles() {
  // Rows of words that the block reads at once, and rows that it writes.
  const u32 READ = THREADS / WIDE, WRITTEN = THREADS / HIGH;
  // Blocks of P words by P that a thread reads at once: 64 bytes, half of that where else it would run out of registers.
  const u32 AT_ONCE = (P == 2 ? 32 : 64) / (P * sizeof(W));
  static_assert(HIGH / READ % AT_ONCE == 0 && WRITTEN % P == 0, "all threads move alike");
  // One more than there are words, so that neither way two lanes meet in one bank.
  const u32 PITCH = HIGH + 1;
  static_assert(P * WIDE * PITCH * sizeof(W) <= TILE_BYTES, "a tile has room");
  W* tile = (W*)shared().words;
  const Plan& plan = shared().plan;
  const Tile& next = shared().tile;
  if (threadIdx.x == 0) next_tile(WIDE * P, HIGH * P);
  __syncthreads();
#pragma unroll 1
  while (next.wide != 0) {
    u32 wide = next.wide, high = next.high;
    u8* target = next.target;
    {
      u32 x = threadIdx.x % WIDE, y = threadIdx.x / WIDE;
      i64 stride = plan.strides[plan.n - 1], past = (i64)((READ - 1) * P) * stride;
      const u8* source = next.source + x * sizeof(T) + (i64)(y * P) * stride;
#pragma unroll 1
      for (u32 begin = 0; begin < HIGH; begin += AT_ONCE * READ) {
        W words[AT_ONCE][P];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
          bool there = x < wide && begin + y + k * READ < high;
#pragma unroll
          for (u32 p = 0; p < P; p++) {
            if (there) words[k][p] = __ldg((const T*)source);
            source += stride;
          }
          source += past;
        }
        // The tile before has been written, and all know where this one lies.
        if (begin == 0) __syncthreads();
        // Row p * WIDE + x of the tile has what lies at unit x * P + p of the fast dimension.
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
          turn<P>(words[k]);
#pragma unroll
          for (u32 p = 0; p < P; p++) tile[(p * WIDE + x) * PITCH + begin + y + k * READ] = words[k][p];
        }
      }
    }
    if (threadIdx.x == 0) next_tile(WIDE * P, HIGH * P);
    __syncthreads();
    u32 x = threadIdx.x % HIGH, y = threadIdx.x / HIGH;
    u64 step = plan.steps[plan.fast];
    target += x * sizeof(T) + y * step;
    const W* row = tile + (y % P * WIDE + y / P) * PITCH + x;
#pragma unroll 16
    for (u32 begin = 0; begin < WIDE * P; begin += WRITTEN) {
      if (x < high && begin + y < wide * P) store((T*)target, (T)row[begin / P * PITCH]);
      target += WRITTEN * step;
    }
  }
}

// Tiles of 32 KiB, as the launcher counts them, where words are of 8 bytes or more; with rows of 256 bytes at least, or of
// 128 for units of 1, of which eight by eight are one block.
DEVICE void gather_by_tiles() {
  const Plan& plan = shared().plan;
  u32 word = plan.unit * plan.pack;
  switch (plan.unit) {
    case 1:
      if (word == 8) return gather_tiles<u64, u64, 8, 32, 16>();
      if (word == 4) return gather_tiles<u32, u32, 4, 32, 32>();
      return gather_tiles<u8, u32, 1, 64, 64>();
    case 2:
      if (word == 8) return gather_tiles<u64, u64, 4, 32, 32>();
      if (word == 4) return gather_tiles<u32, u32, 2, 64, 64>();
      return gather_tiles<u16, u32, 1, 64, 64>();
    case 4:
      if (word == 8) return gather_tiles<u64, u64, 2, 64, 32>();
      return gather_tiles<u32, u32, 1, 64, 64>();
    case 8: return gather_tiles<u64, u64, 1, 64, 64>();
    default: return gather_tiles<ulonglong2, ulonglong2, 1, 64, 32>();
  }
}
