// Tensors whose last dimension is another than that along which their units lie: by tiles, read along the one and written
// along the other.
#pragma once

#include "plan.cuh"

#define TILE_BYTES (128 * 65 * 4)

// Bytes, or pairs of bytes, change places between words: what was the p-th of word q becomes the q-th of word p.
template <u32 P, class T>
DEVICE void swap_within(T* words) {
  if constexpr (P == 2) {
    T a = words[0], b = words[1];
    words[0] = __byte_perm(a, b, 0x5410);
    words[1] = __byte_perm(a, b, 0x7632);
  }
  if constexpr (P == 4) {
    T ab = __byte_perm(words[0], words[1], 0x5140), cd = __byte_perm(words[2], words[3], 0x5140);
    T ef = __byte_perm(words[0], words[1], 0x7362), gh = __byte_perm(words[2], words[3], 0x7362);
    words[0] = __byte_perm(ab, cd, 0x5410);
    words[1] = __byte_perm(ab, cd, 0x7632);
    words[2] = __byte_perm(ef, gh, 0x5410);
    words[3] = __byte_perm(ef, gh, 0x7632);
  }
}

// Where the block's tile lies. One thread goes from tile to tile; the others have their registers for what they move.
struct Corner {
  // Tiles left, this one included.
  u64 left;
  // The tile's first unit along either dimension, and the plane in which it lies.
  u64 a;
  u64 l;
  u64 plane;
  const u8* plane_source;
  u8* plane_target;
  const u8* source;
  u8* target;
  // Words of the tile along either dimension.
  u32 wide;
  u32 high;
};

// Where a plane lies: by the dimensions that are not those of a tile.
DEVICE void enter_plane(const Plan& plan, const u8* from, u8* to, Corner& corner) {
  u64 rest = corner.plane;
#pragma unroll 1
  for (u32 d = plan.n - 1; d-- > 0;) {
    if (d == plan.fast) continue;
    u64 above = quotient(rest, plan.sizes[d], plan.small);
    u64 digit = rest - above * plan.sizes[d];
    rest = above;
    from += (i64)digit * plan.strides[d];
    to += digit * plan.steps[d] * plan.unit;
  }
  corner.plane_source = from;
  corner.plane_target = to;
}

DEVICE void enter_tile(const Plan& plan, Corner& corner) {
  u32 last = plan.n - 1, side = plan.side, shift = __ffs(plan.pack) - 1;
  corner.source = corner.plane_source + corner.a * plan.unit + (i64)corner.l * plan.strides[last];
  corner.target = corner.plane_target + (corner.l + corner.a * plan.steps[plan.fast]) * plan.unit;
  corner.wide = (u32)min64(side, plan.sizes[plan.fast] - corner.a) >> shift;
  corner.high = (u32)min64(plan.side, plan.sizes[last] - corner.l) >> shift;
}

// The first tile of a block: it goes through tiles in a row, so that what it reads and what it writes lies on few pages.
static __device__ __noinline__ void first_tile(const Plan& plan, u64 block, const u8* from, u8* to, Corner& corner) {
  u64 t = block * plan.tiles_each;
  corner.left = t < plan.tiles ? min64(plan.tiles_each, plan.tiles - t) : 0;
  if (corner.left == 0) return;
  u64 row = quotient(t, plan.across, plan.small);
  corner.plane = quotient(row, plan.along, plan.small);
  corner.a = (t - row * plan.across) * plan.side;
  corner.l = (row - corner.plane * plan.along) * plan.side;
  enter_plane(plan, from, to, corner);
  enter_tile(plan, corner);
}

static __device__ __noinline__ void next_tile(const Plan& plan, const u8* from, u8* to, Corner& corner) {
  if (--corner.left == 0) return;
  corner.a += plan.side;
  if (corner.a >= plan.sizes[plan.fast]) {
    corner.a = 0;
    corner.l += plan.side;
    if (corner.l >= plan.sizes[plan.n - 1]) {
      corner.l = 0;
      corner.plane++;
      enter_plane(plan, from, to, corner);
    }
  }
  enter_tile(plan, corner);
}

// T: what is read and written as one, of P units. W: what it is within the tile. Each thread has 64 bytes of what it reads
// under way at once. Rows are of 256 bytes where a tile has room: of an H200's copy rate that gives 87 % to 89 % for units of
// 4 to 16 bytes and 80 % for those of 2; rows of 128 bytes give those of 1 74 %. Not inlined, so that the compiler has
// registers for one of them, not for what it finds common to all.
template <class T, class W, u32 P, u32 SIDE>
static __device__ __noinline__ void gather_tiles(const Plan& plan, Corner& corner, const u8* from, u8* to, void* memory) {
  const u32 UNIT = sizeof(T) / P, WORDS = SIDE / P, STEP = THREADS / WORDS;
  // Blocks of P words by P that a thread moves at once.
  const u32 AT_ONCE = 64 / (P * sizeof(W));
  static_assert(WORDS / STEP % AT_ONCE == 0, "all threads move alike");
  // One more than there are words, so that neither way two lanes meet in one bank.
  const u32 PITCH = WORDS + 1;
  static_assert(SIDE * PITCH * sizeof(W) <= TILE_BYTES, "a tile has room");
  W* tile = (W*)memory;
  u32 x = threadIdx.x % WORDS, y = threadIdx.x / WORDS;
#pragma unroll 1
  while (corner.left != 0) {
    u32 wide = corner.wide, high = corner.high;
    u8* target = corner.target;
    {
      i64 stride = plan.strides[plan.n - 1], past = (i64)((STEP - 1) * P) * stride;
      const u8* source = corner.source + x * sizeof(T) + (i64)(y * P) * stride;
#pragma unroll 1
      for (u32 begin = 0; begin < WORDS; begin += AT_ONCE * STEP) {
        W words[AT_ONCE][P];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
          bool there = x < wide && begin + y + k * STEP < high;
#pragma unroll
          for (u32 p = 0; p < P; p++) {
            if (there) words[k][p] = __ldg((const T*)source);
            source += stride;
          }
          source += past;
        }
        // The tile before has been written.
        if (begin == 0) __syncthreads();
        // Row p * WORDS + x of the tile has what lies at unit x * P + p of the fast dimension.
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
          swap_within<P>(words[k]);
#pragma unroll
          for (u32 p = 0; p < P; p++) tile[(p * WORDS + x) * PITCH + begin + y + k * STEP] = words[k][p];
        }
      }
    }
    if (threadIdx.x == 0) next_tile(plan, from, to, corner);
    __syncthreads();
    u64 step = plan.steps[plan.fast] * UNIT, beyond = (u64)((STEP - 1) * P) * step;
    target += x * sizeof(T) + (u64)(y * P) * step;
#pragma unroll 1
    for (u32 begin = 0; begin < WORDS; begin += AT_ONCE * STEP) {
#pragma unroll
      for (u32 k = 0; k < AT_ONCE; k++) {
        u32 row = begin + y + k * STEP;
        bool there = x < high && row < wide;
#pragma unroll
        for (u32 p = 0; p < P; p++) {
          if (there) store((T*)target, (T)tile[(p * WORDS + row) * PITCH + x]);
          target += step;
        }
        target += beyond;
      }
    }
  }
}
