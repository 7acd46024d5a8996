// Plans the copy of a strided tensor. A unit is the 1 to 16 bytes that are contiguous in the source
// and the target. A word is one unit, or several units that are moved together. A tile is a
// rectangle of units along two dimensions (see tiles.cuh). A plane is all tiles that have the same
// position in all other dimensions.
#pragma once
#include "words.cuh"

// Not inlined, because a long division is rare.
static __device__ __noinline__ u64 divide(u64 a, u64 by) { return a / by; }

// If `small`, both numbers are below 2^32. The division then takes a quarter of the instructions.
DEVICE u64 quotient(u64 a, u64 by, bool small) { return small ? (u32)a / (u32)by : divide(a, by); }

// Minimum number of units along either side of a tile. With fewer units, copying by tiles is
// slower.
#define MIN_TILE_SIDE 8
#define MAX_DIMS ((CROSSDOCK_MAX_KERNEL_ARGS - 5) / 2 + 1)
// Tensors of at least this many bytes are rejected. Below this size, no sum of offsets overflows.
#define SIZE_LIMIT 1125899906842624.0

struct Plan {
  // The first unit in the source and in the target.
  const u8* from;
  u8* to;
  u32 n;
  // The size of a unit in bytes: 1, 2, 4, 8 or 16.
  u32 unit;
  // Units per word; 1 if several units cannot be moved together.
  u32 pack;
  // Whether the target has fewer than 2^32 units.
  bool small;
  // The dimension whose units are adjacent in the source, if it is not the last one and tiles are
  // faster; else n.
  u32 fast;
  // The number of words of the target (with tiles: of units); 0 if there is nothing to copy.
  u64 total;
  // The number of planes of tiles: the product of the sizes of the other dimensions.
  u64 planes;
  // The number of blocks that share the copy.
  u64 blocks;
  // Without tiles: the distance between the units of a word in the source, in bytes.
  i64 inner;
  u64 sizes[MAX_DIMS];
  i64 strides[MAX_DIMS];
  // Strides of the target, in bytes.
  u64 steps[MAX_DIMS];
};

// Plans tiles along two dimensions: the dimension whose units are adjacent in the source, and the
// last dimension. Words have 8 bytes if all rows begin and end at multiples of 8 bytes, or 4 bytes
// if all rows begin and end at multiples of 4 bytes. Otherwise a word is one unit.
DEVICE void plan_tiles(Plan& plan) {
  u32 last = plan.n - 1;
  u64 all = (u64)plan.from | (u64)plan.to | (plan.sizes[last] | plan.sizes[plan.fast]) * plan.unit;
  plan.planes = 1;
#pragma unroll 1
  for (u32 i = 0; i < plan.n; i++) {
    if (i == plan.fast) continue;
    all |= (u64)plan.strides[i];
    if (i != last) plan.planes *= plan.sizes[i];
  }
  u32 word = all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : plan.unit;
  if (word > plan.unit) plan.pack = word >> (__ffs(plan.unit) - 1);
}

// Plans a copy without tiles. A word consists of units that are adjacent in the target.
DEVICE void plan_words(Plan& plan) {
  u32 last = plan.n - 1, pack = plan.unit < 4 ? 4 / plan.unit : 1;
  plan.inner = plan.strides[last];
  if ((u64)plan.to % 4 != 0 || plan.sizes[last] % pack != 0) return;
  plan.pack = pack;
  plan.sizes[last] >>= __ffs(pack) - 1;
  plan.strides[last] *= pack;
  plan.total >>= __ffs(pack) - 1;
}

// Plans the copy. A row is an element, or several adjacent elements. The unit is the largest power
// of two, at most 16, that divides all addresses, all strides and the row. Checks once that all
// units are within the source and the target; if not, the plan has no words. The function has one
// loop over the dimensions and no division, because every block runs it and may have little else to
// do.
DEVICE void init_plan(const Job& job, u32 dims, u64 width, Bytes from, u64 first, Target to, Plan& plan) {
  u32 n = (job.n - dims) / 2;
  u64 row = width;
  if (n > 0 && job.value(dims + 2 * n - 1) == width) row = width * job.value(dims + 2 * --n);
  plan.from = from.at + first;
  plan.to = to.at;
  plan.blocks = job.threads / THREADS;
  u64 all = (u64)plan.from | (u64)plan.to | row | 16, bytes = row;
  i64 low = (i64)first, end = (i64)(first + row);
  double volume = (double)row, far = (double)first + (double)row;
#pragma unroll 1
  for (u32 i = n; i-- > 0;) {
    u64 size = job.value(dims + 2 * i);
    i64 stride = (i64)job.value(dims + 2 * i + 1), reach = (i64)(size - 1) * stride;
    plan.sizes[i] = size;
    plan.strides[i] = stride;
    plan.steps[i] = bytes;
    all |= (u64)stride;
    bytes *= size;
    (reach < 0 ? low : end) += reach;
    volume *= (double)size;
    far += (double)(size - 1) * fabs((double)stride);
  }
  bool is_small_enough = volume < SIZE_LIMIT && far < SIZE_LIMIT;
  bool is_valid = is_small_enough && low >= 0 && (u64)end <= from.len && bytes <= to.len;
  u64 unit = all & (0 - all);
  u32 shift = __ffs((u32)unit) - 1;
  // A row of several units is a dimension of its own.
  if (row > unit || n == 0) {
    plan.sizes[n] = row >> shift;
    plan.strides[n] = (i64)unit;
    plan.steps[n++] = unit;
  }
  plan.n = n;
  plan.unit = (u32)unit;
  plan.pack = 1;
  plan.total = is_valid ? bytes >> shift : 0;
  plan.small = plan.total >> 32 == 0;
  plan.fast = n;
  if (plan.total == 0) return;
  if (plan.strides[n - 1] != (i64)unit && plan.sizes[n - 1] >= MIN_TILE_SIDE) {
#pragma unroll 1
    for (u32 i = 0; i + 1 < n; i++) {
      if (plan.strides[i] == (i64)unit && plan.sizes[i] >= MIN_TILE_SIDE) plan.fast = i;
    }
  }
  if (plan.fast < n) {
    plan_tiles(plan);
  } else {
    plan_words(plan);
  }
}
