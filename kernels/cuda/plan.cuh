// How a tensor with any strides is made contiguous: what is moved as one, and along which dimensions.
#pragma once
#include "words.cuh"

// One copy of a long division, where it is rare.
static __device__ __noinline__ u64 divide(u64 a, u64 by) { return a / by; }

// `small`: both are below 2^32, which takes a quarter of the instructions.
DEVICE u64 quotient(u64 a, u64 by, bool small) { return small ? (u32)a / (u32)by : divide(a, by); }

#define MOST_DIMS ((CROSSDOCK_MAX_KERNEL_ARGS - 5) / 2 + 1)
// Beyond so many bytes a tensor is nonsense; below, no sum of its offsets overflows.
#define FAR 1125899906842624.0

struct Plan {
  u32 n;
  // 1, 2, 4, 8 or 16 bytes.
  u32 unit;
  // Units that are moved as one word of 4 bytes: 4 / unit, or 1 where they do not lie so.
  u32 pack;
  // Whether 32 bits count the words of the target.
  bool small;
  // The dimension along which units lie side by side in the source, if that is not the last and tiles pay; else n.
  u32 fast;
  // Units of a tile's side.
  u32 side;
  // Words of the target; 0 where there is nothing to do.
  u64 total;
  // Tiles along either dimension, all of them, and how many in a row a block moves.
  u64 across;
  u64 along;
  u64 tiles;
  u64 tiles_each;
  // From one unit of a word to the next in the source, if there are no tiles.
  i64 inner;
  u64 sizes[MOST_DIMS];
  i64 strides[MOST_DIMS];
  // Of the target, in units.
  u64 steps[MOST_DIMS];
};

// Two dimensions by tiles: the one along which the source lies, and the last.
DEVICE void plan_tiles(Plan& plan, u64 source, u64 target, u64 blocks) {
  u64 last = plan.sizes[plan.n - 1], fast = plan.sizes[plan.fast];
  u64 all = source | target | (last | fast) * plan.unit;
#pragma unroll 1
  for (u32 i = 0; i < plan.n; i++) {
    if (i != plan.fast) all |= (u64)plan.strides[i];
  }
  plan.pack = plan.unit < 4 && all % 4 == 0 ? 4 / plan.unit : 1;
  plan.side = plan.unit * plan.pack == 16 ? 32 : plan.pack > 1 ? 128 : 64;
  plan.across = quotient(fast + plan.side - 1, plan.side, plan.small);
  plan.along = quotient(last + plan.side - 1, plan.side, plan.small);
  plan.tiles = plan.across * plan.along * divide(plan.total, fast * last);
  plan.tiles_each = divide(plan.tiles + blocks - 1, blocks);
}

// Units next to each other in the target become words.
DEVICE void plan_words(Plan& plan, u64 target) {
  u32 last = plan.n - 1, pack = plan.unit < 4 ? 4 / plan.unit : 1;
  plan.inner = plan.strides[last];
  if (target % 4 != 0 || plan.sizes[last] % pack != 0) return;
  plan.pack = pack;
  plan.sizes[last] /= pack;
  plan.strides[last] *= pack;
  plan.total /= pack;
}

// Whether all units lie within what is read, and have room in what is written. Looked at once, for all.
DEVICE bool lies_within(const Plan& plan, u64 first, Bytes from, Target to) {
  double all = plan.unit, far = (double)first;
#pragma unroll 1
  for (u32 i = 0; i < plan.n; i++) {
    all *= (double)plan.sizes[i];
    far += (double)(plan.sizes[i] - 1) * fabs((double)plan.strides[i]);
  }
  if (!(all < FAR && far < FAR)) return false;
  i64 low = (i64)first, end = (i64)(first + plan.unit);
#pragma unroll 1
  for (u32 i = 0; i < plan.n; i++) {
    i64 reach = (i64)(plan.sizes[i] - 1) * plan.strides[i];
    (reach < 0 ? low : end) += reach;
  }
  return low >= 0 && (u64)end <= from.len && plan.total * plan.unit <= to.len;
}

// The bytes of a row (an element, or several that lie side by side) become units, as wide as everything divides.
DEVICE void make_plan(const Job& job, u32 dims, u64 width, Bytes from, u64 first, Target to, Plan& plan) {
  u32 n = (job.n - dims) / 2;
  u64 source = (u64)from.at + first, target = (u64)to.at;
  u64 row = width, all = source | target;
#pragma unroll 1
  for (u32 i = 0; i < n; i++) {
    plan.sizes[i] = job.value(dims + 2 * i);
    plan.strides[i] = (i64)job.value(dims + 2 * i + 1);
  }
  if (n > 0 && plan.strides[n - 1] == (i64)width) row = width * plan.sizes[--n];
#pragma unroll 1
  for (u32 i = 0; i < n; i++) all |= (u64)plan.strides[i];
  all |= row | 16;
  plan.unit = (u32)(all & (0 - all));
  plan.sizes[n] = row >> (__ffs(plan.unit) - 1);
  plan.strides[n] = plan.unit;
  // A row of one unit needs no dimension of its own.
  if (plan.sizes[n] > 1 || n == 0) n++;
  plan.n = n;
  u64 step = 1;
#pragma unroll 1
  for (u32 i = n; i-- > 0;) {
    plan.steps[i] = step;
    step *= plan.sizes[i];
  }
  plan.total = step;
  plan.small = step >> 32 == 0;
  if (!lies_within(plan, first, from, to)) plan.total = 0;
  plan.fast = n;
  plan.pack = 1;
  if (plan.total == 0) return;
  if (plan.strides[n - 1] != (i64)plan.unit) {
#pragma unroll 1
    for (u32 i = 0; i + 1 < n; i++) {
      bool pays = plan.sizes[i] >= 8 && plan.sizes[n - 1] >= 8;
      if (plan.strides[i] == (i64)plan.unit && pays) plan.fast = i;
    }
  }
  if (plan.fast < n) {
    plan_tiles(plan, source, target, job.threads / THREADS);
  } else {
    plan_words(plan, target);
  }
}
