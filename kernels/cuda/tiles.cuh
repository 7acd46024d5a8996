// Copies tensors whose units are adjacent in a dimension that is not the last one. A block copies
// tiles. A tile is read along this dimension and written along the last dimension. plan.cuh
// explains units and words.
#pragma once

#include "plan.cuh"

// Transposes P words of 4 bytes and P units. A unit is one byte if P is 4, and two bytes if P is 2.
template <u32 P>
DEVICE void transpose_halves(u32* words) {
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

// Transposes P words of P units. If words have 8 bytes, each quarter of the matrix is transposed
// separately.
template <u32 P, class W>
DEVICE void transpose(W* words) {
  if constexpr (P > 1 && sizeof(W) == 4) transpose_halves<P>(words);
  if constexpr (P > 1 && sizeof(W) == 8) {
    const u32 H = P / 2;
    u32 quarters[2][2][H];
#pragma unroll
    for (u32 p = 0; p < P; p++) {
      quarters[p / H][0][p % H] = (u32)words[p];
      quarters[p / H][1][p % H] = (u32)(words[p] >> 32);
    }
#pragma unroll
    for (u32 q = 0; q < 4; q++) transpose_halves<H>(quarters[q / 2][q % 2]);
#pragma unroll
    for (u32 p = 0; p < P; p++) words[p] = quarters[0][p / H][p % H] | (u64)quarters[1][p / H][p % H] << 32;
  }
}

// The position of the block's tile. One thread computes it, so that the others have more registers
// for data.
struct Tile {
  // The index of the next tile.
  u64 index;
  const u8* source;
  u8* target;
  // The number of words along each dimension; `wide` is 0 if there are no more tiles.
  u32 wide;
  u32 high;
};

// The size of the largest tile: words of 8 bytes with 8 units.
#define TILE_BYTES (8 * 32 * 17 * 8)

// Shared memory of a block. Code calls a function instead of passing a pointer, so that the
// compiler knows the address space.
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

// Finds the block's next tile, with at most the given number of units along each dimension. Tiles
// are numbered along the rows of the target and are assigned to the blocks in turn, so that
// concurrent blocks write adjacent rows.
static __device__ __noinline__ void next_tile(u32 wide, u32 high) {
  const Plan& plan = shared().plan;
  Tile& tile = shared().tile;
  u32 last = plan.n - 1, shift = __ffs(plan.pack) - 1;
  u64 across = tiles_of(plan.sizes[plan.fast], wide), along = tiles_of(plan.sizes[last], high);
  tile.wide = 0;
  // Most blocks have only one tile, and return before the division.
  if (tile.index >= across * along * plan.planes) return;
  u64 row = quotient(tile.index, along, plan.small), plane = quotient(row, across, plan.small);
  u64 l = (tile.index - row * along) * high, a = (row - plane * across) * wide;
  tile.index += plan.blocks;
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

// T is the type of loads and stores, and has P units. W is the type of the words in the tile. A
// tile has WIDE words along the dimension of loads and HIGH words along the dimension of stores.
// Not inlined, so that the compiler allocates registers for each instance separately.
template <class T, class W, u32 P, u32 WIDE, u32 HIGH>
static __device__ __noinline__ void gather_tiles() {
  // READ is the number of rows that the block loads at once, WRITTEN the number that it stores at
  // once.
  const u32 READ = THREADS / WIDE, WRITTEN = THREADS / HIGH;
  // The number of matrices of P * P units that a thread loads at once. They have 64 bytes in total,
  // or 32 bytes if P == 2, because a thread then has too few registers for 64 bytes.
  const u32 AT_ONCE = (P == 2 ? 32 : 64) / (P * sizeof(W));
  static_assert(HIGH / READ % AT_ONCE == 0 && WRITTEN % P == 0, "all threads move alike");
  // The distance between rows of the tile, in words. It is one more than the words of a row, to
  // avoid bank conflicts in both directions.
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
      i64 stride = plan.strides[plan.n - 1], gap = (i64)((READ - 1) * P) * stride;
      const u8* source = next.source + x * sizeof(T) + (i64)(y * P) * stride;
#pragma unroll 1
      for (u32 begin = 0; begin < HIGH; begin += AT_ONCE * READ) {
        W words[AT_ONCE][P];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
          bool is_valid = x < wide && begin + y + k * READ < high;
#pragma unroll
          for (u32 p = 0; p < P; p++) {
            if (is_valid) words[k][p] = __ldg((const T*)source);
            source += stride;
          }
          source += gap;
        }
        // Waits until the previous tile has been written, and the position of this one is known.
        if (begin == 0) __syncthreads();
        // Row p * WIDE + x of the tile has unit x * P + p of the fast dimension.
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
          transpose<P>(words[k]);
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

// Tiles have 32 KiB if words have 8 bytes or more; the launcher assumes this size. Rows have at
// least 256 bytes, or 128 bytes for units of 1 byte.
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
