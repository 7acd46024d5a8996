// How a tensor with any strides is made contiguous: what is moved as one, and along which dimensions.
#pragma once
#include "words.cuh"

// One copy of a long division, where it is rare.
static __device__ __noinline__ u64 divide(u64 a, u64 by) { return a / by; }

// `small`: both are below 2^32, which takes a quarter of the instructions.
DEVICE u64 quotient(u64 a, u64 by, bool small) { return small ? (u32)a / (u32)by : divide(a, by); }

// Units along either side of a tile, for which it pays.
#define SHORTEST_SIDE 8
#define MOST_DIMS ((CROSSDOCK_MAX_KERNEL_ARGS - 5) / 2 + 1)
// Beyond so many bytes a tensor is nonsense; below, no sum of its offsets overflows.
#define FAR 1125899906842624.0

struct Plan {
  // The first unit of either side.
  const u8* from;
  u8* to;
  u32 n;
  // 1, 2, 4, 8 or 16 bytes.
  u32 unit;
  // Units that are moved as one word; 1 where they do not lie so.
  u32 pack;
  // Whether 32 bits count the words of the target.
  bool small;
  // The dimension along which units lie side by side in the source, if that is not the last and tiles pay; else n.
  u32 fast;
  // Words of the target; 0 where there is nothing to do.
  u64 total;
  // Planes of tiles: all there is in the other dimensions.
  u64 planes;
  // How many blocks share the work.
  u64 blocks;
  // From one unit of a word to the next in the source, if there are no tiles.
  i64 inner;
  u64 sizes[MOST_DIMS];
  i64 strides[MOST_DIMS];
  // Of the target, in bytes too.
  u64 steps[MOST_DIMS];
};

// Two dimensions by tiles: the one along which the source lies, and the last. Words are of 8 bytes where all places at which
// a row may begin or end allow it, of 4 where they allow that, else of one unit.
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

// Units next to each other in the target become words.
DEVICE void plan_words(Plan& plan) {
  u32 last = plan.n - 1, pack = plan.unit < 4 ? 4 / plan.unit : 1;
  plan.inner = plan.strides[last];
  if ((u64)plan.to % 4 != 0 || plan.sizes[last] % pack != 0) return;
  plan.pack = pack;
  plan.sizes[last] >>= __ffs(pack) - 1;
  plan.strides[last] *= pack;
  plan.total >>= __ffs(pack) - 1;
}

// The bytes of a row (an element, or several that lie side by side) become units, as wide as everything divides. All units
// lie within what is read, and have room in what is written, or there are none: that is looked at once, for all. Blocks may
// have little else to do, so there is one way through the dimensions and no division.
DEVICE void make_plan(const Job& job, u32 dims, u64 width, Bytes from, u64 first, Target to, Plan& plan) {
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
  bool counts = volume < FAR && far < FAR;
  bool within = counts && low >= 0 && (u64)end <= from.len && bytes <= to.len;
  u64 unit = all & (0 - all);
  u32 shift = __ffs((u32)unit) - 1;
  // A row of one unit needs no dimension of its own.
  if (row > unit || n == 0) {
    plan.sizes[n] = row >> shift;
    plan.strides[n] = (i64)unit;
    plan.steps[n++] = unit;
  }
  plan.n = n;
  plan.unit = (u32)unit;
  plan.pack = 1;
  plan.total = within ? bytes >> shift : 0;
  plan.small = plan.total >> 32 == 0;
  plan.fast = n;
  if (plan.total == 0) return;
  if (plan.strides[n - 1] != (i64)unit && plan.sizes[n - 1] >= SHORTEST_SIDE) {
#pragma unroll 1
    for (u32 i = 0; i + 1 < n; i++) {
      if (plan.strides[i] == (i64)unit && plan.sizes[i] >= SHORTEST_SIDE) plan.fast = i;
    }
  }
  if (plan.fast < n) {
    plan_tiles(plan);
  } else {
    plan_words(plan);
  }
}
